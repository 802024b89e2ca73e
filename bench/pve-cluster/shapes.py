"""Tables of parameters and answers that the endpoints share. Facts of the same source as endpoints.py."""

from drives import COUNTS, FORMATS, UNUSED
from schema import Prop, boolean, choice, integer, number, string

OPT_INT = integer(optional=True)
OPT_NUM = number(optional=True)
OPT_STR = string(optional=True)
OPT_BOOL = boolean(optional=True)
NODE = string(format="pve-node")
STORAGE = string(format="pve-storage-id")
VMID = integer(format="pve-vmid", minimum=100, maximum=999999999)
OPT_VMID = integer(format="pve-vmid", minimum=100, maximum=999999999, optional=True)
DIGEST = string(optional=True, max_length=40)


VM_STATUS = {
    "vmid": VMID,
    "status": choice("stopped", "running"),
    **{
        key: OPT_INT
        for key in ("mem", "maxmem", "memhost", "maxdisk", "diskread", "diskwrite", "netin", "netout", "pid", "uptime")
    },
    **{
        key: OPT_NUM
        for key in ("cpu", "cpus", "pressurecpusome", "pressurecpufull", "pressureiosome", "pressureiofull")
    },
    **{key: OPT_NUM for key in ("pressurememorysome", "pressurememoryfull")},
    **{key: OPT_STR for key in ("name", "qmpstatus", "lock", "tags", "running-machine", "running-qemu")},
    "template": OPT_BOOL,
    "serial": OPT_BOOL,
}

# Options of a virtual machine. Drives of the same bus share a format. Options whose inner format no client of storage
# uses are checked as text only.
_BOOLEANS = "acpi allow-ksm autostart ciupgrade freeze keephugepages kvm localtime numa onboot protection reboot tablet tdf template"
_TEXTS = (
    "agent amd-sev args audio0 boot bootdisk cdrom cicustom cipassword ciuser cpu hookscript hotplug intel-tdx ivshmem machine"
    " memory nameserver rng0 searchdomain startdate startup vga vmgenid watchdog spice_enhancements"
)
_NUMBERED = {"net": 32, "hostpci": 16, "usb": 14, "serial": 4, "parallel": 3, "numa": 8, "ipconfig": 32, "virtiofs": 10}
LOCKS = ("backup", "clone", "create", "migrate", "rollback", "snapshot", "snapshot-delete", "suspending", "suspended")

