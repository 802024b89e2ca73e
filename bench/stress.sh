#!/usr/bin/env bash
# Crowds of NBD clients on one worker: 4,096 requests in flight over 64 connections, then 2,500 connections. Each request writes a block, reads
# it back and compares. Fails when a connection makes no progress for a second, or reads other data than it wrote.
# usage: bench/stress.sh [SECONDS]     for each of the two; 600 if left out
# Needs 4,096 open files. Prints "skipped" where the system allows fewer.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
. bench/skip.sh
ulimit -n "$(ulimit -Hn)"
[ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge 4096 ] || skip "4096 open files"

terrace=${TERRACE:-$(PROFILE=release bench/program.sh cli terrace)}
bench=${TERRACE_BENCH:-$(PROFILE=release bench/program.sh)}
dir=$(mktemp -d)
export TERRACE_ARRAY=$dir/array NO_COLOR=1
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT

mkdir "$dir/tier"
"$terrace" tier add fast --dir "$dir/tier" --size 256M 2>/dev/null
"$terrace" volume create crowd --size 128M --tier fast 2>/dev/null
"$terrace" volume export --workers 1 --max-connections 3000 --listen "unix:$dir/nbd.sock" >"$dir/server.log" 2>&1 & server=$!
for _ in $(seq 3000); do [ -S "$dir/nbd.sock" ] && break; sleep 0.02; done

"$bench" nbd-crowd "$dir/nbd.sock" crowd 64 64 "$seconds"
"$bench" nbd-crowd "$dir/nbd.sock" crowd 2500 1 "$seconds"
kill "$server"
wait "$server"
server=
"$terrace" volume check
echo "no connection stalled"
