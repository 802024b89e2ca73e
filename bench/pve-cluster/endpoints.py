"""The endpoints that this cluster has: parameters, answers, permissions.

Facts of `pve-api-types/pve-api.json` of proxmox/proxmox-rs (a dump of the API of Proxmox VE 9) and of the
register_method calls that it is made from. Answers are open objects unless the source closes them, as there.
"""

import re
from dataclasses import dataclass, field

from drives import NAMES_WITH_UNUSED
from schema import CONTENT, NULL, Prop, array, choice, integer, record, string
from shapes import (
    AT,
    DIGEST,
    HA_RESOURCE,
    HA_STATUS,
    NODE,
    OF_STORAGE,
    OF_TASK,
    OF_VM,
    OPT_BOOL,
    OPT_INT,
    OPT_NUM,
    OPT_STR,
    OPT_VMID,
    POWER,
    RESOURCE,
    START,
    STOP,
    STORAGE,
    STORAGE_STATUS,
    TASK,
    UPDATE,
    VM_OPTIONS,
    VM_STATUS,
    VOLUME,
)


@dataclass(frozen=True)
class Permission:
    """`["perm", PATH, PRIVILEGES, any => ANY]` of the source; without a path every user may call."""

    path: str = ""
    privileges: tuple[str, ...] = ()
    any: bool = False


EVERYONE = Permission()


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    handler: str
    parameters: dict[str, Prop]
    returns: Prop
    permission: Permission = EVERYONE
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        # A volume identifier may contain slashes: pve-storage, API2/Storage/Status.pm, fragmentDelimiter.
        regex = re.sub(
            r"\{(\w+)\}", lambda m: f"(?P<{m[1]}>.+)" if m[1] == "volume" else f"(?P<{m[1]}>[^/]+)", self.path
        )
        object.__setattr__(self, "pattern", re.compile(regex))

    @property
    def proxied(self) -> bool:
        """Returns true if the named node carries out the request (`proxyto => 'node'`)."""
        return self.path.startswith("/nodes/{node}/")


def _vm(privilege: str) -> Permission:
    return Permission("/vms/{vmid}", (privilege,))


_ANY_CONFIG = Permission(
    "/vms/{vmid}",
    tuple(f"VM.Config.{kind}" for kind in "Disk CDROM CPU Memory Network HWType Options Cloudinit".split()),
    any=True,
)

_STORAGE_READ = Permission("/storage/{storage}", ("Datastore.Audit", "Datastore.AllocateSpace"), any=True)

