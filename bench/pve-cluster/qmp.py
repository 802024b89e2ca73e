"""Client of QEMU's machine protocol over a unix socket: one command at a time, events are dropped."""

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any


class QmpError(Exception):
    """Error that QEMU returned."""


class Qmp:
    def __init__(self, path: Path, seconds: float = 20) -> None:
        self.lock = threading.Lock()
        end = time.monotonic() + seconds
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(str(path))
                break
            except OSError:
                self.socket.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
        self.socket.settimeout(60)
        self.file = self.socket.makefile("rwb")
        self._read("QMP")
        self.command("qmp_capabilities")

    def _read(self, key: str) -> dict[str, Any]:
        while True:
            line = self.file.readline()
            if not line:
                raise ConnectionError("QEMU closed its monitor")
            answer: dict[str, Any] = json.loads(line)
            if key in answer or "error" in answer:
                return answer

    def command(self, execute: str, **arguments: Any) -> Any:
        with self.lock:
            try:
                self.file.write(json.dumps({"execute": execute, "arguments": arguments}).encode() + b"\n")
                self.file.flush()
                answer = self._read("return")
            except ValueError as error:
                raise ConnectionError("the monitor is closed") from error
        if "error" in answer:
            raise QmpError(answer["error"]["desc"])
        return answer["return"]

    def human(self, line: str) -> str:
        """Runs a command of the human monitor, which has some that QMP lacks."""
        return str(self.command("human-monitor-command", **{"command-line": line}))

    def close(self) -> None:
        try:
            self.file.close()
        except OSError:
            # The process ended with a command unsent.
            pass
        self.socket.close()
