"""Changes of a configuration: checks of the request, pending values, and their effect on the running process.

Modelled are deletion of any option, changes of drives that keep their volume (limits at once, other options at the next
start), attachment of volumes to stopped machines, and options without hardware. Allocation of new disks by configuration
and hot-plug of other devices are not modelled.

Sources: qemu-server, PVE/API2/Qemu.pm: $update_vm_api, $check_drive_param, $check_vm_modify_config_perm, $check_storage_access,
create_disks; PVE/QemuServer.pm: vmconfig_hotplug_pending, vmconfig_apply_pending, vmconfig_update_disk, try_deallocate_drive,
vmconfig_register_unused_drive.
"""

import re
from dataclasses import dataclass, field

import drives
from cluster_state import Cluster
from errors import ApiError, NotModelled, param_error
from guestconfig import GuestConfig
from machine import Machine
from qmp import QmpError
from schema import format_size, split_list
from shapes import VM_OPTIONS
from tasks import Task

NOT_OPTIONS = (
    "node",
    "vmid",
    "digest",
    "skiplock",
    "delete",
    "revert",
    "force",
    "background_delay",
    "import-working-storage",
)
# Options that take effect without hardware. Source: $fast_plug_option.
FAST = "description hookscript lock migrate_downtime migrate_speed name onboot protection shares startup tags vmstatestorage".split()
# Privileges by option. Source: $cpuoptions and the tables below it.
_GROUPS = {
    "VM.Config.CPU": "cores cpu cpulimit cpuunits numa smp sockets vcpus",
    "VM.Config.Memory": "memory balloon shares allow-ksm",
    "VM.Config.HWType": "acpi hotplug kvm machine scsihw smbios1 tablet vga watchdog audio0 rng0",
    "VM.Config.Options": "agent autostart bios description keyboard localtime migrate_downtime migrate_speed name onboot ostype"
    " protection reboot startdate startup tdf template tags",
    "VM.Config.Disk": "boot bootdisk vmstatestorage",
    "VM.Config.Cloudinit": "cicustom cipassword citype ciuser ciupgrade nameserver searchdomain sshkeys",
    "VM.PowerMgmt": "freeze",
}
PRIVILEGES = {option: privilege for privilege, options in _GROUPS.items() for option in options.split()}


@dataclass
class Change:
    node: str
    vmid: int
    token: str
    digest: str
    force: bool
    values: dict[str, str]
    delete: list[str] = field(default_factory=list)
    revert: list[str] = field(default_factory=list)


def parse(cluster: Cluster, token: str, parameters: dict[str, str]) -> Change:
    """Checks that need no configuration. Source: the first half of $update_vm_api."""
    if parameters.get("skiplock") == "1":
        raise param_error({"skiplock": "Only root may use this option."})
    values = {key: value for key, value in parameters.items() if key not in NOT_OPTIONS}
    vmid = int(parameters["vmid"])
    change = Change(
        parameters["node"], vmid, token, parameters.get("digest", ""), parameters.get("force") == "1", values
    )
    if not values and not parameters.get("delete") and not parameters.get("revert"):
        raise ApiError("no options specified")
    if "cdrom" in values:
        text = values.pop("cdrom")
        values["ide2"] = text if "media=" in text else text + ",media=cdrom"
    for option in split_list(parameters.get("revert", "")):
        if option not in VM_OPTIONS:
            raise param_error({"revert": f"unknown option '{option}'"})
        if option in values:
            raise param_error({"delete": f"you can't use '-{option}' and -revert {option}' at the same time"})
        change.revert.append(option)
    for option in split_list(parameters.get("delete", "")):
        option = "ide2" if option == "cdrom" else option
        if option in values:
            raise param_error({"delete": f"you can't use '-{option}' and -delete {option}' at the same time"})
        if option in change.revert:
            raise param_error({"revert": f"you can't use '-delete {option}' and -revert {option}' at the same time"})
        if option not in VM_OPTIONS:
            raise param_error({"delete": f"unknown option '{option}'"})
        change.delete.append(option)
    for option in sorted(filter(drives.is_drive, values)):
        drive = drives.parse_drive(option, values[option])
        if drive is None:
            raise param_error({option: "unable to parse drive options"})
        values[option] = drives.print_drive(drive)
    for option in change.delete + sorted(values):
        check_permission(cluster, change, option)
    for option in sorted(values):
        if drives.is_drive(option) or drives.is_unused(option):
            check_volume(cluster, change, option)
    return change


