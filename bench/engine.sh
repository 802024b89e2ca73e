#!/bin/sh
# What a guest's request costs in a volume's engine: this tree beside another commit, in turn, in one run.
# Usage: bench/engine.sh COMMIT [RUNS]      prints nanoseconds of CPU time per request, and the ratio of the medians (1 or more: no slower)
# Ends with an error if the ratio is below 0.97. 15 runs of each if left out, each of about a fifth of a second.
set -eu
cd "$(dirname "$0")/.."
commit=${1:?usage: bench/engine.sh COMMIT [RUNS]}
runs=${2:-15}
before=target/engine-before
rm -rf "$before"
mkdir -p "$before"
git archive "$commit" | tar -x -C "$before"
cp crates/datapath/examples/engine_time.rs "$before/crates/datapath/examples/"
cargo build --quiet --release --locked -p datapath --example engine_time
CARGO_TARGET_DIR=target/engine-before-target cargo build --quiet --release --locked --manifest-path "$before/Cargo.toml" \
    -p datapath --example engine_time
for i in $(seq "$runs"); do
    # Not always the same one first: what one leaves in caches and clocks is not the other's.
    [ $((i % 2)) = 0 ] || echo "before $(target/engine-before-target/release/examples/engine_time)"
    echo "now $(target/release/examples/engine_time)"
    [ $((i % 2)) = 1 ] || echo "before $(target/engine-before-target/release/examples/engine_time)"
done | awk -v runs="$runs" '
    { print; if ($2 > 0) v[$1, ++n[$1]] = $2 }
    function median(of,    a, j, k, t) {
        for (j = 1; j <= n[of]; j++) a[j] = v[of, j]
        for (j = 1; j <= n[of]; j++) for (k = j + 1; k <= n[of]; k++) if (a[k] < a[j]) { t = a[j]; a[j] = a[k]; a[k] = t }
        return n[of] % 2 ? a[(n[of] + 1) / 2] : (a[n[of] / 2] + a[n[of] / 2 + 1]) / 2
    }
    END {
        if (n["now"] != runs || n["before"] != runs) { print "not every run came to its end"; exit 1 }
        ratio = median("before") / median("now")
        printf "medians of %d runs: before %.1f, now %.1f ns per request; speed now over before %.3f\n", runs, median("before"), median("now"), ratio
        if (ratio < 0.97) { print "FAILED: below 0.97"; exit 1 }
    }'
