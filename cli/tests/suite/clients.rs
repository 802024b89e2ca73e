//! Real NBD clients against the real server: the tools of libnbd and QEMU, and fio, which verifies data while extents
//! move.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::needs;

use crate::support::{KillOnDrop, Site, wait_for};

#[test]
fn libnbd_tools_inspect_copy_and_script_an_export() {
    if !needs::programs(&["nbdinfo", "nbdcopy", "/usr/bin/python3"]) {
        return;
    }
    let mut site = Site::new(&[("db", 64), ("logs", 32)]);
    site.serve(&[]);
    let uri = site.uri("db");
    assert_eq!(site.client("nbdinfo", &["--size", &uri]).trim(), "67108864");
    let all = format!("nbd+unix:///?socket={}", site.socket().display());
    let list = site.client("nbdinfo", &["--list", &all]);
    assert!(
        list.contains("export=\"db\"") && list.contains("export=\"logs\""),
        "{list}"
    );
    for what in ["flush", "fua", "trim", "zero", "multi-conn"] {
        site.client("nbdinfo", &["--can", what, &uri]);
    }
    assert!(
        site.client("nbdinfo", &["--map", &uri])
            .contains("hole,zero")
    );

    // A file of 64 MiB with data and holes is copied to the export and back.
    let mut bytes = vec![0u8; 64 << 20];
    for (i, b) in bytes
        .iter_mut()
        .enumerate()
        .filter(|(i, _)| i >> 20 & 3 == 1)
    {
        *b = (i.wrapping_mul(2_654_435_761) >> 13) as u8;
    }
    std::fs::write(site.path("in"), &bytes).unwrap();
    site.client("nbdcopy", &["--connections=4", "in", &uri]);
    let map = site.client("nbdinfo", &["--map", &uri]);
    assert!(map.contains("data") && map.contains("hole,zero"), "{map}");
    site.move_to("db", "slow");
    site.client("nbdcopy", &["--connections=4", &uri, "out"]);
    assert!(
        std::fs::read(site.path("out")).unwrap() == bytes,
        "what came back differs"
    );

    let script = r#"
import nbd, sys
h = nbd.NBD()
h.add_meta_context("base:allocation")
h.connect_uri(sys.argv[1])
h.pwrite(b"x" * 5000, 123457, nbd.CMD_FLAG_FUA)
assert h.pread(5002, 123456)[1:-1] == b"x" * 5000
h.zero(3000, 124000)
assert h.pread(3000, 124000) == bytes(3000)
h.trim(8 << 20, 4 << 20)
h.flush()
assert h.pread(4096, 5 << 20) == bytes(4096)
for bad in (lambda: h.pread(1, h.get_size()), lambda: h.pwrite(b"ab", h.get_size() - 1)):
    h.set_strict_mode(0)
    try:
        bad()
        sys.exit("out of range was not refused")
    except nbd.Error as e:
        assert e.errno in ("EINVAL", "ENOSPC"), e.errno
h.shutdown()
"#;
    site.client("/usr/bin/python3", &["-c", script, &uri]);
}

#[test]
fn qemu_tools_write_discard_and_compare_an_export() {
    if !needs::programs(&["qemu-img", "qemu-io"]) {
        return;
    }
    let mut site = Site::new(&[("vm", 128)]);
    site.serve(&["--workers", "2"]);
    let uri = site.uri("vm");
    let io = |commands: &[&str]| {
        let mut args = vec!["-f", "raw"];
        commands.iter().for_each(|c| args.extend(["-c", c]));
        args.push(&uri);
        let out = site.client("qemu-io", &args);
        assert!(!out.contains("failed") && !out.contains("error"), "{out}");
    };
    io(&[
        "write -P 0xaa 0 16M",
        "write -P 0xbb 5000 70000",
        "read -P 0xbb 5000 70000",
        "write -z 1M 1M",
        "write -z -u 3M 3M",
        "discard 8M 4M",
        "read -P 0 1M 1M",
        "read -P 0 3M 3M",
        "read -P 0xaa 13M 3M",
        "write -f -P 0xcc 20M 64k",
        "flush",
    ]);
    site.move_to("vm", "middle");
    io(&[
        "read -P 0xbb 5000 70000",
        "read -P 0xaa 13M 3M",
        "read -P 0xcc 20M 64k",
    ]);
    site.client(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", &uri, "disk.qcow2"],
    );
    site.client(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "qcow2", &uri, "disk.qcow2"],
    );
    site.client(
        "qemu-img",
        &["bench", "-f", "raw", "-w", "-d", "16", "-c", "3000", &uri],
    );
}

