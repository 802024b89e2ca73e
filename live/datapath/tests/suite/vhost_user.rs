//! Guests over vhost-user: they see the same as NBD guests, and their errors do not affect other guests.

mod harm;

use std::path::PathBuf;
use std::time::Duration;

use datapath::control_server::{ControlAnswer, ControlRequest};
use datapath::stages::{inject, throttle};
use datapath::{IoChoice, ServerConfig};
use testkit::vhost_user::{DiskAnswer, DiskRequest, Guest, GuestSpec};
use testkit::virtio::Form;
use units::{BytesPerSec, Iops, Nanos};

use crate::support::{MIB, Site, wait_for};

/// `VIRTIO_RING_F_EVENT_IDX`
const EVENT_INDEX: u64 = 1 << 29;

impl Site {
    fn socket(&self, volume: &str) -> PathBuf {
        self.path(&format!("vhost/{volume}.sock"))
    }

    fn guest(&self, volume: &str, like: GuestSpec) -> Guest {
        let mut guest = Guest::new(like);
        guest.connect(&self.socket(volume)).unwrap();
        guest
    }

    /// Delays replies, so requests stay in flight for a while.
    fn inject(&self, delay: Duration, lasting: Duration) {
        let nanos = |d: Duration| Nanos(d.as_nanos() as u64);
        self.ask(ControlRequest::from(inject::Command::Inject {
            volume: "data".into(),
            read: nanos(delay),
            write: nanos(delay),
            lasting: nanos(lasting),
        }))
        .unwrap();
    }

    /// Sets the limit of requests per second; 0 is no limit.
    fn limit(&self, iops: f64) {
        let command = throttle::Command::Limit {
            volume: "data".into(),
            iops: Some(Iops(iops)),
            bandwidth: None,
            weight: None,
        };
        self.ask(command.into()).unwrap();
    }

    fn device_writes(&self) -> u64 {
        let devices = self.samples().devices;
        devices.iter().map(|d| d.writes).sum()
    }

    fn connections(&self) -> usize {
        let volumes = self.samples().volumes;
        volumes.iter().filter_map(|v| v.connections).sum()
    }

    fn errors_of(&self, volume: &str) -> (usize, u64) {
        let volumes = self.samples().volumes;
        let found = volumes.iter().find(|v| v.name == volume).unwrap();
        (
            found.connections.unwrap(),
            found.stages.measure.counts.as_ref().unwrap().errors,
        )
    }

    fn outstanding(&self) -> u32 {
        let volumes = self.samples().volumes;
        volumes[0]
            .stages
            .measure
            .counts
            .as_ref()
            .unwrap()
            .outstanding
    }
}

fn served_by(io: IoChoice) -> Site {
    let mut site = Site::empty();
    site.add("fast", "fast", 256, None);
    site.add("slow", "slow", 256, None);
    site.serve_as(ServerConfig {
        workers: 2,
        io,
        ..ServerConfig::default()
    });
    site.serving()
        .listen_vhost_user(&site.path("vhost"))
        .unwrap();
    site.create("data", 32, "fast");
    site
}

/// Returns parameters of a guest with `queues` queues of `size` slots and requests of one block.
fn of_blocks(queues: u16, size: u16) -> GuestSpec {
    GuestSpec {
        queues,
        size,
        data: BLOCK as u32,
        ..GuestSpec::default()
    }
}

fn served() -> Site {
    served_by(IoChoice::Auto)
}

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = algo::Rng::new(seed, 1);
    (0..bytes).map(|_| random.below(256) as u8).collect()
}

