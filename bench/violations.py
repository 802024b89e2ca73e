#!/usr/bin/env python3
"""Time in violation with an SLO-aware cache, another cache, and none. See violations.sh for usage.

Two volumes on one emulated device: `gold`, with an objective, is read at a few hundred reads per second from a working set that the cache could hold; `batch`, without one,
is read evenly over much more than the cache, so that a cache which does not know of objectives keeps its pages beside gold's. Live, a second counts as violated whose mean latency, as fio
measures it, is above the objective. Simulated, the requests that were recorded without a cache are replayed on the same device with the same cache; windows are seconds too.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

from served import TERRACE, Served, group, of_scenario, simulated, spec

POLICIES = ("none", "lru", "priority-lru")
DEVICE = spec(2000)
SIZES = {"gold": 64, "batch": 768}  # MiB
RATES = {"gold": 500, "batch": 1200}
CACHE = "64 MiB"
PAGE = "8 KiB"
OBJECTIVE_MS = 3.0


def cache_table(key, policy, slice_s):
    if policy == "none":
        return ""
    return f'[{key}]\nsize = "{CACHE}"\npage = "{PAGE}"\npolicy = "{policy}"\nslice = "{slice_s}s"\nhour = "{12 * slice_s}s"\n'


class Seen:
    """What guests had in the time that counts, by volume: mean milliseconds of each second, and the share of pages read that were in the cache."""

    def __init__(self, means_ms, hits):
        self.means_ms, self.hits = means_ms, hits

    def kept(self, volume="gold"):
        """Share of seconds in which the objective was kept."""
        means = self.means_ms[volume]
        return sum(ms <= OBJECTIVE_MS for ms in means) / len(means)

    def mean_ms(self, volume="gold"):
        return sum(self.means_ms[volume]) / len(self.means_ms[volume])


class Site(Served):
    """A controller with the array of its host, and the volumes."""

    def __init__(self, dir, policy, slice_s):
        super().__init__(dir, TERRACE_CONTROLLER=f"unix:{dir}/state/controller.sock")
        self.boot()
        with open(os.path.join(dir, "terrace.toml"), "w") as out:
            out.write(
                'strategy = "static"\nwindow = "1s"\n[controller]\nstate = "state"\n'
                '[array]\ndir = "array"\nhost = "local"\nserve = "here"\n'
                + cache_table("array.cache", policy, slice_s)
                + '[[tiers]]\nname = "boot"\npreset = "nvme-tlc"\n[[tiers]]\nname = "ssd"\npreset = "sata-ssd"\n'
                f'[[classes]]\nname = "gold"\nlatency = "{OBJECTIVE_MS}ms"\nstatistic = "mean"\n[[classes]]\nname = "batch"\n'
            )
        self.start("serve", "--config", "terrace.toml", one_worker=True)
        self.wait(os.path.join(self.array, "nbd.sock"))
        self.emulated("ssd", DEVICE, "2 GiB")
        for volume, size in SIZES.items():
            self.run("volume", "create", volume, "--size", f"{size} MiB", "--tier", "ssd", "--class", volume)

    def fio(self, volume, *more):
        uri = f"nbd+unix:///{volume}?socket={self.array}/nbd.sock"
        args = ["fio", f"--name={volume}", "--ioengine=nbd", f"--uri={uri}", "--bs=8k", f"--size={SIZES[volume]}M", "--output-format=json", *more]
        return subprocess.Popen(args, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def pages(self):
        """Pages read that were in the cache and that were not, so far, by volume; none without a cache."""
        caches = {v: self.read("volume", "show", v)["status"].get("cache") for v in SIZES}
        return {v: (c["read_hits"], c["read_misses"]) for v, c in caches.items() if c}

    def load(self, seconds, settle, seed):
        """Lets both guests read for so many seconds; those until it has settled do not count."""
        for volume in SIZES:
            written = self.fio(volume, "--rw=write", "--bs=1M")
            out, _ = written.communicate()
            if written.returncode != 0:
                sys.exit(out)
        timed = ["--rw=randread", "--time_based", f"--runtime={seconds}", "--norandommap", "--iodepth=16", "--log_avg_msec=1000", f"--randseed={seed}"]
        recorders = [
            subprocess.Popen([TERRACE, "trace", "record", v, "--out", os.path.join(self.dir, f"{v}.trc")], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for v in SIZES
        ]
        time.sleep(1)
        jobs = [
            self.fio("gold", *timed, f"--rate_iops={RATES['gold']}", "--random_distribution=zipf:0.6", "--write_lat_log=gold"),
            self.fio("batch", *timed, f"--rate_iops={RATES['batch']}", "--write_lat_log=batch"),
        ]
        time.sleep(settle)
        before = self.pages()
        for job in jobs:
            out, _ = job.communicate()
            if job.returncode != 0:
                sys.exit(out)
        after = self.pages()
        for recorder in recorders:
            recorder.send_signal(signal.SIGINT)
            recorder.wait(20)
        hits = {}
        for volume, (found_before, missed_before) in before.items():
            found_then, missed = after[volume][0] - found_before, after[volume][1] - missed_before
            hits[volume] = found_then / (found_then + missed)
        return Seen({v: self.means_ms(v)[settle:] for v in SIZES}, hits)

    def means_ms(self, volume):
        with open(os.path.join(self.dir, f"{volume}_clat.1.log")) as log:
            return [int(line.split(",")[1]) / 1e6 for line in log]


class Replayed:
    """The same of what was recorded, replayed."""

    def __init__(self, dir, policy, slice_s, settle_s):
        with open(os.path.join(dir, f"{policy}.toml"), "w") as out:
            out.write(
                f'window = "1s"\nwarmup = "{settle_s}s"\n[[tiers]]\nname = "ssd"\n{of_scenario(DEVICE)}'
                f'[[classes]]\nname = "gold"\nlatency = "{OBJECTIVE_MS}ms"\nstatistic = "mean"\n[[classes]]\nname = "batch"\n'
                + "".join(f'[[volumes]]\nname = "{v}"\nsize = "{s} MiB"\nclass = "{v}"\n' for v, s in SIZES.items())
                + "".join(f'[[traces]]\nfile = "{v}.trc"\nreplay = "open"\n' for v in SIZES)
                + cache_table("cache", policy, slice_s)
            )
        self.run = simulated(dir, f"{policy}.toml", "--strategy", "noop")
        volumes = self.run["cache"]["volumes"] if self.run.get("cache") else []
        self.hits = {v["name"]: v["read_hit_ratio"] for v in volumes}

    def kept(self, volume="gold"):
        return 1 - group(self.run, "volume", volume)["slo_violation_s"] / self.run["counted_s"]

    def mean_ms(self, volume="gold"):
        return group(self.run, "volume", volume)["reads"]["mean_us"] / 1e3


def policies(seconds, settle, slice_s, seed=1):
    """What each policy comes to, as it is known: its name, live, replayed. What is replayed was recorded without a cache."""
    replayed = {}
    for policy in POLICIES:
        with tempfile.TemporaryDirectory() as dir:
            site = Site(dir, policy, slice_s)
            try:
                live = site.load(seconds, settle, seed)
            finally:
                site.stop()
            if policy == "none":
                replayed = {each: Replayed(dir, each, slice_s, settle) for each in POLICIES}
        yield policy, live, replayed[policy]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--settle", type=int, default=30, help="seconds at the start that are not counted, live and simulated")
    parser.add_argument("--slice", type=int, default=5, help="length of a slice of Priority-LRU in seconds; 300 in the paper")
    options = parser.parse_args()
    for policy, live, replayed in policies(options.seconds, options.settle, options.slice):
        parts = [f"{how} {100 * what.kept():5.1f} % of seconds kept, mean {what.mean_ms():.2f} ms" for how, what in (("live", live), ("simulated", replayed))]
        print(f"{policy:<14}" + "; ".join(parts), flush=True)


if __name__ == "__main__":
    main()