/// Shortest time for which fio writes and verifies.
const LOADED: Duration = Duration::from_secs(10);

#[test]
fn fio_verifies_while_extents_move_between_three_tiers() {
    if !needs::programs(&["fio"]) {
        return;
    }
    let mut site = Site::new(&[("db", 256)]);
    site.serve(&["--workers", "2"]);
    let job = format!(
        "--name=v --ioengine=nbd --uri={} --rw=randrw --bsrange=4k-128k --iodepth=16 --size=256M \
         --verify=crc32c --verify_fatal=1 --verify_backlog=512 --time_based --runtime=280",
        site.uri("db")
    );
    let args: Vec<&str> = job.split_whitespace().collect();
    let mut fio = Command::new("fio")
        .args(&args)
        .args(["--output=fio.log", "--trigger-file=enough"])
        .current_dir(site.dir.path())
        .spawn()
        .unwrap();
    let until = Instant::now() + LOADED;
    let mut moves = 0;
    while moves < 6 || Instant::now() < until {
        for tier in ["slow", "middle", "fast"] {
            site.ok(&[
                "volume",
                "move",
                "db",
                "--to",
                tier,
                "--bandwidth",
                "400 MiB/s",
                "--wait",
            ]);
            moves += 1;
        }
        assert!(fio.try_wait().unwrap().is_none(), "fio has ended");
    }
    std::fs::write(site.path("enough"), "").unwrap();
    let status = fio.wait().unwrap();
    let log = std::fs::read_to_string(site.path("fio.log")).unwrap();
    assert!(status.success() && log.contains("err= 0"), "{log}");
}

#[test]
fn full_tier_spills_to_the_next_and_guest_gets_enospc_at_the_end() {
    if !needs::programs(&["/usr/bin/python3", "nbdinfo"]) {
        return;
    }
    let mut site = Site::with_tiers(&["4 MiB", "4 MiB", "4 MiB"], &[("db", 64)]);
    site.serve(&[]);
    let script = r#"
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
for i in range(12):
    h.pwrite(bytes([i + 1]) * (1 << 20), i << 20)
try:
    h.pwrite(b"x" * 4096, 40 << 20)
    sys.exit("no ENOSPC")
except nbd.Error as e:
    assert e.errno == "ENOSPC", e.errno
for i in range(12):
    assert h.pread(1 << 20, i << 20) == bytes([i + 1]) * (1 << 20), i
h.trim(1 << 20, 3 << 20)
for attempt in range(2400):
    try:
        h.pwrite(b"y" * 4096, 40 << 20)
        break
    except nbd.Error:
        import time; time.sleep(0.05)
else:
    sys.exit("trimmed space was not given back")
assert h.pread(4097, 40 << 20) == b"y" * 4096 + b"\0"
"#;
    site.client("/usr/bin/python3", &["-c", script, &site.uri("db")]);
    let tiers = site.json(&["volume", "show", "db"]).to_string();
    for tier in ["fast", "middle", "slow"] {
        assert!(tiers.contains(tier), "{tiers}");
    }
}

