"""Checks of reading, of parameters, of privileges, and of changes of configurations."""

import gzip
import hashlib
import http.client
import json
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from testing import Failed, Running, expect, until

BAD = "Parameter verification failed."
ADMIN = "admin@pve!tests"


def reading(t: Running) -> None:
    expect(t.get("/version")["release"], "9.1", "release")
    expect([node["node"] for node in t.get("/nodes")], ["pve1", "pve2", "pve3"], "nodes")
    expect({row["type"] for row in t.get("/cluster/resources")}, {"qemu", "node", "storage"}, "types of resources")
    rows = {row["vmid"]: row for row in t.get("/cluster/resources", {"type": "vm"})}
    expect(
        {vmid: row["status"] for vmid, row in rows.items()},
        {100: "running", 101: "running", 102: "running", 103: "stopped", 104: "running", 105: "running"},
        "states",
    )
    expect((rows[101]["hastate"], rows[100]["maxdisk"]), ("started", 64 << 20), "HA state, size of the boot disk")
    shared = [row for row in t.get("/cluster/resources", {"type": "storage"}) if row["storage"] == "shared"]
    expect(
        [(row["node"], row["shared"]) for row in shared],
        [("pve1", 1), ("pve2", 1), ("pve3", 1)],
        "a shared storage once per node",
    )
    expect(t.get("/cluster/status")[0]["quorate"], 1, "quorum")
    expect(t.get("/cluster/ha/resources")[0]["sid"], "vm:101", "HA resources")
    expect(t.get("/cluster/ha/resources/101")["state"], "started", "HA resource by number")
    expect(len(t.get("/cluster/ha/status")), 2, "HA index")
    services = [row for row in t.get("/cluster/ha/status/current") if row["type"] == "service"]
    expect(
        [(row["sid"], row["node"], row["crm_state"]) for row in services],
        [("vm:101", "pve1", "started")],
        "HA services",
    )
    expect([job["id"] for job in t.get("/cluster/replication")], ["104-0"], "replication jobs")
    expect([job["fail_count"] for job in t.get("/nodes/pve3/replication")], [0], "replication state on the source")
    expect(t.get("/nodes/pve1/replication"), [], "replication state elsewhere")
    rights = t.get("/access/permissions")
    expect(rights["/vms"], {"VM.Audit": 1, "VM.Config.Disk": 1}, "privileges on /vms")
    expect(
        t.get("/access/permissions", {"path": "/storage/local"}),
        {"/storage/local": {"Datastore.Audit": 1, "Datastore.AllocateSpace": 1}},
        "inherited",
    )


def machines(t: Running) -> None:
    expect([row["vmid"] for row in t.get("/nodes/pve2/qemu", {"full": 1})], [102, 103], "machines of a node")
    state = t.get("/nodes/pve1/qemu/100/status/current")
    expect(sorted(state["blockstat"]), ["scsi0", "scsi1"], "drives with statistics")
    expect((state["qmpstatus"], state["ha"]), ("running", {"managed": 0}), "run state")
    expect(t.get("/nodes/pve1/qemu/101/status/current")["ha"]["state"], "started", "HA state of a machine")
    if not Path(f"/proc/{state['pid']}/exe").resolve().name.startswith("qemu-system"):
        raise Failed("the process of VM 100 is not QEMU")
    before = state["blockstat"]["scsi0"]["wr_operations"]
    t.control("human", vmid=100, command='qemu-io drive-scsi0 "aio_write -P 7 0 64k"')
    until(
        lambda: t.get("/nodes/pve1/qemu/100/status/current")["blockstat"]["scsi0"]["wr_operations"] == before + 1,
        "a counted write",
    )
    expect(t.get("/nodes/pve1/qemu/100/status/current")["diskwrite"], 65536, "bytes written")
    conf = t.config(102, "pve2")
    for key, text in (("efidisk0", "efitype=4m"), ("tpmstate0", "version=v2.0"), ("ide2", "media=cdrom")):
        if text not in conf[key]:
            raise Failed(f"{key} of VM 102 is {conf[key]}")
    expect("cloudinit" in t.config(104, "pve3")["ide2"], True, "cloud-init drive")
    names = [row["name"] for row in t.get("/nodes/pve2/qemu/103/snapshot")]
    expect(names, ["before", "after", "current"], "snapshots")
    expect(
        t.get("/nodes/pve2/qemu/103/config", {"snapshot": "before"})["scsi0"],
        t.config(103, "pve2")["scsi0"],
        "configuration of a snapshot",
    )
    expect([row["pending"] for row in t.get("/nodes/pve1/qemu/100/pending") if "pending" in row], [], "nothing pending")


