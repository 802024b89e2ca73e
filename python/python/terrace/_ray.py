"""Cells as Ray tasks.

Of a sweep, the driver puts the scenario and its traces into Ray's object store once. On each node, the first task writes the traces to a
directory, from which all workers of the node map them. Cells of a command are processes of the workers. Tasks return the content of their
result's file, and the driver writes it.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

import ray

from . import _source, _transfer
from ._commands import ProcessKilled
from ._sweep import _content
from ._terrace import CellRunner, TerraceError

# Runs of one cell whose worker is killed or out of memory. Protects against a cell that takes every node down.
ATTEMPTS_MAX = 6
# Memory that is reserved for the second attempt of a cell without a reservation.
RETRY_MEMORY_BYTES = 1 << 30
# Ends of a worker, or of its process, that another attempt may not have.
KILLED = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError, ProcessKilled)
# Environment of workers: a strategy that iterates over a set decides the same on all of them.
ENVIRONMENT = {"env_vars": {"PYTHONHASHSEED": "0"}}
# Runners that a worker process keeps, so that tasks of the same sweep do not read the scenario again.
_runners = {}


class _Reference:
    """Reference to an object that a task fetches itself, if it needs it at all."""

    def __init__(self, value):
        self.reference = ray.put(value)

    def get(self):
        return ray.get(self.reference)


def _unpacked(traces):
    """Returns the directory of the node's traces, with these. They are named after their content; one process writes, others wait for it."""
    directory = Path(tempfile.gettempdir()) / f"terrace-traces-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    for name, content in traces.items():
        file = directory / name
        if file.exists():
            continue
        with open(directory / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                unfinished = directory / f"{name}.tmp"
                unfinished.write_bytes(content.get())
                unfinished.replace(file)
    return directory


def _run(key, plan, traces, point, strategy, seed):
    runner = _runners.get(key)
    if runner is None:
        plan = plan.get()
        scenario = _transfer.restored(plan["scenario"], _unpacked(traces))
        runner = CellRunner(scenario, plan["grid"], _source.named(plan["strategies"]), plan["seeds"], plan["sources"])
        _runners.clear()
        _runners[key] = runner
    return runner.run(point, strategy, seed)


class SweepCells:
    """Cells of a sweep. `put` puts what they share into the object store; `arguments` are those of a run's task."""

    task = staticmethod(_run)

    def __init__(self, sweep):
        self.sweep = sweep

    def put(self):
        sweep = self.sweep
        staging = Path(tempfile.mkdtemp(prefix="terrace-sweep-"))
        try:
            scenario = _transfer.packed(sweep.scenario, staging)
            names = sorted(set(scenario["traces"].values()))
            self.traces = {name: _Reference((staging / name).read_bytes()) for name in names}
        finally:
            shutil.rmtree(staging)
        self.plan = _Reference(
            {"scenario": scenario, "grid": sweep.grid, "strategies": sweep.strategies, "seeds": sweep.seeds, "sources": sweep.sources}
        )

    def arguments(self, run):
        return self.plan.reference.hex(), self.plan, self.traces, run.point, run.strategy, run.seed


def outcomes(cells, missing, address, workers, memory):
    """Runs cells on Ray; yields each with the content of its file, or the text of its error, as it ends."""
    started = not ray.is_initialized()
    if started:
        local = {"num_cpus": workers, "include_dashboard": False} if address is None else {"address": address}
        ray.init(log_to_driver=False, **local)
    elif address is not None:
        raise TerraceError("ray: Ray is initialized already; use ray=True")
    try:
        cells.put()
        yield from _outcomes(cells, missing, workers, memory)
    finally:
        if started:
            ray.shutdown()


def _outcomes(cells, missing, workers, memory):
    # Retries are here, with more memory.
    task = ray.remote(max_retries=0, num_cpus=1, runtime_env=ENVIRONMENT)(cells.task)

    def submit(run, attempt):
        reserved = memory or (RETRY_MEMORY_BYTES if attempt > 1 else None)
        if reserved:
            reserved = min(reserved << max(attempt - (1 if memory else 2), 0), _memory_max(reserved))
        options = task.options(memory=reserved) if reserved else task
        return options.remote(*cells.arguments(run))

    queue = [(run, 1) for run in reversed(missing)]
    running = {}
    # Enough to keep every core busy, and few enough for Ray's scheduler.
    running_max = workers or 2 * max(int(ray.cluster_resources().get("CPU", 1)), 1)
    try:
        while queue or running:
            while queue and len(running) < running_max:
                run, attempt = queue.pop()
                running[submit(run, attempt)] = (run, attempt)
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                run, attempt = running.pop(reference)
                try:
                    yield run, _content(run, lambda: _get(reference))
                except KILLED as killed:
                    if attempt == ATTEMPTS_MAX:
                        yield run, f"{run.label}: its worker was killed {attempt} times: {type(killed).__name__}"
                    else:
                        queue.append((run, attempt + 1))
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _get(reference):
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as failed:
        raise failed.cause from None


def _memory_max(otherwise):
    """Returns the memory of the largest node, in bytes."""
    nodes = [n["Resources"].get("memory", 0) for n in ray.nodes() if n["Alive"]]
    return int(max(nodes, default=0)) or otherwise
