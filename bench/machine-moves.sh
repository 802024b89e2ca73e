#!/bin/sh
# What a guest bears while its disk moves under libvirt: the longest time without an answer, with Terrace and with a plain `virsh blockcopy` at the
# same speed, in pairs; and what a neighbour bears meanwhile, whose objective Terrace knows.
# Usage: bench/machine-moves.sh [PAIRS [BYTES_PER_SECOND]]. Needs libvirt, QEMU (no KVM) and python3; takes about half a minute a pair.
set -eu
cd "$(dirname "$0")/.."
terrace=$(bench/program.sh cli terrace)
bench=$(bench/program.sh)
exec python3 bench/machine-moves.py "$terrace" "$bench" "${1:-10}" "${2:-20000000}"
