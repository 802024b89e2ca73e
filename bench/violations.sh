#!/bin/sh
# How much of the time an objective is kept, live and simulated, with no cache, with one that does not know of objectives (lru), and with one that does
# (priority-lru), on one emulated device.
# usage: bench/violations.sh [--seconds S] [--settle S] [--slice S]     90, 30 and 5; needs fio with its nbd engine
set -eu
cd "$(dirname "$0")/.."
TERRACE=${TERRACE:-$(bench/program.sh cli terrace)}
export TERRACE
exec python3 bench/violations.py "$@"
