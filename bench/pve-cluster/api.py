"""Handlers of the endpoints. Each takes a call and returns the data of the answer.

Sources, by group: virtual machines: qemu-server, PVE/API2/Qemu.pm and PVE/QemuServer.pm: vmstatus; storages: pve-storage,
PVE/API2/Storage/Status.pm and Content.pm; tasks: pve-manager, PVE/API2/Tasks.pm; cluster: pve-manager, PVE/API2/Cluster.pm,
PVE/API2/Replication.pm, PVE/API2/ReplicationConfig.pm; pve-ha-manager, PVE/API2/HA.
"""

import re
import time
from dataclasses import dataclass
from typing import Any

import drives
import move
import update
from cluster_state import Cluster
from errors import ApiError, NotModelled, param_error
from guestconfig import typed
from machine import Machine
from qmp import QmpError
from schema import parse_size
from tasks import Task

Data = Any


@dataclass
class Call:
    cluster: Cluster
    token: str
    parameters: dict[str, str]
    # Point at which a worker that this request starts hangs.
    hold: str = ""
    # Number of all entries, of which the answer is a part.
    total: int | None = None

    @property
    def node(self) -> str:
        return self.parameters["node"]

    @property
    def vmid(self) -> int:
        return int(self.parameters["vmid"])

    def get(self, key: str) -> str:
        return self.parameters.get(key, "")


# Virtual machines


def vm_status(cluster: Cluster, machine: Machine, full: bool) -> dict[str, Any]:
    conf = cluster.config(machine.vmid, machine.node)
    values = conf.values
    order = re.findall(r"[a-z]+\d+", values.get("boot", ""))
    sizes = (drive.get("size", "0") for key in order if (drive := drives.parse_drive(key, values.get(key, ""))))
    state: dict[str, Any] = {
        "vmid": machine.vmid,
        "status": "running" if machine.running else "stopped",
        "name": values.get("name", f"VM {machine.vmid}"),
        "cpus": int(values.get("sockets", 1)) * int(values.get("cores", 1)),
        "maxmem": int(values.get("memory", "512")) << 20,
        "maxdisk": parse_size(next(sizes, "0")),
        **{key: 0 for key in ("disk", "cpu", "mem", "memhost", "netin", "netout", "diskread", "diskwrite", "uptime")},
    }
    state |= {key: values[key] for key in ("lock", "tags") if key in values}
    if values.get("template") == "1":
        state["template"] = 1
    if not machine.running or machine.process is None:
        return state | ({"qmpstatus": "stopped"} if full else {})
    state |= {
        "pid": machine.process.pid,
        "uptime": int(time.time() - machine.started),
        "mem": 32 << 20,
        "memhost": 32 << 20,
    }
    if not full:
        return state
    try:
        monitor = machine.monitor()
        stats = machine.block_stats()
        version = monitor.command("query-version")["qemu"]
        current = re.search(r"pc-i440fx-[\d.]+", str(monitor.command("qom-get", path="/machine", property="type")))
        state |= {"qmpstatus": monitor.command("query-status")["status"], "blockstat": stats}
        state["diskread"] = sum(stat["rd_bytes"] for stat in stats.values())
        state["diskwrite"] = sum(stat["wr_bytes"] for stat in stats.values())
        state["running-qemu"] = machine.reported or f"{version['major']}.{version['minor']}.{version['micro']}"
        state["running-machine"] = current[0] if current else "pc"
    except (QmpError, OSError):
        state["qmpstatus"] = "running"
    return state


def vms(call: Call) -> Data:
    """Source: vmlist: machines without VM.Audit are left out."""
    seen = [
        machine
        for machine in call.cluster.on_node(call.node)
        if call.cluster.access.has(call.token, f"/vms/{machine.vmid}", "VM.Audit")
    ]
    return [vm_status(call.cluster, machine, call.get("full") == "1") for machine in seen]


def config(call: Call) -> Data:
    if call.get("snapshot") and call.get("current") == "1":
        message = "cannot use 'snapshot' parameter with 'current'"
        raise param_error({"snapshot": message, "current": message})
    conf = call.cluster.config(call.vmid, call.node)
    if name := call.get("snapshot"):
        if name not in conf.snapshots:
            raise ApiError(f"snapshot '{name}' does not exist")
        values = conf.snapshots[name]
    else:
        values = conf.values if call.get("current") == "1" else conf.with_pending()
    return typed(values) | {"digest": conf.digest}


