#!/usr/bin/env bash
# How fast the flash translation layer and the timed drive are, beside a small C simulator of the same method, in one run.
# usage: bench/flash.sh [RUNS [BLOCKS PAGES SPARE]]      (3 runs of 16,384 blocks of 256 pages with 15 % spare: about two minutes)
# The C program is ../shared/reference/ftl.c; without it, or without a C compiler, its part says "skipped".
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-3} blocks=${2:-16384} pages=${3:-256} spare=${4:-0.15}
cargo build --release --locked -q -p flash --example ftl_speed --example drive_speed --example waf
examples=${CARGO_TARGET_DIR:-target}/release/examples
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

peer= dir=
if [ -f ../shared/reference/ftl.c ] && command -v cc > /dev/null; then
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  cc -O3 -march=native -w -o "$dir/ftl" ../shared/reference/ftl.c -lm
  peer=$dir/ftl
fi

ours=() theirs=() timed=()
for _ in $(seq "$runs"); do
  # One after the other, so that both have the same neighbours.
  ours+=("$("$examples/ftl_speed" "$blocks" "$pages" "$spare" 1 | awk 'NR == 2 { print $2 }')")
  timed+=("$("$examples/drive_speed" 8000000 1 | awk 'NR == 1 { print $3 }')")
  if [ -n "$peer" ]; then
    # Processor time, as for ours: user time of all of it. It writes the drive once in order, then 14 times its pages at random; the
    # first pass is faster and in its favour.
    TIMEFORMAT=%U
    seconds=$({ time "$peer" "$blocks" "$pages" "$spare" 0 0 0 > "$dir/line"; } 2>&1)
    theirs+=("$(awk -v b="$blocks" -v p="$pages" -v s="$spare" -v t="$seconds" \
      'BEGIN { print ((1 - s) * b * p + 14 * b * p) / t / 1e6 }')")
  fi
done
echo "write amplification by spare space: here, elsewhere, ratio, Desnoyers, Menon, victims, IOPS"
"$examples/waf"
untimed=$(printf '%s\n' "${ours[@]}" | median)
echo "translation layer, $blocks x $pages, spare $spare: $untimed million host writes/s on one core (median of $runs)"
echo "timed drive, 64 units, buffer, 32 tags, WAF 3.48: $(printf '%s\n' "${timed[@]}" | median) million requests/s on one core"
if [ -n "$peer" ]; then
  c=$(printf '%s\n' "${theirs[@]}" | median)
  echo "C program: $c million host writes/s; ratio $(awk -v a="$untimed" -v b="$c" 'BEGIN { printf "%.2f", a / b }')  ($(cat "$dir/line"))"
else
  echo "C program: skipped: needs ../shared/reference/ftl.c and a C compiler"
fi
