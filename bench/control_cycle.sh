#!/usr/bin/env bash
# What a control cycle of the live manager costs: bench/control_cycle.sh [VOLUMES] [MINUTES] [RUNS]
set -euo pipefail
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
for _ in $(seq "${3:-3}"); do
  "$bench" control-cycle "${1:-1000}" "${2:-60}"
  echo
done
