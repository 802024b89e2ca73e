#!/usr/bin/env python3
"""A guest that knows what it was promised: writes tagged blocks over NBD, and says later what became of them.

    safety.py write URI JOURNAL SECONDS SEED     random writes, reads and flushes until the time is over; the server may fail, or die
    safety.py check URI JOURNAL                  reads everything; one line of JSON

A journal that is there is gone on from: what an earlier run wrote is what a block holds whose first write of this run was cut off. A block that is read back must be the last acknowledged write, or one after it that was answered with an error or not at all. Blocks of
another volume or another place are others' bytes. A read that fails loses nothing: it is counted as unreadable.
"""

import json
import os
import random
import sys
import time

import nbd

BLOCK = 4096


def tag(volume, block, seq):
    head = f"{volume}:{block}:{seq};".encode()
    return (head * (BLOCK // len(head) + 1))[:BLOCK]


def connect(uri, until):
    while True:
        handle = nbd.NBD()
        try:
            handle.connect_uri(uri)
            return handle
        except nbd.Error:
            if time.monotonic() > until:
                return None
            time.sleep(0.1)


def write(uri, journal, seconds, seed):
    volume = uri.split("///")[1].split("?")[0]
    rng = random.Random(int(seed))
    until = time.monotonic() + float(seconds)
    acked, maybe, seq = before(journal)
    recent = []
    counts = {"writes": 0, "failed": 0, "flushes": 0, "failed_flushes": 0, "reconnects": 0, "reads": 0, "wrong_reads": 0}
    handle = connect(uri, until)
    blocks = handle.get_size() // BLOCK if handle else 0
    while handle and time.monotonic() < until:
        block, seq = rng.randrange(blocks), seq + 1
        try:
            handle.pwrite(tag(volume, block, seq), block * BLOCK)
            acked[block], maybe[block] = seq, []
            counts["writes"] += 1
            known = rng.choice(recent) if recent and rng.random() < 0.5 else block
            recent = ([block] + recent)[:256]
            read = bytes(handle.pread(BLOCK, known * BLOCK))
            counts["reads"] += 1
            if not maybe[known] and read != tag(volume, known, acked[known]):
                counts["wrong_reads"] += 1
                print(f"{volume}: a read of block {known} did not return write {acked[known]}", file=sys.stderr)
            if seq % 64 == 0:
                counts["flushes"] += 1
                try:
                    handle.flush()
                except nbd.Error:
                    counts["failed_flushes"] += 1
                    raise
        except nbd.Error:
            if acked.get(block) != seq:
                counts["failed"] += 1
                maybe.setdefault(block, []).append(seq)
            if handle.aio_is_dead() or handle.aio_is_closed():
                handle = connect(uri, until)
                counts["reconnects"] += 1
            else:
                time.sleep(0.005)
    with open(journal, "w") as out:
        json.dump({"volume": volume, "acked": acked, "maybe": maybe, "seq": seq, "counts": counts}, out)
    print(json.dumps({"volume": volume, **counts}))
    sys.exit(1 if counts["wrong_reads"] else 0)


def before(journal):
    """What an earlier run left: the last acknowledged write of each block, those after it, and the highest number used."""
    if not os.path.exists(journal):
        return {}, {}, 0
    known = load(journal)
    acked, maybe = ({int(block): value for block, value in known[part].items()} for part in ("acked", "maybe"))
    return acked, maybe, known["seq"]


def load(journal):
    with open(journal) as source:
        return json.load(source)


def parts_of_sectors(data):
    """Volume, block and number of the write that each sector is of, as far as its first whole tag tells."""
    for start in range(0, BLOCK, 512):
        tags = data[start:start + 512].split(b";")
        yield tags[1 if len(tags) > 2 else 0].split(b":")


def check(uri, journal):
    known = load(journal)
    volume = known["volume"]
    found = {"volume": volume, "blocks": 0, "lost": 0, "others": 0, "unreadable": 0}
    handle = connect(uri, time.monotonic() + 10)
    for block in sorted({int(b) for b in known["acked"]} | {int(b) for b in known["maybe"]}):
        found["blocks"] += 1
        acked, maybe = known["acked"].get(str(block)), known["maybe"].get(str(block), [])
        try:
            data = bytes(handle.pread(BLOCK, block * BLOCK))
        except nbd.Error:
            found["unreadable"] += 1
            continue
        possible = [tag(volume, block, seq) for seq in ([acked] if acked else []) + maybe]
        if not acked:
            possible.append(bytes(BLOCK))
        if data in possible:
            continue
        # A write that failed may have been torn at sectors.
        sectors = range(0, BLOCK, 512)
        if maybe and all(any(data[s:s + 512] == p[s:s + 512] for p in possible) for s in sectors):
            continue
        parts = data.split(b";")[0].split(b":")
        if data != bytes(BLOCK) and (len(parts) != 3 or parts[0].decode(errors="replace") != volume
                                     or parts[1] != str(block).encode()):
            found["others"] += 1
        else:
            found["lost"] += 1
            sequences = [int(part[2]) if len(part) == 3 else None for part in parts_of_sectors(data)]
            print(f"{volume}: block {block} holds writes {sequences}, of which {acked} was the last acknowledged and {maybe} came after it",
                  file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
