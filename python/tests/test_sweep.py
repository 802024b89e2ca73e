"""Sweeps on this machine: the same as the command line's, kept, resumed, stopped; errors of cells."""

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys

import pytest
from conftest import TEXT, Promote

import terrace
from terrace import _source

GRID = {"volumes[busy].tier": ["slow", "fast"], "clients[busy].habits.outstanding": [1, 2]}


def content(directory):
    """Results in a directory without the time that they took."""
    results = {p.name: json.loads(p.read_text()) for p in directory.glob("*.json")}
    for result in results.values():
        del result["took_s"]
    return results


def test_grid_has_a_row_per_cell(scenario):
    sweep = terrace.sweep(scenario, {"volumes[busy].tier": ["slow", "fast"]}, ["noop", "static"], [1, 2])
    assert len(sweep) == 8
    compared = sweep.run()
    assert compared.runs["volumes[busy].tier"] == ["slow"] * 4 + ["fast"] * 4
    assert compared.runs["seed"] == [1, 2] * 4
    assert compared.runs["error"] == [None] * 8
    assert len({r["strategy"] for r in compared.means.to_pylist()}) == 2


def test_finished_cells_are_not_run_again(scenario, tmp_path):
    first = terrace.sweep(scenario, {"duration": ["1m"]}, ["noop"], [1, 2]).run(tmp_path)
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    assert len(before) == 2
    more = terrace.sweep(scenario, {"duration": ["1m"]}, ["noop"], [1, 2, 3]).run(tmp_path)
    after = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    assert len(after) == 3 and before.items() <= after.items()
    assert more.runs["iops"][:2] == first.runs["iops"]


def test_damaged_result_is_run_again(scenario, tmp_path):
    sweep = terrace.sweep(scenario, {"duration": ["1m"]}, ["noop"], [1])
    first = sweep.run(tmp_path).to_json()
    (file,) = tmp_path.iterdir()
    whole = content(tmp_path)
    file.write_text(file.read_text().replace("noop", "nope"))
    assert sweep.run(tmp_path).to_json() == first
    assert content(tmp_path) == whole


def test_sweep_equals_the_command_line(scenario, tmp_path):
    program = os.environ.get("TERRACE")
    if not program:
        pytest.skip("skipped: needs TERRACE, the path of the program")
    (tmp_path / "scenario.toml").write_text(TEXT)
    command = [program, "sim", "sweep", "scenario.toml", "--set", "duration=1m,2m", "--strategies", "noop,idt", "--seeds", "1..2"]
    out = subprocess.run([*command, "--out", "cli", "-o", "json"], cwd=tmp_path, check=True, capture_output=True).stdout
    opened = terrace.Scenario.open(tmp_path / "scenario.toml")
    ours = terrace.sweep(opened, {"duration": ["1m", "2m"]}, ["noop", "idt"], [1, 2]).run(tmp_path / "ours")
    assert json.loads(out) == ours.to_dict()
    assert content(tmp_path / "cli") == content(tmp_path / "ours")


def test_results_are_stored_in_an_object_store(scenario):
    fsspec = pytest.importorskip("fsspec")
    sweep = terrace.sweep(scenario, {"duration": ["1m"]}, ["noop"], [1, 2])
    kept = sweep.run("memory://terrace-test").to_json()
    names = fsspec.filesystem("memory").ls("/terrace-test", detail=False)
    assert len(names) == 2 and all(n.endswith(".json") for n in names)
    assert sweep.run("memory://terrace-test").to_json() == kept


def test_result_of_a_python_strategy_is_stored_by_its_source(scenario, tmp_path):
    compared = terrace.sweep(scenario, None, ["noop", Promote], [1]).run(tmp_path)
    assert compared.runs["strategy"] == ["noop", "Promote"]
    assert compared.runs["moves_done"] == [0.0, 1.0]
    file = tmp_path / "mine.py"
    source = "class Mine:\n    def decide(self, facts, state, seed):\n        return []\n"
    names = set()
    for text in (source, source, source + "# changed\n"):
        file.write_text(text)
        names.add(terrace.sweep(scenario, None, [f"{file}:Mine"], [1]).runs[0].name)
    assert len(names) == 2


