#!/usr/bin/env bash
# Miss-ratio curves beside libCacheSim, in one run, medians: bench/mrc.sh [MILLION_REFERENCES [THOUSAND_PAGES [RUNS]]]
#
# The references lie in a file that is mapped and warm. libCacheSim's Python wheel has no curves: it simulates one size, which a
# curve of all sizes is held against. Its mrcProfiler (exact, and SHARDS) is used where LIBCACHESIM_BIN names the directory of its
# binary: `pip download --no-deps --no-binary :all: libcachesim` has the sources, in src/libCacheSim; they need CMake and GLib.
# PYTHON names an interpreter that has libcachesim; without it a virtual environment is made below the target directory.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -q -p trace --example mrc_native
target=${CARGO_TARGET_DIR:-target}
python=${PYTHON:-$target/bench-venv/bin/python}
if ! "$python" -c "import libcachesim" 2>/dev/null; then
  python3 -m venv "$target/bench-venv" && "$target/bench-venv/bin/python" -m pip install -q libcachesim 2>/dev/null &&
    python=$target/bench-venv/bin/python || { python=python3; echo "skipped: needs libCacheSim's wheel from PyPI"; }
fi
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$target/release/examples/mrc_native" generate "$directory/t.trc" "${1:-20}" "${2:-1000}"
"$python" bench/mrc.py "$target/release/examples/mrc_native" "$directory/t" "${1:-20}" "${2:-1000}" "${3:-5}"
