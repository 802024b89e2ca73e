"""An array that is served, asked by commands and by its control socket: for the scripts beside this one."""

import json
import os
import socket
import subprocess
import sys

TERRACE = os.environ.get("TERRACE", os.path.abspath("target/dist/terrace"))


class Served:
    def __init__(self, dir, **env):
        self.array = os.path.join(dir, "array")
        self.env = dict(os.environ, TERRACE_ARRAY=self.array, NO_COLOR="1", **env)

    def run(self, *args):
        done = subprocess.run([TERRACE, *args], env=self.env, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"terrace {' '.join(args)}: {done.stderr}")
        return done.stdout

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.path.join(self.array, "control.sock"))
            s.sendall(json.dumps({"v": 1, **request}).encode() + b"\n")
            answer = json.loads(s.makefile().readline())
        if "error" in answer or answer.get("answer") == "error":
            sys.exit(f"{request['ask']}: {answer}")
        return answer