#[test]
fn vhost_user_guest_sees_the_same_data_and_errors_as_nbd() {
    for (io, without, form) in [
        (IoChoice::Auto, 0, Form::Indirect),
        (IoChoice::Auto, EVENT_INDEX, Form::Direct),
        (IoChoice::Threads, 0, Form::Direct),
        (IoChoice::Threads, EVENT_INDEX, Form::Indirect),
    ] {
        let site = served_by(io);
        let mut guest = site.guest(
            "data",
            GuestSpec {
                without,
                form,
                data: 1 << 20,
                ..GuestSpec::default()
            },
        );
        let mut nbd = site.connect("data").unwrap();
        assert_eq!(site.connections(), 2);
        assert_eq!(guest.read(5 * MIB, 8192).unwrap(), [0; 8192], "a hole");
        let bytes = pattern(1, 1 << 20);
        guest.write(3 * MIB - 512, &bytes).unwrap();
        guest.flush().unwrap();
        assert_eq!(nbd.read(3 * MIB - 512, 1 << 20).unwrap(), bytes);
        assert_eq!(guest.read(3 * MIB - 512, 1 << 20).unwrap(), bytes);
        nbd.write(3 * MIB, &[9; 700]).unwrap();
        assert_eq!(guest.read(3 * MIB, 512).unwrap(), [9; 512]);
        // Zeroes with and without deallocation.
        let zero = |guest: &mut Guest, ask| guest.ask(0, ask, &[]).unwrap();
        zero(&mut guest, DiskRequest::Zero(3 * MIB, 512));
        assert_eq!(nbd.read(3 * MIB, 700).unwrap()[..512], [0; 512]);
        assert_eq!(nbd.read(3 * MIB, 700).unwrap()[512..], [9; 188]);
        zero(&mut guest, DiskRequest::ZeroUnmapped(3 * MIB + 512, 4096));
        zero(&mut guest, DiskRequest::Discard(2 * MIB, 512 << 10));
        assert_eq!(guest.read(3 * MIB, 4096).unwrap(), [0; 4096]);
        let slot = guest.ask(0, DiskRequest::Name, &[]).unwrap();
        assert_eq!(&guest.data(0, slot, 20)[..5], b"data\0");
        // Refused requests get a status, and the guest continues.
        for (ask, status) in [
            (DiskRequest::Other(77), 2),
            (DiskRequest::Read(32 * MIB, 512), 1),
            (DiskRequest::Read(32 * MIB - 512, 1024), 1),
            (DiskRequest::Read(0, 100), 1),
            (DiskRequest::Write(0, 513), 1),
            (DiskRequest::Discard(31 * MIB, 2 << 20), 1),
        ] {
            let refused = guest.ask(0, ask, &[1; 513]).unwrap_err();
            assert!(refused.ends_with(&format!("status {status}")), "{refused}");
        }
        assert_eq!(guest.read(3 * MIB - 512, 512).unwrap(), bytes[..512]);
        let config = guest.config(60).unwrap();
        assert_eq!(config[..8], (32 * MIB / 512).to_le_bytes());
        guest.disconnect();
        wait_for("it is gone", || site.connections() == 1);
        // Requests of this guest are measured like all others.
        let (_, errors) = site.errors_of("data");
        assert_eq!(errors, 3, "those that the engine has refused");
    }
}

/// Blocks that several queues write and read out of order, each with the number of its last write.
struct Load {
    guest: Guest,
    queues: usize,
    known: Vec<u64>,
    busy: Vec<bool>,
    /// Requests by queue and slot.
    asked: Vec<Vec<Option<(usize, u64)>>>,
    random: algo::Rng,
    number: u64,
    done: u64,
    /// Number of requests that read or write.
    of_blocks: u64,
}

const BLOCK: usize = 4096;

impl Load {
    fn new(guest: Guest, queues: usize, size: usize, blocks: usize) -> Self {
        Self {
            guest,
            queues,
            known: vec![0; blocks],
            busy: vec![false; blocks],
            asked: vec![vec![None; size]; queues],
            random: algo::Rng::new(7, 7),
            number: 0,
            done: 0,
            of_blocks: 0,
        }
    }

    fn block(number: u64, index: usize) -> Vec<u8> {
        if number == 0 {
            return vec![0; BLOCK];
        }
        let words = [number.to_le_bytes(), (index as u64).to_le_bytes()].concat();
        words.repeat(BLOCK / words.len())
    }

    /// Submits requests on all queues until they are full.
    fn hand_in(&mut self) {
        for queue in 0..self.queues {
            while let Some(slot) = self.guest.slot(queue) {
                let index = self.random.below(self.known.len() as u64) as usize;
                if self.busy[index] {
                    // Return the slot by a request that changes no data.
                    self.guest.hand_in(queue, slot, DiskRequest::Flush);
                    continue;
                }
                self.busy[index] = true;
                let at = (index * BLOCK) as u64;
                let number = if self.random.below(2) == 0 {
                    self.number += 1;
                    let bytes = Self::block(self.number, index);
                    self.guest.fill(queue, slot, &bytes);
                    self.guest
                        .hand_in(queue, slot, DiskRequest::Write(at, BLOCK as u32));
                    self.number
                } else {
                    self.guest
                        .hand_in(queue, slot, DiskRequest::Read(at, BLOCK as u32));
                    0
                };
                self.asked[queue][usize::from(slot)] = Some((index, number));
            }
            self.guest.kick(queue);
        }
    }

