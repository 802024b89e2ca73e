//! Serves the page of a simulated controller for inspection: `cargo run -p controller --example serve_page -- [PORT]`.

#[path = "../tests/suite/support/mod.rs"]
mod support;

use std::time::Duration;

use support::{Fake, OPERATE, READ, settings, start};

fn main() {
    let dir =
        tempfile::tempdir().expect("a directory for the socket, the certificate and the tokens");
    let mut args = std::env::args().skip(1);
    let port = args.next().and_then(|p| p.parse().ok()).unwrap_or(9443);
    let volumes = args.next().and_then(|p| p.parse().ok()).unwrap_or(12);
    let mut settings = settings(dir.path());
    if let Some(tcp) = &mut settings.tcp {
        tcp.listen.set_port(port);
    }
    let running = start(Fake::new(volumes).shared(), settings);
    let running = match running {
        Ok(running) => running,
        Err(error) => return eprintln!("error: {error}"),
    };
    for (role, secret) in [("operate", OPERATE), ("read", READ)] {
        println!("{role}: https://127.0.0.1:{port}/#token={secret}");
    }
    while running.healthy() {
        std::thread::sleep(Duration::from_secs(1));
    }
}
