"""Check of strategies in Python: the same decisions in fresh interpreters with different hash seeds."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import _serve, _source, _transfer
from ._terrace import StrategyServer, TerraceError

HASH_SEEDS = ("1", "2")


class _Recorder:
    """Strategy that notes every decision of another one. Each is made twice; only the first is noted."""

    def __init__(self, strategy):
        self.inner = strategy() if isinstance(strategy, type) else strategy
        self.server = StrategyServer(self.inner)
        self.name = getattr(strategy, "name", type(self.inner).__name__)
        self.every_epoch = getattr(self.inner, "every_epoch", False)
        self.decisions = {}

    def decide(self, facts, state, seed):
        returned = self.inner.decide(facts, state, seed)
        moves, after = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, state)
        if isinstance(moves, Iterator):
            moves = list(moves)
        self.decisions.setdefault(facts.at_s, json.loads(self.server.plain((moves, after))))
        return moves, after


def _child():
    task, out = json.load(sys.stdin), _serve.replies()
    scenario = _transfer.restored(task["scenario"], Path(task["directory"]))
    recorder = _Recorder(_source.load(task["strategy"]))
    result = scenario.simulate(recorder, seed=task["seed"], progress=False)
    words = json.dumps(result.to_dict(), sort_keys=True)
    decisions = [[at, made] for at, made in recorder.decisions.items()]
    out.write(json.dumps({"decisions": decisions, "result": hashlib.sha256(words.encode()).hexdigest()}).encode())
    out.close()


def lint(strategy, scenario, seed=None):
    """Simulates a strategy in two fresh interpreters with different hash seeds. Raises ``TerraceError`` at the first decision that differs;
    returns the number of decisions. ``strategy`` is ``FILE.py:CLASS`` or a class at the top of a file."""
    name = strategy if isinstance(strategy, str) else _source.locate(strategy)
    _source.load(name)
    with tempfile.TemporaryDirectory() as directory:
        task = {
            "strategy": name,
            "scenario": _transfer.packed(scenario, Path(directory)),
            "directory": directory,
            "seed": scenario.seed if seed is None else seed,
        }
        runs = []
        for hash_seed in HASH_SEEDS:
            child = subprocess.run(
                [sys.executable, "-c", "import terrace._lint as l; l._child()"],
                input=json.dumps(task).encode(),
                capture_output=True,
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
            )
            if child.returncode != 0:
                raise TerraceError(f"strategy {name} fails in a fresh interpreter:\n{child.stderr.decode(errors='replace').strip()}")
            runs.append(json.loads(child.stdout))
    first, second = runs
    for (at, one), (_, other) in zip(first["decisions"], second["decisions"]):
        for what in ("moves", "state"):
            if one[what] != other[what]:
                raise TerraceError(
                    f"strategy {name} is not deterministic: at {at} s, two interpreters with different hash seeds differ in their {what}: "
                    f"{one[what]} and {other[what]}; sort sets, and draw random numbers from the seed"
                )
    if first["result"] != second["result"] or len(first["decisions"]) != len(second["decisions"]):
        raise TerraceError(f"strategy {name}: the results of two interpreters differ, although their decisions are equal")
    return len(first["decisions"])
