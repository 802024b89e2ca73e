#!/usr/bin/env bash
# Ownership of remote tiers, with nbdkit as the remote server: second starts from a copied array
# directory, simultaneous starts from two copies, a stopped owner that continues after a forced
# take-over, and the duration of starts. Prints the number of each outcome; fails if an outcome is
# wrong.
# usage: bench/remote-owner.sh [ROUNDS]     100 rounds take about five minutes
# Needs nbdkit, nbdcopy and libnbd's Python module; prints "skipped" without them.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-100}
lanes=5
. bench/skip.sh
for program in nbdkit nbdcopy; do command -v "$program" >/dev/null || skip "$program"; done
python=/usr/bin/python3
$python -c 'import nbd' 2>/dev/null || skip libnbd "with its Python module"

terrace=${TERRACE:-$(PROFILE=release bench/program.sh cli terrace)}
dir=$(mktemp -d)
export NO_COLOR=1
cleanup() {
  set +e
  # Servers first: they write to the exports.
  for file in "$dir"/*/*.pid "$dir"/*.pid; do [ -f "$file" ] && kill -CONT "$(cat "$file")" && kill -9 "$(cat "$file")"; done 2>/dev/null
  wait 2>/dev/null
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "FAILED: $*"; exit 1; }

now_ms() { date +%s%3N; }

site() { # LANE: an export, and an array with a volume on it
  mkdir -p "$dir/$1"
  nbdkit --foreground -U "$dir/$1/export.sock" memory 32M & echo $! >"$dir/$1/nbdkit.pid"
  for _ in $(seq 500); do [ -S "$dir/$1/export.sock" ] && break; sleep 0.02; done
  "$terrace" tier add far --nbd "nbd+unix:///?socket=$dir/$1/export.sock" --array "$dir/$1/array" 2>/dev/null
  "$terrace" volume create db --size 16M --tier far --array "$dir/$1/array" 2>/dev/null
}

start() { # LANE ARRAY OPTION…: starts a server of an array directory of a lane
  local lane=$dir/$1 array=$2
  shift 2
  rm -f "$lane/$array.sock"
  "$terrace" volume export --array "$lane/$array" --listen "unix:$lane/$array.sock" "$@" >"$lane/$array.log" 2>&1 &
  echo $! >"$lane/$array.pid"
}

serves() { # LANE ARRAY: waits until the server serves; fails if it ends
  local pid
  pid=$(cat "$dir/$1/$2.pid")
  for _ in $(seq 3000); do
    [ -S "$dir/$1/$2.sock" ] && return 0
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.02
  done
  fail "a server neither serves nor ends in time"
}

stop() { # LANE ARRAY
  local pid
  pid=$(cat "$dir/$1/$2.pid")
  rm -f "$dir/$1/$2.pid"
  kill "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
}

copy() { rm -rf "$dir/$1/$2"; mkdir "$dir/$1/$2"; find "$dir/$1/array" -maxdepth 1 -type f -exec cp -p {} "$dir/$1/$2" \;; }

second_starts() { # LANE ROUNDS
  site "$1"
  start "$1" array
  serves "$1" array || fail "the first server did not start"
  local refused=0 round more
  copy "$1" copy
  for round in $(seq "$2"); do
    more=
    [ $((round % 2)) = 0 ] || more=--force-remote
    start "$1" copy $more
    if serves "$1" copy; then stop "$1" copy; continue; fi
    grep -q "another server owns the export" "$dir/$1/copy.log" && refused=$((refused + 1))
  done
  stop "$1" array
  echo "$refused" >"$dir/$1.refused"
}

simultaneous_starts() { # LANE ROUNDS
  site "$1"
  local one=0 none=0 two=0 round first count name
  for round in $(seq "$2"); do
    # Even rounds start two copies; odd rounds start a copy and the directory that released the
    # export.
    first=array
    if [ $((round % 2)) = 0 ]; then copy "$1" first; first=first; fi
    copy "$1" second
    start "$1" "$first"
    start "$1" second
    count=0
    for name in "$first" second; do
      if serves "$1" "$name"; then count=$((count + 1)); else rm -f "$dir/$1/$name.pid"; fi
    done
    case $count in 0) none=$((none + 1)) ;; 1) one=$((one + 1)) ;; *) two=$((two + 1)) ;; esac
    for name in "$first" second; do
      [ -f "$dir/$1/$name.pid" ] || continue
      stop "$1" "$name"
      # The next round starts from the directory of this round's owner.
      [ "$name" = array ] || { rm -rf "$dir/$1/array"; mv "$dir/$1/$name" "$dir/$1/array"; }
    done
  done
  stop "$1" nbdkit
  echo "$one $none $two" >"$dir/$1.owners"
}

share() { echo $((rounds / lanes + ($1 <= rounds % lanes))); } # rounds of lane 1…

data() { # LANE: checksum of the superblocks and of all slots
  nbdcopy "nbd+unix:///?socket=$dir/$1/export.sock" "$dir/$1/bytes"
  { head -c 8192 "$dir/$1/bytes"; tail -c +1048577 "$dir/$1/bytes"; } | sha256sum
}

guest() { # ARRAY LANE PYTHON: uses the volume as h
  local connect
  connect="import nbd; h = nbd.NBD(); h.connect_uri('nbd+unix:///db?socket=$dir/$2/$1.sock'); h.set_strict_mode(0)"
  $python -c "$connect
$3"
}

stopped_owner() { # LANE
  site "$1"
  start "$1" array
  serves "$1" array
  local before after pid
  pid=$(cat "$dir/$1/array.pid")
  guest array "$1" 'while True: [h.pwrite(b"\xee" * 65536, i * 65536) for i in range(256)]' 2>/dev/null & echo $! >"$dir/$1/guest.pid"
  sleep 1
  copy "$1" copy
  kill -STOP "$pid"
  start "$1" copy --force-remote
  serves "$1" copy || fail "no take-over: $(cat "$dir/$1/copy.log")"
  guest copy "$1" 'h.pwrite(b"\x02" * (16 << 20), 0); h.flush()'
  before=$(data "$1")
  kill -CONT "$pid"
  sleep 4
  after=$(data "$1")
  stop "$1" guest
  stop "$1" copy
  kill -9 "$pid"; wait "$pid" 2>/dev/null || true; rm -f "$dir/$1/array.pid"
  grep -q "no longer owns the device" "$dir/$1/array.log" || fail "the log of the former owner does not report the loss of the device"
  [ "$before" = "$after" ] && echo 0 >"$dir/$1.wrote" || echo 1 >"$dir/$1.wrote"
}

began=$(now_ms)
for lane in $(seq "$lanes"); do second_starts "second-$lane" "$(share "$lane")" & done
wait_lanes() { for pid in $(jobs -p); do wait "$pid" || true; done; }
wait_lanes
for lane in $(seq "$lanes"); do simultaneous_starts "both-$lane" "$(share "$lane")" & done
wait_lanes
for lane in $(seq "$lanes"); do stopped_owner "stopped-$lane" & done
wait_lanes

# Duration of a start with one remote tier.
site waits
measure() { # LABEL: prints the milliseconds until the server serves
  local from
  from=$(now_ms)
  start waits array
  serves waits array || fail "start $1 failed: $(cat "$dir/waits/array.log")"
  echo "start $1: $(($(now_ms) - from)) ms"
}
measure "after commands"
stop waits array
measure "after an orderly stop"
pid=$(cat "$dir/waits/array.pid")
kill -9 "$pid"; wait "$pid" 2>/dev/null || true
measure "after kill -9"
stop waits array

refused=$(cat "$dir"/*.refused | paste -sd+ | bc)
read -r one none two < <(cat "$dir"/*.owners | awk '{ a += $1; b += $2; c += $3 } END { print a, b, c }')
wrote=$(cat "$dir"/*.wrote | paste -sd+ | bc)
echo
echo "second starts refused: $refused of $rounds"
echo "simultaneous starts: $one with one owner, $none with none, $two with two"
echo "stopped owners that wrote after a take-over: $wrote of $lanes"
echo "$((($(now_ms) - began) / 1000)) s"
[ "$refused" = "$rounds" ] && [ "$two" = 0 ] && [ $((one + none)) = "$rounds" ] && [ "$wrote" = 0 ]
