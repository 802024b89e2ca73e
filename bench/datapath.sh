#!/usr/bin/env bash
# The data path beside nbdkit and qemu-storage-daemon, in one run: fio's nbd engine over unix sockets.
# usage: bench/datapath.sh [--runs N] [--seconds S] [--disk DIR] [--json FILE] [PART...]
# PART: peers (default), poll, direct (always on a disk), tls (needs openssl too), filters, inject, move. Needs fio, nbdkit, qemu-storage-daemon.
set -euo pipefail
cd "$(dirname "$0")/.."
TERRACE=$(bench/program.sh cli terrace)
export TERRACE
exec python3 bench/datapath.py "$@"
