//! Requests that the client never sends: malformed requests, orders of other sites, and slow or greedy clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use controller::Limits;

use crate::support::http::{
    PATIENCE, bearer, exchange, get, local, remote, send, session, sign_in, tls, unix,
};
use crate::support::{ADMIN, Fake, OPERATE, READ, World, private};

#[test]
fn unknown_parameters_are_refused_by_name() {
    let world = World::start(Fake::new(12));
    let asked = |request: &str, status: u16, words: &str| {
        let answer = local(&world, request);
        let error = answer.error();
        assert_eq!(answer.status, status, "{error}");
        assert!(error.contains(words), "{error}");
    };
    asked(&get("/v1/status?verbose=1", ""), 400, "`verbose`");
    asked(&get("/v1/jobs?limits=1", ""), 400, "`limits`");
    asked(&get("/v1/jobs?limit=0", ""), 400, "must be 1 to 1000");
    asked(&get("/v1/jobs?limit=x", ""), 400, "invalid digit");
    asked(
        &get("/v1/events?after=-1", ""),
        400,
        "the query is not understood",
    );
    asked(
        &get("/v1/volumes/db-main/history?last=1", ""),
        400,
        "has no unit",
    );
    asked(
        &get("/v1/plans/x", ""),
        400,
        "\"x\" is not the number of a generation",
    );
    asked(
        &get("/v1/place?class=gold", ""),
        400,
        "missing field `size`",
    );
    asked(&get("/v1/place?size=big", ""), 400, "is not understood");
    asked(
        &get("/v1/place?size=1GiB&tier=fast", ""),
        400,
        "unknown field `tier`",
    );
    asked(&get("/v1/plans/7", ""), 404, "no such plan");
    asked(
        &get("/v1/volumes/nothing", ""),
        404,
        "there is no volume \"nothing\"",
    );
    asked(&get("/v1/nothing", ""), 404, "no resource at /v1/nothing");
    asked(
        &send("DELETE", "/v1/status", "", ""),
        405,
        "does not accept DELETE",
    );
    asked(
        &send("POST", "/v1/pause", "", r#"{"now":true}"#),
        400,
        "`now`",
    );
    asked(
        &send("POST", "/v1/plans/42/apply", "", r#"{"move":[1]}"#),
        400,
        "`move`",
    );
    asked(
        &send("POST", "/v1/plans/41/apply", "", "{}"),
        409,
        "plan 41 is not the newest",
    );
    asked(
        &send("POST", "/v1/jobs/1/cancel", "", "[]"),
        400,
        "the body is not understood",
    );
    asked(
        &send("PUT", "/v1/modes/speed", "", r#"{"mode":"auto"}"#),
        400,
        "\"speed\" is not a goal",
    );
    asked(
        &send("PUT", "/v1/modes/space", "", r#"{"mode":"always"}"#),
        400,
        "`always`",
    );
    asked(
        &send("PUT", "/v1/volumes/db-main/pin", "", "{}"),
        400,
        "missing field `tier`",
    );
    asked(
        &send("PUT", "/v1/tiers/fast/state", "", r#"{"state":"shut"}"#),
        400,
        "`shut`",
    );
    asked(
        &send("POST", "/v1/agents/a/register", "", r#"{"protocol":1}"#),
        400,
        "missing field",
    );
    assert!(world.orders().is_empty());
    world.fake.lock().unwrap().failing = true;
    asked(&get("/v1/status", ""), 503, "the store cannot be written");
}

#[test]
fn query_parameters_and_names_are_decoded() {
    let world = World::start(Fake::new(12));
    let points = |query: &str| {
        let answer = local(
            &world,
            &get(&format!("/v1/volumes/db-main/history{query}"), ""),
        );
        answer.json().as_array().unwrap().len()
    };
    // The fake has a point for every ten minutes.
    assert_eq!(points(""), 6);
    assert_eq!(points("?last=2h"), 12);
    let answer = local(&world, &get("/v1/volumes/alpha%2Fvdi%20%3Cgold%3E", ""));
    assert_eq!(answer.json()["name"], "vdi <gold>");
    let query = "size=1.5%20TiB&class=gold&like=alpha%2Fdb&host=alpha";
    let place = local(&world, &get(&format!("/v1/place?{query}"), "")).json();
    assert_eq!(place["size_bytes"], 3u64 << 39);
    assert_eq!(
        (&place["class"], &place["like"]),
        (&"gold".into(), &"alpha/db".into())
    );
    let why_not = local(&world, &get("/v1/volumes/db-main/why-not/s%2Fl", ""));
    assert_eq!(why_not.json()["tier"], "s/l");
}

#[test]
fn request_bodies_are_limited() {
    let world = World::start(Fake::new(1));
    let long = format!("{{\"host\":\"{}\"}}", "x".repeat(70 << 10));
    let answer = local(&world, &send("POST", "/v1/jobs/1/cancel", "", &long));
    assert_eq!(
        (answer.status, &*answer.error()),
        (413, "the body is longer than 65536 bytes")
    );
    // The same limit applies to a body of unknown length.
    let chunk = format!("{:x}\n{long}\n0\n\n", long.len());
    let chunked =
        format!("POST /v1/pause HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n{chunk}");
    assert_eq!(local(&world, &chunked).status, 413);
    let answer = local(&world, &send("GET", "/v1/status", "", "{}"));
    assert_eq!(
        (answer.status, &*answer.error()),
        (413, "this route accepts no body")
    );
    // The body of an unauthorized caller is not read.
    let endless = format!(
        "POST /v1/agents/a/report HTTP/1.1\nHost: x\nContent-Length: {}\n\n",
        60 << 20
    );
    assert_eq!(remote(&world, &endless).status, 401);
    let head = get("/v1/status", &format!("X: {}\n", "y".repeat(20 << 10)));
    assert_eq!(local(&world, &head).status, 431);
}

#[test]
fn sign_in_exchanges_a_token_for_a_session() {
    let world = World::start(Fake::new(1));
    let answer = sign_in(&world, READ);
    assert_eq!(answer.status, 303);
    assert_eq!(answer.header("location"), Some("/"));
    let set = answer.header("set-cookie").unwrap();
    for part in [
        "HttpOnly",
        "Secure",
        "SameSite=Strict",
        "Path=/",
        "Max-Age=43200",
    ] {
        assert!(set.contains(part), "{set}");
    }
    assert!(!set.contains(READ), "{set}");
    let cookie = session(&world, READ);
    assert!(
        !cookie.contains(set.split(';').next().unwrap()),
        "ids are random"
    );
    let page = remote(&world, &get("/", &cookie));
    assert_eq!(page.status, 200);
    assert!(page.text().contains("<!DOCTYPE html>") && !page.text().contains(READ));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    // The token itself is accepted neither as a cookie nor in a URL.
    let token = format!("Cookie: __Host-terrace={READ}\n");
    for wrong in [
        get("/", ""),
        get("/", &token),
        get(&format!("/?token={READ}"), ""),
        send("POST", "/sign-in", "", "token=wrong-0123456789abcdef"),
        send("POST", "/sign-in", "", ""),
    ] {
        let refused = remote(&world, &wrong);
        assert_eq!(refused.status, 401, "{wrong}");
        assert!(refused.text().contains("<form") && refused.header("set-cookie").is_none());
    }
    let parts = "/page/parts?filter=db&sort=p99&order=ascending";
    let parts = remote(&world, &get(parts, &cookie));
    assert!(parts.text().contains("id=\"volumes\""));
    let style = remote(&world, &get("/page/page.css", ""));
    assert_eq!(
        style.header("content-type"),
        Some("text/css; charset=utf-8")
    );
}

#[test]
fn sessions_end_with_sign_out_and_token_removal() {
    let world = World::start(Fake::new(1));
    let status = |cookie: &str| remote(&world, &get("/v1/status", cookie)).status;
    let cookie = session(&world, READ);
    let other = session(&world, OPERATE);
    let out = |headers: &str| remote(&world, &send("POST", "/sign-out", headers, ""));
    // Another site cannot sign a user out.
    let elsewhere = format!("{cookie}Origin: https://evil.example\n");
    assert_eq!(out(&elsewhere).status, 403);
    assert_eq!(status(&cookie), 200);
    let gone = out(&format!("{cookie}Origin: https://localhost\n"));
    assert_eq!(gone.status, 303);
    assert!(gone.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(status(&cookie), 401);
    assert_eq!(status(&other), 200);
    // A token with the same name and another secret is a different token.
    let lines = format!("operate operator {OPERATE}-2\nadmin root {ADMIN}\n");
    private(&world.dir.path().join("tokens"), &lines);
    let done = world.running.reload("SIGHUP").unwrap();
    assert!(
        done.contains("removed read reader, operate operator"),
        "{done}"
    );
    assert_eq!(status(&other), 401);
    let changed = world.fake.lock().unwrap().token_changes.clone();
    assert_eq!(changed.len(), 1);
    assert!(changed[0].contains("added operate operator") && !changed[0].contains(OPERATE));
}

#[test]
fn expired_token_is_refused_with_its_date_and_its_successor_accepted() {
    let world = World::start(Fake::new(1));
    let lines = format!(
        "read reader {READ} expires=2001-02-03\nread reader {READ}-2 expires=2099-01-01\nadmin root {ADMIN}\n"
    );
    private(&world.dir.path().join("tokens"), &lines);
    world.running.reload("SIGHUP").unwrap();
    let refused = remote(&world, &get("/v1/status", &bearer(READ)));
    assert_eq!(refused.status, 401);
    assert!(
        refused.text().contains("expired on 2001-02-03"),
        "{}",
        refused.text()
    );
    assert_eq!(sign_in(&world, READ).status, 401);
    let next = format!("{READ}-2");
    assert_eq!(
        remote(&world, &get("/v1/status", &bearer(&next))).status,
        200
    );
    let terms = world.fake.lock().unwrap().terms.clone();
    assert_eq!(terms.len(), 1, "{terms:?}");
    assert_eq!(terms[0].name, "reader");
}

#[test]
fn token_guesses_are_counted_and_slowed_down() {
    let limits = Limits {
        unknown_burst: 4,
        unknown_per_second: 1,
        ..Limits::default()
    };
    let world = World::with_limits(Fake::new(1), limits);
    let mut known = world.remote(READ);
    known.status().unwrap();
    let guess = || {
        remote(
            &world,
            &get("/v1/status", &bearer("guess-0123456789abcdef")),
        )
    };
    let remedies: Vec<u16> = (0..12).map(|_| guess().status).collect();
    assert!(
        remedies.starts_with(&[401]) && remedies.contains(&429),
        "{remedies:?}"
    );
    // The trusted connection continues to work. The audit names the address, and no secret.
    known.status().unwrap();
    let metrics = known.metrics().unwrap();
    let refused = "terrace_refused_total{reason=\"unknown token\"}";
    assert!(
        metrics
            .lines()
            .any(|l| l.starts_with(refused) && !l.ends_with(" 0")),
        "{metrics}"
    );
    loop {
        let said = world.fake.lock().unwrap().refusals.clone();
        if let Some(said) = said.first() {
            assert!(
                said.contains("127.0.0.1") && said.contains("unknown token"),
                "{said}"
            );
            assert!(!said.contains("guess-"), "{said}");
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn half_sent_reports_are_limited_by_the_budget() {
    const BUDGET: usize = 4 << 20;
    let limits = Limits {
        bodies_bytes_max: BUDGET,
        caller_bytes_max: BUDGET / 2,
        ..Limits::default()
    };
    let world = World::with_limits(Fake::new(1), limits);
    let half = vec![b' '; 1 << 20];
    let head = format!(
        "POST /v1/agents/alpha/report HTTP/1.1\nHost: x\nContent-Length: {}\n\n",
        60 << 20
    );
    // Each connection sends a part of a report and then nothing.
    let mut open: Vec<UnixStream> = vec![];
    for _ in 0..24 {
        let mut socket = unix(&world.socket());
        let head = head.replace('\n', "\r\n");
        let sent = socket.write_all(head.as_bytes());
        // A server that rejects a body may close the connection before the end of the body.
        let _ = sent.and_then(|()| socket.write_all(&half));
        socket.set_nonblocking(true).unwrap();
        open.push(socket);
    }
    // The budget has room for at most two of them.
    let mut refused = 0;
    while refused < 22 {
        open.retain_mut(|socket| {
            let mut answer = [0; 12];
            match socket.read(&mut answer) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Ok(12) => assert_eq!(&answer, b"HTTP/1.1 503"),
                _ => {}
            }
            refused += 1;
            false
        });
        std::thread::sleep(Duration::from_millis(10));
    }
    let metrics = || world.local().metrics().unwrap();
    let reserved = |metrics: &str| -> usize {
        let name = "terrace_bodies_bytes ";
        let line = metrics.lines().find_map(|l| l.strip_prefix(name));
        line.unwrap().parse().unwrap()
    };
    let now = reserved(&metrics());
    assert!(now > 0 && now <= BUDGET / 2, "{now}");
    // Their reservations end when the connections close.
    drop(open);
    while reserved(&metrics()) > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn orders_with_a_session_cookie_must_come_from_the_page() {
    let world = World::start(Fake::new(1));
    let operator = session(&world, OPERATE);
    let pause = |headers: &str| {
        let request = send("POST", "/v1/pause", &format!("{}{headers}", operator), "");
        let answer = remote(&world, &request);
        (answer.status, world.orders().len())
    };
    let own = "X-Terrace: 1\nOrigin: https://localhost\n";
    assert_eq!(pause(""), (403, 0));
    assert_eq!(pause("X-Terrace: 1\n"), (403, 0));
    assert_eq!(pause("Origin: https://localhost\n"), (403, 0));
    assert_eq!(
        pause("X-Terrace: 1\nOrigin: https://evil.example\n"),
        (403, 0)
    );
    assert_eq!(pause("X-Terrace: 1\nOrigin: http://localhost\n"), (403, 0));
    assert_eq!(pause("X-Terrace: 1\nOrigin: null\n"), (403, 0));
    assert_eq!(
        pause(&format!("{own}Sec-Fetch-Site: cross-site\n")),
        (403, 0)
    );
    assert_eq!(
        pause(&format!("{own}Sec-Fetch-Site: same-origin\n")),
        (200, 1)
    );
    assert_eq!(pause(own), (200, 2));
    // A program with a token has no access to the page.
    let program = remote(&world, &send("POST", "/v1/resume", &bearer(ADMIN), ""));
    assert_eq!(program.status, 200);
    // A session has no more rights than its token.
    let reader = send(
        "POST",
        "/v1/pause",
        &format!("{}{own}", session(&world, READ)),
        "",
    );
    assert_eq!(remote(&world, &reader).status, 403);
}

/// Time after which the server closes the connection of a slow client.
const SOON: Duration = Duration::from_secs(1);

fn hasty() -> Limits {
    Limits {
        connections_max: 4,
        handshake_time: SOON,
        head_time: SOON,
        body_time: SOON,
        write_time: SOON,
        ..Limits::default()
    }
}

/// Reads until the server closes the connection. Returns the received bytes.
fn until_dropped(mut socket: impl Read) -> Vec<u8> {
    let (mut all, mut bytes) = (vec![], [0; 1 << 16]);
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return all,
            Ok(n) => all.extend(&bytes[..n]),
            Err(e) => {
                // The deadline of the socket, which only ends a test that hangs.
                assert_ne!(e.kind(), ErrorKind::WouldBlock, "it is not dropped");
                return all;
            }
        }
    }
}

/// Connects, sends bytes and reads until the server closes the connection. Checks that the time limit was the reason.
fn dropped_when_late<S: Read + Write>(connect: impl FnOnce() -> S, sent: &str) -> Vec<u8> {
    let begun = Instant::now();
    let mut socket = connect();
    socket.write_all(sent.as_bytes()).unwrap();
    let bytes = until_dropped(socket);
    assert!(begun.elapsed() >= SOON, "{sent:?} is dropped at once");
    bytes
}

#[test]
fn slow_clients_are_disconnected() {
    let world = World::with_limits(Fake::new(1), hasty());
    let local = || unix(&world.socket());
    dropped_when_late(local, "GET /v1/status HTTP/1.1\r\nHost:");
    let bytes = dropped_when_late(
        local,
        "POST /v1/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{",
    );
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        text.starts_with("HTTP/1.1 408") && text.contains("did not arrive within 1s"),
        "{text}"
    );
    dropped_when_late(local, "");

    // A client that does not complete the handshake, or does not use TLS.
    let address = world.running.address().unwrap();
    let tcp = || TcpStream::connect(address).unwrap();
    assert!(dropped_when_late(tcp, "").is_empty());
    let mut plain = tcp();
    plain
        .write_all(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert!(
        !until_dropped(plain).starts_with(b"HTTP"),
        "nothing is answered without TLS"
    );
}

/// Forwards all bytes between clients and the server. Sends a message for each connection that the server has closed, after closing it for the
/// client.
fn pass_on<S: TestSocket>(
    incoming: impl Iterator<Item = S> + Send + 'static,
    there: S::To,
) -> CloseReceiver {
    let (tell, closed) = channel();
    std::thread::spawn(move || {
        for mut client in incoming {
            let mut server = S::connect(&there);
            let (mut from, mut to) = (client.again(), server.again());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
            });
            let _ = std::io::copy(&mut server, &mut client);
            client.close();
            if tell.send(()).is_err() {
                return; // the test is over
            }
        }
    });
    closed
}

type CloseReceiver = std::sync::mpsc::Receiver<()>;

/// Socket of either kind.
trait TestSocket: Read + Write + Send + Sized + 'static {
    type To: Send + 'static;
    fn connect(to: &Self::To) -> Self;
    fn again(&self) -> Self;
    fn close(&self);
}

impl TestSocket for UnixStream {
    type To = PathBuf;
    fn connect(to: &PathBuf) -> Self {
        Self::connect(to).unwrap()
    }
    fn again(&self) -> Self {
        self.try_clone().unwrap()
    }
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl TestSocket for TcpStream {
    type To = SocketAddr;
    fn connect(to: &SocketAddr) -> Self {
        Self::connect(to).unwrap()
    }
    fn again(&self) -> Self {
        self.try_clone().unwrap()
    }
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

#[test]
fn client_reconnects_after_its_idle_connection_was_closed() {
    let limits = Limits {
        head_time: SOON,
        ..Limits::default()
    };
    let world = World::with_limits(Fake::new(1), limits);
    let by = world.dir.path().join("by.sock");
    let listener = UnixListener::bind(&by).unwrap();
    let unix = pass_on(
        std::iter::from_fn(move || Some(listener.accept().ok()?.0)),
        world.socket(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap();
    let tcp = pass_on(
        std::iter::from_fn(move || Some(listener.accept().ok()?.0)),
        world.running.address().unwrap(),
    );
    let local = world.local_at(client::Address::Unix(by));
    let remote = world.remote_at(format!("https://{port}").parse().unwrap(), READ);
    for (mut client, closed) in [(local, unix), (remote, tcp)] {
        for _ in 0..2 {
            client.status().unwrap();
            closed.recv().unwrap();
        }
        client.status().unwrap();
    }
}

#[test]
fn client_with_an_unread_reply_is_disconnected() {
    let world = World::with_limits(Fake::new(2000), hasty());
    let mut greedy = unix(&world.socket());
    greedy
        .write_all(b"GET /v1/volumes HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    // The client reads nothing, and the answer is larger than all buffers. Its bytes arrive until the server closes the connection.
    while greedy.write_all(b" ").is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let bytes = until_dropped(greedy);
    let all = local(&world, &get("/v1/volumes", "")).body.len();
    assert!(all > 2 << 20, "{all}");
    assert!(bytes.len() < all / 2, "{} of {all}", bytes.len());
}

#[test]
fn connections_are_limited_per_listener() {
    let limits = Limits {
        connections_max: 3,
        ..Limits::default()
    };
    let world = World::with_limits(Fake::new(1), limits);
    let status = "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut held: Vec<_> = (0..3).map(|_| unix(&world.socket())).collect();
    for socket in &mut held {
        // The answer shows that the connection has been accepted.
        socket.write_all(status.as_bytes()).unwrap();
        let mut first = [0; 12];
        socket.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    assert!(until_dropped(unix(&world.socket())).is_empty());
    assert_eq!(
        exchange(tls(&world), &get("/v1/status", &bearer(READ))).status,
        200
    );
    held.pop();
    let begun = Instant::now();
    loop {
        let mut again = unix(&world.socket());
        let _ = again.write_all(status.as_bytes());
        let mut first = [0; 12];
        if again.read_exact(&mut first).is_ok() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "room is not given back");
    }
}

#[test]
fn concurrent_readers_are_served() {
    let world = World::start(Fake::new(12));
    let readers = 24;
    std::thread::scope(|scope| {
        for i in 0..readers {
            let world = &world;
            scope.spawn(move || {
                let mut client = match i % 2 {
                    0 => world.local(),
                    _ => world.remote(READ),
                };
                for _ in 0..20 {
                    assert_eq!(client.volumes().unwrap().len(), 12);
                }
            });
        }
    });
    let asked = world.fake.lock().unwrap().actors.len();
    assert!(asked >= readers * 20, "{asked}");
}

#[test]
fn stop_waits_for_replies_in_progress() {
    let (asked, remedies) = (channel(), channel());
    let mut fake = Fake::new(1);
    fake.gate = Some((asked.0, remedies.1));
    let World {
        fake: _,
        dir,
        running,
    } = World::start(fake);
    let socket = dir.path().join("controller.sock");
    let asking = {
        let socket = socket.clone();
        std::thread::spawn(move || exchange(unix(&socket), &get("/v1/tiers", "")).status)
    };
    asked.1.recv().unwrap();
    let stopping = std::thread::spawn(|| running.stop());
    // The server has begun to stop, and the answer is still in progress.
    while socket.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    remedies.0.send(()).unwrap();
    assert_eq!(asking.join().unwrap(), 200);
    stopping.join().unwrap();
}
