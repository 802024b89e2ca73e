"""Faults on demand. A rule applies to requests whose `METHOD /path` its pattern finds, a number of times.

Kinds: `status` answers with a status and text; `cut` closes the connection within the answer; `lost-answer` carries the
request out and closes the connection without an answer; `no-answer` never answers; `expired-token`; `changed-digest`
changes the configuration of the machine before the request is handled; `hang-task` keeps the worker that the request
starts from its work, or from its end after the pivot of a mirror.
"""

import re
import threading
from dataclasses import dataclass
from typing import Any

KINDS = ("status", "cut", "lost-answer", "no-answer", "expired-token", "changed-digest", "hang-task")


@dataclass
class Rule:
    kind: str
    match: str = "."
    # Number of requests to which it applies; 0 is all until it is cleared.
    times: int = 1
    # Number of matching requests that pass before.
    skip: int = 0
    status: int = 500
    text: str = "internal error"
    bytes: int = 10
    # Point at which a task hangs: its start, or between the pivot of a mirror and the change of the configuration.
    at: str = "start"
    applied: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind} is not one of {', '.join(KINDS)}")
        if self.at not in ("start", "pivot"):
            raise ValueError(f"at {self.at} is neither start nor pivot")
        re.compile(self.match)


class Faults:
    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.down: set[str] = set()
        self.lock = threading.Lock()

    def add(self, raw: dict[str, Any]) -> None:
        rule = Rule(**raw)
        with self.lock:
            self.rules.append(rule)

    def clear(self) -> None:
        with self.lock:
            self.rules.clear()
            self.down.clear()

    def take(self, request: str) -> Rule | None:
        """The first rule that applies to a request; counts it."""
        with self.lock:
            for rule in self.rules:
                if not re.search(rule.match, request) or (rule.times and rule.applied >= rule.times):
                    continue
                if rule.skip:
                    rule.skip -= 1
                    continue
                rule.applied += 1
                return rule
        return None