/// Device faults: the slow tier is an nbdkit server with its error and pause filters.
#[test]
fn failing_or_hanging_device_returns_errors_and_recovers() {
    if !needs::programs(&["nbdkit", "/usr/bin/python3", "nbdsh"]) {
        return;
    }
    let mut site = Site::empty();
    let fast = site.path("fast");
    std::fs::create_dir(&fast).unwrap();
    let (remote, fail, control) = (site.path("remote"), site.path("fail"), site.path("pause"));
    let kit = Command::new("nbdkit")
        .args(["-f", "--exit-with-parent", "-U", remote.to_str().unwrap()])
        .args([
            "--filter=error",
            "--filter=pause",
            "memory",
            "64M",
            "error=EIO",
            "error-rate=100%",
        ])
        .arg(format!("error-file={}", fail.display()))
        .arg(format!("pause-control={}", control.display()))
        .spawn()
        .unwrap();
    let kit = KillOnDrop(kit);
    wait_for("nbdkit serves", || UnixStream::connect(&remote).is_ok());
    let uri = format!("nbd+unix:///?socket={}", remote.display());
    site.ok(&[
        "tier",
        "add",
        "fast",
        "--dir",
        fast.to_str().unwrap(),
        "--size",
        "64 MiB",
    ]);
    site.ok(&["tier", "add", "remote", "--nbd", &uri]);
    site.ok(&[
        "volume", "create", "db", "--size", "16 MiB", "--tier", "remote",
    ]);
    site.serve(&["--timeout", "2s"]);
    let script = r#"
import nbd, os, socket, sys, time
uri, fail, control = sys.argv[1:]
h = nbd.NBD()
h.connect_uri(uri)
def pause(what):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(control)
    s.send(what)
    s.recv(1)
def fails(what, errno="EIO"):
    try:
        what()
    except nbd.Error as e:
        assert e.errno == errno, e.errno
        return
    sys.exit("no error where one was due")
h.pwrite(b"a" * 65536, 0)
h.flush()
# Errors: the guest is told, and what was acknowledged before stays.
open(fail, "w").close()
fails(lambda: h.pread(4096, 0))
fails(lambda: h.pwrite(b"b" * 4096, 131072))
os.unlink(fail)
assert h.pread(65536, 0) == b"a" * 65536
h.pwrite(b"b" * 4096, 131072)
h.flush()
# A hang: an error after the timeout; the late write must not overwrite a newer one.
pause(b"p")
start = time.time()
fails(lambda: h.pwrite(b"late" * 1024, 0))
assert 1.5 < time.time() - start, time.time() - start
fails(lambda: h.pwrite(b"newer" * 1024, 0))
pause(b"r")
for attempt in range(1200):
    try:
        h.pwrite(b"new!" * 1024, 0)
        break
    except nbd.Error:
        time.sleep(0.1)
else:
    sys.exit("it did not come back")
for i in range(20):
    assert h.pread(4096, 0) == b"new!" * 1024
    time.sleep(0.01)
h.flush()
"#;
    let db = site.uri("db");
    let args = [
        "-c",
        script,
        &db,
        fail.to_str().unwrap(),
        control.to_str().unwrap(),
    ];
    site.client("/usr/bin/python3", &args);
    // A move onto a failing device is aborted; the source is unchanged.
    site.move_to("db", "fast");
    std::fs::write(&fail, "").unwrap();
    let out = site.run(&["volume", "move", "db", "--to", "remote", "--wait"]);
    assert!(
        !out.status.success(),
        "a move onto a failing device succeeded"
    );
    std::fs::remove_file(&fail).unwrap();
    let read = "import nbd,sys\nh=nbd.NBD()\nh.connect_uri(sys.argv[1])\nassert h.pread(4096,0)==b'new!'*1024";
    site.client("/usr/bin/python3", &["-c", read, &db]);
    // The device disappears, then returns.
    site.move_to("db", "remote");
    drop(kit);
    let out = Command::new("/usr/bin/python3")
        .args(["-c", read, &db])
        .output()
        .unwrap();
    assert!(
        !out.status.success(),
        "a read of a device that is gone succeeded"
    );
}

