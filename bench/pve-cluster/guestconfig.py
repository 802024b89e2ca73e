"""Configuration files of virtual machines: sections, digest, values with their types.

The file has `key: value` lines, then a `[PENDING]` section and one section per snapshot. It is read for every request, so
a test may edit it.

Sources: qemu-server, PVE/QemuServer.pm: parse_vm_config, write_vm_config, check_type; pve-guest-common,
PVE/AbstractConfig.pm: load_config, check_lock, check_protection, add_unused_volume.
"""

import hashlib
import re
from pathlib import Path

from drives import UNUSED, is_drive, is_unused, parse_drive
from errors import ApiError
from shapes import VM_OPTIONS

Values = dict[str, str]
# Keys of snapshots and of the running state, which are not options of the API.
EXTRA_INTEGERS = ("snaptime",)


class GuestConfig:
    def __init__(self, path: Path, node: str, vmid: int) -> None:
        """Reads the file. A missing file is a machine that does not exist on the node."""
        self.path, self.vmid = path, vmid
        try:
            text = path.read_text()
        except FileNotFoundError as error:
            # Source: AbstractConfig.pm: load_config.
            raise ApiError(f"Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist") from error
        self.digest = hashlib.sha1(text.encode()).hexdigest()
        self.values: Values = {}
        self.pending: Values = {}
        self.snapshots: dict[str, Values] = {}
        section = self.values
        for line in text.splitlines():
            if head := re.fullmatch(r"\[(\S+)\]", line):
                section = self.pending if head[1] == "PENDING" else self.snapshots.setdefault(head[1], {})
            elif pair := re.fullmatch(r"([a-zA-Z][\w-]*):\s*(.*)", line):
                section[pair[1]] = pair[2]

    def write(self) -> None:
        used = {
            drive["file"] for key, value in self.values.items() if is_drive(key) and (drive := parse_drive(key, value))
        }
        # Source: write_vm_config: an unusedN entry goes away once its volume is attached again.
        self.values = {key: value for key, value in self.values.items() if not (is_unused(key) and value in used)}
        text = _section(self.values)
        if self.pending:
            text += "\n[PENDING]\n" + _section(self.pending)
        for name, values in self.snapshots.items():
            text += f"\n[{name}]\n" + _section(values)
        new = self.path.with_suffix(".tmp")
        new.write_text(text)
        new.replace(self.path)
        self.digest = hashlib.sha1(text.encode()).hexdigest()

    def check_lock(self) -> None:
        """Source: AbstractConfig.pm: check_lock."""
        if lock := self.values.get("lock"):
            raise ApiError(f"VM is locked ({lock})")

    def check_protection(self, message: str) -> None:
        """Source: AbstractConfig.pm: check_protection."""
        if self.values.get("protection") == "1":
            raise ApiError(f"{message} - protection mode enabled")

    def add_unused(self, volume: str) -> str | None:
        """Source: AbstractConfig.pm: add_unused_volume: the lowest free number, none if the volume is listed."""
        if any(self.values.get(f"unused{n}") == volume for n in range(UNUSED)):
            return None
        free = next((n for n in range(UNUSED) if f"unused{n}" not in self.values), None)
        if free is None:
            raise ApiError("Too many unused volumes - please delete them first.")
        self.values[f"unused{free}"] = volume
        return f"unused{free}"

    def volume_in_use(self, volume: str, skip: str = "") -> bool:
        """Source: Drive.pm: is_volume_in_use: drives except one, and every snapshot."""

        def scan(values: Values, without: str) -> bool:
            drives = (parse_drive(key, value) for key, value in values.items() if is_drive(key) and key != without)
            return any(drive and drive.get("media") != "cdrom" and drive["file"] == volume for drive in drives)

        return scan(self.values, skip) or any(scan(values, "") for values in self.snapshots.values())

    def pending_delete(self) -> dict[str, bool]:
        """Options that wait for deletion; true with force. Source: AbstractConfig.pm: parse_pending_delete."""
        words = self.pending.get("delete", "").split(",")
        return {word.lstrip("!"): word.startswith("!") for word in words if word}

    def set_pending_delete(self, options: dict[str, bool]) -> None:
        self.pending.pop("delete", None)
        if options:
            self.pending["delete"] = ",".join(("!" if force else "") + key for key, force in sorted(options.items()))

    def with_pending(self) -> Values:
        """Source: AbstractConfig.pm: load_current_config without `current`."""
        values = {key: value for key, value in self.values.items() if key not in self.pending_delete()}
        return values | {key: value for key, value in self.pending.items() if key != "delete"}


def _section(values: Values) -> str:
    return "".join(f"{key}: {values[key]}\n" for key in sorted(values))


def typed(values: Values) -> dict[str, str | int | float]:
    """Values as the API returns them. Source: QemuServer.pm: check_type makes numbers of integers and booleans."""
    result: dict[str, str | int | float] = {}
    for key, value in values.items():
        kind = VM_OPTIONS[key].type if key in VM_OPTIONS else "string"
        if kind in ("integer", "boolean") or key in EXTRA_INTEGERS:
            result[key] = int(value)
        elif kind == "number":
            result[key] = float(value)
        else:
            result[key] = value
    return result
