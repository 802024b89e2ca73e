#!/usr/bin/env bash
# Data in and out while a guest works: a qcow2 image is imported live, with the server killed in the middle, snapshots are taken, backed up by
# increments and given back, the volume grows and moves, two other processes take the server over, and the volume is saved. Every byte is
# checked against what the guest wrote; the longest request of each part is printed.
# usage: bench/in-and-out.sh [MIB] [SECONDS]     size of the image, seconds of each part
# Needs qemu-img, qemu-nbd, jq and libnbd's Python module; says "skipped" without.
set -euo pipefail
cd "$(dirname "$0")/.."
mib=${1:-256} seconds=${2:-4}
. bench/skip.sh
for program in qemu-img qemu-nbd jq; do command -v $program >/dev/null || skip "$program"; done
python=/usr/bin/python3
$python -c 'import nbd' 2>/dev/null || skip libnbd "with its Python module"

terrace=${TERRACE:-$(PROFILE=release bench/program.sh cli terrace)}
tool=$PWD/bench/in-and-out.py
dir=$(mktemp -d)
export TERRACE_ARRAY=$dir/array NO_COLOR=1
server=
cleanup() {
  set +e
  for pid in $server $(jobs -p); do kill "$pid" 2>/dev/null; done
  wait 2>/dev/null
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "FAILED: $*"; tail -5 "$dir/server.log"; exit 1; }
say() { printf '\n== %s\n' "$*"; }
uri() { echo "nbd+unix:///$1?socket=$dir/array/nbd.sock"; }
serve() { # [OPTION ...]
  "$terrace" volume export --listen "unix:$dir/array/nbd.sock" "$@" >>"$dir/server.log" 2>&1 & server=$!
}
served() { # VOLUME
  for _ in $(seq 6000); do
    "$terrace" volume show "$1" 2>/dev/null | grep -q connections && return
    kill -0 $server 2>/dev/null || fail "the server did not start"
    sleep 0.02
  done
  fail "the server does not respond"
}
errors=0 wrong=0
load() { # SECONDS SEED
  $python "$tool" load "$(uri data)" "$dir/model" "$1" "$2" >"$dir/load" & guest=$!
}
loaded() { # WHAT
  wait $guest || fail "the guest ended: $1"
  errors=$((errors + $(jq .errors "$dir/load"))) wrong=$((wrong + $(jq .differ "$dir/load")))
  jq -r --arg what "$1" '"\($what): \(.requests) requests, \(.errors) errors, \(.differ) bytes differ, the longest took \(.longest_ms) ms"' "$dir/load"
}
differs() { # FILE FILE
  cmp -s "$1" "$2" || { wrong=$((wrong + $(cmp -l "$1" "$2" 2>/dev/null | wc -l))); [ "$(stat -c %s "$1")" = "$(stat -c %s "$2")" ] || fail "$1 and $2 have different sizes"; }
}

mkdir "$dir"/{fast,slow}
head -c $((mib << 20)) /dev/urandom >"$dir/model"
# A part of it is holes.
fallocate --punch-hole --offset $((mib << 18)) --length $((mib << 18)) "$dir/model"
qemu-img convert -O qcow2 "$dir/model" "$dir/disk.qcow2"
before=$(sha256sum <"$dir/disk.qcow2")
"$terrace" tier add fast --dir "$dir/fast" --size $((mib * 4))M
"$terrace" tier add slow --dir "$dir/slow" --size $((mib * 4))M
"$terrace" volume create idle --size 1M --tier fast
serve; served idle

say "import a qcow2 image of $mib MiB while its guest runs"
"$terrace" volume import data "$dir/disk.qcow2" --format qcow2 --tier fast --detach --bandwidth "$((mib / 8 / seconds + 1)) MiB/s"
load 0.3 1; loaded "live import"
kill -9 $server; wait $server 2>/dev/null || true
serve; served data
"$terrace" volume show data | grep importing || fail "the import ended before the server was killed"
load "$seconds" 2; loaded "live import, after kill -9"
until [ "$("$terrace" volume show data -o json | jq .import)" = null ]; do sleep 0.1; done
[ "$before" = "$(sha256sum <"$dir/disk.qcow2")" ] || fail "the image was changed"
rm "$dir/disk.qcow2"
wrong=$((wrong + $($python "$tool" check "$(uri data)" "$dir/model")))

say "snapshots and incremental backup"
load "$seconds" 3
"$terrace" volume snapshot create data monday
sleep "$(awk "BEGIN { print $seconds / 2 }")"
"$terrace" volume snapshot create data tuesday
loaded "snapshots"
echo "$($python "$tool" backup "$dir/backup" "$(uri data@monday)") MiB copied of snapshot monday, $($python "$tool" backup "$dir/backup" "$(uri data@tuesday)" monday) MiB of changes until tuesday"
"$terrace" volume save data@tuesday "$dir/tuesday" --verify
differs "$dir/backup" "$dir/tuesday"

say "resize and move the volume"
load "$seconds" 4
"$terrace" volume resize data --size "$((mib + 64))M"
"$terrace" volume move data --to slow --wait
loaded "growth and a move"

say "two take-overs of the server while the guest runs"
load "$seconds" 5
for _ in 1 2; do
  old=$server
  sleep "$(awk "BEGIN { print $seconds / 4 }")"
  # On a busy machine an attempt may take longer than guests may wait; the server then goes on as before.
  for attempt in $(seq 20); do
    serve --take-over
    while kill -0 $old 2>/dev/null && kill -0 $server 2>/dev/null; do sleep 0.05; done
    kill -0 $old 2>/dev/null || break
    wait $server && fail "the next server ended without an error and without the volumes"
    [ "$attempt" -lt 20 ] || fail "no attempt to take over succeeded"
  done
  wait $old || fail "the server that was taken over ended with an error"
  served data
done
loaded "two take-overs"

say "save the volume, import it, and save it again"
wrong=$((wrong + $($python "$tool" check "$(uri data)" "$dir/model")))
"$terrace" volume save data "$dir/now" --verify
truncate -s $(((mib + 64) << 20)) "$dir/model"
differs "$dir/now" "$dir/model"
"$terrace" volume snapshot restore data@tuesday --yes
"$terrace" volume save data "$dir/then" --verify
differs "$dir/then" "$dir/tuesday"
kill $server; wait $server || true; server=
"$terrace" volume check
echo
echo "$errors errors, $wrong bytes differ"
[ "$errors" = 0 ] && [ "$wrong" = 0 ]
