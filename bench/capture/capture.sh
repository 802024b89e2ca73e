#!/usr/bin/env bash
# Records the block requests of seven volumes used by six programs at once.
#
#   capture.sh [--minutes N] [--out DIR]
#
# Run as root on Debian 12; install.sh installs what is needed.  The phases of
# the workloads are laid out over 25 "phase minutes"; another --minutes
# stretches or shrinks them all.  Needs about 20 GB under ${TMPDIR:-/var/tmp}.
# Leaves DIR/NAME.csv.zst and DIR/run.json, and removes everything else.
set -euo pipefail

# A mount name space of its own: the volumes do not show up on the machine,
# and no mount survives this process.
if [[ -z ${CAP_UNSHARED:-} ]]; then
    CAP_UNSHARED=1 exec unshare -m -- "$0" "$@"
fi

minutes=25
out=captured
while (($#)); do
    case $1 in
        --minutes) minutes=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
((EUID == 0)) || { echo "must be run as root" >&2; exit 1; }
CAP_HERE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)

# volume  size  mount options; discard where files are deleted all the time
volumes="pg-data 8G noatime
pg-wal 4G noatime
sqlite 4G noatime
rocksdb 16G noatime,discard
src-tree 4G relatime,discard
backup 16G noatime,discard
redis 2G noatime"

# workload script, memory limit in MiB, first volume.  The limits are what makes reads reach
# the volumes: without them all data would fit into the page cache.
workloads="postgres 176 pg-data
sqlite 96 sqlite
rocksdb 160 rocksdb
srctree 128 src-tree
backup 64 backup
redis 176 redis"

CAP_WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/capture.XXXXXXXX")
CAP_UNIT_MS=$((minutes * 60000 / 25))
export CAP_WORK CAP_HERE CAP_UNIT_MS
chmod 711 "$CAP_WORK" # the postgres user has to pass
mkdir "$CAP_WORK"/{mnt,img,log,ready}

pids=() loops=() mounted=() groups=() recorder="" counter=""
declare -A readahead=() device=()

stop_workloads() {
    local pid cg p
    for pid in "${pids[@]}"; do
        kill -TERM -- "-$pid" 2> /dev/null || true # its own process group
    done
    for _ in {1..150}; do
        local alive=0
        for pid in "${pids[@]}"; do
            if kill -0 "$pid" 2> /dev/null; then alive=1; fi
        done
        ((alive)) || break
        sleep 0.2
    done
    # Whatever is left in the groups made below was started from here.
    for cg in "${groups[@]}"; do
        while read -r p; do kill -KILL "$p" 2> /dev/null || true; done < "$cg/cgroup.procs"
    done
    wait "${pids[@]}" 2> /dev/null || true
    pids=()
}
stop_recording() {
    if [[ -n $counter ]]; then
        # It prints its counts, then ends.  Again if need be: bpftrace 0.17
        # can miss a signal that comes while it is not waiting for events.
        for _ in {1..10}; do
            kill -INT "$counter" 2> /dev/null || break
            sleep 3
        done
        kill -KILL "$counter" 2> /dev/null || true
        wait "$counter" || true
        counter=
    fi
    if [[ -n $recorder ]]; then
        kill -TERM "$recorder" 2> /dev/null || true
        wait "$recorder" || true
        recorder=
    fi
}
cleanup() {
    set +e
    trap - EXIT
    stop_workloads
    stop_recording
    local m l cg
    for m in "${mounted[@]}"; do umount "$m" || umount -l "$m"; done
    for l in "${loops[@]}"; do
        echo "${readahead[$l]}" > "/sys/block/${l#/dev/}/queue/read_ahead_kb"
        losetup -d "$l"
    done
    sleep 1
    for cg in "${groups[@]}"; do rmdir "$cg"; done
    rm -rf "$CAP_WORK"
}
trap cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