def storages(t: Running) -> None:
    rows = {row["storage"]: row for row in t.get("/nodes/pve1/storage", {"content": "images", "format": 1})}
    expect(sorted(rows), ["local", "local-lvm", "shared", "slow", "tank"], "storages for images")
    expect(rows["local-lvm"]["formats"], {"supported": ["raw"], "default": "raw"}, "formats")
    configs = {row["storage"]: row for row in t.get("/storage")}
    shown = (
        configs["shared"]["shared"],
        configs["far"]["nodes"],
        configs["off"]["disable"],
        "nodes" in configs["local"],
    )
    expect(shown, (1, "pve3", 1, False), "configurations of storages")
    facts = t.get("/nodes/pve1/storage/local/status")
    expect((facts["total"], facts["total"] - facts["used"]), (4 << 30, facts["avail"]), "space")
    found = {row["volid"]: row for row in t.get("/nodes/pve2/storage/tank/content", {"vmid": 102})}
    expect(
        {name: row["size"] >> 20 for name, row in found.items()},
        {"tank:vm-102-disk-0": 4, "tank:vm-102-disk-1": 4, "tank:vm-102-disk-2": 64},
        "volumes",
    )
    expect([row for row in found.values() if "ctime" in row], [], "volumes of ZFS with a ctime")
    for node, storage in (("pve2", "local"), ("pve1", "local-lvm")):
        rows = t.get(f"/nodes/{node}/storage/{storage}/content", {"content": "images"})
        expect((rows != [], all(row["ctime"] > 0 for row in rows)), (True, True), f"ctime on {storage}")
    expect(
        [row["volid"] for row in t.get("/nodes/pve2/storage/local/content", {"content": "iso"})],
        ["local:iso/installer.iso"],
        "ISO images",
    )
    expect(
        t.get("/nodes/pve2/storage/tank/content/vm-102-disk-2")["path"],
        "/dev/zvol/tank/vm-102-disk-2",
        "path of a zvol",
    )
    whole = t.get("/nodes/pve2/storage/local/content/" + "local:103/vm-103-disk-0.raw")
    expect((whole["format"], whole["size"]), ("raw", 32 << 20), "a volume by its whole identifier")


