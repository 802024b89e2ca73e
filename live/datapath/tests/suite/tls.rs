//! NBD with TLS: admitted and rejected clients, plaintext before TLS, and the effect of rejected clients on guests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datapath::control_server::{ControlRequest, NewDevice, NewSource};
use datapath::{ArrayServer, Client, Credentials, Listen, ServerConfig, explain};
use testkit::certificates::{Authority, Holds};
use testkit::damage::Damage;
use testkit::seeds;

use crate::support::{MIB, PATIENCE, Site, wait_for};

/// Served array whose volume `data` of 16 MiB requires a certificate over TCP.
struct SecuredArray {
    site: Site,
    authority: Authority,
    address: SocketAddr,
}

fn listen_secured(serving: &ArrayServer, credentials: Credentials) -> SocketAddr {
    serving.require_tls(credentials).unwrap();
    match serving.listen(&"tcp:127.0.0.1:0".parse().unwrap()) {
        Ok(Listen::Tls(address)) => address,
        other => panic!("{other:?}"),
    }
}

impl SecuredArray {
    fn new() -> Self {
        Self::with(ServerConfig {
            workers: 2,
            ..ServerConfig::default()
        })
    }

    fn with(config: ServerConfig) -> Self {
        let mut site = Site::empty();
        site.add("fast", "fast", 64, None);
        site.serve_as(config);
        let authority = Authority::new("ours");
        let names = ["localhost", "127.0.0.1", "nas.example"];
        authority.server(&site.path("server"), &names, Holds::Long);
        authority.client(&site.path("client"), Holds::Long, 10);
        site.create("data", 16, "fast");
        site.create("more", 16, "fast");
        let credentials = Credentials::Certificates(site.path("server"));
        let address = listen_secured(site.serving(), credentials);
        Self {
            site,
            authority,
            address,
        }
    }

    /// Returns the URI of a volume, with the certificates in a directory.
    fn uri(&self, host: &str, volume: &str, certificates: &str, more: &str) -> nbd::Uri {
        let (port, dir) = (self.address.port(), self.site.path(certificates));
        let dir = dir.display();
        let text = format!("nbds://{host}:{port}/{volume}?tls-certificates={dir}{more}");
        text.parse().unwrap()
    }

    fn connect(&self) -> Client {
        Client::connect(&self.uri("localhost", "data", "client", "")).unwrap()
    }

    /// Returns the reason why a connection is refused.
    fn refused(&self, uri: &nbd::Uri) -> String {
        match Client::connect(uri) {
            Ok(mut client) => {
                // In TLS 1.3 a client has finished before the server checks its certificate.
                explain(&client.read(0, 512).expect_err("nobody is let in"))
            }
            Err(error) => explain(&error),
        }
    }
}

/// Returns data that depends on its offset.
fn pattern(offset: u64, length: usize) -> Vec<u8> {
    let word = |i: usize| ((offset as usize + i) / 8).wrapping_mul(0x9e37_79b9) >> (i % 8);
    (0..length).map(|i| word(i) as u8).collect()
}

#[test]
fn clients_with_a_certificate_of_the_authority_are_accepted_only() {
    let secured = SecuredArray::new();
    let mut client = secured.connect();
    // Lengths above the limit of data encrypted ahead, above a record, and below a record.
    for (offset, length) in [(0, 3 * MIB as usize), (5 * MIB + 17, 70_000), (9 * MIB, 1)] {
        let data = pattern(offset, length);
        client.write(offset, &data).unwrap();
        assert!(client.read(offset, length as u32).unwrap() == data);
    }
    client.flush().unwrap();
    client.disconnect().unwrap();
    // The unix socket has no TLS and serves the same data.
    let mut plain = secured.site.connect("data").unwrap();
    assert!(plain.read(5 * MIB + 17, 70_000).unwrap() == pattern(5 * MIB + 17, 70_000));

    let path = |name: &str| secured.site.path(name);
    let stranger = Authority::new("ours");
    stranger.client(&path("stranger"), Holds::Long, 10);
    secured.authority.trusted_in(&path("stranger"));
    secured.authority.trusted_in(&path("nobody"));
    secured
        .authority
        .client(&path("expired"), Holds::Expired, 11);
    for (who, why) in [
        ("nobody", "CertificateRequired"),
        ("expired", "CertificateExpired"),
        ("stranger", ""),
    ] {
        let error = secured.refused(&secured.uri("localhost", "data", who, ""));
        assert!(error.contains(why), "{who}: {error}");
    }
    // A server's certificate is invalid for a client.
    secured.authority.trusted_in(&path("server-as-client"));
    for file in ["cert", "key"] {
        let (from, to) = (format!("server-{file}.pem"), format!("client-{file}.pem"));
        std::fs::copy(path("server").join(from), path("server-as-client").join(to)).unwrap();
    }
    secured.refused(&secured.uri("localhost", "data", "server-as-client", ""));

    let plain = format!("nbd://localhost:{}/data", secured.address.port());
    let error = secured.refused(&plain.parse().unwrap());
    assert!(
        error.contains("the server requires TLS: use nbds://"),
        "{error}"
    );
}

