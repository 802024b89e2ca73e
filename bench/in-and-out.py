#!/usr/bin/env python3
"""A guest under load that knows every byte of its disk, and a backup by increments, both by libnbd.

    in-and-out.py load URI MODEL SECONDS SEED    random reads, writes, zeroes and flushes; MODEL is what the disk holds, and is kept so.
                                                 One line of JSON: requests, errors, bytes that differ, the longest request
    in-and-out.py check URI MODEL                compares the whole disk
    in-and-out.py backup FILE URI [SINCE]        copies all of an export into a file, or what has changed since an earlier snapshot
"""

import json
import mmap
import random
import sys
import time

import nbd

PIECE = 1 << 20


def connect(uri, since=None):
    handle = nbd.NBD()
    if since:
        handle.add_meta_context("qemu:dirty-bitmap:" + since)
    handle.connect_uri(uri)
    return handle


def differ(a, b):
    return 0 if a == b else sum(x != y for x, y in zip(a, b))


def load(uri, model, seconds, seed):
    rng = random.Random(int(seed))
    with open(model, "r+b") as file:
        disk = mmap.mmap(file.fileno(), 0)
    handle = connect(uri)
    found = {"requests": 0, "errors": 0, "differ": 0, "longest_ms": 0.0}
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        length = 4096 * rng.choice((1, 1, 2, 16, 64))
        at = rng.randrange((len(disk) - length) // 4096) * 4096
        what = rng.random()
        began = time.monotonic()
        try:
            if what < 0.45:
                found["differ"] += differ(bytes(handle.pread(length, at)), disk[at : at + length])
            elif what < 0.9:
                # Compressed by nothing, and different each time.
                data = rng.randbytes(length)
                handle.pwrite(data, at)
                disk[at : at + length] = data
            elif what < 0.97:
                handle.zero(length, at)
                disk[at : at + length] = bytes(length)
            else:
                handle.flush()
        except nbd.Error as error:
            found["errors"] += 1
            print(error, file=sys.stderr)
        found["requests"] += 1
        found["longest_ms"] = max(found["longest_ms"], round((time.monotonic() - began) * 1e3, 1))
        time.sleep(0.0005)
    handle.flush()
    handle.shutdown()
    print(json.dumps(found))


def check(uri, model):
    handle, wrong = connect(uri), 0
    with open(model, "rb") as file:
        for at in range(0, handle.get_size(), PIECE):
            length = min(PIECE, handle.get_size() - at)
            # What the disk has and the model does not is past the end of what was imported: zeroes.
            expected = file.read(length).ljust(length, b"\0")
            wrong += differ(bytes(handle.pread(length, at)), expected)
    print(wrong)


def backup(path, uri, since=None):
    handle = connect(uri, since)
    size, ranges = handle.get_size(), []
    if since:
        context, at = "qemu:dirty-bitmap:" + since, 0
        reached = [0]

        def told(metacontext, offset, entries, _error):
            if metacontext == context:
                for length, flags in zip(entries[::2], entries[1::2]):
                    if flags & 1:
                        ranges.append((offset, length))
                    offset += length
                reached[0] = offset

        while at < size:
            handle.block_status(min(size - at, 1 << 30), at, told)
            at = reached[0]
    else:
        ranges.append((0, size))
    with open(path, "r+b" if since else "w+b") as file:
        file.truncate(size)
        for offset, length in ranges:
            for at in range(offset, offset + length, PIECE):
                piece = min(PIECE, offset + length - at)
                file.seek(at)
                file.write(handle.pread(piece, at))
    print(sum(length for _, length in ranges) >> 20)


if __name__ == "__main__":
    {"load": load, "check": check, "backup": backup}[sys.argv[1]](*sys.argv[2:])
