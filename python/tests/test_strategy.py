"""Strategies in Python: moves, state, errors, rejections with reasons, the check of determinism."""

import itertools

import pytest
from conftest import Promote

import terrace


def run(scenario, moves, **attributes):
    """Runs a strategy whose `decide` is the function `moves`."""
    strategy = type("Tested", (), {"decide": staticmethod(moves), **attributes})
    return scenario.simulate(strategy)


def test_python_strategy_moves_a_volume(scenario):
    result = scenario.simulate(Promote)
    assert result.strategy == "Promote"
    (move,) = result.moves.to_pylist()
    assert (move["volume"], move["from_tier"], move["to_tier"], move["state"]) == ("busy", "slow", "fast", "done")
    assert move["reason"].endswith("IOPS")
    assert dict(zip(result.final_tiers["volume"], result.final_tiers["tier"])) == {"busy": "fast", "idle": "fast"}


def test_python_and_native_strategies_are_compared(scenario):
    compared = scenario.compare(["noop", Promote()], seeds=[1, 2], metrics=["moves_done"])
    assert compared.runs["strategy"] == ["noop", "noop", "Promote", "Promote"]
    assert compared.runs["moves_done"] == [0.0, 0.0, 1.0, 1.0]


def test_state_is_kept_between_decisions(scenario):
    states = []

    def decide(facts, state, seed):
        states.append(state)
        return [], {"seen": (state or {"seen": 0})["seen"] + 1}

    run(scenario, decide)
    # Twice each.
    assert states[::2] == states[1::2]
    assert states[:6:2] == [None, {"seen": 1}, {"seen": 2}]


def test_strategy_is_called_in_epochs_without_placement(scenario):
    due = []

    def decide(facts, state, seed):
        due.append(facts.placement_due)

    run(scenario, decide)
    assert due and all(due)
    due.clear()
    run(scenario, decide, every_epoch=True)
    assert True in due and False in due


def test_facts_have_the_array(scenario):
    seen = []

    def decide(facts, state, seed):
        seen.append(facts)

    run(scenario, decide)
    facts = seen[0]
    assert facts.at_s == 30.0
    assert facts.volumes["name"] == ["busy", "idle"]
    assert facts.volumes["class"][0] == "gold"
    assert facts.volumes["iops"][0] == pytest.approx(300, rel=0.2)
    assert facts.tiers["name"] == ["fast", "slow"]
    assert facts.tiers["capacity_bytes"] == [4 << 30, 12 << 30]
    assert facts.classes.to_pylist()[0]["objective_us"] == 200.0
    assert len(facts.devices) == 2
    assert facts.moves.num_rows == 0


def test_rejected_move_has_its_reason(scenario):
    big = scenario.with_settings({"volumes[busy].size": "6 GiB"})
    result = run(big, lambda facts, state, seed: [("busy", "fast")])
    assert result.moves.num_rows == 0
    held = [d for d in result.decisions.to_pylist() if d["outcome"] == "held"]
    assert held and held[0]["volume"] == "busy"
    assert "big" in held[0]["reason"] or "device" in held[0]["reason"]


def test_pin_overrides_the_strategy(scenario):
    pinned = scenario.with_settings({"policy.pins.busy": "slow"})
    result = run(pinned, lambda facts, state, seed: [("busy", "fast")])
    assert result.final_tiers["tier"][0] == "slow"


def test_changing_moves_are_refused(scenario):
    turn = itertools.count()

    def decide(facts, state, seed):
        return [("busy", "fast")] if next(turn) % 2 else []

    with pytest.raises(terrace.TerraceError, match="Tested is not deterministic: at 30 s.*differ in their moves"):
        run(scenario, decide)


def test_changing_state_is_refused(scenario):
    turn = itertools.count()
    with pytest.raises(terrace.TerraceError, match="differ in their states"):
        run(scenario, lambda facts, state, seed: ([], next(turn)))


@pytest.mark.parametrize(
    "moves, message",
    [
        ([("bussy", "fast")], 'move 0: unknown volume "bussy"'),
        ([("busy", "fats")], 'move 0: unknown tier "fats"; known: fast, slow'),
        ([("busy", "fast"), ("busy", "slow")], 'move 1: volume "busy" is moved twice'),
        ([{"volume": "busy", "teir": "fast"}], 'move 0: unknown key "teir"'),
        ([{"volume": "busy"}], 'move 0: missing key "tier"'),
        ([{"volume": "busy", "tier": "fast", "value": float("nan")}], "value is not a finite number"),
        ([{"volume": "busy", "tier": "fast", "device": "slow"}], 'tier "fast" has no device "slow"'),
        ([3], "move 0: must be a dict"),
    ],
)
def test_invalid_move_is_refused(scenario, moves, message):
    with pytest.raises(terrace.TerraceError, match=message):
        run(scenario, lambda facts, state, seed: moves)


def test_state_must_be_plain_data(scenario):
    with pytest.raises(terrace.TerraceError, match="state of strategy Tested is not plain data"):
        run(scenario, lambda facts, state, seed: ([], {1, 2}))


def test_exception_of_the_strategy_reaches_the_caller(scenario):
    with pytest.raises(ZeroDivisionError):
        run(scenario, lambda facts, state, seed: 1 / 0)


def test_moves_may_be_a_table(scenario):
    pa = pytest.importorskip("pyarrow")

    def decide(facts, state, seed):
        volumes = pa.table(facts.volumes).select(["name", "tier"]).to_pylist()
        wanted = [v["name"] for v in volumes if v["tier"] == "slow"]
        return pa.table({"volume": pa.array(wanted, pa.string()), "tier": pa.array(["fast"] * len(wanted), pa.string())})

    assert run(scenario, decide).final_tiers["tier"] == ["fast", "fast"]