#[test]
fn client_rejects_servers_with_an_unexpected_certificate() {
    let secured = SecuredArray::new();
    let path = |name: &str| secured.site.path(name);
    Client::connect(&secured.uri("127.0.0.1", "data", "client", "")).unwrap();
    let named = "&tls-hostname=nas.example";
    Client::connect(&secured.uri("127.0.0.1", "data", "client", named)).unwrap();
    let another = "&tls-hostname=another.example";
    let error = secured.refused(&secured.uri("localhost", "data", "client", another));
    assert!(error.contains("not valid for name"), "{error}");
    // Another authority with the same name.
    secured.authority.client(&path("deceived"), Holds::Long, 10);
    Authority::new("ours").trusted_in(&path("deceived"));
    let error = secured.refused(&secured.uri("localhost", "data", "deceived", ""));
    assert!(error.contains("invalid peer certificate"), "{error}");
    // The client refuses a server without TLS.
    let socket = secured.site.path("nbd.sock");
    let client = path("client");
    let text = format!(
        "nbds+unix:///data?socket={}&tls-certificates={}",
        socket.display(),
        client.display()
    );
    let error = secured.refused(&text.parse().unwrap());
    assert!(error.contains("the server does not support TLS"), "{error}");
    // A client without a means to authenticate the server refuses it.
    let text = format!("nbds://localhost:{}/data", secured.address.port());
    let error = secured.refused(&text.parse().unwrap());
    assert!(error.contains("tls-certificates=DIR"), "{error}");
}

#[test]
fn revoked_and_renewed_certificates_apply_without_a_restart() {
    let secured = SecuredArray::new();
    let mut before = secured.connect();
    let server = secured.site.path("server");
    secured
        .authority
        .client(&secured.site.path("lost"), Holds::Long, 11);
    let lost = secured.uri("localhost", "data", "lost", "");
    Client::connect(&lost).unwrap().read(0, 1).unwrap();
    secured.authority.revoke(&server, &[11]);
    std::thread::sleep(Duration::from_millis(1100));
    let error = secured.refused(&lost);
    assert!(error.contains("CertificateRevoked"), "{error}");
    secured.connect().read(0, 1).unwrap();
    // From now on the certificate has another name.
    secured
        .authority
        .server(&server, &["new.example"], Holds::Long);
    std::thread::sleep(Duration::from_millis(1100));
    let error = secured.refused(&secured.uri("localhost", "data", "client", ""));
    assert!(error.contains("not valid for name"), "{error}");
    // An incomplete renewal has no effect.
    std::fs::write(server.join("server-cert.pem"), "half").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let new = "&tls-hostname=new.example";
    Client::connect(&secured.uri("localhost", "data", "client", new)).unwrap();
    before.read(0, 512).unwrap();
}

