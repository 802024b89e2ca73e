#!/usr/bin/env python3
"""Published claims, repeated live in small. See claims.sh for usage, and docs/reproduce/live.md for what stands in for what.

A stage is one live setup and what the simulator does with the same; it gives values by the names of measures. A measure belongs to a claim of
docs/results/reproductions/PAPER.json, from where everything comes that is printed as published or as found at full size.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

import violations
from served import TERRACE, Served, ended, fill, fio, found, group, of_scenario, simulated, spec

RESULTS = Path(__file__).parent.parent / "docs/results/reproductions"
S = 1e9
LIVE, SIMULATED = "live", "simulated"


def by_second(dir, log):
    """A log of fio's, second by second."""
    with open(os.path.join(dir, log)) as lines:
        return [float(line.split(",")[1]) for line in lines]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


# Paper 2: two volumes, one with an objective, behind a cache that is too small for both (violations.py).

# Long enough to show the effect, and not for hit ratios to settle: extents' statistics begin with the writes of the fill, and forget them after an hour, which is twelve slices.
CLASSES_S, CLASSES_SETTLE_S, CLASSES_SLICE_S = 40, 15, 5


def classes(seed):
    seen = {LIVE: {}, SIMULATED: {}}
    for policy, live, replayed in violations.policies(CLASSES_S, CLASSES_SETTLE_S, CLASSES_SLICE_S, seed):
        seen[LIVE][policy], seen[SIMULATED][policy] = live, replayed
    values = {}
    for world, policies in seen.items():
        lru, priority = policies["lru"], policies["priority-lru"]
        rates = violations.RATES
        all_of = lambda p: sum(rates[v] * p.mean_ms(v) for v in rates) / sum(rates.values())
        gain = lambda of: 100 * (1 - of(priority) / of(lru))
        values[world] = {
            "gold-gain": gain(lambda p: p.mean_ms("gold")),
            "batch-gain": gain(lambda p: p.mean_ms("batch")),
            "total-gain": gain(all_of),
            "gold-hits-more": 100 * (priority.hits["gold"] - lru.hits["gold"]),
            "hits-lru": 100 * lru.hits["gold"],
            "hits-priority": 100 * priority.hits["gold"],
        }
        for policy, p in policies.items():
            values[world][f"kept-{policy}"] = 100 * p.kept()
            values[world][f"mean-{policy}"] = p.mean_ms()
    return values


# Paper 3, the workflow: a short spike and a long peak of a neighbour on the same disk, beside one who does no harm.

SPIKE_S, PEAK_S, CALM_S, AFTER_S = 3, 22, 8, 5
PEAK_FROM_S = CALM_S + SPIKE_S + CALM_S
WORKFLOW_S = PEAK_FROM_S + PEAK_S + AFTER_S
WORKFLOW_MIB = 24
WORKFLOW_MS = 50.0
SETTLES_S = 2
# As in remedies/disk.toml.
WORKFLOW = f"""
strategy = "noop"
window = "1s"
[[classes]]
name = "gold"
latency = "{WORKFLOW_MS:.0f}ms"
statistic = "mean"
[response.workflow]
detect = {{ samples = 6, violating_min = 5, clear_below = 0.3 }}
release = {{ samples = 5, cooldown = "30s" }}
settle = "5s"
look_again = "5s"
patience = 0.1
"""
# Volume, class, outstanding, think time in milliseconds.
WORKLOADS = (("orders", "gold", 1, 20), ("batch", None, 16, 0), ("system", None, 1, 200))


def workflow_values(answers, ms):
    """Of answers as (seconds, to whom), and of the mean latency of `orders` by second."""
    in_peak = [a for a in answers if a[0] >= PEAK_FROM_S]
    value = {
        "spike-answers": len(answers) - len(in_peak),
        "order-after": in_peak[0][0] - PEAK_FROM_S if in_peak else float("nan"),
        "named": float(bool(in_peak) and all(to == "batch" for _, to in in_peak)),
        "ms-calm": mean(ms[1:CALM_S]),
        "ms-before": float("nan"),
        "ms-after": float("nan"),
        "kept-after": 0.0,
    }
    if in_peak:
        order, end = int(in_peak[0][0]), PEAK_FROM_S + PEAK_S
        held = ms[order + SETTLES_S:end]
        value["ms-before"] = mean(ms[PEAK_FROM_S + 1:order])
        value["ms-after"] = mean(held)
        value["kept-after"] = 100 * mean(m <= WORKFLOW_MS for m in held)
    return value


