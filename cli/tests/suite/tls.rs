//! NBD with TLS between the real programs: libnbd's and QEMU's tools with our server, and our client with nbdkit.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::certificates::{Authority, Holds, secret};
use testkit::needs;

use crate::support::{PATIENCE, Site};

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Returns an unused port below the ephemeral range. It differs for each process and each call, so no other program takes it before the test
/// uses it.
fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    loop {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let port = 10_240 + (std::process::id() * 16 + call) % 20_000;
        let port = u16::try_from(port).unwrap();
        if std::net::TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// Returns the absolute path of a file of the site, for a process with another working directory.
fn at(site: &Site, name: &str) -> String {
    site.path(name).display().to_string()
}

/// Runs a program that must fail; returns its standard error.
fn refused(site: &Site, program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    let out = command.args(args).current_dir(site.dir.path()).output();
    let out = out.unwrap();
    assert!(!out.status.success(), "{program} {args:?} succeeds");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn numbers(length: usize) -> Vec<u8> {
    let number = |i: usize| (i.wrapping_mul(2_654_435_761) >> 13) as u8;
    (0..length).map(number).collect()
}

/// Creates certificates in `server`, `client`, `expired` and `stranger` (signed by another CA); `nobody` has only the CA's
/// certificate.
fn certify(site: &Site) {
    let authority = Authority::new("ours");
    authority.server(&site.path("server"), &["localhost"], Holds::Long);
    authority.client(&site.path("client"), Holds::Long, 10);
    authority.client(&site.path("expired"), Holds::Expired, 11);
    authority.trusted_in(&site.path("nobody"));
    Authority::new("ours").client(&site.path("stranger"), Holds::Long, 10);
    authority.trusted_in(&site.path("stranger"));
}

#[test]
fn libnbd_and_qemu_connect_with_a_certificate() {
    let programs = [
        "nbdinfo",
        "nbdcopy",
        "/usr/bin/python3",
        "qemu-io",
        "qemu-img",
    ];
    if !needs::programs(&programs) {
        return;
    }
    let mut site = Site::new(&[("db", 64), ("logs", 64)]);
    certify(&site);
    let port = free_port();
    let listen = format!("tcp:0.0.0.0:{port}");
    let dir = at(&site, "server");
    let serve = [
        "--listen",
        &listen,
        "--tls-certificates",
        &dir,
        "--workers",
        "2",
    ];
    site.serve(&serve);
    assert!(
        site.log().contains(&format!("nbds://0.0.0.0:{port}/db")),
        "{}",
        site.log()
    );
    let uri = |volume: &str, who: &str| {
        let dir = site.path(who);
        format!(
            "nbds://localhost:{port}/{volume}?tls-certificates={}",
            dir.display()
        )
    };
    let info = site.client("nbdinfo", &[&uri("db", "client")]);
    assert!(
        info.contains("with TLS, using structured packets"),
        "{info}"
    );
    let list = site.client("nbdinfo", &["--list", &uri("", "client")]);
    assert!(list.contains("export=\"logs\""), "{list}");

    let bytes = numbers(64 << 20);
    std::fs::write(site.path("in"), &bytes).unwrap();
    site.client(
        "nbdcopy",
        &[
            "--connections=4",
            "--requests=64",
            "in",
            &uri("db", "client"),
        ],
    );
    site.move_to("db", "slow");
    site.client(
        "nbdcopy",
        &[
            "--connections=4",
            "--requests=64",
            &uri("db", "client"),
            "out",
        ],
    );
    assert!(
        std::fs::read(site.path("out")).unwrap() == bytes,
        "what came back differs"
    );
    // Requests larger than a TLS record, and refused requests whose payload the server discards.
    let script = r#"
import nbd, sys
h = nbd.NBD()
h.set_strict_mode(0)
h.set_uri_allow_local_file(True)
h.connect_uri(sys.argv[1])
data = bytes(range(256)) * (80 << 10)
h.pwrite(data, 1 << 20)
assert h.pread(len(data), 1 << 20) == data
for n in range(20):
    try:
        h.pwrite(data, h.get_size() - 5)
        sys.exit("beyond the end")
    except nbd.Error as e:
        assert e.errno == "ENOSPC", e.errno
    assert h.pread(70000, (1 << 20) + n) == data[n:n + 70000]
h.flush()
h.shutdown()
"#;
    for uri in [uri("logs", "client"), site.uri("logs")] {
        site.client("/usr/bin/python3", &["-c", script, &uri]);
    }

    let credentials = format!(
        "tls-creds-x509,id=t,dir={},endpoint=client",
        site.path("client").display()
    );
    let image = format!("driver=nbd,host=localhost,port={port},export=logs,tls-creds=t");
    let args = ["--object", &credentials, "--image-opts", &image];
    let io = [
        "-c",
        "write -P 0xaa 0 16M",
        "-c",
        "write -P 0xbb 5000 70000",
        "-c",
        "read -P 0xbb 5000 70000",
        "-c",
        "read -P 0xaa 13M 3M",
        "-c",
        "discard 8M 4M",
        "-c",
        "flush",
    ];
    let out = site.client("qemu-io", &[&args[..], &io].concat());
    assert!(!out.contains("failed") && !out.contains("error"), "{out}");
    let convert = [
        "convert",
        "--object",
        &credentials,
        "--image-opts",
        "-O",
        "raw",
    ];
    site.client("qemu-img", &[&convert[..], &[&image, "disk.raw"]].concat());
    let copy = std::fs::read(site.path("disk.raw")).unwrap();
    assert!(copy[5000..75_000].iter().all(|b| *b == 0xbb) && copy[13 << 20] == 0xaa);

    for who in ["nobody", "expired", "stranger"] {
        refused(&site, "nbdinfo", &["--size", &uri("db", who)]);
    }
    let plain = format!("nbd://localhost:{port}/db");
    refused(&site, "nbdinfo", &["--size", &plain]);
    let said = refused(&site, "qemu-img", &["info", "-f", "raw", &plain]);
    assert!(said.contains("this server requires TLS"), "{said}");
    // The unix socket still accepts connections without TLS.
    assert_eq!(
        site.client("nbdinfo", &["--size", &site.uri("db")]).trim(),
        "67108864"
    );
}

/// nbdkit with required TLS; ends on drop.
struct Kit(Child);

impl Kit {
    fn start(site: &Site, port: u16, tls: &[&str]) -> Self {
        let port_text = port.to_string();
        let args = ["-f", "-i", "127.0.0.1", "-p", &port_text, "--tls=require"];
        let child = Command::new("nbdkit")
            .args([&args[..], tls, &["memory", "128M"]].concat())
            .current_dir(site.dir.path())
            .stderr(Stdio::null())
            .spawn();
        let kit = Self(child.unwrap());
        let until = std::time::Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(std::time::Instant::now() < until, "nbdkit does not listen");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        kit
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Moves a volume to a remote tier and back, and verifies the writes before and during its stay there.
fn move_to_tier_and_back(site: &mut Site, uri: &str) {
    site.ok(&["tier", "add", "far", "--nbd", uri]);
    site.serve(&[]);
    let volume = site.uri("db");
    let bytes = numbers(48 << 20);
    std::fs::write(site.path("in"), &bytes).unwrap();
    site.client("nbdcopy", &["--requests=64", "in", &volume]);
    site.move_to("db", "far");
    site.client("nbdcopy", &["--requests=64", &volume, "out"]);
    assert!(std::fs::read(site.path("out")).unwrap() == bytes, "far");
    let more = numbers(49 << 20).split_off(1 << 20);
    std::fs::write(site.path("in"), &more).unwrap();
    site.client("nbdcopy", &["--requests=64", "in", &volume]);
    site.move_to("db", "fast");
    site.client("nbdcopy", &["--requests=64", &volume, "out"]);
    assert!(std::fs::read(site.path("out")).unwrap() == more, "back");
}

#[test]
fn tier_on_an_nbdkit_export_with_certificates_serves_volumes() {
    if !needs::programs(&["nbdkit", "nbdcopy"]) {
        return;
    }
    let mut site = Site::new(&[("db", 48)]);
    certify(&site);
    let port = free_port();
    let server = format!("--tls-certificates={}", site.path("server").display());
    let _kit = Kit::start(&site, port, &["--tls-verify-peer", &server]);
    let uri = |who: &str, more: &str| {
        let dir = site.path(who);
        format!(
            "nbds://localhost:{port}/?tls-certificates={}{more}",
            dir.display()
        )
    };
    let add = |uri: &str| {
        let out = site.run(&["tier", "add", "far", "--nbd", uri]);
        assert!(!out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    let plain = add(&format!("nbd://localhost:{port}/"));
    assert!(
        plain.contains("the server requires TLS: use nbds://"),
        "{plain}"
    );
    let name = add(&uri("client", "&tls-hostname=another"));
    assert!(name.contains("not valid for name \"another\""), "{name}");
    add(&uri("nobody", ""));
    let verify = add(&uri("client", "&tls-verify-peer=false"));
    assert!(
        verify.contains("unknown parameter \"tls-verify-peer\""),
        "{verify}"
    );
    let uri = uri("client", "");
    move_to_tier_and_back(&mut site, &uri);
}

/// Returns true if this build supports pre-shared keys; otherwise reports the skipped test.
fn has_psk(site: &Site) -> bool {
    let nowhere = site.path("nowhere");
    let uri = format!("nbds://localhost:1/?tls-psk-file={}", nowhere.display());
    let out = site.run(&["filter", &uri, "--listen", "unix:f.sock"]);
    let said = String::from_utf8(out.stderr).unwrap();
    if said.contains("PSK needs a build with --features psk") {
        needs::skipped("psk");
        return false;
    }
    assert!(said.contains("cannot read"), "{said}");
    true
}

fn give_keys(path: &Path, user: &str, key: &str) {
    secret(path, &format!("{user}:{key}\n"));
}

#[test]
fn libnbd_and_qemu_connect_with_a_key() {
    let mut site = Site::new(&[("db", 32)]);
    if !has_psk(&site) || !needs::programs(&["nbdinfo", "nbdcopy", "qemu-io"]) {
        return;
    }
    std::fs::create_dir(site.path("qemu")).unwrap();
    give_keys(&site.path("qemu/keys.psk"), "ann", KEY);
    give_keys(&site.path("wrong.psk"), "ann", &KEY.replace("0011", "1100"));
    give_keys(&site.path("eve.psk"), "eve", KEY);
    let port = free_port();
    let listen = format!("tcp:127.0.0.1:{port}");
    site.serve(&[
        "--listen",
        &listen,
        "--tls-psk",
        &at(&site, "qemu/keys.psk"),
    ]);
    let uri = |user: &str, file: &str| {
        let file = site.path(file);
        format!(
            "nbds://{user}@localhost:{port}/db?tls-psk-file={}",
            file.display()
        )
    };
    let ann = uri("ann", "qemu/keys.psk");
    let bytes = numbers(32 << 20);
    std::fs::write(site.path("in"), &bytes).unwrap();
    site.client("nbdcopy", &["--connections=4", "--requests=64", "in", &ann]);
    site.client(
        "nbdcopy",
        &["--connections=4", "--requests=64", &ann, "out"],
    );
    assert!(
        std::fs::read(site.path("out")).unwrap() == bytes,
        "what came back differs"
    );
    let dir = site.path("qemu");
    let credentials = format!(
        "tls-creds-psk,id=t,dir={},endpoint=client,username=ann",
        dir.display()
    );
    let image = format!("driver=nbd,host=localhost,port={port},export=db,tls-creds=t");
    let out = site.client(
        "qemu-io",
        &[
            "--object",
            &credentials,
            "--image-opts",
            &image,
            "-c",
            "write -P 5 5000 300000",
            "-c",
            "read -P 5 5000 300000",
        ],
    );
    assert!(!out.contains("failed") && !out.contains("error"), "{out}");
    for uri in [
        uri("ann", "wrong.psk"),
        uri("eve", "eve.psk"),
        format!("nbd://localhost:{port}/db"),
    ] {
        refused(&site, "nbdinfo", &["--size", &uri]);
    }
}

#[test]
fn tier_on_an_nbdkit_export_with_keys_serves_volumes() {
    let mut site = Site::new(&[("db", 48)]);
    if !has_psk(&site) || !needs::programs(&["nbdkit", "nbdcopy"]) {
        return;
    }
    give_keys(&site.path("keys.psk"), "ann", KEY);
    let port = free_port();
    let keys = format!("--tls-psk={}", site.path("keys.psk").display());
    let _kit = Kit::start(&site, port, &[&keys]);
    let uri = format!(
        "nbds://ann@localhost:{port}/?tls-psk-file={}",
        site.path("keys.psk").display()
    );
    move_to_tier_and_back(&mut site, &uri);
}

#[test]
fn commands_of_the_tls_guide_make_working_certificates() {
    if !needs::programs(&["openssl", "nbdinfo"]) {
        return;
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/nbd-tls.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    let mut site = Site::new(&[("data", 8)]);
    let mut made = 0;
    for block in blocks.filter(|block| block.contains("openssl")) {
        site.client("sh", &["-e", "-c", block]);
        made += 1;
    }
    assert_eq!(made, 4, "CA, server, client, and a file of keys");
    let port = free_port();
    let listen = format!("tcp:127.0.0.1:{port}");
    site.serve(&[
        "--listen",
        &listen,
        "--tls-certificates",
        &at(&site, "server"),
    ]);
    let dir = site.path("client");
    let uri = format!(
        "nbds://localhost:{port}/data?tls-certificates={}",
        dir.display()
    );
    assert_eq!(site.client("nbdinfo", &["--size", &uri]).trim(), "8388608");
    if has_psk(&site) {
        let keys = site.path("keys.psk");
        let uri = format!(
            "nbds://localhost:{port}/data?tls-psk-file={}",
            keys.display()
        );
        // The client reads its keys; the server has none.
        let out = site.run(&["filter", &uri, "--listen", "unix:f.sock"]);
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(said.contains("TLS:"), "{said}");
    }
}
