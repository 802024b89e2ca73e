"""Sweeps on a local Ray cluster whose workers are killed: the same bytes as without Ray."""

import json
import os
import signal
import threading
import time

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray")

import terrace  # noqa: E402

TEXT = """
duration = "20m"
window = "10s"
[[tiers]]
name = "fast"
preset = "pm953"
capacity = "4 GiB"
[[tiers]]
name = "slow"
preset = "pm863"
capacity = "12 GiB"
[policy]
monitor_epoch = "10s"
migration_epoch = "60s"
[[volumes]]
name = "busy"
size = "1 GiB"
tier = "slow"
[[volumes]]
name = "idle"
size = "1 GiB"
tier = "fast"
"""
CLIENTS = '[[clients]]\nvolume = "busy"\nhabits = { outstanding = 4, rate = "3000 IOPS" }\n'
TRACES = '[[traces]]\nfile = "mine"\nrepeat = 5\nvolumes = { v0 = "busy", v1 = "idle" }\n'


class Killer(threading.Thread):
    """Kills workers that run a cell, until it has killed as many as it should."""

    def __init__(self, kills):
        super().__init__(daemon=True)
        self.kills, self.killed, self.ended = kills, [], threading.Event()

    def run(self):
        while len(self.killed) < self.kills and not self.ended.wait(0.3):
            workers = []
            for process in os.listdir("/proc"):
                try:
                    title = open(f"/proc/{process}/cmdline").read() if process.isdigit() else ""
                except OSError:
                    continue
                if title.startswith("ray::_run") and int(process) not in self.killed:
                    workers.append(int(process))
            if workers:
                try:
                    os.kill(workers[0], signal.SIGKILL)
                    self.killed.append(workers[0])
                except ProcessLookupError:
                    pass


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def content(directory):
    results = {p.name: json.loads(p.read_text()) for p in directory.glob("*.json")}
    for result in results.values():
        del result["took_s"]
    return results


def test_killed_workers_do_not_change_the_bytes(tmp_path):
    scenario = terrace.Scenario(TEXT + CLIENTS)
    grid = {"clients[busy].habits.outstanding": [2, 4]}
    sweep = terrace.sweep(scenario, grid, ["noop", "idt"], range(1, 6))
    here = sweep.run(tmp_path / "here")
    killer = Killer(len(sweep) * 3 // 10)
    killer.start()
    there = sweep.run(tmp_path / "there", ray=True)
    killer.ended.set()
    killer.join()
    print(f"killed {len(killer.killed)} workers in a sweep of {len(sweep)} cells")
    assert len(killer.killed) == killer.kills
    assert there.runs["error"] == [None] * len(sweep)
    assert there.to_json() == here.to_json()
    assert content(tmp_path / "there") == content(tmp_path / "here")


def test_trace_in_memory_is_transferred_to_a_node(tmp_path):
    pa = pytest.importorskip("pyarrow")
    rows = range(20_000)
    table = pa.table(
        {
            "time_ns": [i * 1_000_000 for i in rows],
            "volume": [f"v{i % 2}" for i in rows],
            "op": ["read" if i % 4 else "write" for i in rows],
            "offset_bytes": [(i * 8191) % 1000 * 4096 for i in rows],
            "length_bytes": [4096 for i in rows],
        }
    )
    scenario = terrace.Scenario(TEXT.replace('duration = "20m"\n', "") + TRACES, traces={"mine": terrace.Trace.open(table)})
    sweep = terrace.sweep(scenario, {"volumes[busy].tier": ["slow", "fast"]}, ["noop", "static"])
    assert sweep.run(ray=True).to_json() == sweep.run().to_json()


def test_cell_that_always_kills_its_worker_is_an_error(tmp_path):
    file = tmp_path / "deadly.py"
    file.write_text("import os\nclass Deadly:\n    def decide(self, facts, state, seed):\n        os.kill(os.getpid(), 9)\n")
    sweep = terrace.sweep(terrace.Scenario(TEXT + CLIENTS), {"duration": ["2m"]}, ["noop", f"{file}:Deadly"])
    errors = sweep.run(tmp_path / "results", ray=True).runs["error"]
    assert errors[0] is None
    assert "was killed 6 times" in errors[1]
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_strategy_of_this_file_runs_on_workers():
    class Stays:
        def decide(self, facts, state, seed):
            return [], (state or 0) + 1

    sweep = terrace.sweep(terrace.Scenario(TEXT + CLIENTS), {"duration": ["4m"]}, [Stays], [1, 2])
    assert sweep.run(ray=True).to_json() == sweep.run().to_json()


def test_resumed_sweep_runs_only_missing_cells(tmp_path):
    sweep = terrace.sweep(terrace.Scenario(TEXT + CLIENTS), {"duration": ["2m"]}, ["noop"], [1, 2, 3])
    whole = sweep.run(tmp_path, ray=True).to_json()
    lost, *kept = sorted(tmp_path.iterdir())
    lost.unlink()
    before = {p: p.stat().st_mtime_ns for p in kept}
    time.sleep(0.01)
    assert sweep.run(tmp_path, ray=True).to_json() == whole
    assert lost.exists() and {p: p.stat().st_mtime_ns for p in kept} == before