def workflow_live(dir, seed):
    site = Served(dir, TERRACE_CONTROLLER=f"unix:{dir}/terrace-state/controller.sock")
    os.mkdir(os.path.join(dir, "disks"))
    site.run("tier", "add", "disks", "--dir", os.path.join(dir, "disks"), "--size", "128 MiB", "--emulate", "disk-15k")
    for volume, name, *_ in WORKLOADS:
        site.run("volume", "create", volume, "--size", f"{WORKFLOW_MIB} MiB", "--tier", "disks", *(["--class", name] if name else []))
    Path(dir, "live.toml").write_text(WORKFLOW + '[response.modes]\nthrottle = "auto"\n[array]\ndir = "array"\n')
    site.start("serve", "--config", "live.toml")
    sock = os.path.join(site.array, "nbd.sock")
    site.wait(sock)
    for volume, *_ in WORKLOADS:
        fill(dir, sock, volume, WORKFLOW_MIB)

    def reads(volume, seconds, *more):
        _, _, outstanding, think_ms = next(w for w in WORKLOADS if w[0] == volume)
        timed = ["--time_based", f"--runtime={seconds}", f"--iodepth={outstanding}", f"--thinktime={think_ms}ms", f"--randseed={seed}"]
        return fio(dir, sock, volume, "--rw=randread", "--bs=4k", f"--size={WORKFLOW_MIB}M", *timed, *more)

    began, began_ns = time.monotonic(), found(site.read("status"), "at_ns")["at_ns"]
    until = lambda s: time.sleep(max(0, began + s - time.monotonic()))
    guests = [reads("orders", WORKFLOW_S, "--write_lat_log=orders", "--log_avg_msec=1000"), reads("system", WORKFLOW_S)]
    until(CALM_S)
    guests.append(reads("batch", SPIKE_S))
    until(PEAK_FROM_S)
    guests.append(reads("batch", PEAK_S))
    for guest in guests:
        ended(guest)
    responses = site.read("why", "orders")["responses"]
    site.stop()
    taken = [r for r in reversed(responses) if r["state"] in ("in-force", "taken-back")]
    ms = [ns / 1e6 for ns in by_second(dir, "orders_clat.1.log")]
    return workflow_values([((r["at_ns"] - began_ns) / S, r["to"]) for r in taken], ms)


def workflow_simulated(dir, seed):
    text = f'seed = {seed}\nduration = "{WORKFLOW_S}s"\n{WORKFLOW}[response]\nremedies = ["throttle"]\n[[tiers]]\nname = "disks"\npreset = "disk-15k"\ncapacity = "128 MiB"\n'
    for volume, name, outstanding, think_ms in WORKLOADS:
        text += f'[[volumes]]\nname = "{volume}"\nsize = "{WORKFLOW_MIB} MiB"\ntier = "disks"\n' + (f'class = "{name}"\n' if name else "")
        think = f', think = "{think_ms}ms"' if think_ms else ""
        text += f'[[clients]]\nvolume = "{volume}"\nhabits = {{ outstanding = {outstanding}{think}, read_share = 1.0, random_share = 1.0, sizes = [{{ size = "4 KiB", share = 1.0 }}] }}\n'
        if volume == "batch":
            phases = ((CALM_S, True), (SPIKE_S, False), (CALM_S, True), (PEAK_S, False), (AFTER_S, True))
            text += "phases = [" + ", ".join(f'{{ duration = "{s}s"{", idle = true" if idle else ""} }}' for s, idle in phases) + "]\n"
    text += f'[policy]\nmonitor_epoch = "1s"\nmigration_epoch = "{WORKFLOW_S}s"\n'
    Path(dir, "workflow.toml").write_text(text)
    run = simulated(dir, "workflow.toml", "--full")
    orders = next(g for g in run["series"]["groups"] if (g["kind"], g["name"]) == ("volume", "orders"))
    ms = [us / 1e3 for us in orders["reads"]["mean_us"]]
    return workflow_values([(a["at_s"], a["to"]) for a in run["response"]["remedies"] if a["remedy"]], ms)


