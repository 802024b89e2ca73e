"""Checks of strategies in fresh interpreters, and published experiments."""

import os

import pytest

import terrace

STEADY = """
class Steady:
    def decide(self, facts, state, seed):
        names = sorted({v["name"] for v in facts.volumes.to_pylist() if v["tier"] == "slow"})
        return [(name, "fast") for name in names], {"seen": names}
"""
HASHED = """
class Hashed:
    def decide(self, facts, state, seed):
        return [], [name for name in {"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"}]
"""


def test_lint_counts_decisions(scenario, tmp_path):
    file = tmp_path / "steady.py"
    file.write_text(STEADY)
    assert terrace.lint(f"{file}:Steady", scenario) == 5


def test_lint_finds_the_order_of_a_set(scenario, tmp_path):
    file = tmp_path / "hashed.py"
    file.write_text(HASHED)
    # Within one interpreter the order is the same every time.
    scenario.simulate(f"{file}:Hashed")
    with pytest.raises(terrace.TerraceError, match="at 30.0 s, two interpreters with different hash seeds differ in their state"):
        terrace.lint(f"{file}:Hashed", scenario)


PRINTS = """
import os
class Prints:
    def decide(self, facts, state, seed):
        print("decides")
        os.write(2, b"\\xff")
        assert not os.environ.get("FAILS")
        return (move for move in [])
"""
NUMBERS = """
class Number:
    def __float__(self):
        return 2.5

class Numbers:
    def decide(self, facts, state, seed):
        return [{"volume": "busy", "tier": "fast", "value": Number()}]
"""
TABLE = """
import sys
import pyarrow as pa

MOVES = pa.table({"volume": ["busy"], "tier": ["fast"]})
# The check has to do without it.
sys.modules["pyarrow"] = None

class Tables:
    def decide(self, facts, state, seed):
        return MOVES
"""


def test_lint_accepts_a_strategy_that_prints(scenario, tmp_path, monkeypatch):
    file = tmp_path / "prints.py"
    file.write_text(PRINTS)
    assert terrace.lint(f"{file}:Prints", scenario) == 5
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(terrace.TerraceError, match="fails in a fresh interpreter(?s:.*)AssertionError"):
        terrace.lint(f"{file}:Prints", scenario)


def test_lint_accepts_numbers_of_other_libraries(scenario, tmp_path):
    file = tmp_path / "numbers.py"
    file.write_text(NUMBERS)
    assert terrace.lint(f"{file}:Numbers", scenario) == 5


def test_lint_accepts_moves_as_a_table(scenario, tmp_path):
    pytest.importorskip("pyarrow")
    file = tmp_path / "tables.py"
    file.write_text(TABLE)
    assert terrace.lint(f"{file}:Tables", scenario) == 5


def test_lint_accepts_traces_in_memory(table, tmp_path):
    from conftest import TEXT

    file = tmp_path / "steady.py"
    file.write_text(STEADY)
    words = TEXT[: TEXT.index("[[clients]]")] + '[[traces]]\nfile = "mine"\nvolumes = { v0 = "busy", v1 = "idle", v2 = "idle" }\n'
    scenario = terrace.Scenario(words, traces={"mine": terrace.Trace.open(table)})
    assert terrace.lint(f"{file}:Steady", scenario) >= 0


def test_lint_requires_a_file(scenario):
    class Inner:
        def decide(self, facts, state, seed):
            return []

    with pytest.raises(terrace.TerraceError, match="FILE.py:CLASS"):
        terrace.lint(Inner, scenario)
    with pytest.raises(terrace.TerraceError, match="does not exist"):
        terrace.lint("nothing.py:Nothing", scenario)


@pytest.mark.skipif("TERRACE_SLOW" not in os.environ, reason="skipped: needs TERRACE_SLOW, since it takes half a minute in the development profile")
def test_experiment_has_claims(tmp_path):
    outcome = terrace.reproduce("autotiering", quick=True, epochs=2, report=tmp_path / "page.html")
    assert outcome["schema"].startswith("terrace.reproduce")
    assert (tmp_path / "page.html").stat().st_size > 1000


def test_unknown_experiment_is_refused():
    with pytest.raises(terrace.TerraceError, match="unrecognized subcommand"):
        terrace.reproduce("autotearing")
