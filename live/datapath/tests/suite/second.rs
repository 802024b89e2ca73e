//! L2 cache: pages read from it are correct, and no failure of it affects guests.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use datapath::cached::CacheSettings;
use datapath::control_server::{ControlAnswer, ControlRequest};
use datapath::{
    Client, Filter, FilterOptions, Listen, SecondOf, SecondStatus, ServerConfig, WarmUp,
};
use units::{Bytes, Nanos};

use crate::support::{MIB, Site, wait_for};

const PAGE: u64 = 16 << 10;

/// Serves an array with a cache of `pages` pages for each of two workers.
fn served(pages: u64) -> Site {
    let mut site = Site::empty();
    site.add("fast", "fast", 64, None);
    site.serve_as(ServerConfig {
        workers: 2,
        cache: Some(CacheSettings::of(Bytes(2 * pages * PAGE), Bytes(PAGE))),
        ..ServerConfig::default()
    });
    site.create("data", 16, "fast");
    site
}

/// Starts a cache node in the role of another host, whose reads are delayed.
fn node(site: &Site, name: &str, reads: Nanos) -> (Filter, Listen) {
    node_of(site, name, reads, Bytes::mib(32))
}

fn node_of(site: &Site, name: &str, reads: Nanos, size: Bytes) -> (Filter, Listen) {
    let options = FilterOptions {
        name: Some(String::new()),
        server: ServerConfig::default(),
        iops: None,
        bandwidth: None,
        delays: [reads, Nanos::ZERO],
        record: None,
    };
    let mut node = Filter::start_on_memory(size, options).unwrap();
    let listen = Listen::Unix(site.path(name));
    node.server.listen(&listen).unwrap();
    (node, listen)
}

fn status(site: &Site) -> Option<SecondStatus> {
    match site.ask(ControlRequest::Second) {
        Ok(ControlAnswer::Second { status }) => status,
        other => panic!("{other:?}"),
    }
}

fn use_second(site: &Site, at: &str, size: Option<Bytes>) -> Result<ControlAnswer, String> {
    let at = Some(at.to_owned());
    site.ask(ControlRequest::UseSecond { at, size })
}

fn attach(site: &Site, listen: &Listen) {
    use_second(site, &listen.uri(""), None).unwrap();
    wait_for("it is ready", || status(site).is_some_and(|s| s.ready));
}

fn ended(site: &Site) -> Option<String> {
    status(site).and_then(|s| s.ended)
}

/// Returns the content of a page.
fn page(number: u64, version: u8) -> Vec<u8> {
    let tag = [number as u8, (number >> 8) as u8, version, 0x5a];
    tag.repeat(PAGE as usize / 4)
}

const PAGES: u64 = 200;

fn filled(site: &Site) -> Client {
    let mut guest = site.connect("data").unwrap();
    for number in 0..PAGES {
        guest.write(number * PAGE, &page(number, 0)).unwrap();
    }
    guest
}

fn read_all(guest: &mut Client) {
    for number in 0..PAGES {
        let read = guest.read(number * PAGE, PAGE as u32).unwrap();
        assert!(read == page(number, 0), "page {number}");
    }
}

/// Reads all pages until the L2 cache serves some.
fn warmed(site: &Site, guest: &mut Client) {
    wait_for("pages are read from it", || {
        read_all(guest);
        status(site).is_some_and(|s| s.hits > PAGES)
    });
}

#[test]
fn pages_are_read_from_the_l2_cache_and_changes_invalidate_them() {
    let site = served(8);
    let (node, listen) = node(&site, "node.sock", Nanos::ZERO);
    let mut guest = filled(&site);
    attach(&site, &listen);
    warmed(&site, &mut guest);
    // Parts of pages, and a range over two pages.
    for at in [512, PAGE - 512, 3 * PAGE + 1024] {
        let read = guest.read(at, 1024).unwrap();
        let (number, from) = (at / PAGE, (at % PAGE) as usize);
        let two = [page(number, 0), page(number + 1, 0)].concat();
        assert_eq!(read, two[from..from + 1024]);
    }
    for number in 0..PAGES {
        guest.write(number * PAGE + 512, &[0xaa; 512]).unwrap();
    }
    for number in 0..PAGES {
        let read = guest.read(number * PAGE, PAGE as u32).unwrap();
        let mut wanted = page(number, 0);
        wanted[512..1024].fill(0xaa);
        assert!(read == wanted, "page {number}");
    }
    guest.zero(0, (PAGES * PAGE) as u32).unwrap();
    assert!(guest.read(5 * PAGE, 4096).unwrap().iter().all(|b| *b == 0));
    assert_eq!(ended(&site), None);
    // After it is switched off, the node gets no more requests.
    let off = site.ask(ControlRequest::UseSecond {
        at: None,
        size: None,
    });
    off.unwrap();
    assert_eq!(status(&site), None);
    node.stop().unwrap();
    assert!(guest.read(5 * PAGE, 4096).unwrap().iter().all(|b| *b == 0));
}

