"""Cells of a command, such as ``terrace bench decisions``: each is computed by the same command in a process of its own.

Processes have the working directory and the files of the command, which are at the same paths on every node.
"""

import json
import os
import signal
import subprocess

from ._serve import end_with_parent
from ._sweep import on_threads
from ._terrace import TerraceError


class ProcessKilled(Exception):
    """The process of a cell was killed, as by a lack of memory."""


class Cell:
    """Cell of a command: `name` is that of its result, `option` the option with which the command computes only this cell."""

    def __init__(self, cell):
        self.name, self.label = cell["name"], f"cell {cell['name']}"
        self.option = json.dumps(cell)

    @property
    def file(self):
        return self.name + ".json"


def _run_command(command, directory, option):
    """Computes a cell. Returns the name of its result and the content of the result's file."""
    child = subprocess.run(
        [*command, "--cell", option], cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=end_with_parent
    )
    if child.returncode == -signal.SIGKILL:
        raise ProcessKilled(f"{command[0]} was killed")
    if child.returncode != 0:
        lines = child.stderr.decode(errors="replace").strip().splitlines() or [f"{command[0]} ended with status {child.returncode}"]
        raise TerraceError(lines[-1].removeprefix("error: "))
    try:
        return json.loads(child.stdout)["cell"], child.stdout
    except (ValueError, LookupError, TypeError):
        raise TerraceError(f"{command[0]} has no cell {option}: it or one of its files differs from those of the caller") from None


class CommandCells:
    """Cells of a command, with the interface of `_ray.SweepCells`."""

    task = staticmethod(_run_command)

    def __init__(self, command):
        self.command, self.directory = command, os.getcwd()

    def put(self):
        pass

    def arguments(self, run):
        return self.command, self.directory, run.option


def _here(commands, run):
    try:
        return _run_command(*commands.arguments(run))
    except ProcessKilled as killed:
        raise TerraceError(f"{run.label}: {killed}") from None


def outcomes(command, cells, address):
    """Computes cells on Ray, or in processes of this machine; yields each with the content of its file, or the text of its error."""
    runs, commands = [Cell(cell) for cell in cells], CommandCells(command)
    if address == "processes":
        return on_threads(lambda run: _here(commands, run), runs, None, lambda: None)
    from . import _ray

    return _ray.outcomes(commands, runs, address, None, None)
