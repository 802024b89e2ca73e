#!/usr/bin/env bash
# Kills servers under load repeatedly, with a cache, an L2 cache and a mirror. The guest verifies its reads all the time, and after each
# kill all acknowledged data. Prints the number of lost blocks, and fails if it is not zero.
# usage: bench/kills.sh [ROUNDS]     100 of them take some six minutes
# Needs jq and libnbd's Python module; prints "skipped" without them.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-100}
. bench/skip.sh
command -v jq >/dev/null || skip jq
python=/usr/bin/python3
$python -c 'import nbd' 2>/dev/null || skip libnbd "with its Python module"

terrace=${TERRACE:-$(PROFILE=release bench/program.sh cli terrace)}
dir=$(mktemp -d)
export TERRACE_ARRAY=$dir/array NO_COLOR=1
server= node= guest=
cleanup() {
  set +e
  for pid in $guest $server $node; do kill "$pid" 2>/dev/null; done
  wait 2>/dev/null
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "FAILED: $*"; tail -5 "$dir/server.log" "$dir/node.log"; exit 1; }
uri="nbd+unix:///db?socket=$dir/nbd.sock"

mkdir "$dir"/{fast,slow,flash}
"$terrace" tier add fast --dir "$dir/fast" --size 128M 2>/dev/null
"$terrace" tier add slow --dir "$dir/slow" --size 128M 2>/dev/null
"$terrace" volume create db --size 32M --tier fast 2>/dev/null

lend() {
  rm -f "$dir/node.sock"
  "$terrace" cache-node --memory 64M --listen "unix:$dir/node.sock" >"$dir/node.log" 2>&1 & node=$!
  for _ in $(seq 3000); do [ -S "$dir/node.sock" ] && return; sleep 0.02; done
  fail "the cache node did not start"
}
serve() { # ROUND: memory for a sixteenth of the volume, and in turns a second level on flash, at a node, or none
  rm -f "$dir/nbd.sock"
  "$terrace" volume export --cache 2M --cache-page 16K --workers 2 --listen "unix:$dir/nbd.sock" >>"$dir/server.log" 2>&1 & server=$!
  for _ in $(seq 3000); do
    [ -S "$dir/nbd.sock" ] && break
    kill -0 "$server" 2>/dev/null || fail "the server did not start"
    sleep 0.02
  done
  case $(($1 % 3)) in
    0) "$terrace" array cache --second "$dir/flash" --size 32M >/dev/null 2>&1 || fail "cannot set an L2 cache on flash" ;;
    1) "$terrace" array cache --second "nbd+unix:///?socket=$dir/node.sock" >/dev/null 2>&1 || fail "cannot set an L2 cache on a cache node" ;;
  esac
  [ $(($1 % 2)) = 0 ] || "$terrace" volume mirror db --to slow >/dev/null 2>&1 || fail "cannot start a mirror"
}

lend
serve 0
lost=0 others=0 wrong=0 writes=0 reads=0 second=0
for round in $(seq "$rounds"); do
  $python bench/safety.py write "$uri" "$dir/db.json" 2 "$round" >"$dir/written.json" & guest=$!
  sleep "0.$((RANDOM % 9))$((RANDOM % 9))"
  sleep 0.4
  if [ $((round % 5)) = 0 ]; then kill -9 "$node"; wait "$node" 2>/dev/null || true; sleep 0.2; fi
  hits=$("$terrace" array cache -o json 2>/dev/null | jq '.hits // 0') || hits=0
  second=$((second + hits))
  kill -9 "$server"; wait "$server" 2>/dev/null || true
  [ $((round % 5)) = 0 ] && lend
  serve "$round"
  wait "$guest" || wrong=$((wrong + 1))
  guest=
  writes=$((writes + $(jq .writes "$dir/written.json"))) reads=$((reads + $(jq .reads "$dir/written.json")))
  found=$($python bench/safety.py check "$uri" "$dir/db.json")
  lost=$((lost + $(jq .lost <<<"$found") + $(jq .unreadable <<<"$found"))) others=$((others + $(jq .others <<<"$found")))
  [ $((round % 10)) != 0 ] || echo "$round kills: $writes writes, $reads reads ($second pages from the L2 cache), $lost lost, $wrong rounds with wrong reads"
done
kill "$server"; wait "$server" || true; server=
"$terrace" volume check
echo
echo "$rounds kills: $writes writes and $reads reads acknowledged; $lost blocks lost, $others with data of other blocks, $wrong rounds with wrong reads"
[ "$lost" = 0 ] && [ "$others" = 0 ] && [ "$wrong" = 0 ]