def workflow(seed):
    with tempfile.TemporaryDirectory(prefix="terrace-claims-") as live, tempfile.TemporaryDirectory() as dir:
        return {LIVE: workflow_live(live, seed), SIMULATED: workflow_simulated(dir, seed)}


# Paper 3, the appliance: a volume whose data is on another host's disks, which a random reader keeps busy, and a cache node beside it. The paper's rates by four.

# Bandwidth and outstanding requests were chosen, by the simulator, so that each has what it is promised alone, and beside each other both have about what the paper says.
DISKS = spec(1280, read_bandwidth="60 MiB/s")
PROMISED = {"usr1": 450, "fio": 1250}
ASKED = {"usr1": 470, "fio": 1250}
OUTSTANDING = {"usr1": 8, "fio": 16}
MIBS = {"usr1": 64, "fio": 512}
READ_KIB = {"usr1": 64, "fio": 4}
PAGE_KIB = 64
NODE_MIB = 96
ALONE_S, BESIDE_S, CACHED_S, LAST_S, RAMP_S = 5, 10, 24, 8, 2
# A promised rate counts as missed below this share of it, as in a scenario.
ENOUGH = 0.95


def appliance_values(alone, rates, answered):
    """Of rates alone, of rates by second with the cache from second BESIDE_S on, and of the share of reads that it answered at the end."""
    share = {v: [r / PROMISED[v] for r in rates[v]] for v in rates}
    before = {v: mean(share[v][RAMP_S:BESIDE_S]) for v in share}
    # Guests end at slightly different times: the last second may not be whole.
    whole = min(len(s) for s in share.values()) - 1
    after = {v: mean(share[v][whole - LAST_S:whole]) for v in share}
    short = [s for s in range(BESIDE_S, whole) if any(share[v][s] < ENOUGH for v in share)]
    return {
        "usr1-alone": alone["usr1"] / PROMISED["usr1"],
        "fio-alone": alone["fio"] / PROMISED["fio"],
        "usr1-beside": before["usr1"],
        "fio-beside": before["fio"],
        "usr1-cached": after["usr1"],
        "fio-cached": after["fio"],
        "effective": float(short[-1] + 1 - BESIDE_S if short else 0),
        "answered": 100 * answered,
    }


