#!/usr/bin/env bash
# What a control cycle of the live manager costs: bench/control_cycle.sh [VOLUMES] [MINUTES] [RUNS]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -q -p daemon --example control_cycle
for _ in $(seq "${3:-3}"); do
  target/release/examples/control_cycle "${1:-1000}" "${2:-60}"
  echo
done