#[test]
fn public_address_requires_tls_with_valid_files() {
    let mut site = Site::empty();
    site.add("fast", "fast", 8, None);
    site.serve_as(ServerConfig::default());
    let any = "tcp:0.0.0.0:0".parse().unwrap();
    let error = site.serving().listen(&any).unwrap_err().to_string();
    assert!(
        error.contains("--tls-certificates") && error.contains("--tls-psk"),
        "{error}"
    );
    let authority = Authority::new("ours");
    let dir = site.path("server");
    let refused = |credentials: Credentials| {
        let error = site.serving().require_tls(credentials).unwrap_err();
        explain(&error)
    };
    let certificates = || Credentials::Certificates(dir.clone());
    assert!(refused(certificates()).contains("ca-cert.pem"));
    authority.trusted_in(&dir);
    assert!(refused(certificates()).contains("server-cert.pem"));
    authority.server(&dir, &["localhost"], Holds::Long);
    let key = dir.join("server-key.pem");
    let mode = |mode| std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    let error = refused(certificates());
    assert!(
        error.contains("chmod 600") && error.contains("server-key.pem"),
        "{error}"
    );
    mode(0o600);
    site.serving().require_tls(certificates()).unwrap();
    let Listen::Tls(address) = site.serving().listen(&any).unwrap() else {
        panic!("it is secured");
    };
    let uri = Listen::Tls(address).uri("data");
    assert!(uri.starts_with("nbds://0.0.0.0:"), "{uri}");
    if cfg!(not(feature = "psk")) {
        let error = refused(Credentials::Psk(site.path("keys.psk")));
        assert_eq!(error, "PSK needs a build with --features psk");
    }
}

/// Reads until the end of the stream or a timeout.
fn hear(socket: &mut TcpStream) -> Vec<u8> {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = vec![];
    let _ = socket.read_to_end(&mut heard);
    heard
}

const FLAGS: [u8; 4] = [0, 0, 0, 3];

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    [b"IHAVEOPT", &number.to_be_bytes()[..], &length, data].concat()
}

#[test]
fn plaintext_sent_before_tls_is_not_part_of_the_session() {
    let secured = SecuredArray::new();
    let go = option(7, &[&4u32.to_be_bytes()[..], b"data", &[0, 0]].concat());
    // With the request for TLS in the same packet.
    let mut socket = TcpStream::connect(secured.address).unwrap();
    let all = [&FLAGS[..], &option(5, &[]), &go].concat();
    socket.write_all(&all).unwrap();
    let heard = hear(&mut socket);
    assert_eq!(heard.len(), 18, "the greeting, and no grant: {heard:x?}");
    // After the request, where TLS must begin.
    let mut socket = TcpStream::connect(secured.address).unwrap();
    socket
        .write_all(&[&FLAGS[..], &option(5, &[])].concat())
        .unwrap();
    let mut granted = [0; 38];
    socket.read_exact(&mut granted).unwrap();
    assert_eq!(granted[30..34], 1u32.to_be_bytes(), "it is granted");
    socket.write_all(&go).unwrap();
    let heard = hear(&mut socket);
    // At most a TLS alert, and no NBD message.
    assert!(heard.is_empty() || heard[0] == 21, "{heard:x?}");
    assert!(
        !heard
            .windows(8)
            .any(|w| w == [0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9])
    );
}

#[test]
fn unauthenticated_clients_do_not_affect_guests() {
    let secured = SecuredArray::with(ServerConfig {
        workers: 1,
        connections_max: 4,
        ..ServerConfig::default()
    });
    let mut guest = secured.connect();
    let data = pattern(0, MIB as usize);
    guest.write(0, &data).unwrap();
    // More clients than may connect and wait: silent ones, slow ones, and ones that send invalid TLS.
    let mut strangers = vec![];
    for n in 0..300 {
        let Ok(mut socket) = TcpStream::connect(secured.address) else {
            continue;
        };
        let begin = [&FLAGS[..], &option(5, &[])].concat();
        let _ = match n % 3 {
            0 => Ok(()),
            1 => socket.write_all(&begin),
            _ => socket.write_all(&[&begin[..], &[0x16, 3, 1, 0x3f]].concat()),
        };
        strangers.push(socket);
    }
    for _ in 0..50 {
        assert!(guest.read(0, MIB as u32).unwrap() == data);
    }
    // Clients of the unix socket are admitted up to their limit, which unauthenticated clients do not reduce.
    let mut local: Vec<Client> = (0..3)
        .map(|_| secured.site.connect("data").unwrap())
        .collect();
    assert!(local[2].read(0, 512).unwrap() == data[..512]);
    local.clear();
    // The time limit of unauthenticated clients ends soon. Then other clients from their address are admitted again.
    let uri = secured.uri("localhost", "data", "client", "");
    wait_for("others get in again", || Client::connect(&uri).is_ok());
    assert!(guest.read(0, MIB as u32).unwrap() == data);
}

