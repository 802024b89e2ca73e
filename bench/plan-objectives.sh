#!/bin/sh
# How long a plan of the strategy `terrace` takes, for volumes with objectives whose loads come and go.
# Usage: bench/plan-objectives.sh [VOLUMES [TIERS [RUNS [DEVICES [IN_USE]]]]], DEVICES by tier. IN_USE is the share of every volume's extents that
# carries its load; without it extents are not known.
set -eu
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
"$bench" plan-objectives "${1:-10000}" "${2:-5}" "${3:-5}" "${4:-8}" ${5:+"$5"} | awk "$(cat bench/medians.awk)"'
    END { printf "medians: plan %.1f ms; an epoch without one %.1f ms; peak memory %.0f MiB\n", median(4), median(5), median(6) }'
