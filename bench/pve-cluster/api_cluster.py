"""Handlers of the endpoints of the cluster as a whole. See api.py."""

import hashlib
import json
import time
from typing import Any

from api import Call, Data, vm_status
from errors import ApiError, param_error, permission_error
from inventory import HaResource, ReplicationJob


def version(call: Call) -> Data:
    text = call.cluster.inventory.version
    return {
        "version": text,
        "release": ".".join(text.split(".")[:2]),
        "repoid": hashlib.sha1(text.encode()).hexdigest()[:16],
    }


def permissions(call: Call) -> Data:
    """Source: pve-access-control, PVE/API2/AccessControl.pm: permissions: a user's or token's own, or with Sys.Audit any."""
    token, path = call.get("userid") or call.token, call.get("path")
    access = call.cluster.access
    if token != call.token:
        access.check(call.token, "/access", "Sys.Audit")
    if token not in access.specs:
        raise param_error({"userid": f"no such token '{token}'"})
    if path:
        return {path: {privilege: 1 for privilege in sorted(access.privileges(token, path))}}
    return access.effective(token, {below for _, below in access.denied})


def _online(call: Call, node: str) -> bool:
    return node not in call.cluster.faults.down


def _node(call: Call, node: Any) -> dict[str, Any]:
    """Source: pve-manager, PVE/API2Tools.pm: extract_node_stats: without Sys.Audit only the status."""
    entry: dict[str, Any] = {
        "id": f"node/{node.name}",
        "node": node.name,
        "type": "node",
        "status": "online" if _online(call, node.name) else "offline",
    }
    if not _online(call, node.name) or not call.cluster.access.has(call.token, f"/nodes/{node.name}", "Sys.Audit"):
        return entry
    used = sum(32 << 20 for machine in call.cluster.on_node(node.name) if machine.running)
    entry |= {
        "cpu": 0.01,
        "maxcpu": node.cpus,
        "mem": (1 << 30) + used,
        "maxmem": node.memory,
        "disk": 4 << 30,
        "maxdisk": 64 << 30,
    }
    return entry | {"uptime": int(time.time() - call.cluster.began), "level": ""}


def nodes(call: Call) -> Data:
    return [_node(call, node) for node in call.cluster.inventory.nodes]


def resources(call: Call) -> Data:
    kind, rows = call.get("type"), []
    cluster = call.cluster
    if kind in ("", "vm"):
        states = {entry.sid: entry.crm_state for entry in cluster.inventory.ha}
        for machine in cluster.machines.values():
            if not cluster.access.has(call.token, f"/vms/{machine.vmid}", "VM.Audit"):
                continue
            entry: dict[str, Any] = {
                "id": f"qemu/{machine.vmid}",
                "type": "qemu",
                "vmid": machine.vmid,
                "node": machine.node,
            }
            # Source: API2Tools.pm: extract_vm_stats: of a node that is down only the list of machines is known.
            entry |= {"status": "unknown", "template": 0}
            if _online(call, machine.node):
                state = vm_status(cluster, machine, False)
                keys = (
                    "status",
                    "name",
                    "maxmem",
                    "mem",
                    "memhost",
                    "maxdisk",
                    "disk",
                    "diskread",
                    "diskwrite",
                    "netin",
                    "netout",
                    "cpu",
                    "uptime",
                    "lock",
                    "tags",
                )
                entry |= {key: state[key] for key in keys if key in state} | {
                    "maxcpu": state["cpus"],
                    "template": state.get("template", 0),
                }
            if f"vm:{machine.vmid}" in states:
                entry["hastate"] = states[f"vm:{machine.vmid}"]
            rows.append(entry)
    if kind in ("", "node"):
        rows += [_node(call, node) for node in cluster.inventory.nodes]
    if kind in ("", "storage"):
        for spec in cluster.volumes.storages.values():
            if not spec.enabled or not cluster.access.has(call.token, f"/storage/{spec.id}", "Datastore.Audit"):
                continue
            for node in spec.nodes:
                entry = {
                    "id": f"storage/{node}/{spec.id}",
                    "type": "storage",
                    "storage": spec.id,
                    "node": node,
                    "plugintype": spec.type,
                }
                entry |= {"shared": int(spec.shared), "content": ",".join(sorted(spec.content)), "status": "unknown"}
                if _online(call, node):
                    facts = cluster.volumes.status(spec, node)
                    entry |= {"status": "available", "disk": facts["used"], "maxdisk": facts["total"]}
                rows.append(entry)
    return rows


