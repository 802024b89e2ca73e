"""Drives in the configuration of a virtual machine: names, options, volumes.

Sources: qemu-server, PVE/QemuServer/Drive.pm (PVE 9): %drivedesc_base, parse_drive, print_drive, drive_is_cdrom,
drive_is_cloudinit, is_valid_drivename.
"""

import re

from schema import (
    Prop,
    boolean,
    choice,
    format_size,
    integer,
    number,
    parse_property_string,
    parse_size,
    print_property_string,
    string,
)

COUNTS = {"ide": 4, "scsi": 31, "virtio": 16, "sata": 6, "efidisk": 1, "tpmstate": 1}
UNUSED = 256
NAMES = tuple(f"{bus}{index}" for bus, count in COUNTS.items() for index in range(count))
NAMES_WITH_UNUSED = NAMES + tuple(f"unused{index}" for index in range(UNUSED))
NEW_DISK = re.compile(r"(?:([^/:\s]+):)?(\d+(?:\.\d+)?)")

_FILE = string(default_key=True, format="pve-volume-id-or-qm-path")
_SIZE = string(optional=True, format="disk-size")
_FORMAT = choice("raw", "qcow", "qed", "qcow2", "vmdk", "cloop", optional=True)
_TRUTH = boolean(optional=True)
_COUNT = integer(optional=True)

_BASE: dict[str, Prop] = {
    "file": _FILE,
    "volume": Prop("string", alias="file"),
    "media": choice("cdrom", "disk", optional=True),
    "cyls": _COUNT,
    "heads": _COUNT,
    "secs": _COUNT,
    "trans": choice("none", "lba", "auto", optional=True),
    "snapshot": _TRUTH,
    "cache": choice("none", "writethrough", "writeback", "unsafe", "directsync", optional=True),
    "format": _FORMAT,
    "size": _SIZE,
    "backup": _TRUTH,
    "replicate": _TRUTH,
    "rerror": choice("ignore", "report", "stop", optional=True),
    "werror": choice("enospc", "ignore", "report", "stop", optional=True),
    "aio": choice("native", "threads", "io_uring", optional=True),
    "discard": choice("ignore", "on", optional=True),
    "detect_zeroes": _TRUTH,
    "serial": string(optional=True, format="urlencoded", max_length=60),
    "shared": _TRUTH,
}
for _side in ("", "_rd", "_wr"):
    _BASE[f"bps{_side}"] = _COUNT
    _BASE[f"mbps{_side}"] = number(optional=True)
    _BASE[f"iops{_side}"] = _COUNT
    _BASE[f"mbps{_side}_max"] = number(optional=True)
    _BASE[f"iops{_side}_max"] = _COUNT
    for _unit in ("bps", "iops"):
        _BASE[f"{_unit}{_side}_max_length"] = integer(optional=True, minimum=1)
        if _side:
            _BASE[f"{_unit}{_side}_length"] = Prop("integer", alias=f"{_unit}{_side}_max_length")

_MODEL = {"model": string(optional=True, format="urlencoded", max_length=120)}
_SSD_WWN = {"ssd": _TRUTH, "wwn": string(optional=True, pattern=r"(0x)[0-9a-fA-F]{16}")}
_THREAD = {"iothread": _TRUTH, "ro": _TRUTH}
_SCSI = {
    "product": string(optional=True, pattern=r"[A-Za-z0-9\-_\s]{,16}"),
    "vendor": string(optional=True, pattern=r"[A-Za-z0-9\-_\s]{,8}"),
    "queues": integer(optional=True, minimum=2),
    "scsiblock": _TRUTH,
}

FORMATS: dict[str, dict[str, Prop]] = {
    "ide": _BASE | _MODEL | _SSD_WWN,
    "sata": _BASE | _SSD_WWN,
    "scsi": _BASE | _THREAD | _SCSI | _SSD_WWN,
    "virtio": _BASE | _THREAD,
    "efidisk": {
        "file": _FILE,
        "volume": Prop("string", alias="file"),
        "format": _FORMAT,
        "size": _SIZE,
        "efitype": choice("2m", "4m", optional=True),
        "pre-enrolled-keys": _TRUTH,
        "ms-cert": choice("2011", "2023", "2023w", optional=True),
    },
    "tpmstate": {
        "file": _FILE,
        "volume": Prop("string", alias="file"),
        "size": _SIZE,
        "version": choice("v1.2", "v2.0", optional=True),
    },
    "unused": {"file": string(default_key=True, format="pve-volume-id"), "volume": Prop("string", alias="file")},
}
_ALL = {key: prop for form in FORMATS.values() for key, prop in form.items()} | {"file": _FILE}

