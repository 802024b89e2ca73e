#!/bin/sh
# Runs the suite and random arrays under `terrace` and its rivals, with the parameters of
# bench/rivals-best.toml. Writes docs/data/decisions-*.json and the tables of
# docs/results/decisions.md.
# The random arrays are drawn from the hash of the present commit, the one that is judged: commit all
# changes of the program first. H is the best known plan in hindsight, of
# docs/data/decisions-hindsight.json; bench/hindsight.sh searches for better ones.
# Usage: bench/figures.sh [--tables | DIRECTORY]
# With --tables it only writes the page, from existing data. Results of runs are kept in DIRECTORY
# (default: a directory per checksum of the program in the target directory), so an interrupted run
# continues. STRATEGIES and SEEDS replace the values below. COMMIT (a full hash) replaces the present
# commit, for a copy without history. PROFILE replaces the build profile `dist`.
set -eu
cd "$(dirname "$0")/.."
# Those of suites/decisions/suite.toml: every registered rival.
strategies=${STRATEGIES:-}
seeds=${SEEDS:-1..5}
# Not scenarios, or of traces that are not in this repository: anybody can make the figures.
leave_out='suite production production-pressed'

page=docs/results/decisions.md
suite=docs/data/decisions-suite.json
random=docs/data/decisions-random.json
known=docs/data/decisions-hindsight.json
begin='<!-- decisions:begin -->'
end='<!-- decisions:end -->'
for marker in "$begin" "$end"; do
  [ "$(grep -cxF -e "$marker" "$page")" = 1 ] || { echo "$page: the marker \"$marker\" must occur once" >&2; exit 1; }
done
if [ "${1:-}" != --tables ]; then
  commit=${COMMIT:-}
  if [ -z "$commit" ]; then
    changed=$(git status --porcelain -- core live lab cli suites bench/rivals-best.toml Cargo.toml Cargo.lock)
    [ -z "$changed" ] || { echo "commit these changes first, their hash draws the arrays:" >&2; echo "$changed" >&2; exit 1; }
    commit=$(git rev-parse --verify HEAD)
  fi
fi
terrace=$(bench/program.sh cli terrace)

if [ "${1:-}" != --tables ]; then
  scenarios=
  for file in suites/decisions/*.toml; do
    name=$(basename "$file" .toml)
    case " $leave_out " in *" $name "*) continue ;; esac
    scenarios=${scenarios:+$scenarios,}$name
  done
  kept=${1:-${CARGO_TARGET_DIR:-target}/figures/$(cksum <"$terrace" | tr ' ' -)}
  mkdir -p docs/data "$kept"
  set -- bench decisions --parameters bench/rivals-best.toml --seeds "$seeds" ${strategies:+--strategies "$strategies"} --hindsight 0 --out "$kept"
  "$terrace" "$@" --scenarios "$scenarios" --known "$known" --figures "$suite.tmp"
  "$terrace" "$@" --fresh "$commit" --figures "$random.tmp"
  mv "$suite.tmp" "$suite"
  mv "$random.tmp" "$random"
fi

"$terrace" bench figures "$suite" "$random" >"$page.block.tmp"
awk -v begin="$begin" -v end="$end" '
    NR == FNR { block = block $0 "\n"; next }
    $0 == end { inside = 0 }
    !inside { print }
    $0 == begin { printf "%s", block; inside = 1 }' "$page.block.tmp" "$page" >"$page.tmp"
mv "$page.tmp" "$page"
rm "$page.block.tmp"
