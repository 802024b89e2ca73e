"""Inventory of a cluster: a TOML or JSON file, checked, as plain data. README.md lists the keys."""

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schema import parse_size

BOOT_DRIVES = ("scsi0", "virtio0", "sata0", "ide0")
TYPES = ("dir", "nfs", "lvmthin", "zfspool")


class InventoryError(Exception):
    """Fault of an inventory; the message names the place."""


@dataclass
class Node:
    name: str
    cpus: int = 4
    memory: int = 8 << 30


@dataclass
class StorageSpec:
    id: str
    type: str
    content: list[str]
    size: int
    nodes: list[str]
    used: int = 0
    enabled: bool = True
    # Requests per second of each drive there, 0 is any number: how a slow device is emulated.
    iops: int = 0

    @property
    def shared(self) -> bool:
        return self.type == "nfs"


@dataclass
class SnapshotSpec:
    name: str
    parent: str = ""
    description: str = ""


@dataclass
class VmSpec:
    id: int
    node: str
    config: dict[str, str]
    running: bool = False
    # A guest boots from its first disk; with `load` that is one of bootsector.py, with so many requests per timer tick.
    boot: bool = False
    load: int = 0
    # Version that the API reports instead of that of the process.
    reported_qemu: str = ""
    images: dict[str, str] = field(default_factory=dict)
    snapshots: list[SnapshotSpec] = field(default_factory=list)


@dataclass
class Acl:
    path: str
    privileges: list[str]


@dataclass
class TokenSpec:
    id: str
    acl: list[Acl]
    expire: int = 0


@dataclass
class HaResource:
    sid: str
    state: str = "started"
    crm_state: str = "started"
    max_restart: int = 1
    max_relocate: int = 1


@dataclass
class ReplicationJob:
    id: str
    target: str
    schedule: str = "*/15"
    disable: bool = False
    error: str = ""

    @property
    def guest(self) -> int:
        return int(self.id.split("-")[0])


@dataclass
class Inventory:
    version: str
    nodes: list[Node]
    storages: list[StorageSpec]
    vms: list[VmSpec]
    tokens: list[TokenSpec]
    ha: list[HaResource]
    replication: list[ReplicationJob]


def _made(kind: type, raw: Any, place: str) -> Any:
    """Builds a dataclass from a table; unknown and missing keys are errors that name the place."""
    if not isinstance(raw, dict):
        raise InventoryError(f"{place}: a table is needed")
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    for key in raw:
        if key not in known:
            raise InventoryError(f"{place}: unknown key {key}")
    try:
        return kind(**raw)
    except TypeError as error:
        raise InventoryError(f"{place}: {error}") from error


def _size(raw: Any, place: str) -> int:
    size = parse_size(str(raw))
    if not size:
        raise InventoryError(f"{place}: {raw} is not a size")
    return size


def _storage(raw: dict[str, Any], names: list[str], place: str) -> StorageSpec:
    entry = dict(raw)
    entry.setdefault("nodes", names)
    for key in ("content", "size", "type", "id"):
        if key not in entry:
            raise InventoryError(f"{place}: {key} is missing")
    entry["content"] = str(entry["content"]).split(",")
    entry["size"] = _size(entry["size"], f"{place}.size")
    if "used" in entry:
        entry["used"] = _size(entry["used"], f"{place}.used")
    spec: StorageSpec = _made(StorageSpec, entry, place)
    if spec.type not in TYPES:
        raise InventoryError(f"{place}: type {spec.type} is not one of {', '.join(TYPES)}")
    for name in spec.nodes:
        if name not in names:
            raise InventoryError(f"{place}: node {name} does not exist")
    return spec


def _vm(raw: dict[str, Any], names: list[str], place: str) -> VmSpec:
    entry = dict(raw)
    entry["config"] = {
        key: str(int(value) if isinstance(value, bool) else value) for key, value in entry.get("config", {}).items()
    }
    entry["snapshots"] = [
        _made(SnapshotSpec, one, f"{place}.snapshots[{i}]") for i, one in enumerate(entry.get("snapshots", []))
    ]
    spec: VmSpec = _made(VmSpec, entry, place)
    if spec.node not in names:
        raise InventoryError(f"{place}: node {spec.node} does not exist")
    if spec.load and not any(key in entry["config"] for key in BOOT_DRIVES):
        raise InventoryError(f"{place}: load needs one of {', '.join(BOOT_DRIVES)}")
    if not 0 <= spec.load < 1 << 16:
        raise InventoryError(f"{place}: load {spec.load} is not between 0 and 65535")
    if not 100 <= spec.id <= 999999999:
        raise InventoryError(f"{place}: id {spec.id} is not between 100 and 999999999")
    return spec


def _token(raw: dict[str, Any], place: str) -> TokenSpec:
    entry = dict(raw)
    entry["acl"] = [_made(Acl, one, f"{place}.acl[{i}]") for i, one in enumerate(entry.get("acl", []))]
    spec: TokenSpec = _made(TokenSpec, entry, place)
    if not re.fullmatch(r"[^\s:/!]+@[A-Za-z][A-Za-z0-9.\-_]+![A-Za-z][A-Za-z0-9.\-_]+", spec.id):
        raise InventoryError(f"{place}: id {spec.id} is not USER@REALM!TOKEN")
    return spec


def load(path: Path) -> Inventory:
    try:
        text = path.read_text()
        raw = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise InventoryError(f"{path}: {error}") from error
    tables = ("nodes", "storages", "vms", "tokens", "ha", "replication")
    for key in raw:
        if key not in tables + ("version",):
            raise InventoryError(f"{path}: unknown key {key}")
    lists: dict[str, list[Any]] = {key: raw.get(key, []) for key in tables}
    nodes = [_made(Node, one, f"nodes[{i}]") for i, one in enumerate(lists["nodes"])]
    names = [node.name for node in nodes]
    inventory = Inventory(
        str(raw.get("version", "9.1.4")),
        nodes,
        [_storage(one, names, f"storages[{i}]") for i, one in enumerate(lists["storages"])],
        [_vm(one, names, f"vms[{i}]") for i, one in enumerate(lists["vms"])],
        [_token(one, f"tokens[{i}]") for i, one in enumerate(lists["tokens"])],
        [_made(HaResource, one, f"ha[{i}]") for i, one in enumerate(lists["ha"])],
        [_made(ReplicationJob, one, f"replication[{i}]") for i, one in enumerate(lists["replication"])],
    )
    if not nodes or not inventory.tokens:
        raise InventoryError(f"{path}: at least one node and one token are needed")
    for kind, ids in (
        ("nodes", names),
        ("storages", [s.id for s in inventory.storages]),
        ("vms", [vm.id for vm in inventory.vms]),
    ):
        if len(set(ids)) != len(ids):
            raise InventoryError(f"{path}: {kind} with the same name")
    return inventory
