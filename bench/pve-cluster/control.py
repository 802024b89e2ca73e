"""Control of the cluster by tests: one JSON object per line on a unix socket, one JSON object as answer.

`fault` adds a rule of faults.py; `clear` removes all faults; `down` and `up` take a `node`; `deny` takes a `privilege`
and a `path`; `set` changes a `key` of the configuration of `vmid` (null removes it); `snapshot` adds the snapshot
`name`; `ha` and `replication` set a resource or job (without `state` or `target` they remove it); `migrate` takes a
stopped machine with shared disks to `node`; `nbd` returns the URI of a writable export of `disk`; `human` runs a
`command` of QEMU's human monitor; `kill` ends the process of `vmid`; `start` starts it from its configuration;
`reported-qemu` sets the `version` that the API reports for `vmid`; `release` lets hanging tasks run; `serial` returns the file of the serial port; `file` returns the file of a `volume`
on `node`.
"""

import json
import socketserver
import threading
from pathlib import Path
from typing import Any

import drives
from cluster_state import Cluster
from errors import ApiError
from inventory import HaResource, ReplicationJob


class Control:
    def __init__(self, cluster: Cluster, path: Path) -> None:
        self.cluster = cluster
        control = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    try:
                        answer = control.run(json.loads(line))
                    except ApiError as error:
                        answer = {"error": error.message}
                    except Exception as error:  # A bad command must not end the control.
                        answer = {"error": f"{type(error).__name__}: {error}"}
                    self.wfile.write(json.dumps(answer).encode() + b"\n")

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        path.unlink(missing_ok=True)
        self.server = Server(str(path), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        cluster, what = self.cluster, command.pop("do")
        vmid = command.get("vmid", 0)
        if what == "fault":
            cluster.faults.add(command)
        elif what == "clear":
            cluster.faults.clear()
            cluster.access.denied.clear()
            cluster.tasks.release()
        elif what == "down":
            cluster.faults.down.add(command["node"])
        elif what == "up":
            cluster.faults.down.discard(command["node"])
        elif what == "deny":
            cluster.access.denied.append((command["privilege"], command.get("path", "/")))
        elif what == "release":
            cluster.tasks.release()
        elif what == "set":
            self.set(vmid, command["key"], command["value"])
        elif what == "ha":
            self.ha(command)
        elif what == "replication":
            self.replication(command)
        elif what == "migrate":
            self.migrate(vmid, command["node"])
        elif what == "snapshot":
            self.snapshot(vmid, command["name"])
        elif what == "nbd":
            return {"uri": cluster.machines[vmid].export(command["disk"])}
        elif what == "human":
            return {"text": cluster.machines[vmid].monitor().human(command["command"])}
        elif what == "kill":
            cluster.machines[vmid].stop()
        elif what == "start":
            cluster.start(vmid)
        elif what == "reported-qemu":
            cluster.machines[vmid].reported = command["version"]
        elif what == "serial":
            return {"path": str(cluster.machines[vmid].serial)}
        elif what == "file":
            return {"path": str(cluster.volumes.path(command["volume"], command["node"]))}
        else:
            raise ApiError(f"unknown command {what}")
        return {}

    def set(self, vmid: int, key: str, value: str | None) -> None:
        conf = self.cluster.config(vmid, self.cluster.machines[vmid].node)
        if value is None:
            conf.values.pop(key, None)
        else:
            conf.values[key] = value
        conf.write()

    def ha(self, command: dict[str, Any]) -> None:
        entries = self.cluster.inventory.ha
        entries[:] = [entry for entry in entries if entry.sid != command["sid"]]
        if command.get("state"):
            entries.append(HaResource(**command))

    def replication(self, command: dict[str, Any]) -> None:
        jobs = self.cluster.inventory.replication
        jobs[:] = [job for job in jobs if job.id != command["id"]]
        if command.get("target"):
            jobs.append(ReplicationJob(**command))

    def migrate(self, vmid: int, node: str) -> None:
        """Takes a stopped machine whose volumes are shared to another node, as an offline migration does."""
        machine = self.cluster.machines[vmid]
        conf = self.cluster.config(vmid, machine.node)
        found = (drives.parse_drive(key, value) for key, value in conf.values.items() if drives.is_drive(key))
        storages = {drive["file"].partition(":")[0] for drive in found if drive}
        if machine.running or not all(self.cluster.volumes.storage(name).shared for name in storages):
            raise ApiError(f"VM {vmid} runs or has local disks")
        old = self.cluster.config_path(vmid)
        machine.node = node
        self.cluster.config_path(vmid).parent.mkdir(parents=True, exist_ok=True)
        old.rename(self.cluster.config_path(vmid))

    def snapshot(self, vmid: int, name: str) -> None:
        conf = self.cluster.config(vmid, self.cluster.machines[vmid].node)
        copied = {
            key: value
            for key, value in conf.values.items()
            if key not in ("lock", "description") and not drives.is_unused(key)
        }
        conf.snapshots[name] = copied | {"snaptime": "1"}
        conf.values["parent"] = name
        conf.write()