fn by_appliance(site: &Site, volume: &str) -> u64 {
    match site.ask(ControlRequest::Samples) {
        Ok(ControlAnswer::Samples(samples)) => {
            let mut volumes = samples.volumes.into_iter();
            let found = volumes.find(|v| v.name == volume).expect("it is there");
            found.cache.expect("it is cached").by_appliance
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn l2_cache_ordered_as_a_remedy_serves_its_volume_and_is_ended_by_id() {
    let site = served(8);
    site.create("other", 16, "fast");
    let (node, listen) = node(&site, "node.sock", Nanos::ZERO);
    let mut guest = filled(&site);
    let mut neighbour = site.connect("other").unwrap();
    for number in 0..PAGES {
        neighbour.write(number * PAGE, &page(number, 0)).unwrap();
    }
    let uri = listen.uri("");
    let order = |answer, volume: &str| {
        site.ask(ControlRequest::UseNode {
            answer,
            volume: volume.into(),
            server: Some("host other".into()),
            at: uri.clone(),
            size: Bytes::mib(16),
            warm: None,
        })
    };
    let stop = |answer| site.ask(ControlRequest::StopNode { answer }).unwrap();
    let unknown = order(5, "nobody").unwrap_err();
    assert!(unknown.contains("nobody"), "{unknown}");
    order(5, "data").unwrap();
    wait_for("it is ready", || status(&site).is_some_and(|s| s.ready));
    // The worker of that volume has the whole size.
    assert_eq!(status(&site).unwrap().size, Bytes::mib(16));
    warmed(&site, &mut guest);
    let fills = status(&site).unwrap().fills;
    read_all(&mut neighbour);
    read_all(&mut neighbour);
    assert_eq!(
        status(&site).unwrap().fills,
        fills,
        "the other volume has nothing there"
    );
    assert!(by_appliance(&site, "data") > PAGES);
    assert_eq!(by_appliance(&site, "other"), 0);
    // The end of another remedy does not end this one.
    stop(4);
    assert_eq!(status(&site).unwrap().of.answer, Some(5));
    // An order of an operator replaces it. Remedies neither end nor replace an operator's L2 cache.
    use_second(&site, &uri, None).unwrap();
    stop(5);
    assert_eq!(status(&site).unwrap().of, SecondOf::default());
    let refused = order(6, "data").unwrap_err();
    assert!(refused.contains("an operator has set"), "{refused}");
    let counted = by_appliance(&site, "data");
    warmed(&site, &mut guest);
    assert_eq!(
        by_appliance(&site, "data"),
        counted,
        "a person's is no answer"
    );
    let off = ControlRequest::UseSecond {
        at: None,
        size: None,
    };
    site.ask(off).unwrap();
    order(6, "data").unwrap();
    stop(6);
    assert_eq!(status(&site), None);
    // If its node has disconnected, the status still has its remedy until the end is ordered.
    order(7, "data").unwrap();
    wait_for("it is ready", || status(&site).is_some_and(|s| s.ready));
    read_all(&mut guest);
    node.stop().unwrap();
    wait_for("it has ended", || {
        read_all(&mut guest);
        ended(&site).is_some()
    });
    assert_eq!(status(&site).unwrap().of.answer, Some(7));
    stop(7);
    assert_eq!(status(&site), None);
    let gone = order(8, "data").unwrap_err();
    assert!(!gone.is_empty());
}

#[test]
fn cache_node_with_altered_data_is_detected() {
    let site = served(8);
    let (_node, listen) = node(&site, "node.sock", Nanos::ZERO);
    let mut guest = filled(&site);
    attach(&site, &listen);
    warmed(&site, &mut guest);
    let mut other = Client::connect(&listen.uri("").parse().unwrap()).unwrap();
    for at in 0..32 {
        other.write(at * MIB, &vec![0x66; MIB as usize]).unwrap();
    }
    read_all(&mut guest);
    let why = ended(&site).unwrap();
    assert!(why.contains("differs from the data"), "{why}");
    read_all(&mut guest);
}

#[test]
fn hanging_cache_node_is_dropped_and_its_reads_complete() {
    let site = served(8);
    // The delay of the node is a day.
    let (_node, listen) = node(&site, "node.sock", Nanos::from_secs(86_400));
    let mut guest = filled(&site);
    attach(&site, &listen);
    wait_for("it is given up", || {
        read_all(&mut guest);
        ended(&site).is_some()
    });
    assert!(ended(&site).unwrap().contains("does not respond"));
}

#[test]
fn disconnected_cache_node_causes_no_read_errors() {
    let site = served(8);
    let mut guest = filled(&site);
    for round in 0..3 {
        let (node, listen) = node(&site, &format!("node-{round}.sock"), Nanos::ZERO);
        attach(&site, &listen);
        warmed(&site, &mut guest);
        let mut readers: Vec<_> = (0..3).map(|_| site.connect("data").unwrap()).collect();
        std::thread::scope(|threads| {
            for reader in &mut readers {
                threads.spawn(|| (0..5).for_each(|_| read_all(reader)));
            }
            std::thread::sleep(Duration::from_millis(20));
            node.stop().unwrap();
        });
        wait_for("it is given up", || {
            read_all(&mut guest);
            ended(&site).is_some()
        });
    }
}

/// A read of whole extents requests many pages at once, and the node disconnects between two of them.
#[test]
fn cache_node_disconnected_during_large_reads_causes_no_errors() {
    let site = served(8);
    let mut guest = filled(&site);
    for round in 0..5 {
        let (lent, listen) = node(&site, &format!("node-{round}.sock"), Nanos::ZERO);
        attach(&site, &listen);
        warmed(&site, &mut guest);
        let mut reader = site.connect("data").unwrap();
        std::thread::scope(|threads| {
            let reads = threads.spawn(move || {
                for at in (0..40 * (PAGES / 32)).map(|n| n % (PAGES / 32)) {
                    let read = reader.read(at * 32 * PAGE, 32 * PAGE as u32).unwrap();
                    let wanted: Vec<u8> =
                        (at * 32..at * 32 + 32).flat_map(|n| page(n, 0)).collect();
                    assert!(read == wanted, "pages from {}", at * 32);
                }
            });
            std::thread::sleep(Duration::from_millis(3 + 4 * round));
            lent.stop().unwrap();
            reads.join().unwrap();
        });
        // A node replaces a connected one.
        let (first, one) = node(&site, &format!("a-{round}.sock"), Nanos::ZERO);
        let (second, other) = node(&site, &format!("b-{round}.sock"), Nanos::ZERO);
        attach(&site, &one);
        attach(&site, &other);
        warmed(&site, &mut guest);
        assert_eq!(ended(&site), None);
        first.stop().unwrap();
        second.stop().unwrap();
    }
}

#[test]
fn l2_cache_file_in_a_directory_leaves_no_file() {
    let mut site = served(8);
    let mut guest = filled(&site);
    let dir = site.path("flash");
    std::fs::create_dir(&dir).unwrap();
    let at = dir.to_str().unwrap();
    use_second(&site, at, Some(Bytes::mib(32))).unwrap();
    warmed(&site, &mut guest);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    for (at, size, why) in [
        (at, None, "--size is missing"),
        (at, Some(Bytes(1 << 50)), "cannot allocate"),
        (at, Some(Bytes(4096)), "0 pages"),
        (at, Some(Bytes::mib(1)), "32 pages of 16 KiB; 65 to"),
        (
            "/no/such/directory",
            Some(Bytes::mib(32)),
            "cannot create a file",
        ),
        (
            "nbd+unix:///?socket=/no/such/socket",
            None,
            "/no/such/socket",
        ),
    ] {
        let refused = use_second(&site, at, size).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    read_all(&mut guest);
    site.stop();
}

/// Orders a node for a volume, with a warm-up before guests read.
fn order_warm(
    site: &Site,
    answer: u64,
    at: &Listen,
    warm: WarmUp,
) -> Result<ControlAnswer, String> {
    site.ask(ControlRequest::UseNode {
        answer,
        volume: "data".into(),
        server: None,
        at: at.uri(""),
        size: Bytes::mib(16),
        warm: Some(warm),
    })
}

fn zones(zones: &[u64], reads_per_s: Option<f64>) -> WarmUp {
    WarmUp {
        zones: zones.to_vec(),
        zone: Bytes(16 * PAGE),
        reads_per_s,
    }
}

#[test]
fn warm_up_reads_hot_zones_first_and_respects_later_writes() {
    let site = served(8);
    let (_node, listen) = node(&site, "node.sock", Nanos::ZERO);
    let mut guest = filled(&site);
    let before = reads_of(&site, "data");
    // The third zone first. The last zone was never written: it has nothing to read.
    order_warm(&site, 5, &listen, zones(&[3, 0, 1, 40], None)).unwrap();
    let done = |s: &SecondStatus| s.ready && s.to_warm == Bytes::ZERO && s.fills >= 48;
    wait_for("it is warm", || status(&site).is_some_and(|s| done(&s)));
    let warm = status(&site).unwrap();
    assert_eq!((warm.warmed, warm.fills), (Bytes(48 * PAGE), 48));
    assert_eq!(
        reads_of(&site, "data"),
        before,
        "no guest has read anything"
    );
    // The node has these pages, memory has none of them.
    for number in (48..64).chain(0..32) {
        assert!(guest.read(number * PAGE, PAGE as u32).unwrap() == page(number, 0));
    }
    assert_eq!(status(&site).unwrap().hits, 48);
    site.ask(ControlRequest::StopNode { answer: 5 }).unwrap();

    // Guests write at the same time.
    let every = zones(&(0..13).collect::<Vec<u64>>(), Some(400.0));
    for round in 1..4 {
        order_warm(&site, 5 + u64::from(round), &listen, every.clone()).unwrap();
        for number in 0..PAGES {
            guest.write(number * PAGE, &page(number, round)).unwrap();
        }
        wait_for("it is warm", || {
            status(&site).is_some_and(|s| s.ready && s.to_warm == Bytes::ZERO)
        });
        for number in 0..PAGES {
            let read = guest.read(number * PAGE, PAGE as u32).unwrap();
            assert!(read == page(number, round), "page {number}, round {round}");
        }
    }
    assert!(status(&site).unwrap().hits > 0);
    let wrong = order_warm(&site, 9, &listen, zones(&[1], Some(-1.0))).unwrap_err();
    assert!(wrong.contains("-1 reads/s"), "{wrong}");
    assert_eq!(
        status(&site).unwrap().of.answer,
        Some(8),
        "what was there stays"
    );
}

#[test]
fn warm_up_respects_its_rate_and_ends_with_the_l2_cache() {
    let mut site = served(8);
    let (lent, listen) = node(&site, "node.sock", Nanos::ZERO);
    let mut guest = filled(&site);
    // The whole warm-up takes 20 s.
    let slow = zones(&(0..13).collect::<Vec<u64>>(), Some(10.0));
    let began = Instant::now();
    order_warm(&site, 5, &listen, slow.clone()).unwrap();
    wait_for("some is read", || {
        status(&site).is_some_and(|s| s.warmed >= Bytes(8 * PAGE))
    });
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(690), "{took:?}");
    assert!(status(&site).unwrap().to_warm > Bytes::ZERO);
    lent.stop().unwrap();
    wait_for("it has ended", || {
        read_all(&mut guest);
        ended(&site).is_some()
    });
    assert_eq!(status(&site).unwrap().to_warm, Bytes::ZERO);
    // The volume is deleted, and the server stops, during a warm-up.
    let (_node, listen) = node(&site, "other.sock", Nanos::ZERO);
    order_warm(&site, 6, &listen, slow).unwrap();
    drop(guest);
    let (volume, force) = ("data".into(), true);
    site.ask(ControlRequest::Delete { volume, force }).unwrap();
    site.stop();
}

/// Returns the number of reads of a volume by guests.
fn reads_of(site: &Site, volume: &str) -> u64 {
    match site.ask(ControlRequest::Samples) {
        Ok(ControlAnswer::Samples(samples)) => {
            let mut volumes = samples.volumes.into_iter();
            let found = volumes.find(|v| v.name == volume).expect("it is there");
            found
                .stages
                .measure
                .counts
                .expect("it is measured")
                .reads
                .ios
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the memory of this process that a node of this size takes.
fn taken_by(size: Bytes) -> u64 {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let of_nodes = files.filter(|fd| {
        let to = std::fs::read_link(fd.path()).unwrap_or_default();
        to.to_string_lossy().contains("terrace-cache-node")
    });
    let known = of_nodes.filter_map(|fd| std::fs::metadata(fd.path()).ok());
    let taken = known
        .filter(|m| m.len() == size.0)
        .map(|m| m.blocks() * 512);
    taken.sum()
}

#[test]
fn cache_node_returns_memory_to_the_system_after_disconnect() {
    let site = served(8);
    // No other test has a node of this size.
    let size = Bytes::mib(300);
    let (_node, listen) = node_of(&site, "node.sock", Nanos::ZERO, size);
    let mut guest = filled(&site);
    attach(&site, &listen);
    warmed(&site, &mut guest);
    let mut other = Client::connect(&listen.uri("").parse().unwrap()).unwrap();
    for at in [0, 299] {
        other.write(at * MIB, &vec![0x66; MIB as usize]).unwrap();
    }
    assert!(taken_by(size) >= 2 * MIB);
    let off = ControlRequest::UseSecond {
        at: None,
        size: None,
    };
    site.ask(off).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    assert!(taken_by(size) >= 2 * MIB, "one is still connected");
    drop(other);
    wait_for("it goes back", || taken_by(size) == 0);
    // The node can be used again.
    attach(&site, &listen);
    warmed(&site, &mut guest);
}

#[test]
fn flash_cache_node_serves_pages_by_command_and_as_a_remedy() {
    let site = served(8);
    let dir = site.path("lent");
    std::fs::create_dir(&dir).unwrap();
    let size = Bytes::mib(32);
    let options = FilterOptions {
        name: Some(String::new()),
        server: ServerConfig::default(),
        iops: None,
        bandwidth: None,
        delays: [Nanos::ZERO; 2],
        record: None,
    };
    let mut node = Filter::start_on_flash(&dir, size, options).unwrap();
    let listen = Listen::Unix(site.path("node.sock"));
    node.server.listen(&listen).unwrap();
    assert_eq!(
        std::fs::read_dir(&dir).unwrap().count(),
        0,
        "it has no name"
    );
    let mut guest = filled(&site);
    attach(&site, &listen);
    warmed(&site, &mut guest);
    let off = ControlRequest::UseSecond {
        at: None,
        size: None,
    };
    site.ask(off).unwrap();
    // A remedy can use it too; a remedy accepts only lent memory or flash.
    let order = ControlRequest::UseNode {
        answer: 5,
        volume: "data".into(),
        server: None,
        at: listen.uri(""),
        size: Bytes::mib(16),
        warm: None,
    };
    site.ask(order).unwrap();
    warmed(&site, &mut guest);
    read_all(&mut guest);
    assert_eq!(ended(&site), None);
}

#[test]
fn warm_up_without_a_rate_reads_all_written_data() {
    let site = served(8);
    let (_node, listen) = node(&site, "node.sock", Nanos::ZERO);
    let mut guest = filled(&site);
    (0..16).for_each(|at| guest.write(at * MIB, &vec![7; MIB as usize]).unwrap());
    let every = zones(&(0..60).collect::<Vec<u64>>(), None);
    order_warm(&site, 5, &listen, every).unwrap();
    wait_for("it is warm", || {
        status(&site).is_some_and(|s| s.ready && s.to_warm == Bytes::ZERO && s.fills >= 900)
    });
    let status = status(&site).unwrap();
    assert_eq!(status.warmed, Bytes(status.fills * PAGE));
}
