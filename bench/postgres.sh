#!/usr/bin/env bash
# PostgreSQL on a volume while it moves between tiers: pgbench's transactions and the database's own checksums.
# usage: bench/postgres.sh [SECONDS]
# Needs root, nbdfuse, losetup with a free loop device, mkfs.ext4, PostgreSQL with pgbench; says "skipped" without.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1 || true)
. bench/skip.sh
[ "$(id -u)" = 0 ] || skip "root"
[ -n "$pg" ] && [ -x "$pg/pgbench" ] && [ -x "$pg/pg_checksums" ] || skip postgresql "with pgbench"
for program in nbdfuse losetup mkfs.ext4 fusermount3 runuser; do
  command -v $program >/dev/null || skip "$program"
done
[ -e /dev/fuse ] || skip "/dev/fuse"
id postgres >/dev/null 2>&1 || skip postgresql "and its user postgres"
losetup -f >/dev/null 2>&1 || skip loop "devices, a free one"

terrace=${TERRACE:-$(PROFILE=release bench/program.sh cli terrace)}
memory=/dev/shm
dir=$(mktemp -d $([ ! -d $memory ] || echo "-p $memory"))
chmod 755 "$dir"
export TERRACE_ARRAY=$dir/array NO_COLOR=1
loop= fuse= server= mounted=
cleanup() {
  set +e
  [ -n "$mounted" ] && { runuser -u postgres -- "$pg/pg_ctl" -D "$dir/mnt/data" -m immediate stop >/dev/null 2>&1; umount "$dir/mnt"; }
  [ -n "$loop" ] && losetup -d "$loop"
  [ -n "$fuse" ] && { fusermount3 -u "$dir/fuse"; wait "$fuse" 2>/dev/null; }
  [ -n "$server" ] && { kill "$server"; wait "$server" 2>/dev/null; }
  rm -rf "$dir"
}
trap cleanup EXIT

mkdir "$dir"/{fast,middle,slow,fuse,mnt}
for tier in fast middle slow; do "$terrace" tier add $tier --dir "$dir/$tier" --size "1 GiB"; done
"$terrace" volume create pg --size "768 MiB" --tier fast
"$terrace" volume export --listen "unix:$dir/nbd.sock" >"$dir/server.log" 2>&1 & server=$!
for _ in $(seq 3000); do [ -S "$dir/nbd.sock" ] && break; sleep 0.02; done
nbdfuse "$dir/fuse" "nbd+unix:///pg?socket=$dir/nbd.sock" & fuse=$!
for _ in $(seq 3000); do [ -f "$dir/fuse/nbd" ] && break; sleep 0.02; done
loop=$(losetup -f --show --direct-io=on "$dir/fuse/nbd") || { loop=; skip loop "devices over FUSE"; }
mkfs.ext4 -q "$loop"
mount "$loop" "$dir/mnt"; mounted=yes
mkdir "$dir/mnt/data"; chown postgres "$dir/mnt/data"
as() { runuser -u postgres -- "$@"; }
as "$pg/initdb" -D "$dir/mnt/data" --data-checksums >/dev/null
as "$pg/pg_ctl" -D "$dir/mnt/data" -w -l "$dir/mnt/data/log" -o "-c listen_addresses='' -c unix_socket_directories=/tmp -c port=54329" start >/dev/null
as "$pg/pgbench" -h /tmp -p 54329 -i -s 10 -q postgres >/dev/null 2>&1
as "$pg/pgbench" -h /tmp -p 54329 -c 8 -T "$seconds" -P 5 postgres >"$dir/pgbench.log" 2>&1 & bench=$!
moves=0
while kill -0 $bench 2>/dev/null; do
  for tier in slow middle fast; do
    "$terrace" volume move pg --to $tier --bandwidth "200 MiB/s" --wait >/dev/null
    moves=$((moves + 1))
  done
done
wait $bench || { cat "$dir/pgbench.log"; echo "FAILED: pgbench"; exit 1; }
grep -E "transactions|tps" "$dir/pgbench.log"
as "$pg/pg_ctl" -D "$dir/mnt/data" -w stop >/dev/null
checked=$(as "$pg/pg_checksums" -D "$dir/mnt/data" --check)
echo "$checked" | grep -E "Blocks scanned|Bad checksums"
failed=$(grep -oP "failed transactions: \K[0-9]+" "$dir/pgbench.log")
bad=$(echo "$checked" | grep -oP "Bad checksums: +\K[0-9]+")
echo "moves: $moves, failed transactions: $failed, bad checksums: $bad"
[ "$failed" = 0 ] && [ "$bad" = 0 ] && [ "$moves" -ge 3 ]
