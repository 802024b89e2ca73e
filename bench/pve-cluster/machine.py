"""The QEMU process of a running virtual machine.

Drives are started by `-drive` with the ids `drive-scsi0` and so on, as qemu-server does it for machine versions below 10.
Without `boot` the processor executes one halt instruction from a 64 KiB firmware, so that the process runs and takes no
time. Devices share their images for writing, so that a test can write through an NBD export of the same node.

Sources: qemu-server, PVE/QemuServer.pm: config_to_command, print_drive_commandline_full; PVE/QemuServer/Blockdev.pm:
set_io_throttle.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drives
from errors import ApiError
from guestconfig import GuestConfig
from qmp import Qmp, QmpError

FIRMWARE_BYTES = 64 << 10


def write_firmware(path: Path) -> None:
    """cli; hlt; jmp to the hlt, at the reset vector."""
    image = bytearray(FIRMWARE_BYTES)
    image[-16:-12] = b"\xfa\xf4\xeb\xfd"
    path.write_bytes(image)


class Machine:
    """A virtual machine: on which node, and its process while it runs."""

    def __init__(self, vmid: int, node: str, boot: bool, directory: Path, qemu: str, reported: str) -> None:
        self.vmid, self.node, self.boot, self.directory, self.qemu = vmid, node, boot, directory, qemu
        # Version for the API, or empty: that of the process.
        self.reported = reported
        self.process: subprocess.Popen[bytes] | None = None
        self.qmp: Qmp | None = None
        self.started = 0.0
        self.exports: set[str] = set()
        # The lock of the configuration file. Source: pve-guest-common, AbstractConfig.pm: lock_config.
        self.config_lock = threading.Lock()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def serial(self) -> Path:
        return self.directory / f"{self.vmid}.serial"

    @property
    def pid_file(self) -> Path:
        return self.directory / f"{self.vmid}.pid"

    def monitor(self) -> Qmp:
        if not self.running or self.qmp is None:
            raise ApiError(f"VM {self.vmid} not running")
        return self.qmp

    def start(
        self,
        conf: GuestConfig,
        path: Callable[[str], Path],
        file_format: Callable[[str], str],
        limits_of: Callable[[drives.Drive], dict[str, int]],
    ) -> None:
        if self.running:
            raise ApiError(f"VM {self.vmid} already running")
        self.exports.clear()
        socket = self.directory / f"{self.vmid}.qmp"
        socket.unlink(missing_ok=True)
        words = [
            self.qemu,
            "-name",
            f"{conf.values.get('name', self.vmid)}",
            "-machine",
            "pc,accel=tcg",
            "-nodefaults",
            "-no-user-config",
        ]
        words += [
            "-m",
            "32",
            "-pidfile",
            str(self.pid_file),
            "-display",
            "none",
            "-nic",
            "none",
            "-chardev",
            f"socket,id=qmp,path={socket},server=on,wait=off",
        ]
        words += [
            "-mon",
            "chardev=qmp,mode=control",
            "-serial",
            f"file:{self.serial}",
            "-device",
            "virtio-scsi-pci,id=scsihw0",
            "-device",
            "ich9-ahci,id=ahci0",
        ]
        if not self.boot:
            words += ["-bios", str(self.directory / "halt.bin")]
        limits = {}
        for name in drives.NAMES:
            drive = drives.parse_drive(name, conf.values[name]) if name in conf.values else None
            # The TPM's state belongs to swtpm, not to QEMU.
            if drive is None or name == "tpmstate0":
                continue
            words += drive_words(name, drive, path, file_format)
            limits[name] = limits_of(drive)
        with (self.directory / f"{self.vmid}.log").open("ab") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self.qmp = Qmp(socket)
            self.started = time.time()
            for name, limit in limits.items():
                if any(value for key, value in limit.items() if not key.endswith("_length")):
                    self.qmp.command("block_set_io_throttle", device=f"drive-{name}", **limit)
        except (OSError, QmpError) as error:
            self.stop()
            text = (self.directory / f"{self.vmid}.log").read_text(errors="replace").strip().splitlines()
            raise ApiError(f"start failed: QEMU exited with code 1: {text[-1] if text else error}") from error

    def stop(self) -> None:
        """Ends the process as pulling the plug does."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
            self.pid_file.unlink(missing_ok=True)
        if self.qmp is not None:
            self.qmp.close()
            self.qmp = None

    def block_stats(self) -> dict[str, dict[str, Any]]:
        """Statistics of QEMU by drive. Source: QemuServer.pm: vmstatus, $blockstatscb."""
        found = {}
        for entry in self.monitor().command("query-blockstats"):
            if entry.get("device", "").startswith("drive-"):
                found[entry["device"].removeprefix("drive-")] = entry["stats"]
        return found

    def node_of(self, drive: str) -> str:
        for entry in self.monitor().command("query-block"):
            if entry["device"] == f"drive-{drive}" and "inserted" in entry:
                return str(entry["inserted"]["node-name"])
        raise ApiError(f"disk '{drive}' does not exist")

    def export(self, drive: str) -> str:
        """URI of a writable NBD export of a drive's node; it follows the node when a move pivots."""
        monitor = self.monitor()
        socket = self.directory / f"{self.vmid}.nbd"
        if not self.exports:
            socket.unlink(missing_ok=True)
            monitor.command("nbd-server-start", addr={"type": "unix", "data": {"path": str(socket)}})
        if drive not in self.exports:
            monitor.command(
                "block-export-add",
                type="nbd",
                id=f"test-{drive}",
                **{"node-name": self.node_of(drive)},
                name=drive,
                writable=True,
            )
            self.exports.add(drive)
        return f"nbd+unix:///{drive}?socket={socket}"

    def opens(self, path: Path) -> bool:
        """Returns true if the process has a file open, by /proc."""
        if not self.running or self.process is None:
            return False
        folder = Path(f"/proc/{self.process.pid}/fd")
        return any(os.path.realpath(link) == os.path.realpath(path) for link in folder.iterdir())


def drive_words(
    name: str, drive: drives.Drive, path: Callable[[str], Path], file_format: Callable[[str], str]
) -> list[str]:
    index = int(name.removeprefix(drives.bus_of(name)))
    bus = drives.bus_of(name)
    cdrom = drives.is_cdrom(drive)
    words = [f"id=drive-{name}", "if=none"]
    if drive["file"] not in ("none", "cdrom"):
        words += [f"file={path(drive['file'])}", f"format={file_format(drive['file'])}"]
    if cdrom:
        words += ["media=cdrom", "readonly=on"]
    else:
        words += [
            f"cache={drive.get('cache', 'writeback')}",
            f"discard={drive.get('discard', 'ignore')}",
            "detect-zeroes=on",
        ]
    result = ["-drive", ",".join(words)]
    kind = "cd" if cdrom else "hd"
    share = "" if cdrom else ",share-rw=on"
    if bus == "scsi":
        result += [
            "-device",
            f"scsi-{kind},bus=scsihw0.0,channel=0,scsi-id=0,lun={index},drive=drive-{name},id={name}{share}",
        ]
    elif bus == "virtio":
        result += ["-device", f"virtio-blk-pci,drive=drive-{name},id={name}{share}"]
    elif bus == "ide":
        result += ["-device", f"ide-{kind},bus=ide.{index // 2},unit={index % 2},drive=drive-{name},id={name}{share}"]
    elif bus == "sata":
        result += ["-device", f"ide-{kind},bus=ahci0.{index},drive=drive-{name},id={name}{share}"]
    return result
