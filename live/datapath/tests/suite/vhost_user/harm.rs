//! vhost-user guests with excessive or invalid requests: only they are affected.

use std::time::Duration;

use testkit::vhost_user::{DiskAnswer, DiskRequest, Guest, GuestSpec};
use testkit::virtio::Form;

use super::{of_blocks, pattern, served};
use crate::support::{PATIENCE, wait_for};

#[test]
fn hostile_guest_affects_only_itself() {
    let site = served();
    site.create("other", 8, "fast");
    let mut other = site.guest("other", GuestSpec::default());
    let mut nbd = site.connect("data").unwrap();
    nbd.write(0, &[8; 512]).unwrap();
    type Trick = fn(&mut Guest);
    let tricks: [(&str, Trick); 6] = [
        ("a loop", |guest| {
            let [table, _, _] = guest.driver(0).places();
            guest.driver(0).describe(table, 0, (0, 16), 1, 0);
            guest.driver(0).offer(0);
        }),
        ("outside", |guest| {
            let [table, _, _] = guest.driver(0).places();
            guest.driver(0).describe(table, 0, (u64::MAX - 3, 16), 0, 0);
            guest.driver(0).offer(0);
        }),
        ("too many", |guest| {
            for n in 0..100 {
                guest.driver(0).offer(n);
            }
        }),
        ("no such descriptor", |guest| guest.driver(0).offer(64)),
        ("no room for an answer", |guest| {
            guest.driver(0).add(&[(0, 16)], &[], Form::Direct);
        }),
        ("twice", |guest| {
            let slot = guest.slot(0).unwrap();
            guest.hand_in(0, slot, DiskRequest::Flush);
            let slot = guest.slot(0).unwrap();
            guest.hand_in(0, slot, DiskRequest::Read(0, 4096));
            let [_, available, _] = guest.driver(0).places();
            let mut head = [0; 2];
            guest.driver(0).get(available + 6, &mut head);
            guest.driver(0).offer(u16::from_le_bytes(head));
        }),
    ];
    for (what, trick) in tricks {
        site.inject(Duration::from_millis(20), Duration::from_secs(60));
        let mut guest = site.guest("data", GuestSpec::default());
        assert_eq!(site.connections(), 3);
        trick(&mut guest);
        guest.kick(0);
        wait_for(what, || site.connections() == 2);
        assert!(guest.stop_queue(0).is_err(), "{what}");
        site.inject(Duration::ZERO, Duration::ZERO);
        assert_eq!(nbd.read(0, 512).unwrap(), [8; 512]);
        other.write(0, &[3; 4096]).unwrap();
    }
    // A guest that changes its buffers during a request reads at most its own invalid data.
    let mut guest = site.guest("data", GuestSpec::default());
    for round in 0..200 {
        let slot = guest.slot(0).unwrap();
        guest.fill(0, slot, &[round as u8; 65536]);
        guest.hand_in(0, slot, DiskRequest::Write(0, 65536));
        guest.kick(0);
        guest.fill(0, slot, &[0xee; 65536]);
        let answer = guest.wait(0).unwrap();
        assert_eq!(answer, DiskAnswer { slot, status: 0 });
    }
    assert_eq!(site.connections(), 3);
}

/// A vhost-user guest has the same limits of requests and bytes in flight as an NBD guest. Further requests wait in
/// its rings.
#[test]
fn guest_requests_in_flight_are_limited() {
    let site = served();
    let outstanding = || site.outstanding();
    for (data, most) in [(4096, 512), (1 << 20, 64)] {
        let like = GuestSpec {
            queues: 4,
            size: 256,
            data,
            ..GuestSpec::default()
        };
        let mut guest = site.guest("data", like);
        // Much longer than the submission of all requests takes.
        site.inject(Duration::from_secs(5), Duration::from_secs(60));
        for queue in 0..4 {
            for _ in 0..200 {
                let slot = guest.slot(queue).unwrap();
                guest.hand_in(queue, slot, DiskRequest::Read(0, data));
            }
            guest.kick(queue);
        }
        wait_for("as many as may be are in flight", || outstanding() == most);
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(10));
            assert!(outstanding() <= most, "{} are in flight", outstanding());
        }
        site.inject(Duration::ZERO, Duration::ZERO);
        for queue in 0..4 {
            for _ in 0..200 {
                assert_eq!(guest.wait(queue).unwrap().status, 0);
            }
        }
    }
}

