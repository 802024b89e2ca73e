"""Handlers of the endpoints of storages and tasks. See api.py."""

from typing import Any

import update
from api import Call, Data
from errors import ApiError, param_error
from schema import split_list
from tasks import Task


def storages(call: Call) -> Data:
    volumes, wanted = call.cluster.volumes, split_list(call.get("content"))
    if (name := call.get("storage")) and name not in volumes.storages:
        raise param_error({"storage": "No such storage."})
    rows = []
    for spec in volumes.storages.values():
        enabled = spec.enabled and call.node in spec.nodes
        if not call.cluster.access.has_any(
            call.token, f"/storage/{spec.id}", "Datastore.Audit", "Datastore.AllocateSpace"
        ):
            continue
        if (name and name != spec.id) or (call.get("enabled") == "1" and not spec.enabled):
            continue
        if wanted and not (enabled and set(wanted) & set(spec.content)):
            continue
        if (
            (target := call.get("target"))
            and target != call.node
            and not (spec.shared and target in spec.nodes and enabled)
        ):
            continue
        row: dict[str, Any] = {**volumes.status(spec, call.node), "storage": spec.id}
        if row["total"]:
            row["used_fraction"] = row["used"] / row["total"]
        if call.get("format") == "1":
            formats = volumes.formats(spec)
            row["formats"] = {"supported": list(formats), "default": formats[0]}
        rows.append(row)
    return rows


def storage_configs(call: Call) -> Data:
    """Source: pve-storage, PVE/API2/Storage/Config.pm: index."""
    rows = []
    for spec in call.cluster.volumes.storages.values():
        seen = call.cluster.access.has_any(
            call.token, f"/storage/{spec.id}", "Datastore.Audit", "Datastore.AllocateSpace"
        )
        if not seen or call.get("type") not in ("", spec.type):
            continue
        row: dict[str, Any] = {"storage": spec.id, "type": spec.type, "content": ",".join(sorted(spec.content))}
        own: dict[str, dict[str, Any]] = {
            "dir": {"path": f"/var/lib/{spec.id}"},
            "nfs": {"path": f"/mnt/pve/{spec.id}", "server": "127.0.0.1", "export": f"/{spec.id}", "shared": 1},
            "lvmthin": {"vgname": spec.id, "thinpool": "data"},
            "zfspool": {"pool": spec.id},
        }
        row |= own[spec.type]
        if len(spec.nodes) < len(call.cluster.inventory.nodes):
            row["nodes"] = ",".join(spec.nodes)
        rows.append(row | ({} if spec.enabled else {"disable": 1}))
    return rows


def storage_status(call: Call) -> Data:
    if call.get("storage") not in call.cluster.volumes.storages:
        raise param_error({"storage": "No such storage."})
    return call.cluster.volumes.status(call.cluster.volumes.storage(call.get("storage")), call.node)


def volumes(call: Call) -> Data:
    rows = []
    store = call.cluster.volumes
    for volume in store.list(call.get("storage"), call.node):
        if (call.get("content") and call.get("content") != volume.kind) or (
            call.get("vmid") and call.vmid != volume.owner
        ):
            continue
        try:
            update.check_access(call.cluster, call.token, volume.id, None)
        except ApiError:
            continue
        path = store.path(volume.id, call.node)
        try:
            facts = {"size": store.size(volume.id, call.node)} | store.ctime(volume.id, call.node)
            facts |= {"used": store.allocated(path)} if store.file_based(store.storage(volume.storage)) else {}
        except FileNotFoundError:
            continue
        row: dict[str, Any] = {
            "volid": volume.id,
            "content": volume.kind,
            "format": "iso" if volume.kind == "iso" else volume.format,
            **facts,
        }
        rows.append(row | ({"vmid": volume.owner} if volume.owner else {}))
    return rows


def _volume_id(call: Call) -> str:
    """Source: Content.pm: $real_volume_id."""
    storage, name = call.get("storage"), call.get("volume")
    if ":" not in name:
        return f"{storage}:{name}"
    if name.partition(":")[0] != storage:
        raise param_error({"volume": f"storage ID mismatch ({name.partition(':')[0]} != {storage})\n"})
    return name


