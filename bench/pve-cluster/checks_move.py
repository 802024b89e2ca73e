"""Checks of moves: refusals, logs, cancellation, limits of a copy, and moves under verified writes."""

from pathlib import Path

from nbdclient import Nbd
from testing import BLOCK, Failed, Running, Writer, expect, until

BAD = "Parameter verification failed."
ADMIN = "admin@pve!tests"


def refusals(t: Running) -> None:
    path = "/nodes/pve1/qemu/100/move_disk"
    t.refused("POST", path, {"disk": "scsi5", "storage": "tank"}, 500, "disk 'scsi5' does not exist")
    t.refused(
        "POST",
        path,
        {"disk": "scsi0", "storage": "local-lvm"},
        500,
        "you can't move to the same storage with same format",
    )
    t.refused(
        "POST",
        path,
        {"disk": "scsi1", "storage": "local", "format": "qcow2"},
        500,
        "you can't move to the same storage with same format",
    )
    t.refused(
        "POST",
        path,
        {"disk": "scsi0", "storage": "nowhere"},
        403,
        "Permission check failed (/storage/nowhere, Datastore.AllocateSpace)",
        token=t.token("bare@pve!bare"),
    )
    t.refused("POST", path, {"disk": "scsi0", "storage": "nowhere"}, 500, "storage 'nowhere' does not exist")
    t.refused(
        "POST",
        path,
        {"disk": "scsi0", "storage": "vault"},
        400,
        BAD,
        {"storage": "storage 'vault' does not support vm images"},
    )
    t.refused("POST", path, {"disk": "scsi0", "storage": "far"}, 500, "storage 'far' is not available on node 'pve1'")
    t.refused("POST", path, {"disk": "scsi0", "storage": "off"}, 500, "storage 'off' is disabled")
    changed = "detected modified configuration - file changed by other user? Try again."
    t.refused("POST", path, {"disk": "scsi0", "storage": "tank", "digest": "0" * 40}, 500, changed)
    t.refused(
        "POST", "/nodes/pve2/qemu/102/move_disk", {"disk": "ide2", "storage": "shared"}, 500, "you can't move a cdrom"
    )
    with_snapshots = "you can't move a disk with snapshots and delete the source"
    t.refused(
        "POST", "/nodes/pve2/qemu/103/move_disk", {"disk": "scsi0", "storage": "tank", "delete": 1}, 500, with_snapshots
    )
    t.refused(
        "POST",
        "/nodes/pve2/qemu/100/move_disk",
        {"disk": "scsi0", "storage": "tank"},
        500,
        "Configuration file 'nodes/pve2/qemu-server/100.conf' does not exist",
    )
    t.control("set", vmid=100, key="lock", value="snapshot")
    t.refused("POST", path, {"disk": "scsi0", "storage": "tank"}, 500, "VM is locked (snapshot)")
    t.control("set", vmid=100, key="lock", value=None)
    upid = t.move("pve2", 102, "tpmstate0", "local-lvm")
    expect(
        t.ended(upid),
        "storage migration failed: cannot move TPM state while VM is running",
        "TPM state of a running machine",
    )
    t.refused(
        "POST",
        path,
        {"disk": "scsi0", "target-vmid": 101, "target-disk": "scsi0"},
        501,
        "fake cluster: reassignment of a disk to another machine is not modelled",
    )


