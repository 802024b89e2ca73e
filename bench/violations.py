#!/usr/bin/env python3
"""Time in violation under a cache that knows objectives, one that does not, and none. See violations.sh for usage.

Two volumes on one emulated device: `gold`, with an objective, is read at a few hundred reads per second from a working set that the cache could hold; `batch`, without one,
is read evenly over much more than the cache, so that a cache which does not know of objectives keeps its pages beside gold's. Live, a second counts as violated whose mean latency, as fio
measures it, is above the objective. Simulated, the requests that were recorded without a cache are replayed on the same device with the same cache; windows are seconds too.
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

POLICIES = ("none", "lru", "priority-lru")
DEVICE = {
    "model": "2000 reads/s",
    "capacity": "4 GiB",
    "read_iops": 2000,
    "write_iops": 2000,
    "read_bandwidth": "1 GiB/s",
    "write_bandwidth": "1 GiB/s",
    "read_latency": "2 ms",
    "write_latency": "2 ms",
    "curve": [[0.0, 1.0], [1.0, 2.0]],
    "jitter_sigma": 0.2,
    "usd_per_gb": 1.0,
}
SIZES = {"gold": 64, "batch": 768}  # MiB
RATES = {"gold": 500, "batch": 1200}
CACHE = "64 MiB"
PAGE = "8 KiB"
OBJECTIVE_MS = 3.0


def cache_table(key, policy, slice_s):
    if policy == "none":
        return ""
    return f'[{key}]\nsize = "{CACHE}"\npage = "{PAGE}"\npolicy = "{policy}"\nslice = "{slice_s}s"\nhour = "{12 * slice_s}s"\n'


class Site(Served):
    """A controller with the array of its host, and the volumes."""

    def __init__(self, dir, policy, slice_s):
        super().__init__(dir, TERRACE_CONTROLLER=f"unix:{dir}/state/controller.sock")
        self.dir = dir
        for tier in ("boot", "ssd"):
            os.mkdir(os.path.join(dir, tier))
        self.run("tier", "add", "boot", "--dir", os.path.join(dir, "boot"), "--size", "64 MiB")
        with open(os.path.join(dir, "terrace.toml"), "w") as out:
            out.write(
                'strategy = "static"\nwindow = "1s"\n[controller]\nstate = "state"\n'
                '[array]\ndir = "array"\nhost = "local"\nserve = "here"\n'
                + cache_table("array.cache", policy, slice_s)
                + '[[tiers]]\nname = "boot"\npreset = "nvme-tlc"\n[[tiers]]\nname = "ssd"\npreset = "sata-ssd"\n'
                f'[[classes]]\nname = "gold"\nlatency = "{OBJECTIVE_MS}ms"\nstatistic = "mean"\n[[classes]]\nname = "batch"\n'
            )
        self.log = open(os.path.join(dir, "server.log"), "w")
        # One worker, so that the volumes share one cache.
        args = ["taskset", "-c", "0", TERRACE, "serve", "--config", os.path.join(dir, "terrace.toml")]
        self.server = subprocess.Popen(args, env=self.env, stdout=self.log, stderr=self.log)
        self.wait(lambda: os.path.exists(os.path.join(self.array, "nbd.sock")), "the server")
        self.ask({"ask": "add-device", "tier": "ssd", "source": {"dir": os.path.join(dir, "ssd")}, "size": "2 GiB", "emulate": DEVICE, "direct": "off"})
        for volume, size in SIZES.items():
            self.run("volume", "create", volume, "--size", f"{size} MiB", "--tier", "ssd", "--class", volume)

    def wait(self, there, what):
        for _ in range(600):
            if there():
                return
            if self.server.poll() is not None:
                sys.exit(f"{what}: {open(self.log.name).read()}")
            time.sleep(0.05)
        sys.exit(f"{what} takes too long")

    def fio(self, volume, *more):
        uri = f"nbd+unix:///{volume}?socket={self.array}/nbd.sock"
        args = ["fio", f"--name={volume}", "--ioengine=nbd", f"--uri={uri}", "--bs=8k", f"--size={SIZES[volume]}M", "--output-format=json", *more]
        return subprocess.Popen(args, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def load(self, seconds):
        """What each second's mean latency of gold was, in milliseconds."""
        for volume in SIZES:
            written = self.fio(volume, "--rw=write", "--bs=1M")
            out, _ = written.communicate()
            if written.returncode != 0:
                sys.exit(out)
        timed = ["--rw=randread", "--time_based", f"--runtime={seconds}", "--norandommap", "--iodepth=16"]
        recorders = [
            subprocess.Popen([TERRACE, "trace", "record", v, "--out", os.path.join(self.dir, f"{v}.trc")], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for v in SIZES
        ]
        time.sleep(1)
        jobs = [
            self.fio("gold", *timed, f"--rate_iops={RATES['gold']}", "--random_distribution=zipf:0.6", "--write_lat_log=gold", "--log_avg_msec=1000"),
            self.fio("batch", *timed, f"--rate_iops={RATES['batch']}"),
        ]
        for job in jobs:
            out, _ = job.communicate()
            if job.returncode != 0:
                sys.exit(out)
        for recorder in recorders:
            recorder.send_signal(signal.SIGINT)
            recorder.wait(20)
        with open(os.path.join(self.dir, "gold_clat.1.log")) as log:
            return [int(line.split(",")[1]) / 1e6 for line in log]

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(30)


def found(node, key):
    """The first object in a document that has this key."""
    if isinstance(node, dict) and key in node:
        return node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return next((f for f in (found(child, key) for child in children) if f), None)


def simulated(dir, policy, slice_s, settle_s):
    """Share of gold's windows that miss its objective, with what was recorded replayed."""
    device = "\n".join(f"{k} = {json.dumps(f'{v} IOPS' if k.endswith('_iops') else v)}" for k, v in DEVICE.items() if k not in ("model", "usd_per_gb"))
    with open(os.path.join(dir, f"{policy}.toml"), "w") as out:
        out.write(
            f'window = "1s"\nwarmup = "{settle_s}s"\n[[tiers]]\nname = "ssd"\npreset = "sata-ssd"\n{device}\n'
            f'[[classes]]\nname = "gold"\nlatency = "{OBJECTIVE_MS}ms"\nstatistic = "mean"\n[[classes]]\nname = "batch"\n'
            + "".join(f'[[volumes]]\nname = "{v}"\nsize = "{s} MiB"\nclass = "{v}"\n' for v, s in SIZES.items())
            + "".join(f'[[traces]]\nfile = "{v}.trc"\nreplay = "open"\n' for v in SIZES)
            + cache_table("cache", policy, slice_s)
        )
    args = [TERRACE, "sim", "run", f"{policy}.toml", "--strategy", "noop", "--out", "out-" + policy, "-o", "json"]
    done = subprocess.run(args, cwd=dir, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    result = found(json.loads(done.stdout), "groups")
    gold = next(g for g in result["groups"] if (g["kind"], g["name"]) == ("volume", "gold"))
    return 100 * gold["slo_violation_s"] / result["counted_s"], gold["reads"]["mean_us"] / 1e3



def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--settle", type=int, default=30, help="seconds at the beginning that do not count, live and simulated")
    parser.add_argument("--slice", type=int, default=5, help="seconds of a slice of Priority-LRU; 300 in the paper")
    options = parser.parse_args()
    live, sims = {}, {}
    for policy in POLICIES:
        with tempfile.TemporaryDirectory() as dir:
            site = Site(dir, policy, options.slice)
            try:
                seconds = site.load(options.seconds)
            finally:
                site.stop()
            counted = seconds[options.settle:]
            live[policy] = (100 * sum(ms > OBJECTIVE_MS for ms in counted) / len(counted), sum(counted) / len(counted))
            if policy == "none":
                for each in POLICIES:
                    sims[each] = simulated(dir, each, options.slice, options.settle)
        parts = [f"{how} {100 - share:5.1f} % of seconds kept, mean {mean:.2f} ms" for how, (share, mean) in (("live", live[policy]), ("simulated", sims[policy]))]
        print(f"{policy:<14}" + "; ".join(parts), flush=True)


if __name__ == "__main__":
    main()
