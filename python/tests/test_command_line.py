"""Strategies in Python from the command line: the same results as in this process, errors, the contest. Needs the program terrace."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import TEXT

import terrace

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("TERRACE", ROOT / "target/debug/terrace"))
LIMIT_S = 240

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="skipped: needs the program terrace (cargo build, or TERRACE=PATH)")

PROMOTE = '''
class Promote:
    """Moves the busiest volume to the first tier."""

    def decide(self, facts, state, seed):
        seen = (state or 0.1) * 1.1
        volumes = [v for v in facts.volumes.to_pylist() if v["iops"] is not None]
        busiest = max(volumes, key=lambda v: (v["iops"], v["name"]))
        fast = facts.tiers["name"][0]
        if busiest["tier"] == fast:
            return [], seen
        return [{"volume": busiest["name"], "tier": fast, "latency_us": seen, "reason": f"{busiest['iops']} IOPS"}], seen


class Fails:
    def decide(self, facts, state, seed):
        return facts.volumes["no such column"]


class Unordered:
    def decide(self, facts, state, seed):
        return [], list({"one", "two", "three", "four", "five", "six"})


class Remembers:
    seen = 0

    def decide(self, facts, state, seed):
        self.seen += 1
        return [], self.seen


class Misspells:
    def decide(self, facts, state, seed):
        return [("bussy", "fast")]


class Prints:
    def decide(self, facts, state, seed):
        print("on the way")
        return []


class Exits:
    def decide(self, facts, state, seed):
        import os

        os._exit(7)


class Asks:
    def decide(self, facts, state, seed):
        return [(input(), "fast")]


class Undecodable:
    def decide(self, facts, state, seed):
        raise ValueError(b"\\xff".decode("utf-8", "surrogateescape"))


class Forks:
    def decide(self, facts, state, seed):
        import os

        os.fork()
        return []


class Hangs:
    def decide(self, facts, state, seed):
        import os

        with open(f"pid-{os.getpid()}", "w"):
            pass
        while True:
            pass
'''


@pytest.fixture
def files(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    (tmp_path / "my.py").write_text(PROMOTE)
    return tmp_path


def run(directory, *arguments, python=sys.executable):
    """Runs the program in a directory; this interpreter has the package."""
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        cwd=directory,
        env={**os.environ, "TERRACE_PYTHON": python},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def simulated(directory, name):
    return run(directory, "sim", "run", "s.toml", "--no-record", "--strategy", name)


def test_results_match_the_package(files, monkeypatch):
    monkeypatch.chdir(files)
    ran = run(files, "sim", "compare", "s.toml", "-o", "json", "--full", "--no-optimum", "--strategies", "noop,my.py:Promote")
    assert ran.returncode == 0, ran.stderr
    _, here = json.loads(ran.stdout)["runs"]
    there = terrace.Scenario.open("s.toml").simulate("my.py:Promote").to_dict()
    assert here["manifest"]["strategy"] == there["manifest"]["strategy"] == "my.py:Promote"
    here["manifest"], there["manifest"] = None, None
    assert here["move_log"] and here == there


def test_sweep_uses_the_results_of_the_package(files, monkeypatch):
    monkeypatch.chdir(files)
    sweep = terrace.sweep(terrace.Scenario.open("s.toml"), {"policy.hold": [1, 2]}, strategies=["my.py:Promote"], seeds=[1, 2])
    compared = sweep.run("results")
    before = {p.name: p.stat().st_mtime_ns for p in (files / "results").iterdir()}
    grid = ["--set", "policy.hold=1,2", "--strategies", "my.py:Promote", "--seeds", "1,2"]
    ran = run(files, "sim", "sweep", "s.toml", *grid, "--out", "results", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.rstrip() == compared.to_json().rstrip()
    assert compared.runs["moves_done"][0] == 1.0
    assert {p.name: p.stat().st_mtime_ns for p in (files / "results").glob("*.json")} == before


@pytest.mark.parametrize(
    "name, words",
    [
        ("Fails", ["my.py:17: KeyError", "in decide", 'return facts.volumes["no such column"]']),
        ("Unordered", ["two interpreters with different hash seeds differ in their states"]),
        ("Remembers", ["strategy Remembers is not deterministic", "two decisions"]),
        ("Misspells", ['move 0: unknown volume "bussy"']),
        ("Asks", ["my.py:", "EOFError"]),
        ("Undecodable", ["my.py:", "ValueError: \\udcff"]),
        ("Exits", ["its process ended (exit status: 7)"]),
        ("Missing", ["my.py has no Missing"]),
    ],
)
def test_faults_end_the_run_with_their_position(files, name, words):
    ran = simulated(files, f"my.py:{name}")
    assert ran.returncode != 0
    for word in words:
        assert word in ran.stderr
    assert f"my.py:{name}" in ran.stderr


def test_printed_output_of_a_strategy_is_not_parsed_as_decisions(files):
    ran = simulated(files, "my.py:Prints")
    assert ran.returncode == 0, ran.stderr
    assert "on the way" in ran.stderr and "on the way" not in ran.stdout


def test_forked_copy_of_a_strategy_does_not_reply(files):
    ran = simulated(files, "my.py:Forks")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="skipped: processes end with their parent on Linux")
def test_strategy_that_never_returns_ends_with_the_program(files):
    command = [PROGRAM, "sim", "run", "s.toml", "--no-record", "--strategy", "my.py:Hangs"]
    program = subprocess.Popen(command, cwd=files, env={**os.environ, "TERRACE_PYTHON": sys.executable})
    deadline = time.monotonic() + LIMIT_S

    def wait_until(condition):
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    try:
        wait_until(lambda: len(list(files.glob("pid-*"))) == 2)
    finally:
        program.kill()
        program.wait()
    for file in files.glob("pid-*"):
        stat = Path("/proc", file.name.removeprefix("pid-"), "stat")
        wait_until(lambda: not stat.exists() or ") Z " in stat.read_text())


def test_missing_files_and_packages_are_named(files):
    assert "file none.py does not exist" in simulated(files, "none.py:Promote").stderr
    (files / "wrong.py").write_text("class Promote:\n    def decide(:\n")
    assert "wrong.py:2: SyntaxError" in simulated(files, "wrong.py:Promote").stderr
    ran = run(files, "sim", "run", "s.toml", "--strategy", "my.py:Promote", python="false")
    assert ran.returncode != 0 and "pip install ./python" in ran.stderr


def contest(files, *arguments):
    suite = files / "suite"
    if not suite.exists():
        suite.mkdir()
        (suite / "one.toml").write_text(TEXT.replace("200us", "20us"))
        (suite / "suite.toml").write_text('[fixed]\none = ["class", "place"]\n')
    strategies = f"{ROOT}/examples/strategies/protect_slo.py:ProtectSlo,noop,static"
    source = ["--suite", suite, "--seeds", "1..2", "--strategies", strategies, "--out", files / "kept"]
    return run(ROOT, "bench", "decisions", *source, *arguments)


def test_submission_is_reproducible_and_a_manipulated_result_is_found(files):
    ran = contest(files, "--figures", files / "results.json")
    assert ran.returncode == 0, ran.stderr
    checked = contest(files, "--check", files / "results.json")
    assert "a new run has the same results" in checked.stdout, checked.stderr
    # The reduced suite is not that of the contest.
    assert checked.returncode == 1
    assert "the seeds are [1, 2], not [1, 2, 3, 4, 5]" in checked.stdout
    assert "the rival idt is missing" in checked.stdout
    results = json.loads((files / "results.json").read_text())
    (own,) = [s for s in results["scenarios"][0]["strategies"] if s["strategy"].endswith("ProtectSlo")]
    assert sum(own["moves"]) > 0
    own["violation"][1] /= 2
    (files / "manipulated.json").write_text(json.dumps(results))
    checked = contest(files, "--check", files / "manipulated.json")
    assert checked.returncode == 1
    assert "ProtectSlo.violation.1: " in checked.stdout
    assert "1 difference from" in checked.stdout


def test_failure_of_a_submission_ends_the_evaluation(files):
    (files / "suite").mkdir()
    (files / "suite" / "one.toml").write_text(TEXT)
    ran = run(files, "bench", "decisions", "--suite", "suite", "--seeds", "1", "--strategies", "my.py:Fails,noop")
    assert ran.returncode != 0
    assert "one, seed 1" in ran.stderr and "my.py:17: KeyError" in ran.stderr


def stored(directory):
    """Results in a directory without the time that they took."""
    results = {p.name: json.loads(p.read_text()) for p in directory.glob("*.json")}
    for result in results.values():
        del result["took_s"]
    return results


def test_decisions_in_processes_of_their_own_have_the_same_bytes(files):
    (files / "suite").mkdir()
    (files / "s.toml").rename(files / "suite/small.toml")
    command = ["bench", "decisions", "--suite", "suite", "--strategies", "static,noop", "--seeds", "1,2", "--hindsight", "3", "-o", "json"]
    here = run(files, *command, "--out", "here")
    there = run(files, *command, "--out", "there", "--ray=processes")
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    assert len(stored(files / "here")) == 6
    assert stored(files / "there") == stored(files / "here")
    written = {p: p.stat().st_mtime_ns for p in (files / "there").glob("*.json")}
    run(files, *command, "--out", "there", "--ray=processes", "--again", "noop")
    again = [p for p, time_ns in written.items() if p.stat().st_mtime_ns != time_ns]
    assert len(again) == 2


def test_experiment_in_processes_of_its_own_has_the_same_bytes(tmp_path):
    here = terrace.reproduce("autotiering", quick=True, epochs=2, keep=tmp_path / "here")
    there = terrace.reproduce("autotiering", quick=True, epochs=2, keep=tmp_path / "there", ray="processes")
    assert there == here
    assert stored(tmp_path / "there") == stored(tmp_path / "here") != {}


def test_cell_that_fails_names_its_reason(tmp_path):
    (tmp_path / "keep").mkdir()
    with pytest.raises(terrace.TerraceError, match="--keep DIR"):
        terrace.reproduce("autotiering", quick=True, ray="processes")
