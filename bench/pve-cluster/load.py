"""Load on a drive through the guest's side of QEMU, where limits and statistics are: a loop with a fixed depth.

Requests are issued by `qemu-io` of the human monitor on the drive's backend; completions are seen in its statistics.
"""

import random
import threading

from errors import ApiError
from machine import Machine
from qmp import QmpError

BLOCK = 4096
POLL_S = 0.005


class Load(threading.Thread):
    """Random reads and writes of 4 KiB until `stop`, with `depth` requests at a time."""

    def __init__(self, machine: Machine, drive: str, depth: int, reads: float, blocks: int) -> None:
        super().__init__(daemon=True)
        self.machine, self.drive, self.depth, self.reads, self.blocks = machine, drive, depth, reads, blocks
        self.random = random.Random(1)
        self.ended = threading.Event()
        self.start()

    def _completed(self) -> int:
        stats = self.machine.block_stats()[self.drive]
        return int(stats["rd_operations"]) + int(stats["wr_operations"])

    def run(self) -> None:
        try:
            first = self._completed()
            issued = 0
            while not self.ended.is_set():
                free = self.depth - (issued - (self._completed() - first))
                for _ in range(free):
                    word = "aio_read" if self.random.random() < self.reads else "aio_write"
                    offset = self.random.randrange(self.blocks) * BLOCK
                    self.machine.monitor().human(f'qemu-io drive-{self.drive} "{word} -q {offset} {BLOCK}"')
                    issued += 1
                if free <= 0:
                    self.ended.wait(POLL_S)
        except (ApiError, QmpError, OSError, KeyError):
            # The machine ended, or the drive was removed.
            pass

    def stop(self) -> None:
        self.ended.set()
        self.join(10)