#[test]
fn slow_tls_handshake_is_limited_to_ten_seconds() {
    let secured = SecuredArray::new();
    let began = Instant::now();
    let mut socket = TcpStream::connect(secured.address).unwrap();
    socket
        .write_all(&[&FLAGS[..], &option(5, &[])].concat())
        .unwrap();
    // Data that is sent before TLS is granted would be refused at once.
    socket.read_exact(&mut [0; 38]).unwrap();
    // Bytes of a long record, one at a time: each arrives in time.
    let begin = [0x16, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb];
    let mut record = begin.into_iter().chain(std::iter::repeat(3));
    while socket.write_all(&[record.next().unwrap()]).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it goes on for ever");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(
        began.elapsed() > Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn volumes_of_every_worker_are_served() {
    let secured = SecuredArray::new();
    for _ in 0..4 {
        for volume in ["data", "more"] {
            let mut client =
                Client::connect(&secured.uri("localhost", volume, "client", "")).unwrap();
            let at = if volume == "data" { 0 } else { MIB };
            client.write(at, &pattern(at, 200_000)).unwrap();
            assert!(client.read(at, 200_000).unwrap() == pattern(at, 200_000));
        }
    }
    let error = Client::connect(&secured.uri("localhost", "none", "client", "")).unwrap_err();
    assert!(explain(&error).contains("no such export"), "{error}");
}

/// Adds a remote tier.
fn add_remote(site: &Site, uri: &str) -> Result<(), String> {
    let new = NewDevice {
        tier: "far".into(),
        source: NewSource::Nbd(uri.into()),
        size: None,
        emulate: None,
        direct: model::DirectIo::Off,
        force: false,
        thin: false,
    };
    let added = datapath::add_device(&site.path("array"), None, new);
    added.map(drop).map_err(|why| why.to_string())
}

/// Moves a volume and waits for the end of the move.
fn move_to(site: &Site, tier: &str) {
    site.done(ControlRequest::Move {
        volume: "data".into(),
        to: tier.into(),
        device: None,
        bandwidth: units::BytesPerSec(1 << 30),
        extents: None,
    });
    wait_for("it has moved", || {
        let samples = site.samples();
        let volume = samples.volumes.iter().find(|v| v.name == "data").unwrap();
        let there = volume
            .placed
            .iter()
            .all(|(on, bytes)| on.starts_with(tier) || bytes.0 == 0);
        there && volume.moving.is_none()
    });
}

#[test]
fn remote_tier_over_tls_is_connected_and_reconnected() {
    let far = SecuredArray::new();
    let mut site = Site::empty();
    site.add("near", "near", 32, None);
    let uri = far.uri("localhost", "data", "client", "").to_string();
    let relative = format!(
        "nbds://localhost:{}/data?tls-certificates=client",
        far.address.port()
    );
    let error = add_remote(&site, &relative).unwrap_err();
    assert!(error.contains("must be an absolute path"), "{error}");
    add_remote(&site, &uri).unwrap();
    site.serve_as(ServerConfig::default());
    site.serving()
        .wait_for_remotes(Duration::from_secs(10))
        .unwrap();
    site.create("data", 8, "near");
    let mut guest = site.connect("data").unwrap();
    let data = pattern(0, 8 * MIB as usize);
    guest.write(0, &data).unwrap();
    move_to(&site, "far");
    assert!(guest.read(0, 8 * MIB as u32).unwrap() == data);
    let other = pattern(77, MIB as usize);
    guest.write(MIB, &other).unwrap();
    guest.flush().unwrap();
    move_to(&site, "near");
    assert!(guest.read(MIB, MIB as u32).unwrap() == other);
}

/// Forwards data in both directions, and damages the client's data once: flips a bit, omits or repeats a part, or
/// stops.
fn damaging(to: SocketAddr, mut by: Damage) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let Ok((mut client, _)) = listener.accept() else {
            return;
        };
        let Ok(mut server) = TcpStream::connect(to) else {
            return;
        };
        let (mut back_to, mut back_from) =
            (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
        let mut bytes = vec![0; 1 << by.below(17)];
        let mut whole = by.below(40);
        while let Ok(n @ 1..) = client.read(&mut bytes) {
            let mut piece = bytes[..n].to_vec();
            if whole == 0 {
                let at = by.below(n);
                match by.below(4) {
                    0 => piece[at] ^= 1 << by.below(8),
                    1 => drop(piece.drain(at / 2..at)),
                    2 => piece.extend(bytes[at..n].to_vec()),
                    _ => piece.truncate(at),
                }
            }
            if server.write_all(&piece).is_err() || whole == 0 {
                break;
            }
            whole -= 1;
        }
        // The result is not awaited.
        std::thread::sleep(Duration::from_millis(20));
        let _ = server.shutdown(std::net::Shutdown::Both);
        let _ = client.shutdown(std::net::Shutdown::Both);
    });
    port
}