def cluster_status(call: Call) -> Data:
    names = [node.name for node in call.cluster.inventory.nodes]
    alive = [name for name in names if _online(call, name)]
    rows: list[dict[str, Any]] = [
        {
            "id": "cluster",
            "type": "cluster",
            "name": "fake",
            "nodes": len(names),
            "version": 1,
            "quorate": int(2 * len(alive) > len(names)),
        }
    ]
    for index, name in enumerate(names):
        rows.append(
            {
                "id": f"node/{name}",
                "type": "node",
                "name": name,
                "nodeid": index + 1,
                "ip": "127.0.0.1",
                "local": int(index == 0),
                "online": int(name in alive),
                "level": "",
            }
        )
    return rows


def _ha_digest(call: Call) -> str:
    return hashlib.sha1(json.dumps([entry.__dict__ for entry in call.cluster.inventory.ha]).encode()).hexdigest()


def _ha_entry(call: Call, entry: HaResource) -> dict[str, Any]:
    facts = {"sid": entry.sid, "type": entry.sid.split(":")[0], "state": entry.state, "digest": _ha_digest(call)}
    return facts | {"max_restart": entry.max_restart, "max_relocate": entry.max_relocate}


def ha_resources(call: Call) -> Data:
    entries = call.cluster.inventory.ha
    return [_ha_entry(call, entry) for entry in entries if call.get("type") in ("", entry.sid.split(":")[0])]


def ha_resource(call: Call) -> Data:
    sid = call.get("sid") if ":" in call.get("sid") else f"vm:{call.get('sid')}"
    entry = next((entry for entry in call.cluster.inventory.ha if entry.sid == sid), None)
    if entry is None:
        raise ApiError(f"no such resource '{sid}'")
    return _ha_entry(call, entry)


def ha_index(call: Call) -> Data:
    return [{"name": "current"}, {"name": "manager_status"}]


def ha_status(call: Call) -> Data:
    """Source: PVE/API2/HA/Status.pm: status."""
    names, now = [node.name for node in call.cluster.inventory.nodes], int(time.time())
    alive = [name for name in names if _online(call, name)]
    quorate = 2 * len(alive) > len(names)
    text = "OK" if quorate else f"No quorum on node '{names[0]}'!"
    rows: list[dict[str, Any]] = [
        {"id": "quorum", "type": "quorum", "node": names[0], "status": text, "quorate": int(quorate)}
    ]
    when = time.ctime(now)
    rows.append(
        {"id": "master", "type": "master", "node": names[0], "status": f"{names[0]} (active, {when})", "timestamp": now}
    )
    for name in names:
        state = "active" if name in alive else "old timestamp - dead?"
        rows.append(
            {
                "id": f"lrm:{name}",
                "type": "lrm",
                "node": name,
                "status": f"{name} ({state}, {when})",
                "timestamp": now if name in alive else now - 60,
            }
        )
    for entry in call.cluster.inventory.ha:
        vmid = int(entry.sid.split(":")[1])
        node = call.cluster.machines[vmid].node if vmid in call.cluster.machines else "---"
        row = {
            "id": f"service:{entry.sid}",
            "type": "service",
            "sid": entry.sid,
            "node": node,
            "crm_state": entry.crm_state,
            "state": entry.crm_state,
        }
        row |= {"status": f"{entry.sid} ({node}, {entry.crm_state})", "request_state": entry.state}
        rows.append(row | {"max_restart": entry.max_restart, "max_relocate": entry.max_relocate})
    return rows


def _job(call: Call, job: ReplicationJob) -> dict[str, Any]:
    facts = {
        "id": job.id,
        "type": "local",
        "guest": job.guest,
        "jobnum": int(job.id.split("-")[1]),
        "target": job.target,
        "schedule": job.schedule,
    }
    facts["source"] = call.cluster.machines[job.guest].node
    return facts | ({"disable": 1} if job.disable else {})


def replication_jobs(call: Call) -> Data:
    """Source: PVE/API2/ReplicationConfig.pm: index: jobs of guests without VM.Audit are left out."""
    seen = [
        job
        for job in call.cluster.inventory.replication
        if call.cluster.access.has(call.token, f"/vms/{job.guest}", "VM.Audit")
    ]
    return [_job(call, job) for job in seen]


def replication_status(call: Call) -> Data:
    """Source: PVE/API2/Replication.pm: status: a guest without VM.Audit refuses the whole list."""
    rows = []
    for job in call.cluster.inventory.replication:
        if call.cluster.machines[job.guest].node != call.node or (
            call.get("guest") and int(call.get("guest")) != job.guest
        ):
            continue
        if not call.cluster.access.has(call.token, f"/vms/{job.guest}", "VM.Audit"):
            raise permission_error(f"/vms/{job.guest}, VM.Audit")
        began = int(call.cluster.began)
        state: dict[str, Any] = {
            "vmtype": "qemu",
            "last_sync": began,
            "last_try": began,
            "next_sync": began + 900,
            "fail_count": 0,
            "duration": 1.5,
        }
        if job.error:
            state |= {"error": job.error, "fail_count": 1, "last_sync": 0}
        rows.append(_job(call, job) | state)
    return rows
