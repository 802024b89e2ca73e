#!/usr/bin/env bash
# What a careful operator's first bad day does to guests' data, with real clients: a device is lost under load, the server is killed, the
# device replaced, the map's disk lost and restored, a tier filled up, room made, the configuration reloaded, a volume deleted.
# Ends with what was lost, and fails unless that is nothing.
# usage: bench/safety.sh [SECONDS]
# Needs root (a small file system in memory), nbdkit, fio, qemu-io, jq and libnbd's Python module; says "skipped" without.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-6}
. bench/skip.sh
[ "$(id -u)" = 0 ] || skip "root"
for program in nbdkit fio qemu-io jq; do command -v $program >/dev/null || skip "$program"; done
python=/usr/bin/python3
$python -c 'import nbd' 2>/dev/null || skip libnbd "with its Python module"

terrace=${TERRACE:-$(PROFILE=release bench/program.sh cli terrace)}
guest=$PWD/bench/safety.py
dir=$(mktemp -d)
export TERRACE_ARRAY=$dir/array TERRACE_CONTROLLER=unix:$dir/state/controller.sock NO_COLOR=1
server= far= mounted=
cleanup() {
  set +e
  for pid in $server $far $(jobs -p); do kill "$pid" 2>/dev/null; done
  wait 2>/dev/null
  [ -n "$mounted" ] && umount "$dir/small"
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "FAILED: $*"; "$terrace" status 2>&1 | head -40; tail -5 "$dir/server.log"; exit 1; }
say() { printf '\n== %s\n' "$*"; }
uri() { echo "nbd+unix:///$1?socket=$dir/array/nbd.sock"; }

mkdir "$dir"/{nvme,small,new}
mount -t tmpfs -o size=80m none "$dir/small"; mounted=yes
remote() { # NAME
  nbdkit -f -U "$dir/$1.sock" memory 256M >"$dir/$1.log" 2>&1 & far=$!
  for _ in $(seq 3000); do [ -S "$dir/$1.sock" ] && return; sleep 0.02; done
  fail "nbdkit did not start"
}
remote far
"$terrace" tier add nvme --dir "$dir/nvme" --size 512M
"$terrace" tier add small --dir "$dir/small" --size 256M --thin
"$terrace" tier add far --nbd "nbd+unix:///?socket=$dir/far.sock"
"$terrace" volume create db --size 32M --tier nvme --class gold
"$terrace" volume create logs --size 16M --tier small
"$terrace" volume create files --size 32M --tier far
"$terrace" volume create fio --size 32M --tier nvme

cat >"$dir/terrace.toml" <<TOML
strategy = "static"
window = "1s"
[controller]
state = "state"
[array]
dir = "array"
host = "local"
serve = "here"
[[tiers]]
name = "nvme"
preset = "nvme-tlc"
[[tiers]]
name = "small"
preset = "sata-ssd"
[[tiers]]
name = "far"
preset = "sata-ssd"
[[classes]]
name = "gold"
latency = "10s"
TOML

serve() { # [OPTION ...]
  "$terrace" serve --config "$dir/terrace.toml" "$@" >"$dir/server.log" 2>&1 & server=$!
  for _ in $(seq 6000); do
    [ -S "$dir/array/nbd.sock" ] && "$terrace" status >/dev/null 2>&1 && return
    kill -0 $server 2>/dev/null || fail "the server did not start"
    sleep 0.05
  done
  fail "the server does not respond"
}
killed() { kill -9 $server; wait $server 2>/dev/null || true; rm -f "$dir/array/nbd.sock"; }
trouble() { # KIND SUBJECT: waits until status -o json has it
  for _ in $(seq 3000); do
    "$terrace" status -o json 2>/dev/null |
      jq -e --arg k "$1" --arg s "$2" '[.. | objects | select(.kind? == $k) | tostring | select(contains($s))] | length > 0' >/dev/null &&
      { echo "status -o json: $1 ($2)"; return; }
    sleep 0.1
  done
  fail "status does not report $1 ($2)"
}
load() { # VOLUME SECONDS SEED
  $python "$guest" write "$(uri "$1")" "$dir/$1.json" "$2" "$3" &
}
lost=0 others=0
check() { # VOLUME [unreadable]
  local found
  found=$($python "$guest" check "$(uri "$1")" "$dir/$1.json")
  echo "$found"
  lost=$((lost + $(jq .lost <<<"$found"))) others=$((others + $(jq .others <<<"$found")))
  case ${2:-} in
    unreadable) [ "$(jq .unreadable <<<"$found")" -gt 0 ] || fail "volume $1 can be read, expected errors" ;;
    *) [ "$(jq .unreadable <<<"$found")" = 0 ] || fail "volume $1 cannot be read" ;;
  esac
}

