#!/bin/sh
# How long a plan of the strategy `terrace` takes, for volumes with objectives whose loads come and go.
# Usage: bench/plan-objectives.sh [VOLUMES [TIERS [RUNS]]]
set -eu
cd "$(dirname "$0")/.."
bench=$(bench/program.sh)
"$bench" plan-objectives "${1:-10000}" "${2:-5}" "${3:-5}" | awk '
    { print }
    NR > 1 { n++; for (i = 4; i <= 5; i++) v[i, n] = $i }
    function median(i,    a, j, k, t) {
        for (j = 1; j <= n; j++) a[j] = v[i, j]
        for (j = 1; j <= n; j++) for (k = j + 1; k <= n; k++) if (a[k] < a[j]) { t = a[j]; a[j] = a[k]; a[k] = t }
        return a[int((n + 1) / 2)]
    }
    END { if (n == 0) exit 1; printf "medians: plan %.1f ms; an epoch without one %.1f ms\n", median(4), median(5) }'
