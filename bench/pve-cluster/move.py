"""Move of a disk to another storage: the checks of the request, and the worker that copies.

Sources: qemu-server, PVE/API2/Qemu.pm: move_vm_disk; PVE/QemuServer.pm: clone_disk, resolve_dst_disk_format;
PVE/QemuServer/BlockJob.pm: qemu_drive_mirror, qemu_drive_mirror_monitor, qemu_blockjobs_cancel.
"""

import subprocess
import time
from dataclasses import dataclass

import drives
from cluster_state import Cluster
from errors import ApiError, Interrupted, NotModelled, param_error
from guestconfig import GuestConfig
from machine import Machine
from qmp import Qmp, QmpError
from schema import format_size
from tasks import Task

# Seconds after which a mirror that cannot be completed is given up, in looks at the job.
COMPLETE_TRIES = 300


@dataclass
class Move:
    """Parameters of a request."""

    node: str
    vmid: int
    disk: str
    storage: str
    format: str
    delete: bool
    digest: str
    bwlimit: int | None


def check(cluster: Cluster, move: Move) -> tuple[GuestConfig, drives.Drive, str, bool]:
    """Configuration, drive, old storage and whether snapshots hold the volume. Source: $load_and_check_move."""
    conf = cluster.config(move.vmid, move.node)
    conf.check_lock()
    if move.digest and move.digest != conf.digest:
        # Source: pve-common, PVE/Tools.pm: assert_if_modified.
        raise ApiError("detected modified configuration - file changed by other user? Try again.")
    if move.disk not in conf.values:
        raise ApiError(f"disk '{move.disk}' does not exist")
    drive = drives.parse_drive(move.disk, conf.values[move.disk])
    if drive is None or not drive.get("file"):
        raise ApiError(f"disk '{move.disk}' has no associated volume")
    if drives.is_cdrom(drive, exclude_cloudinit=True):
        raise ApiError("you can't move a cdrom")
    volume = cluster.volumes.parse(drive["file"])
    if volume.storage == move.storage and (not move.format or volume.format == move.format):
        raise ApiError("you can't move to the same storage with same format")
    spec = cluster.volumes.checked(move.storage, move.node)
    if "images" not in spec.content:
        raise param_error({"storage": f"storage '{move.storage}' does not support vm images"})
    snapshotted = conf.volume_in_use(drive["file"], move.disk)
    if snapshotted and move.delete:
        raise ApiError("you can't move a disk with snapshots and delete the source")
    return conf, drive, volume.storage, snapshotted


def request(cluster: Cluster, token: str, parameters: dict[str, str], hold: str) -> Task:
    """Source: the end of move_vm_disk."""
    storage, target = parameters.get("storage", ""), parameters.get("target-vmid", "")
    if storage and target:
        message = "either set 'storage' or 'target-vmid', but not both"
        raise param_error({"target-vmid": message, "storage": message})
    if target:
        raise NotModelled("reassignment of a disk to another machine")
    if not storage:
        message = "both 'storage' and 'target-vmid' missing, either needs to be set"
        raise param_error({"target-vmid": message, "storage": message})
    cluster.access.check(token, f"/storage/{storage}", "Datastore.AllocateSpace")
    limit = parameters.get("bwlimit")
    move = Move(
        parameters["node"],
        int(parameters["vmid"]),
        parameters["disk"],
        storage,
        parameters.get("format", ""),
        parameters.get("delete") == "1",
        parameters.get("digest", ""),
        # Zero overrides limits with none. Source: pve-storage, PVE/Storage.pm: get_bandwidth_limit.
        int(limit) if limit and int(limit) else None,
    )
    check(cluster, move)
    return cluster.worker(move.node, "qmmove", str(move.vmid), token, lambda task: work(cluster, move, task), hold)


