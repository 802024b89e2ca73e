"""Cells on Ray for the option ``--ray`` of the command line: of a sweep, or of a command.

The definition comes as JSON on standard input. A line of JSON about each cell goes to standard output, and results go to the directory of the
definition.
"""

import json
import sys

from . import _commands
from ._sweep import Sweep, _store, stored
from ._terrace import Scenario, TerraceError, __version__


def _outcomes(asked):
    address = asked["address"]
    if "command" in asked:
        return stored(_store(asked["directory"]), _commands.outcomes(asked["command"], asked["cells"], address))
    sweep = Sweep(Scenario.open(asked["scenario"]), dict(asked["grid"]), asked["strategies"], asked["seeds"])
    if [run.name for run in sweep.runs] != asked["names"]:
        raise TerraceError(
            f"the package terrace {__version__} for Python names results otherwise than this program: "
            "install the package of the program's version (pip install ./python)"
        )
    on = None if address == "processes" else address or True
    return sweep.outcomes(asked["directory"], ray=on, fresh=asked["fresh"])


def _run(asked):
    for run, content, existed in _outcomes(asked):
        failed = isinstance(content, str)
        line = {
            "name": run.name,
            "existed": existed,
            "error": content if failed else None,
            "took_s": 0.0 if failed else json.loads(content)["took_s"],
        }
        print(json.dumps(line), flush=True)


def main():
    try:
        _run(json.load(sys.stdin))
    except TerraceError as failed:
        sys.exit(f"error: {failed}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
