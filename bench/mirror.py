#!/usr/bin/env python3
"""What second copies of hot extents are good for. See mirror.sh for usage.

A volume is read at random by a closed loop of 64 requests, in turn: all of it on tier a, all of it on tier b, on a with second copies on b. Then the same with
10 % writes, which go to both copies. Told are requests per second, p99, the ratio to the better whole placement, and the share of what both tiers do together.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from served import TERRACE, Served

SIZE_MIB = 256
DEPTH = 64


def spec(rate):
    """A device of so many reads per second, and half as many writes."""
    return {
        "model": f"{rate} reads/s",
        "capacity": "4 GiB",
        "read_iops": rate,
        "write_iops": rate / 2,
        "read_bandwidth": "2 GiB/s",
        "write_bandwidth": "2 GiB/s",
        "read_latency": "200 us",
        "write_latency": "200 us",
        "curve": [[0.0, 1.0], [1.0, 2.0]],
        "jitter_sigma": 0.2,
        "usd_per_gb": 1.0,
    }


class Array(Served):
    """An array with two emulated tiers and a volume, and the server of it."""

    def __init__(self, dir, rates):
        super().__init__(dir)
        for tier in ("boot", "a", "b"):
            os.mkdir(os.path.join(dir, tier))
        # Only a server takes any description of a device, and it needs an array and a volume to begin with.
        self.run("tier", "add", "boot", "--dir", os.path.join(dir, "boot"), "--size", "64 MiB")
        self.run("volume", "create", "none", "--size", "1 MiB", "--tier", "boot")
        sock = os.path.join(dir, "t.sock")
        self.uri = f"nbd+unix:///v?socket={sock}"
        args = [TERRACE, "volume", "export", "--listen", f"unix:{sock}"]
        self.server = subprocess.Popen(args, env=self.env, stdout=subprocess.DEVNULL)
        while not os.path.exists(os.path.join(self.array, "control.sock")):
            if self.server.poll() is not None:
                sys.exit("the server ended at once")
            time.sleep(0.05)
        for tier, rate in zip(("a", "b"), rates):
            self.ask(
                {
                    "ask": "add-device",
                    "tier": tier,
                    "source": {"dir": os.path.join(dir, tier)},
                    "size": f"{4 * SIZE_MIB} MiB",
                    "emulate": spec(rate),
                    "direct": "off",
                }
            )
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

    def wait(self, what, done):
        for _ in range(1200):
            if done(self.show()):
                return
            time.sleep(0.1)
        sys.exit(f"{what} takes too long: {self.show()}")

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(20)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--settle", type=int, default=20, help="before what is measured")
    parser.add_argument("--rates", default="12000,9000")
    parser.add_argument("--dir", help="where the tiers' files are, for a while")
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
                    array.wait("the copy", mirrored)
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
