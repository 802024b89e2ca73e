#!/usr/bin/env bash
# Whole-array replay speed of the simulator on one core, with percentiles, histograms and results over time on.
# usage: bench/replay.sh [REQUESTS]
set -euo pipefail
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
exec "$bench" replay-speed "$@"
