"""Process of a strategy for the command line and the controller: a line of JSON per decision from standard input, one to standard output.

``live/interpreter`` is the other end.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from . import _source
from ._terrace import StrategyServer, __version__


# Option of Linux's prctl: the signal that a process gets when its parent dies.
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def end_with_parent():
    """Lets the system kill this process when the thread that started it ends, even if its code never returns. Only Linux has that."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit_memory(limit):
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def replies():
    """Returns standard output for replies. From now on, what a strategy prints goes to standard error."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


def _failed(error, file):
    """Returns the reply for an exception: file, line and exception, and the traceback if the exception is from the strategy's file."""
    words = "".join(traceback.format_exception_only(error)).strip()
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    if isinstance(error, SyntaxError):
        failed = {"error": f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}", "traceback": words}
    elif not own:
        failed = {"error": words.removeprefix("terrace.").removeprefix("TerraceError: "), "traceback": ""}
    else:
        failed = {
            "error": f"{own[-1].filename}:{own[-1].lineno}: {words.splitlines()[-1]}",
            "traceback": "".join(traceback.format_exception(error)).rstrip(),
        }
    # Text from bytes that are no UTF-8 has surrogates, which JSON cannot carry.
    return {"failed": {key: text.encode("utf-8", "backslashreplace").decode() for key, text in failed.items()}}


def main(arguments):
    """Serves the strategy until standard input ends; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m terrace strategy", description="Decides for a Terrace program, over standard input.")
    parser.add_argument("name", metavar="FILE.py:CLASS")
    parser.add_argument("--memory", type=int, metavar="BYTES", help="most address space of this process")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent()
    out, requests = replies(), os.fdopen(os.dup(0), "rb")
    # A strategy has no input.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    own = os.getpid()

    def reply(line):
        if os.getpid() != own:
            os._exit(1)  # a copy that the strategy has forked
        out.write(line + b"\n")
        out.flush()

    if options.memory is not None:
        _limit_memory(options.memory)
    file = Path(options.name.rpartition(":")[0]).resolve()
    try:
        strategy = _source.load(options.name)
        server = StrategyServer(strategy)
        source = _source.digest(strategy)
        ready = {"version": __version__, "every_epoch": server.every_epoch, "source": source}
        reply(json.dumps({"ready": ready}).encode())
        for request in requests:
            reply(server.decide(request))
    except BaseException as error:
        reply(json.dumps(_failed(error, file)).encode())
        return 1
    return 0
