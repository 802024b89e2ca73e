//! Time of sampling many volumes: `cargo run --release -p bench -- sample-time VOLUMES`.
//!
//! Measures volumes without any requests, then volumes after some requests. Samples are taken inside the process and over the control
//! socket, where JSON takes most of the time.

use std::time::{Duration, Instant};

use datapath::control_server::{
    ControlAnswer, ControlRequest, ControlServer, NewDevice, NewSource,
};
use datapath::{ArrayServer, Client, Listen, Reach, ServerConfig, add_device};
use model::DirectIo;
use units::Bytes;

use crate::BenchResult;

/// Number of samples per measurement.
const ROUNDS: usize = 50;

pub(crate) fn main(args: &[String]) -> BenchResult {
    let volumes = args.first().and_then(|a| a.parse().ok());
    let Some(volumes) = volumes else {
        return Err(crate::WRONG.into());
    };
    let dir = tempfile::TempDir::new().expect("a temporary directory");
    let array = dir.path().join("array");
    let new = NewDevice {
        tier: "fast".into(),
        source: NewSource::Dir(dir.path().into()),
        size: Some(Bytes::gib(8)),
        emulate: None,
        direct: DirectIo::Off,
        force: false,
        thin: false,
    };
    add_device(&array, None, new).expect("a device");
    let serving = ArrayServer::start(&array, ServerConfig::default()).expect("a server");
    let listen = Listen::Unix(dir.path().join("nbd.sock"));
    serving.listen(&listen).expect("a socket");
    for i in 0..volumes {
        let made = serving.control_server().ask(ControlRequest::Create {
            volume: format!("v{i}"),
            size: Bytes::gib(1),
            tier: "fast".into(),
            class: None,
        });
        made.expect("a volume");
    }
    measure("idle", &array, serving.control_server());
    for i in 0..volumes {
        use_a_little(&listen.uri(&format!("v{i}")));
    }
    measure("used", &array, serving.control_server());
    serving.stop().expect("an orderly stop");
    Ok(())
}

/// Sends requests of several sizes, whose latencies fall into many buckets.
fn use_a_little(uri: &str) {
    let mut client = Client::connect(&uri.parse().expect("a URI")).expect("a connection");
    for i in 0..20 {
        let data = vec![1; 512 << (i % 8)];
        client.write(0, &data).expect("a write");
        client.read(0, 512 << (i % 8)).expect("a read");
    }
    client.disconnect().expect("the end");
}

fn measure(what: &str, array: &std::path::Path, control_server: &ControlServer) {
    let reach = Reach::find(array).expect("it is served");
    let inside = times(|| control_server.ask(ControlRequest::Samples));
    let outside = times(|| reach.ask(ControlRequest::Samples));
    for (how, (median, most)) in [("in the process", inside), ("by the socket", outside)] {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{what}, {how}: median {:.2} ms, most {:.2} ms",
            ms(median),
            ms(most)
        );
    }
}

/// Returns the median and the longest time of a sample.
fn times(mut ask: impl FnMut() -> datapath::Result<ControlAnswer>) -> (Duration, Duration) {
    let once = |_| {
        let began = Instant::now();
        let answer = ask();
        let took = began.elapsed();
        assert!(
            matches!(answer, Ok(ControlAnswer::Samples(_))),
            "{answer:?}"
        );
        took
    };
    let mut took: Vec<Duration> = (0..ROUNDS).map(once).collect();
    took.sort_unstable();
    (took[ROUNDS / 2], took[ROUNDS - 1])
}
