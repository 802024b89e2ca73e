#!/usr/bin/env python3
"""Compares the remedies of live hosts and of the simulator for the same violation. See remedies.sh for usage.

usage: remedies.py RUNS SETUP
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from served import TERRACE, Served, ended, fill, fio, simulated, told

HERE = Path(__file__).parent / "remedies"
WITHIN_S = 60
S = 1e9

# As in the scenarios of remedies/.
LIVE = """
strategy = "noop"
window = "1s"
[array]
dir = "array"
[[classes]]
name = "gold"
statistic = "mean"
%s
[response.workflow]
detect = { samples = 6, violating_min = 5, clear_below = 0.3 }
release = { samples = 5, cooldown = "30s" }
settle = "5s"
look_again = "5s"
patience = 0.01
"""
CACHE = """latency = "4ms"
[array.cache]
size = "2 MiB"
page = "4 KiB"
[response]
modes = { throttle = "off", memory-share = "auto" }
"""
MIRROR = """latency = "25ms"
[response]
modes = { throttle = "off", mirror = "auto" }
"""
MOVE = """latency = "50ms"
[response]
modes = { throttle = "off", move = "auto" }
"""
APPLIANCE = """latency = "25ms"
[array.cache]
size = "1 MiB"
page = "4 KiB"
[response]
modes = { throttle = "off", memory-share = "off", appliance = "auto" }
[[response.nodes]]
name = "other"
uri = "nbd+unix:///?socket=%s/node.sock"
memory = "32 MiB"
"""
QUIET_S, LOUD_S = 10, 50


def expected(setup, seed):
    """What the simulator takes first."""
    taken = [a for a in simulated(HERE, f"{setup}.toml", "--seed", str(seed))["response"]["remedies"] if a["remedy"]]
    return taken[0]["remedy"] if taken else None


def disk(seed):
    """Answers of the demonstration, oldest first."""
    return json.loads(told("demo", "--violation", "--seconds", "60", "--seed", str(seed), "-o", "json"))["responses"]


class Host(Served):
    """A served array with emulated disks, and its volumes, which are filled. On one processor there is one worker, and so one cache."""

    def __init__(self, dir, config, tiers, volumes):
        super().__init__(dir, TERRACE_CONTROLLER=f"unix:{dir}/terrace-state/controller.sock")
        self.sock = os.path.join(self.array, "nbd.sock")
        for tier in tiers:
            os.mkdir(os.path.join(dir, tier))
            self.run("tier", "add", tier, "--dir", os.path.join(dir, tier), "--size", "256 MiB", "--emulate", "disk-15k")
        for volume, mib, more in volumes:
            self.run("volume", "create", volume, "--size", f"{mib} MiB", "--tier", tiers[0], *more)
        Path(dir, "live.toml").write_text(LIVE % config.replace("%s", dir))
        self.start("serve", "--config", "live.toml", one_worker=True)
        self.wait(self.sock)
        for volume, mib, _ in volumes:
            fill(dir, self.sock, volume, mib)

    def reads(self, volume, seed, mib, *more):
        return fio(self.dir, self.sock, volume, "--rw=randread", "--bs=4k", f"--size={mib}M", f"--randseed={seed}", *more)

    def answers(self, volume):
        """Answers to its broken objective, oldest first."""
        return list(reversed(self.read("why", volume)["responses"]))


@contextlib.contextmanager
def host(*what):
    with tempfile.TemporaryDirectory(prefix="terrace-answers-") as dir:
        host = Host(dir, *what)
        try:
            yield host
        finally:
            host.stop()


@contextlib.contextmanager
def node(dir, memory):
    """Memory that is lent, at a socket in the directory."""
    args = [TERRACE, "cache-node", "--memory", memory, "--listen", "unix:node.sock"]
    lent = subprocess.Popen(args, cwd=dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        lent.terminate()
        lent.wait(30)


def timed(seconds):
    return "--time_based", f"--runtime={seconds}"


def cache(seed):
    """A neighbour in the same cache."""
    with host(CACHE, ["disks"], [("orders", 1, ("--class", "gold")), ("batch", 24, ())]) as h:
        # So many reads that how they come again is known.
        ended(h.reads("orders", seed, 1, "--io_size=40M"))
        orders = h.reads("orders", seed, 1, *timed(QUIET_S + LOUD_S), "--thinktime=20ms")
        time.sleep(QUIET_S)
        batch = h.reads("batch", seed, 24, *timed(LOUD_S), "--thinktime=3ms")
        for guest in (orders, batch):
            ended(guest)
        return h.answers("orders")


def mirror(seed):
    """A volume that reads more than its disk can, beside an idle one. What fio is late with it asks for as fast as it may afterwards: six at a time are too many for
    one disk within the objective, and not for two."""
    with host(MIRROR, ["one", "two"], [("catalog", 24, ("--class", "gold"))]) as h:
        for seconds, rate in ((QUIET_S, 60), (2 * LOUD_S, 185)):
            ended(h.reads("catalog", seed, 24, *timed(seconds), "--iodepth=6", f"--rate_iops={rate}"))
        return h.answers("catalog")


def move(seed):
    """A neighbour that takes all of a disk, beside an idle one."""
    with host(MOVE, ["one", "two"], [("orders", 24, ("--class", "gold")), ("batch", 24, ())]) as h:
        orders = h.reads("orders", seed, 24, *timed(QUIET_S + 2 * LOUD_S), "--thinktime=20ms")
        time.sleep(QUIET_S)
        batch = h.reads("batch", seed, 24, *timed(2 * LOUD_S), "--iodepth=16")
        for guest in (orders, batch):
            ended(guest)
        return h.answers("orders")


def appliance(seed):
    """A volume that reads more than its disk can, out of few pages, and memory that a node lends."""
    with host(APPLIANCE, ["one"], [("catalog", 24, ("--class", "gold"))]) as h, node(h.dir, "32 MiB"):
        for seconds, rate in ((60, 100), (80, 250)):
            ended(h.reads("catalog", seed, 24, *timed(seconds), "--iodepth=8", f"--rate_iops={rate}"))
        return h.answers("catalog")


def main():
    runs, setup = int(sys.argv[1]), sys.argv[2]
    live = {"disk": disk, "cache": cache, "mirror": mirror, "move": move, "appliance": appliance}[setup]
    print(f"{setup}: remedy for the first violation, and time from its detection to the end of its last violated window")
    print(f"{'run':>5}  {'live':<14}{'met after, s':>14}  {'simulated':<14}")
    both = 0
    for seed in range(1, runs + 1):
        wanted = expected(setup, seed)
        taken = [r for r in live(seed) if r["state"] in ("in-force", "taken-back", "done")]
        first = taken[0] if taken else None
        remedy = first["remedy"] if first else None
        held = None
        if first and first.get("recovered_ns"):
            held = (first["violated_last_ns"] - first["found_ns"]) / S
        said = "never" if held is None else f"{held:.1f}"
        print(f"{seed:5}  {remedy or 'none':<14}{said:>14}  {wanted or 'none':<14}", flush=True)
        both += held is not None and held <= WITHIN_S and remedy == wanted
    print(f"\nsame remedy as the simulator, and objective met within {WITHIN_S} s: {both} of {runs} runs")
    return int(both < runs)


if __name__ == "__main__":
    sys.exit(main())
