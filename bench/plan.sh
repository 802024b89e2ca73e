#!/bin/sh
# How long a decision about 10,000 volumes on 5 tiers takes, and how far its assignment is from the bound.
# Usage: bench/plan.sh [VOLUMES [TIERS [RUNS [DEVICES]]]], DEVICES by tier
set -eu
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
"$bench" plan-speed "${1:-10000}" "${2:-5}" "${3:-7}" "${4:-8}" | awk "$(cat bench/medians.awk)"'
    END { printf "medians: decide %.1f ms, of which assign %.1f ms; bound %.1f ms; gap %.5f of the possible gain\n",
              median(4), median(5), median(6), median(7) }'
