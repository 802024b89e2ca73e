#!/usr/bin/env python3
"""vhost-user-blk of Terrace beside that of QEMU's storage daemon. See vhost_user.sh for usage.

Both serve a file in the same directory to the same client, in turn, several times; medians are printed, the worst and the median of the
ratios of each turn, and the processor time of the server with all its threads, from /proc.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

import datapath
from datapath import SIZE_MIB, Server, Terrace, qsd_version

BENCH = os.environ.get("BENCH", os.path.abspath("target/dist/terrace-bench"))

JOBS = {
    f"4k {op} qd{depth} {wait}": (op, depth, wait)
    for wait in ("sleep", "spin")
    for depth in (1, 32)
    for op in ("read", "write")
}

# Of the median: requests a second against the daemon's, and at most so much of its processor time for a request.
TARGETS = {1: (1.3, 1.0), 32: (1.5, 0.4)}


def client(socket, *words):
    done = subprocess.run([BENCH, "vhost-client", socket, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the client failed on {socket}: {done.stderr}")
    return json.loads(done.stdout) if done.stdout else None


def daemon(dir, name, thread):
    """As it is by default, or with a thread of its own for the export, which polls."""
    socket, image = os.path.join(dir, f"{name}.sock"), os.path.join(dir, f"{name}.img")
    with open(image, "wb") as f:
        f.truncate(SIZE_MIB << 20)
    export = f"vhost-user-blk,id=e,node-name=f,addr.type=unix,addr.path={socket},writable=on"
    args = ["qemu-storage-daemon", "--object", "iothread,id=t"]
    args += ["--blockdev", f"file,node-name=f,filename={image},aio=io_uring"]
    args += ["--export", export + (",iothread=t" if thread else "")]
    server = Server(name, args, None, None)
    datapath.wait_for_path(socket, server.process)
    return socket, server


def ours(dir):
    sockets = os.path.join(dir, "vhost")
    server = Terrace(dir, more=("--vhost-user", sockets))
    return os.path.join(sockets, "v.sock"), server


def pin(pid, core):
    """All threads of a process, on one core."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {core})


def beside_nbd(dir, options):
    """The same server and volume by vhost-user and by NBD, in turn: the server on one core, the client on another, which the guest has
    for itself."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("skipped: needs two cores")
    socket, server = ours(dir)
    client(socket, "fill")
    pin(server.process.pid, cores[0])
    os.sched_setaffinity(0, {cores[1]})
    ways = {
        "vhost-user": lambda *job: ["vhost-client", socket, *job],
        "NBD": lambda *job: ["nbd-client", os.path.join(dir, "t.sock"), "v", *job],
    }
    numbers = {}
    for job, words in JOBS.items():
        if options.jobs not in job:
            continue
        runs = {name: [] for name in ways}
        for _ in range(options.runs):
            for name, way in ways.items():
                before = server.cpu_s()
                words_of = [str(w) for w in way(*words[:2], options.seconds, words[2])]
                done = subprocess.run([BENCH, *words_of], capture_output=True, text=True)
                if done.returncode != 0:
                    sys.exit(f"the client failed: {done.stderr}")
                result = json.loads(done.stdout)
                result["cpu_us"] = (server.cpu_s() - before) * 1e6 / max(result["requests"], 1)
                runs[name].append(result)
        numbers[job] = runs
        print(f"\n{job:22} {'IOPS':>9} {'mean us':>9} {'CPU us/req':>11}")
        for name, results in runs.items():
            row = datapath.medians(results)
            print(f"  {name:20} {row['iops']:9.0f} {row['mean_us']:9.1f} {row['cpu_us']:11.2f}")
        speed = [v["iops"] / n["iops"] for v, n in zip(runs["vhost-user"], runs["NBD"])]
        wanted = {1: 1.5, 32: 2.0}[words[1]]
        met = statistics.median(speed) >= wanted
        print(f"  {'met ' if met else 'MISS'} {statistics.median(speed):.2f}x the IOPS of NBD (worst {min(speed):.2f}x, required {wanted}x)", flush=True)
    server.stop()
    os.sched_setaffinity(0, cores)
    return numbers


def measure(socket, server, job, seconds):
    op, depth, wait = JOBS[job]
    before = server.cpu_s()
    result = client(socket, op, depth, seconds, wait)
    result["cpu_us"] = (server.cpu_s() - before) * 1e6 / max(result["requests"], 1)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--disk", metavar="DIR", help="directory on a disk for the files, instead of memory")
    parser.add_argument("--json", metavar="FILE", help="write the results to this file")
    parser.add_argument("--jobs", metavar="TEXT", default="", help="only jobs with this text in their name")
    parser.add_argument("part", nargs="?", default="daemon", choices=("daemon", "nbd"), help="server to compare with")
    options = parser.parse_args()
    if options.part == "nbd":
        with datapath.directory(options) as dir:
            return datapath.keep(options, beside_nbd(dir, options))
    if not shutil.which("qemu-storage-daemon"):
        sys.exit("skipped: needs qemu-storage-daemon")
    with datapath.directory(options) as dir:
        servers = {
            "terrace": ours(dir),
            "qsd": daemon(dir, "qsd", False),
            "qsd iothread": daemon(dir, "qsd-iothread", True),
        }
        for socket, _ in servers.values():
            client(socket, "fill")
        print(f"qemu-storage-daemon {qsd_version()}")
        numbers = {}
        for job in JOBS:
            if options.jobs not in job:
                continue
            runs = {name: [] for name in servers}
            for _ in range(options.runs):
                for name, (socket, server) in servers.items():
                    runs[name].append(measure(socket, server, job, options.seconds))
            numbers[job] = runs
            show(job, runs)
        for _, server in servers.values():
            server.stop()
    datapath.keep(options, numbers)


def show(job, runs):
    print(f"\n{job:22} {'IOPS':>9} {'mean us':>9} {'CPU us/req':>11}")
    for name, results in runs.items():
        row = datapath.medians(results)
        print(f"  {name:20} {row['iops']:9.0f} {row['mean_us']:9.1f} {row['cpu_us']:11.2f}")
    wanted, allowed = TARGETS[JOBS[job][1]]
    for peer in list(runs)[1:]:
        pairs = list(zip(runs["terrace"], runs[peer]))
        speed = [t["iops"] / q["iops"] for t, q in pairs]
        cpu = [t["cpu_us"] / q["cpu_us"] for t, q in pairs]
        met = statistics.median(speed) >= wanted and statistics.median(cpu) <= allowed
        print(
            f"  {'met ' if met else 'MISS'} {statistics.median(speed):.2f}x the IOPS of {peer} (worst {min(speed):.2f}x, required {wanted}x) "
            f"at {statistics.median(cpu):.2f}x its CPU (worst {max(cpu):.2f}x, allowed {allowed}x)",
            flush=True,
        )


if __name__ == "__main__":
    main()