VM_OPTIONS: dict[str, Prop] = {
    **{key: OPT_BOOL for key in _BOOLEANS.split()},
    **{key: OPT_STR for key in _TEXTS.split()},
    **{f"{bus}{index}": OPT_STR for bus, count in _NUMBERED.items() for index in range(count)},
    **{f"{bus}{i}": string(optional=True, format=FORMATS[bus]) for bus, count in COUNTS.items() for i in range(count)},
    **{f"unused{index}": string(optional=True, format=FORMATS["unused"]) for index in range(UNUSED)},
    "affinity": string(optional=True, pattern=r"\s*\d+(-\d+)?\s*(,\s*\d+(-\d+)?\s*)*"),
    "arch": choice("x86_64", "aarch64", optional=True),
    "balloon": integer(optional=True, minimum=0),
    "bios": choice("seabios", "ovmf", optional=True),
    "citype": choice("configdrive2", "nocloud", "opennebula", optional=True),
    "cores": integer(optional=True, minimum=1),
    "cpulimit": number(optional=True, minimum=0, maximum=128),
    "cpuunits": integer(optional=True, minimum=1, maximum=262144),
    "description": string(optional=True, max_length=8192),
    "hugepages": choice("any", "2", "1024", optional=True),
    "keyboard": OPT_STR,
    "lock": choice(*LOCKS, optional=True),
    "migrate_downtime": number(optional=True, minimum=0),
    "migrate_speed": integer(optional=True, minimum=0),
    "name": string(optional=True, format="dns-name"),
    "ostype": choice(*"other wxp w2k w2k3 w2k8 wvista win7 win8 win10 win11 l24 l26 solaris".split(), optional=True),
    "scsihw": choice("lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi", optional=True),
    "shares": integer(optional=True, minimum=0, maximum=50000),
    "smbios1": string(optional=True, max_length=512),
    "smp": integer(optional=True, minimum=1),
    "sockets": integer(optional=True, minimum=1),
    "sshkeys": string(optional=True, format="urlencoded"),
    "tags": string(optional=True, format="pve-tag-list"),
    "vcpus": integer(optional=True, minimum=1),
    "vmstatestorage": string(optional=True, format="pve-storage-id"),
}
UPDATE = VM_OPTIONS | {
    "node": NODE,
    "vmid": VMID,
    "skiplock": OPT_BOOL,
    "delete": string(optional=True, format="pve-configid-list"),
    "revert": string(optional=True, format="pve-configid-list"),
    "force": boolean(optional=True, requires="delete"),
    "digest": DIGEST,
}
STORAGE_STATUS = {
    "type": string(),
    "content": string(format="pve-storage-content-list"),
    "enabled": OPT_BOOL,
    "active": OPT_BOOL,
    "shared": OPT_BOOL,
    "total": OPT_INT,
    "used": OPT_INT,
    "avail": OPT_INT,
}
VOLUME = {
    "volid": string(),
    "vmid": OPT_INT,
    "parent": OPT_STR,
    "format": string(),
    "size": OPT_INT,
    "used": OPT_INT,
    "ctime": integer(optional=True, minimum=0),
    "notes": OPT_STR,
    "protected": OPT_BOOL,
}
RESOURCE = {
    "id": string(),
    "type": choice("node", "storage", "pool", "qemu", "lxc", "openvz", "sdn", "network"),
    "node": string(optional=True, format="pve-node"),
    "storage": string(optional=True, format="pve-storage-id"),
    "vmid": OPT_VMID,
    "content": string(optional=True, format="pve-storage-content-list"),
    "shared": OPT_BOOL,
    "template": OPT_BOOL,
    **{key: OPT_STR for key in ("hastate", "level", "lock", "name", "plugintype", "pool", "status", "tags")},
    **{key: integer(optional=True, minimum=0) for key in ("disk", "maxdisk", "mem", "memhost")},
    **{key: OPT_INT for key in ("diskread", "diskwrite", "maxmem", "netin", "netout", "uptime", "cgroup-mode")},
    "cpu": number(optional=True, minimum=0),
    "maxcpu": number(optional=True, minimum=0),
}
TASK = {key: string() for key in ("upid", "node", "type", "id", "user")} | {
    "pid": integer(),
    "pstart": integer(),
    "starttime": integer(),
}
HA_RESOURCE = {
    "sid": string(format="pve-ha-resource-or-vm-id"),
    "digest": string(),
    "type": string(),
    "state": choice("started", "stopped", "enabled", "disabled", "ignored", optional=True),
    "group": OPT_STR,
    "comment": OPT_STR,
    "failback": OPT_BOOL,
    "max_restart": OPT_INT,
    "max_relocate": OPT_INT,
}
HA_STATUS = {
    "id": string(),
    "node": string(),
    "status": string(),
    "type": choice("quorum", "master", "lrm", "service"),
    "quorate": OPT_BOOL,
    "timestamp": OPT_INT,
    "failback": OPT_BOOL,
    "max_relocate": OPT_INT,
    "max_restart": OPT_INT,
    **{key: OPT_STR for key in ("crm_state", "request_state", "sid", "state")},
}
AT = {"node": NODE}
OF_VM = {"node": NODE, "vmid": VMID}
OF_STORAGE = {"node": NODE, "storage": STORAGE}
OF_TASK = {"node": NODE, "upid": string()}
POWER = OF_VM | {"skiplock": OPT_BOOL, "timeout": integer(optional=True, minimum=0)}
START = {
    **{
        key: OPT_STR
        for key in ("force-cpu", "machine", "migration_network", "nets-host-mtu", "stateuri", "targetstorage")
    },
    "migratedfrom": string(optional=True, format="pve-node"),
    "migration_type": choice("secure", "insecure", optional=True),
    "with-conntrack-state": OPT_BOOL,
}
STOP = {
    "keepActive": OPT_BOOL,
    "migratedfrom": string(optional=True, format="pve-node"),
    "overrule-shutdown": OPT_BOOL,
}