def logs(t: Running) -> None:
    """A move without deletion leaves the source as unused0, and its log reads as that of qemu-server."""
    digest = t.config(101, "pve1")["digest"]
    upid = t.move("pve1", 101, "virtio0", "local", format="raw", digest=digest, bwlimit=1048576)
    expect(t.ended(upid), "OK", "a move")
    lines = t.log(upid)
    begin = [
        "copying volume 'shared:101/vm-101-disk-0.qcow2' from current storage 'shared' to target storage 'local'",
        "create full clone of drive virtio0 (shared:101/vm-101-disk-0.qcow2)",
        "drive mirror is starting for drive-virtio0 with bandwidth limit: 1048576 KB/s",
    ]
    end = [
        "all 'mirror' jobs are ready",
        "drive-virtio0: Completing block job...",
        "drive-virtio0: Completed successfully.",
        "drive-virtio0: mirror-job finished",
        "adding source volume 'shared:101/vm-101-disk-0.qcow2' as 'unused0' to config",
        "TASK OK",
    ]
    expect((lines[:3], lines[-6:]), (begin, end), "log")
    if not lines[3].startswith("drive-virtio0: transferred "):
        raise Failed(f"no progress in {lines}")
    conf = t.config(101, "pve1")
    expect(
        (conf["virtio0"], conf["unused0"]),
        ("local:101/vm-101-disk-0.raw,size=32M", "shared:101/vm-101-disk-0.qcow2"),
        "drives",
    )
    expect(conf["digest"] == digest, False, "the digest stayed the same")
    expect(
        "vm-101-disk-0.raw" in t.control("human", vmid=101, command="info block drive-virtio0")["text"],
        True,
        "file of the process",
    )
    shared = "/nodes/pve1/storage/shared/content"
    expect(
        [row["volid"] for row in t.get(shared, {"vmid": 101})], ["shared:101/vm-101-disk-0.qcow2"], "the source stays"
    )
    t.call("PUT", "/nodes/pve1/qemu/101/config", {"delete": "unused0", "digest": conf["digest"]})
    expect((t.get(shared, {"vmid": 101}), "unused0" in t.config(101, "pve1")), ([], False), "the source is removed")
    expect(t.ended(t.move("pve1", 101, "virtio0", "shared", format="qcow2", delete=1)), "OK", "the way back")
    expect(t.config(101, "pve1")["virtio0"], "shared:101/vm-101-disk-0.qcow2,size=32M", "drive after the way back")
    expect(
        [row["volid"] for row in t.get("/nodes/pve1/storage/local/content", {"vmid": 101})],
        [],
        "delete=1 removes the source",
    )


def stopped(t: Running) -> None:
    """Offline moves copy by qemu-img; snapshots stay with the old volume, which then cannot be removed."""
    file = Path(t.control("file", node="pve2", volume="local:103/vm-103-disk-0.raw")["path"])
    file.write_bytes(b"terrace!" * (4 << 17) + bytes(28 << 20))
    expect(t.ended(t.move("pve2", 103, "scsi0", "tank")), "OK", "an offline move")
    moved = Path(t.control("file", node="pve2", volume="tank:vm-103-disk-0")["path"])
    expect(moved.read_bytes() == file.read_bytes(), True, "content of the copy")
    expect(t.config(103, "pve2")["unused0"], "local:103/vm-103-disk-0.raw", "unused volume")
    held = "unable to delete 'local:103/vm-103-disk-0.raw' - volume is still in use (snapshot?)"
    t.refused("PUT", "/nodes/pve2/qemu/103/unlink", {"idlist": "unused0"}, 500, held)
    t.control("set", vmid=103, key="protection", value="1")
    protected = "can't remove unused disk 'local:103/vm-103-disk-0.raw' - protection mode enabled"
    t.refused("PUT", "/nodes/pve2/qemu/103/unlink", {"idlist": "unused0"}, 500, protected)
    t.control("set", vmid=103, key="protection", value=None)
    expect(t.ended(t.call("POST", "/nodes/pve2/qemu/103/status/start", token=t.token(ADMIN))), "OK", "start")
    expect(t.get("/nodes/pve2/qemu/103/status/current")["status"], "running", "state after the start")
    expect(
        "vm-103-disk-0" in t.control("human", vmid=103, command="info block drive-scsi0")["text"],
        True,
        "file after the start",
    )
    expect(t.ended(t.call("POST", "/nodes/pve2/qemu/103/status/stop", token=t.token(ADMIN))), "OK", "stop")


