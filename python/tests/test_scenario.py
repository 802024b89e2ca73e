"""Scenarios: sources, errors with their lines, runs, comparisons, settings."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib

import pytest
from conftest import TEXT

import terrace


def test_native_run_has_tables(scenario):
    result = scenario.simulate("static")
    assert (result.scenario, result.strategy, result.seed) == ("scenario", "static", scenario.seed)
    total = next(g for g in result.groups.to_pylist() if g["kind"] == "total")
    assert total["all_ios"] > 10_000
    assert total["read_mean_us"] > 0
    assert result.groups.units["read_mean_us"] == "us"
    windows = result.windows
    assert windows.num_rows == 18 * len(result.groups)
    assert windows["end_s"][0] - windows["start_s"][0] == 10.0
    assert "IOPS" in str(result)


def test_equal_seeds_give_equal_results_and_others_do_not(scenario):
    first, again = (scenario.simulate("idt", seed=7).to_dict() for _ in range(2))
    assert first == again
    assert scenario.simulate("idt", seed=8).to_dict()["groups"] != first["groups"]


def test_dict_and_text_give_the_same_run(scenario):
    words = tomllib.loads(TEXT)
    of_dict = terrace.Scenario(words).simulate("noop").to_dict()
    of_text = scenario.simulate("noop").to_dict()
    assert of_dict["groups"] == of_text["groups"]


def test_error_has_file_line_and_key(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(TEXT.replace("size = ", "siez = ", 1))
    with pytest.raises(terrace.TerraceError, match='siez: unknown key, did you mean "size"') as caught:
        terrace.Scenario.open(path)
    line = TEXT[: TEXT.index("size = ")].count("\n") + 1
    assert (caught.value.file, caught.value.line) == (str(path), line)
    assert isinstance(caught.value, ValueError)


def test_missing_file_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing.toml"):
        terrace.Scenario.open(tmp_path / "nothing.toml")


def test_unknown_strategy_and_metric_are_refused(scenario):
    with pytest.raises(terrace.TerraceError, match="did you mean"):
        scenario.simulate("statik")
    with pytest.raises(terrace.TerraceError, match="metric"):
        scenario.compare(["noop"], metrics=["latencee"])
    with pytest.raises(terrace.TerraceError, match="decide"):
        scenario.simulate(3)


def test_settings_change_the_scenario(scenario):
    changed = scenario.with_settings({"volumes[busy].tier": "fast", "duration": "1m"})
    assert changed.simulate("noop").final_tiers["tier"] == ["fast", "fast"]
    assert scenario.simulate("noop").final_tiers["tier"] == ["slow", "fast"]
    with pytest.raises(terrace.TerraceError, match="unknown key"):
        scenario.with_settings({"policy.hould": 2})


def test_comparison_has_intervals(scenario):
    compared = scenario.compare(["noop", "static"], seeds=[1, 2, 3], metrics=["iops", "latency_p99_us"])
    assert compared.runs["seed"] == [1, 2, 3, 1, 2, 3]
    row = compared.means.to_pylist()[0]
    assert (row["strategy"], row["metric"], row["seeds"]) == ("noop", "iops", 3)
    values = compared.runs["iops"][:3]
    assert row["mean"] == pytest.approx(sum(values) / 3)
    assert row["ci95_low"] <= row["mean"] <= row["ci95_high"]
    assert "means over 3 seeds" in str(compared)


def test_comparison_equals_the_command_line(scenario, tmp_path):
    program = os.environ.get("TERRACE")
    if not program:
        pytest.skip("skipped: needs TERRACE, the path of the program")
    path = tmp_path / "scenario.toml"
    path.write_text(TEXT)
    command = [program, "sim", "sweep", str(path), "--strategies", "noop,static", "--seeds", "1..2", "-o", "json"]
    out = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout
    ours = scenario.compare(["noop", "static"], seeds=[1, 2]).to_dict()
    assert json.loads(out)["means"] == ours["means"]


def test_progress_callback_is_called(scenario):
    long = scenario.with_settings({"duration": "60m"})
    seen = []
    long.simulate("noop", progress=lambda share, requests: seen.append((share, requests)))
    assert seen == sorted(seen)
    assert all(0 < share <= 1 for share, _ in seen)


def test_exception_in_progress_ends_the_run(scenario):
    def refuse(share, requests):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        scenario.with_settings({"duration": "24h"}).simulate("noop", progress=refuse)


def test_other_threads_run_during_a_simulation(scenario):
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(1)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    before = len(ticks)
    scenario.with_settings({"duration": "60m"}).simulate("noop")
    during = len(ticks) - before
    done.set()
    thread.join()
    assert during > 3


def test_interrupt_ends_a_long_run():
    code = f"""
import signal, terrace
# It is ignored below a shell that runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
scenario = terrace.Scenario({TEXT!r}).with_settings({{"duration": "500h"}})
try:
    scenario.simulate("noop", progress=lambda share, requests: print("running", flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=120)
    assert out.endswith("interrupted\n") and child.returncode == 0


@pytest.mark.parametrize("call", ["scenario.simulate(Endless)", "terrace.sweep(scenario, None, ['noop', Endless], [1]).run()"])
def test_interrupt_ends_a_strategy_that_never_returns(tmp_path, call):
    code = f"""
import signal, terrace
# It is ignored below a shell that runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Endless:
    def decide(self, facts, state, seed):
        print("running", flush=True)
        while True:
            pass

scenario = terrace.Scenario({TEXT!r})
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    script = tmp_path / "endless.py"
    script.write_text(code)
    child = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=120)
    finally:
        child.kill()
    assert (out, child.returncode) == ("interrupted\n", 0)


def test_other_threads_run_while_a_sweep_waits_for_a_file(tmp_path):
    words = TEXT[: TEXT.index("[[clients]]")] + '[[traces]]\nfile = "pipe.csv"\nvolumes = { v0 = "busy" }\n'
    os.mkfifo(tmp_path / "pipe.csv")
    code = f"""
import os, threading, time, terrace
scenario = terrace.Scenario({words!r}, base={str(tmp_path)!r})

def refused(call):
    try:
        call()
    except terrace.TerraceError:
        print("refused", flush=True)

def feed():
    while True:
        open({str(tmp_path / "pipe.csv")!r}, "w").close()

calls = [lambda: scenario.simulate("noop"), lambda: terrace.sweep(scenario, None, ["noop"])]
threads = [threading.Thread(target=refused, args=(call,)) for call in calls]
for thread in threads:
    thread.start()
    time.sleep(0.5)
threading.Thread(target=feed, daemon=True).start()
for thread in threads:
    thread.join()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.returncode) == ("refused\n" * 2, 0), ran.stderr
