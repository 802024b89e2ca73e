#!/usr/bin/env python3
"""What live hosts and the simulator answer to the same broken objective. See answers.sh for usage.

usage: answers.py RUNS SETUP
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TERRACE = os.environ.get("TERRACE", os.path.abspath("target/dist/terrace"))
HERE = Path(__file__).parent / "answers"
WITHIN_S = 60
S = 1e9

# As in answers/cache.toml and answers/mirror.toml.
LIVE = """
strategy = "noop"
window = "1s"
[array]
dir = "terrace-array"
[[classes]]
name = "gold"
statistic = "mean"
%s
[response.workflow]
detect = { samples = 6, violating_min = 5, clear_below = 0.3 }
release = { samples = 5, cooldown = "30s" }
settle = "5s"
look_again = "5s"
patience = 0.01
"""
CACHE = """latency = "4ms"
[array.cache]
size = "2 MiB"
page = "4 KiB"
[response]
modes = { throttle = "off", memory-share = "auto" }
"""
MIRROR = """latency = "25ms"
[response]
modes = { throttle = "off", mirror = "auto" }
"""
QUIET_S, LOUD_S = 10, 50


def told(*args, cwd=None, **more):
    done = subprocess.run([TERRACE, *args], capture_output=True, text=True, cwd=cwd, **more)
    if done.returncode != 0:
        sys.exit(f"terrace {' '.join(args)}: {done.stderr}")
    return done.stdout


def simulated(setup, seed):
    """What the simulator takes first, and why."""
    args = ("sim", "run", str(HERE / f"{setup}.toml"), "--seed", str(seed), "--no-record", "-o", "json")
    run = json.loads(told(*args))
    run = run["runs"][0] if "runs" in run else run
    taken = [a for a in run["response"]["answers"] if a["rung"]]
    return taken[0]["rung"] if taken else None


def disk(seed):
    """Answers of the demonstration, oldest first."""
    return json.loads(told("demo", "--violation", "--seconds", "60", "--seed", str(seed), "-o", "json"))["responses"]


def fio(sock, volume, seed, *more):
    args = ["fio", "--name=f", "--ioengine=nbd", f"--uri=nbd+unix:///{volume}?socket={sock}", "--norandommap"]
    return subprocess.Popen([*args, f"--randseed={seed}", *more], stdout=subprocess.DEVNULL)


def read(sock, volume, seed, seconds, mib, *more):
    return fio(sock, volume, seed, "--rw=randread", "--bs=4k", f"--size={mib}M", "--time_based", f"--runtime={seconds}", *more)


@contextlib.contextmanager
def host(config, tiers, volumes):
    """A served array with emulated disks: its directory, and the socket of its volumes, which are filled."""
    with tempfile.TemporaryDirectory(prefix="terrace-answers-") as dir:
        for tier in tiers:
            os.mkdir(os.path.join(dir, tier))
            told("tier", "add", tier, "--dir", tier, "--size", "256 MiB", "--emulate", "disk-15k", cwd=dir)
        for volume, mib, more in volumes:
            told("volume", "create", volume, "--size", f"{mib} MiB", "--tier", tiers[0], *more, cwd=dir)
        Path(dir, "live.toml").write_text(LIVE % config)
        # On one processor there is one worker, and so one cache.
        one = {min(os.sched_getaffinity(0))}
        server = subprocess.Popen(
            [TERRACE, "serve", "--config", "live.toml"],
            cwd=dir,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, one),
        )
        try:
            control = os.path.join(dir, "terrace-array", "control.sock")
            while not os.path.exists(control):
                if server.poll() is not None:
                    sys.exit("the server ended at once")
                time.sleep(0.05)
            sock = os.path.join(dir, "terrace-array", "nbd.sock")
            for volume, mib, _ in volumes:
                if fio(sock, volume, 1, "--rw=write", "--bs=1M", f"--size={mib}M").wait() != 0:
                    sys.exit("fio: the volume could not be filled")
            yield dir, sock
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def all_read(guests):
    """Waits for guests that read; none outlives this."""
    try:
        ended = [guest.wait() for guest in guests]
        if any(ended):
            sys.exit(f"guests had errors: {ended}")
    finally:
        for guest in guests:
            if guest.poll() is None:
                guest.kill()


def answers_for(dir, volume):
    """Answers to a volume's broken objective, oldest first."""
    said = json.loads(told("why", volume, "-o", "json", cwd=dir))
    return list(reversed(said["responses"]))


def cache(seed):
    """A neighbour in the same cache."""
    with host(CACHE, ["disks"], [("orders", 1, ("--class", "gold")), ("batch", 24, ())]) as (dir, sock):
        # So many reads that how they come again is known.
        if fio(sock, "orders", seed, "--rw=randread", "--bs=4k", "--size=1M", "--io_size=40M").wait() != 0:
            sys.exit("fio: the volume could not be read")
        orders = read(sock, "orders", seed, QUIET_S + LOUD_S, 1, "--thinktime=20ms")
        time.sleep(QUIET_S)
        all_read([orders, read(sock, "batch", seed, LOUD_S, 24, "--thinktime=3ms")])
        return answers_for(dir, "orders")


def mirror(seed):
    """A volume that reads more than its disk can, beside an idle one."""
    with host(MIRROR, ["one", "two"], [("catalog", 24, ("--class", "gold"))]) as (dir, sock):
        for seconds, rate in ((QUIET_S, 60), (2 * LOUD_S, 185)):
            all_read([read(sock, "catalog", seed, seconds, 24, "--iodepth=8", f"--rate_iops={rate}")])
        return answers_for(dir, "catalog")


def main():
    runs, setup = int(sys.argv[1]), sys.argv[2]
    live = {"disk": disk, "cache": cache, "mirror": mirror}[setup]
    print(f"{setup}: what is done about the first broken objective, and from when it was found until its last missed window had ended")
    print(f"{'run':>5}  {'live':<14}{'held after, s':>14}  {'simulated':<14}")
    both = 0
    for seed in range(1, runs + 1):
        expected = simulated(setup, seed)
        taken = [r for r in live(seed) if r["state"] in ("in-force", "taken-back")]
        first = taken[0] if taken else None
        rung = first["rung"] if first else None
        held = None
        if first and first.get("recovered_ns"):
            held = (first["missed_last_ns"] - first["found_ns"]) / S
        said = "never" if held is None else f"{held:.1f}"
        print(f"{seed:5}  {rung or 'none':<14}{said:>14}  {expected or 'none':<14}", flush=True)
        both += held is not None and held <= WITHIN_S and rung == expected
    print(f"\nheld within {WITHIN_S} s by the answer that the simulator takes: {both} of {runs} runs")
    return int(both < runs)


if __name__ == "__main__":
    sys.exit(main())