STAYS = "class Mine:\n    def decide(self, facts, state, seed):\n        return []\n"
MOVES = STAYS.replace("[]", '[("busy", "fast")]')


def test_edited_strategy_is_executed_in_its_new_form(scenario, tmp_path):
    file, results = tmp_path / "mine.py", tmp_path / "results"
    moves = []
    for text in (STAYS, MOVES, STAYS):
        file.write_text(text)
        moves += terrace.sweep(scenario, None, [f"{file}:Mine"], [1]).run(results).runs["moves_done"]
    assert moves == [0.0, 1.0, 0.0]
    assert len(list(results.iterdir())) == 2


def test_strategy_edited_before_the_run_is_executed_in_its_old_form(scenario, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(STAYS)
    sweep = terrace.sweep(scenario, None, [f"{file}:Mine"], [1])
    file.write_text(MOVES)
    assert sweep.run().runs["moves_done"] == [0.0]


def test_imported_strategy_whose_file_has_changed_is_refused(scenario, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "edited_after_import.py"
    file.write_text(STAYS)
    mine = importlib.import_module("edited_after_import").Mine
    assert len(terrace.sweep(scenario, None, [mine], [1])) == 1
    file.write_text(MOVES)
    with pytest.raises(terrace.TerraceError, match="may have changed since the class was imported"):
        terrace.sweep(scenario, None, [mine], [1])


def test_strategy_in_another_process_is_made_from_the_same_text(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(STAYS)
    given = _source.Strategy(f"{file}:Mine")
    file.write_text(MOVES)
    name, made = pickle.loads(pickle.dumps(given)).named()
    assert name == f"{file}:Mine"
    assert made().decide(None, None, 1) == []
    with pytest.raises(terrace.TerraceError, match="on this node differs from that of the caller"):
        copy = pickle.loads(pickle.dumps(_source.Strategy(Promote)))
        copy.text += b"# other"
        copy.named()


class Tuned(Promote):
    def __init__(self, value):
        self.value = value


def test_hash_of_a_strategy_covers_all_of_its_attributes():
    one, other = ([*range(5000), last] for last in (1, 2))
    assert _source.digest(Tuned(one)) == _source.digest(Tuned(list(one)))
    assert _source.digest(Tuned(one)) != _source.digest(Tuned(other))
    assert _source.digest(Tuned(Tuned(1))) == _source.digest(Tuned(Tuned(1)))
    assert _source.digest(Tuned(Tuned(1))) != _source.digest(Tuned(Tuned(2)))


def test_attribute_that_cannot_be_pickled_is_refused(scenario):
    with pytest.raises(terrace.TerraceError, match="its attribute value cannot be pickled"):
        terrace.sweep(scenario, None, [Tuned(lambda: 1)], [1])


def test_invalid_grid_is_refused_before_the_first_run(scenario):
    with pytest.raises(terrace.TerraceError, match="unknown key"):
        terrace.sweep(scenario, {"policy.hould": [1]})
    with pytest.raises(terrace.TerraceError, match="did you mean"):
        terrace.sweep(scenario, None, ["statik"])
    with pytest.raises(terrace.TerraceError, match="no values"):
        terrace.sweep(scenario, {"duration": []})


def test_exception_in_a_strategy_ends_the_sweep(scenario):
    class Wrong:
        def decide(self, facts, state, seed):
            return 1 / 0

    with pytest.raises(ZeroDivisionError):
        terrace.sweep(scenario, None, ["noop", Wrong], [1]).run()


def test_interrupt_ends_a_sweep_and_preserves_results(tmp_path):
    code = f"""
import signal, terrace
# It is ignored below a shell that runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
scenario = terrace.Scenario({TEXT!r})
sweep = terrace.sweep(scenario, {{"duration": ["1m", "500h"]}}, ["noop"], [1])
try:
    sweep.run({str(tmp_path)!r}, workers=2, progress=lambda share, cells: print("done", cells, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "done 1\n"
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=120)
    assert (out, child.returncode) == ("interrupted\n", 0)
    assert len(list(tmp_path.iterdir())) == 1