def parameters(t: Running) -> None:
    path = "/nodes/pve1/qemu/100/move_disk"
    extra = "property is not defined in schema and the schema does not allow additional properties"
    t.refused("POST", path, {"disk": "scsi0", "storage": "tank", "speed": 1}, 400, BAD, {"speed": extra})
    t.refused("POST", path, {"storage": "tank"}, 400, BAD, {"disk": "property is missing and it is not optional"})
    t.refused(
        "POST",
        path,
        {"disk": "scsi0", "storage": "tank", "bwlimit": "fast"},
        400,
        BAD,
        {"bwlimit": "type check ('integer') failed - got 'fast'"},
    )
    t.refused(
        "POST",
        path,
        {"disk": "scsi0", "storage": "tank", "bwlimit": -1},
        400,
        BAD,
        {"bwlimit": "value must have a minimum value of 0"},
    )
    t.refused(
        "POST",
        path,
        {"disk": "scsi0", "storage": "tank", "delete": "true"},
        400,
        BAD,
        {"delete": "type check ('boolean') failed - got 'true'"},
    )
    t.refused(
        "POST",
        path,
        {"disk": "scsi0", "storage": "tank", "digest": "a" * 41},
        400,
        BAD,
        {"digest": "value may only be 40 characters long"},
    )
    long = t.raw("POST", path, {"disk": "scsi99", "storage": "tank"})
    expect(
        (long.status, long.body["errors"]["disk"][:55]),
        (400, "value 'scsi99' does not have a value in the enumeration"),
        "an unknown disk",
    )
    t.refused(
        "POST",
        path,
        {"disk": "scsi0", "storage": "tank", "vmid": 101},
        400,
        BAD,
        {"vmid": "duplicate parameter (already defined in URI)"},
    )
    both = "both 'storage' and 'target-vmid' missing, either needs to be set"
    t.refused("POST", path, {"disk": "scsi0"}, 400, BAD, {"storage": both, "target-vmid": both})
    t.refused("GET", "/nodes/pve1/qemu/99/config", {}, 400, BAD, token=t.token(ADMIN))
    config = "/nodes/pve1/qemu/100/config"
    key = "invalid format - invalid key in comma-separated list property: size_in_moons\n"
    t.refused("PUT", config, {"scsi1": "local:100/vm-100-disk-0.qcow2,size_in_moons=1"}, 400, BAD, {"scsi1": key})
    t.refused(
        "PUT",
        config,
        {"scsi1": "local:100/vm-100-disk-0.qcow2,mbps=1,mbps_rd=1"},
        400,
        BAD,
        {"scsi1": "unable to parse drive options"},
    )
    t.refused("PUT", config, {"scsi1": "local:100/vm-100-disk-0.qcow2,iops=1.5"}, 400, BAD)
    t.refused(
        "PUT",
        config,
        {"force": 1, "name": "x"},
        400,
        BAD,
        {"delete": "missing property - 'force' requires this property"},
    )
    t.refused("PUT", config, {"delete": "scsi77"}, 400, BAD, {"delete": "unknown option 'scsi77'"})
    t.refused("PUT", config, {}, 500, "no options specified")
    t.refused("PUT", config, {"skiplock": 1, "name": "x"}, 400, BAD, {"skiplock": "Only root may use this option."})
    t.refused("GET", "/nodes/pve1/qemu", {"type": "x"}, 400, BAD, {"type": extra})
    t.refused(
        "GET",
        "/nodes/pve1/storage/local/snapshots",
        {},
        501,
        "Method 'GET /nodes/pve1/storage/local/snapshots' not implemented",
    )
    answer = t.raw("GET", "/nodes/pve9/qemu")
    expect((answer.status, "hostname lookup 'pve9' failed" in answer.reason), (500, True), "a node that does not exist")


def guest(t: Running) -> None:
    """A machine that boots runs its disk's boot sector; the API may report another version of QEMU."""
    serial = Path(t.control("serial", vmid=105)["path"])
    until(lambda: b"T" in serial.read_bytes(), "output of the boot sector")
    state = t.get("/nodes/pve3/qemu/105/status/current")
    expect((state["qmpstatus"], state["running-qemu"]), ("running", "10.1.2"), "a machine that boots")
    t.control("reported-qemu", vmid=105, version="")
    expect(t.get("/nodes/pve3/qemu/105/status/current")["running-qemu"] == "10.1.2", False, "version of the process")


def states(t: Running) -> None:
    """States of HA and replication that tests set, a migration, the monitor."""
    t.control("ha", sid="vm:100", state="started", crm_state="migrate")
    expect(t.get("/nodes/pve1/qemu/100/status/current")["ha"], {"managed": 1, "group": None, "state": "migrate"}, "HA")
    t.control("ha", sid="vm:100")
    expect(t.get("/nodes/pve1/qemu/100/status/current")["ha"], {"managed": 0}, "HA after its removal")
    t.control("replication", id="100-0", target="pve2", error="no space")
    jobs = [(job["id"], job["fail_count"], job["error"]) for job in t.get("/nodes/pve1/replication")]
    expect(jobs, [("100-0", 1, "no space")], "a failed replication")
    t.control("replication", id="100-0")
    expect([job["id"] for job in t.get("/cluster/replication")], ["104-0"], "replication jobs after a removal")
    t.control("kill", vmid=101)
    t.control("migrate", vmid=101, node="pve3")
    gone = "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist"
    t.refused("GET", "/nodes/pve1/qemu/101/config", {}, 500, gone)
    expect(t.config(101, "pve3")["name"], "web", "the configuration on the other node")
    t.control("migrate", vmid=101, node="pve1")
    t.control("start", vmid=101)
    monitor, admin = "/nodes/pve1/qemu/101/monitor", t.token(ADMIN)
    text = t.call("POST", monitor, {"command": "info block drive-virtio0"}, token=admin)
    expect("vm-101-disk-0.qcow2" in text, True, "a command of the monitor")
    forbidden = "Permission check failed (/vms/101, Sys.Audit|Sys.Modify)"
    t.refused("POST", monitor, {"command": "info block"}, 403, forbidden)
    t.refused(
        "POST", monitor, {"command": "stop"}, 501, "fake cluster: monitor command stop is not modelled", token=admin
    )