_SYS_AUDIT = Permission("/", ("Sys.Audit",))
ENDPOINTS = [
    Endpoint(
        "GET",
        "/version",
        "version",
        {},
        record({"release": string(), "repoid": string(pattern="[0-9a-fA-F]{8,64}"), "version": string()}),
    ),
    Endpoint(
        "GET",
        "/access/permissions",
        "permissions",
        {
            "path": OPT_STR,
            "userid": string(optional=True, pattern=r"[^\s:/]+@[A-Za-z][A-Za-z0-9.\-_]+(![A-Za-z][A-Za-z0-9.\-_]+)?"),
        },
        record({}),
    ),
    Endpoint(
        "GET",
        "/cluster/resources",
        "resources",
        {"type": choice("vm", "storage", "node", "sdn", optional=True)},
        array(record(RESOURCE)),
    ),
    Endpoint(
        "GET",
        "/cluster/status",
        "cluster_status",
        {},
        array(record({"id": string(), "name": string(), "type": choice("cluster", "node")})),
        _SYS_AUDIT,
    ),
    Endpoint(
        "GET",
        "/cluster/ha/resources",
        "ha_resources",
        {"type": choice("vm", "ct", optional=True)},
        array(record({"sid": string()})),
        _SYS_AUDIT,
    ),
    Endpoint(
        "GET",
        "/cluster/ha/resources/{sid}",
        "ha_resource",
        {"sid": HA_RESOURCE["sid"]},
        record(HA_RESOURCE),
        _SYS_AUDIT,
    ),
    Endpoint("GET", "/cluster/ha/status", "ha_index", {}, array(record({}))),
    Endpoint("GET", "/cluster/ha/status/current", "ha_status", {}, array(record(HA_STATUS)), _SYS_AUDIT),
    Endpoint("GET", "/cluster/replication", "replication_jobs", {}, array(record({"id": string()}))),
    Endpoint(
        "GET",
        "/storage",
        "storage_configs",
        {"type": choice("dir", "nfs", "lvmthin", "zfspool", optional=True)},
        array(record({"storage": STORAGE})),
    ),
    Endpoint(
        "GET", "/nodes", "nodes", {}, array(record({"node": NODE, "status": choice("unknown", "online", "offline")}))
    ),
    Endpoint("GET", "/nodes/{node}/qemu", "vms", AT | {"full": OPT_BOOL}, array(record(VM_STATUS))),
    Endpoint(
        "GET",
        "/nodes/{node}/qemu/{vmid}/config",
        "config",
        OF_VM | {"current": OPT_BOOL, "snapshot": string(optional=True, format="pve-configid", max_length=40)},
        record(
            VM_OPTIONS
            | {"digest": string(), "meta": OPT_STR, "parent": OPT_STR, "snaptime": OPT_INT, "vmstate": OPT_STR}
        ),
        _vm("VM.Audit"),
    ),
    Endpoint("PUT", "/nodes/{node}/qemu/{vmid}/config", "update_config", UPDATE, NULL, _ANY_CONFIG),
    Endpoint(
        "POST",
        "/nodes/{node}/qemu/{vmid}/config",
        "update_config_async",
        UPDATE
        | {
            "background_delay": integer(optional=True, minimum=1, maximum=30),
            "import-working-storage": string(optional=True, format="pve-storage-id"),
        },
        OPT_STR,
        _ANY_CONFIG,
    ),
    Endpoint(
        "GET",
        "/nodes/{node}/qemu/{vmid}/pending",
        "pending",
        OF_VM,
        array(
            record(
                {
                    "key": string(),
                    "value": OPT_STR,
                    "pending": OPT_STR,
                    "delete": integer(optional=True, minimum=0, maximum=2),
                }
            )
        ),
        _vm("VM.Audit"),
    ),
    Endpoint(
        "GET",
        "/nodes/{node}/qemu/{vmid}/status/current",
        "status",
        OF_VM,
        record(VM_STATUS | {"ha": record({}), "spice": OPT_BOOL, "agent": OPT_BOOL}),
        _vm("VM.Audit"),
    ),
    Endpoint(
        "POST",
        "/nodes/{node}/qemu/{vmid}/monitor",
        "monitor",
        OF_VM | {"command": string()},
        string(),
        Permission("/vms/{vmid}", ("Sys.Audit", "Sys.Modify"), any=True),
    ),
    Endpoint("POST", "/nodes/{node}/qemu/{vmid}/status/start", "start", POWER | START, string(), _vm("VM.PowerMgmt")),
    Endpoint("POST", "/nodes/{node}/qemu/{vmid}/status/stop", "stop", POWER | STOP, string(), _vm("VM.PowerMgmt")),
    Endpoint(
        "GET",
        "/nodes/{node}/qemu/{vmid}/snapshot",
        "snapshots",
        OF_VM,
        array(
            record(
                {"name": string(), "description": string(), "vmstate": OPT_BOOL, "snaptime": OPT_INT, "parent": OPT_STR}
            )
        ),
        _vm("VM.Audit"),
    ),
    Endpoint(
        "POST",
        "/nodes/{node}/qemu/{vmid}/move_disk",
        "move_disk",
        OF_VM
        | {
            "target-vmid": OPT_VMID,
            "disk": choice(*NAMES_WITH_UNUSED),
            "storage": string(optional=True, format="pve-storage-id"),
            "format": choice("raw", "qcow2", "vmdk", optional=True),
            "delete": OPT_BOOL,
            "digest": DIGEST,
            "bwlimit": integer(optional=True, minimum=0),
            "target-disk": choice(*NAMES_WITH_UNUSED, optional=True),
            "target-digest": DIGEST,
        },
        string(),
        _vm("VM.Config.Disk"),
    ),
    Endpoint(
        "PUT",
        "/nodes/{node}/qemu/{vmid}/unlink",
        "unlink",
        OF_VM | {"idlist": string(format="pve-configid-list"), "force": OPT_BOOL},
        NULL,
        _vm("VM.Config.Disk"),
    ),
    Endpoint(
        "GET",
        "/nodes/{node}/storage",
        "storages",
        AT
        | {
            "storage": string(optional=True, format="pve-storage-id"),
            "content": string(optional=True, format="pve-storage-content-list"),
            "enabled": OPT_BOOL,
            "target": string(optional=True, format="pve-node"),
            "format": OPT_BOOL,
        },
        array(record(STORAGE_STATUS | {"storage": STORAGE, "used_fraction": OPT_NUM})),
    ),
    Endpoint(
        "GET",
        "/nodes/{node}/storage/{storage}/status",
        "storage_status",
        OF_STORAGE,
        record(STORAGE_STATUS),
        _STORAGE_READ,
    ),
    Endpoint(
        "GET",
        "/nodes/{node}/storage/{storage}/content",
        "volumes",
        OF_STORAGE | {"content": choice(*CONTENT, optional=True), "vmid": OPT_VMID},
        array(record(VOLUME)),
        _STORAGE_READ,
    ),
    Endpoint(
        "GET",
        "/nodes/{node}/storage/{storage}/content/{volume}",
        "volume",
        OF_STORAGE | {"volume": string()},
        record(
            {
                "path": string(),
                "size": integer(),
                "used": integer(),
                "format": string(),
                "notes": OPT_STR,
                "protected": OPT_BOOL,
            }
        ),
    ),
    Endpoint(
        "DELETE",
        "/nodes/{node}/storage/{storage}/content/{volume}",
        "delete_volume",
        OF_STORAGE | {"volume": string(), "delay": integer(optional=True, minimum=1, maximum=30)},
        OPT_STR,
    ),
    Endpoint(
        "GET",
        "/nodes/{node}/tasks",
        "tasks",
        AT
        | {
            "errors": OPT_BOOL,
            "limit": integer(optional=True, minimum=0),
            "since": OPT_INT,
            "source": choice("archive", "active", "all", optional=True),
            "start": integer(optional=True, minimum=0),
            "statusfilter": string(optional=True, format="pve-task-status-type-list"),
            "typefilter": OPT_STR,
            "until": OPT_INT,
            "userfilter": OPT_STR,
            "vmid": OPT_VMID,
        },
        array(record(TASK | {"endtime": OPT_INT, "status": OPT_STR})),
    ),
    Endpoint("DELETE", "/nodes/{node}/tasks/{upid}", "stop_task", OF_TASK, NULL),
    Endpoint(
        "GET",
        "/nodes/{node}/tasks/{upid}/log",
        "task_log",
        OF_TASK
        | {
            "start": integer(optional=True, minimum=0),
            "limit": integer(optional=True, minimum=0),
            "download": OPT_BOOL,
        },
        array(record({"n": integer(), "t": string()})),
    ),
    Endpoint(
        "GET",
        "/nodes/{node}/tasks/{upid}/status",
        "task_status",
        OF_TASK,
        record(TASK | {"status": choice("running", "stopped"), "exitstatus": OPT_STR}),
    ),
    Endpoint(
        "GET",
        "/nodes/{node}/replication",
        "replication_status",
        AT | {"guest": OPT_VMID},
        array(record({"id": string()})),
    ),
]


def find(method: str, path: str) -> tuple[Endpoint, dict[str, str]] | None:
    for endpoint in ENDPOINTS:
        if endpoint.method == method and (found := endpoint.pattern.fullmatch(path)):
            return endpoint, found.groupdict()
    return None
