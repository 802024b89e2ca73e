#!/bin/sh
# Checks the target of the demonstration over several runs. From two migration epochs after the start and after the load change, gold and
# silver volumes violate their objective in at most 2 % more windows than the control volume, with at most 12 moves. Prints each run, the
# median and the worst; fails if the worst run does not meet the target.
# Usage: bench/demo.sh [RUNS [DIRECTORY [STRATEGY]]]     10 runs, of seeds 1 to RUNS, under `terrace`
# With DIRECTORY, results are saved there as JSON, one file per run, and existing runs are not repeated. A run takes three minutes; other
# load of the machine appears in the control volume. PROFILE selects another build profile than `dist`.
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
