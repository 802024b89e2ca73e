#!/usr/bin/env python3
"""Pairs the issue and completion lines of record.sh; writes one CSV per volume.

usage: convert.py RAW RING_BUFFER_STATS COUNTS FACTS IMAGE_DIR OUT_DIR (MINOR NAME)...

Pairing, per device and kind of request:
  R, W, D  a completion belongs to the oldest open request at its sector; a
           partial one moves the rest of the request on.  Completions of no
           sectors are the block layer's own (the end of a flush sequence) and
           belong to no request of the driver.
  F        flushes have no sector; the oldest open one.
A request given back by the driver (requeue) is forgotten: it will be issued
again.  The clock's text form has whole microseconds, so the last three digits
of the nanoseconds are 0.
"""
import collections
import json
import os
import re
import subprocess
import sys


def kind(rwbs):
    # A leading F before another letter is the preflush flag: FWS is a write,
    # F and FF are flushes.
    if len(rwbs) > 1 and rwbs[0] == "F" and rwbs[1] in "RWDFN":
        rwbs = rwbs[1:]
    return rwbs[0]


LINE = re.compile(
    rb"(\d+)\.(\d{6}): block_rq_(issue|complete|requeue): 7,(\d+) (\w+) (\d+ )?\(.*?\) (\d+) \+ (\d+) ")
ORDER = {b"requeue": 0, b"issue": 1, b"complete": 2}


def main():
    raw, stats, counts, facts, images, out = sys.argv[1:7]
    names = {int(m): n for m, n in zip(sys.argv[7::2], sys.argv[8::2])}
    with open(counts) as text:
        counts = text.read()
    zero = int(re.search(r"^B (\d+)", counts, re.M)[1])
    counted = {int(m): int(n) for m, n in re.findall(r"@issued\[(\d+)\]: (\d+)", counts)}
    report = {}
    with open(facts) as lines:
        for line in lines:
            name, value = line.rstrip("\n").split("=", 1)
            report[name] = value
    duration = int(report["minutes"]) * 60 * 10**9

    events, unread = [], 0
    with open(raw, "rb") as lines:
        for line in lines:
            found = LINE.search(line)
            if not found:
                unread += 1
                continue
            minor = int(found[4])
            time = int(found[1]) * 10**9 + int(found[2]) * 1000
            # One microsecond off the counter's clock at the most, because of
            # the rounding; what is outside of its time is not kept.
            if minor in names and 0 <= time + 999 - zero and time - zero < duration:
                events.append((max(0, time - zero) // 1000 * 1000, ORDER[found[3]], minor,
                               int(found[7]), int(found[8]), kind(found[5].decode())))
    # Each processor has its own buffer, so lines may be out of order.
    events.sort(key=lambda e: e[:2])

    seen = collections.Counter()
    requests = {m: [] for m in names}
    open_at = collections.defaultdict(collections.deque)
    odd = collections.Counter()
    for time, what, minor, sector, sectors, op in events:
        seen[("requeued", "issued", "completed")[what], minor] += 1
        if op not in "RWFD":
            odd["other operations"] += 1
            continue
        key = (minor, op, 0 if op == "F" else sector)
        if what == 1:
            size = 0 if op == "F" else sectors * 512
            request = [time, op, 0 if op == "F" else sector * 512, size, None, size]
            if open_at[key]:
                odd["two in flight at one sector"] += 1
            open_at[key].append(request)
            requests[minor].append(request)
        elif what == 0:
            if open_at[key]:
                open_at[key].pop()[1] = None
                odd["given back by the driver"] += 1
        else:
            if op != "F" and sectors == 0:
                continue
            if not open_at[key]:
                odd["completed, but issued before the start"] += 1
                continue
            request = open_at[key].popleft()
            if not open_at[key]:
                del open_at[key]
            request[5] -= sectors * 512
            if op != "F" and request[5] > 0:
                open_at[minor, op, sector + sectors].append(request)
                odd["completed in parts"] += 1
            else:
                request[4] = time - request[0]

    with open(stats) as text:
        stats = text.read()
    # "entries" are those the reader has not taken before the end.
    buffer = {name: sum(map(int, re.findall(rf"^{name}: (\d+)", stats, re.M)))
              for name in ("overrun", "commit overrun", "dropped events", "entries")}
    issued = sum(seen["issued", m] for m in names)
    report.update({
        "duration_ns": duration, "issued_recorded": issued,
        "issued_counted_in_kernel": sum(counted.get(m, 0) for m in names),
        "ring_buffer": buffer, "lines_not_understood": unread,
        "oddities": dict(odd), "volumes": {}})
    for minor, name in names.items():
        kept = [r for r in requests[minor] if r[1]]
        text = ["time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n"]
        for time, op, offset, size, latency, _ in kept:
            took = "" if latency is None else latency
            text.append(f"{time},{name},{op},{offset},{size},{took}\n")
        path = os.path.join(out, name + ".csv.zst")
        subprocess.run(["zstd", "-q", "-f", "-19", "-o", path],
                       input="".join(text).encode(), check=True)
        report["volumes"][name] = {
            "size_bytes": os.stat(os.path.join(images, name)).st_size,
            "issued_counted_in_kernel": counted.get(minor, 0),
            "requests": len(kept),
            "without_completion": sum(r[4] is None for r in kept)}
    with open(os.path.join(out, "run.json"), "w") as target:
        json.dump(report, target, indent=1)
        target.write("\n")


main()