# Limits as qemu-server gives them to block_set_io_throttle: QMP argument, option, factor, value without the option.
# Source: qemu-server, PVE/QemuServer.pm: vmconfig_update_disk.
LIMITS: list[tuple[str, str, int, int]] = []
for _side, _qmp in (("", ""), ("_rd", "_rd"), ("_wr", "_wr")):
    LIMITS += [
        (f"bps{_qmp}", f"mbps{_side}", 1024 * 1024, 0),
        (f"iops{_qmp}", f"iops{_side}", 1, 0),
        (f"bps{_qmp}_max", f"mbps{_side}_max", 1024 * 1024, 0),
        (f"iops{_qmp}_max", f"iops{_side}_max", 1, 0),
        (f"bps{_qmp}_max_length", f"bps{_side}_max_length", 1, 1),
        (f"iops{_qmp}_max_length", f"iops{_side}_max_length", 1, 1),
    ]
# Options of which a change takes effect at the next start only. Source: vmconfig_update_disk.
COLD = ("aio", "discard", "iothread", "queues", "product", "cache", "ssd", "vendor", "ro")

Drive = dict[str, str]


def bus_of(name: str) -> str:
    return name.rstrip("0123456789")


def is_drive(name: str) -> bool:
    return name in NAMES


def is_unused(name: str) -> bool:
    return bool(re.fullmatch(r"unused\d+", name)) and name in NAMES_WITH_UNUSED


def parse_drive(name: str, data: str) -> Drive | None:
    """Options of a drive; None where parse_drive of the source returns nothing."""
    form = FORMATS.get(bus_of(name))
    if form is None:
        return None
    try:
        drive = parse_property_string(form, data)
    except ValueError:
        return None
    for option in ("bps", "bps_rd", "bps_wr"):
        if option in drive:
            if f"m{option}" in drive:
                return None
            drive[f"m{option}"] = f"{int(drive.pop(option)) / (1024 * 1024):.3f}"
    for side in ("", "_rd", "_wr"):
        needs = [(f"mbps{side}_max", f"mbps{side}"), (f"bps{side}_max_length", f"mbps{side}_max")]
        needs.append((f"iops{side}_max_length", f"iops{side}_max"))
        if any(_set(drive, option) and not _set(drive, needed) for option, needed in needs):
            return None
    if any(_set(drive, f"{unit}{side}") and _set(drive, unit) for unit in ("mbps", "iops") for side in ("_rd", "_wr")):
        return None
    if drive.get("media") == "cdrom":
        if bus_of(name) == "virtio" or any(
            key in drive for key in ("snapshot", "trans", "format", "heads", "secs", "cyls")
        ):
            return None
    if "size" in drive:
        drive["size"] = format_size(parse_size(drive["size"]) or 0)
    return drive


def _set(drive: Drive, option: str) -> bool:
    return float(drive.get(option, 0)) != 0


def print_drive(drive: Drive) -> str:
    return print_property_string(_ALL, drive)


def is_cloudinit(drive: Drive) -> bool:
    return bool(re.search(r"[:/](?:vm-\d+-)?cloudinit(?:\.(?:raw|qcow2|qcow|qed|vmdk|cloop))?$", drive["file"]))


def is_cdrom(drive: Drive, exclude_cloudinit: bool = False) -> bool:
    if exclude_cloudinit and is_cloudinit(drive):
        return False
    return drive.get("media") == "cdrom"


def throttle(drive: Drive, cap: int = 0) -> dict[str, int]:
    """Arguments of block_set_io_throttle. `cap` is what the storage does in requests per second, 0 is any number."""
    found = {qmp: int(float(drive.get(option, 0)) * factor) or default for qmp, option, factor, default in LIMITS}
    if cap:
        for key in ("iops_rd", "iops_wr") if found["iops_rd"] or found["iops_wr"] else ("iops",):
            found[key] = min(found[key] or cap, cap)
    return found
