#!/bin/sh
# The demonstration's target over several runs: from two migration epochs after the start, and after the change in load, on, gold and silver
# volumes miss their objective in at most 2 % of windows, less what the control shows, with at most 12 moves. Tells each run, the median and
# the worst; fails if the worst misses the target.
# Usage: bench/demo.sh [RUNS [DIRECTORY [STRATEGY]]]     10 runs, of seeds 1 to RUNS, under `terrace`
# Results are kept in DIRECTORY as JSON, one file each, where one is given: a run that is there is not repeated. A run takes three minutes; what
# else the machine does shows in the control. PROFILE names another profile to build with than `dist`.
set -eu
cd "$(dirname "$0")/.."
runs=${1:-10}
kept=${2:-}
strategy=${3:-terrace}
terrace=$(bench/program.sh cli terrace)
if [ -z "$kept" ]; then
  kept=$(mktemp -d)
  trap 'rm -rf -- "$kept"' EXIT
  trap 'exit 1' INT TERM
fi
mkdir -p "$kept"
for seed in $(seq "$runs"); do
  run=$kept/$strategy-$seed.json
  [ -s "$run" ] && continue
  echo "run $seed of $runs" >&2
  "$terrace" demo --strategy "$strategy" --seed "$seed" -o json >"$run.tmp" 2>"$run.log"
  mv "$run.tmp" "$run"
done
python3 bench/demo.py "$kept" "$strategy" "$runs"
