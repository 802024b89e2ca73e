"""An array that is served, asked by commands and by its control socket: for the scripts beside this one."""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

TERRACE = os.environ.get("TERRACE", "target/dist/terrace")
# Programs run in directories of their own.
TERRACE = os.path.abspath(shutil.which(TERRACE) or TERRACE)


def told(*args, **how):
    """What a command says."""
    done = subprocess.run([TERRACE, *args], capture_output=True, text=True, **how)
    if done.returncode != 0:
        sys.exit(f"terrace {' '.join(args)}: {done.stderr}")
    return done.stdout


class Served:
    """An array in a directory, and the process that serves it, if one was started."""

    def __init__(self, dir, **env):
        self.dir = dir
        self.array = os.path.join(dir, "array")
        self.env = dict(os.environ, TERRACE_ARRAY=self.array, NO_COLOR="1", **env)
        self.server = None

    def run(self, *args):
        return told(*args, env=self.env)

    def read(self, *args):
        """What a command says, as data."""
        return json.loads(self.run(*args, "-o", "json"))

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.path.join(self.array, "control.sock"))
            s.sendall(json.dumps({"v": 1, **request}).encode() + b"\n")
            answer = json.loads(s.makefile().readline())
        if "error" in answer or answer.get("answer") == "error":
            sys.exit(f"{request['ask']}: {answer}")
        return answer

    def start(self, *args, one_worker=False):
        """Serves it, until `stop`. One worker, so that its volumes share one cache."""
        one = {min(os.sched_getaffinity(0))}
        pinned = (lambda: os.sched_setaffinity(0, one)) if one_worker else None
        with open(os.path.join(self.dir, "server.log"), "w") as log:
            self.server = subprocess.Popen([TERRACE, *args], cwd=self.dir, env=self.env, stdout=log, stderr=log, preexec_fn=pinned)
        atexit.register(self.stop)
        self.wait(os.path.join(self.array, "control.sock"))

    def wait(self, path):
        """Until a file of the server is there."""
        for _ in range(600):
            if os.path.exists(path):
                return
            if self.server.poll() is not None:
                break
            time.sleep(0.05)
        with open(os.path.join(self.dir, "server.log")) as log:
            sys.exit(f"{path} was not created: {log.read()}")

    def stop(self):
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            self.server.wait(30)

    def boot(self, size="64 MiB"):
        """A first tier: only a server takes any description of a device, and it needs an array to begin with."""
        os.mkdir(os.path.join(self.dir, "boot"))
        self.run("tier", "add", "boot", "--dir", os.path.join(self.dir, "boot"), "--size", size)

    def emulated(self, tier, spec, size):
        """A tier of one device that answers as the specification says."""
        os.makedirs(os.path.join(self.dir, tier), exist_ok=True)
        source = {"dir": os.path.join(self.dir, tier)}
        self.ask({"ask": "add-device", "tier": tier, "source": source, "size": size, "emulate": spec, "direct": "off"})


def spec(rate, latency="2 ms", **more):
    """A device of so many reads per second, and as many writes."""
    return {
        "model": f"{rate} reads/s",
        "capacity": "4 GiB",
        "read_iops": rate,
        "write_iops": rate,
        "read_bandwidth": "1 GiB/s",
        "write_bandwidth": "1 GiB/s",
        "read_latency": latency,
        "write_latency": latency,
        "curve": [[0.0, 1.0], [1.0, 2.0]],
        "jitter_sigma": 0.2,
        "usd_per_gb": 1.0,
        **more,
    }


def fio(dir, sock, volume, *more):
    """A guest that reads or writes a volume."""
    args = ["fio", f"--name={volume}", "--ioengine=nbd", f"--uri=nbd+unix:///{volume}?socket={sock}", "--norandommap", "--output-format=json", *more]
    return subprocess.Popen(args, cwd=dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


# Characters that a guest may say: one whose server has gone complains without end.
SAID_MAX = 1 << 20


def ended(guest):
    """What a guest says when it has ended."""
    out = guest.stdout.read(SAID_MAX)
    if len(out) == SAID_MAX:
        guest.terminate()
    guest.stdout.close()
    if guest.wait(30) != 0:
        sys.exit(f"fio: {out[:1000]}")
    return json.loads(out[out.index("{"):])["jobs"][0]


def fill(dir, sock, volume, mib):
    ended(fio(dir, sock, volume, "--rw=write", "--bs=1M", f"--size={mib}M"))


def of_scenario(spec):
    """The same device as lines of a tier of a scenario or of a live configuration."""
    return "spec = { " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in spec.items()) + " }\n"


def found(node, key):
    """The first object in a document that has this key."""
    if isinstance(node, dict) and key in node:
        return node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return next((f for f in (found(child, key) for child in children) if f), None)


def simulated(dir, scenario, *more):
    """The runs of a scenario in a directory."""
    return found(json.loads(told("sim", "run", scenario, "--no-record", "-o", "json", *more, cwd=dir)), "groups")


def group(run, kind, name):
    return next(g for g in run["groups"] if (g["kind"], g["name"]) == (kind, name))
