//! Snapshots of volumes during writes of guests, and later operations on them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datapath::control_server::{ControlAnswer, ControlRequest};
use units::{Bytes, BytesPerSec};

use crate::support::{MIB, Site, wait_for};

const BLOCK: u64 = 4096;

fn site(mib: u64) -> Site {
    let mut site = Site::empty();
    site.add("fast", "fast", mib, None);
    site.add("slow", "slow", mib, None);
    site.serve(&[]);
    site
}

impl Site {
    fn snapshot(&self, volume: &str, name: &str) -> Result<String, String> {
        let (volume, name) = (volume.into(), name.into());
        match self.ask(ControlRequest::TakeSnapshot { volume, name })? {
            ControlAnswer::Done { message } => Ok(message),
            other => panic!("{other:?}"),
        }
    }

    fn restore(&self, snapshot: &str) -> Result<ControlAnswer, String> {
        let snapshot = snapshot.into();
        self.ask(ControlRequest::RestoreSnapshot { snapshot })
    }

    fn let_go(&self, volume: &str) -> Result<ControlAnswer, String> {
        let volume = volume.into();
        self.ask(ControlRequest::Delete {
            volume,
            force: false,
        })
    }

    /// Reads a whole volume.
    fn all(&self, volume: &str) -> Vec<u8> {
        let mut guest = self.connect(volume).unwrap();
        let size = guest.size();
        let parts = (0..size / MIB).flat_map(|at| guest.read(at * MIB, MIB as u32).unwrap());
        parts.collect()
    }

    fn used(&self) -> Bytes {
        let devices = self.samples().devices;
        devices.iter().map(|d| d.used).sum()
    }
}

fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK as usize / 8)
}

#[test]
fn snapshot_is_consistent_and_unchanged_by_later_writes() {
    let site = site(256);
    site.create("data", 24, "fast");
    let blocks = 16 * MIB / BLOCK;
    let over = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    let (moments, last) = std::thread::scope(|scope| {
        let _over = testkit::flag::SetOnDrop(&over);
        // Write n goes to block n modulo their number. A consistent state has all writes up to one, and none after
        // it.
        let writer = scope.spawn(|| {
            let mut guest = site.connect("data").unwrap();
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                guest.write(n % blocks * BLOCK, &block(n + 1)).unwrap();
                n += 1;
                written.store(n, Ordering::Relaxed);
            }
            n
        });
        let mut moments = vec![];
        for name in ["a", "b", "c", "d"] {
            let before = written.load(Ordering::Relaxed);
            wait_for("more is written", || {
                written.load(Ordering::Relaxed) >= before + 100
            });
            if name == "c" {
                site.done(ControlRequest::Move {
                    volume: "data".into(),
                    to: "slow".into(),
                    device: None,
                    bandwidth: BytesPerSec(64 << 20),
                    extents: None,
                });
            }
            site.snapshot("data", name).unwrap();
            moments.push((name, site.all(&format!("data@{name}"))));
        }
        over.store(true, Ordering::Relaxed);
        (moments, writer.join().unwrap())
    });
    let number = |bytes: &[u8], b: u64| {
        let at = (b * BLOCK) as usize;
        let n = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(
            &bytes[at..at + BLOCK as usize],
            block(n),
            "block {b} is torn"
        );
        n
    };
    let mut before = 0;
    for (name, bytes) in &moments {
        let newest = (0..blocks).map(|b| number(bytes, b)).max().unwrap();
        assert!(
            newest > before && newest <= last,
            "{name}: {before} {newest} {last}"
        );
        for b in 0..blocks {
            // The last write to this block that is not after the newest one.
            let rounds = (newest + blocks - 1 - b) / blocks;
            let expected = rounds.checked_sub(1).map_or(0, |r| r * blocks + b + 1);
            assert_eq!(
                number(bytes, b),
                expected,
                "{name}, block {b}, newest {newest}"
            );
        }
        before = newest;
    }
    // Snapshots are independent of later changes of the volume.
    for (name, bytes) in &moments {
        assert!(site.all(&format!("data@{name}")) == *bytes, "{name}");
    }
    let mut reader = site.connect("data@a").unwrap();
    assert!(reader.write(0, &block(1)).is_err(), "nobody writes to it");
}

