#!/usr/bin/env bash
# record.sh OUT STATS: writes every request issued to, completed by and given
# back by the loop devices (block major 7) to OUT, as text, until SIGTERM.
#
# A trace instance of its own, so that other users of the tracer are not
# disturbed.  The kernel's ring buffer, unlike BPF programs, also takes the
# event of an interrupt that arrives while another event is being written;
# what it had to drop it counts (STATS).
set -euo pipefail

tracing=/sys/kernel/tracing
mounted=
if ! mountpoint -q "$tracing"; then
    mount -t tracefs tracefs "$tracing"
    mounted=1
fi
instance=$tracing/instances/capture-$$
mkdir "$instance"
reader=

finish() {
    trap - EXIT
    echo 0 > "$instance/tracing_on"
    sleep 1 # the reader takes what is left
    if [[ -n $reader ]]; then
        kill "$reader" || true
        wait "$reader" || true
    fi
    cat "$instance"/per_cpu/cpu*/stats > "$1"
    echo 0 > "$instance/events/block/enable"
    rmdir "$instance"
    [[ -z $mounted ]] || umount "$tracing"
}
trap 'finish "$2"' EXIT
trap 'exit 0' TERM INT

echo boot > "$instance/trace_clock" # bpftrace's "nsecs"
echo 16384 > "$instance/buffer_size_kb" # for each processor
for event in block_rq_issue block_rq_complete block_rq_requeue; do
    echo "dev >= $((7 << 20)) && dev < $((8 << 20))" > "$instance/events/block/$event/filter"
    echo 1 > "$instance/events/block/$event/enable"
done
cat "$instance/trace_pipe" > "$1" &
reader=$!
wait "$reader"