def check_permission(cluster: Cluster, change: Change, option: str) -> None:
    """Source: $check_vm_modify_config_perm; drives and unused volumes are checked by their values."""
    if drives.is_drive(option) or re.fullmatch(r"(?:unused|serial|usb|hostpci)\d+", option):
        return
    privilege = PRIVILEGES.get(option)
    if re.fullmatch(r"(?:net|ipconfig)\d+", option):
        privilege = "VM.Config.Network"
    elif re.fullmatch(r"numa\d+", option):
        privilege = "VM.Config.CPU"
    if privilege is None:
        raise ApiError(f"only root can set '{option}' config")
    cluster.access.check(change.token, f"/vms/{change.vmid}", privilege)


def check_volume(cluster: Cluster, change: Change, option: str) -> None:
    """Sources: $check_storage_access; pve-storage, PVE/Storage.pm: check_volume_access."""
    drive = drives.parse_drive(option, change.values[option])
    if drive is None:
        raise param_error({option: f"failed to parse value '{change.values[option]}'"})
    name = drive["file"]
    if name in ("none", "cdrom") or drives.is_cloudinit(drive):
        return
    if name.startswith("/"):
        raise ApiError("Only root can pass arbitrary filesystem paths.")
    if drives.NEW_DISK.fullmatch(name):
        raise NotModelled(f"allocation of {option} by configuration")
    check_access(cluster, change.token, name, change.vmid)


def check_access(cluster: Cluster, token: str, volume_id: str, vmid: int | None) -> None:
    """Source: pve-storage, PVE/Storage.pm: check_volume_access."""
    volume = cluster.volumes.parse(volume_id)
    place = f"/storage/{volume.storage}"
    if cluster.access.has(token, place, "Datastore.Allocate"):
        return
    if volume.kind == "iso":
        cluster.access.check_any(token, place, "Datastore.AllocateSpace", "Datastore.Audit")
    elif volume.owner is None or volume.owner != vmid:
        cluster.access.check(token, place, "Datastore.Audit")
        cluster.access.check(token, f"/vms/{volume.owner}", "VM.Config.Disk")


def load(cluster: Cluster, change: Change) -> GuestConfig:
    """Source: $load_and_check_config."""
    conf = cluster.config(change.vmid, change.node)
    if change.digest and change.digest != conf.digest:
        raise ApiError("checksum mismatch (file change by other user?)")
    conf.check_lock()
    return conf


def apply(cluster: Cluster, change: Change, task: Task | None = None) -> None:
    """Source: $updatefn of $update_vm_api, under the lock of the configuration."""
    with cluster.config_locked(change.vmid, task):
        conf = load(cluster, change)
        if task:
            words = [f"-delete {','.join(change.delete)}"] if change.delete else []
            task.print(
                f"update VM {change.vmid}: "
                + " ".join(words + [f"-{key} {value}" for key, value in sorted(change.values.items())])
            )
        values, delete = dict(change.values), list(change.delete)
        for option in change.revert:
            if option in conf.values:
                values[option] = conf.values[option]
            elif option in conf.pending:
                delete.append(option)
        for option in delete:
            delete_option(cluster, change, conf, option, task)
        waiting = conf.pending_delete()
        for option, value in sorted(values.items()):
            if conf.pending.get(option) == value:
                continue
            if drives.is_drive(option):
                value = checked_drive(cluster, change, conf, option, value)
            conf.pending[option] = value
            waiting.pop(option, None)
        conf.set_pending_delete(waiting)
        # Source: AbstractConfig.pm: cleanup_pending.
        for option in [key for key, value in conf.pending.items() if conf.values.get(key) == value]:
            del conf.pending[option]
        conf.write()
        errors: dict[str, str] = {}
        machine = cluster.machines[change.vmid]
        if machine.running:
            hotplug(cluster, change, conf, machine, errors)
        else:
            apply_cold(cluster, change, conf, errors)
        conf.write()
        if errors:
            raise param_error(errors)