def volume(call: Call) -> Data:
    store, name = call.cluster.volumes, _volume_id(call)
    update.check_access(call.cluster, call.token, name, None)
    path, size = store.path(name, call.node), store.size(name, call.node)
    if not size:
        raise ApiError(f"volume_size_info on '{name}' failed - no format")
    return {
        "path": store.shown_path(name, call.node),
        "size": size,
        "used": store.allocated(path),
        "format": store.parse(name).format,
    }


def delete_volume(call: Call) -> Data:
    name, cluster = _volume_id(call), call.cluster
    parsed = cluster.volumes.parse(name)
    cluster.access.check(call.token, f"/storage/{parsed.storage}", "Datastore.Allocate")

    def work(task: Task) -> None:
        cluster.volumes.free(name, call.node)
        task.print(f"Removed volume '{name}'")

    ident = f"{parsed.owner}@{parsed.storage}" if parsed.owner else parsed.storage
    task = cluster.worker(call.node, "imgdel", ident, call.token, work, call.hold)
    if call.get("delay") and task.ended.wait(int(call.get("delay"))):
        if task.exit != "OK":
            raise ApiError(task.exit)
        return None
    return task.upid


# Tasks


def kind_of_end(text: str) -> str:
    """Source: pve-common, PVE/Tools.pm: upid_normalize_status_type."""
    if text.startswith("WARNINGS: "):
        return "warning"
    return {"OK": "ok", "": "unknown", "unexpected status": "unknown"}.get(text, "error")


def _own(call: Call, task: Task) -> bool:
    """A token sees its own tasks, a user those of the tokens, too. Source: Tasks.pm: $check_task_user."""
    return call.token in (task.user, task.user.partition("!")[0])


def tasks(call: Call) -> Data:
    auditor = call.cluster.access.has(call.token, f"/nodes/{call.node}", "Sys.Audit")
    source = call.get("source") or "archive"
    wanted = [word.lower() for word in split_list(call.get("statusfilter"))]
    rows: list[dict[str, Any]] = []
    for task in call.cluster.tasks.list(call.node):
        active = not task.ended.is_set()
        result = kind_of_end(task.exit)
        if not (auditor or _own(call, task)) or (source == "archive" and active) or (source == "active" and not active):
            continue
        if call.get("vmid") and task.ident != call.get("vmid"):
            continue
        if (call.get("typefilter") and task.kind != call.get("typefilter")) or (
            call.get("userfilter") and call.get("userfilter").lower() not in task.user.lower()
        ):
            continue
        if (call.get("errors") == "1" and result == "ok") or (wanted and (active or result not in wanted)):
            continue
        if (call.get("since") and task.start_time < int(call.get("since"))) or (
            call.get("until") and task.start_time > int(call.get("until"))
        ):
            continue
        ended = {"status": "RUNNING"} if active else {"endtime": task.end_time, "status": task.exit}
        rows.append(task.facts() | ended)
    call.total = len(rows)
    first = int(call.get("start") or 0)
    return rows[first : first + int(call.get("limit") or 50)]


def _task(call: Call, privilege: str) -> Task:
    task = call.cluster.tasks.find(call.get("upid"), call.node)
    if not _own(call, task):
        call.cluster.access.check(call.token, f"/nodes/{call.node}", privilege)
    return task


def stop_task(call: Call) -> Data:
    call.cluster.tasks.stop(_task(call, "Sys.Modify"))
    return None


def task_log(call: Call) -> Data:
    """Source: pve-common, PVE/Tools.pm: dump_logfile: an empty log has the line `no content`."""
    lines = list(_task(call, "Sys.Audit").lines) or ["no content"]
    # A limit of zero is none.
    first, limit = int(call.get("start") or 0), int(call.get("limit") or 50) or len(lines)
    call.total = len(lines)
    return [{"n": n + 1, "t": line} for n, line in enumerate(lines)][first : first + limit]


def task_status(call: Call) -> Data:
    task = _task(call, "Sys.Audit")
    ended = task.ended.is_set()
    return task.facts() | ({"status": "stopped", "exitstatus": task.exit} if ended else {"status": "running"})