def special(t: Running) -> None:
    """EFI disks move by mirror, cloud-init disks are made anew, a drive can be detached and its volume unlinked."""
    expect(t.ended(t.move("pve2", 102, "efidisk0", "local-lvm", delete=1)), "OK", "EFI disk")
    expect(
        t.config(102, "pve2")["efidisk0"].startswith("local-lvm:vm-102-disk-0,efitype=4m"),
        True,
        "EFI disk in the configuration",
    )
    expect(t.ended(t.move("pve3", 104, "ide2", "shared", delete=1)), "OK", "cloud-init disk")
    expect(
        t.config(104, "pve3")["ide2"].startswith("shared:104/vm-104-cloudinit.raw,media=cdrom"),
        True,
        "cloud-init disk in the configuration",
    )
    # LVM rounds 33 MiB up to 36, and QEMU mirrors only to a target of the same size.
    sizes = "storage migration failed: block job (mirror) error: drive-scsi1: Source and target image have different sizes (io-status: ok)"
    expect(t.ended(t.move("pve3", 104, "scsi1", "local-lvm")), sizes, "a target that is rounded up")
    expect(t.ended(t.move("pve3", 104, "scsi1", "shared")), "OK", "a target of the same size")
    t.call("PUT", "/nodes/pve1/qemu/100/config", {"delete": "scsi1"})
    conf = t.config(100, "pve1")
    expect((conf.get("scsi1"), conf["unused0"]), (None, "local:100/vm-100-disk-0.qcow2"), "a detached drive")
    expect(
        "scsi1" in t.get("/nodes/pve1/qemu/100/status/current")["blockstat"], False, "the process still has the drive"
    )
    t.call("PUT", "/nodes/pve1/qemu/100/unlink", {"idlist": "unused0"})
    expect(t.get("/nodes/pve1/storage/local/content", {"vmid": 100}), [], "an unlinked volume")
    stuck = t.raw("PUT", "/nodes/pve1/qemu/101/config", {"delete": "virtio0"})
    expect(
        stuck.body["errors"],
        {"virtio0": "hotplug problem - error on hot-unplugging device 'virtio0'\n"},
        "a device that stays",
    )
    t.call("PUT", "/nodes/pve1/qemu/101/config", {"revert": "virtio0"})
    busy = t.call("DELETE", "/nodes/pve3/storage/tank/content/vm-104-disk-0", token=t.token(ADMIN))
    expect(
        t.ended(busy), "zfs error: cannot destroy 'tank/vm-104-disk-0': dataset is busy", "removal of a volume in use"
    )
    freed = t.call(
        "DELETE", "/nodes/pve2/storage/local/content/local:iso/installer.iso", {"delay": 30}, token=t.token(ADMIN)
    )
    expect(
        (freed, t.get("/nodes/pve2/storage/local/content", {"content": "iso"})), (None, []), "removal within its delay"
    )