#[test]
fn snapshot_shares_space_until_it_is_written_and_frees_it() {
    let mut site = site(64);
    site.create("data", 16, "fast");
    let before = site.used();
    let mut guest = site.connect("data").unwrap();
    guest.write(0, &vec![1; 8 * MIB as usize]).unwrap();
    let written = site.used();
    site.snapshot("data", "a").unwrap();
    site.snapshot("data", "b").unwrap();
    assert_eq!(site.used(), written, "nothing was copied");
    guest.write(0, &block(7)).unwrap();
    assert_eq!(site.used(), written + Bytes::mib(1), "one extent was");
    guest.write(BLOCK, &block(8)).unwrap();
    assert_eq!(site.used(), written + Bytes::mib(1), "and is alone now");
    // Zeroes and trims of complete and partial shared extents.
    guest.zero(MIB + 512, 512).unwrap();
    guest.trim(2 * MIB + 512, 512).unwrap();
    guest.trim(3 * MIB, 1 << 20).unwrap();
    guest.zero(4 * MIB, 1 << 20).unwrap();
    for name in ["data@a", "data@b"] {
        assert!(site.all(name)[..8 * MIB as usize].iter().all(|b| *b == 1));
    }
    assert_eq!(guest.read(0, 8).unwrap(), 7u64.to_le_bytes());
    assert_eq!(guest.read(MIB, 512).unwrap(), [1; 512]);
    assert_eq!(guest.read(MIB + 512, 512).unwrap(), [0; 512]);
    assert_eq!(guest.read(4 * MIB, 512).unwrap(), [0; 512]);
    // Snapshots and sharing survive a restart of the process.
    drop(guest);
    site.stop();
    site.serve(&["data", "data@a", "data@b"]);
    for name in ["data@a", "data@b"] {
        assert!(site.all(name)[..8 * MIB as usize].iter().all(|b| *b == 1));
    }
    let mut guest = site.connect("data").unwrap();
    guest.write(5 * MIB, &block(9)).unwrap();
    assert!(
        site.all("data@b")[..8 * MIB as usize]
            .iter()
            .all(|b| *b == 1)
    );
    let refused = site.let_go("data").unwrap_err();
    assert!(refused.contains("data@a and 1 more"), "{refused}");
    site.let_go("data@a").unwrap();
    site.let_go("data@b").unwrap();
    drop(guest);
    wait_for("it can be deleted", || site.let_go("data").is_ok());
    wait_for("all is free", || site.used() == before);
}

#[test]
fn volume_is_reverted_to_a_snapshot_only_without_connections() {
    let mut site = site(64);
    site.create("data", 8, "fast");
    let mut guest = site.connect("data").unwrap();
    guest.write(MIB, &block(1)).unwrap();
    site.snapshot("data", "monday").unwrap();
    let kept = site.all("data");
    guest.write(MIB, &block(2)).unwrap();
    guest.write(5 * MIB, &block(3)).unwrap();
    site.snapshot("data", "tuesday").unwrap();
    let newer = site.all("data");
    let refused = site.restore("data@monday").unwrap_err();
    assert!(
        refused.contains("1 connection of a guest is open"),
        "{refused}"
    );
    guest.write(MIB, &block(4)).unwrap();
    drop(guest);
    wait_for("it is restored", || site.restore("data@monday").is_ok());
    assert!(site.all("data") == kept);
    assert!(site.all("data@tuesday") == newer);
    let mut guest = site.connect("data").unwrap();
    guest.write(MIB, &block(5)).unwrap();
    assert!(site.all("data@monday") == kept, "it is shared again");
    drop(guest);
    wait_for("it is restored", || site.restore("data@tuesday").is_ok());
    assert!(site.all("data") == newer);
    for (wrong, why) in [
        ("data", "is not a snapshot"),
        ("data@never", "unknown volume"),
    ] {
        let refused = site.restore(wrong).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    for (volume, name, why) in [
        ("data", "monday", "already"),
        ("data@monday", "again", "is a snapshot, and"),
        ("data", "a@b", "invalid snapshot name"),
        ("data", "", "invalid snapshot name"),
        ("nothing", "a", "unknown volume"),
    ] {
        let refused = site.snapshot(volume, name).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let resized = site.ask(ControlRequest::Resize {
        volume: "data@monday".into(),
        size: Bytes::mib(9),
    });
    assert!(resized.unwrap_err().contains("never changes"));
    site.stop();
    let map = array::Array::open(&site.path("array")).unwrap();
    let report = map.check().unwrap();
    assert!(report.is_clean(), "{report:?}");
}
