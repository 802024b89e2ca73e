#!/usr/bin/env python3
"""Measures the live data path and its peers side by side. See datapath.sh for usage.

Every server gets the same fio jobs over a unix socket, in turn, several times; medians are printed, and ratios between
servers of the same run. CPU is that of the server process with all its threads, from /proc.
"""

import argparse
import json
import os
import pwd
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TERRACE = os.environ.get("TERRACE", os.path.abspath("target/dist/terrace"))
SIZE_MIB = 1024
TICKS = os.sysconf("SC_CLK_TCK")

JOBS = {
    "4k read qd1": ["--rw=randread", "--bs=4k", "--iodepth=1"],
    "4k write qd1": ["--rw=randwrite", "--bs=4k", "--iodepth=1"],
    "4k read qd32": ["--rw=randread", "--bs=4k", "--iodepth=32"],
    "4k write qd32": ["--rw=randwrite", "--bs=4k", "--iodepth=32"],
    "1M read qd4": ["--rw=read", "--bs=1M", "--iodepth=4"],
    "1M write qd4": ["--rw=write", "--bs=1M", "--iodepth=4"],
}


def wait_for(path, server):
    for _ in range(1000):
        if server.poll() is not None:
            sys.exit(f"the server ended at its start: {server.args}")
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(path)
                return
        except OSError:
            time.sleep(0.01)
    sys.exit(f"no server listens on {path}")


def wait_for_path(path, server):
    """For servers that take one connection, which this must not be."""
    for _ in range(1000):
        if server.poll() is not None:
            sys.exit(f"the server ended at its start: {server.args}")
        if os.path.exists(path):
            return
        time.sleep(0.01)
    sys.exit(f"{path} does not exist")


def qsd_version():
    said = subprocess.run(["qemu-storage-daemon", "--version"], capture_output=True, text=True).stdout
    return said.split("version ")[-1].split()[0]