def appliance_live(dir, seed):
    far, near = (os.path.join(dir, d) for d in ("far", "near"))
    os.mkdir(far)
    os.mkdir(near)
    back = Served(far)
    back.boot()
    back.run("volume", "create", "none", "--size", "1 MiB", "--tier", "boot")
    far_sock, near_sock, node_sock = (os.path.join(dir, f"{s}.sock") for s in ("far", "near", "node"))
    back.start("volume", "export", "--listen", f"unix:{far_sock}")
    back.emulated("disks", DISKS, "2 GiB")
    back.run("volume", "create", "usr1", "--size", f"{2 * MIBS['usr1']} MiB", "--tier", "disks")
    back.run("volume", "create", "fio", "--size", f"{MIBS['fio']} MiB", "--tier", "disks")
    host = Served(near)
    host.run("tier", "add", "remote", "--nbd", f"nbd+unix:///usr1?socket={far_sock}")
    host.run("volume", "create", "usr1", "--size", f"{MIBS['usr1']} MiB", "--tier", "remote")
    # As little of a first level as there can be: what it answers is the node's.
    host.start("volume", "export", "--listen", f"unix:{near_sock}", "--cache", "1 MiB", "--cache-page", f"{PAGE_KIB} KiB", one_worker=True)
    host.wait(near_sock)
    node = subprocess.Popen([TERRACE, "cache-node", "--memory", f"{NODE_MIB} MiB", "--listen", f"unix:{node_sock}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    socks = {"usr1": near_sock, "fio": far_sock}

    def reads(volume, seconds, *more):
        timed = ["--time_based", f"--runtime={seconds}", f"--iodepth={OUTSTANDING[volume]}", f"--rate_iops={ASKED[volume]}", f"--randseed={seed}"]
        return fio(dir, socks[volume], volume, "--rw=randread", f"--bs={READ_KIB[volume]}k", f"--size={MIBS[volume]}M", *timed, *more)

    try:
        alone = {}
        for volume, mib in MIBS.items():
            fill(dir, socks[volume], volume, mib)
        for volume in MIBS:
            alone[volume] = ended(reads(volume, ALONE_S, f"--ramp_time={RAMP_S}"))["read"]["iops"]
        began = time.monotonic()
        until = lambda s: time.sleep(max(0, began + s - time.monotonic()))
        whole_s = BESIDE_S + CACHED_S
        guests = [reads(v, whole_s, f"--write_iops_log={v}", "--log_avg_msec=1000") for v in MIBS]
        until(BESIDE_S)
        host.run("array", "cache", "--second", f"nbd+unix:///?socket={node_sock}")
        until(whole_s - LAST_S)
        asked = lambda: (host.read("volume", "show", "usr1"), back.read("volume", "show", "usr1"))
        counts = [read_bytes(v) for v in asked()]
        for guest in guests:
            ended(guest)
        then = [read_bytes(v) for v in asked()]
        of_guest, of_back = (b - a for a, b in zip(counts, then))
        level = host.read("array", "cache")
        if "size" not in level or level.get("ended"):
            sys.exit(f"the L2 cache was removed: {level}")
        rates = {v: by_second(dir, f"{v}_iops.1.log") for v in MIBS}
        return appliance_values(alone, rates, 1 - of_back / of_guest)
    finally:
        host.stop()
        node.send_signal(signal.SIGTERM)
        node.wait(20)
        back.stop()


def read_bytes(shown):
    """What was read of a volume so far."""
    directions = shown["status"]["measured"]["directions"]
    return next(d["bytes"] for d in directions if d["name"] == "read")


def appliance_simulated(dir, seed):
    def run(name, who, cached, seconds, warmup):
        text = f'seed = {seed}\nduration = "{seconds}s"\nwarmup = "{warmup}s"\nwindow = "1s"\nstrategy = "noop"\n[[tiers]]\nname = "disks"\n{of_scenario(DISKS)}'
        for volume in who:
            text += f'[[volumes]]\nname = "{volume}"\nsize = "{MIBS[volume]} MiB"\n'
            habits = f'outstanding = {OUTSTANDING[volume]}, rate = "{ASKED[volume]} IOPS", read_share = 1.0, random_share = 1.0, sizes = [{{ size = "{READ_KIB[volume]} KiB", share = 1.0 }}]'
            text += f'[[clients]]\nvolume = "{volume}"\nhabits = {{ {habits} }}\n'
        if cached:
            text += f'[cache]\nsize = "{NODE_MIB} MiB"\npage = "{PAGE_KIB} KiB"\nparts = [{{ volume = "fio", share = 0 }}]\n'
        Path(dir, f"{name}.toml").write_text(text)
        return simulated(dir, f"{name}.toml", "--full")

    def iops(run, volume):
        return next(g for g in run["series"]["groups"] if (g["kind"], g["name"]) == ("volume", volume))["reads"]["iops"]

    alone = {v: group(run(f"{v}-alone", [v], False, ALONE_S + RAMP_S, RAMP_S), "volume", v)["reads"]["iops"] for v in MIBS}
    beside, cached = run("beside", MIBS, False, BESIDE_S, 0), run("cached", MIBS, True, CACHED_S, 0)
    # As if the last of live seconds, which may not be whole.
    rates = {v: iops(beside, v) + iops(cached, v) + [0.0] for v in MIBS}
    late = run("late", MIBS, True, CACHED_S, CACHED_S - LAST_S)
    hits = next(v["read_hit_ratio"] for v in late["cache"]["volumes"] if v["name"] == "usr1")
    return appliance_values(alone, rates, hits)


def appliance(seed):
    with tempfile.TemporaryDirectory(prefix="terrace-claims-") as live, tempfile.TemporaryDirectory() as dir:
        return {LIVE: appliance_live(live, seed), SIMULATED: appliance_simulated(dir, seed)}


# Paper 0: six volumes that begin on the wrong of three tiers, under three strategies.

STRATEGIES = ("autotiering", "idt", "edt")
# Latency keeps guests back, not the limits: a live move yields to guests of a device that is full, and would not end in time.
TIERS = {
    "fast": (spec(2500, "4 ms", usd_per_gb=2.0), 48),
    "middle": (spec(1250, "8 ms", usd_per_gb=1.0), 80),
    "slow": (spec(600, "20 ms", usd_per_gb=0.4), 256),
}
VOLUME_MIB = 16
# Volume, where it begins, outstanding, percent of reads, KiB, requests per second at most.
LOADS = (
    ("db", "slow", 4, 70, 4, None),
    ("web", "slow", 4, 100, 4, None),
    ("mail", "middle", 2, 50, 4, None),
    ("log", "middle", 1, 0, 4, 50),
    ("scan", "fast", 1, 100, 64, 20),
    ("archive", "fast", 1, 100, 4, 10),
)
SETTLED_S, COUNTED_S = 28, 20
POLICY = """[policy]
monitor_epoch = "2s"
migration_epoch = "12s"
hold = 1
cooldown = "0s"
margin = 0.0
copy_bandwidth = "64 MiB/s"
copy_share = 1.0
concurrent_moves_per_device = 2
"""
# As in `terrace demo`.
AUTOTIERING = """[strategies.autotiering]
weight_space = 0.2
weight_migration = 0.05
[strategies.autotiering.calibration]
levels = 3
windows = 3
window = "500ms"
min_ios = 20
min_ios_low_rate = 8
window_max = "1500ms"
inject_max = "2ms"
"""


@dataclass
class Placed:
    """What came of one strategy: requests per second, MiB and volumes that were moved."""

    iops: float
    mib: float
    volumes: int


class PlacementSite(Served):
    def __init__(self, dir, strategy, seed):
        super().__init__(dir, TERRACE_CONTROLLER=f"unix:{dir}/state/controller.sock")
        self.seed = seed
        self.boot()
        text = f'strategy = "{strategy}"\nseed = {seed}\nwindow = "1s"\n[controller]\nstate = "state"\n[array]\ndir = "array"\n'
        text += "".join(f'[[tiers]]\nname = "{t}"\n{of_scenario(device)}' for t, (device, _) in TIERS.items())
        text += '[[tiers]]\nname = "boot"\npreset = "disk-7k2"\n' + POLICY + 'cordon = ["boot"]\n[modes]\nlatency = "auto"\n[response.modes]\nthrottle = "off"\n'
        text += "[watch]\ncalibration_budget = 0.5\nprediction_outcomes_min = 10\nprediction_error_max = 1.0\n" + AUTOTIERING
        Path(dir, "live.toml").write_text(text)
        self.start("serve", "--config", "live.toml")
        self.sock = os.path.join(self.array, "nbd.sock")
        self.wait(self.sock)
        for tier, (device, mib) in TIERS.items():
            self.emulated(tier, device, f"{mib} MiB")
        for volume, tier, *_ in LOADS:
            self.run("volume", "create", volume, "--size", f"{VOLUME_MIB} MiB", "--tier", tier)
        for volume, *_ in LOADS:
            fill(dir, self.sock, volume, VOLUME_MIB)

    def load(self):
        """Guests of all volumes."""
        guests = []
        for volume, _, outstanding, reads, kib, rate in LOADS:
            how = ["--rw=randrw", f"--rwmixread={reads}", f"--bs={kib}k", f"--iodepth={outstanding}", f"--size={VOLUME_MIB}M", f"--randseed={self.seed}"]
            how += ["--time_based", f"--runtime={COUNTED_S}", f"--ramp_time={SETTLED_S}"]
            if rate:
                how += [f"--rate_iops={rate}"] if reads == 100 else [f"--rate_iops={max(1, rate * reads // 100)},{rate}"]
            guests.append(fio(self.dir, self.sock, volume, *how))
        return guests

    def placed(self, guests):
        seen = [ended(g) for g in guests]
        jobs = self.read("job", "list")["jobs"]
        moved = [j for j in jobs if j["copied_bytes"]]
        iops = sum(s[d]["iops"] for s in seen for d in ("read", "write"))
        return Placed(iops, sum(j["copied_bytes"] for j in moved) / 2**20, len({j["volume"] for j in moved}))


def placement_live(seed):
    with ExitStack() as stack:
        sites = {}
        for strategy in STRATEGIES:
            dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="terrace-claims-"))
            sites[strategy] = PlacementSite(dir, strategy, seed)
            stack.callback(sites[strategy].stop)
        # All at once: their devices are slow beside the machine, and of the machine they have the same.
        guests = {s: site.load() for s, site in sites.items()}
        return {s: site.placed(guests[s]) for s, site in sites.items()}


