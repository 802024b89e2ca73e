#!/usr/bin/env python3
"""Measures two builds in turn. See against.sh for usage: DIRECTORY-OF-THIS DIRECTORY-OF-THE-OTHER [RUNS [PART...]]."""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import datapath

LEAST = 0.95

# name: arguments of terrace-bench; lines of what it prints, with one number; whether more of it is better.
PROGRAMS = {
    "replay": (["replay-speed", "4000000"], r"^(open|window|closed) +([\d.]+)", True),
    "planning, ms": (["plan-speed", "10000", "5", "1"], r"^\d+ (\d+) \d+ ([\d.]+) ", False),
    "extents, ms": (["extents-speed", "1200000"], r"^(\w[\w-]*) +\d+ extents: decide +([\d.]+)", False),
    "flash translation": (["ftl-speed", "4096", "256", "0.15", "1"], r"^()[\d.]+ ([\d.]+) [\d.]+$", True),
    "flash drive": (["drive-speed", "4000000", "1"], r"^([\d.]+) [\d.]+ ([\d.]+) ", True),
    "curves": (["mrc-speed", "4", "200", "1"], r"^(.*?\S)  +([\d.]+) M references/s", True),
    "engine, ns": (["engine-time"], r"^()([\d.]+) ns per request", False),
}
CACHES = ["lru", "s3-fifo", "arc", "priority-lru"]
NBD = ["4k read qd1", "4k write qd1", "4k read qd32"]


def said(build, *args):
    """Returns the output of terrace-bench."""
    return subprocess.run([f"{build}/terrace-bench", *args], check=True, capture_output=True, text=True).stdout


def lines(build, args, pattern):
    text = said(build, *args)
    found = re.findall(pattern, text, re.M)
    if not found:
        sys.exit(f"terrace-bench {' '.join(args)}: no known result in the output:\n{text}")
    return [(what, float(number)) for what, number in found]


def programs(builds, runs, wanted):
    for name, (args, pattern, more) in PROGRAMS.items():
        if wanted(name):
            yield from in_turn(name, builds, runs, more, lambda b: lines(b, args, pattern))


def caches(builds, runs, wanted):
    if not wanted("caches"):
        return
    with tempfile.TemporaryDirectory() as dir:
        trace = os.path.join(dir, "trace")
        said(builds[0], "cache-speed", "generate", trace, "500000", "5000000", "0.9")

        def one(build):
            rows = (line.split() for line in said(build, "cache-speed", "run", trace, "0.1", *CACHES).splitlines())
            return [(policy, int(references) / float(seconds) / 1e6) for policy, _, references, seconds, _ in rows]

        yield from in_turn("caches", builds, runs, True, one)


def nbd(builds, runs, wanted):
    if not wanted("nbd"):
        return
    if not shutil.which("fio"):
        print("nbd: skipped: needs fio")
        return
    for job in NBD:
        def one(build):
            datapath.TERRACE = f"{build}/terrace"
            with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as dir:
                server = datapath.Terrace(dir)
                try:
                    datapath.fill(server.uri)
                    return [(job, datapath.measure(server, datapath.JOBS[job], 2)["iops"])]
                finally:
                    server.stop()

        yield from in_turn("nbd", builds, runs, True, one)


def in_turn(name, builds, runs, more, one):
    """Rows of name, median of this, median of the other, ratio of speeds. Not always the same one first: what one leaves in caches and
    clocks is not the other's."""
    seen = {}
    for run in range(runs):
        for build in builds if run % 2 else builds[::-1]:
            for what, number in one(build):
                seen.setdefault(what, {}).setdefault(build, []).append(number)
    for what, numbers in seen.items():
        this, other = (statistics.median(numbers[b]) for b in builds)
        yield f"{name} {what}".strip(), this, other, this / other if more else other / this


def main():
    builds, rest = sys.argv[1:3], sys.argv[3:]
    runs, parts = int(rest[0]) if rest else 7, rest[1:]
    slower = []
    print(f"{'':44} {'this':>12} {'other':>12} {'ratio':>7}    medians of {runs}")
    wanted = lambda name: not parts or any(name.startswith(p) for p in parts)
    for part in (programs, caches, nbd):
        for name, this, other, ratio in part(builds, runs, wanted):
            slower += [name] if ratio < LEAST else []
            print(f"{name:44} {this:12.4g} {other:12.4g} {ratio:7.3f}", flush=True)
    if slower:
        sys.exit(f"speed ratio below {LEAST}: " + ", ".join(slower))


main()
