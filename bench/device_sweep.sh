#!/usr/bin/env bash
# Measures a device with fio for `terrace device calibrate`: reads and writes of 4 KiB, 64 KiB and 1 MiB at depths 1 to 64.
# usage: bench/device_sweep.sh [--seconds S] [--size BYTES] [--yes-destroy] TARGET [OUTDIR]
#
# TARGET is a new file on the device, which is removed at the end. A file that exists, or a block device, is only written to
# with --yes-destroy: everything in it is lost. Takes about 42 x (S + 1) seconds, S = 3 by default, and as long as it takes
# to fill TARGET once (--size, 1G by default; a whole device is not filled, only its first --size bytes are used).
set -euo pipefail

usage() { sed -n '3s/^# //p' "$0" >&2; exit 2; }
seconds=3 size=1G destroy=no
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    --size) size=${2:?--size needs a size, such as 4G}; shift 2 ;;
    --yes-destroy) destroy=yes; shift ;;
    -*) usage ;;
    *) break ;;
  esac
done
[ $# -ge 1 ] && [ $# -le 2 ] || usage
target=$1 out=${2:-device-sweep}
[[ $seconds =~ ^[1-9][0-9]{0,2}$ ]] || { echo "error: --seconds $seconds: give whole seconds, 1 to 999" >&2; exit 2; }
[[ $size =~ ^[1-9][0-9]*[KMGkmg]?$ ]] || { echo "error: --size $size: give bytes with K, M or G, such as 4G" >&2; exit 2; }
case $target in *:*) echo "error: $target: fio takes a colon for a list of files" >&2; exit 2 ;; esac
command -v fio > /dev/null || { echo "error: fio is not installed" >&2; exit 1; }
created=no
if [ -b "$target" ]; then
  [ $destroy = yes ] || { echo "error: $target is a block device; --yes-destroy overwrites it" >&2; exit 1; }
elif [ -e "$target" ]; then
  [ -f "$target" ] || { echo "error: $target is neither a file nor a block device" >&2; exit 1; }
  [ $destroy = yes ] || { echo "error: $target exists; --yes-destroy overwrites it" >&2; exit 1; }
else
  created=yes
  trap 'rm -f -- "$target"' EXIT
fi
mkdir -p "$out"

# Blocks that were never written are read without touching the medium, so the space is filled first.
echo "filling $size of $target" >&2
fio --name=fill --filename="$target" --size="$size" --rw=write --bs=1M --iodepth=8 --ioengine=libaio --direct=1 \
  --refill_buffers --end_fsync=1 --output-format=terse --output=/dev/null

job=$out/sweep.fio
{
  printf '[global]\nfilename=%s\nsize=%s\nioengine=libaio\ndirect=1\nrandrepeat=1\n' "$target" "$size"
  printf 'time_based=1\nramp_time=1\nruntime=%s\nrefill_buffers=1\n' "$seconds"
  for rw in randread randwrite; do
    for bs in 4k 64k 1m; do
      for depth in 1 2 4 8 16 32 64; do
        printf '[%s-%s-%s]\nstonewall\nrw=%s\nbs=%s\niodepth=%s\n' "$rw" "$bs" "$depth" "$rw" "$bs" "$depth"
      done
    done
  done
} > "$job"
echo "42 runs of $seconds s" >&2
fio --output-format=json --output="$out/sweep.json" "$job"
[ $created = no ] || rm -f -- "$target"
echo "terrace device calibrate $out/sweep.json"
