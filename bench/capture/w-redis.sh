#!/usr/bin/env bash
# Volume redis: a Redis server with an append-only file, written by
# redis_load.py.  The data are in memory, so the volume is read only when the
# server starts again (phase minute 15).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

dir=$(mnt redis)
sock=$CAP_WORK/redis.sock
server="" client=""

start() {
    redis-server --port 0 --unixsocket "$sock" --unixsocketperm 700 \
        --dir "$dir" --daemonize no --save '' --appendonly yes \
        --appendfsync everysec --auto-aof-rewrite-percentage 0 \
        --aof-use-rdb-preamble no >> "$CAP_WORK/log/redis.server.log" 2>&1 &
    server=$!
    for _ in {1..300}; do
        [[ $(redis-cli -s "$sock" ping 2> /dev/null) == PONG ]] && return
        sleep 0.2
    done
    return 1
}
stop() {
    if [[ -n $client ]]; then
        kill "$client" 2> /dev/null || true
        wait "$client" || true
        client=
    fi
    if [[ -n $server ]]; then
        kill -TERM "$server" 2> /dev/null || true
        wait "$server" || true
        server=
    fi
}
# load END RATE: SETs per second until phase minute END, in the background.
load() {
    python3 "$CAP_HERE/redis_load.py" "$sock" "$(secs_until "$1")" "$2" &
    client=$!
}
trap stop EXIT
trap 'exit 143' TERM INT

start
python3 "$CAP_HERE/redis_load.py" "$sock" 0 0 # fill
ready_and_wait redis
load 6.9 150
at 7
redis-cli -s "$sock" bgrewriteaof
load 14.8 60
at 15
stop
start
load 24.9 250
at 21
redis-cli -s "$sock" bgrewriteaof
at 25.2
