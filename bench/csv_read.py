"""CPU seconds for an MSR-style CSV: ours to records in memory, polars to the same columns. See csv_read.sh."""

import json
import os
import statistics
import subprocess
import sys

COLUMNS = ["time", "host", "disk", "op", "offset", "length", "response"]
CHILD = """
import sys, time
import polars as pl
names = sys.argv[3].split(",")
types = [pl.Int64, pl.String, pl.Int64, pl.String, pl.Int64, pl.Int64, pl.Int64]
schema = dict(zip(names, types))
def read(rows=None):
    options = dict(has_header=False, schema=schema, n_rows=rows)
    if sys.argv[2] == "scan":
        return pl.scan_csv(sys.argv[1], **options).collect()
    return pl.read_csv(sys.argv[1], **options)
read(1000)  # What is loaded on first use is not charged.
before = time.process_time()
frame = read()
cpu = time.process_time() - before
total = (frame["offset"].sum() + frame["length"].sum()) % 2**64
print(frame.height, total, cpu, pl.__version__)
"""


def ours(tool, path):
    """Charged with the reading alone, as the kernel counts it for the process."""
    out = subprocess.run([tool, "csv-rows", "read", path], check=True, capture_output=True, text=True).stdout
    rows, total, cpu = out.split()
    return int(rows), int(total), float(cpu)


def polars(python, path, how):
    """Charged with the reading alone, on all its threads."""
    command = [python, "-c", CHILD, path, how, ",".join(COLUMNS)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows, total, cpu, version = out.split()
    return int(rows), int(total), float(cpu), version


def main():
    tool, python, path, runs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    cpu = {"terrace": [], "polars read_csv": [], "polars scan_csv": []}
    version, seen = "", set()
    for _ in range(runs):
        rows, total, seconds = ours(tool, path)
        seen.add((rows, total))
        cpu["terrace"].append(seconds)
        for how in ["read", "scan"]:
            rows, total, seconds, version = polars(python, path, how)
            seen.add((rows, total))
            cpu[f"polars {how}_csv"].append(seconds)
    assert len(seen) == 1, f"the readers disagree: {seen}"
    rows = seen.pop()[0]
    size = os.path.getsize(path)
    medians = {name: statistics.median(seconds) for name, seconds in cpu.items()}
    best = min(medians["polars read_csv"], medians["polars scan_csv"])
    print(f"{rows} rows, {size / 2**20:.0f} MiB, medians of {runs} runs, user + system time; polars {version}")
    print(f"{'':16} {'CPU s':>8} {'rows/CPU-s':>12} {'MiB/CPU-s':>10}")
    for name, seconds in medians.items():
        print(f"{name:16} {seconds:8.3f} {rows / seconds:12.3e} {size / 2**20 / seconds:10.0f}")
    ratio = best / medians["terrace"]
    print(f"terrace reads {ratio:.2f} times as many rows per CPU-second as the faster polars variant")
    result = {"rows": rows, "bytes": size, "runs": runs, "polars": version, "cpu_s": cpu, "ratio": ratio}
    print(json.dumps(result))


main()
