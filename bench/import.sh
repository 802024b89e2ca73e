#!/usr/bin/env bash
# `terrace volume import` beside `qemu-img convert`, in one run: the same raw image to the same file system, both flushed at the end, in turn.
# usage: bench/import.sh [--runs N] [--mib N] [--dir DIR]
# Needs qemu-img. DIR takes three times the size (default: a temporary directory).
set -euo pipefail
cd "$(dirname "$0")/.."
runs=5 mib=1024 dir=
while [ $# -gt 0 ]; do
  case $1 in
    --runs) runs=$2 ;;
    --mib) mib=$2 ;;
    --dir) dir=$2 ;;
    *) sed -n 2,4p "$0" >&2; exit 2 ;;
  esac
  shift 2
done
terrace=$(bench/program.sh cli terrace)
work=$(mktemp -d ${dir:+-p "$dir"})
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
head -c $((mib << 20)) /dev/urandom >"$work/source.raw"
export TERRACE_ARRAY=$work/array
"$terrace" tier add fast --dir "$work" --size $((2 * mib + 64))M >/dev/null
"$terrace" volume create idle --size 1M --tier fast >/dev/null
"$terrace" volume export --listen "unix:$work/nbd.sock" >"$work/log" 2>&1 &
server=$!
until "$terrace" volume show idle 2>/dev/null | grep -q connections; do
  kill -0 $server || { cat "$work/log"; exit 1; }
  sleep 0.1
done

now() { date +%s.%N; }
took() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", b - a }'; }
settle() {
  sync
  cat "$work/source.raw" >/dev/null # both find it in memory
  sleep 1
}
echo "run  qemu-img_s  terrace_s  ratio"
for run in $(seq "$runs"); do
  settle
  a=$(now)
  # -t writeback: written as it comes, flushed at the end.
  qemu-img convert -f raw -O raw -t writeback "$work/source.raw" "$work/target.raw"
  sync "$work/target.raw"
  b=$(now)
  rm "$work/target.raw"
  settle
  c=$(now)
  "$terrace" volume import "v$run" "$work/source.raw" --tier fast >/dev/null
  d=$(now)
  "$terrace" volume delete "v$run" --yes >/dev/null
  theirs=$(took "$a" "$b") ours=$(took "$c" "$d")
  awk -v r="$run" -v t="$theirs" -v o="$ours" 'BEGIN { printf "%3d  %10.2f  %9.2f  %5.2f\n", r, t, o, t / o }'
done | tee "$work/rows"
sort -k4 -n "$work/rows" | awk '{ r[NR] = $4 } END { printf "terrace is %.2f times as fast as qemu-img (median of %d; worst %.2f)\n", r[int((NR + 1) / 2)], NR, r[1] }'
