#!/usr/bin/env bash
# Whole-array replay speed of the simulator on one core, with percentiles, histograms and results over time on.
# usage: bench/replay.sh [REQUESTS]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --release -p cli --example replay_speed
exec target/release/examples/replay_speed "$@"
