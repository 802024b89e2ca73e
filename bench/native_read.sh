#!/bin/sh
# How fast mapped native traces are read on one core: a table, then JSON on the last line.
# Usage: bench/native_read.sh [RECORDS] [RUNS]      (50 million records are 1.2 GB in a temporary directory)
set -eu
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$bench" native-read "${1:-50000000}" "${2:-7}" "$directory"
