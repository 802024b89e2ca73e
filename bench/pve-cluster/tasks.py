"""Worker tasks: identifiers, logs, states, cancellation. A worker is a thread here and a process in the source.

Sources: pve-common, PVE/Tools.pm: upid_encode, upid_decode, upid_read_status; PVE/RESTEnvironment.pm: fork_worker,
$kill_process_group; pve-manager, PVE/API2/Tasks.pm.
"""

import itertools
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from errors import ApiError, Interrupted

UPID = re.compile(r"UPID:([^:\s]+):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8,9}):([0-9A-Fa-f]{8}):([^:\s]+):([^:\s]*):([^:\s]+):")
# A worker gets SIGTERM and five seconds, then SIGKILL. Source: $kill_process_group.
KILL_AFTER_S = 5


class Killed(BaseException):
    """SIGKILL to a worker: nothing is cleaned up."""


class Task:
    def __init__(self, node: str, pid: int, kind: str, ident: str, user: str) -> None:
        self.node, self.pid, self.kind, self.ident, self.user = node, pid, kind, ident, user
        self.start_time = int(time.time())
        self.pstart = pid + 0x10000
        self.upid = f"UPID:{node}:{pid:08X}:{self.pstart:08X}:{self.start_time:08X}:{kind}:{ident}:{user}:"
        self.lines: list[str] = []
        self.exit = ""
        self.end_time = 0
        self.warnings = 0
        self.terminate = threading.Event()
        self.kill = threading.Event()
        # Point at which a fault holds the worker: `start`, `pivot`, or none.
        self.hold = ""
        self.ended = threading.Event()

    def print(self, text: str) -> None:
        self.lines += text.splitlines() or [""]

    def check(self) -> None:
        """Point at which a signal reaches the worker."""
        if self.kill.is_set():
            raise Killed
        if self.terminate.is_set():
            self.terminate.clear()
            raise Interrupted

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.terminate.wait(min(left, 0.05)) or self.kill.is_set():
                break
        self.check()

    def wait_at(self, point: str) -> None:
        while self.hold == point:
            self.sleep(0.05)

    def run(self, function: Callable[["Task"], None]) -> None:
        try:
            self.wait_at("start")
            function(self)
            self.exit = f"WARNINGS: {self.warnings}" if self.warnings else "OK"
        except Interrupted:
            self.exit = "received interrupt"
        except Killed:
            self.exit = "unexpected status"
        except ApiError as error:
            self.exit = error.message
        except Exception as error:  # A worker that dies in any other way has an end, too.
            self.exit = f"{type(error).__name__}: {error}"
        if self.exit == "OK" or self.exit.startswith("WARNINGS: "):
            self.lines.append(f"TASK {self.exit}")
        elif self.exit != "unexpected status":
            self.lines.append(f"TASK ERROR: {self.exit}")
        self.end_time = int(time.time())
        self.ended.set()

    def facts(self) -> dict[str, Any]:
        user, _, token = self.user.partition("!")
        facts: dict[str, Any] = {"upid": self.upid, "node": self.node, "pid": self.pid, "pstart": self.pstart}
        facts |= {"starttime": self.start_time, "type": self.kind, "id": self.ident, "user": user}
        return facts | ({"tokenid": token} if token else {})


class Tasks:
    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.numbers = itertools.count(0x2000)
        self.lock = threading.Lock()

    def start(
        self, node: str, kind: str, ident: str, user: str, function: Callable[[Task], None], hold: str = ""
    ) -> Task:
        with self.lock:
            task = Task(node, next(self.numbers), kind, ident, user)
            self.tasks[task.upid] = task
        task.hold = hold
        threading.Thread(target=task.run, args=(function,), name=task.upid, daemon=True).start()
        return task

    def find(self, upid: str, node: str) -> Task:
        """Source: API2/Tasks.pm: a node has the logs of its own tasks only."""
        if not UPID.fullmatch(upid):
            raise _upid_error("unable to parse worker upid")
        task = self.tasks.get(upid)
        if task is None or task.node != node:
            raise _upid_error("no such task")
        return task

    def stop(self, task: Task) -> None:
        """Returns once the worker ended. Source: RESTEnvironment.pm: check_worker, $kill_process_group."""
        if task.ended.is_set():
            return
        task.terminate.set()
        if not task.ended.wait(KILL_AFTER_S):
            task.kill.set()
            task.ended.wait(KILL_AFTER_S)

    def release(self) -> None:
        """Lets held tasks run."""
        for task in list(self.tasks.values()):
            task.hold = ""

    def list(self, node: str) -> list[Task]:
        """Newest first."""
        return sorted((task for task in self.tasks.values() if task.node == node), key=lambda task: -task.pid)


def _upid_error(message: str) -> ApiError:
    return ApiError("Parameter verification failed.", 400, {"upid": message})