def placement_simulated(dir, seed):
    text = f'seed = {seed}\nduration = "{SETTLED_S + COUNTED_S}s"\nwarmup = "{SETTLED_S}s"\nwindow = "1s"\n'
    text += "".join(f'[[tiers]]\nname = "{t}"\n{of_scenario(dict(device, capacity=f"{mib} MiB"))}' for t, (device, mib) in TIERS.items())
    for volume, tier, outstanding, reads, kib, rate in LOADS:
        at_most = f', rate = "{rate} IOPS"' if rate else ""
        text += f'[[volumes]]\nname = "{volume}"\nsize = "{VOLUME_MIB} MiB"\ntier = "{tier}"\n[[clients]]\nvolume = "{volume}"\n'
        text += f'habits = {{ outstanding = {outstanding}, read_share = {reads / 100}, random_share = 1.0{at_most}, sizes = [{{ size = "{kib} KiB", share = 1.0 }}] }}\n'
    Path(dir, "placement.toml").write_text(text + POLICY + AUTOTIERING)
    placed = {}
    for strategy in STRATEGIES:
        run = simulated(dir, "placement.toml", "--strategy", strategy)
        total = next(g for g in run["groups"] if g["kind"] == "total")
        placed[strategy] = Placed(total["all"]["iops"], run["moves"]["bytes"] / 2**20, run["moves"]["volumes"])
    return placed