#[test]
fn hostile_clients_do_not_affect_other_clients() {
    let mut site = Site::new(&[("db", 64), ("victim", 64)]);
    site.serve(&["--max-connections", "2500"]);
    let uri = site.uri("db").parse().unwrap();
    let mut good = datapath::Client::connect(&uri).unwrap();
    good.write(0, &[7; 65536]).unwrap();
    let before = site.memory_mib();

    // Two thousand connections stop in the middle of the handshake and stay open.
    let mut many = vec![];
    for i in 0..2000u32 {
        let mut socket = UnixStream::connect(site.socket()).unwrap();
        let _ = socket.write_all(&i.to_be_bytes());
        many.push(socket);
    }
    // Connections that send random bytes.
    for seed in 0..200u64 {
        let mut socket = UnixStream::connect(site.socket()).unwrap();
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let garbage: Vec<u8> = (0..4096)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x as u8
            })
            .collect();
        let _ = socket.write_all(&garbage);
    }
    // Requests of invalid length, requests far out of range, and clients that never read their replies.
    let mut readers = vec![];
    for (command, offset, length) in [
        (nbd::Command::Read, 0, u32::MAX),
        (nbd::Command::Read, u64::MAX - 5, 4096),
        (nbd::Command::Write, u64::MAX, 1),
        (nbd::Command::Trim, 1 << 60, u32::MAX),
        (nbd::Command::Read, 0, 16 << 20),
    ] {
        let mut socket = raw_connection(&site);
        socket.set_nonblocking(true).unwrap();
        for cookie in 0..500 {
            let header = nbd::RequestHeader {
                flags: nbd::RequestFlags(0),
                command,
                cookie,
                offset,
                length,
            };
            if socket.write_all(&nbd::encode_request(&header)).is_err() {
                break;
            }
        }
        readers.push(socket);
    }
    // A well-behaved client is served while all of these stay connected.
    for _ in 0..2000 {
        assert_eq!(good.read(0, 65536).unwrap(), [7; 65536]);
    }
    let grown = site.memory_mib().saturating_sub(before);
    assert!(grown < 600, "memory grew by {grown} MiB");
    drop((many, readers));
    // Incomplete handshakes end after their time limit, or when the client disconnects; then new connections are
    // accepted.
    let mut again = datapath::Client::connect(&site.uri("victim").parse().unwrap()).unwrap();
    again.write(0, b"still here").unwrap();
}

/// Opens a connection to `db` and completes the handshake; the caller then sends invalid data.
fn raw_connection(site: &Site) -> UnixStream {
    let mut socket = UnixStream::connect(site.socket()).unwrap();
    let wishes = nbd::ClientWishes {
        structured: true,
        allocation: false,
    };
    let mut handshake = nbd::ClientHandshake::new("db", wishes);
    loop {
        let (mut input, mut out) = ([0; 4096], vec![]);
        let n = socket.read(&mut input).unwrap();
        let (_, progress) = handshake.step(&input[..n], &mut out).unwrap();
        socket.write_all(&out).unwrap();
        if matches!(progress, nbd::ClientProgress::Ready(_)) {
            return socket;
        }
    }
}

#[test]
fn connections_above_the_limit_are_closed_at_once() {
    let mut site = Site::new(&[("db", 16)]);
    site.serve(&["--max-connections", "4"]);
    let uri = site.uri("db").parse().unwrap();
    let four = || {
        let held = (0..4).map(|_| datapath::Client::connect(&uri));
        held.collect::<Result<Vec<_>, _>>().ok()
    };
    // The probe of `serve` may still be connected.
    let mut held = None;
    wait_for("there is room for four", || {
        held = four();
        held.is_some()
    });
    let mut fifth = UnixStream::connect(site.socket()).unwrap();
    let mut byte = [0];
    assert_eq!(fifth.read(&mut byte).unwrap(), 0, "it was not closed");
    drop(held);
    wait_for("there is room after all have gone", || {
        datapath::Client::connect(&uri).is_ok()
    });
}

