#!/bin/sh
# What the rivals of `terrace` do with other parameters than their defaults: V of each variant in bench/rivals.toml over that of the rival as it is, on
# the random arrays that `terrace` was developed on.
# Usage: bench/rivals.sh [DIRECTORY], for results of runs; ARRAYS names other arrays than 1..20, RIVALS
# other rivals than all.
set -eu
cd "$(dirname "$0")/.."
terrace=$(bench/program.sh cli terrace)
kept=${1:-${CARGO_TARGET_DIR:-target}/rivals/$(cksum <"$terrace" | tr ' ' -)}
mkdir -p "$kept"
for rival in ${RIVALS:-autotiering edt colloid arms}; do
  "$terrace" bench decisions --generated "${ARRAYS:-1..20}" --parameters bench/rivals.toml --variants-of "$rival" --out "$kept"
done
