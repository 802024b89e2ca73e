#!/usr/bin/env bash
# Miss-ratio curves beside libCacheSim, in one run, medians: bench/mrc.sh [MILLION_REFERENCES [THOUSAND_PAGES [RUNS]]]
#
# The references lie in a file that is mapped and warm. libCacheSim's Python wheel has no curves: it simulates one size, which a
# curve of all sizes is held against. Its mrcProfiler (exact, and SHARDS) is in the sources only: LIBCACHESIM_BIN names the directory
# of its binary; else it is built below the target directory, once, from the sources that PyPI has (80 MB). That needs a C++ compiler,
# pkg-config and GLib's headers (Debian: libglib2.0-dev); CMake comes from PyPI too. What is missing is said, and that part left out.
# PYTHON names an interpreter that has libcachesim; without it a virtual environment is made below the target directory.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
target=${CARGO_TARGET_DIR:-$PWD/target}
venv=$target/bench-venv
python=${PYTHON:-$venv/bin/python}
if ! "$python" -c "import libcachesim" 2>/dev/null; then
  python3 -m venv "$venv" && "$venv/bin/python" -m pip install -q libcachesim 2>/dev/null &&
    python=$venv/bin/python || { python=python3; echo "skipped: needs libCacheSim's wheel from PyPI"; }
fi

# Builds mrcProfiler into directory $1. Joined by &&: where its failure is looked at, bash goes on after errors.
build_profiler() {
  local sources=$1/sources
  { [ -x "$venv/bin/python" ] || python3 -m venv "$venv"; } &&
    "$venv/bin/python" -m pip install -q cmake &&
    rm -rf "$sources" && mkdir -p "$sources" &&
    "$venv/bin/python" -m pip download -q --no-deps --no-binary libcachesim --dest "$sources" libcachesim &&
    tar -xzf "$sources"/libcachesim-*.tar.gz -C "$sources" --strip-components 1 &&
    "$venv/bin/cmake" -S "$sources/src/libCacheSim" -B "$1" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
      -DENABLE_TESTS=OFF -DOPT_SUPPORT_ZSTD_TRACE=OFF &&
    "$venv/bin/cmake" --build "$1" --target mrcProfiler
}

if [ -z "${LIBCACHESIM_BIN:-}" ]; then
  build=$target/bench-libcachesim
  LIBCACHESIM_BIN=$build/bin
  if [ ! -x "$LIBCACHESIM_BIN/mrcProfiler" ]; then
    missing=
    command -v c++ >/dev/null || missing="$missing, a C++ compiler"
    command -v pkg-config >/dev/null || missing="$missing, pkg-config"
    pkg-config --exists glib-2.0 2>/dev/null || missing="$missing, GLib's headers (libglib2.0-dev)"
    if [ -n "$missing" ]; then
      echo "skipped: libCacheSim's mrcProfiler needs ${missing#, }"
    else
      mkdir -p "$build"
      build_profiler "$build" >"$build/log" 2>&1 || echo "skipped: mrcProfiler could not be built, see $build/log"
    fi
  fi
  export LIBCACHESIM_BIN
elif [ ! -x "$LIBCACHESIM_BIN/mrcProfiler" ]; then
  echo "skipped: no mrcProfiler in $LIBCACHESIM_BIN (LIBCACHESIM_BIN)"
fi
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$bench" mrc-native generate "$directory/t.trc" "${1:-20}" "${2:-1000}"
"$python" bench/mrc.py "$bench" "$directory/t" "${1:-20}" "${2:-1000}" "${3:-5}"