/// Clients that send another protocol, truncated or invalid messages are disconnected.
#[test]
fn invalid_message_on_a_socket_ends_its_connection() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    let site = served();
    let mut guest = site.guest("data", GuestSpec::default());
    let mut random = algo::Rng::new(5, 5);
    for round in 0..300 {
        let mut socket = UnixStream::connect(site.socket("data")).unwrap();
        // A valid header (request, flags, length), then arbitrary bytes.
        let request = (random.below(48) as u32).to_le_bytes();
        let flags = (1 | (random.below(4) as u32) << 2).to_le_bytes();
        let length = (random.below(80) as u32).to_le_bytes();
        let body = pattern(round, random.below(80) as usize);
        let message = [&request[..], &flags, &length, &body].concat();
        // The server may close the connection during the write.
        let _ = socket.write_all(&message.repeat(1 + random.below(3) as usize));
    }
    wait_for("they are gone", || site.connections() == 1);
    guest.write(0, &[1; 4096]).unwrap();
    assert_eq!(guest.read(0, 4096).unwrap(), [1; 4096]);
}

/// Silent connections are limited in number and time.
#[test]
fn silent_connections_to_a_volume_do_not_exclude_other_guests() {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    let site = served();
    site.create("other", 8, "fast");
    let mut silent: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect(site.socket("data")).unwrap())
        .collect();
    // An incomplete message counts as silence.
    silent
        .iter_mut()
        .for_each(|s| drop(std::io::Write::write(s, &[1])));
    let mut guest = site.guest("other", GuestSpec::default());
    guest.write(0, &[1; 512]).unwrap();
    let mut is_closed = |which: usize| {
        silent[which].set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may close before it reads the sent byte.
        let read = silent[which].read(&mut [0]);
        let reset = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(read.map_or_else(reset, |n| n == 0), "it is closed");
    };
    // The server closes the last one at once: there are too many.
    is_closed(39);
    assert!(site.connections() < 39);
    // The server closes the first ones at the time limit for the first message.
    (0..39).for_each(is_closed);
    wait_for("nobody is counted that is gone", || site.connections() == 1);
    let mut guest = site.guest("data", GuestSpec::default());
    guest.write(0, &[1; 512]).unwrap();
}

/// Two rings that wait for an ended connection may both be invalid. The first invalid one ends the guest, and with it
/// the other ring.
#[test]
fn invalid_waiting_rings_end_only_their_guest() {
    let site = served();
    let mut first = site.guest("data", GuestSpec::default());
    site.inject(Duration::from_secs(3), Duration::from_secs(60));
    let slot = first.slot(0).unwrap();
    first.hand_in(0, slot, DiskRequest::Read(0, 512));
    first.kick(0);
    wait_for("it is in flight", || site.outstanding() == 1);
    first.disconnect();
    let astray = GuestSpec {
        queues: 3,
        astray: true,
        ..GuestSpec::default()
    };
    let mut second = Guest::new(astray);
    second.connect(&site.socket("data")).unwrap();
    wait_for("both are left", || site.connections() == 0);
    site.inject(Duration::ZERO, Duration::ZERO);
    let mut guest = site.guest("data", GuestSpec::default());
    guest.write(0, &[1; 512]).unwrap();
}

#[test]
fn memory_table_without_the_served_rings_ends_the_connection() {
    let site = served();
    let mut guest = site.guest("data", of_blocks(2, 8));
    guest.write(0, &[1; 512]).unwrap();
    // The connection may end before the reply.
    let _ = guest.hand_slots_over();
    wait_for("it is left", || site.connections() == 0);
    let mut guest = site.guest("data", GuestSpec::default());
    assert_eq!(guest.read(0, 512).unwrap(), [1; 512]);
}

/// Requests that need no data of the disk do not count as in flight, and any number of them gets replies.
#[test]
fn name_requests_beyond_the_in_flight_limit_get_replies() {
    let site = served();
    let mut guest = site.guest("data", of_blocks(1, 1024));
    for _ in 0..1000 {
        let slot = guest.slot(0).unwrap();
        guest.hand_in(0, slot, DiskRequest::Name);
    }
    guest.kick(0);
    for _ in 0..1000 {
        assert_eq!(guest.wait(0).unwrap().status, 0);
    }
}