class Server:
    """A server process, its URI, its CPU time."""

    def __init__(self, name, args, sock, uri, env=None):
        self.name, self.uri = name, uri
        # How fio is run against it, beside what everybody gets.
        self.client = {}
        if sock and os.path.exists(sock):
            os.unlink(sock)
        self.process = subprocess.Popen(
            args, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if sock:
            wait_for(sock, self.process)

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Terrace(Server):
    def __init__(self, dir, tiers=("fast",), more=(), direct="auto"):
        self.env = dict(os.environ, TERRACE_ARRAY=os.path.join(dir, "array"), NO_COLOR="1")
        for tier in tiers:
            path = os.path.join(dir, tier)
            os.mkdir(path)
            self.run("tier", "add", tier, "--dir", path, "--size", f"{2 * SIZE_MIB} MiB", "--direct", direct)
        self.run("volume", "create", "v", "--size", f"{SIZE_MIB} MiB", "--tier", tiers[0])
        sock = os.path.join(dir, "t.sock")
        args = [TERRACE, "volume", "export", "--listen", f"unix:{sock}", *more]
        super().__init__("terrace", args, sock, f"nbd+unix:///v?socket={sock}", self.env)

    def run(self, *args):
        done = subprocess.run([TERRACE, *args], env=self.env, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"terrace {' '.join(args)}: {done.stderr}")
        return done.stdout


def nbdkit(name, dir, plugin, *more):
    sock = os.path.join(dir, f"{name.replace(' ', '-')}.sock")
    args = ["nbdkit", "-f", "-U", sock, plugin, *more]
    return Server(name, args, sock, f"nbd+unix:///?socket={sock}")


def qsd(dir, cache=""):
    sock, image = os.path.join(dir, "qsd.sock"), os.path.join(dir, "qsd.img")
    with open(image, "wb") as f:
        f.truncate(SIZE_MIB << 20)
    args = [
        "qemu-storage-daemon",
        "--blockdev", f"file,node-name=f,filename={image},aio=io_uring{cache}",
        "--nbd-server", f"addr.type=unix,addr.path={sock},max-connections=0",
        "--export", "nbd,id=e,node-name=f,name=v,writable=on",
    ]
    return Server("qsd", args, sock, f"nbd+unix:///v?socket={sock}")


def fio(uri, job, seconds, extra=(), client={}):
    args = [
        "fio", "--name=f", "--ioengine=nbd", f"--uri={uri}", *job, f"--size={SIZE_MIB}M",
        "--time_based", f"--runtime={seconds}", "--norandommap", "--output-format=json", *extra,
    ]
    done = subprocess.run(args, capture_output=True, text=True, **client)
    if done.returncode != 0:
        sys.exit(f"fio failed: {done.stderr}{done.stdout}")
    text = done.stdout
    out = json.loads(text[text.index("{"):])["jobs"][0]
    result = {"requests": 0, "iops": 0.0, "mib_s": 0.0}
    for direction in ("read", "write"):
        d = out[direction]
        if d["total_ios"] == 0:
            continue
        result["requests"] += d["total_ios"]
        result["iops"] += d["iops"]
        result["mib_s"] += d["bw_bytes"] / (1 << 20)
        result["mean_us"] = d["lat_ns"]["mean"] / 1e3
        percentiles = d["clat_ns"].get("percentile", {})
        result[f"{direction}_p99_us"] = result["p99_us"] = percentiles.get("99.000000", 0) / 1e3
    return result


def fill(uri, client={}):
    args = ["fio", "--name=f", "--ioengine=nbd", f"--uri={uri}", "--rw=write", "--bs=1M",
            "--iodepth=4", f"--size={SIZE_MIB}M"]
    subprocess.run(args, capture_output=True, check=True, **client)


def measure(server, job, seconds):
    before = server.cpu_s()
    result = fio(server.uri, job, seconds, client=server.client)
    result["cpu_us"] = (server.cpu_s() - before) * 1e6 / max(result["requests"], 1)
    return result


def medians(results):
    keys = set().union(*results)
    return {k: statistics.median(r[k] for r in results if k in r) for k in keys}


def peers(dir, options):
    servers = [Terrace(dir)]
    if options.disk:
        image = os.path.join(dir, "kit.img")
        with open(image, "wb") as f:
            f.truncate(SIZE_MIB << 20)
        servers.append(nbdkit("nbdkit file", dir, "file", image))
    else:
        servers.append(nbdkit("nbdkit memory", dir, "memory", f"{SIZE_MIB}M"))
        servers.append(nbdkit("nbdkit null", dir, "null", f"{SIZE_MIB}M"))
        image = os.path.join(dir, "kit.img")
        with open(image, "wb") as f:
            f.truncate(SIZE_MIB << 20)
        servers.append(nbdkit("nbdkit file", dir, "file", image))
    servers.append(qsd(dir))
    for server in servers:
        fill(server.uri)
    table = {}
    for job, args in JOBS.items():
        runs = {s.name: [] for s in servers}
        for _ in range(options.runs):
            for server in servers:
                runs[server.name].append(measure(server, args, options.seconds))
        table[job] = {name: medians(results) for name, results in runs.items()}
        show_job(job, table[job])
    for server in servers:
        server.stop()
    verdicts(table, options)
    return table


def show_job(job, rows):
    unit = "MiB/s" if job.startswith("1M") else "IOPS"
    key = "mib_s" if job.startswith("1M") else "iops"
    ours = rows["terrace"]
    print(f"\n{job:16} {unit:>9} {'mean us':>9} {'p99 us':>9} {'CPU us/req':>11} {'terrace is':>11}")
    for name, row in rows.items():
        ratio = ours[key] / row[key]
        print(f"  {name:14} {row[key]:9.0f} {row['mean_us']:9.1f} {row['p99_us']:9.1f} "
              f"{row['cpu_us']:11.2f} {ratio:10.2f}x", flush=True)


def verdicts(table, options):
    print("\ntargets")
    if options.disk:
        for job, rows in table.items():
            key = "mib_s" if job.startswith("1M") else "iops"
            best = max(r[key] for n, r in rows.items() if n != "terrace")
            print(f"  {job}: {rows['terrace'][key] / best:.2f}x of the best peer")
        return
    for job, rows in table.items():
        ours = rows["terrace"]
        if job.endswith("qd32"):
            better = max(rows["nbdkit memory"]["iops"], rows["qsd"]["iops"])
            target = min(1.2 * better, 0.85 * rows["nbdkit null"]["iops"])
            met(job + ": min(1.2x better of memory and QSD, 85 % of null)", ours["iops"], target)
        elif job.endswith("qd1"):
            met(job + ": nbdkit memory", ours["iops"], rows["nbdkit memory"]["iops"])
        else:
            best = max(rows[n]["mib_s"] for n in ("nbdkit memory", "nbdkit file", "qsd"))
            met(job + ": the best peer with data", ours["mib_s"], best)
        if job.startswith("4k"):
            peer = min(rows["nbdkit memory"]["cpu_us"], rows["qsd"]["cpu_us"])
            met(job + ": CPU at most the better peer's", peer, ours["cpu_us"])


def met(what, ours, target):
    ratio = ours / target
    print(f"  {'met ' if ratio >= 1 else 'MISS'} {ratio:5.2f}  {what}")


def in_turn(servers, peer_of, jobs, options):
    """Servers beside others of them, in turn within a run: medians of each, the worst and the median ratio to its peer in the same run. They are stopped then."""
    out = {}
    for job in jobs:
        key, unit = ("mib_s", "MiB/s") if job.startswith("1M") else ("iops", "IOPS")
        runs = {s.name: [] for s in servers}
        for _ in range(options.runs):
            for server in servers:
                runs[server.name].append(measure(server, JOBS[job], options.seconds))
        print(f"\n{job:16} {unit:>9} {'mean us':>9} {'p99 us':>9} {'CPU us/req':>11}  worst and median of its peer")
        for name, results in runs.items():
            row = medians(results)
            told, peer = "", peer_of(name)
            if peer:
                ratios = [ours[key] / its[key] for ours, its in zip(results, runs[peer])]
                row["worst"], row["median"] = min(ratios), statistics.median(ratios)
                told = f"{row['worst']:6.2f}x {row['median']:6.2f}x of {peer}"
            out.setdefault(job, {})[name] = row
            print(f"  {name:14} {row[key]:9.0f} {row['mean_us']:9.1f} {row['p99_us']:9.1f} {row['cpu_us']:11.2f}  {told}", flush=True)
    for server in servers:
        server.stop()
    return out


def poll(dir, options):
    """Workers that look before they sleep, ones that do not, and nbdkit in memory, in turn; ratios of single runs."""
    servers = []
    for name, more in (("polling", ()), ("poll-off", ("--poll", "off"))):
        os.mkdir(os.path.join(dir, name))
        server = Terrace(os.path.join(dir, name), more=more)
        server.name = name
        servers.append(server)
    peer = nbdkit("nbdkit memory", dir, "memory", f"{SIZE_MIB}M")
    servers.append(peer)
    for server in servers:
        fill(server.uri)
    peers = {s.name: peer.name for s in servers if s is not peer}
    return in_turn(servers, peers.get, ("4k read qd1", "4k write qd1", "4k read qd32"), options)


def direct(dir, options):
    """Files on a disk past the page cache and through it, beside QEMU's storage daemon either way, in turn; ratios of single runs."""
    servers = []
    for name in ("direct", "cached"):
        os.mkdir(os.path.join(dir, name))
        on = "on" if name == "direct" else "off"
        server = Terrace(os.path.join(dir, name), direct=on)
        server.name = f"terrace {name}"
        servers.append(server)
        cache = "cache.direct=on" if name == "direct" else "cache.direct=off"
        peer = qsd(os.path.join(dir, name), f",{cache}")
        peer.name = f"qsd {name}"
        servers.append(peer)
    for server in servers:
        fill(server.uri)
    peers = {s.name: s.name.replace("terrace", "qsd") for s in servers if s.name.startswith("terrace")}
    return in_turn(servers, peers.get, JOBS, options)


def certificates(dir):
    """A CA, a server for localhost and a client, in the files that both programs read. How fio is run, to find the client's: it lets no URI name files, so
    they are where libnbd looks by itself, which is a home, and root's is not looked into."""
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=dir, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *new, "-days", "2", "-subj", "/CN=bench", "-keyout", "ca-key.pem", "-out", "ca-cert.pem")
    for whose, extensions in (("server", "subjectAltName=DNS:localhost"), ("client", "extendedKeyUsage=clientAuth")):
        openssl("req", *new, "-subj", f"/CN={whose}", "-keyout", f"{whose}-key.pem", "-out", "new.csr")
        with open(os.path.join(dir, "new.ext"), "w") as f:
            f.write(extensions + "\n")
        openssl("x509", "-req", "-in", "new.csr", "-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-CAcreateserial",
                "-days", "2", "-extfile", "new.ext", "-out", f"{whose}-cert.pem")
    home = os.path.join(dir, "home", ".pki", "libnbd")
    os.makedirs(home)
    for file in ("ca-cert.pem", "client-cert.pem", "client-key.pem"):
        shutil.copy(os.path.join(dir, file), home)
    client = {"env": dict(os.environ, HOME=os.path.join(dir, "home")), "cwd": os.path.join(dir, "home")}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for place, _, files in os.walk(os.path.join(dir, "home")):
            for path in [place, *(os.path.join(place, file) for file in files)]:
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        os.chmod(dir, 0o711)
        client.update(user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
    return client


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_port(port, server):
    for _ in range(1000):
        if server.process.poll() is not None:
            sys.exit(f"the server ended at its start: {server.process.args}")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.01)
    sys.exit(f"no server listens on port {port}")


