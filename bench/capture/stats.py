#!/usr/bin/env python3
"""Prints the tables of the captured traces' README from the files themselves.

usage: stats.py [DIR] [--by-minute]     needs the zstd command
"""
import argparse
import collections
import csv
import hashlib
import json
import os
import subprocess

BLOCK = 4096


def rows(path):
    run = subprocess.Popen(["zstd", "-dc", path], stdout=subprocess.PIPE, text=True)
    reader = csv.reader(run.stdout)
    assert next(reader) == ["time_ns", "volume", "op", "offset_bytes", "length_bytes", "latency_ns"]
    for time, _, op, offset, length, latency in reader:
        yield int(time), op, int(offset), int(length), latency
    if run.wait():
        raise SystemExit(f"zstd failed on {path}")


def scan(path, size):
    ops, count_bytes = collections.Counter(), collections.Counter()
    seconds, minutes = collections.Counter(), collections.Counter()
    touched = {"R": bytearray(size // BLOCK), "W": bytearray(size // BLOCK)}
    low, high, before, took = size, 0, 0, []
    for time, op, offset, length, latency in rows(path):
        assert time >= before, "not sorted by time"
        assert offset + length <= size, "beyond the end of the volume"
        before = time
        ops[op] += 1
        count_bytes[op] += length
        seconds[time // 10**9] += 1
        minutes[time // (60 * 10**9), op] += 1
        if latency:
            took.append(int(latency))
        if op in touched:
            first, last = offset // BLOCK, (offset + length - 1) // BLOCK
            touched[op][first:last + 1] = b"\1" * (last - first + 1)
            low, high = min(low, offset), max(high, offset + length)
    took.sort()
    either = bytes(a | b for a, b in zip(touched["R"], touched["W"]))
    return dict(ops=ops, bytes=count_bytes, minutes=minutes, blocks=sum(either),
                read_blocks=sum(touched["R"]), span=high - low, peak=max(seconds.values()),
                took=took, requests=sum(ops.values()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", nargs="?", default="traces/captured")
    parser.add_argument("--by-minute", action="store_true")
    args = parser.parse_args()
    with open(os.path.join(args.dir, "run.json")) as text:
        run = json.load(text)
    secs = run["duration_ns"] / 1e9
    found = {name: scan(os.path.join(args.dir, name + ".csv.zst"), volume["size_bytes"])
             for name, volume in run["volumes"].items()}

    print(f"duration {secs:.1f} s ({secs / 60:.1f} min); requests recorded "
          f"{run['issued_recorded']}, counted in the kernel {run['issued_counted_in_kernel']}; "
          f"events lost by the ring buffer {sum(run['ring_buffer'].values())}\n")
    print("| volume | requests | reads | writes | flushes | discards | MiB read | MiB written "
          "| 4 KiB blocks touched | of these read | span MiB | volume MiB | mean IOPS | peak 1-s IOPS "
          "| latency µs p50 | p99 | no completion |")
    print("|---|" + "---:|" * 16)
    total = collections.Counter()
    for name, s in found.items():
        took = s["took"]
        cells = [s["requests"], s["ops"]["R"], s["ops"]["W"], s["ops"]["F"], s["ops"]["D"],
                 s["bytes"]["R"] >> 20, s["bytes"]["W"] >> 20, s["blocks"], s["read_blocks"]]
        total.update(dict(enumerate(cells)))
        cells += [s["span"] >> 20, run["volumes"][name]["size_bytes"] >> 20,
                  f"{s['requests'] / secs:.1f}", s["peak"],
                  took[len(took) // 2] // 1000, took[len(took) * 99 // 100] // 1000,
                  s["requests"] - len(took)]
        print(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    print("| all | " + " | ".join(str(total[i]) for i in range(9))
          + f" | | | {total[0] / secs:.1f} | | | | |")

    if args.by_minute:
        print("\nreads / writes in each minute\n")
        print("| minute | " + " | ".join(found) + " |")
        print("|---:|" + "---:|" * len(found))
        for minute in range(-int(-secs // 60)):
            print(f"| {minute} | " + " | ".join(
                f"{s['minutes'][minute, 'R']} / {s['minutes'][minute, 'W']}"
                for s in found.values()) + " |")

    print("\n| file | bytes | sha256 |\n|---|---:|---|")
    for name in found:
        path = os.path.join(args.dir, name + ".csv.zst")
        with open(path, "rb") as data:
            digest = hashlib.sha256(data.read()).hexdigest()
        print(f"| {name}.csv.zst | {os.path.getsize(path)} | {digest} |")


main()
