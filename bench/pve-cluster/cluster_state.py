"""The whole cluster: its inventory, machines, volumes, tasks, tokens and faults, in one directory."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import drives
from access import Access
from bootsector import boot_sector
from errors import ApiError
from faults import Faults
from guestconfig import GuestConfig
from inventory import BOOT_DRIVES, Inventory, InventoryError, VmSpec
from machine import Machine, write_firmware
from schema import format_size, parse_size
from tasks import Task, Tasks
from volumes import MIB, Volumes


class Cluster:
    def __init__(self, directory: Path, inventory: Inventory, poll_s: float, lock_s: float, qemu: str) -> None:
        self.directory, self.inventory = directory, inventory
        # Seconds between two looks at a block job, and for the lock of a configuration. Sources: BlockJob.pm:
        # qemu_drive_mirror_monitor (1 s); AbstractConfig.pm: lock_config (10 s).
        self.poll_s, self.lock_s = poll_s, lock_s
        self.began = time.time()
        self.run = directory / "run"
        self.run.mkdir(parents=True, exist_ok=True)
        write_firmware(self.run / "halt.bin")
        self.volumes = Volumes(directory / "storage", inventory, self.opened)
        self.tasks = Tasks()
        self.access = Access(inventory.tokens)
        self.faults = Faults()
        self.machines = {
            spec.id: Machine(spec.id, spec.node, spec.boot or spec.load > 0, self.run, qemu, spec.reported_qemu)
            for spec in inventory.vms
        }

    # Set-up and end

    def create(self) -> None:
        """Makes the volumes and configurations of the inventory and starts the machines that run."""
        for storage in self.inventory.storages:
            for node in storage.nodes:
                self.volumes.root(storage, node).mkdir(parents=True, exist_ok=True)
        for spec in self.inventory.vms:
            self._create_vm(spec)
        for spec in self.inventory.vms:
            if spec.running:
                self.start(spec.id)

    def _create_vm(self, spec: VmSpec) -> None:
        path = self.config_path(spec.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        conf = GuestConfig(path, spec.node, spec.id)
        for key, value in spec.config.items():
            conf.values[key] = self._created_drive(spec, key, value) if drives.is_drive(key) else value
        parent = ""
        for snapshot in spec.snapshots:
            copied = {
                key: value
                for key, value in conf.values.items()
                if key not in ("lock", "description", "parent") and not drives.is_unused(key)
            }
            extra = {
                "snaptime": str(int(self.began)),
                "parent": snapshot.parent or parent,
                "description": snapshot.description,
            }
            conf.snapshots[snapshot.name] = copied | {key: value for key, value in extra.items() if value}
            conf.values["parent"] = parent = snapshot.name
        conf.write()

    def _created_drive(self, spec: VmSpec, key: str, value: str) -> str:
        """A drive of the inventory: `STORAGE:SIZE,options`, `STORAGE:cloudinit` or an existing kind of volume."""
        place = f"vms: {spec.id}: {key}"
        first, _, options = value.partition(",")
        storage, _, what = first.partition(":")
        form = ""
        words = []
        for word in options.split(",") if options else []:
            if word.startswith("format="):
                form = word.removeprefix("format=")
            else:
                words.append(word)
        form = form or (
            "raw" if storage not in self.volumes.storages else self.volumes.formats(self.volumes.storage(storage))[0]
        )
        try:
            if what.startswith("iso/"):
                path = self.volumes.path(first, spec.node)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes(MIB))
                volume, size = first, MIB
            elif what == "cloudinit":
                size = 4 * MIB
                volume = self.volumes.allocate(storage, spec.node, spec.id, form, size, "cloudinit")
            elif asked := parse_size(what):
                volume = self.volumes.allocate(storage, spec.node, spec.id, form, asked)
                size = self.volumes.size(volume, spec.node)
            else:
                raise InventoryError(f"{place}: {first} is not STORAGE:SIZE, STORAGE:cloudinit or STORAGE:iso/NAME")
        except ApiError as error:
            raise InventoryError(f"{place}: {error.message}") from error
        if key in spec.images:
            self.volumes.path(volume, spec.node).write_bytes(Path(spec.images[key]).read_bytes())
            size = self.volumes.size(volume, spec.node)
        if spec.load and key == next(name for name in BOOT_DRIVES if name in spec.config):
            self._install(boot_sector(spec.load, size), self.volumes.path(volume, spec.node), form)
        text = ",".join([volume, *words, f"size={format_size(size)}"])
        drive = drives.parse_drive(key, text)
        if drive is None:
            raise InventoryError(f"{place}: unable to parse drive options")
        return drives.print_drive(drive)

    def _install(self, sector: bytes, path: Path, form: str) -> None:
        """Writes a boot sector into an image."""
        source = self.run / "boot.img"
        source.write_bytes(sector)
        words = ["qemu-io", "-f", form, "-c", f"write -q -s {source} 0 512", str(path)]
        subprocess.run(words, check=True, capture_output=True)
        source.unlink()

    def end(self) -> None:
        for task in list(self.tasks.tasks.values()):
            task.kill.set()
        for machine in self.machines.values():
            machine.stop()

    # Parts of requests

    def config_path(self, vmid: int) -> Path:
        return self.directory / "etc" / "pve" / "nodes" / self.machines[vmid].node / "qemu-server" / f"{vmid}.conf"

    def config(self, vmid: int, node: str) -> GuestConfig:
        path = self.directory / "etc" / "pve" / "nodes" / node / "qemu-server" / f"{vmid}.conf"
        return GuestConfig(path, node, vmid)

    def on_node(self, node: str) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.node == node]

    @contextmanager
    def config_locked(self, vmid: int, task: Task | None = None) -> Iterator[None]:
        """Holds the lock of a configuration. Source: pve-common, PVE/Tools.pm: lock_file_full."""
        lock = self.machines[vmid].config_lock
        if not lock.acquire(blocking=False):
            if task:
                task.print("trying to acquire lock...")
            end = time.monotonic() + self.lock_s
            while not lock.acquire(timeout=0.05):
                if task:
                    task.check()
                if time.monotonic() > end:
                    raise ApiError(f"can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout")
            if task:
                task.print(" OK")
        try:
            yield
        finally:
            lock.release()

    def start(self, vmid: int) -> None:
        machine = self.machines[vmid]
        conf = self.config(vmid, machine.node)
        machine.start(
            conf,
            lambda volume: self.volumes.path(volume, machine.node),
            lambda volume: self.volumes.parse(volume).format,
            self.limits,
        )

    def limits(self, drive: drives.Drive) -> dict[str, int]:
        """Limits of a drive in the process: those of the configuration, and what its storage does."""
        spec = self.volumes.storages.get(drive["file"].partition(":")[0])
        return drives.throttle(drive, spec.iops if spec else 0)

    def opened(self, path: Path) -> bool:
        return any(machine.opens(path) for machine in self.machines.values())

    def worker(self, node: str, kind: str, ident: str, token: str, function: Callable[[Task], None], hold: str) -> Task:
        return self.tasks.start(node, kind, ident, token, function, hold)
