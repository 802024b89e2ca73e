#!/usr/bin/env bash
# The published experiments in full: their outcomes as JSON, and their results in docs/results/reproductions as Markdown, with readings and claims as JSON. What was
# run before is kept and not run again, so that a command which was ended goes on where it was. Two to three hours on two cores. After a change to the code give another DIR: what is kept is not asked whether it is of the same program.
# usage: bench/papers.sh DIR [PAPER ...]     autotiering, dual-period, priority-lru, ops-isolation, dynamite; all of them without
set -euo pipefail
dir=$(mkdir -p "${1:?usage: bench/papers.sh DIR [PAPER ...]}" && cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
papers=(autotiering dual-period priority-lru ops-isolation dynamite)
program=${REPRODUCE:-$(PROFILE=release bench/program.sh terrace-reproduce terrace-reproduce)}
pages=docs/results/reproductions
mkdir -p $pages
for paper in "${@:-${papers[@]}}"; do
  for form in json markdown; do
    "$program" "$paper" --keep "$dir/$paper" -o $form >"$dir/$paper.$form.part"
    mv "$dir/$paper.$form.part" "$dir/$paper.$form"
  done
  cp "$dir/$paper.markdown" "$pages/$paper.markdown"
  # Not by jq: seeds are larger than its numbers.
  python3 -c 'import json, sys
whole = json.load(sys.stdin)
kept = {key: whole[key] for key in ("schema", "version", "setup", "readings", "tally", "claims") if key in whole}
print(json.dumps(kept, separators=(",", ":"), ensure_ascii=False))' <"$dir/$paper.json" >"$pages/$paper.json"
done
# Of all that are there, also of earlier runs.
outcomes=()
for paper in "${papers[@]}"; do
  [ ! -s "$pages/$paper.json" ] || outcomes+=("$pages/$paper.json")
done
"$program" summary "${outcomes[@]}" -o markdown >"$pages/summary.markdown"
"$program" summary "${outcomes[@]}"