def work(cluster: Cluster, move: Move, task: Task) -> None:
    """Source: $move_updatefn."""
    with cluster.config_locked(move.vmid, task):
        conf, drive, old_storage, snapshotted = check(cluster, move)
        old = drive["file"]
        machine = cluster.machines[move.vmid]
        task.print(f"copying volume '{old}' from current storage '{old_storage}' to target storage '{move.storage}'")
        created: list[str] = []
        try:
            if snapshotted:
                task.print("moving disk with snapshots, snapshots will not be moved!")
            new = clone(cluster, move, machine, drive, task, created)
            task.wait_at("pivot")
            conf.values[move.disk] = drives.print_drive(new) if not drives.is_unused(move.disk) else new["file"]
            if not move.delete and (key := conf.add_unused(old)):
                task.print(f"adding source volume '{old}' as '{key}' to config")
            conf.write()
        except (ApiError, Interrupted) as error:
            for volume in created:
                try:
                    cluster.volumes.free(volume, move.node)
                except ApiError as other:
                    task.print(other.message)
            text = error.message if isinstance(error, ApiError) else "interrupted by signal"
            raise ApiError(f"storage migration failed: {text}") from error
        if move.delete:
            task.print(f"removing source volume '{old}' after successful copy")
            try:
                cluster.volumes.free(old, move.node)
            except ApiError as error:
                task.print(error.message)


def clone(
    cluster: Cluster, move: Move, machine: Machine, drive: drives.Drive, task: Task, created: list[str]
) -> drives.Drive:
    """Copies the volume and returns the drive with the new one. Source: clone_disk."""
    unused = drives.is_unused(move.disk)
    mirror = machine.running and not unused
    if mirror and move.disk == "tpmstate0":
        raise ApiError("cannot move TPM state while VM is running")
    task.print(f"create full clone of drive {move.disk} ({drive['file']})")
    formats = cluster.volumes.formats(cluster.volumes.storage(move.storage))
    form = move.format or cluster.volumes.parse(drive["file"]).format
    form = form if form in formats else formats[0]
    suffix = ""
    if drives.is_cloudinit(drive):
        suffix, size = "cloudinit", 4 << 20
    elif move.disk == "tpmstate0":
        form, size = "raw", 4 << 20
    else:
        size = cluster.volumes.size(drive["file"], move.node)
    new = cluster.volumes.allocate(move.storage, move.node, move.vmid, form, size, suffix)
    created.append(new)
    if not suffix:
        target = str(cluster.volumes.path(new, move.node))
        if mirror:
            monitor, device = machine.monitor(), f"drive-{move.disk}"
            drive_mirror(cluster, monitor, device, target, form, move.bwlimit, task)
            if (limits := cluster.limits(drive | {"file": new})) != cluster.limits(drive):
                monitor.command("block_set_io_throttle", device=device, **limits)
        else:
            source = str(cluster.volumes.path(drive["file"], move.node))
            convert(source, cluster.volumes.parse(drive["file"]).format, target, form, move.bwlimit, task)
    result = {key: value for key, value in drive.items() if key != "format"} | {"file": new}
    if not unused:
        result["size"] = format_size(cluster.volumes.size(new, move.node))
    return result


