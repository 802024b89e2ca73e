#!/usr/bin/env python3
"""Measures the benefit of mirrors of hot extents. See mirror.sh for usage.

A volume is read at random by a closed loop of 64 requests, in turn: all of it on tier a, all of it on tier b, on a with second copies on b. Then the same with
10 % writes, which go to both copies. Told are requests per second, p99, the ratio to the better whole placement, and the share of what both tiers do together.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from served import Served, spec

SIZE_MIB = 256
DEPTH = 64


class Array(Served):
    """An array with two emulated tiers and a volume, and the server of it."""

    def __init__(self, dir, rates):
        super().__init__(dir)
        self.boot()
        self.run("volume", "create", "none", "--size", "1 MiB", "--tier", "boot")
        sock = os.path.join(dir, "t.sock")
        self.uri = f"nbd+unix:///v?socket={sock}"
        self.start("volume", "export", "--listen", f"unix:{sock}")
        for tier, rate in zip(("a", "b"), rates):
            device = spec(rate, "200 us", write_iops=rate / 2, read_bandwidth="2 GiB/s", write_bandwidth="2 GiB/s")
            self.emulated(tier, device, f"{4 * SIZE_MIB} MiB")
        self.run("volume", "create", "v", "--size", f"{SIZE_MIB} MiB", "--tier", "a")

    def show(self):
        return json.loads(self.run("volume", "show", "v", "-o", "json"))

    def fio(self, rw, seconds, settle=0, more=()):
        args = ["fio", "--name=m", "--ioengine=nbd", f"--uri={self.uri}", f"--rw={rw}", "--bs=4k", f"--iodepth={DEPTH}"]
        args += ["--time_based", f"--runtime={seconds}", f"--ramp_time={settle}", f"--size={SIZE_MIB}M", "--output-format=json"]
        args += ["--randrepeat=0", "--norandommap", *more]
        done = subprocess.run(args, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"fio: {done.stderr}{done.stdout}")
        job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
        p99 = lambda d: job[d]["clat_ns"].get("percentile", {}).get("99.000000", 0) / 1e6
        return job["read"]["iops"] + job["write"]["iops"], p99("read"), p99("write")

    def until(self, what, done):
        for _ in range(1200):
            if done(self.show()):
                return
            time.sleep(0.1)
        sys.exit(f"{what}: not finished in time: {self.show()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--settle", type=int, default=20, help="seconds before the measurement")
    parser.add_argument("--rates", default="12000,9000")
    parser.add_argument("--dir", help="directory for the temporary files of the tiers")
    options = parser.parse_args()
    rates = [int(r) for r in options.rates.split(",")]
    with tempfile.TemporaryDirectory(dir=options.dir) as dir:
        array = Array(dir, rates)
        try:
            array.fio("write", 1, more=["--time_based=0", "--bs=1M", "--iodepth=4", "--runtime=0"])
            loops = {"reads": ("randread", []), "10 % writes": ("randrw", ["--rwmixread=90"])}
            seen = {}
            for place in ("a", "b", "mirrored"):
                if place == "b":
                    array.run("volume", "move", "v", "--to", "b", "--bandwidth", "1 GiB/s", "--wait")
                elif place == "mirrored":
                    array.run("volume", "move", "v", "--to", "a", "--bandwidth", "1 GiB/s", "--wait")
                    array.run("volume", "mirror", "v", "--to", "b", "--bandwidth", "1 GiB/s")
                    mirrored = lambda v: (v["status"].get("mirror") or {}).get("phase") == "mirrored"
                    array.until("the copy", mirrored)
                for loop, (rw, more) in loops.items():
                    settle = options.settle if place == "mirrored" else 3
                    result = array.fio(rw, options.seconds, settle, more)
                    seen[loop, place] = result
                    said = f"{loop:<12} {place:<9} {result[0]:8.0f} IOPS  p99 {result[1]:6.2f} ms read"
                    if result[2]:
                        said += f", {result[2]:6.2f} ms write"
                    if place == "mirrored":
                        mirror = array.show()["status"].get("mirror")
                        said += f"  share of reads {mirror['read_share']:.3f}" if mirror else "  GIVEN UP"
                    print(said, flush=True)
            for loop in loops:
                a, b, both = (seen[loop, place][0] for place in ("a", "b", "mirrored"))
                print(f"{loop}: {both / max(a, b):.2f} x the best whole placement, {both / (a + b):.3f} of the sum")
        finally:
            array.stop()


if __name__ == "__main__":
    main()