# control_groups NAME MIB: make the control groups (v1 or v2) of a workload,
# limited to MIB of memory with its page cache.  Sets $joined to them, and
# $io_file to the file that takes limits of read requests.
control_groups() {
    local kind base memory=
    joined=() io_file=
    if [[ -d /sys/fs/cgroup/memory ]]; then
        for kind in memory blkio; do
            [[ -d /sys/fs/cgroup/$kind ]] || continue
            base=/sys/fs/cgroup/$kind$(awk -F: -v k="$kind" '$2 == k { print $3 }' /proc/self/cgroup)
            joined+=("${base%/}/capture-$$-$1")
        done
        memory=${joined[0]}/memory.limit_in_bytes
        [[ ${#joined[@]} == 1 ]] || io_file=${joined[1]}/blkio.throttle.read_iops_device
    elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2> /dev/null; then
        joined+=("/sys/fs/cgroup/capture-$$-$1")
        memory=${joined[0]}/memory.max
        ! grep -qw io /sys/fs/cgroup/cgroup.subtree_control || io_file=${joined[0]}/io.max
    fi
    for base in "${joined[@]}"; do
        mkdir "$base"
        groups+=("$base")
    done
    if [[ -n $memory ]]; then
        echo $(($2 << 20)) > "$memory"
    else
        echo "no memory control group: reads will be hidden by the page cache" >&2
    fi
}

# --- volumes -----------------------------------------------------------------
minors="" dio=""
while read -r name size opts; do
    truncate -s "$size" "$CAP_WORK/img/$name"
    # Direct, so that no page is cached twice; not every file system can.
    loop=$(losetup -f --show --direct-io=on "$CAP_WORK/img/$name") \
        || loop=$(losetup -f --show "$CAP_WORK/img/$name")
    queue=/sys/block/${loop#/dev/}/queue
    readahead[$loop]=$(<"$queue/read_ahead_kb")
    loops+=("$loop")
    echo 128 > "$queue/read_ahead_kb" # the usual value of a disk
    dio+="$(losetup -n -l -O DIO "$loop" | tr -d ' ')"
    minors+="$(stat -c %T "$loop") $name "
    device[$name]=$(<"/sys/block/${loop#/dev/}/dev")
    # Not lazily: the initialisation would run into the recording.
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 -L "$name" "$loop"
    mkdir "$CAP_WORK/mnt/$name"
    mount -o "$opts" "$loop" "$CAP_WORK/mnt/$name"
    mounted+=("$CAP_WORK/mnt/$name")
done <<< "$volumes"

# --- workloads prepare their data, then wait -----------------------------------
count=0
while read -r name limit volume; do
    control_groups "$name" "$limit"
    (
        trap - EXIT TERM INT
        for group in "${joined[@]}"; do echo $BASHPID > "$group/cgroup.procs"; done
        export CAP_IO_FILE=$io_file CAP_IO_DEV=${device[$volume]}
        exec setsid nice -n 10 "$CAP_HERE/w-$name.sh"
    ) < /dev/null > "$CAP_WORK/log/$name.log" 2>&1 &
    pids+=($!)
    count=$((count + 1))
done <<< "$workloads"
echo "preparing the data ..."
while (($(find "$CAP_WORK/ready" -type f | wc -l) < count)); do
    for pid in "${pids[@]}"; do
        kill -0 "$pid" 2> /dev/null || {
            echo "a workload has ended before the start:" >&2
            tail -n 5 "$CAP_WORK"/log/*.log >&2
            exit 1
        }
    done
    sleep 0.5
done
sync
echo 1 > /proc/sys/vm/drop_caches # once: the recording begins with cold caches

# --- recording -------------------------------------------------------------------
"$CAP_HERE/record.sh" "$CAP_WORK/raw" "$CAP_WORK/log/ring-buffer" &
recorder=$!
sleep 2
# The counter begins last and so sets the zero of all times; convert.py cuts
# the recording to exactly these nanoseconds.
mountpoint -q /sys/kernel/tracing
: > "$CAP_WORK/counts"
bpftrace -q "$CAP_HERE/block.bt" $((minutes * 60 * 1000000000)) \
    > "$CAP_WORK/counts" 2> "$CAP_WORK/log/bpftrace.log" &
counter=$!
for _ in {1..300}; do
    if grep -q '^B' "$CAP_WORK/counts"; then break; fi
    kill -0 "$counter" || { cat "$CAP_WORK/log/bpftrace.log" >&2; exit 1; }
    sleep 0.1
done
begun=$(date -u +%Y-%m-%dT%H:%MZ)
echo $((${EPOCHREALTIME/[.,]/} / 1000)) > "$CAP_WORK/go.new"
mv "$CAP_WORK/go.new" "$CAP_WORK/go"
echo "recording for $minutes minutes ..."
end=$((EPOCHSECONDS + minutes * 60 + 2))
next=$EPOCHSECONDS
while ((EPOCHSECONDS < end)); do
    sleep 1 # short, because a signal is handled only between two commands
    if ((EPOCHSECONDS >= next)); then
        cut -d ' ' -f 1 /proc/loadavg >> "$CAP_WORK/load"
        next=$((next + 30))
    fi
done
stop_recording # before the programs, so that their shutdown is not recorded
used=$(du -sm "$CAP_WORK/img" | cut -f 1)
stop_workloads
echo "stopped; converting ..."

# --- results -----------------------------------------------------------------------
for f in "$CAP_WORK"/log/*.log; do
    echo "== ${f##*/}"
    tail -n 40 "$f"
done > "$CAP_WORK/run.log"
if [[ -n ${CAP_KEEP_LOG:-} ]]; then cp "$CAP_WORK/run.log" "$CAP_KEEP_LOG"; fi
cat > "$CAP_WORK/facts" <<FACTS
begun=$begun
minutes=$minutes
kernel=$(uname -r | cut -d . -f 1-2)
processors=$(nproc)
memory_gib=$(awk '/MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)
loop_direct_io=$dio
used_mib_at_end=$used
load_average_every_30_s=$(paste -s -d ' ' "$CAP_WORK/load")
postgresql=$("${PG_BIN:-/usr/lib/postgresql/15/bin}/postgres" --version | awk '{ print $3 }')
sqlite=$(python3 -c 'import sqlite3; print(sqlite3.sqlite_version)')
python=$(python3 -V | awk '{ print $2 }')
rocksdb=$(dpkg-query -W -f '${Version}' rocksdb-tools)
redis=$(dpkg-query -W -f '${Version}' redis-server)
tar=$(tar --version | awk 'NR == 1 { print $NF }')
grep=$(grep --version | awk 'NR == 1 { print $NF }')
bpftrace=$(bpftrace --version | awk '{ print $NF }')
FACTS
# shellcheck disable=SC2086 # pairs of words
python3 "$CAP_HERE/convert.py" "$CAP_WORK/raw" "$CAP_WORK/log/ring-buffer" \
    "$CAP_WORK/counts" "$CAP_WORK/facts" "$CAP_WORK/img" "$out" $minors
python3 "$CAP_HERE/stats.py" "$out"