def cancelled(t: Running) -> None:
    """A copy keeps to its limit, holds the lock of the configuration, and a cancelled one leaves nothing."""
    path = "/nodes/pve2/qemu/102/config"
    before, nbd = t.config(102, "pve2"), Nbd(t.control("nbd", vmid=102, disk="scsi0")["uri"])
    for block in range(nbd.size // (1 << 20)):
        nbd.write(block << 20, Writer.content(block, 0) * 256)
    nbd.close()
    upid = t.move("pve2", 102, "scsi0", "local-lvm", bwlimit=64)
    job = until(
        lambda: (
            (text := t.control("human", vmid=102, command="info block-jobs")["text"]).startswith("Type mirror") and text
        ),
        "the job",
    )
    expect("speed limit 65536 bytes/s" in job, True, f"speed of {job}")
    expect(t.get(f"/nodes/pve2/tasks/{upid}/status")["status"], "running", "state")
    expect([row["upid"] for row in t.get("/nodes/pve2/tasks", {"source": "active"})], [upid], "active tasks")
    locked = "can't lock file '/var/lock/qemu-server/lock-102.conf' - got timeout"
    t.refused("PUT", path, {"scsi0": f"{before['scsi0']},iops=5"}, 500, locked)
    second = t.move("pve2", 102, "scsi0", "shared")
    expect(t.ended(second), locked, "a second move")
    t.call("DELETE", f"/nodes/pve2/tasks/{upid}")
    expect(
        t.ended(upid), "storage migration failed: block job (mirror) error: interrupted by signal", "a cancelled move"
    )
    lines = t.log(upid)
    expect(
        [line for line in lines if "Cancelling" in line or line.endswith("Done.")],
        ["drive-scsi0: Cancelling block job", "drive-scsi0: Done."],
        "log",
    )
    expect(t.config(102, "pve2"), before, "configuration")
    left = [row["volid"] for row in t.get("/nodes/pve2/storage/local-lvm/content", {"vmid": 102})]
    expect(left, ["local-lvm:vm-102-disk-0"], "volumes")
    expect(
        t.control("human", vmid=102, command="info block-jobs")["text"].strip(), "No active jobs", "jobs of the process"
    )


def slow(t: Running) -> None:
    """A storage that does few requests per second limits its disks; a move away takes the limit, own limits stay."""

    def limits() -> str:
        return str(t.control("human", vmid=105, command="info block drive-scsi0")["text"])

    before = mean(t, 50)
    expect("iops=100 " in limits(), True, "limit of the storage")
    expect(t.ended(t.move("pve3", 105, "scsi0", "tank", delete=1)), "OK", "a move under load")
    after = mean(t, 200)
    expect("iops=" in limits(), False, "limits after the move")
    t.call("PUT", "/nodes/pve3/qemu/105/config", {"scsi0": "tank:vm-105-disk-0,iops=300"})
    expect("iops=300 " in limits(), True, "own limit")
    expect(t.ended(t.move("pve3", 105, "scsi0", "slow", delete=1)), "OK", "the way back")
    expect("iops=100 " in limits(), True, "limit of the storage after the way back")
    t.control("human", vmid=105, command="stop")
    print(f"     mean latency {before / 1e6:.1f} ms on the slow storage, {after / 1e6:.1f} ms on the other")


def mean(t: Running, requests: int) -> float:
    """Mean latency in nanoseconds over the next requests of VM 105."""

    def total() -> tuple[int, int]:
        stats = t.get("/nodes/pve3/qemu/105/status/current")["blockstat"]["scsi0"]
        count = stats["rd_operations"] + stats["wr_operations"]
        return count, stats["rd_total_time_ns"] + stats["wr_total_time_ns"]

    first = total()
    last = until(lambda: (now := total())[0] >= first[0] + requests and now, "requests")
    return float((last[1] - first[1]) / (last[0] - first[0]))


def verified(t: Running, moves: int) -> None:
    """Moves under a guest's writes lose none: neither for the guest nor for a start from the configuration."""
    kinds = [
        ("local", {"format": "qcow2"}),
        ("tank", {}),
        ("shared", {"format": "qcow2"}),
        ("local-lvm", {}),
        ("shared", {"format": "raw"}),
        ("local", {"format": "raw"}),
    ]
    writer = Writer(t.control("nbd", vmid=100, disk="scsi0")["uri"], 1)
    old = ""
    for number in range(moves):
        storage, more = kinds[number % len(kinds)]
        seen, old = writer.count, t.config(100, "pve1")["scsi0"].split(",")[0]
        upid = t.move("pve1", 100, "scsi0", storage, **more)
        expect(t.ended(upid), "OK", f"move {number} to {storage}: {t.log(upid)[-3:]}")
        if writer.count == seen:
            raise Failed(f"no write was acknowledged during move {number}")
        conf = t.config(100, "pve1")
        expect(conf["unused0"], old, "source")
        if number < moves - 1:
            t.call("PUT", "/nodes/pve1/qemu/100/config", {"delete": "unused0", "digest": conf["digest"]})
    until(lambda: writer.count > seen + 50 and writer.count > 500, "writes after the last move")
    writer.finish()
    nbd = Nbd(t.control("nbd", vmid=100, disk="scsi0")["uri"])
    expect(writer.lost(nbd.read), 0, f"lost writes of {len(writer.acknowledged)} blocks")
    nbd.close()
    # The check can fail: the source of the last move lacks the writes after it. It is raw.
    source = Path(t.control("file", node="pve1", volume=old)["path"])
    if source.suffix != ".qcow2":
        stale = source.read_bytes()
        if not writer.lost(lambda offset, length: stale[offset : offset + length]):
            raise Failed("the stale source has all writes, so that the check shows nothing")
    t.control("kill", vmid=100)
    expect(t.get("/nodes/pve1/qemu/100/status/current")["status"], "stopped", "state after the kill")
    t.control("start", vmid=100)
    nbd = Nbd(t.control("nbd", vmid=100, disk="scsi0")["uri"])
    expect(writer.lost(nbd.read), 0, "lost writes after a kill and a start from the configuration")
    nbd.close()
    print(f"     {moves} moves, {writer.count} writes to {len(writer.acknowledged)} blocks of {BLOCK} bytes, 0 lost")
