#!/bin/sh
# README's figures of decisions, from one program: the suite with seeds and random arrays, under `terrace` and its rivals, which have the parameters
# with which they did best (bench/rivals-best.toml), into docs/data/decisions-*.json, and the tables that are made of those into README.md.
# Usage: bench/figures.sh [--tables | DIRECTORY]
# With --tables only README.md is written, from the data that is there. Results of runs are kept in DIRECTORY, by default in the target directory by
# the program's checksum: what was interrupted goes on, and another program begins anew. STRATEGIES, SEEDS and ARRAYS name others; README's are those
# below. PROFILE names another profile to build with than `dist`.
set -eu
cd "$(dirname "$0")/.."
strategies=${STRATEGIES:-terrace,noop,static,idt,edt,autotiering}
seeds=${SEEDS:-1..5}
arrays=${ARRAYS:-1001..1040}
# Not scenarios, or of traces that are not in this repository: anybody can make the figures.
leave_out='suite production production-pressed'

suite=docs/data/decisions-suite.json
random=docs/data/decisions-random.json
begin='<!-- decisions:begin -->'
end='<!-- decisions:end -->'
for marker in "$begin" "$end"; do
  [ "$(grep -cxF -e "$marker" README.md)" = 1 ] || { echo "README.md: \"$marker\" has to be there once" >&2; exit 1; }
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

"$terrace" bench figures "$suite" "$random" >README.block.tmp
awk -v begin="$begin" -v end="$end" '
    NR == FNR { block = block $0 "\n"; next }
    $0 == end { inside = 0 }
    !inside { print }
    $0 == begin { printf "%s", block; inside = 1 }' README.block.tmp README.md >README.md.tmp
mv README.md.tmp README.md
rm README.block.tmp
