//! Direct I/O on real files and block devices, by guests with unaligned requests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use algo::Rng;
use datapath::control_server::{ControlAnswer, ControlRequest, NewDevice, NewSource, TierInfo};
use datapath::{Client, IoChoice, ServerConfig, add_device};
use model::DirectIo;
use tempfile::TempDir;
use testkit::needs;
use units::{Bytes, BytesPerSec};

use crate::support::{Site, wait_for};

/// Size of the volume in bytes.
const SIZE: u64 = 3 << 20;

/// Block device over a file, with blocks of 4 KiB.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Self {
        std::fs::File::create(file)
            .unwrap()
            .set_len(32 << 20)
            .unwrap();
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", "4096"])
            .arg(file)
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        Self(String::from_utf8(made.stdout).unwrap().trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

fn device(tier: &str, source: NewSource, direct: DirectIo) -> NewDevice {
    let size = matches!(source, NewSource::Dir(_)).then(|| Bytes::mib(16));
    NewDevice {
        tier: tier.into(),
        source,
        size,
        emulate: None,
        direct,
        // The second run formats the disks of the first.
        force: true,
        thin: false,
    }
}

/// Returns a directory on a disk, if the build directory is on one.
fn on_disk() -> Option<TempDir> {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    match datapath::device::is_in_memory(dir.path()) {
        false => Some(dir),
        true => {
            needs::skipped("a build directory on a disk");
            None
        }
    }
}

fn tiers(site: &Site) -> Vec<TierInfo> {
    match site.ask(ControlRequest::Tiers) {
        Ok(ControlAnswer::Tiers { tiers, .. }) => tiers,
        other => panic!("{other:?}"),
    }
}

/// Returns a range of a guest. Every guest has a part of every stripe, so no guest owns a whole block.
fn own(guest: u64, guests: u64, rng: &mut Rng) -> (u64, u64) {
    const STRIPE: u64 = 1000;
    let stripe = rng.below(SIZE / STRIPE);
    let part = STRIPE / guests;
    let first = rng.below(part - 1);
    let length = 1 + rng.below(part - first - 1);
    (stripe * STRIPE + guest * part + first, length)
}

/// Writes and reads the bytes of a guest while other guests do the same with neighbouring bytes. Panics if a read
/// returns wrong data.
fn guest(mut client: Client, number: u64, guests: u64, stop: &AtomicBool) -> Vec<u8> {
    let mut rng = Rng::new(number, 0xd1);
    let mut bytes = vec![0_u8; SIZE as usize];
    while !stop.load(Ordering::Relaxed) {
        let (at, length) = own(number, guests, &mut rng);
        let range = at as usize..(at + length) as usize;
        match rng.below(8) {
            0..4 => {
                bytes[range.clone()].fill_with(|| rng.next_u64() as u8);
                client.write(at, &bytes[range]).unwrap();
            }
            4 => {
                bytes[range].fill(0);
                client.zero(at, length as u32).unwrap();
            }
            5 => client.flush().unwrap(),
            _ => {
                let found = client.read(at, length as u32).unwrap();
                assert!(
                    found == bytes[range],
                    "guest {number}, {length} bytes at {at}"
                );
            }
        }
    }
    bytes
}

/// Runs several guests on one volume that moves between tiers meanwhile. No write may be undone by a neighbour's
/// write.
fn side_by_side(io: IoChoice, devices: [NewDevice; 2], must: [bool; 2]) {
    const GUESTS: u64 = 6;
    let mut site = Site::empty();
    for new in devices {
        add_device(&site.path("array"), None, new).unwrap();
    }
    site.serve_as(ServerConfig {
        workers: 1,
        io,
        ..ServerConfig::default()
    });
    for (tier, must) in tiers(&site).iter().zip(must) {
        let (direct, why) = tier.devices[0].direct_now.clone().unwrap();
        assert_eq!(direct, must, "{}: {why}", tier.name);
    }
    site.create("data", SIZE >> 20, "fast");
    let stop = AtomicBool::new(false);
    let all: Vec<Vec<u8>> = std::thread::scope(|threads| {
        let _over = testkit::flag::SetOnDrop(&stop);
        let guests: Vec<_> = (0..GUESTS)
            .map(|number| {
                let client = site.connect("data").unwrap();
                let stop = &stop;
                threads.spawn(move || guest(client, number, GUESTS, stop))
            })
            .collect();
        for to in ["slow", "fast", "slow", "fast"] {
            site.done(ControlRequest::Move {
                volume: "data".into(),
                to: to.into(),
                device: None,
                bandwidth: BytesPerSec(12 << 20),
                extents: None,
            });
            wait_for("the move is over", || !moving(&site));
        }
        stop.store(true, Ordering::Relaxed);
        guests.into_iter().map(|g| g.join().unwrap()).collect()
    });
    let mut client = site.connect("data").unwrap();
    let found = client.read(0, SIZE as u32).unwrap();
    let mut expected = vec![0; SIZE as usize];
    for bytes in &all {
        expected.iter_mut().zip(bytes).for_each(|(e, b)| *e |= b);
    }
    assert!(found == expected, "what is there in the end");
    drop(client);
    site.stop();
}

fn moving(site: &Site) -> bool {
    match site.ask(ControlRequest::Show {
        volume: "data".into(),
    }) {
        Ok(ControlAnswer::Volumes { volumes }) => volumes[0].moving_to.is_some(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn concurrent_writes_to_one_block_lose_no_update_on_files() {
    let Some(dir) = on_disk() else { return };
    for io in [IoChoice::Auto, IoChoice::Threads] {
        let at = |name: &str| {
            let dir = dir.path().join(format!("{name}-{io:?}"));
            std::fs::create_dir(&dir).unwrap();
            NewSource::Dir(dir)
        };
        let devices = [
            device("fast", at("fast"), DirectIo::On),
            device("slow", at("slow"), DirectIo::Off),
        ];
        side_by_side(io, devices, [true, false]);
    }
}

#[test]
fn concurrent_writes_to_one_block_lose_no_update_on_block_devices() {
    if !needs::programs(&["losetup"]) {
        return;
    }
    if !Path::new("/dev/loop-control").exists() {
        return needs::skipped("loop");
    }
    if !rustix::process::geteuid().is_root() {
        return needs::skipped("root");
    }
    let Some(dir) = on_disk() else { return };
    let disks = ["fast", "slow"].map(|name| Loop::over(&dir.path().join(name)));
    for io in [IoChoice::Auto, IoChoice::Threads] {
        let devices = [("fast", &disks[0]), ("slow", &disks[1])]
            .map(|(tier, disk)| device(tier, NewSource::Block(disk.0.clone()), DirectIo::On));
        side_by_side(io, devices, [true, true]);
    }
}