def convert(source: str, source_format: str, target: str, form: str, bwlimit: int | None, task: Task) -> None:
    """Source: PVE/QemuServer/QemuImage.pm: convert."""
    words = ["qemu-img", "convert", "-p", "-n", "-f", source_format, "-O", form]
    words += ["-r", f"{bwlimit}K"] if bwlimit else []
    process = subprocess.Popen([*words, source, target], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while process.poll() is None:
            task.sleep(0.05)
    except BaseException:
        process.kill()
        raise
    finally:
        _, text = process.communicate()
    if process.returncode:
        raise ApiError(f"copy failed: {text.decode(errors='replace').strip()}")


def drive_mirror(cluster: Cluster, qmp: Qmp, job: str, target: str, form: str, bwlimit: int | None, task: Task) -> None:
    """Mirror in the background, then pivot. Source: qemu_drive_mirror, common_mirror_qmp_options."""
    speed = {"speed": bwlimit * 1024} if bwlimit else {}
    task.print(f"drive mirror is starting for {job}" + (f" with bandwidth limit: {bwlimit} KB/s" if bwlimit else ""))
    arguments = {
        "device": job,
        "sync": "full",
        "target": target,
        "mode": "existing",
        "format": form,
        "auto-dismiss": False,
        **speed,
    }
    try:
        qmp.command("drive-mirror", **arguments)
    except QmpError as error:
        cancel(cluster, qmp, job, task)
        raise ApiError(f"mirroring error: {error}") from error
    try:
        follow(cluster, qmp, job, task)
    except (ApiError, QmpError, ConnectionError, OSError, Interrupted) as error:
        # As in the source, also after the pivot: then the guest uses a volume that the caller frees.
        cancel(cluster, qmp, job, task)
        text = "interrupted by signal" if isinstance(error, Interrupted) else str(error)
        raise ApiError(f"block job (mirror) error: {text}") from error


def jobs(qmp: Qmp) -> dict[str, dict[str, object]]:
    return {entry["device"]: entry for entry in qmp.command("query-block-jobs")}


def dismiss(qmp: Qmp, job: str, entry: dict[str, object]) -> None:
    """Source: qemu_handle_concluded_blockjob."""
    qmp.command("job-dismiss", id=job)
    if entry.get("error"):
        raise ApiError(f"{job}: {entry['error']} (io-status: {entry['io-status']})")


def follow(cluster: Cluster, qmp: Qmp, job: str, task: Task) -> None:
    """Source: qemu_drive_mirror_monitor with completion 'complete'."""
    began = time.time()
    completed = was_ready = False
    tries = 0
    while tries <= COMPLETE_TRIES:
        task.check()
        entry = jobs(qmp).get(job)
        if entry is None:
            if completed:
                task.print(f"{job}: mirror-job finished")
                return
            raise ApiError(f"{job}: 'mirror' has been cancelled")
        if entry["status"] == "concluded":
            dismiss(qmp, job, entry)
        ready = bool(entry["ready"])
        if not was_ready and not completed:
            task.print(f"{job}: {progress(entry, int(time.time() - began))}")
        was_ready = ready
        if ready and not completed:
            task.print("all 'mirror' jobs are ready")
            task.print(f"{job}: Completing block job...")
            try:
                qmp.command("block-job-complete", device=job)
                task.print(f"{job}: Completed successfully.")
                completed = True
            except QmpError as error:
                if "cannot be completed" not in str(error):
                    raise ApiError(f"{job}: block job cannot be completed - {error}") from error
                task.print(f"{job}: block job cannot be completed, trying again.")
                tries += 1
        task.sleep(cluster.poll_s)
    raise ApiError("block job ('mirror') timed out")


def progress(entry: dict[str, object], seconds: int) -> str:
    total, done = int(str(entry["len"])), int(str(entry["offset"]))
    percent = done * 100 / total if total else 0
    text = f"transferred {human(done)} of {human(total)} ({percent:.2f}%) in {seconds}s"
    return text + ((", still busy" if entry["busy"] else ", ready") if entry["ready"] else "")


def human(size: int) -> str:
    """Source: pve-common, PVE/Format.pm: render_bytes."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.1f} {units[0]}"


def cancel(cluster: Cluster, qmp: Qmp, job: str, task: Task) -> None:
    """Source: qemu_blockjobs_cancel."""
    task.print(f"{job}: Cancelling block job")
    try:
        qmp.command("block-job-cancel", device=job)
    except (QmpError, OSError):
        pass
    while True:
        try:
            entry = jobs(qmp).get(job)
            if entry is not None and entry["status"] == "concluded":
                dismiss(qmp, job, entry)
        except ApiError as error:
            task.print(f"WARN: {error.message}")
        except (QmpError, OSError):
            entry = None
        if entry is None:
            task.print(f"{job}: Done.")
            return
        time.sleep(cluster.poll_s)