def check_drive_permission(cluster: Cluster, change: Change, option: str, value: str) -> None:
    """Source: $check_drive_perms."""
    drive = drives.parse_drive(option, value)
    if drive is None:
        return
    needed = ["VM.Config.Disk"]
    if drives.is_cloudinit(drive):
        needed = ["VM.Config.Cloudinit", "VM.Config.CDROM"]
    elif drives.is_cdrom(drive):
        needed = ["VM.Config.CDROM"]
    cluster.access.check(change.token, f"/vms/{change.vmid}", *needed)


def delete_option(cluster: Cluster, change: Change, conf: GuestConfig, option: str, task: Task | None) -> None:
    value = conf.values.get(option, conf.pending.get(option))
    if value is None:
        if task:
            task.print(f"cannot delete '{option}' - not set in current configuration!")
        return
    conf.pending.pop(option, None)
    if drives.is_unused(option):
        drive = drives.parse_drive(option, value)
        volume = drive["file"] if drive else value
        conf.check_protection(f"can't remove unused disk '{volume}'")
        cluster.access.check(change.token, f"/vms/{change.vmid}", "VM.Config.Disk")
        deallocate(cluster, change, conf, option, volume)
        conf.values.pop(option, None)
        conf.write()
        return
    if drives.is_drive(option):
        conf.check_protection(f"can't remove drive '{option}'")
        check_drive_permission(cluster, change, option, value)
    elif option == "tags":
        conf.values.pop(option, None)
        return
    conf.set_pending_delete(conf.pending_delete() | {option: change.force})


def deallocate(cluster: Cluster, change: Change, conf: GuestConfig, option: str, volume: str) -> None:
    """Source: try_deallocate_drive: volumes of other machines are only removed from the configuration."""
    parsed = cluster.volumes.parse(volume)
    if parsed.owner != change.vmid:
        return
    cluster.access.check(change.token, f"/storage/{parsed.storage}", "Datastore.AllocateSpace")
    if conf.volume_in_use(volume, option):
        raise ApiError(f"unable to delete '{volume}' - volume is still in use (snapshot?)")
    cluster.volumes.free(volume, change.node)


def checked_drive(cluster: Cluster, change: Change, conf: GuestConfig, option: str, value: str) -> str:
    """Source: create_disks, for volumes that exist: their size is set, their format must be the storage's."""
    if option in conf.values:
        check_drive_permission(cluster, change, option, conf.values[option])
    check_drive_permission(cluster, change, option, value)
    drive = drives.parse_drive(option, value)
    if drive is None or drive["file"] in ("none", "cdrom"):
        return value
    volume = cluster.volumes.parse(drive["file"])
    if "format" in drive and drive["format"] != volume.format:
        raise ApiError(
            f"drive '{option}' - volume '{volume.id}' - 'format={drive['format']}' option different from storage format '{volume.format}'"
        )
    size = cluster.volumes.size(volume.id, change.node)
    if not size:
        raise ApiError(f"volume {volume.id} does not exist")
    return drives.print_drive(drive | {"size": format_size(size)})