def privileges(t: Running) -> None:
    t.refused("GET", "/version", {}, 401, "No ticket", token="")
    t.refused("GET", "/version", {}, 401, "invalid token value!", token=f"PVEAPIToken={ADMIN}=wrong")
    t.refused(
        "GET", "/version", {}, 401, "no such token 'x' for user 'admin@pve'", token="PVEAPIToken=admin@pve!x=wrong"
    )
    t.refused("GET", "/version", {}, 401, "no such user ('eve@pve')", token="PVEAPIToken=eve@pve!x=wrong")
    t.refused(
        "PUT", "/nodes/pve1/qemu/100/config", {"cores": 1}, 403, "Permission check failed (/vms/100, VM.Config.CPU)"
    )
    t.refused("PUT", "/nodes/pve1/qemu/100/config", {"lock": "backup"}, 500, "only root can set 'lock' config")
    t.refused("POST", "/nodes/pve1/qemu/100/status/stop", {}, 403, "Permission check failed (/vms/100, VM.PowerMgmt)")
    volume = "/nodes/pve1/storage/local/content/100/vm-100-disk-0.qcow2"
    t.refused("DELETE", volume, {}, 403, "Permission check failed (/storage/local, Datastore.Allocate)")
    for privilege, below, method, path, body in (
        ("VM.Audit", "/vms/100", "GET", "/nodes/pve1/qemu/100/config", {}),
        ("VM.Config.Disk", "/vms/100", "POST", "/nodes/pve1/qemu/100/move_disk", {"disk": "scsi0", "storage": "tank"}),
        (
            "Datastore.AllocateSpace",
            "/storage/tank",
            "POST",
            "/nodes/pve1/qemu/100/move_disk",
            {"disk": "scsi0", "storage": "tank"},
        ),
        ("Sys.Audit", "/", "GET", "/cluster/ha/resources", {}),
    ):
        t.control("deny", privilege=privilege, path=below)
        t.refused(method, path, body, 403, f"Permission check failed ({below}, {privilege})")
        t.control("clear")
    t.control("deny", privilege="VM.Audit", path="/vms/100")
    expect([row["vmid"] for row in t.get("/nodes/pve1/qemu")], [101], "machines that a token may see")
    t.control("clear")


def limits(t: Running) -> None:
    """Limits act on the process at once; other options wait for the next start; the drive's other options stay."""
    path, digest = "/nodes/pve1/qemu/100/config", t.config(100, "pve1")["digest"]
    volume = "local:100/vm-100-disk-0.qcow2"
    t.refused(
        "PUT",
        path,
        {"scsi1": f"{volume},iops=9", "digest": "0" * 40},
        500,
        "checksum mismatch (file change by other user?)",
    )
    t.call("PUT", path, {"scsi1": f"{volume},mbps_rd=10,mbps_wr=2.5,iops=500,size=32M", "digest": digest})
    text = t.control("human", vmid=100, command="info block drive-scsi1")["text"]
    for part in ("bps_rd=10485760", "bps_wr=2621440", "iops=500"):
        if part not in text:
            raise Failed(f"{part} is not in {text}")
    expect(t.config(100, "pve1")["scsi1"], f"{volume},iops=500,mbps_rd=10,mbps_wr=2.5,size=32M", "drive with limits")
    t.call("PUT", path, {"scsi1": f"{volume},iops=500,ssd=1"})
    waiting = [row for row in t.get("/nodes/pve1/qemu/100/pending") if "pending" in row]
    expect([row["key"] for row in waiting], ["scsi1"], "an option that waits for the next start")
    t.call("PUT", path, {"revert": "scsi1"})
    t.call("PUT", path, {"scsi1": f"{volume},mbps=200,iops=4000"})
    expect(
        "iops=4000" in t.control("human", vmid=100, command="info block drive-scsi1")["text"],
        True,
        "limits are given back",
    )
    upid = t.call("POST", path, {"name": "db2"}, token=t.token(ADMIN))
    expect(t.ended(upid), "OK", "an asynchronous change")
    expect(
        t.call("POST", path, {"name": "db", "background_delay": 30}, token=t.token(ADMIN)),
        None,
        "an asynchronous change within its delay",
    )
    expect(t.config(100, "pve1")["name"], "db", "name")
    t.control("set", vmid=100, key="lock", value="backup")
    t.refused("PUT", path, {"scsi1": f"{volume},iops=1"}, 500, "VM is locked (backup)")
    expect(t.get("/nodes/pve1/qemu/100/status/current")["lock"], "backup", "lock")
    t.control("set", vmid=100, key="lock", value=None)