    fn answers(&mut self, queue: usize) {
        while let Some(DiskAnswer { slot, status }) = self.guest.next(queue) {
            assert_eq!(status, 0);
            self.done += 1;
            let Some((index, number)) = self.asked[queue][usize::from(slot)].take() else {
                continue;
            };
            self.of_blocks += 1;
            if number > 0 {
                self.known[index] = number;
            } else {
                let expected = Self::block(self.known[index], index);
                let got = self.guest.data(queue, slot, BLOCK);
                assert!(
                    got == expected,
                    "block {index} is not {}",
                    self.known[index]
                );
            }
            self.busy[index] = false;
        }
    }

    fn turn(&mut self) {
        self.hand_in();
        for queue in 0..self.queues {
            self.answers(queue);
        }
    }

    fn drain(&mut self) {
        for queue in 0..self.queues {
            self.guest.kick(queue);
            self.answers(queue);
            while self.guest.driver(queue).waiting() > 0 {
                self.guest.sleep(queue).unwrap();
                self.answers(queue);
            }
        }
    }

    fn check(&mut self) {
        for index in 0..self.known.len() {
            let got = self
                .guest
                .read((index * BLOCK) as u64, BLOCK as u32)
                .unwrap();
            assert!(
                got == Self::block(self.known[index], index),
                "block {index}"
            );
        }
    }
}

#[test]
fn volume_moves_with_several_full_queues() {
    let site = served();
    let like = of_blocks(4, 32);
    let guest = site.guest("data", like);
    let mut load = Load::new(guest, 4, 32, 2000);
    for at in 0..2000 {
        // Write everything, so all extents have places and can be moved.
        let zeroes = [0; BLOCK];
        load.guest.write(at * BLOCK as u64, &zeroes).unwrap();
    }
    for tier in ["slow", "fast", "slow"] {
        site.done(ControlRequest::Move {
            volume: "data".into(),
            to: tier.into(),
            device: None,
            bandwidth: BytesPerSec(40 << 20),
            extents: None,
        });
        let before = load.done;
        let moving = || site.samples().volumes[0].moving.is_some();
        while moving() {
            for _ in 0..50 {
                load.turn();
            }
        }
        assert!(load.done > before + 1000, "hardly anything was asked for");
    }
    load.drain();
    load.check();
    assert_eq!(site.errors_of("data"), (1, 0));
}

/// The process that runs the guest disconnects with requests in flight, and reconnects. No request is lost, and no
/// repeated one overwrites newer data.
#[test]
fn reconnected_guest_continues_without_lost_requests() {
    let site = served();
    let like = of_blocks(2, 32);
    let guest = site.guest("data", like);
    let mut load = Load::new(guest, 2, 32, 600);
    for round in 0..6 {
        site.inject(Duration::from_millis(30), Duration::from_secs(60));
        for _ in 0..20 {
            load.turn();
        }
        // Some replies are not seen yet, other requests are in flight.
        std::thread::sleep(Duration::from_millis(7 * round));
        if round == 0 {
            // The limit holds many requests back in this round, on any machine.
            site.limit(10.0);
            wait_for("many are in flight", || {
                load.turn();
                site.outstanding() >= 32
            });
        }
        load.guest.disconnect();
        site.limit(0.0);
        load.guest.connect(&site.socket("data")).unwrap();
        site.inject(Duration::ZERO, Duration::ZERO);
        load.drain();
    }
    load.check();
    wait_for("the others are gone", || site.connections() == 1);
    assert!(load.done >= 64 * 6);
    let volumes = site.samples().volumes;
    let counts = volumes[0].stages.measure.counts.as_ref().unwrap();
    let carried_out = counts.reads.ios + counts.writes.ios;
    // The reads of the check count, too.
    assert!(
        carried_out > load.of_blocks + 600,
        "{carried_out}: nothing was done again"
    );
}