def hotplug(cluster: Cluster, change: Change, conf: GuestConfig, machine: Machine, errors: dict[str, str]) -> None:
    """Source: vmconfig_hotplug_pending. What cannot be changed in the running process stays pending."""
    for option in [key for key in conf.pending if key in FAST]:
        conf.values[option] = conf.pending.pop(option)
    left = conf.pending_delete()
    for option, force in sorted(left.items()):
        if option in FAST:
            conf.values.pop(option, None)
            del left[option]
        elif drives.is_drive(option) and not re.match(r"ide|sata|efidisk|tpmstate", option):
            try:
                unplug(machine, option)
                detach(cluster, change, conf, option, force)
                del left[option]
            except (ApiError, QmpError) as error:
                errors[option] = f"hotplug problem - {error}\n"
    conf.set_pending_delete(left)
    for option in [key for key in conf.pending if drives.is_drive(key) and key not in ("efidisk0", "tpmstate0")]:
        try:
            if update_drive(cluster, conf, machine, option):
                conf.values[option] = conf.pending.pop(option)
        except (ApiError, QmpError) as error:
            errors[option] = f"hotplug problem - {error}\n"


def update_drive(cluster: Cluster, conf: GuestConfig, machine: Machine, option: str) -> bool:
    """Returns true if the change took effect. Source: vmconfig_update_disk."""
    new, old = drives.parse_drive(option, conf.pending[option]), drives.parse_drive(option, conf.values.get(option, ""))
    if new is None:
        return False
    if old is None or not old.get("file"):
        raise NotModelled(f"hot-plug of {option}")
    if new.get("media", "disk") != old.get("media", "disk"):
        raise ApiError("unable to change media type")
    if new["file"] != old["file"]:
        raise NotModelled(f"change of the volume of {option} in a running machine")
    if drives.is_cdrom(old):
        return True
    if any(new.get(key) != old.get(key) for key in drives.COLD):
        return False
    if drives.throttle(new) != drives.throttle(old):
        machine.monitor().command("block_set_io_throttle", device=f"drive-{option}", **cluster.limits(new))
    return True


def unplug(machine: Machine, option: str) -> None:
    """A guest has to take part in the removal of PCI devices, and this one does not."""
    if drives.bus_of(option) != "scsi":
        raise ApiError(f"error on hot-unplugging device '{option}'")
    machine.monitor().command("device_del", id=option)
    text = machine.monitor().human(f"drive_del drive-{option}").strip()
    # Source: QemuServer.pm: qemu_drivedel: a drive that is not found went away with its device.
    if text and not re.search(r"Device '.*' not found", text):
        raise ApiError(f"deleting drive {option} failed : {text}")


def detach(cluster: Cluster, change: Change, conf: GuestConfig, option: str, force: bool) -> None:
    """Source: vmconfig_delete_or_detach_drive, vmconfig_register_unused_drive."""
    drive = drives.parse_drive(option, conf.values.pop(option, ""))
    if drive is None or not drive.get("file") or drives.is_cdrom(drive):
        return
    volume = cluster.volumes.parse(drive["file"])
    if force:
        deallocate(cluster, change, conf, option, volume.id)
    elif volume.owner == change.vmid:
        conf.add_unused(volume.id)


def apply_cold(cluster: Cluster, change: Change, conf: GuestConfig, errors: dict[str, str]) -> None:
    """Source: vmconfig_apply_pending."""
    left = conf.pending_delete()
    for option, force in sorted(left.items()):
        try:
            if drives.is_drive(option) and option in conf.values:
                detach(cluster, change, conf, option, force)
            conf.values.pop(option, None)
            del left[option]
        except ApiError as error:
            errors[option] = f"unable to apply pending change {option} : {error}\n"
    conf.set_pending_delete(left)
    for option in [key for key in conf.pending if key != "delete"]:
        old = (
            drives.parse_drive(option, conf.values[option])
            if drives.is_drive(option) and option in conf.values
            else None
        )
        new = drives.parse_drive(option, conf.pending[option]) if old else None
        conf.values[option] = conf.pending.pop(option)
        if old and new and old["file"] != new["file"] and not drives.is_cdrom(old):
            conf.add_unused(old["file"])