say "a device is lost under load, then the server is killed"
serve
load db "$seconds" 1; load logs "$seconds" 2; load files "$seconds" 3; writers=$(jobs -p)
sleep $((seconds / 3))
kill -9 $far; wait $far 2>/dev/null || true; far=; rm -f "$dir/far.sock"
trouble device-unreachable far-0
killed
serve
trouble device-lost far-0
trouble volume-incomplete files
for pid in $writers; do [ "$pid" = "$server" ] || wait "$pid" 2>/dev/null || true; done
check db; check logs; check files unreadable

say "fio verifies its writes at the same time"
cd "$dir" && fio --name=verify --ioengine=nbd --uri="$(uri fio)" --rw=randwrite --bs=4k --size=32m --iodepth=8 --verify=crc32c --do_verify=1 \
  --verify_fatal=1 --output="$dir/fio.log" || { cat "$dir/fio.log"; fail "fio"; }
grep -E "err=" "$dir/fio.log"

say "replace the lost device; its data still returns errors"
"$terrace" device replace far-0 --dir "$dir/new" --size 256M 2>&1 && fail "replaced without consent to the loss"
"$terrace" device replace far-0 --dir "$dir/new" --size 256M --accept-loss far-0
check files unreadable
qemu-io -f raw -c "discard 0 32M" "$(uri files)"
qemu-io -f raw -c "write -P 0x5a 0 4M" -c "flush" -c "read -P 0x5a 0 4M" "$(uri files)"

say "a volume in use is not deleted without --force"
$python "$guest" write "$(uri files)" "$dir/files.json" 3 4 >/dev/null & connected=$!
sleep 1
"$terrace" volume delete files --yes 2>&1 && fail "deleted while a guest was connected"
"$terrace" volume delete files --yes --force
wait $connected 2>/dev/null || true

say "the disk of the map is lost; restore the map from its second copy"
load db "$seconds" 5; load logs "$seconds" 6; writers=$(jobs -p)
sleep $((seconds / 2))
killed
second=$(ls "$dir"/*/map-*.redb | head -1)
mv "$dir/array" "$dir/array.lost"
"$terrace" array restore --from "$second"
serve
for pid in $writers; do [ "$pid" = "$server" ] || wait "$pid" 2>/dev/null || true; done
check db; check logs
killed
rm -r "$dir/array"; mkdir "$dir/array"; mv "$dir"/array.lost/map.redb "$dir/array/"; mv "$second" "$dir/second.aside"
"$terrace" volume list 2>"$dir/looked.log" || fail "an old map cannot be read"
grep -q warning "$dir/looked.log" || fail "an old map is shown without a warning"
refused() { # COMMAND ...: serving ends by itself, with an error about the map; one that goes on serving is ended, and has not refused
  local code=0
  timeout 30 "$terrace" "$@" >"$dir/refused.log" 2>&1 || code=$?
  tail -3 "$dir/refused.log"
  [ $code -ne 0 ] && [ $code -ne 124 ] && grep -q "accept-loss map" "$dir/refused.log" || fail "an old map is accepted: `terrace $*` ends with $code"
}
refused volume export
refused serve --config "$dir/terrace.toml"
rm "$dir/array/map.redb"; mv "$dir/second.aside" "$second"; rmdir "$dir/array"
"$terrace" array restore --from "$second"
serve
"$terrace" array backup "$dir/map.bak"
check db; check logs

say "fill a tier and free space"
"$terrace" volume create big --size 1G --tier small
qemu-io -f raw -c "write -P 0x33 0 1000M" "$(uri big)" && fail "a full array accepts more data"
trouble no-space small
check db; check logs
"$terrace" volume delete big --yes
load logs 2 7; wait %% 2>/dev/null || true
check logs

say "reload the configuration"
printf '[[classes]]\nname = "silver"\nlatency = "20s"\n' >>"$dir/terrace.toml"
"$terrace" reload
for _ in $(seq 300); do "$terrace" volume class logs silver 2>/dev/null && break; sleep 0.2; done
"$terrace" volume list | grep -q silver || fail "the new class is unknown"
"$terrace" volume class logs sliver 2>&1 && fail "an unknown class was accepted"

"$terrace" array copies
kill $server; wait $server || true; server=
"$terrace" volume check
echo
echo "$lost acknowledged bytes lost, $others bytes with data of other blocks"
[ "$lost" = 0 ] && [ "$others" = 0 ]
