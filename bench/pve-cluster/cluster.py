#!/usr/bin/env python3
"""A fake Proxmox VE cluster for tests, with real QEMU processes behind it. README.md explains its use.

Prints one line of JSON once it listens, and ends on SIGTERM or SIGINT; then it removes what it made.
"""

import argparse
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path

from cluster_state import Cluster
from control import Control
from errors import ApiError
from inventory import InventoryError, load
from server import Server

HERE = Path(__file__).parent
PARTS = ("etc", "run", "storage", "tls", "tokens")


def certificates(directory: Path) -> tuple[ssl.SSLContext, str]:
    """Own certificate authority and a server certificate of it. Returns the context and the certificate's fingerprint."""
    directory.mkdir()

    def openssl(*words: str) -> str:
        return subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True, text=True).stdout

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    ca = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    openssl(
        "req", "-x509", *key, "-days", "2", "-subj", "/CN=Fake Proxmox CA", "-keyout", "ca.key", "-out", "ca.pem", *ca
    )
    openssl("req", *key, "-subj", "/CN=pve1", "-keyout", "server.key", "-out", "server.csr")
    (directory / "server.ext").write_text(
        "basicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n"
    )
    sign = ["-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
    openssl("x509", *sign, "-extfile", "server.ext", "-out", "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    fingerprint = openssl("x509", "-in", "server.pem", "-noout", "-fingerprint", "-sha256")
    return context, fingerprint.strip().partition("=")[2]


def write_tokens(cluster: Cluster, directory: Path) -> dict[str, str]:
    directory.mkdir()
    files = {}
    for token, secret in cluster.access.secrets.items():
        path = directory / token
        path.touch(mode=0o600)
        path.write_text(secret)
        files[token] = str(path)
    return files


def watch(directory: Path) -> subprocess.Popen[bytes]:
    """Ends the QEMU processes if this process is killed: the watcher's input closes then."""
    script = 'cat >/dev/null; for file in "$1"/*.pid; do [ ! -e "$file" ] || kill -9 "$(cat "$file")"; done'
    return subprocess.Popen(
        ["sh", "-c", script, "watch", str(directory)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--directory", type=Path, required=True, help="directory for everything; it must be empty or missing"
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 chooses a free one")
    parser.add_argument("--inventory", type=Path, default=HERE / "default.toml", help="TOML or JSON file")
    parser.add_argument("--poll-seconds", type=float, default=1, help="time between two looks at a block job")
    parser.add_argument("--lock-seconds", type=float, default=10, help="time to wait for the lock of a configuration")
    parser.add_argument("--unauthorized-seconds", type=float, default=3, help="delay of the answer to a refused token")
    parser.add_argument("--qemu", default="qemu-system-x86_64", help="program of the machines")
    parser.add_argument("--keep", action="store_true", help="leave the files at the end")
    words = parser.parse_args()
    directory: Path = words.directory.absolute()
    if directory.exists() and any(directory.iterdir()):
        print(f"{directory} is not empty", file=sys.stderr)
        return 1
    # Paths of unix sockets have at most 107 bytes.
    if len(os.fsencode(directory)) > 80:
        print(f"{directory}: the path is longer than 80 bytes", file=sys.stderr)
        return 1
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    made = not directory.exists()
    cluster: Cluster | None = None
    watcher: subprocess.Popen[bytes] | None = None
    try:
        inventory = load(words.inventory)
        directory.mkdir(parents=True, exist_ok=True)
        cluster = Cluster(directory, inventory, words.poll_seconds, words.lock_seconds, words.qemu)
        watcher = watch(cluster.run)
        context, fingerprint = certificates(directory / "tls")
        files = write_tokens(cluster, directory / "tokens")
        cluster.create()
        control = Control(cluster, cluster.run / "control")
        server = Server(cluster, words.port, context, words.unauthorized_seconds)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        first = next(iter(files))
        line = {
            "address": f"https://127.0.0.1:{server.server_address[1]}",
            "ca_file": str(directory / "tls" / "ca.pem"),
            "fingerprint": fingerprint,
            "token_id": first,
            "token_file": files[first],
            "tokens": files,
            "control": str(cluster.run / "control"),
        }
        print(json.dumps(line), flush=True)
        ended.wait()
        server.shutdown()
        control.close()
        return 0
    except (InventoryError, ApiError, OSError, subprocess.CalledProcessError) as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 1
    finally:
        if cluster:
            cluster.end()
        if watcher and watcher.stdin:
            watcher.stdin.close()
            watcher.wait()
        if not words.keep:
            for part in PARTS:
                shutil.rmtree(directory / part, ignore_errors=True)
            if made and directory.exists():
                directory.rmdir()


if __name__ == "__main__":
    sys.exit(main())