def tls(dir, options):
    """Both with TLS and certificates over loopback TCP, in turn; ratios of single runs."""
    client = certificates(dir)
    ports = {name: free_port() for name in ("terrace", "nbdkit tls")}
    uri = "nbds://localhost:{}/{}"
    ours = Terrace(dir, more=("--tls-certificates", dir, "--listen", f"tcp:127.0.0.1:{ports['terrace']}"))
    ours.uri = uri.format(ports["terrace"], "v")
    args = ["nbdkit", "-f", "-i", "127.0.0.1", "-p", str(ports["nbdkit tls"]), "--tls=require", "--tls-verify-peer",
            f"--tls-certificates={dir}", "memory", f"{SIZE_MIB}M"]
    peer = Server("nbdkit tls", args, None, uri.format(ports["nbdkit tls"], ""))
    servers = [ours, peer]
    for server in servers:
        wait_for_port(ports[server.name], server)
        server.client = client
        fill(server.uri, client)
    return in_turn(servers, {"terrace": peer.name}.get, JOBS, options)


def filters(dir, options):
    """What the filters cost while they have nothing to do: the same load with them off and on, in turn."""
    server = Terrace(dir)
    fill(server.uri)
    settings = {
        "extent map only": [("set", "v", "--measure", "off")],
        "and measure": [("set", "v", "--measure", "on")],
        "and throttle (never reached)": [
            ("set", "v", "--measure", "on", "--iops", "10000000", "--bandwidth", "1 TiB/s")
        ],
    }
    out = {}
    for job in ("4k read qd1", "4k read qd32"):
        runs = {name: [] for name in settings}
        for _ in range(options.runs):
            for name, commands in settings.items():
                server.run("volume", "set", "v", "--iops", "0", "--bandwidth", "0 B/s")
                for command in commands:
                    server.run("volume", *command)
                runs[name].append(measure(server, JOBS[job], options.seconds))
        out[job] = {name: medians(results) for name, results in runs.items()}
        base = out[job]["extent map only"]["cpu_us"]
        print(f"\n{job:30} {'IOPS':>9} {'mean us':>9} {'CPU us/req':>11} {'more':>8}")
        for name, row in out[job].items():
            print(f"  {name:28} {row['iops']:9.0f} {row['mean_us']:9.1f} {row['cpu_us']:11.2f} "
                  f"{row['cpu_us'] - base:+8.2f}", flush=True)
    server.stop()
    return out


