#!/usr/bin/env python3
"""SETs at a steady rate over a unix socket.

usage: redis_load.py SOCKET SECONDS RATE    (SECONDS 0: fill once, then end)
"""
import random
import socket
import sys
import time

KEYS = 60_000


def command(*parts):
    out = [b"*%d\r\n" % len(parts)]
    for part in parts:
        out.append(b"$%d\r\n%s\r\n" % (len(part), part))
    return b"".join(out)


def main():
    path, seconds, rate = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    rng = random.Random(11)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    answers = sock.makefile("rb")

    def batch(keys):
        sock.sendall(b"".join(
            command(b"SET", b"session:%08d" % key, rng.randbytes(rng.randrange(600, 2000)))
            for key in keys))
        for _ in keys:
            answers.readline()

    if not seconds:
        for start in range(0, KEYS, 100):
            batch(range(start, start + 100))
        return
    end = time.time() + seconds
    while time.time() < end:
        began = time.time()
        batch([int(KEYS * rng.random() ** 3) for _ in range(max(1, round(rate / 10)))])
        time.sleep(max(0.0, began + 0.1 - time.time()))


main()
