#!/bin/sh
# Cache policies beside libCacheSim, the Rust crates lru and quick_cache, and Python's cachetools: medians, ratios, JSON on the
# last line of that part; then counts beside libCacheSim's on captured traces.
# Usage: bench/cache.sh [RUNS]     (1.7 GB of traces in a temporary directory: 20 M references to 1 M objects, 50 M to 13 M)
# Times are of a core, as the kernel counts them. Everybody gets dense ids; giving them is timed as "numbering". libCacheSim
# reads its records from a mapped file while it is timed, the others have theirs in memory.
# PYTHON names an interpreter that has libcachesim and cachetools; without it a virtual environment is made below the target
# directory. COUNTS=no leaves the second part out, which needs the whole of terrace.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
ours=$(bench/program.sh)
CARGO_TARGET_DIR=$target/cache-peer cargo build --release --quiet --locked --manifest-path bench/cache/peer/Cargo.toml
python=${PYTHON:-$target/bench-cache/bin/python}
if ! "$python" -c "import libcachesim, cachetools" 2>/dev/null; then
  python3 -m venv "$target/bench-cache"
  python=$target/bench-cache/bin/python
  "$python" -m pip install --quiet libcachesim cachetools
fi
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$ours" cache-speed generate "$directory/small" 1000000 20000000 0.9
"$ours" cache-speed generate "$directory/large" 19000000 50000000 0.8
python3 -u bench/cache/compare.py "${1:-3}" "$ours" "$target/cache-peer/release/cache-peer" "$python" \
  "$directory/small" "$directory/large"
[ "${COUNTS:-yes}" = no ] && exit 0
if [ ! -d ../shared/traces ]; then
  echo "skipped: no ../shared/traces"
  exit 0
fi
terrace=$(bench/program.sh cli terrace)
for trace in ../shared/traces/cloudphysics_sample/*.vscsi.xz ../shared/traces/arc_lis/*.zst \
  ../shared/traces/ms_dtrs/*.xz ../shared/traces/cache_misc/*.gz; do
  python3 -u bench/cache/counts.py "$terrace" "$python" "$trace"
done
