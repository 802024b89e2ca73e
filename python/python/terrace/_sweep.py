"""Sweeps: a scenario at all points of a grid, under strategies, with seeds; here or on Ray.

Results are files in a directory or an object store, one per cell and named after everything that the cell depends on, as those of
``terrace sim sweep``. A file appears when it is complete, so an interrupted sweep resumes.
"""

import os
import uuid
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

from . import _progress, _source
from ._terrace import CellRunner, SweepPlan, TerraceError


class _Local:
    """Results in a directory."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def read(self, name):
        try:
            return (self.directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name, content):
        unfinished = self.directory / f"{name}.{uuid.uuid4().hex}.tmp"
        unfinished.write_bytes(content)
        unfinished.replace(self.directory / name)


class _ObjectStore:
    """Results in a store that fsspec knows. An object appears when its upload is complete; elsewhere the file is renamed."""

    def __init__(self, url):
        import fsspec

        self.system, self.root = fsspec.core.url_to_fs(url)
        self.system.makedirs(self.root, exist_ok=True)

    def read(self, name):
        try:
            return self.system.cat_file(f"{self.root}/{name}")
        except FileNotFoundError:
            return None

    def write(self, name, content):
        unfinished = f"{self.root}/{name}.{uuid.uuid4().hex}.tmp"
        self.system.pipe_file(unfinished, content)
        self.system.mv(unfinished, f"{self.root}/{name}")


class _Memory(dict):
    """Results that nobody keeps."""

    def read(self, name):
        return self.get(name)

    def write(self, name, content):
        self[name] = content


def _store(directory):
    if directory is None:
        return _Memory()
    return _ObjectStore(directory) if "://" in str(directory) else _Local(directory)


class Run:
    """Run of a sweep's cell: `point`, `strategy`, `seed`, and `name`, the name of its result."""

    __slots__ = ("point", "strategy", "seed", "name", "label")

    def __init__(self, point, strategy, seed, name, label):
        self.point, self.strategy, self.seed, self.name, self.label = point, strategy, seed, name, label

    @property
    def file(self):
        return self.name + ".json"


class Sweep:
    """Sweep that is checked and not run yet."""

    def __init__(self, scenario, grid=None, strategies=None, seeds=None, metrics=None):
        self.scenario = scenario
        self.grid = [(key, list(values)) for key, values in (grid or {}).items()]
        self.strategies = [s if _source.is_native(s) else _source.Strategy(s) for s in strategies or []]
        self.seeds = list(seeds or [])
        self.sources = {s.name: s.digest for s in self.strategies if not isinstance(s, str)}
        self.runner = self.make_runner(scenario)
        self.plan = SweepPlan(self.runner, metrics)
        self.runs = [Run(*run) for run in self.plan.runs()]

    def make_runner(self, scenario):
        """Returns a runner of single cells for this scenario, which may be a copy in another process."""
        return CellRunner(scenario, self.grid, _source.named(self.strategies), self.seeds, self.sources)

    def __len__(self):
        return len(self.runs)

    def __repr__(self):
        return f"<terrace.Sweep of {len(self.runs)} cells>"

    def run(self, directory=None, *, ray=None, workers=None, memory=None, progress=None):
        """Runs the cells that `directory` (a path or a URL of fsspec) has no result of; returns the comparison.

        ray: None runs on the cores of this machine; True on Ray, as it is initialized or on a local cluster; a text is Ray's address.
        workers: cells at once; by default one per core. memory: bytes that a cell reserves on Ray at first; a cell whose worker is killed
        is run again with twice as much. progress: as for `Scenario.simulate`. A cell that fails has its error in `runs["error"]`.
        """
        results = {}
        bar = _progress.bar(progress, self.scenario.name)
        try:
            for run, content, _ in self.outcomes(directory, ray=ray, workers=workers, memory=memory):
                results[run.name] = content
                bar.update(len(results) / len(self.runs), len(results))
        finally:
            bar.close()
        return self.plan.compare([results[run.name] for run in self.runs])

    def outcomes(self, directory=None, *, ray=None, workers=None, memory=None, fresh=False):
        """Yields each run with the content of its result's file or the text of its error, and True if the file existed.

        Runs without a file come as they end. `fresh` ignores existing files. Other arguments are those of `run`.
        """
        store = _store(directory)
        missing = []
        for run in self.runs:
            content = None if fresh else store.read(run.file)
            if content is not None and SweepPlan.fault_of(run.name, content) is None:
                yield run, content, True
            else:
                missing.append(run)
        if not missing:
            return
        if ray is None or ray is False:
            # Each sweep has its own stop: an earlier interrupt does not end this one.
            runner = self.make_runner(self.scenario)
            made = on_threads(lambda run: runner.run(run.point, run.strategy, run.seed), missing, workers, runner.stop)
        else:
            from . import _ray

            made = _ray.outcomes(_ray.SweepCells(self), missing, None if ray is True else ray, workers, memory)
        yield from stored(store, made)


def stored(store, made):
    """Writes the results that are made; yields each run with its content, or the text of its error, and False."""
    for run, content in made:
        if isinstance(content, bytes):
            store.write(run.file, content)
        yield run, content, False


def on_threads(make, runs, workers, stop):
    """Yields each run with the content of its file, or the text of its error, as it ends. `stop` ends the others if the caller stops."""
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        waiting = {pool.submit(make, run): run for run in runs}
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    run = waiting.pop(future)
                    yield run, _content(run, future.result)
        finally:
            stop()
            for future in waiting:
                future.cancel()


def _content(run, result):
    """Returns the content of a run's file, or the text of its error. Mistakes in strategies are errors of the caller."""
    try:
        name, content = result()
    except TerraceError as failed:
        return str(failed)
    if name != run.name:
        raise TerraceError(f"{run.label}: the result is that of other inputs ({name}, not {run.name}): a file of the scenario has changed")
    return content


def sweep(scenario, grid=None, strategies=None, seeds=None, metrics=None):
    """Returns the sweep of a scenario over a grid such as ``{"tiers[nvme].devices": [1, 2]}``, after it has checked all cells."""
    return Sweep(scenario, grid, strategies, seeds, metrics)
