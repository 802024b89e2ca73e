#!/usr/bin/env python3
"""Compares runs of `terrace demo -o json` with the target of the demonstration. Used by bench/demo.sh.

usage: demo.py DIRECTORY STRATEGY RUNS
"""

import json
import statistics
import sys
from pathlib import Path

# Target: share of windows in violation above that of the control volume, by class, and number of moves.
CLASSES = ("gold", "silver")
MISSED_MAX = 0.02
MOVES_MAX = 12


def read(path):
    """Returns the figures of one run: by class the shares in violation, that of the control volume, the violated volumes; moves."""
    (run,) = json.loads(path.read_text())["runs"]
    classes = {c["class"]: c["adapted"] for c in run["classes"]}
    return {
        "above": {name: classes[name]["above_control"] for name in CLASSES},
        "violated": {name: classes[name]["violated_share"] for name in CLASSES},
        "control": {name: classes[name]["control_share"] for name in CLASSES},
        "volumes": {v: n for name in CLASSES for v, n in classes[name]["volumes"].items() if n},
        "moves": run["moves"],
    }


def main():
    directory, strategy, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    runs = {seed: read(directory / f"{strategy}-{seed}.json") for seed in range(1, count + 1)}
    print(f"{strategy}: windows in violation (%), from two migration epochs after the start and after the load change; above = class minus control volume")
    print(f"target: gold and silver at most {MISSED_MAX:.0%} above the control volume, at most {MOVES_MAX} moves\n")
    head = "".join(f"{name:>10}{'control':>9}{'above':>8}" for name in CLASSES)
    print(f"{'run':>8}{head}{'moves':>7}   violated volumes (windows)")
    for seed, run in runs.items():
        line = "".join(
            f"{run['violated'][name]:10.1%}{run['control'][name]:9.1%}{run['above'][name]:8.1%}" for name in CLASSES
        )
        volumes = ", ".join(f"{v} {n}" for v, n in sorted(run["volumes"].items(), key=lambda x: -x[1]))
        print(f"{seed:8}{line}{run['moves']:7}   {volumes}")
    bad = False
    for name, of in (("median", statistics.median), ("worst", max)):
        above = {c: of([run["above"][c] for run in runs.values()]) for c in CLASSES}
        moves = of([run["moves"] for run in runs.values()])
        line = "".join(f"{'':19}{above[c]:8.1%}" for c in CLASSES)
        print(f"{name:>8}{line}{moves:7g}")
        bad = bad or any(share > MISSED_MAX for share in above.values()) or moves > MOVES_MAX
    print(f"\nworst of {len(runs)} runs: target {'not met' if bad else 'met'}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