/// Writes of a guest with a write cache are acknowledged when they are written, those of a guest without one when
/// they are durable. A flush then has nothing to do.
#[test]
fn writes_without_write_cache_are_durable_when_acknowledged() {
    let site = served();
    let wrote = |guest: &mut Guest, n: u64| {
        let before = site.device_writes();
        guest.write(n * MIB, &[1; 4096]).unwrap();
        guest.flush().unwrap();
        site.device_writes() - before
    };
    let mut guest = site.guest("data", GuestSpec::default());
    for n in 0..4 {
        guest.write(n * MIB, &[5; 4096]).unwrap(); // allocates its place
    }
    guest.flush().unwrap();
    assert_eq!(wrote(&mut guest, 0), 2, "a write, and a flush");
    // Switching the cache off makes acknowledged writes durable, because no flush will follow.
    guest.write(0, &[2; 4096]).unwrap();
    let before = site.device_writes();
    guest.set_cached(false).unwrap();
    assert_eq!(site.device_writes() - before, 1, "a flush");
    assert_eq!(guest.config(60).unwrap()[32], 0);
    assert_eq!(wrote(&mut guest, 1), 1, "a write that is durable");
    // A separate flush makes zeroes durable.
    let before = site.device_writes();
    guest.ask(0, DiskRequest::Zero(0, 4096), &[]).unwrap();
    assert_eq!(site.device_writes() - before, 2);
    guest.flush().unwrap();
    assert_eq!(site.device_writes() - before, 2);
    // The next connection learns the state of the cache only from the inflight buffer.
    guest.disconnect();
    guest.connect(&site.socket("data")).unwrap();
    assert_eq!(guest.config(60).unwrap()[32], 0);
    assert_eq!(wrote(&mut guest, 2), 1);
    guest.set_cached(true).unwrap();
    assert_eq!(wrote(&mut guest, 3), 2);
    // For a guest that restarts while it is not served, the process that runs it has set the cache, and the server
    // does not know the state.
    guest.set_cached(false).unwrap();
    guest.reset();
    guest.connect(&site.socket("data")).unwrap();
    assert_eq!(wrote(&mut guest, 3), 1, "a write that is durable");
    guest.set_cached(true).unwrap();
    assert_eq!(wrote(&mut guest, 3), 2);
    drop(guest);
    // A guest without the flush feature never sends a flush.
    let mut guest = site.guest(
        "data",
        GuestSpec {
            without: Guest::never_flushes(),
            ..GuestSpec::default()
        },
    );
    assert_eq!(wrote(&mut guest, 1), 1);
}

#[test]
fn stopped_queue_continues_at_its_position() {
    let site = served();
    let mut guest = site.guest(
        "data",
        GuestSpec {
            queues: 2,
            ..GuestSpec::default()
        },
    );
    for _ in 0..5 {
        guest.write(0, &[4; 512]).unwrap();
    }
    // Requests in flight complete first.
    site.inject(Duration::from_secs(2), Duration::from_secs(60));
    for _ in 0..8 {
        let slot = guest.slot(0).unwrap();
        guest.fill(0, slot, &[6; 512]);
        guest.hand_in(0, slot, DiskRequest::Write(512, 512));
    }
    guest.kick(0);
    wait_for("they are in flight", || site.outstanding() == 8);
    assert_eq!(guest.stop_queue(0).unwrap(), 13);
    site.inject(Duration::ZERO, Duration::ZERO);
    let answers = std::iter::from_fn(|| guest.next(0));
    assert_eq!(answers.filter(|a| a.status == 0).count(), 8);
    // The other queue still runs; this one is not read.
    let slot = guest.slot(0).unwrap();
    guest.hand_in(0, slot, DiskRequest::Read(512, 512));
    guest.kick(0);
    let other = guest.ask(1, DiskRequest::Read(512, 512), &[]).unwrap();
    assert_eq!(guest.data(1, other, 512), [6; 512]);
    assert_eq!(guest.next(0), None);
    guest.start_queue(0).unwrap();
    assert_eq!(guest.wait(0).unwrap(), DiskAnswer { slot, status: 0 });
    // New memory is used after it has been handed over.
    guest.hand_memory_over_again().unwrap();
    assert_eq!(guest.read(512, 512).unwrap(), [6; 512]);
}

#[test]
fn volume_with_vhost_user_guests_is_deleted_only_with_force() {
    let site = served();
    let mut guest = site.guest("data", GuestSpec::default());
    guest.write(0, &[1; 512]).unwrap();
    let delete = |force| {
        let volume = "data".into();
        site.ask(ControlRequest::Delete { volume, force })
    };
    let refused = delete(false).unwrap_err();
    assert!(
        refused.contains("1 connection of a guest is open"),
        "{refused}"
    );
    guest.write(512, &[2; 512]).unwrap();
    assert!(site.socket("data").exists());
    match delete(true) {
        Ok(ControlAnswer::Done { message }) => {
            assert!(message.contains("1 connection"), "{message}")
        }
        other => panic!("{other:?}"),
    }
    assert!(!site.socket("data").exists());
    assert!(guest.stop_queue(0).is_err());
    assert!(guest.connect(&site.socket("data")).is_err());
    // A new volume of the same name is independent.
    site.create("data", 8, "slow");
    let mut guest = site.guest("data", GuestSpec::default());
    assert_eq!(guest.read(0, 512).unwrap(), [0; 512]);
}

