"""Speed of the Python package beside the command line and libCacheSim's Python hooks. See python.sh."""

import json
import os
import random
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

import pyarrow

import terrace

REFERENCES, PAGES, CAPACITY = 1_000_000, 100_000, 10_000
EPOCHS = 20


def medians(name, unit, runs):
    """Prints the median and the range of several runs; returns the median."""
    middle = statistics.median(runs)
    print(f"{name}: {middle:.4g} {unit} ({min(runs):.4g} to {max(runs):.4g}, {len(runs)} runs)")
    return middle


class Lru:
    def __init__(self, capacity):
        self.capacity, self.pages = capacity, OrderedDict()

    def access(self, page):
        pages = self.pages
        if page in pages:
            pages.move_to_end(page)
            return True
        if len(pages) >= self.capacity:
            pages.popitem(last=False)
        pages[page] = True
        return False


class LruInBatches(Lru):
    def access_many(self, pages):
        return sum(map(self.access, pages))


def hooks(oracle):
    """Misses of the same LRU in libCacheSim's hooks, and its seconds."""
    import libcachesim as lcs

    def evict(pages, request):
        return pages.popitem(last=False)[0]

    cache = lcs.PluginCache(
        cache_size=CAPACITY,
        cache_init_hook=lambda parameters: OrderedDict(),
        cache_hit_hook=lambda pages, request: pages.move_to_end(request.obj_id),
        cache_miss_hook=lambda pages, request: pages.__setitem__(request.obj_id, True),
        cache_eviction_hook=evict,
        cache_remove_hook=lambda pages, number: pages.pop(number, None),
        cache_free_hook=lambda pages: pages.clear(),
        cache_name="lru",
    )
    reader = lcs.TraceReader(oracle, lcs.TraceType.ORACLE_GENERAL_TRACE, lcs.ReaderInitParam(ignore_obj_size=True))
    before = time.process_time()
    ratio, _ = cache.process_trace(reader)
    return round(ratio * REFERENCES), time.process_time() - before


