#!/bin/sh
# Broken objectives on a live host, answered by it, beside what the simulator does in the same scenario: which answer each of them takes, and how long
# from when the objective was found broken until the last window that missed it had ended.
# Usage: bench/remedies.sh [RUNS [SETUP]]     10 runs, of seeds 1 to RUNS
# SETUP is `disk` (`terrace demo --violation`: a neighbour on the same disk), `cache` (a neighbour in the same cache), `mirror` (a volume that reads more
# than its disk can, beside an idle one), `move` (a neighbour that takes all of a disk, beside an idle one) or `appliance` (a volume that reads more than its disk can out of
# few pages, and a node that lends memory); one to three minutes a run, and all but the first need fio with its nbd engine. TERRACE names a program that is there; else it is built, by the profile PROFILE (`dist`).
set -eu
cd "$(dirname "$0")/.."
TERRACE=${TERRACE:-$(bench/program.sh cli terrace)}
export TERRACE
exec python3 bench/remedies.py "${1:-10}" "${2:-disk}"
