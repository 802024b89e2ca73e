#!/bin/sh
# An MSR-style CSV to records in memory, beside polars reading the same columns: a table, then JSON on the last line.
# Usage: bench/csv_read.sh [ROWS] [RUNS]     (20 million rows are 1 GB in a temporary directory; decompression is no part of it)
# PYTHON names an interpreter that has polars; without it a virtual environment is made below the target directory.
set -eu
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
target=${CARGO_TARGET_DIR:-target}
python=${PYTHON:-$target/bench-venv/bin/python}
if ! "$python" -c "import polars" 2>/dev/null; then
  python3 -m venv "$target/bench-venv"
  python=$target/bench-venv/bin/python
  "$python" -m pip install --quiet polars
fi
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$bench" csv-rows generate "$directory/msr.csv" "${1:-20000000}"
"$python" bench/csv_read.py "$bench" "$python" "$directory/msr.csv" "${2:-5}"
