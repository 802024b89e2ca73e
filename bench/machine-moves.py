"""Pairs of moves of a guest's disk, by Terrace and by a plain `virsh blockcopy`; see machine-moves.sh."""

import glob
import json
import os
import pwd
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TERRACE, BENCH = (os.path.abspath(p) for p in sys.argv[1:3])
PAIRS, RATE = int(sys.argv[3]), int(sys.argv[4])
BLOCKS = 16384  # 64 MiB
URI = "qemu:///session"
# Answers come in pairs of request and report; a record has 9 bytes.
RECORD = 9


class Host:
    """libvirt of an ordinary user, in a directory of its own."""

    def __init__(self):
        self.dir = tempfile.mkdtemp()
        os.chmod(self.dir, 0o755)
        self.user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        for name in ("run", "here", "there", "beside"):
            os.mkdir(self.path(name), 0o700 if name == "run" else 0o755)
        shutil.copy(TERRACE, self.path("terrace"))
        self.env = dict(os.environ, HOME=self.dir, TMPDIR=self.dir, LC_ALL="C")
        for key, name in (("RUNTIME_DIR", "run"), ("CONFIG_HOME", "config"), ("CACHE_HOME", "cache"), ("DATA_HOME", "data")):
            self.env["XDG_" + key] = self.path(name)
        self.env["TERRACE_CONTROLLER"] = "unix:" + self.path("state/controller.sock")
        self.server = None
        self.give()

    def path(self, name):
        return os.path.join(self.dir, name)

    def give(self):
        if self.user:
            subprocess.run(["chown", "-R", "nobody", self.dir], check=True)

    def start(self, words, **more):
        if self.user:
            more.update(user=self.user.pw_uid, group=self.user.pw_gid, extra_groups=[])
        return subprocess.Popen(words, env=self.env, cwd=self.dir, **more)

    def run(self, *words):
        process = self.start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=300)
        if process.returncode:
            raise RuntimeError(f"{' '.join(words)}: {err.strip()}")
        return out

    def virsh(self, *words):
        return self.run("virsh", "-q", "-c", URI, *words)

    def terrace(self, *words):
        return self.run(self.path("terrace"), *words)

    def guest(self, name, image, requests):
        subprocess.run([BENCH, "boot-sector", self.path(image), str(requests), str(BLOCKS)], check=True)
        xml = f"""<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
            <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>
            <serial type='file'><source path='{self.path(name)}.log'/></serial>
            <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{self.path(image)}'/>
            <target dev='vda' bus='virtio'/></disk></devices></domain>"""
        with open(self.path(name + ".xml"), "w") as file:
            file.write(xml)
        self.give()
        self.virsh("define", name + ".xml")
        self.virsh("start", name)

    def image(self, name):
        lines = self.virsh("domblklist", name).splitlines()
        return next(line.split()[1] for line in lines if "vda" in line)

    def end(self):
        if self.server:
            self.server.terminate()
            self.server.wait()
        for name in ("mover", "neighbour"):
            try:
                self.virsh("destroy", name)
                self.virsh("undefine", name)
            except RuntimeError:
                pass
        shutil.rmtree(self.dir, ignore_errors=True)


class Watch(threading.Thread):
    """The times at which a guest's report grew."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.times, self.on = path, [], True
        self.start()

    def run(self):
        size = os.stat(self.path).st_size
        while self.on:
            now, new = time.monotonic(), os.stat(self.path).st_size
            if new > size:
                self.times.append((now, (new - size) // RECORD))
                size = new
            time.sleep(0.0005)

    def between(self, begin, end):
        """The longest time without an answer, and the 99th percentile of the time per answer, in milliseconds."""
        seen = [t for t in self.times if begin <= t[0] <= end]
        gaps = [(b[0] - a[0], b[1]) for a, b in zip(seen, seen[1:])]
        each = sorted(gap / max(n, 1) for gap, n in gaps for _ in range(max(n, 1)))
        return max(g for g, _ in gaps) * 1e3, each[int(len(each) * 0.99)] * 1e3, statistics.mean(each) * 1e3


def configure(host, objective_us):
    with open(host.path("kvm.toml"), "w") as file:
        file.write(f"""window = "500ms"
