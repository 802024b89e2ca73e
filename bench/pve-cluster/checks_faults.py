"""Checks of the faults that tests can ask for."""

import http.client
from typing import Any

from testing import Failed, Running, expect, until

BAD = "Parameter verification failed."
CONFIG = "/nodes/pve1/qemu/101/config"


def fails(t: Running, method: str, path: str, parameters: dict[str, Any] | None = None, seconds: float = 60) -> None:
    """A request whose answer never arrives whole."""
    try:
        answer = t.raw(method, path, parameters, seconds=seconds)
    except (OSError, http.client.HTTPException):
        return
    raise Failed(f"{method} {path} was answered: {answer.status} {answer.body}")


def answers(t: Running) -> None:
    t.control("fault", kind="status", match="GET /version", status=500, text="got timeout")
    t.refused("GET", "/version", {}, 500, "got timeout")
    t.get("/version")
    t.control("fault", kind="status", match="GET /version", times=2, skip=1, status=503, text="busy")
    t.get("/version")
    for _ in range(2):
        t.refused("GET", "/version", {}, 503, "busy")
    t.get("/version")
    t.control("fault", kind="cut", match="GET /nodes$", bytes=20)
    fails(t, "GET", "/nodes")
    t.get("/nodes")
    t.control("fault", kind="no-answer", match="GET /nodes$")
    fails(t, "GET", "/nodes", seconds=1)
    t.control("clear")
    t.get("/nodes")
    t.control("fault", kind="expired-token", times=0)
    t.refused("GET", "/version", {}, 401, "token 'terrace' access expired")
    t.control("clear")
    t.get("/version")


def effects(t: Running) -> None:
    """The answer is lost after the effect; a digest changes between two requests."""
    t.control("fault", kind="lost-answer", match="PUT .*/101/config")
    fails(t, "PUT", CONFIG, {"virtio0": "shared:101/vm-101-disk-0.qcow2,iops=77"})
    expect("iops=77" in t.config(101, "pve1")["virtio0"], True, "effect of a request whose answer was lost")
    t.control("fault", kind="lost-answer", match="POST .*/move_disk")
    fails(t, "POST", "/nodes/pve1/qemu/101/move_disk", {"disk": "virtio0", "storage": "local", "format": "qcow2"})
    upid = until(
        lambda: (rows := t.get("/nodes/pve1/tasks", {"source": "all", "vmid": 101, "limit": 1})) and rows[0]["upid"],
        "the task",
    )
    expect((":qmmove:101:" in upid, t.ended(upid)), (True, "OK"), "a move whose answer was lost")
    conf = t.config(101, "pve1")
    t.control("fault", kind="changed-digest", match="PUT .*/101/config")
    t.refused(
        "PUT",
        CONFIG,
        {"delete": "unused0", "digest": conf["digest"]},
        500,
        "checksum mismatch (file change by other user?)",
    )
    expect(t.config(101, "pve1")["unused0"], conf["unused0"], "unused volume")
    t.call("PUT", CONFIG, {"delete": "unused0", "digest": t.config(101, "pve1")["digest"]})


def tasks(t: Running) -> None:
    t.control("fault", kind="hang-task", match="POST .*/move_disk")
    upid = t.move("pve1", 101, "virtio0", "shared", format="qcow2", delete=1)
    expect(
        (t.get(f"/nodes/pve1/tasks/{upid}/status")["status"], t.log(upid)),
        ("running", ["no content"]),
        "a task that hangs",
    )
    t.control("release")
    expect(t.ended(upid), "OK", "a task that was released")
    t.control("fault", kind="hang-task", match="POST .*/move_disk")
    upid = t.move("pve1", 101, "virtio0", "local")
    t.call("DELETE", f"/nodes/pve1/tasks/{upid}")
    expect(t.ended(upid), "received interrupt", "a hanging task that was cancelled")
    # The process dies under a copy: the task fails, the configuration stays.
    before = t.config(101, "pve1")
    upid = t.move("pve1", 101, "virtio0", "local", bwlimit=1)
    until(lambda: any("transferred" in line for line in t.log(upid)), "the copy")
    t.control("kill", vmid=101)
    if not t.ended(upid).startswith("storage migration failed: block job (mirror) error: "):
        raise Failed(f"exit of a copy whose process died: {t.ended(upid)}")
    expect(t.config(101, "pve1"), before, "configuration")
    t.control("start", vmid=101)


def pivot(t: Running) -> None:
    """A cancellation after the pivot frees the volume that the guest uses: the configuration has the source."""
    before = t.config(101, "pve1")
    t.control("fault", kind="hang-task", match="POST .*/move_disk", at="pivot")
    upid = t.move("pve1", 101, "virtio0", "local", format="raw")
    until(lambda: any(line.endswith("mirror-job finished") for line in t.log(upid)), "the pivot")
    t.call("DELETE", f"/nodes/pve1/tasks/{upid}")
    expect(t.ended(upid), "storage migration failed: interrupted by signal", "a task cancelled after the pivot")
    expect(t.config(101, "pve1"), before, "configuration")
    expect([row["volid"] for row in t.get("/nodes/pve1/storage/local/content", {"vmid": 101})], [], "volumes")
    text = t.control("human", vmid=101, command="info block drive-virtio0")["text"]
    expect("vm-101-disk-0.raw" in text, True, "file of the process")
    t.control("kill", vmid=101)
    t.control("start", vmid=101)


def nodes(t: Running) -> None:
    t.control("down", node="pve2")
    t.refused("GET", "/nodes/pve2/qemu", {}, 595, "No route to host")
    expect(
        {row["node"]: row["status"] for row in t.get("/nodes")},
        {"pve1": "online", "pve2": "offline", "pve3": "online"},
        "nodes",
    )
    rows = {row["vmid"]: row["status"] for row in t.get("/cluster/resources", {"type": "vm"})}
    expect((rows[102], rows[100]), ("unknown", "running"), "machines of a node that is down")
    expect(t.get("/cluster/status")[0]["quorate"], 1, "quorum of two nodes")
    t.control("down", node="pve1")
    fails(t, "GET", "/version")
    t.control("clear")
    expect(t.get("/nodes")[1]["status"], "online", "a node that came back")