/// Runs one hostile client.
fn harm(secured: &SecuredArray, client: &Path, by: &mut Damage) {
    let noise =
        |by: &mut Damage, n: usize| -> Vec<u8> { (0..n).map(|_| by.number() as u8).collect() };
    let kind = by.below(4);
    if kind < 3 {
        let Ok(mut socket) = TcpStream::connect(secured.address) else {
            return;
        };
        let n = by.below(3000);
        let mut bytes = noise(by, n);
        if kind > 0 {
            let _ = socket.write_all(&[&FLAGS[..], &option(5, &[])].concat());
            let _ = socket.read_exact(&mut [0; 38]);
        }
        if kind == 2 {
            // The beginning of a handshake message.
            bytes.splice(
                ..0,
                [
                    22,
                    3,
                    1,
                    by.number() as u8 & 0x3f,
                    0,
                    1,
                    0,
                    0,
                    by.number() as u8,
                ],
            );
        }
        let _ = socket.write_all(&bytes);
        return;
    }
    let port = damaging(secured.address, Damage(by.number()));
    let client = client.display();
    let uri = format!("nbds://localhost:{port}/data?tls-certificates={client}");
    let Ok(mut client) = Client::connect(&uri.parse().unwrap()) else {
        return;
    };
    for _ in 0..by.below(20) {
        let (offset, n) = (by.below(20 << 20) as u64, 1 + by.below(300_000));
        let done = match by.below(3) {
            0 => client.write(offset, &vec![7; n]),
            1 => client.read(offset, n as u32).map(drop),
            _ => client.flush(),
        };
        if done.is_err() {
            return;
        }
    }
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Use `TERRACE_SEEDS=0..100000` for a run of an hour.
#[test]
fn hostile_tls_clients_affect_no_guest_and_use_bounded_memory() {
    let secured = SecuredArray::new();
    let client = secured.site.path("client");
    let uri = secured.uri("localhost", "more", "client", "");
    let mut guest = Client::connect(&uri).unwrap();
    let data = pattern(3, 2 * MIB as usize);
    guest.write(3, &data).unwrap();
    let mut settled = None;
    seeds::run(0..24, |seed| {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let them: Vec<_> = (0..4)
                .map(|n| {
                    let (secured, client) = (&secured, &client);
                    scope.spawn(move || harm(secured, client, &mut Damage(seed * 4 + n)))
                })
                .collect();
            let over = &over;
            scope.spawn(move || {
                let _over = testkit::flag::SetOnDrop(over);
                them.into_iter().for_each(|t| t.join().unwrap());
            });
            while !over.load(Ordering::Relaxed) {
                let read = guest.read(3, data.len() as u32).map_err(|e| explain(&e))?;
                if read != data {
                    return Err("a guest reads something else than it wrote".to_owned());
                }
            }
            Ok::<(), String>(())
        })?;
        let now = memory_kib();
        let before = *settled.get_or_insert(now);
        match now > before + (192 << 10) {
            true => Err(format!("{before} KiB have become {now} KiB")),
            false => Ok(()),
        }
    });
    // All hostile clients are disconnected.
    wait_for("they are gone", || {
        let samples = secured.site.samples();
        samples
            .volumes
            .iter()
            .filter_map(|v| v.connections)
            .sum::<usize>()
            == 1
    });
}

#[cfg(feature = "psk")]
mod psk {
    use super::*;
    use testkit::certificates::secret;

    const ANN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    const BOB: &str = "ff112233445566778899aabbccddeeff";

    /// Serves an array whose volume `data` requires a key.
    fn served() -> (Site, SocketAddr) {
        let mut site = Site::empty();
        site.add("fast", "fast", 32, None);
        site.serve_as(ServerConfig::default());
        site.create("data", 16, "fast");
        let file = site.path("keys.psk");
        secret(&file, &format!("ann:{ANN}\n\nbob:{BOB}\n"));
        let address = listen_secured(site.serving(), Credentials::Psk(file));
        (site, address)
    }