#[test]
fn thread_io_serves_the_same_data_as_io_uring() {
    if !needs::programs(&["qemu-io", "fio"]) {
        return;
    }
    let mut site = Site::new(&[("db", 64)]);
    site.serve(&["--io", "threads", "--workers", "2"]);
    let uri = site.uri("db");
    let io = [
        "write -P 0x11 0 8M",
        "write -P 0x22 12345 70000",
        "flush",
        "discard 4M 2M",
    ];
    let back = [
        "read -P 0x22 12345 70000",
        "read -P 0x11 1M 3M",
        "read -P 0 4M 2M",
    ];
    for commands in [&io[..], &back[..]] {
        let mut args = vec!["-f", "raw"];
        commands.iter().for_each(|c| args.extend(["-c", c]));
        args.push(&uri);
        let out = site.client("qemu-io", &args);
        assert!(!out.contains("failed") && !out.contains("error"), "{out}");
    }
    let job = format!(
        "--name=v --ioengine=nbd --uri={uri} --rw=randwrite --bs=4k --iodepth=16 --size=32M \
         --verify=crc32c --verify_fatal=1 --output=fio.log"
    );
    let args: Vec<&str> = job.split_whitespace().collect();
    let mut fio = Command::new("fio")
        .args(args)
        .current_dir(site.dir.path())
        .spawn()
        .unwrap();
    site.move_to("db", "slow");
    assert!(fio.wait().unwrap().success());
}

/// Measures the requests per second that fio reaches on each of these exports, all at the same time.
///
/// The queue is long enough that requests wait for the limit even if fio seldom gets a processor. At the end fio waits
/// for all queued requests and counts that time but not the requests: a long queue behind a low limit falsifies the
/// rate.
fn rates(site: &Site, volumes: &[&str], iodepth: u32) -> Vec<f64> {
    let run = |volume: &&str| {
        let uri = site.uri(volume);
        let job = format!(
            "--name=r --ioengine=nbd --uri={uri} --rw=randread --bs=4k --iodepth={iodepth} --size=16M \
             --time_based --runtime=5 --ramp_time=3 --output-format=json"
        );
        let mut command = Command::new("fio");
        command
            .args(job.split_whitespace())
            .stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let running: Vec<_> = volumes.iter().map(run).collect();
    let rate = |child: std::process::Child| {
        let out = child.wait_with_output().unwrap().stdout;
        let text = String::from_utf8(out).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        json["jobs"][0]["read"]["iops"].as_f64().unwrap()
    };
    running.into_iter().map(rate).collect()
}

/// Limits are upper bounds: a machine may be too slow to reach them.
#[test]
fn throttles_limit_iops_and_shares_follow_weights() {
    if !needs::programs(&["fio"]) {
        return;
    }
    let mut site = Site::new(&[("a", 16), ("b", 16)]);
    site.serve(&[]);
    let set = |words: &[&str]| site.ok(&[&["volume", "set", "a"], words].concat());
    set(&["--iops", "2000"]);
    let rate = rates(&site, &["a"], 64)[0];
    assert!(0.0 < rate && rate < 2100.0, "{rate} IOPS of 2000");
    set(&["--iops", "0", "--bandwidth", "4 MiB/s"]);
    let rate = rates(&site, &["a"], 64)[0];
    assert!(0.0 < rate && rate < 1080.0, "{rate} IOPS of 1024");
    set(&["--bandwidth", "0 B/s", "--weight", "2"]);
    site.ok(&["tier", "limit", "fast", "--iops", "60"]);
    // Weights decide only while requests of both volumes wait for the limit. A busy machine may need several attempts.
    let mut attempts = (0..10)
        .map(|_| rates(&site, &["a", "b"], 8))
        .inspect(|both| {
            assert!(both[0] + both[1] < 66.0, "{both:?} IOPS of 60");
        });
    let both = attempts.find(|both| both[0] + both[1] > 50.0);
    let both = both.expect("ten attempts, and the limit was never reached");
    assert!(both[0] > 1.3 * both[1], "{both:?} IOPS of 40 and 20");
}