def policies(runs, directory):
    random_pages = random.Random(1)
    pages = [int(PAGES * random_pages.random() ** 3) for _ in range(REFERENCES)]
    table = pyarrow.table(
        {
            "time_ns": pyarrow.array(range(REFERENCES), pyarrow.uint64()),
            "op": ["read"] * REFERENCES,
            "offset_bytes": [p * 4096 for p in pages],
            "length_bytes": [4096] * REFERENCES,
        }
    )
    oracle = directory / "t.oracleGeneral.bin"
    oracle.write_bytes(b"".join(struct.pack("<IQIq", i // 1000, p, 1, -1) for i, p in enumerate(pages)))
    trace = terrace.Trace.open(table)
    rates = {}
    for _ in range(runs):
        misses = {}
        for policy in (Lru, LruInBatches):
            before = time.process_time()
            misses[policy.__name__] = trace.cache([policy], [CAPACITY * 4096])["misses"][0]
            rates.setdefault(policy.__name__, []).append(REFERENCES / (time.process_time() - before) / 1e6)
        try:
            misses["hooks"], took = hooks(str(oracle))
        except ImportError:
            print("skipped: needs libCacheSim's wheel from PyPI")
        else:
            rates.setdefault("hooks", []).append(REFERENCES / took / 1e6)
        assert len(set(misses.values())) == 1, misses
    print(f"misses: {misses}")
    found = {name: medians(f"cache policy, {name}", "M references/s", values) for name, values in rates.items()}
    if "hooks" in found:
        print(f"per request, of libCacheSim's hooks: {found['Lru'] / found['hooks']:.2f}; in batches: {found['LruInBatches'] / found['hooks']:.2f}")


def array(volumes):
    """Scenario of idle volumes with a decision per simulated minute."""
    text = f'duration = "{EPOCHS + 1}m"\nwindow = "30s"\n'
    for tier, preset in (("fast", "pm953"), ("slow", "pm863")):
        text += f'[[tiers]]\nname = "{tier}"\npreset = "{preset}"\ncapacity = "4 TiB"\n'
    text += '[policy]\nmonitor_epoch = "30s"\nmigration_epoch = "60s"\n'
    for i in range(volumes):
        text += f'[[volumes]]\nname = "v{i}"\nsize = "1 GiB"\ntier = "slow"\n'
        text += f'[[clients]]\nvolume = "v{i}"\nhabits = {{ outstanding = 1, rate = "1 IOPS" }}\n'
    return terrace.Scenario(text)


class Columns:
    """Reads two columns, as a strategy with a rule on rates does."""

    def decide(self, facts, state, seed):
        busiest = max(zip(facts.volumes["iops"], facts.volumes["name"]), key=lambda v: (v[0] or 0, v[1]))
        return [], busiest[1]


class Rows:
    """Reads all columns of all volumes as dicts."""

    def decide(self, facts, state, seed):
        return [], max(facts.volumes.to_pylist(), key=lambda v: (v["iops"] or 0, v["name"]))["name"]


def decisions(runs, volumes=1000):
    scenario = array(volumes)
    took = {}
    # The differences are small beside a run, so more pairs than elsewhere.
    for _ in range(2 * runs):
        for strategy in ("noop", Columns, Rows):
            before = time.process_time()
            scenario.simulate(strategy, progress=False)
            name = strategy if isinstance(strategy, str) else strategy.__name__
            took.setdefault(name, []).append(time.process_time() - before)
    for name in ("Columns", "Rows"):
        added = [(a - b) * 1e3 / EPOCHS for a, b in zip(took[name], took["noop"])]
        medians(f"decision of {volumes} volumes, {name}, made twice: added", "ms", added)


def processor_seconds(command):
    """Processor time of a command: other work on the machine changes it less than the time on the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def native(runs, program, directory):
    """Processor time of the same simulation by the command line and from Python, as whole processes."""
    whole = terrace.Scenario.open(Path(__file__).parents[1] / "examples" / "table-v.toml")
    file = directory / "native.toml"
    file.write_text(whole.with_settings({"duration": "2m", "warmup": "20s", "policy.migration_epoch": "20s"}).text)
    # Without results over time, as the command line without --full.
    code = "import sys, terrace; terrace.Scenario.open(sys.argv[1]).compare(['autotiering'], progress=False)"
    ours, theirs = [], []
    for _ in range(runs):
        ours.append(processor_seconds([sys.executable, "-c", code, file]))
        theirs.append(processor_seconds([program, "sim", "run", file, "--strategy", "autotiering", "-o", "json"]))
    a, b = medians("simulation from Python, whole process", "CPU s", ours), medians("the command line", "CPU s", theirs)
    print(f"speed from Python, of the command line's: {b / a:.3f}")


def sweep(runs, program, directory, cells=200):
    """Throughput of a sweep on Ray with two workers, of the command line's."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    scenario = terrace.Scenario.open(Path(__file__).parents[1] / "examples" / "table-v.toml")
    # Cells of one to two seconds.
    scenario = scenario.with_settings({"duration": "40s", "warmup": "10s", "policy.migration_epoch": "10s"})
    (directory / "s.toml").write_text(scenario.text)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    scenario = terrace.Scenario.open(directory / "s.toml")
    ours, theirs = [], []
    # Starts the workers, as ray.init starts the rest.
    terrace.sweep(scenario.with_settings({"duration": "20s"}), None, ["noop"], [1, 2]).run(ray=True, progress=False)
    for run in range(runs):
        swept = terrace.sweep(scenario, None, ["autotiering"], range(1, cells + 1))
        before = time.perf_counter()
        ray_json = swept.run(directory / f"ray-{run}", ray=True, progress=False).to_json()
        ours.append(time.perf_counter() - before)
        before = time.perf_counter()
        command = [program, "sim", "sweep", "s.toml", "--strategies", "autotiering", "--seeds", f"1..{cells}", "--out", f"cli-{run}"]
        out = subprocess.run([*command, "-o", "json"], cwd=directory, check=True, capture_output=True).stdout
        theirs.append(time.perf_counter() - before)
        assert json.loads(out) == json.loads(ray_json)
    a = medians(f"{cells} cells on Ray, 2 workers, without ray.init", "s", ours)
    b = medians("the built-in runner", "s", theirs)
    print(f"throughput on Ray, of the built-in runner's: {b / a:.3f}; difference per cell: {(a - b) * 1e3 / cells:.1f} ms")


def main():
    parts = {"policies", "decisions", "native", "sweep"}
    wanted = set(sys.argv[3:]) or parts
    assert wanted <= parts, f"parts: {', '.join(sorted(parts))}"
    program, runs = sys.argv[1], int(sys.argv[2])
    print(f"load of the machine at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if "policies" in wanted:
            policies(runs, directory)
        if "decisions" in wanted:
            decisions(runs)
        if "native" in wanted:
            native(runs, program, directory)
        if "sweep" in wanted:
            sweep(min(runs, 3), program, directory)
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