def placement(seed):
    with tempfile.TemporaryDirectory() as dir:
        placed = {LIVE: placement_live(seed), SIMULATED: placement_simulated(dir, seed)}
    values = {}
    for world, by in placed.items():
        values[world] = {f"iops-{s}": by[s].iops for s in STRATEGIES}
        for rival in ("idt", "edt"):
            values[world][f"iops-over-{rival}"] = 100 * (by["autotiering"].iops / by[rival].iops - 1)
            values[world][f"mib-over-{rival}"] = by["autotiering"].mib - by[rival].mib
            values[world][f"volumes-over-{rival}"] = by["autotiering"].volumes - by[rival].volumes
    return values


STAGES = {"classes": classes, "workflow": workflow, "appliance": appliance, "placement": placement}


@dataclass
class Measure:
    """What is measured for a claim: by what name a stage gives it, and when it is as published."""

    stage: str
    name: str
    paper: str
    claim: Optional[str]  # none: live beside simulated alone
    says: str
    unit: str
    published: Callable = lambda claim: ""  # of the claim's data
    holds: Optional[Callable] = None


def of_measures(word, factor=100):
    """Between what the numbers lie that were published for the claim's measures with this word."""

    def text(claim):
        measures = claim["readings"][0]["measures"]
        values = [factor * m["published"] for m in measures if word in m["name"] and m["published"] is not None]
        ends = sorted({f"{v:.0f}" for v in (min(values), max(values))}, key=float)
        return " to ".join(ends)

    return text


def as_share(promise):
    return lambda claim: f"{claim['published'] / promise:.2f}"


