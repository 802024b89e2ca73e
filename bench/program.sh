#!/bin/sh
# Builds what the other scripts measure, and prints where it is: terrace-bench, or another program (bench/program.sh cli terrace).
# PROFILE names another profile than `dist`, which is what packages are built with.
set -eu
cd "$(dirname "$0")/.."
profile=${PROFILE:-dist}
cargo build --quiet --locked --profile "$profile" -p "${1:-bench}" >&2
echo "${CARGO_TARGET_DIR:-$PWD/target}/$profile/${2:-terrace-bench}"
