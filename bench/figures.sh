#!/bin/sh
# Runs the suite and random arrays under `terrace` and its rivals, with the parameters of
# bench/rivals-best.toml. Writes docs/data/decisions-*.json and the tables of
# docs/results/decisions.md.
# Usage: bench/figures.sh [--tables | DIRECTORY]
# With --tables it only writes the page, from existing data. Results of runs are kept in DIRECTORY
# (default: a directory per checksum of the program in the target directory), so an interrupted run
# continues. STRATEGIES, SEEDS and ARRAYS replace the values below. PROFILE replaces the build
# profile `dist`.
set -eu
cd "$(dirname "$0")/.."
strategies=${STRATEGIES:-terrace,noop,static,idt,edt,autotiering}
seeds=${SEEDS:-1..5}
arrays=${ARRAYS:-1001..1040}
# Not scenarios, or of traces that are not in this repository: anybody can make the figures.
leave_out='suite production production-pressed'

page=docs/results/decisions.md
suite=docs/data/decisions-suite.json
random=docs/data/decisions-random.json
begin='<!-- decisions:begin -->'
end='<!-- decisions:end -->'
for marker in "$begin" "$end"; do
  [ "$(grep -cxF -e "$marker" "$page")" = 1 ] || { echo "$page: the marker \"$marker\" must occur once" >&2; exit 1; }
done
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
  "$terrace" bench decisions --parameters bench/rivals-best.toml --scenarios "$scenarios" --seeds "$seeds" --strategies "$strategies" --hindsight 0 --out "$kept" \
    --figures "$suite.tmp"
  "$terrace" bench decisions --parameters bench/rivals-best.toml --generated "$arrays" --strategies "$strategies" --hindsight 0 --out "$kept" \
    --figures "$random.tmp"
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
