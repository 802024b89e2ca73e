"""A running cluster for the self-test: its process, a client of its API, its control, a guest that writes."""

import http.client
import json
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from nbdclient import Nbd

HERE = Path(__file__).parent
BLOCK = 4096
DEADLINE_S = 60


class Failed(Exception):
    """A check that found a difference."""


def expect(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        raise Failed(f"{what}: found {found!r}, expected {wanted!r}")


def until(condition: Any, what: str) -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {DEADLINE_S} s")
        time.sleep(0.02)
    return value


class Answer:
    def __init__(self, status: int, reason: str, body: dict[str, Any]) -> None:
        self.status, self.reason, self.body = status, reason, body

    @property
    def data(self) -> Any:
        return self.body.get("data")


class Running:
    """The cluster as a child process."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.directory = directory
        command = [
            sys.executable,
            str(HERE / "cluster.py"),
            "--directory",
            str(directory),
            "--unauthorized-seconds",
            "0",
            *words,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"cluster.py ended with status {self.process.wait()} before it listened")
        self.line: dict[str, Any] = json.loads(line)
        self.context = ssl.create_default_context(cafile=self.line["ca_file"])
        # Requests that succeeded, for the check that every endpoint was used.
        self.used: list[tuple[str, str]] = []

    def token(self, name: str) -> str:
        return f"PVEAPIToken={name}={Path(self.line['tokens'][name]).read_text()}"

    def raw(
        self,
        method: str,
        path: str,
        parameters: dict[str, Any] | None = None,
        token: str | None = None,
        seconds: float = 60,
    ) -> Answer:
        """A request with an Authorization header; `token` is a header or None for the first token."""
        url = urlsplit(self.line["address"])
        connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=self.context, timeout=seconds)
        headers = {"Authorization": self.token(self.line["token_id"]) if token is None else token}
        target, body = "/api2/json" + quote(path), None
        if parameters and method in ("GET", "DELETE"):
            target += "?" + urlencode(parameters)
        elif parameters:
            body = urlencode(parameters)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            text = response.read()
            return Answer(response.status, response.reason, json.loads(text) if text else {})
        finally:
            connection.close()

    def get(self, path: str, parameters: dict[str, Any] | None = None, **more: Any) -> Any:
        return self.call("GET", path, parameters, **more)

    def call(self, method: str, path: str, parameters: dict[str, Any] | None = None, **more: Any) -> Any:
        """Data of a request that must succeed."""
        answer = self.raw(method, path, parameters, **more)
        if answer.status != 200:
            raise Failed(f"{method} {path}: {answer.status} {answer.reason} {answer.body}")
        self.used.append((method, path))
        return answer.data

    def refused(
        self,
        method: str,
        path: str,
        parameters: dict[str, Any],
        status: int,
        reason: str,
        errors: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """A request that must be refused with exactly this status, reason and errors."""
        answer = self.raw(method, path, parameters, **more)
        expect((answer.status, answer.reason), (status, reason), f"{method} {path} {parameters}")
        expect(answer.body.get("data"), None, f"data of {method} {path}")
        if errors is not None:
            expect(answer.body.get("errors"), errors, f"errors of {method} {path} {parameters}")

    def control(self, do: str, **command: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.line["control"])
            connection.sendall(json.dumps({"do": do, **command}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile().readline())
        if "error" in answer:
            raise Failed(f"control {do}: {answer['error']}")
        return answer

    def config(self, vmid: int, node: str) -> dict[str, Any]:
        return dict(self.get(f"/nodes/{node}/qemu/{vmid}/config"))

    def ended(self, upid: str) -> str:
        """Exit status of a task, once it has one."""
        node = upid.split(":")[1]
        path = f"/nodes/{node}/tasks/{upid}/status"
        state = until(lambda: (found := self.get(path))["status"] == "stopped" and found, f"end of {upid}")
        return str(state["exitstatus"])

    def log(self, upid: str) -> list[str]:
        return [line["t"] for line in self.get(f"/nodes/{upid.split(':')[1]}/tasks/{upid}/log", {"limit": 500})]

    def move(self, node: str, vmid: int, disk: str, storage: str, **more: Any) -> str:
        return str(
            self.call("POST", f"/nodes/{node}/qemu/{vmid}/move_disk", {"disk": disk, "storage": storage, **more})
        )

    def stop(self) -> None:
        self.process.terminate()
        expect(self.process.wait(60), 0, "exit status of cluster.py")


class Writer(threading.Thread):
    """A guest that writes numbered blocks through an export, and knows which writes were acknowledged."""

    def __init__(self, uri: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.nbd = Nbd(uri)
        self.random = random.Random(seed)
        self.blocks = self.nbd.size // BLOCK
        self.acknowledged: dict[int, int] = {}
        self.count = 0
        self.going = True
        self.error: Exception | None = None
        self.start()

    @staticmethod
    def content(block: int, number: int) -> bytes:
        head = f"{block}:{number};".encode()
        return (head * (BLOCK // len(head) + 1))[:BLOCK]

    def run(self) -> None:
        try:
            while self.going:
                block = self.random.randrange(self.blocks)
                self.nbd.write(block * BLOCK, self.content(block, self.count))
                self.acknowledged[block] = self.count
                self.count += 1
                # Half of the time is left to the copy.
                time.sleep(0.0005)
        except (OSError, ConnectionError) as error:
            self.error = error

    def finish(self) -> None:
        self.going = False
        self.join()
        if self.error:
            raise Failed(f"the guest's write failed: {self.error}")
        self.nbd.flush()
        self.nbd.close()

    def lost(self, read: Any) -> int:
        """Number of acknowledged writes that `read(offset, length)` does not return."""
        return sum(
            read(block * BLOCK, BLOCK) != self.content(block, number) for block, number in self.acknowledged.items()
        )


def temporary() -> str:
    """Directory for temporary directories whose paths are short enough for unix sockets."""
    return os.environ.get("TMPDIR", "/tmp")