# The paper's promises, of which rates are shares.
USR1, FIO = 1800, 5000
above_0 = lambda v: v > 0
below_0 = lambda v: v < 0
MEASURES = [
    Measure("classes", "gold-gain", "priority-lru", "high-group", "mean response time of `gold`, Priority-LRU under LRU", "%", of_measures("high"), above_0),
    Measure("classes", "batch-gain", "priority-lru", "all-groups", "the same of `batch`, which has no objective", "%", of_measures("low"), above_0),
    Measure("classes", "total-gain", "priority-lru", "totals", "the same of both, by requests", "%", of_measures("total"), above_0),
    Measure("classes", "gold-hits-more", "priority-lru", "more-in-cache", "reads of `gold` found in the cache, more than under LRU", "points", lambda c: "up to 10", above_0),
    Measure("classes", "kept-none", "priority-lru", "under-target", "seconds in which `gold` has its 3 ms: no cache", "%"),
    Measure("classes", "kept-lru", "priority-lru", "under-target", "… LRU", "%"),
    Measure("classes", "kept-priority-lru", "priority-lru", "under-target", "… Priority-LRU", "%", lambda c: "all hours but two", lambda v: v > 90),
    Measure("classes", "mean-none", "priority-lru", None, "mean response time of `gold`: no cache", "ms"),
    Measure("classes", "mean-lru", "priority-lru", None, "… LRU", "ms"),
    Measure("classes", "mean-priority-lru", "priority-lru", None, "… Priority-LRU", "ms"),
    Measure("classes", "hits-lru", "priority-lru", None, "reads of `gold` found in the cache: LRU", "%"),
    Measure("classes", "hits-priority", "priority-lru", None, "… Priority-LRU", "%"),
    Measure("workflow", "spike-answers", "dynamite", "spike-ignored", "remedies for a spike of 3 s", "", lambda c: f"{c['published']:.0f}", lambda v: v == 0),
    Measure("workflow", "named", "dynamite", "sets", "1 if the remedy concerns only `batch`, else 0", "", lambda c: f"{c['published']:.0f}", lambda v: v == 1),
    Measure("workflow", "order-after", "dynamite", "created", "from the start of the peak to the order; of 1 s here, of 10 s in the paper", "windows", lambda c: f"{6 * (c['published'] - 48):.0f}", lambda v: v < PEAK_S),
    Measure("workflow", "kept-after", "dynamite", "effective", f"seconds of the peak, from {SETTLES_S} s after the order, in which `orders` has its 50 ms", "%", lambda c: "100 from minute 65", lambda v: v > 90),
    Measure("workflow", "ms-calm", "dynamite", None, "mean response time of `orders`: before all", "ms"),
    Measure("workflow", "ms-before", "dynamite", None, "… in the peak, before the order", "ms"),
    Measure("workflow", "ms-after", "dynamite", None, "… in the peak, after the order", "ms"),
    Measure("appliance", "usr1-alone", "dynamite", "usr1-alone", "USR-1 alone, of its guaranteed rate", "share", as_share(USR1), lambda v: v >= 1),
    Measure("appliance", "fio-alone", "dynamite", "fio-alone", "FIO alone", "share", as_share(FIO), lambda v: v >= ENOUGH),
    Measure("appliance", "usr1-beside", "dynamite", "usr1-peak", "USR-1 with FIO", "share", lambda c: "below 1", lambda v: v < ENOUGH),
    Measure("appliance", "fio-beside", "dynamite", "fio-peak", "FIO with USR-1", "share", as_share(FIO), lambda v: 0.85 <= v * FIO / 3000 <= 1.15),
    Measure("appliance", "effective", "dynamite", "effective", "from the start of the cache to the last second in which one of them has less than 0.95", "s", lambda c: f"{60 * (c['published'] - 55):.0f}", lambda v: v < CACHED_S - LAST_S),
    Measure("appliance", "usr1-cached", "dynamite", "effective", f"USR-1 with the cache, in the last {LAST_S} s", "share", lambda c: "at least 1", lambda v: v >= 1),
    Measure("appliance", "fio-cached", "dynamite", "fio-kept", "FIO then", "share", as_share(FIO), lambda v: v >= ENOUGH),
    Measure("appliance", "answered", "dynamite", None, "reads of USR-1 that do not reach the back end then", "%"),
    Measure("placement", "iops-over-idt", "autotiering", "iops-vs-idt", "requests per second, over IDT", "%", lambda c: "above 0, up to 44.74", above_0),
    Measure("placement", "iops-over-edt", "autotiering", "iops-vs-edt", "… over EDT", "%", lambda c: "above 0, up to 38.78", above_0),
    Measure("placement", "mib-over-idt", "autotiering", "fewest-bytes", "moved, less what IDT does", "MiB", lambda c: "below 0", below_0),
    Measure("placement", "mib-over-edt", "autotiering", "fewest-bytes", "… less what EDT does", "MiB", lambda c: "below 0", below_0),
    Measure("placement", "volumes-over-idt", "autotiering", "fewest-vms", "volumes moved, less IDT's", "", lambda c: "below 0", below_0),
    Measure("placement", "volumes-over-edt", "autotiering", "fewest-vms", "… less EDT's", "", lambda c: "below 0", below_0),
    Measure("placement", "iops-autotiering", "autotiering", None, "requests per second: AutoTiering", "1/s"),
    Measure("placement", "iops-idt", "autotiering", None, "… IDT", "1/s"),
    Measure("placement", "iops-edt", "autotiering", None, "… EDT", "1/s"),
]
STANDING = {"every": "in every reading", "some": "in some readings", "none": "in no reading", "undecided": "undecided"}


