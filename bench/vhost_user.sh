#!/usr/bin/env bash
# vhost-user-blk beside QEMU's storage daemon, in one run: one client (terrace-bench vhost-client) on both, on files in memory.
# usage: bench/vhost_user.sh [--runs N] [--seconds S] [--disk DIR] [--jobs TEXT] [--json FILE] [daemon|nbd]. Needs qemu-storage-daemon.
# nbd: beside Terrace's own NBD instead, server and client on a core each.
set -euo pipefail
cd "$(dirname "$0")/.."
TERRACE=$(bench/program.sh cli terrace)
BENCH=$(bench/program.sh)
export TERRACE BENCH
exec python3 bench/vhost_user.py "$@"
