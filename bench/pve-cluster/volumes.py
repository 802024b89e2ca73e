"""Storages and volumes, as files below one directory.

A local storage has a directory per node, a shared one has a directory for all. Directories and NFS keep images as
`images/VMID/vm-VMID-disk-N.FORMAT`; LVM-thin and ZFS keep flat names without a format, which are raw.

Sources: pve-storage, PVE/Storage.pm: storage_check_enabled, check_volume_access, vdisk_alloc, vdisk_free, storage_info;
PVE/Storage/Plugin.pm: parse_volname, get_next_vm_diskname; LvmThinPlugin.pm and ZFSPoolPlugin.pm: alloc_image, free_image.
"""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from errors import ApiError
from inventory import Inventory, StorageSpec

MIB = 1 << 20


@dataclass(frozen=True)
class Volume:
    """Parts of a volume identifier."""

    storage: str
    name: str
    kind: str
    owner: int | None
    format: str

    @property
    def id(self) -> str:
        return f"{self.storage}:{self.name}"


class Volumes:
    def __init__(self, directory: Path, inventory: Inventory, used_by_qemu: Callable[[Path], bool]) -> None:
        self.directory = directory
        self.storages = {spec.id: spec for spec in inventory.storages}
        self.nodes = [node.name for node in inventory.nodes]
        self.used_by_qemu = used_by_qemu
        self.lock = threading.Lock()
        # Seconds at which flat volumes were created, by file.
        self.created: dict[Path, int] = {}

    def storage(self, name: str) -> StorageSpec:
        """Source: PVE/Storage.pm: storage_config."""
        if name not in self.storages:
            raise ApiError(f"storage '{name}' does not exist")
        return self.storages[name]

    def checked(self, name: str, node: str) -> StorageSpec:
        """Source: PVE/Storage.pm: storage_check_enabled, storage_check_node."""
        spec = self.storage(name)
        if not spec.enabled:
            raise ApiError(f"storage '{name}' is disabled")
        if node not in spec.nodes:
            raise ApiError(f"storage '{name}' is not available on node '{node}'")
        return spec

    def parse(self, volume_id: str) -> Volume:
        storage, colon, name = volume_id.partition(":")
        if not colon or not name:
            raise ApiError(f"unable to parse volume ID '{volume_id}'")
        spec = self.storage(storage)
        if self.file_based(spec):
            if found := re.fullmatch(r"(\d+)/(?:vm|base)-\S+\.(raw|qcow2|vmdk)", name):
                return Volume(storage, name, "images", int(found[1]), found[2])
            if re.fullmatch(r"iso/[^/]+\.(?i:iso|img)", name):
                return Volume(storage, name, "iso", None, "raw")
            raise ApiError(f"unable to parse directory volume name '{name}'")
        if found := re.fullmatch(r"(?:vm|base)-(\d+)-\S+", name):
            return Volume(storage, name, "images", int(found[1]), "raw")
        raise ApiError(f"unable to parse {'zfs' if spec.type == 'zfspool' else 'lvm'} volume name '{name}'")

    @staticmethod
    def file_based(spec: StorageSpec) -> bool:
        return spec.type in ("dir", "nfs")

    def root(self, spec: StorageSpec, node: str) -> Path:
        return self.directory / ("shared" if spec.shared else node) / spec.id

    def path(self, volume_id: str, node: str) -> Path:
        """File that holds the volume here."""
        volume = self.parse(volume_id)
        root = self.root(self.storage(volume.storage), node)
        if volume.kind == "iso":
            return root / "template" / volume.name
        return root / "images" / volume.name if self.file_based(self.storage(volume.storage)) else root / volume.name

    def shown_path(self, volume_id: str, node: str) -> str:
        """Path as a real cluster shows it."""
        volume = self.parse(volume_id)
        spec = self.storage(volume.storage)
        if self.file_based(spec):
            return str(self.path(volume_id, node))
        return f"/dev/{spec.id}/{volume.name}" if spec.type == "lvmthin" else f"/dev/zvol/{spec.id}/{volume.name}"

    def formats(self, spec: StorageSpec) -> tuple[str, ...]:
        """Formats of a storage; the first is its default."""
        return ("raw", "qcow2", "vmdk") if self.file_based(spec) else ("raw",)

    def size(self, volume_id: str, node: str) -> int:
        path = self.path(volume_id, node)
        form = self.parse(volume_id).format
        if not path.exists():
            return 0
        if form == "raw":
            return path.stat().st_size
        words = ["qemu-img", "info", "-U", "-f", form, "--output=json", str(path)]
        return int(json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["virtual-size"])

    def allocate(self, storage: str, node: str, vmid: int, form: str, size: int, suffix: str = "") -> str:
        """Creates an empty volume and returns its identifier."""
        spec = self.checked(storage, node)
        if form not in self.formats(spec):
            raise ApiError(f"unsupported format '{form}'")
        if spec.type == "lvmthin":
            size = -(-size // (4 * MIB)) * 4 * MIB
        elif spec.type == "zfspool":
            size = -(-size // MIB) * MIB
        end = f".{form}" if self.file_based(spec) else ""
        with self.lock:
            names = (volume.name for volume in self._images(spec, node))
            found = (re.fullmatch(rf"(?:{vmid}/)?(?:vm|base)-{vmid}-disk-(\d+)(?:\.\w+)?", name) for name in names)
            numbers = {int(match[1]) for match in found if match}
            free = next(n for n in range(len(numbers) + 1) if n not in numbers)
            name = f"{f'{vmid}/' if end else ''}vm-{vmid}-{suffix or f'disk-{free}'}{end}"
            volume_id = f"{storage}:{name}"
            path = self.path(volume_id, node)
            if path.exists():
                raise ApiError(f"disk image '{path}' already exists" if end else f"volume '{name}' already exists")
            path.parent.mkdir(parents=True, exist_ok=True)
            words = ["qemu-img", "create", "-q", "-f", form, str(path), str(size)]
            subprocess.run(words, check=True, capture_output=True)
            self.created[path] = int(time.time())
        return volume_id

    def free(self, volume_id: str, node: str) -> None:
        """Removes a volume. A directory unlinks files in use, as the source does; LVM and ZFS refuse."""
        volume = self.parse(volume_id)
        spec = self.checked(volume.storage, node)
        path = self.path(volume_id, node)
        if self.file_based(spec):
            if not path.exists():
                raise ApiError(f"disk image '{path}' does not exist")
        elif self.used_by_qemu(path):
            if spec.type == "lvmthin":
                raise ApiError(
                    f"lvremove '{spec.id}/{volume.name}' error:   Logical volume {spec.id}/{volume.name} in use."
                )
            raise ApiError(f"zfs error: cannot destroy '{spec.id}/{volume.name}': dataset is busy")
        path.unlink(missing_ok=True)
        self.created.pop(path, None)

    def _images(self, spec: StorageSpec, node: str) -> list[Volume]:
        root = self.root(spec, node)
        base = root / "images" if self.file_based(spec) else root
        names = (
            sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()) if base.exists() else []
        )
        return [self.parse(f"{spec.id}:{name}") for name in names]

    def list(self, storage: str, node: str) -> list[Volume]:
        spec = self.checked(storage, node)
        found = self._images(spec, node) if {"images", "rootdir"} & set(spec.content) else []
        isos = self.root(spec, node) / "template" / "iso"
        if "iso" in spec.content and isos.exists():
            found += [self.parse(f"{storage}:iso/{path.name}") for path in isos.iterdir()]
        return sorted(found, key=lambda volume: volume.id.lower())

    def allocated(self, path: Path) -> int:
        return path.stat().st_blocks * 512

    def ctime(self, volume_id: str, node: str) -> dict[str, int]:
        """Field of a listed volume: the change of a file, the creation of a volume of LVM, and none of ZFS.

        Source: pve-storage, PVE/Storage/Plugin.pm: file_size_info; LVMPlugin.pm: lvm_list_volumes; ZFSPoolPlugin.pm:
        zfs_list_zvol.
        """
        path, spec = self.path(volume_id, node), self.storage(self.parse(volume_id).storage)
        changed = int(path.stat().st_ctime)
        if self.file_based(spec):
            return {"ctime": changed}
        return {"ctime": self.created.get(path, changed)} if spec.type == "lvmthin" else {}

    def status(self, spec: StorageSpec, node: str) -> dict[str, int | str]:
        """Source: PVE/Storage.pm: storage_info."""
        enabled = spec.enabled and node in spec.nodes
        used = 0
        if enabled:
            used = spec.used
            for folder, _, files in os.walk(self.root(spec, node)):
                used += sum(self.allocated(Path(folder) / name) for name in files if (Path(folder) / name).exists())
        return {
            "type": spec.type,
            "content": ",".join(sorted(spec.content)),
            "shared": int(spec.shared),
            "enabled": int(enabled),
            "active": int(enabled),
            "total": spec.size if enabled else 0,
            "used": used,
            "avail": max(0, spec.size - used) if enabled else 0,
        }
