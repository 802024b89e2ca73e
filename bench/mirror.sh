#!/bin/sh
# Second copies on another tier (`terrace volume mirror`) beside the best whole placement: two emulated tiers, a closed loop at their limits.
# usage: bench/mirror.sh [--seconds S] [--settle S] [--rates A,B] [--dir DIR]
# Rates are reads per second of the emulated devices (12000,9000); writes have half of that. Needs fio with its nbd engine.
set -eu
cd "$(dirname "$0")/.."
TERRACE=${TERRACE:-$(bench/program.sh cli terrace)}
export TERRACE
exec python3 bench/mirror.py "$@"
