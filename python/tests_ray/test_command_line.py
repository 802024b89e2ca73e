"""Commands with `--ray` give the bytes of the built-in runner."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="skipped: needs ray")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "target/debug/terrace"
# A cell takes less than a second; Ray starts in half a minute on a slow machine.
LIMIT_S = 280
SWEEP = ["--set", "clients[*].habits.outstanding=2,8", "--seeds", "1..2", "--strategies", "noop,idt"]

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="skipped: needs target/debug/terrace")


def _run(*command):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run([PROGRAM, *command], cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=LIMIT_S)


def _sweep(directory, *more):
    return _run("sim", "sweep", "cli/tests/scenarios/sweep-base.toml", *SWEEP, "--out", directory, *more)


def _stored(directory):
    results = {p.name: json.loads(p.read_text()) for p in directory.glob("*.json")}
    for result in results.values():
        del result["took_s"]
    return results


class Killer(threading.Thread):
    """Kills processes of single cells, until it has killed as many as it should."""

    def __init__(self, kills):
        super().__init__(daemon=True)
        self.kills, self.killed, self.ended = kills, set(), threading.Event()

    def run(self):
        while len(self.killed) < self.kills and not self.ended.wait(0.05):
            for process in filter(str.isdigit, os.listdir("/proc")):
                try:
                    words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                    if words[0] == bytes(PROGRAM) and b"--cell" in words and process not in self.killed:
                        os.kill(int(process), signal.SIGKILL)
                        self.killed.add(process)
                        break
                except OSError:
                    pass


def test_sweep_on_ray_equals_the_built_in_runner(tmp_path):
    for form in ("json", "table"):
        built_in = _sweep(tmp_path / "built-in", "-o", form)
        on_ray = _sweep(tmp_path / f"ray-{form}", "-o", form, "--ray")
        assert on_ray.returncode == 0, on_ray.stderr
        assert on_ray.stdout == built_in.stdout
        assert "8 cells: 8 run, 0 already available" in on_ray.stderr
    again = _sweep(tmp_path / "ray-table", "--ray")
    assert "8 cells: 0 run, 8 already available" in again.stderr
    files = sorted(p.name for p in (tmp_path / "built-in").glob("*.json"))
    assert files == sorted(p.name for p in (tmp_path / "ray-table").glob("*.json"))


def test_decisions_on_ray_with_killed_processes_have_the_bytes_of_the_built_in_runner(tmp_path):
    command = ["bench", "decisions", "--scenarios", "idle,steady", "--strategies", "terrace,noop,static", "--seeds", "1..2", "-o", "json"]
    command += ["--hindsight", "3"]
    built_in = _run(*command, "--out", tmp_path / "built-in")
    killer = Killer(4)
    killer.start()
    on_ray = _run(*command, "--out", tmp_path / "ray", "--ray")
    killer.ended.set()
    killer.join()
    print(f"killed {len(killer.killed)} processes of 16 cells")
    assert on_ray.returncode == 0, on_ray.stderr
    assert len(killer.killed) == 4
    assert on_ray.stdout == built_in.stdout
    assert len(_stored(tmp_path / "ray")) == 16
    assert _stored(tmp_path / "ray") == _stored(tmp_path / "built-in")


def test_experiment_on_ray_has_the_outcome_of_the_built_in_runner(tmp_path):
    terrace = pytest.importorskip("terrace")
    here = terrace.reproduce("autotiering", quick=True, epochs=2, keep=tmp_path / "here")
    there = terrace.reproduce("autotiering", quick=True, epochs=2, keep=tmp_path / "there", ray=True)
    assert there == here
    assert _stored(tmp_path / "there") == _stored(tmp_path / "here") != {}
