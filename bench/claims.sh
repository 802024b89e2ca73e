#!/bin/sh
# Claims of the published experiments, repeated live in small on emulated devices: live beside what the simulator does with the same, beside what is published
# and what docs/reproduce found at full size. Prints medians (and the least and the most) over the runs, as Markdown, or as JSON.
# usage: bench/claims.sh [RUNS [-o markdown|json] [STAGE …]]     3 runs, of seeds 1 to RUNS; five minutes each
# Stages: classes (priority-lru), workflow and appliance (dynamite), placement (autotiering); all of them without.
# Needs fio with its nbd engine, and a machine that has nothing else to do. TERRACE names a program that is there; else it is built, by the profile PROFILE (`dist`).
set -eu
cd "$(dirname "$0")/.."
TERRACE=${TERRACE:-$(bench/program.sh cli terrace)}
export TERRACE
exec python3 bench/claims.py "$@"