def update_config(call: Call) -> Data:
    change = update.parse(call.cluster, call.token, call.parameters)
    update.load(call.cluster, change)
    update.apply(call.cluster, change)
    return None


def update_config_async(call: Call) -> Data:
    change = update.parse(call.cluster, call.token, call.parameters)
    update.load(call.cluster, change)
    cluster = call.cluster
    task = cluster.worker(
        call.node, "qmconfig", str(call.vmid), call.token, lambda task: update.apply(cluster, change, task), call.hold
    )
    delay = int(call.get("background_delay") or 0)
    if delay and task.ended.wait(delay):
        if task.exit != "OK":
            raise ApiError(f"failed to update VM {call.vmid}: {task.exit}")
        return None
    return task.upid


def pending(call: Call) -> Data:
    conf = call.cluster.config(call.vmid, call.node)
    waiting = conf.pending_delete()
    rows = []
    for key in sorted(set(conf.values) | set(conf.pending) - {"delete"}):
        row: dict[str, Any] = {"key": key}
        if key in conf.values:
            row["value"] = conf.values[key]
        if key in conf.pending:
            row["pending"] = conf.pending[key]
        if key in waiting:
            row["delete"] = 2 if waiting[key] else 1
        rows.append(row)
    return rows


def _machine(call: Call) -> Machine:
    """The machine, after a check that the node has its configuration."""
    call.cluster.config(call.vmid, call.node)
    return call.cluster.machines[call.vmid]


def status(call: Call) -> Data:
    state = vm_status(call.cluster, _machine(call), True)
    managed = next((entry for entry in call.cluster.inventory.ha if entry.sid == f"vm:{call.vmid}"), None)
    state["ha"] = {"managed": 1, "group": None, "state": managed.crm_state} if managed else {"managed": 0}
    return state


def start(call: Call) -> Data:
    machine, cluster = _machine(call), call.cluster

    def work(task: Task) -> None:
        with cluster.config_locked(machine.vmid, task):
            conf = cluster.config(machine.vmid, machine.node)
            conf.check_lock()
            change = update.Change(machine.node, machine.vmid, call.token, "", False, {})
            update.apply_cold(cluster, change, conf, {})
            conf.write()
            cluster.start(machine.vmid)

    return cluster.worker(call.node, "qmstart", str(call.vmid), call.token, work, call.hold).upid


def stop(call: Call) -> Data:
    machine, cluster = _machine(call), call.cluster

    def work(task: Task) -> None:
        with cluster.config_locked(machine.vmid, task):
            cluster.config(machine.vmid, machine.node).check_lock()
            machine.stop()

    return cluster.worker(call.node, "qmstop", str(call.vmid), call.token, work, call.hold).upid


def snapshots(call: Call) -> Data:
    conf = call.cluster.config(call.vmid, call.node)
    rows: list[dict[str, Any]] = []
    for name, values in conf.snapshots.items():
        row = {
            "name": name,
            "snaptime": int(values.get("snaptime", 0)),
            "vmstate": int("vmstate" in values),
            "description": values.get("description", ""),
        }
        rows.append(row | ({"parent": values["parent"]} if "parent" in values else {}))
    current = {
        "name": "current",
        "digest": conf.digest,
        "running": int(_machine(call).running),
        "description": "You are here!",
    }
    return [*rows, current | ({"parent": conf.values["parent"]} if "parent" in conf.values else {})]


def monitor(call: Call) -> Data:
    """Source: PVE/API2/Qemu.pm: monitor; PVE/API2/Qemu/HMPPerms.pm. Only commands that every caller may use."""
    words = call.get("command").split()
    if not words:
        raise ApiError("no command specified")
    if words[0] not in ("info", "help", "?"):
        raise NotModelled(f"monitor command {words[0]}")
    machine = _machine(call)
    try:
        return machine.monitor().human(call.get("command"))
    except (ApiError, QmpError, OSError) as error:
        return f"ERROR: {error}\n"


def move_disk(call: Call) -> Data:
    return move.request(call.cluster, call.token, call.parameters, call.hold).upid


def unlink(call: Call) -> Data:
    """Source: unlink: update_vm with the list as `delete`."""
    parameters = {key: value for key, value in call.parameters.items() if key != "idlist"}
    return update_config(Call(call.cluster, call.token, parameters | {"delete": call.get("idlist")}))
