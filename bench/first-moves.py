"""From the installation of the package to the first confirmed move, as an operator does it, without a hand-written configuration.

usage: first-moves.py CHROOT|cluster PACKAGE [OBSERVATION]

CHROOT has QEMU and libvirt; guests run there in a session of the user `nobody`. `cluster` is the fake Proxmox VE cluster, whose package is
unpacked. The guest of db is on slow storage: a loop device whose requests take 100 ms more, or a storage with a limit. The operator installs
the package, writes a configuration by `terrace init`, permits moves in it, starts the controller, runs `terrace trial` for five minutes,
pins db to the tier that the trial recommends, and applies the plan with this move. The controller's own recommendation comes after two
decisions (`policy.hold`), half an hour with the default epochs. Prints a line with both times and fails if one is above its limit:
10 minutes to the trial's recommendation of db, 20 minutes to its confirmed move. Needs root; the caller gives a private mount namespace.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

RECOMMENDED_S, MOVED_S = 600, 1200
CLUSTER = pathlib.Path(__file__).resolve().parent / "pve-cluster"
IMAGE_BYTES = 64 << 20
# Guests: storage and requests per tick of the clock, 18.2 times a second. An emulated guest on slow storage takes a processor while it waits,
# and the disks of other guests become slower, by 20 ms under QEMU 11.1. The slow storage is slower than that by far.
GUESTS = {"db": ("slow", 10), "web": ("fast", 2)}
sys.path.append(str(CLUSTER))
from bootsector import boot_sector  # noqa: E402
NOBODY = 65534


def run(*words, **more):
    return subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, **more).stdout


def wait(what, true, seconds):
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise SystemExit(f"FAILED: after {seconds} s {what}")
        time.sleep(0.5)


class Host:
    """A host whose operator works in the directory `dir`, with programs that end with it."""

    def __init__(self, dir):
        self.dir, self.programs = pathlib.Path(dir), []

    def start(self, *words, **more):
        self.programs.append(subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, **more))
        return self.programs[-1]

    def terrace(self, *words):
        return run(*self.operator("terrace", *words), env=self.env)

    def end(self):
        for program in reversed(self.programs):
            program.send_signal(signal.SIGTERM)
            try:
                program.wait(30)
            except subprocess.TimeoutExpired:
                program.kill()


class Libvirt(Host):
    """libvirt in session mode in a chroot, with a fast and a slow directory."""

    find, probe, disk = (), ("--probe",), "db:vda"

    def __init__(self, root):
        # A new directory for each run: the libvirtd of an earlier run would remove the socket of this one.
        self.work = f"/srv/operator-{os.getpid()}"
        super().__init__(root + self.work)
        self.root = root
        for sub in ("run", "config", "cache", "data", "fast", "slow"):
            (self.dir / sub).mkdir(parents=True, mode=0o700)
        self.env = {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "HOME": self.work, "LC_ALL": "C"}
        for key, sub in (("RUNTIME_DIR", "run"), ("CONFIG_HOME", "config"), ("CACHE_HOME", "cache"), ("DATA_HOME", "data")):
            self.env["XDG_" + key] = f"{self.work}/{sub}"
        self.loop = None

    def operator(self, *words):
        # A shell, because chroot leaves the operator in its root directory.
        return ["chroot", f"--userspec={NOBODY}:{NOBODY}", self.root, "sh", "-c", f'cd {self.work} && exec "$@"', "sh", *words]

    def prepare(self):
        """The host as the operator finds it: storage of two speeds, and two guests."""
        backing, mount = self.dir / "slow.img", self.dir / "nbd"
        mount.mkdir()
        with open(backing, "wb") as file:
            file.truncate(1 << 30)
        socket = self.dir / "slow.sock"
        self.start("nbdkit", "-f", "--unix", socket, "--filter=delay", "file", backing, "rdelay=100ms", "wdelay=100ms")
        wait("nbdkit does not listen", socket.exists, 20)
        self.start("nbdfuse", mount / "disk", f"nbd+unix:///?socket={socket}")
        wait("nbdfuse has no file", (mount / "disk").exists, 20)
        self.loop = run("losetup", "--direct-io=on", "--find", "--show", mount / "disk").strip()
        run("mkfs.ext4", "-q", self.loop)
        run("mount", self.loop, self.dir / "slow")
        for name, (place, requests) in GUESTS.items():
            image = self.dir / place / f"{name}.raw"
            with open(image, "wb") as file:
                # Without holes: the probe reads no image of which less than 1 MiB is allocated.
                file.write(boot_sector(requests, IMAGE_BYTES).ljust(IMAGE_BYTES, b"\0"))
            (self.dir / f"{name}.xml").write_text(
                f"""<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
                <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>
                <serial type='file'><source path='{self.work}/{name}.log'/></serial>
                <disk type='file' device='disk'><driver name='qemu' type='raw' cache='none'/>
                <source file='{self.work}/{place}/{name}.raw'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""
            )
        run("chown", "-R", NOBODY, *(self.dir / sub for sub in ("run", "config", "cache", "data", "fast", "slow")))
        os.chown(self.dir, NOBODY, NOBODY)
        for name in GUESTS:
            self.virsh("define", f"{name}.xml")
            self.virsh("start", name)

    def virsh(self, *words):
        return run(*self.operator("virsh", "-q", "-c", "qemu:///session", *words), env=self.env)

    def install(self, package):
        shutil.copy(package, self.root + "/tmp/terrace.deb")
        run("chroot", self.root, "dpkg", "--install", "/tmp/terrace.deb", env=self.env)

    def place(self):
        """Where the disk is, for the running guest and for its next start."""
        places = []
        for more in ([], ["--inactive"]):
            line = next(line for line in self.virsh("domblklist", "db", *more).splitlines() if "vda" in line)
            places.append(line.split()[1].split("/")[-2])
        return places

    def moved(self):
        return self.place() == ["fast", "fast"]

    def end(self):
        for name in GUESTS:
            subprocess.run([str(w) for w in self.operator("virsh", "-q", "-c", "qemu:///session", "destroy", name)], env=self.env, stderr=subprocess.DEVNULL)
        subprocess.run(["umount", str(self.dir / "slow")], stderr=subprocess.DEVNULL)
        if self.loop:
            subprocess.run(["losetup", "--detach", self.loop], check=False)
        subprocess.run(["chroot", self.root, "dpkg", "--purge", "terrace"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        super().end()
        shutil.rmtree(self.dir, ignore_errors=True)


class Proxmox(Host):
    """The fake cluster, with a storage whose devices have a limit."""

    probe, disk = (), "db-100:scsi0"

    def __init__(self, dir):
        super().__init__(dir)
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        self.env = dict(os.environ, LC_ALL="C")

    def operator(self, *words):
        return ["env", f"--chdir={self.dir}", self.dir / "root/usr/bin" / words[0], *words[1:]]

    def prepare(self):
        text = 'version = "9.1.4"\n[[nodes]]\nname = "pve1"\n'
        for storage, limit in (("fast", ""), ("slow", "iops = 30\n")):
            text += f'[[storages]]\nid = "{storage}"\ntype = "lvmthin"\ncontent = "images"\nsize = "2G"\n{limit}'
        for number, (name, (storage, load)) in enumerate(GUESTS.items()):
            # Disks of this machine's QEMU, if it is older than 8.0, would stay.
            text += f'[[vms]]\nid = {100 + number}\nnode = "pve1"\nrunning = true\nload = {load}\nreported_qemu = "10.0.13"\n[vms.config]\nname = "{name}"\nmemory = "32"\n'
            text += f'scsihw = "virtio-scsi-single"\nboot = "order=scsi0"\nscsi0 = "{storage}:64M"\n'
        text += '[[tokens]]\nid = "terrace@pve!terrace"\n'
        rights = {"/": ["Sys.Audit"], "/vms": ["VM.Audit", "VM.Config.Disk"], "/storage": ["Datastore.Audit", "Datastore.AllocateSpace"]}
        for path, privileges in rights.items():
            text += f'[[tokens.acl]]\npath = "{path}"\nprivileges = {json.dumps(privileges)}\n'
        inventory = self.dir / "inventory.toml"
        inventory.write_text(text)
        words = [sys.executable, CLUSTER / "cluster.py", "--directory", self.dir / "pve", "--inventory", inventory]
        self.cluster = json.loads(self.start(*words, stdout=subprocess.PIPE, text=True).stdout.readline())
        secret = pathlib.Path(self.cluster["token_file"]).read_text().strip()
        self.token = f"{self.cluster['token_id']}={secret}"
        token = self.dir / "token"
        token.touch(0o600)
        token.write_text(self.token + "\n")
        self.find = (self.cluster["address"], "--token", "token", "--ca", self.cluster["ca_file"])

    def install(self, package):
        run("dpkg", "--extract", package, self.dir / "root")

    def place(self):
        url = f"{self.cluster['address']}/api2/json/nodes/pve1/qemu/100/config"
        answer = run("curl", "-sS", "--cacert", self.cluster["ca_file"], "-H", f"Authorization: PVEAPIToken={self.token}", url)
        return json.loads(answer)["data"]["scsi0"].split(":")[0]

    def moved(self):
        return self.place() == "fast"


def main():
    root, package = sys.argv[1:3]
    # All that was started ends with the script.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    observe = sys.argv[3] if len(sys.argv) > 3 else "5m"
    host = Proxmox(os.path.abspath("target/hosts/operator")) if root == "cluster" else Libvirt(root)
    try:
        host.prepare()
        time.sleep(10)
        began = time.monotonic()
        host.install(package)
        host.terrace("init", *host.find, *host.probe)
        config = host.dir / "terrace.toml"
        config.write_text(config.read_text().replace("moves = false", "moves = true"))
        host.terrace("config", "check", "terrace.toml")
        host.start(*host.operator("terrace", "serve", "--config", "terrace.toml"), env=host.env, stdout=sys.stderr, stderr=sys.stderr)
        trial = json.loads(host.terrace("trial", *host.find, *host.probe, "--for", observe, "-o", "json"))
        print(json.dumps(trial), file=sys.stderr)
        move = next((m for m in trial["plan"]["moves"] if m["volume"] == host.disk), None)
        if not move or move.get("doubt") or move["after_us"] >= move["before_us"]:
            raise SystemExit(f"FAILED: the trial does not recommend a faster tier for {host.disk}")
        recommended = time.monotonic() - began
        # The same as the operator reads it, while the controller measures for its first plan.
        print(host.terrace("trial", *host.find, *host.probe, "--for", "2m"), file=sys.stderr)
        host.terrace("volume", "pin", host.disk, move["to_tier"])

        def planned():
            try:
                plan = json.loads(host.terrace("plan", "-o", "json"))
            except subprocess.CalledProcessError:
                return None  # there is no plan yet
            return next(((plan["generation"], m["position"]) for m in plan.get("moves", []) if m["volume"] == host.disk), None)

        wait(f"no plan moves {host.disk}", planned, MOVED_S)
        plan, position = planned()
        print(host.terrace("plan", "--explain"), host.terrace("apply", plan, "--only", position, "--yes"), file=sys.stderr)
        wait(f"{host.disk} is on {host.place()}", host.moved, 300)
        done = lambda: any(j["volume"] == host.disk and j["state"] == "done" for j in json.loads(host.terrace("job", "list", "-o", "json"))["jobs"])
        wait("the job is not confirmed", done, 120)
        moved = time.monotonic() - began
        print(f"{recommended:.0f} s from installation to the recommendation, {moved:.0f} s to the confirmed move")
        if recommended > RECOMMENDED_S or moved > MOVED_S:
            raise SystemExit(f"FAILED: the limits are {RECOMMENDED_S} s and {MOVED_S} s")
    finally:
        host.end()


main()