#[test]
fn vhost_user_sockets_exist_while_the_server_runs() {
    let mut site = served();
    site.create("later", 8, "slow");
    let mut guest = site.guest("later", GuestSpec::default());
    guest.write(0, &[1; 512]).unwrap();
    // The name is no valid file name: the volume is available over NBD only, and the reply says so.
    let refused = site
        .ask(ControlRequest::Create {
            volume: "a/b".into(),
            size: units::Bytes::mib(1),
            tier: "fast".into(),
            class: None,
        })
        .unwrap_err();
    assert!(refused.contains("has a '/' in its name"), "{refused}");
    assert!(site.connect("a/b").is_ok());
    site.stop();
    assert!(!site.socket("data").exists() && !site.socket("later").exists());
    // The guest is disconnected, and continues with the next server.
    assert!(guest.stop_queue(0).is_err());
}

/// Writes that wait for the volume's limit when their guest disconnects are repeated for the next connection. They
/// must not overwrite later writes of that connection.
#[test]
fn late_writes_of_an_ended_connection_do_not_overwrite_newer_ones() {
    let site = served();
    let mut guest = site.guest("data", GuestSpec::default());
    site.limit(1.0);
    for _ in 0..3 {
        guest.write(MIB, &[7; 512]).unwrap(); // uses up the burst of the limit
    }
    for block in 0..4 {
        let slot = guest.slot(0).unwrap();
        guest.fill(0, slot, &[1; 512]);
        guest.hand_in(0, slot, DiskRequest::Write(block * 512, 512));
    }
    guest.kick(0);
    wait_for("they wait", || site.outstanding() == 4);
    guest.disconnect();
    site.limit(0.0);
    guest.connect(&site.socket("data")).unwrap();
    for _ in 0..4 {
        assert_eq!(guest.wait(0).unwrap().status, 0);
    }
    for block in 0..4 {
        guest.write(block * 512, &[2; 512]).unwrap();
    }
    // Longer than the last of these writes had to wait.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(guest.read(0, 2048).unwrap(), [2; 2048]);
}

/// Writes from before the cache was switched off are made durable before the server reports it as off.
#[test]
fn cache_mode_is_off_after_writes_in_flight_are_durable() {
    let site = served();
    let mut guest = site.guest("data", GuestSpec::default());
    guest.write(0, &[1; 4096]).unwrap(); // allocates its place
    guest.flush().unwrap();
    site.inject(Duration::from_secs(3), Duration::from_secs(60));
    let before = site.device_writes();
    let slot = guest.slot(0).unwrap();
    guest.fill(0, slot, &[2; 4096]);
    guest.hand_in(0, slot, DiskRequest::Write(0, 4096));
    guest.kick(0);
    wait_for("it is in flight", || site.outstanding() == 1);
    guest.set_cached(false).unwrap();
    assert_eq!(guest.next(0), Some(DiskAnswer { slot, status: 0 }));
    assert_eq!(site.device_writes() - before, 2, "the write, and a flush");
}

/// A server that is killed between a reply and its interrupt leaves a sleeping guest: the next server interrupts it.
#[test]
fn reconnected_guest_is_interrupted_for_earlier_replies() {
    let site = served();
    let mut guest = site.guest("data", GuestSpec::default());
    let slot = guest.slot(0).unwrap();
    // The first interrupt is for used entries of the previous server. The next one is for the answer.
    assert!(guest.is_interrupted(0, Duration::from_secs(60)));
    guest.forget_interrupts(0);
    guest.hand_in(0, slot, DiskRequest::Read(0, 512));
    guest.kick(0);
    assert!(guest.is_interrupted(0, Duration::from_secs(60)));
    guest.disconnect();
    guest.forget_interrupts(0);
    assert!(!guest.is_interrupted(0, Duration::ZERO));
    guest.connect(&site.socket("data")).unwrap();
    assert!(guest.is_interrupted(0, Duration::from_secs(60)));
    assert_eq!(guest.next(0), Some(DiskAnswer { slot, status: 0 }));
}