    fn connect(address: SocketAddr, file: &Path, more: &str) -> Result<Client, String> {
        let (port, file) = (address.port(), file.display());
        let uri = format!("nbds://localhost:{port}/data?tls-psk-file={file}{more}");
        let uri: nbd::Uri = uri.parse().unwrap();
        assert_eq!(uri.to_string().parse(), Ok(uri.clone()));
        Client::connect(&uri).map_err(|e| explain(&e))
    }

    #[test]
    fn clients_with_the_key_of_a_user_are_accepted_only() {
        let (site, address) = served();
        let file = |name: &str, text: String| {
            let path = site.path(name);
            secret(&path, &text);
            path
        };
        let ann = file("ann", format!("ann:{ANN}\n"));
        let mut client = connect(address, &ann, "").unwrap();
        for (offset, length) in [(0, 3 * MIB as usize), (5 * MIB + 17, 70_000), (9 * MIB, 1)] {
            let data = pattern(offset, length);
            client.write(offset, &data).unwrap();
            assert!(client.read(offset, length as u32).unwrap() == data);
        }
        let both = site.path("keys.psk");
        connect(address, &both, "&tls-username=bob").unwrap();
        let error = connect(address, &both, "").unwrap_err();
        assert!(error.contains("tls-username=NAME"), "{error}");
        let error = connect(address, &both, "&tls-username=eve").unwrap_err();
        assert!(error.contains("no key of \"eve\""), "{error}");
        let wrong = file("wrong", format!("ann:{BOB}\n"));
        let error = connect(address, &wrong, "").unwrap_err();
        assert!(error.contains("TLS:"), "{error}");
        let unknown = file("unknown", format!("eve:{ANN}\n"));
        let error = connect(address, &unknown, "").unwrap_err();
        assert!(error.contains("TLS:"), "{error}");
        // A certificate, even of its authority, does not admit a client without the key.
        let authority = Authority::new("ours");
        authority.client(&site.path("client"), Holds::Long, 1);
        let (port, dir) = (address.port(), site.path("client"));
        let uri = format!(
            "nbds://localhost:{port}/data?tls-certificates={}",
            dir.display()
        );
        let error = explain(&Client::connect(&uri.parse().unwrap()).unwrap_err());
        assert!(error.contains("TLS:"), "{error}");
        // A removed key admits no new client; connected clients stay.
        secret(&both, &format!("bob:{BOB}\n"));
        std::thread::sleep(Duration::from_millis(1100));
        connect(address, &ann, "").unwrap_err();
        client.read(0, 512).unwrap();
    }

    #[test]
    fn psk_client_refuses_a_certificate_server() {
        let secured = SecuredArray::new();
        let file = secured.site.path("ann");
        secret(&file, &format!("ann:{ANN}\n"));
        let error = connect(secured.address, &file, "").unwrap_err();
        assert!(error.contains("TLS:"), "{error}");
    }

    #[test]
    fn invalid_key_file_is_refused_without_printing_keys() {
        let (site, _) = served();
        for (text, why) in [
            ("", "contains no key"),
            ("ann", "line 1: expected user:key"),
            ("\nann:xyz", "line 2: the key is not hexadecimal"),
            ("ann:123", "line 1: the key is not hexadecimal"),
            ("ann:1234", "16 to 256 bytes"),
            (
                ":00112233445566778899aabbccddeeff",
                "the user name must have",
            ),
            (
                "a:00112233445566778899aabbccddeeff\na:00112233445566778899aabbccddeeff",
                "line 2: the user already has a key",
            ),
        ] {
            let path = site.path("bad");
            secret(&path, text);
            let refused = site
                .serving()
                .require_tls(Credentials::Psk(path))
                .unwrap_err();
            let error = explain(&refused);
            assert!(
                error.contains(why) && !error.contains("xyz"),
                "{text}: {error}"
            );
        }
        let open = site.path("open");
        secret(&open, &format!("ann:{ANN}\n"));
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o604)).unwrap();
        let refused = site
            .serving()
            .require_tls(Credentials::Psk(open))
            .unwrap_err();
        assert!(explain(&refused).contains("chmod 600"));
    }
}

/// Checks that the key files of these tests are private.
#[test]
fn test_keys_are_valid_secrets() {
    let dir = tempfile::tempdir().unwrap();
    Authority::new("ours").client(dir.path(), Holds::Long, 1);
    let key: &Path = &dir.path().join("client-key.pem");
    let mode = std::fs::metadata(key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