def inject(dir, options):
    server = Terrace(dir)
    fill(server.uri)
    out = {}
    print(f"\n{'wanted us':>10} {'added mean':>11} {'error':>8} {'late p50':>9} {'late p99':>9} {'answers':>9}")
    for wanted in (20, 50, 100, 200, 500):
        command = [TERRACE, "volume", "inject", "v", "--read", f"{wanted}us", "--write", f"{wanted}us",
                   "--for", f"{options.seconds}s", "-o", "json"]
        session = subprocess.Popen(command, env=server.env, stdout=subprocess.PIPE, text=True)
        fio(server.uri, JOBS["4k read qd1"], options.seconds + 1)
        told = json.loads(session.communicate()[0])
        told = told.get("injected", told)
        added, late = told["added"], told["late"]
        error = added["mean_us"] - wanted
        out[wanted] = told
        allowed = max(5, 0.1 * wanted)
        verdict = "met" if abs(error) <= allowed and late["p99_us"] <= 20 else "MISS"
        print(f"{wanted:10} {added['mean_us']:11.1f} {error:+8.1f} {late['p50_us']:9.1f} "
              f"{late['p99_us']:9.1f} {added['count']:9}  {verdict}", flush=True)
    server.stop()
    return out


def move(dir, options):
    """A guest of 8,000 mixed 4 KiB requests a second, without and with a move at 250 MiB/s."""
    server = Terrace(dir, ("fast", "slow"), ("--workers", "1"))
    fill(server.uri)
    job = ["--rw=randrw", "--bs=4k", "--iodepth=16"]
    rate = ["--rate_iops=4000,4000", "--rate_process=poisson"]
    quiet, moving, speeds = [], [], []
    for run in range(options.runs):
        quiet.append(fio(server.uri, job, 3, rate))
        to = ("slow", "fast")[run % 2]
        command = [TERRACE, "volume", "move", "v", "--to", to, "--bandwidth", "260 MiB/s", "--wait"]
        started = time.time()
        mover = subprocess.Popen(command, env=server.env, stdout=subprocess.DEVNULL)
        moving.append(fio(server.uri, job, 3, rate))
        mover.wait()
        speeds.append(SIZE_MIB / (time.time() - started))
        time.sleep(1.5)
    server.stop()
    q, m, speed = medians(quiet), medians(moving), statistics.median(speeds)
    print(f"\nmove of {SIZE_MIB} MiB at {speed:.0f} MiB/s under 8,000 mixed 4 KiB IOPS")
    for direction in ("read", "write"):
        key = f"{direction}_p99_us"
        print(f"  {direction} p99: {q[key]:.0f} us without a move, {m[key]:.0f} us during a move: {m[key] / q[key]:.2f}x")
    return {"quiet": q, "moving": m, "mib_s": speed}


