#!/bin/sh
# How long a plan of the strategy `terrace` takes, for volumes with objectives whose loads come and go.
# Usage: bench/plan-objectives.sh [VOLUMES [TIERS [RUNS [DEVICES]]]], DEVICES by tier
set -eu
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
"$bench" plan-objectives "${1:-10000}" "${2:-5}" "${3:-5}" "${4:-8}" | awk "$(cat bench/medians.awk)"'
    END { printf "medians: plan %.1f ms; an epoch without one %.1f ms\n", median(4), median(5) }'
