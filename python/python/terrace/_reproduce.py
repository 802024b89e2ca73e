"""Published experiments, in a process of their own: it has its own progress bar and ends with Ctrl-C."""

import json
import os
import signal
import subprocess
import sys

from ._terrace import TerraceError, run_reproduce


class Reproduction(dict):
    """Outcome of an experiment: plain data, as ``terrace reproduce PAPER -o json`` prints it."""

    def __repr__(self):
        return f"<terrace.Reproduction with {', '.join(self)}>"


def reproduce(paper, *, keep=None, report=None, **options):
    """Repeats a published experiment: ``autotiering``, ``dual-period``, ``priority-lru``, ``ops-isolation`` or ``dynamite``.

    ``keep`` is a directory for results, in which an interrupted experiment resumes; ``report`` is a file for a page with charts. Other
    options are those of ``terrace reproduce PAPER --help``, such as ``seeds=5`` or ``quick=True``; ``ray=True`` or Ray's address runs on Ray.
    """
    args = [paper, "--output", "json"]
    for name, value in {"keep": keep, "report": report, **options}.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            args.append(option)
        elif value is not None and value is not False:
            args.append(f"{option}={value}")
    command = [sys.executable, "-c", "import sys, terrace._reproduce as r; r._child(sys.argv[1:])", *args]
    # The program starts this interpreter for Ray.
    environment = {**os.environ, "TERRACE_PYTHON": sys.executable}
    errors = subprocess.PIPE if sys.stderr is None or not sys.stderr.isatty() else None
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors)
    try:
        out, said = child.communicate()
    except BaseException:
        child.kill()
        child.wait()
        raise
    if child.returncode != 0:
        why = (said or b"").decode().strip()
        raise TerraceError(why or f"terrace reproduce {paper} failed")
    return Reproduction(json.loads(out))


def _child(args):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(0 if run_reproduce(args) else 1)