def number(v):
    digits = 0 if abs(v) >= 100 or v == int(v) else 1 if abs(v) >= 10 else 2
    return f"{v:.{digits}f}"


def spread(values):
    """Median, and the least and the most where they differ."""
    known = [v for v in values if v is not None]
    if not known:
        return "–"
    least, middle, most = (number(x) for x in (min(known), statistics.median(known), max(known)))
    return middle if least == most else f"{middle} ({least} … {most})"


def summary(values):
    """The same as data; a run that has no value does not count."""
    known = [v for v in values if v == v]
    return {"median": statistics.median(known), "min": min(known), "max": max(known)} if known else {}


def rows(values, claims):
    """Each measure of the stages that were run, with what was found."""
    for m in MEASURES:
        if m.stage not in values:
            continue
        seen = {world: [run[world][m.name] for run in values[m.stage]] for world in (SIMULATED, LIVE)}
        row = {"paper": m.paper, "stage": m.stage, "measure": m.name, "says": m.says, "unit": m.unit}
        row.update({w: {"values": [None if x != x else x for x in v], **summary(v)} for w, v in seen.items()})
        if m.claim:
            claim = claims[m.paper][m.claim]
            row["claim"] = {"id": m.claim, "source": claim["source"], "says": claim["says"], "standing": claim["standing"], "outlook": claim["outlook"]}
            row["published"] = m.published(claim)
        if m.holds:
            row["as_published"] = {w: sum(bool(m.holds(x)) for x in v) for w, v in seen.items()}
        yield row


def markdown(rows, runs):
    lines = []
    for paper in dict.fromkeys(r["paper"] for r in rows):
        own = [r for r in rows if r["paper"] == paper]
        lines += [f"### {paper}", "", "| claim | at full size, simulated | here is measured | published | simulated | live | as published, simulated and live |", "|---|---|---|---|---|---|---|"]
        last = None
        for r in (r for r in own if "claim" in r):
            claim, unit = r["claim"], f", {r['unit']}" if r["unit"] else ""
            first = claim["id"] != last
            last = claim["id"]
            marks = {"calibrated": " (calibrated)", "designed": " (designed)"}.get(claim["outlook"], "")
            head = (f"`{claim['id']}`, {claim['source']}: {claim['says']}", STANDING[claim["standing"]] + marks) if first else ("", "")
            holds = r.get("as_published")
            held = f"{holds[SIMULATED]} of {runs}, {holds[LIVE]} of {runs}" if holds else ""
            cells = [*head, r["says"] + unit, r["published"], spread(r[SIMULATED]["values"]), spread(r[LIVE]["values"]), held]
            lines.append("| " + " | ".join(cells) + " |")
        beside = [r for r in own if "claim" not in r]
        if beside:
            lines += ["", "| nothing is published of | simulated | live |", "|---|---|---|"]
            lines += [f"| {r['says']}{', ' + r['unit'] if r['unit'] else ''} | {spread(r[SIMULATED]['values'])} | {spread(r[LIVE]['values'])} |" for r in beside]
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="?", type=int, default=3)
    parser.add_argument("stages", nargs="*", metavar="STAGE")
    parser.add_argument("-o", "--output", choices=("markdown", "json"), default="markdown")
    options = parser.parse_intermixed_args()
    stages = options.stages or list(STAGES)
    if unknown := [s for s in stages if s not in STAGES]:
        parser.error(f"no such stage: {', '.join(unknown)}")
    # So that servers end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    claims = {}
    for paper in dict.fromkeys(m.paper for m in MEASURES):
        known = json.loads((RESULTS / f"{paper}.json").read_text())["claims"]
        claims[paper] = {c["id"]: c for c in known}
    values = {}
    for seed in range(1, options.runs + 1):
        for stage in stages:
            began = time.monotonic()
            values.setdefault(stage, []).append(STAGES[stage](seed))
            print(f"run {seed} of {options.runs}: {stage}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    found_rows = list(rows(values, claims))
    if options.output == "json":
        print(json.dumps({"schema": "terrace.bench.claims/1", "runs": options.runs, "measures": found_rows}, indent=1))
    else:
        print(markdown(found_rows, options.runs))


if __name__ == "__main__":
    main()
