#!/usr/bin/env bash
# SimpleSSD (SimpleSSD/SimpleSSD-Standalone 2.0) on random 4 KiB writes in steady state: million requests per second of processor time,
# write amplification.
# usage: bench/flash/simplessd.sh [BLOCKS PAGES SPARE]   SIMPLESSD: the binary (simplessd-standalone on the PATH); SIMPLESSD_SOURCE: its
#        checkout (the binary's directory). Exit 3: one of them is not there.
#
# Its two sample configurations are taken, and the geometry and the load put into them: 8 channels of 4 packages of 2 planes, pages of
# 4 KiB, no cache, 32 requests at a time, greedy collection; filled in order, then overwritten by chance. It is run twice, with few and
# with many requests, and the difference counts: reading the configuration and filling the drive do not.
# Written from its documentation and source; not tried with a binary.
set -euo pipefail
blocks=${1:-16384} pages=${2:-256} spare=${3:-0.15}
few=100000 many=400000
needs="needs SimpleSSD (git clone --recursive the project SimpleSSD/SimpleSSD-Standalone of GitHub, cmake, make, SIMPLESSD=…, SIMPLESSD_SOURCE=…)"
binary=$(command -v "${SIMPLESSD:-simplessd-standalone}") || { echo "skipped: $needs"; exit 3; }
source=${SIMPLESSD_SOURCE:-$(dirname "$binary")}
host=$source/config/sample.cfg drive=$source/simplessd/config/sample.cfg
[ -f "$host" ] && [ -f "$drive" ] || { echo "skipped: no config/sample.cfg and simplessd/config/sample.cfg in $source; $needs"; exit 3; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# An .ini file with other values: lines of SECTION KEY VALUE on standard input. A key that it has not is an error.
with() {
  awk '
    NR == FNR { at = "[" $1 "]" $2; $1 = $2 = ""; sub(/^ */, ""); value[at] = $0; next }
    /^\[/ { section = $1 }
    { name = $1; sub(/=.*/, "", name); key = section name }
    key in value { print name " = " value[key]; delete value[key]; next }
    { print }
    END { for (key in value) { print "the sample configuration has no key " key > "/dev/stderr"; missing = 1 } exit missing }' - "$1"
}

with "$drive" > "$dir/drive.cfg" << SET || { echo "skipped: other version"; exit 3; }
pal Channel 8
pal Package 4
pal Die 1
pal Plane 2
pal Block $((blocks / 64))
pal Page $pages
pal PageSize 4096
pal EnableMultiPlaneOperation 0
pal SuperblockSize
ftl OverProvisioningRatio $spare
ftl FillingMode 1
ftl FillRatio 1.0
ftl InvalidPageRatio 1.0
ftl EvictPolicy 0
icl EnableReadCache 0
icl EnableReadPrefetch 0
icl EnableWriteCache 0
SET

# Processor seconds of a run of so many requests.
run() {
  local TIMEFORMAT=%U
  with "$host" > "$dir/load$1.cfg" << SET || return 1
global Mode 0
global LogPeriod 0
global LogFile STDOUT
global DebugLogFile
generator io_size $(($1 * 4096))
generator readwrite randwrite
generator blocksize 4096
generator iomode async
generator iodepth 32
generator time_based 0
SET
  mkdir -p "$dir/out$1"
  { time "$binary" "$dir/load$1.cfg" "$dir/drive.cfg" "$dir/out$1" < /dev/null > "$dir/log$1" 2>&1; } 2>&1
}
# Pages that collection copied.
copies() { awk '/gc\.page_copies/ { n = $2 } END { printf "%d", n }' "$dir/log$1"; }

short=$(run $few) && long=$(run $many) || { echo "failed: $(cat "$dir"/log* 2> /dev/null | tail -1)"; exit 1; }
awk -v s="$short" -v l="$long" -v n=$((many - few)) -v c0="$(copies $few)" -v c1="$(copies $many)" \
  'BEGIN { if (l <= s) { print "failed: the run with more requests did not take longer"; exit 1 }
           printf "%.4f %.2f\n", n / (l - s) / 1e6, 1 + (c1 - c0) / n }'
