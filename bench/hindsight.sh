#!/bin/sh
# Searches for better plans in hindsight for the scenarios of the suite, and keeps those that it finds
# in docs/data/decisions-hindsight.json. Plans are only ever replaced by better ones. The search begins
# with the rivals' runs (parameters of bench/rivals-best.toml), the plans of the frozen version and the
# best known plans; never with runs of the present version of `terrace`. 300 candidates for each
# scenario and seed take many hours.
# Usage: bench/hindsight.sh [SCENARIO,...]
# SEEDS, CANDIDATES (at least 300) and PROFILE replace the values below.
set -eu
cd "$(dirname "$0")/.."
rivals=${RIVALS:-noop,static,idt,edt,autotiering}
terrace=$(bench/program.sh cli terrace)
kept=${CARGO_TARGET_DIR:-target}/figures/hindsight-$(cksum <"$terrace" | tr ' ' -)
mkdir -p "$kept"
scenarios=${1:-}
if [ -z "$scenarios" ]; then
  for file in suites/decisions/*.toml; do
    name=$(basename "$file" .toml)
    case " suite production production-pressed " in *" $name "*) continue ;; esac
    scenarios=${scenarios:+$scenarios,}$name
  done
fi
# One scenario after the other, so that an interrupted search has kept what it found. The first strategy is
# the judged one; its runs are not used.
echo "$scenarios" | tr , '\n' | while read -r scenario; do
  "$terrace" bench decisions --parameters bench/rivals-best.toml --scenarios "$scenario" --seeds "${SEEDS:-1..5}" --strategies "terrace,$rivals" \
    --hindsight "${CANDIDATES:-300}" --known docs/data/decisions-hindsight.json --out "$kept" >/dev/null
done