def tasks(t: Running) -> None:
    """Needs tasks of earlier checks on pve1."""
    rows = t.get("/nodes/pve1/tasks", {"limit": 2, "vmid": 100, "source": "all"})
    expect((len(rows), rows[0]["user"]), (2, "admin@pve"), "tasks, newest first")
    expect(
        [row["type"] for row in t.get("/nodes/pve1/tasks", {"typefilter": "qmconfig", "limit": 1})],
        ["qmconfig"],
        "tasks of a kind",
    )
    expect(t.get("/nodes/pve1/tasks", {"source": "active"}), [], "tasks that run")
    for method, path in (("GET", "status"), ("GET", "log")):
        t.refused(
            method, f"/nodes/pve1/tasks/UPID:pve1:1:2/{path}", {}, 400, BAD, {"upid": "unable to parse worker upid"}
        )
    gone = "UPID:pve1:00000001:00000001:00000001:qmmove:100:root@pam:"
    t.refused("GET", f"/nodes/pve1/tasks/{gone}/status", {}, 400, BAD, {"upid": "no such task"})
    t.refused("DELETE", f"/nodes/pve1/tasks/{gone}", {}, 400, BAD, {"upid": "no such task"})
    t.call("DELETE", f"/nodes/pve1/tasks/{rows[0]['upid']}", token=t.token(ADMIN))
    t.refused(
        "DELETE", f"/nodes/pve1/tasks/{rows[0]['upid']}", {}, 403, "Permission check failed (/nodes/pve1, Sys.Modify)"
    )


def wire(t: Running) -> None:
    """The certificate has the fingerprint of the start line; JSON bodies count; long answers may be compressed."""
    url = urlsplit(t.line["address"])
    host, port = url.hostname or "", url.port or 0
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, port)))).hexdigest().upper()
    expect(":".join(digest[i : i + 2] for i in range(0, 64, 2)), t.line["fingerprint"], "fingerprint")
    stranger = http.client.HTTPSConnection(host, port, context=ssl.create_default_context(), timeout=30)
    try:
        stranger.request("GET", "/")
        raise Failed("a client that does not know the CA was served")
    except ssl.SSLCertVerificationError:
        pass
    connection = http.client.HTTPSConnection(host, port, context=t.context, timeout=30)
    headers = {"Authorization": t.token(t.line["token_id"]), "Accept-Encoding": "gzip"}
    # Two requests on one connection.
    for path, encoding in (("/version", None), ("/cluster/resources", "gzip")):
        connection.request("GET", "/api2/json" + path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        expect((response.status, response.getheader("Content-Encoding")), (200, encoding), f"encoding of {path}")
        json.loads(gzip.decompress(body) if encoding else body)
    body = json.dumps({"disk": "scsi0", "storage": "local-lvm", "delete": True}).encode()
    path = "/api2/json/nodes/pve1/qemu/100/move_disk"
    connection.request("POST", path, body, headers | {"Content-Type": "application/json"})
    response = connection.getresponse()
    same = "you can't move to the same storage with same format"
    expect((response.status, response.reason), (500, same), "a JSON body")
