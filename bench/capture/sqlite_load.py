#!/usr/bin/env python3
"""Paced SQLite load: point reads, small transactions, periodic scans.

usage: sqlite_load.py DATABASE WORK_DIR UNIT_MS
"""
import os
import random
import sqlite3
import sys
import time

ROWS = 4_000_000
# (until phase minute, operations per second, where the hot tenth begins)
PHASES = [(6, 60, 0.10), (12, 20, 0.10), (17, 120, 0.55), (22, 30, 0.55), (25, 70, 0.80)]
SCAN_EVERY = 2.0  # phase minutes
SCAN_ROWS = ROWS // 20
WRITE_SHARE = 0.12


def create(db):
    db.execute("PRAGMA page_size=4096")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, body BLOB, hits INTEGER)")
    rng = random.Random(42)
    pool = rng.randbytes(1 << 20)
    for start in range(0, ROWS, 100_000):
        rows = []
        for key in range(start, start + 100_000):
            at = rng.randrange(len(pool) - 300)
            rows.append((key, pool[at:at + rng.randrange(200, 300)], 0))
        with db:
            db.executemany("INSERT INTO item VALUES(?,?,?)", rows)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def pick(rng, hot):
    """80 % of the keys come from a tenth of the table."""
    if rng.random() < 0.8:
        return int((hot + 0.1 * rng.random()) % 1.0 * ROWS)
    return rng.randrange(ROWS)


def main():
    path, work, unit = sys.argv[1], sys.argv[2], int(sys.argv[3]) / 1000
    db = sqlite3.connect(path, timeout=30)
    create(db)
    db.execute("PRAGMA cache_size=-4000")
    db.execute("PRAGMA synchronous=FULL")
    open(os.path.join(work, "ready", "sqlite"), "w").close()
    go = os.path.join(work, "go")
    while not (os.path.exists(go) and os.path.getsize(go)):
        time.sleep(0.1)
    t0 = int(open(go).read()) / 1000

    rng = random.Random(7)
    next_scan = 1.0
    count = scans = 0
    due = time.time()
    for until, rate, hot in PHASES:
        while time.time() < t0 + until * unit:
            if time.time() >= t0 + next_scan * unit:
                start = scans * SCAN_ROWS * 3 % ROWS
                db.execute("SELECT sum(length(body)) FROM item WHERE id BETWEEN ? AND ?",
                           (start, start + SCAN_ROWS)).fetchone()
                scans += 1
                next_scan += SCAN_EVERY
            if rng.random() < WRITE_SHARE:
                with db:
                    for _ in range(3):
                        db.execute("UPDATE item SET hits=hits+1 WHERE id=?", (pick(rng, hot),))
            else:
                db.execute("SELECT body FROM item WHERE id=?", (pick(rng, hot),)).fetchone()
            count += 1
            # Exponential gaps; what a scan delayed is not made up in a burst.
            due = max(due + rng.expovariate(rate), time.time() - 0.5)
            time.sleep(max(0.0, due - time.time()))
        print(f"until minute {until}: {count} operations, {scans} scans", flush=True)


main()
