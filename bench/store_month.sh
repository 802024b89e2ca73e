#!/bin/sh
# How large a controller's store gets over simulated days of one host, and how long its commits take.
# Usage: bench/store_month.sh [DAYS [VOLUMES [DIRECTORY]]], 30 days of 1000 volumes unless told otherwise. The file is made below
# DIRECTORY (the system's place for temporary files) and removed at the end; a month of 1000 volumes needs 4 GiB there.
set -eu
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
directory=$(mktemp -d ${3:+-p "$3"})
trap 'rm -rf -- "$directory"' EXIT
trap 'exit 1' INT TERM
"$bench" month "${1:-30}" "${2:-1000}" "$directory/store.db"
