#!/usr/bin/env bash
# How fast the flash translation layer and the timed drive are, beside other programs, in one run, per second of processor time of one core.
# usage: bench/flash.sh [RUNS [BLOCKS PAGES SPARE]]      (3 runs of 16,384 blocks of 256 pages with 15 % spare: about two minutes)
#
# Everybody does random 4 KiB writes in steady state. Who is not there is skipped, in words that say what is needed:
#   FTL_C      source of a small C simulator of the same method without timing (../shared/reference/ftl.c), beside the translation layer
#   MQSIM      binary of MQSim, beside the timed drive: bench/flash/mqsim.sh
#   SIMPLESSD  binary of SimpleSSD, beside the timed drive: bench/flash/simplessd.sh
# The last two model more of a drive than is modelled here (docs/concepts/flash.md, at its end): a ratio is the price of that, too.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-3} blocks=${2:-16384} pages=${3:-256} spare=${4:-0.15}
bench=$(bench/program.sh)
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3g", a / b }'; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
source=${FTL_C:-../shared/reference/ftl.c} c_needs=
if ! command -v cc > /dev/null; then
  c_needs="skipped: needs a C compiler"
elif [ ! -f "$source" ]; then
  c_needs="skipped: needs $source (FTL_C names another place)"
else
  cc -O3 -march=native -w -o "$dir/ftl" "$source" -lm
fi

ours=() theirs=() timed=()
for run in $(seq "$runs"); do
  # One after the other, so that all have the same neighbours.
  ours+=("$("$bench" ftl-speed "$blocks" "$pages" "$spare" 1 | awk 'NR == 2 { print $2 }')")
  timed+=("$("$bench" drive-speed 8000000 1 | awk 'NR == 1 { print $3 }')")
  if [ -z "$c_needs" ]; then
    # User time of all of it, as ours is the processor's. It writes the drive once in order, then 14 times its pages at random; the
    # first pass is faster and in its favour.
    TIMEFORMAT=%U
    seconds=$({ time "$dir/ftl" "$blocks" "$pages" "$spare" 0 0 0 > "$dir/line"; } 2>&1)
    theirs+=("$(awk -v b="$blocks" -v p="$pages" -v s="$spare" -v t="$seconds" \
      'BEGIN { print ((1 - s) * b * p + 14 * b * p) / t / 1e6 }')")
  fi
  for peer in mqsim simplessd; do
    # On the geometry of drive_speed, which is fixed. A line of two numbers each time that it works, else the reason, once.
    [ "$run" -gt 1 ] && [ -f "$dir/$peer.not" ] && continue
    if line=$(bash "bench/flash/$peer.sh" 2> "$dir/$peer.err"); then
      echo "$line" >> "$dir/$peer"
    else
      { echo "$line"; cat "$dir/$peer.err"; } > "$dir/$peer.not"
    fi
  done
done

echo "write amplification by spare space: here, elsewhere, ratio, Desnoyers, Menon, victims, IOPS"
"$bench" waf
untimed=$(printf '%s\n' "${ours[@]}" | median)
echo "translation layer, $blocks x $pages, spare $spare: $untimed million host writes/s on one core (median of $runs)"
if [ -z "$c_needs" ]; then
  c=$(printf '%s\n' "${theirs[@]}" | median)
  echo "  C program: $c million host writes/s; ratio $(ratio "$untimed" "$c")  ($(cat "$dir/line"))"
else
  echo "  C program: $c_needs"
fi
drive=$(printf '%s\n' "${timed[@]}" | median)
echo "timed drive, 64 units, buffer, 32 tags, WAF 3.48: $drive million requests/s on one core"
for peer in mqsim simplessd; do
  if [ -f "$dir/$peer.not" ]; then
    echo "  $peer: $(cat "$dir/$peer.not")"
  else
    its=$(median < "$dir/$peer")
    echo "  $peer: $its million requests/s, WAF $(awk '{ print $2 }' "$dir/$peer" | median); ratio $(ratio "$drive" "$its")"
  fi
done