def directory(options, on_disk=False):
    """Where files are that are served: on a disk, or in memory."""
    base = options.disk or (os.path.abspath("target") if on_disk else "/dev/shm" if os.path.isdir("/dev/shm") else None)
    return tempfile.TemporaryDirectory(dir=base, prefix="terrace-bench-")


def keep(options, numbers):
    if options.json:
        with open(options.json, "w") as f:
            json.dump(numbers, f, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--disk", metavar="DIR", help="directory on a disk for the files, instead of memory")
    parser.add_argument("--json", metavar="FILE", help="write the results to this file")
    parser.add_argument("part", nargs="*", help="peers, poll, direct, tls, filters, inject, move")
    options = parser.parse_args()
    parts = {"peers": peers, "poll": poll, "direct": direct, "tls": tls, "filters": filters, "inject": inject, "move": move}
    for program in ("fio", "nbdkit", "qemu-storage-daemon"):
        if not shutil.which(program):
            sys.exit(f"skipped: needs {program}")
    numbers = {}
    for name in options.part or ["peers"]:
        if name not in parts:
            sys.exit(f"unknown part {name!r}; known: {', '.join(parts)}")
        with directory(options, on_disk=name == "direct") as dir:
            numbers[name] = parts[name](dir, options)
    keep(options, numbers)


if __name__ == "__main__":
    main()
