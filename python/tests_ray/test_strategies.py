"""Strategies in Python on a local Ray cluster: the text of the caller, one hash seed, the results of the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
pytest.importorskip("ray", reason="skipped: needs ray")

import terrace  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("TERRACE", ROOT / "target/debug/terrace"))
SCENARIO = ROOT / "cli/tests/scenarios/sweep-base.toml"
# A cell takes less than a second; Ray starts in half a minute on a slow machine.
LIMIT_S = 280

PROMOTE = """
class Mine:
    def decide(self, facts, state, seed):
        fast = facts.tiers["name"][0]
        return [(v["name"], fast) for v in facts.volumes.to_pylist() if v["tier"] != fast]
"""
STAYS = PROMOTE.replace("return [", "return [] and [")
CHECKS_ITS_HASH_SEED = """
import os
class Mine:
    def decide(self, facts, state, seed):
        assert os.environ["PYTHONHASHSEED"] == "0"
        return []
"""


def test_workers_execute_the_text_of_the_caller(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PROMOTE)
    sweep = terrace.sweep(terrace.Scenario.open(SCENARIO), None, [f"{file}:Mine"], [1, 2])
    file.write_text(STAYS)
    assert sweep.run(ray=True).to_json() == sweep.run().to_json()
    file.unlink()
    assert sweep.run(ray=True).runs["error"] == [None, None]


def test_workers_have_one_hash_seed(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(CHECKS_ITS_HASH_SEED)
    sweep = terrace.sweep(terrace.Scenario.open(SCENARIO), None, [f"{file}:Mine"], [1, 2])
    assert sweep.run(ray=True).runs["error"] == [None, None]


def _sweep(directory, *more):
    command = [PROGRAM, "sim", "sweep", SCENARIO, "--seeds", "1..2", "-o", "json", "--out", directory, *more]
    return subprocess.run(command, env={**os.environ, "TERRACE_PYTHON": sys.executable}, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.skipif(not PROGRAM.exists(), reason="skipped: needs target/debug/terrace")
def test_command_line_with_a_python_strategy_has_the_same_results_on_ray(tmp_path):
    (tmp_path / "mine.py").write_text(PROMOTE)
    strategies = ["--strategies", f"noop,{tmp_path}/mine.py:Mine"]
    built_in = _sweep(tmp_path / "built-in", *strategies)
    assert built_in.returncode == 0, built_in.stderr
    on_ray = _sweep(tmp_path / "ray", *strategies, "--ray")
    assert on_ray.returncode == 0, on_ray.stderr
    assert on_ray.stdout == built_in.stdout
    again = _sweep(tmp_path / "built-in", *strategies, "--ray")
    assert "4 cells: 0 run, 4 already available" in again.stderr