[controller]
state = "state"
[libvirt]
uri = "{URI}"
host = "kvm"
keep_source = "0s"
[[libvirt.classes]]
disks = "neighbour:*"
class = "gold"
[[tiers]]
name = "here"
preset = "sata-ssd"
pools = ["{host.path('here')}"]
[[tiers]]
name = "there"
preset = "sata-ssd"
pools = ["{host.path('there')}"]
[[classes]]
name = "gold"
latency = "{objective_us}us"
statistic = "mean"
[policy]
monitor_epoch = "1s"
migration_epoch = "2s"
copy_bandwidth = "{RATE}B/s"
[modes]
rules = "auto"
latency = "off"
drain = "off"
space = "off"
""")
    host.give()


def intents(host):
    texts = []
    for path in glob.glob(host.path("state/libvirt-moves/*.move.json")):
        try:
            texts.append(json.load(open(path)))
        except (OSError, ValueError):
            pass
    return texts


def by_terrace(host, tier):
    host.terrace("volume", "pin", "mover:vda", tier)
    while not intents(host):
        time.sleep(0.001)
    begin = time.monotonic()
    while any(isinstance(i["phase"], str) for i in intents(host)):
        time.sleep(0.005)
    return begin, time.monotonic()


def by_blockcopy(host, tier):
    old = host.image("mover")
    new = host.path(f"{tier}/mover.raw")
    begin = time.monotonic()
    host.virsh("blockcopy", "mover", "vda", new, "--format", "raw", "--transient-job", "--bandwidth", str(RATE), "--bytes", "--wait", "--pivot")
    end = time.monotonic()
    os.unlink(old)
    return begin, end


def main():
    host = Host()
    watches = []
    try:
        host.guest("mover", "here/mover.raw", 500)
        host.guest("neighbour", "there/neighbour.raw", 100)
        time.sleep(3)
        neighbour = Watch(host.path("neighbour.log"))
        mover = Watch(host.path("mover.log"))
        watches += [neighbour, mover]
        time.sleep(5)
        now = time.monotonic()
        alone = mover.between(now - 5, now), neighbour.between(now - 5, now)
        # What the neighbour has is its objective: what a move takes from it is too much.
        configure(host, max(1, int(alone[1][2] * 1e3)))
        log = open(host.path("serve.log"), "w")
        host.server = host.start([host.path("terrace"), "serve", "--config", "kvm.toml"], stdout=log, stderr=log)
        while not os.path.exists(host.path("state/controller.sock")):
            time.sleep(0.1)
        time.sleep(5)
        print(f"without a move: longest wait {alone[0][0]:.1f} ms, neighbour's p99 {alone[1][1]:.2f} ms")
        print("pair  terrace: longest ms   p99 of neighbour ms   seconds    blockcopy: longest ms   p99 of neighbour ms   seconds")
        pairs = []
        tiers = ["there", "here"]
        for n in range(PAIRS):
            row = []
            # Each first every other time.
            for which in (by_terrace, by_blockcopy) if n % 2 == 0 else (by_blockcopy, by_terrace):
                tier = tiers[0] if host.image("mover").startswith(host.path("here")) else tiers[1]
                if which is by_blockcopy:
                    host.terrace("volume", "pin", "mover:vda", "--none")
                begin, end = which(host, tier)
                time.sleep(1)
                row.append((which.__name__, mover.between(begin, end + 0.5)[0], neighbour.between(begin, end)[1], end - begin))
                time.sleep(2)
            ours, plain = sorted(row, key=lambda r: r[0] != "by_terrace")
            pairs.append((ours, plain))
            print(f"{n + 1:4}  {ours[1]:19.1f} {ours[2]:21.2f} {ours[3]:9.1f}    {plain[1]:21.1f} {plain[2]:21.2f} {plain[3]:9.1f}", flush=True)
        median = lambda which, what: statistics.median(p[which][what] for p in pairs)
        print(
            f"medians: longest wait {median(0, 1):.1f} ms with terrace, {median(1, 1):.1f} ms with blockcopy, {median(0, 1) / median(1, 1):.2f}x; "
            f"neighbour's p99 {median(0, 2):.2f} and {median(1, 2):.2f} ms, {median(0, 2) / median(1, 2):.2f}x"
        )
    finally:
        for watch in watches:
            watch.on = False
            watch.join()
        host.end()


main()
