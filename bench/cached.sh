#!/usr/bin/env bash
# The cache of the data path beside the simulator's, on the same requests: loads run on a volume that is cached, and is recorded meanwhile; the recording is
# then replayed by `terrace sim run` with a cache of the same size, page and policy. Prints the share of pages read that were there, live and simulated.
# Loads: fio (Zipf, 80 % reads), PostgreSQL (pgbench) in a control group whose memory is small, so that its file system caches little, and RocksDB (db_bench,
# direct reads of Zipf-like keys); the working sets are about twice the cache.
# usage: bench/cached.sh [SECONDS [POLICY…]]        20 seconds of each; lru and priority-lru
# fio needs fio with libnbd; the databases root, nbdfuse, losetup with a free loop device, mkfs.ext4; PostgreSQL a memory controller of version 1, RocksDB db_bench
# (rocksdb-tools on Debian); says "skipped" without.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
[ $# -eq 0 ] || shift
policies=("$@")
[ ${#policies[@]} -gt 0 ] || policies=(lru priority-lru)
. bench/skip.sh
command -v fio >/dev/null || skip fio
terrace=${TERRACE:-$(PROFILE=release bench/program.sh cli terrace)}
page="8 KiB" cache="64 MiB" size="768 MiB"
memory=/dev/shm
dir=$(mktemp -d $([ ! -d $memory ] || echo "-p $memory"))
chmod 755 "$dir"
export TERRACE_ARRAY=$dir/array NO_COLOR=1
pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1 || true)
group=/sys/fs/cgroup/memory/terrace-bench-$$
loop= fuse= server= mounted=
end_disk() {
  [ -f "$dir/mnt/data/postmaster.pid" ] && runuser -u postgres -- "$pg/pg_ctl" -D "$dir/mnt/data" -m immediate stop >/dev/null 2>&1
  [ -n "$mounted" ] && umount "$dir/mnt"
  [ -n "$loop" ] && losetup -d "$loop"
  [ -n "$fuse" ] && { fusermount3 -u "$dir/fuse"; wait "$fuse" 2>/dev/null; }
  [ -d "$group" ] && rmdir "$group"
  loop= fuse= mounted=
}
cleanup() {
  set +e
  end_disk
  [ -n "$server" ] && { kill "$server"; wait "$server" 2>/dev/null; }
  rm -rf "$dir"
}
trap cleanup EXIT

serve() { # POLICY VOLUME
  "$terrace" volume export --workers 1 --cache "$cache" --cache-page "$page" --cache-policy "$1" --listen "unix:$dir/nbd.sock" >"$dir/server.log" 2>&1 & server=$!
  for _ in $(seq 3000); do [ -S "$dir/nbd.sock" ] && break; sleep 0.02; done
  rm -f "$dir/seen.trc"
  "$terrace" trace record "$2" --out "$dir/seen.trc" >"$dir/record.log" 2>&1 & recorder=$!
  for _ in $(seq 3000); do "$terrace" volume show "$2" -o json | grep -q '"recording": *{' && break; sleep 0.02; done
}

# What the cache found, live, and what the simulator's finds in the recording.
compare() { # LOAD POLICY VOLUME
  kill -INT $recorder; wait $recorder || { cat "$dir/record.log"; exit 1; }
  "$terrace" volume show "$3" -o json >"$dir/live.json"
  kill "$server"; wait "$server" 2>/dev/null || true
  server=
  cat >"$dir/replay.toml" <<END
window = "1s"
[[tiers]]
name = "ssd"
preset = "nvme-tlc"
[[classes]]
name = "default"
[[volumes]]
name = "$3"
size = "$size"
class = "default"
[[traces]]
file = "seen.trc"
replay = "open"
[cache]
size = "$cache"
page = "$page"
policy = "$2"
END
  (cd "$dir" && "$terrace" sim run replay.toml --strategy noop --out "$dir/out" -o json >sim.json 2>/dev/null)
  python3 - "$1" "$2" "$dir/live.json" "$dir/sim.json" <<'END'
import json, sys
load, policy, live, sim = sys.argv[1:]
def found(node, key):
    if isinstance(node, dict):
        if key in node: return node[key]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            got = found(child, key)
            if got is not None: return got
    return None
live = found(json.load(open(live)), "cache")
sim = json.load(open(sim))
part = found(sim, "cache")["volumes"][0]
reads = live["read_hits"] + live["read_misses"]
a, b = live["read_hits"] / reads, part["read_hit_ratio"]
print(f"{load:<12} {policy:<18} {reads:>9} {100 * a:>7.2f} {100 * b:>10.2f} {100 * (a - b):>+11.2f}")
END
}

mkdir "$dir/ssd"
"$terrace" tier add ssd --dir "$dir/ssd" --size "2 GiB" >/dev/null 2>&1
for volume in fio pg rocks; do "$terrace" volume create $volume --size "$size" --tier ssd >/dev/null 2>&1; done
echo "cache of $cache, pages of $page; $seconds s per load"
printf "%-12s %-18s %9s %7s %10s %11s\n" load policy "pages read" "live, %" "replayed, %" "difference"
for policy in "${policies[@]}"; do
  serve "$policy" fio
  fio --name=zipf --ioengine=nbd --uri="nbd+unix:///fio?socket=$dir/nbd.sock" --rw=randrw --rwmixread=80 --bs=8k --size=256m \
    --random_distribution=zipf:0.9 --norandommap --iodepth=8 --rate_iops=4000,1000 --time_based --runtime="$seconds" --minimal >/dev/null
  compare fio "$policy" fio
done

[ "$(id -u)" = 0 ] || skip root
for program in nbdfuse losetup mkfs.ext4 fusermount3; do command -v $program >/dev/null || skip "$program"; done
[ -e /dev/fuse ] && losetup -f >/dev/null 2>&1 || skip "/dev/fuse and a free loop device"
mkdir -p "$dir"/{fuse,mnt}
disk() { # VOLUME: with a file system, mounted
  nbdfuse "$dir/fuse" "nbd+unix:///$1?socket=$dir/nbd.sock" & fuse=$!
  for _ in $(seq 3000); do [ -f "$dir/fuse/nbd" ] && break; sleep 0.02; done
  loop=$(losetup -f --show --direct-io=on "$dir/fuse/nbd") || { loop=; skip loop "devices over FUSE"; }
  mkfs.ext4 -q "$loop"
  mount "$loop" "$dir/mnt"; mounted=yes
  mkdir "$dir/mnt/data"
}
rocksdb() { # POLICY
  serve "$1" rocks
  disk rocks
  # 128 MiB of values, in blocks of 4 KiB, and next to no cache of its own.
  run() {
    db_bench --db="$dir/mnt/data" --num=262144 --value_size=512 --compression_type=none --cache_size=1048576 --use_direct_reads \
      --use_direct_io_for_flush_and_compaction --open_files=64 --seed=1 "$@" >"$dir/db_bench.log" 2>&1 || { tail -5 "$dir/db_bench.log"; exit 1; }
  }
  run --benchmarks=fillrandom,compact
  run --use_existing_db --benchmarks=readrandom --read_random_exp_range=4 --reads=1000000000 --duration="$seconds" --threads=2
  set +e; end_disk; set -e
  compare rocksdb "$1" rocks
}
if command -v db_bench >/dev/null; then
  for policy in "${policies[@]}"; do rocksdb "$policy"; done
else
  echo "skipped: RocksDB needs db_bench (rocksdb-tools)"
fi

[ -n "$pg" ] && [ -x "$pg/pgbench" ] && id postgres >/dev/null 2>&1 || skip postgresql "with pgbench"
command -v runuser >/dev/null || skip runuser
[ -f /sys/fs/cgroup/memory/cgroup.procs ] || skip "a memory controller of control groups, version 1"
as() { sh -c 'echo $$ >"$0/cgroup.procs"; exec runuser -u postgres -- "$@"' "$group" "$@"; }
client() { # ARGUMENT …
  runuser -u postgres -- "$pg/pgbench" -h /tmp -p 54330 "$@" postgres >"$dir/pgbench.log" 2>&1 || { tail -5 "$dir/pgbench.log"; exit 1; }
}
for policy in "${policies[@]}"; do
  serve "$policy" pg
  disk pg
  chown postgres "$dir/mnt/data"
  mkdir "$group"; echo $((64 << 20)) >"$group/memory.limit_in_bytes"
  as "$pg/initdb" -A trust -D "$dir/mnt/data" >/dev/null
  as "$pg/pg_ctl" -D "$dir/mnt/data" -w -l "$dir/mnt/data/log" -o "-c listen_addresses='' -c unix_socket_directories=/tmp -c port=54330 -c shared_buffers=8MB -c maintenance_work_mem=4MB -c max_parallel_maintenance_workers=0 -c max_wal_size=64MB" start >/dev/null ||
    { tail -5 "$dir/mnt/data/log"; exit 1; }
  # Some 130 MiB of tables.
  client -i -s 8 -q
  client -c 4 -T "$seconds"
  set +e; runuser -u postgres -- "$pg/pg_ctl" -D "$dir/mnt/data" -w stop >/dev/null; end_disk; set -e
  compare postgresql "$policy" pg
done
