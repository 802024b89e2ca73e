"""Runs ours and the others in turn, several times, and prints medians and ratios; JSON on the last line.

compare.py RUNS OURS PEER PYTHON SMALL LARGE
"""

import json
import statistics
import subprocess
import sys

OURS = [
    "numbering", "lru", "fifo", "clock", "slru", "sieve", "s3-fifo", "arc", "hr-lru", "priority-lru",
    "places-four", "places-seventeen",
    "eight-sizes", "lru-by-extent", "priority-lru-by-extent",
]
LIBCACHESIM = ["lru", "fifo", "clock", "slru", "sieve", "s3-fifo", "arc"]
SHARE = "0.1"


def lines(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        fields = line.split(" ")
        if len(fields) == 5:
            yield fields[0], int(fields[1]), int(fields[2]), float(fields[3]), int(fields[4])


def measure(runs, ours, peer, python, trace, first):
    """Million references a second on a core by name, and hits by name."""
    rates, hits, objects = {}, {}, 0
    for _ in range(runs):
        for prefix, command in [
            ("", [ours, "cache-speed", "run", trace, SHARE, *first]),
            ("", [peer, trace, SHARE]),
            ("libcachesim ", [python, "bench/cache/peer.py", trace, "0", "OBJECTS", *LIBCACHESIM, "cachetools"]),
        ]:
            command = [str(objects) if c == "OBJECTS" else c for c in command]
            for name, capacity, references, seconds, found in lines(command):
                name = name if name == "cachetools" else prefix + name
                objects = capacity
                rates.setdefault(name, []).append(references / seconds / 1e6)
                hits[name] = found
    return {name: statistics.median(r) for name, r in rates.items()}, hits, objects


def show(title, rates, hits, capacity):
    print(f"{title}, caches of {capacity} pages: million references per second on one core, medians")
    for name, rate in rates.items():
        print(f"  {name:<24}{rate:9.2f}   {hits[name]:>10} hits")
    for name in LIBCACHESIM:
        if hits[name] != hits[f"libcachesim {name}"]:
            print(f"  {name}: {hits[name]} hits here, {hits[f'libcachesim {name}']} in libCacheSim")


def main():
    runs, ours, peer, python, small, large = int(sys.argv[1]), *sys.argv[2:7]
    checks = []

    def check(what, value, least):
        checks.append({"what": what, "ratio": round(value, 2), "asked": least, "met": value >= least})

    result = {}
    for title, trace, lru_least, most in [("small", small, 8, 8), ("large", large, 5, 4)]:
        names = OURS if title == "small" else [n for n in OURS if "extent" not in n]
        rates, hits, capacity = measure(runs, ours, peer, python, trace, names)
        show(title, rates, hits, capacity)
        result[title] = rates
        check(f"{title}: lru over libCacheSim", rates["lru"] / rates["libcachesim lru"], lru_least)
        # Both passes one after the other: numbers given, and then the policy.
        numbered = 1 / (1 / rates["lru"] + 1 / rates["numbering"])
        check(f"{title}: lru and numbering over libCacheSim", numbered / rates["libcachesim lru"], 0)
        check(f"{title}: lru over the crate lru", rates["lru"] / rates["rust-lru"], 2)
        for name in LIBCACHESIM[1:]:
            check(f"{title}: {name} over libCacheSim", rates[name] / rates[f"libcachesim {name}"], 4)
        # Queues alone, and the policies with their statistics.
        for name in ["places-seventeen", "priority-lru"]:
            check(f"{title}: {name} over lru", rates[name] / rates["lru"], 1 / most)
        if title == "small":
            seconds = 20 / rates["eight-sizes"]
            check(f"eight sizes, 20 M references: 2 s over {seconds:.2f} s", 2 / seconds, 1)
            for name in ["lru-by-extent", "priority-lru-by-extent"]:
                check(f"{name} over 10 M requests a second", rates[name] / 10, 1)
    for c in checks:
        print(f"{'met   ' if c['met'] else 'MISSED'} {c['what']}: {c['ratio']} (required: {c['asked']:.3g})")
    print(json.dumps({"schema": "terrace.bench.cache/1", "rates": result, "checks": checks}))


main()
