#!/usr/bin/env python3
"""Self-test of the fake cluster: every endpoint, every refusal, moves under verified writes, random requests, proxmoxer.

Usage: selftest.py [--moves N] [--random N] [--seed N]. Exit status 1 if a check fails. Without QEMU or openssl it prints
what it needs; if TERRACE_HAS lists the missing program, that is a failure.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import checks_api
import checks_faults
import checks_move
import random_requests
from endpoints import ENDPOINTS, find
from testing import HERE, Failed, Running, temporary, until

NEEDS = ("qemu-system-x86_64", "qemu-img", "qemu-io", "openssl")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))

# Additions to the default inventory: storages that are not everywhere, disabled or slow, a guest that boots, a bare token.
MORE = """
[[storages]]
id = "far"
type = "dir"
content = "images"
size = "1G"
nodes = ["pve3"]
[[storages]]
id = "off"
type = "dir"
content = "images"
size = "1G"
enabled = false
[[storages]]
id = "slow"
type = "dir"
content = "images"
size = "1G"
iops = 100
[[vms]]
id = 105
node = "pve3"
running = true
load = 8
reported_qemu = "10.1.2"
[vms.config]
memory = "32"
scsi0 = "slow:16M"
[[tokens]]
id = "bare@pve!bare"
[[tokens.acl]]
path = "/vms"
privileges = ["VM.Audit", "VM.Config.Disk"]
"""

PROXMOXER = """
import sys
from proxmoxer import ProxmoxAPI, ResourceException
from proxmoxer.tools import Tasks

host, port, ca, user, name, secret = sys.argv[1:]
api = ProxmoxAPI(host, port=int(port), user=user, token_name=name, token_value=secret, verify_ssl=ca)
assert api.version.get()["release"] == "9.1"
assert [node["node"] for node in api.nodes.get()] == ["pve1", "pve2", "pve3"]
vm = api.nodes("pve2").qemu(103)
assert vm.status.current.get()["status"] == "stopped"
storage = vm.config.get()["scsi0"].split(":")[0]
upid = vm.move_disk.post(disk="scsi0", storage="local" if storage == "tank" else "tank", digest=vm.config.get()["digest"])
done = Tasks.blocking_status(api, upid, timeout=60, polling_interval=0.1)
assert done["exitstatus"] == "OK", done
assert any("create full clone" in line["t"] for line in api.nodes("pve2").tasks(upid).log.get())
try:
    vm.move_disk.post(disk="scsi9", storage="tank")
    raise SystemExit("a missing disk was not refused")
except ResourceException as error:
    assert error.status_code == 500 and "disk 'scsi9' does not exist" in str(error), error
try:
    vm.config.put(colour="red")
    raise SystemExit("an unknown parameter was not refused")
except ResourceException as error:
    assert error.status_code == 400 and "colour" in error.errors, error
