# shellcheck shell=bash
# Shared by the workload scripts.  capture.sh exports:
#   CAP_WORK     scratch directory; file systems are in $CAP_WORK/mnt/NAME
#   CAP_UNIT_MS  length of one phase minute in ms (60000 in a 25-minute run)
#   CAP_HERE     directory of these scripts
#   CAP_IO_FILE, CAP_IO_DEV   control file and device number for read_iops

CAP_T0=0

mnt() { echo "$CAP_WORK/mnt/$1"; }

now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

# To stderr: some of the commands below write their data to stdout.
log() { echo "$(date -u +%H:%M:%S) ${0##*/}: $*" >&2; }

# Say that preparation is over, then wait until the recording has begun.
ready_and_wait() {
    touch "$CAP_WORK/ready/$1"
    while [[ ! -s $CAP_WORK/go ]]; do sleep 0.1; done
    CAP_T0=$(<"$CAP_WORK/go")
}

# ms_until M: time left until phase minute M (may be a decimal), at least 0.
ms_until() {
    local want
    want=$(awk -v m="$1" -v u="$CAP_UNIT_MS" 'BEGIN { printf "%d", m * u }')
    local left=$((CAP_T0 + want - $(now_ms)))
    echo $((left > 0 ? left : 0))
}

# at M: sleep until phase minute M.
at() {
    local left
    left=$(ms_until "$1")
    sleep "$(awk -v l="$left" 'BEGIN { printf "%.3f", l / 1000 }')"
    log "phase minute $1"
}

# secs_until M: the same in whole seconds, at least 1, for -T and timeout.
secs_until() {
    local left
    left=$(ms_until "$1")
    echo $((left < 1000 ? 1 : left / 1000))
}

# bounded M COMMAND...: run until phase minute M at the latest; being cut off
# by the clock is no error.
bounded() {
    local end rc=0
    end=$(secs_until "$1")
    shift
    timeout --foreground "$end" "$@" || rc=$?
    ((rc == 0 || rc == 124)) || log "exit status $rc: $1"
    return 0
}

# read_iops N: let this workload's reads reach its volume at N a second at
# most; 0 lifts the limit.  The block layer holds them back before they become
# requests, so the waiting is not part of the recorded latencies.
read_iops() {
    case ${CAP_IO_FILE##*/} in
        io.max) echo "$CAP_IO_DEV riops=${1/#0/max}" > "$CAP_IO_FILE" ;;
        blkio*) echo "$CAP_IO_DEV $1" > "$CAP_IO_FILE" ;;
    esac
}