"""


def missing(programs: tuple[str, ...]) -> str | None:
    return next((name for name in programs if not shutil.which(name)), None)


def skip(need: str) -> int:
    if need in os.environ.get("TERRACE_HAS", "").split():
        print(f"TERRACE_HAS lists {need}, which is not available")
        return 1
    print(f"skipped: needs {need}")
    return 0


def proxmoxer(t: Running) -> None:
    """PyPI's client works against the cluster. It is installed below the target directory once."""
    python = TARGET / "pve-cluster-venv" / "bin" / "python"
    have = [str(python), "-c", "import proxmoxer, requests"]
    if not python.exists() or subprocess.run(have, capture_output=True).returncode:
        made = subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], capture_output=True)
        words = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--retries",
            "1",
            "--timeout",
            "10",
            "proxmoxer==2.3.0",
            "requests",
        ]
        if made.returncode or subprocess.run(words, capture_output=True).returncode:
            print("     skipped: needs proxmoxer")
            return
    user, _, name = t.line["token_id"].partition("!")
    host, _, port = t.line["address"].removeprefix("https://").partition(":")
    words = [
        str(python),
        "-c",
        PROXMOXER,
        host,
        port,
        t.line["ca_file"],
        user,
        name,
        Path(t.line["token_file"]).read_text(),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise Failed(f"proxmoxer: {done.stderr.strip()[-2000:]}")


def complete(t: Running) -> None:
    """Every endpoint of the table answered a request of these checks."""
    used = {found[0].handler for method, path in t.used if (found := find(method, path))}
    unused = sorted({endpoint.handler for endpoint in ENDPOINTS} - used)
    if unused:
        raise Failed(f"no check uses {', '.join(unused)}")


def killed(directory: Path) -> None:
    """QEMU ends with the cluster, even if that gets SIGKILL."""
    other = Running(directory)
    other.process.kill()
    other.process.wait()
    until(lambda: not processes(directory), "the end of the processes")


def processes(directory: Path) -> list[str]:
    """Numbers of the QEMU processes of a cluster."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes()
        except OSError:
            continue
        if b"qemu-system" in words and os.fsencode(directory) in words:
            found.append(process.parent.name)
    return found


def cleanup(directory: Path) -> None:
    """After the end nothing is left: no file and no process."""
    if directory.exists():
        raise Failed(f"{directory} is left: {list(directory.rglob('*'))}")
    if left := processes(directory):
        raise Failed(f"processes {left} are left")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=5, help="moves under verified writes")
    parser.add_argument("--random", type=int, default=300, help="random requests")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000000, help="of the random requests")
    words = parser.parse_args()
    if need := missing(NEEDS):
        return skip(need)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=temporary()) as folder:
        inventory = Path(folder) / "inventory.toml"
        inventory.write_text((HERE / "default.toml").read_text() + MORE)
        directory = Path(folder) / "pve"
        t = Running(directory, "--inventory", str(inventory), "--poll-seconds", "0.1", "--lock-seconds", "0.5")
        checks: list[tuple[str, Callable[[], None]]] = [
            ("reading", lambda: checks_api.reading(t)),
            ("machines", lambda: checks_api.machines(t)),
            ("storages", lambda: checks_api.storages(t)),
            ("guest that boots", lambda: checks_api.guest(t)),
            ("states", lambda: checks_api.states(t)),
            ("parameters", lambda: checks_api.parameters(t)),
            ("privileges", lambda: checks_api.privileges(t)),
            ("wire", lambda: checks_api.wire(t)),
            ("limits", lambda: checks_api.limits(t)),
            ("refusals of moves", lambda: checks_move.refusals(t)),
            ("tasks", lambda: checks_api.tasks(t)),
            ("log of a move", lambda: checks_move.logs(t)),
            ("stopped machine", lambda: checks_move.stopped(t)),
            ("special drives", lambda: checks_move.special(t)),
            ("cancelled move", lambda: checks_move.cancelled(t)),
            ("slow storage", lambda: checks_move.slow(t)),
            ("moves under verified writes", lambda: checks_move.verified(t, words.moves)),
            ("faults: answers", lambda: checks_faults.answers(t)),
            ("faults: effects", lambda: checks_faults.effects(t)),
            ("faults: tasks", lambda: checks_faults.tasks(t)),
            ("faults: pivot", lambda: checks_faults.pivot(t)),
            ("faults: nodes", lambda: checks_faults.nodes(t)),
            ("proxmoxer", lambda: proxmoxer(t)),
            ("every endpoint was used", lambda: complete(t)),
            ("random requests", lambda: random_requests.run(t, words.seed, words.random)),
            ("end", t.stop),
            ("nothing is left", lambda: cleanup(directory)),
            ("a kill leaves no process", lambda: killed(Path(folder) / "other")),
        ]
        try:
            for name, check in checks:
                check()
                print(f"ok   {name}", flush=True)
        except Failed as error:
            print(f"FAILED: {name}: {error}")
            return 1
        except Exception:
            print(f"FAILED: {name}")
            traceback.print_exc(file=sys.stdout)
            return 1
        finally:
            if t.process.poll() is None:
                t.process.terminate()
                t.process.wait(60)
    print(f"{len(checks)} checks in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
