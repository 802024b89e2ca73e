//! Reports of a guest, made by hand and by QEMU: their consistency, and their comparison with the disk.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::guest::{BLOCK_BYTES, Guest, Log, LostWrite};

const READ: u32 = 0x4200;
const WRITE: u32 = 0x4300;

fn boot(number: u32) -> Vec<u8> {
    let mut bytes = vec![0xff; 9];
    bytes.push(b'B');
    bytes.extend((number << 24).to_le_bytes());
    bytes
}

fn record(tag: char, block: u32, value: u32) -> Vec<u8> {
    let mut bytes = vec![tag as u8];
    bytes.extend(block.to_le_bytes());
    bytes.extend(value.to_le_bytes());
    bytes
}

fn sequence(boot: u32, write: u32) -> u32 {
    (boot << 24) + write
}

/// Returns the report of a first boot with these records, whose writes are numbered from 1.
fn first_boot(records: &[(char, u32, u32)]) -> Vec<u8> {
    let mut bytes = boot(1);
    for &(tag, block, value) in records {
        let value = if tag == 'E' {
            value
        } else {
            sequence(1, value)
        };
        bytes.extend(record(tag, block, value));
    }
    bytes
}

/// Returns an image whose blocks have these sequence numbers.
fn image(blocks: &[u32]) -> Vec<u8> {
    let mut image = vec![0; BLOCK_BYTES];
    for (block, sequence) in blocks.iter().enumerate() {
        image.extend(content(*sequence, block as u32));
    }
    image
}

fn content(sequence: u32, block: u32) -> Vec<u8> {
    let pair = [sequence.to_le_bytes(), block.to_le_bytes()].concat();
    let pair = if sequence == 0 { vec![0; 8] } else { pair };
    pair.repeat(BLOCK_BYTES / 8)
}

fn wrong(bytes: &[u8]) -> String {
    Log::read(bytes).expect_err("a wrong report")
}

#[test]
fn report_records_are_counted() {
    let mut bytes = first_boot(&[('W', 0, 1), ('R', 0, 1), ('W', 1, 2), ('W', 0, 3)]);
    bytes.extend(record('R', 5, 0));
    bytes.extend(record('E', 5, READ | 0x0c));
    let log = Log::read(&bytes).unwrap();
    let counts = (log.boots(), log.writes(), log.reads(), log.errors());
    assert_eq!(counts, (1, 3, 2, 1));
    let empty = Log::read(&[]).unwrap();
    assert_eq!((empty.boots(), empty.writes()), (0, 0));
}

#[test]
fn report_may_be_truncated_at_any_byte() {
    let mut bytes = first_boot(&[('W', 0, 1), ('W', 1, 2), ('R', 0, 1)]);
    bytes.extend(boot(2));
    bytes.extend(record('W', 7, sequence(2, 1)));
    for end in 0..=bytes.len() {
        let log = Log::read(&bytes[..end]).unwrap();
        let writes = [23, 32, 64].iter().filter(|&&at| at <= end).count();
        assert_eq!(log.writes(), writes, "{end} bytes");
    }
}

#[test]
fn reset_may_occur_at_any_byte() {
    let whole = first_boot(&[('W', 0, 1), ('W', 1, 2)]);
    for end in 0..=whole.len() {
        let mut bytes = whole[..end].to_vec();
        bytes.extend(boot(2));
        bytes.extend(record('W', 7, sequence(2, 1)));
        let log = Log::read(&bytes).unwrap();
        assert_eq!(log.boots(), 1 + usize::from(end >= 14), "{end} bytes");
        let writes = [23, 32].iter().filter(|&&at| at <= end).count();
        assert_eq!(log.writes(), 1 + writes, "{end} bytes");
    }
}

#[test]
fn invalid_report_is_named_with_its_offset() {
    assert_eq!(wrong(b"SeaBIOS"), "offset 0: no boot");
    let mut bytes = first_boot(&[('W', 0, 1)]);
    let start = bytes.clone();
    bytes.extend(record('X', 0, 0));
    assert_eq!(wrong(&bytes), "offset 23: no record: 0x58 0x0 0x0");
    for (tag, block, value) in [('R', u32::MAX, 0), ('E', 0, 0x4400), ('E', 0, READ)] {
        let bytes = [start.clone(), record(tag, block, value)].concat();
        assert!(wrong(&bytes).starts_with("offset 23: no "), "{tag}");
    }
    // The serial port has lost a byte.
    let mut bytes = first_boot(&[('W', 0, 1), ('W', 1, 2), ('W', 2, 3)]);
    bytes.remove(25);
    assert!(wrong(&bytes).starts_with("offset 23: "));
}

#[test]
fn sequence_numbers_must_not_skip_or_restart() {
    let skipped = first_boot(&[('W', 0, 1), ('W', 1, 3)]);
    assert_eq!(
        wrong(&skipped),
        "offset 23: write 0x1000003 instead of 0x1000002"
    );
    let again = first_boot(&[('W', 0, 1), ('W', 1, 1)]);
    assert!(wrong(&again).starts_with("offset 23: write "));
    let twice = [boot(2), boot(2)].concat();
    assert_eq!(wrong(&twice), "offset 24: boot at 0x2000000");
    assert!(wrong(&[boot(2), boot(1)].concat()).starts_with("offset 24: boot"));
    let zero = boot(0);
    assert!(wrong(&zero).starts_with("offset 10: boot"));
}

#[test]
fn read_must_return_the_newest_acknowledged_write() {
    let stale = first_boot(&[('W', 4, 1), ('W', 4, 2), ('R', 4, 1)]);
    assert_eq!(
        wrong(&stale),
        "offset 32: read of block 4 found 0x1000001, acknowledged was 0x1000002"
    );
    let newer = first_boot(&[('W', 4, 1), ('R', 4, 2)]);
    assert!(wrong(&newer).starts_with("offset 23: read of block 4"));
    let other = first_boot(&[('W', 4, 1), ('R', 5, 1)]);
    assert_eq!(
        wrong(&other),
        "offset 23: read of block 5 found 0x1000001, which nobody wrote there"
    );
    let torn = first_boot(&[('W', 4, 1), ('T', 4, 1)]);
    assert!(wrong(&torn).starts_with("offset 23: torn: read of block 4"));
    let mut gone = first_boot(&[('W', 4, 1)]);
    gone.extend(record('R', 4, 0));
    assert!(wrong(&gone).starts_with("offset 23: read of block 4"));
}

#[test]
fn log_may_begin_after_the_first_boot() {
    let older = [boot(3), record('R', 0, sequence(2, 9))].concat();
    assert_eq!(Log::read(&older).unwrap().reads(), 1);
    let changed = [older.clone(), record('R', 0, sequence(2, 8))].concat();
    assert!(wrong(&changed).starts_with("offset 23: read of block 0"));
    let log = Log::read(&older).unwrap();
    assert_eq!(log.lost_in(&image(&[sequence(2, 9)])), []);
    assert_eq!(log.lost_in(&image(&[sequence(2, 8)])).len(), 1);
    let torn = [boot(3), record('T', 0, 0)].concat();
    assert_eq!(Log::read(&torn).unwrap().reads(), 1);
}

#[test]
fn write_in_flight_at_a_reset_may_be_present_or_not() {
    let mut bytes = first_boot(&[('W', 0, 1), ('W', 1, 2)]);
    bytes.extend(boot(2));
    let reset = bytes.clone();
    for found in [sequence(1, 1), sequence(1, 3)] {
        let read = [reset.clone(), record('R', 0, found)].concat();
        let log = Log::read(&read).unwrap();
        assert_eq!(log.lost_in(&image(&[found, sequence(1, 2)])), []);
        let back = [read, record('R', 0, sequence(1, 1))].concat();
        assert_eq!(
            Log::read(&back).is_ok(),
            found == sequence(1, 1),
            "what was seen stays"
        );
    }
    let unknown = [reset.clone(), record('R', 0, sequence(1, 4))].concat();
    assert!(wrong(&unknown).starts_with("offset 46: read of block 0"));
    let log = Log::read(&reset).unwrap();
    assert_eq!(log.lost_in(&image(&[sequence(1, 1), sequence(1, 3)])), []);
    assert_eq!(
        log.lost_in(&image(&[sequence(1, 1), sequence(1, 4)])).len(),
        1
    );
}

#[test]
fn failed_write_may_be_present_or_not() {
    let mut bytes = first_boot(&[('W', 0, 1), ('E', 0, WRITE | 0x0c), ('W', 1, 3)]);
    let log = Log::read(&bytes).unwrap();
    assert_eq!((log.writes(), log.errors()), (2, 1));
    for found in [1, 2] {
        let image = image(&[sequence(1, found), sequence(1, 3)]);
        assert_eq!(log.lost_in(&image), []);
    }
    bytes.extend(record('T', 0, sequence(1, 2)));
    assert!(Log::read(&bytes).is_ok());
    bytes.extend(record('R', 0, sequence(1, 2)));
    assert!(Log::read(&bytes).is_ok());
    let failed_read = first_boot(&[('W', 0, 1), ('E', 0, READ | 0x0c), ('W', 1, 3)]);
    assert!(wrong(&failed_read).starts_with("offset 32: write"));
}

#[test]
fn stale_block_is_lost() {
    let log = Log::read(&first_boot(&[('W', 0, 1), ('W', 1, 2), ('W', 0, 3)])).unwrap();
    let [old, other, new] = [1, 2, 3].map(|write| sequence(1, write));
    assert_eq!(log.lost_in(&image(&[new, other])), []);
    let lost = LostWrite {
        block: 0,
        acknowledged: new,
        found: [old; 8],
    };
    assert_eq!(
        log.lost_in(&image(&[old, other])),
        std::slice::from_ref(&lost)
    );
    assert_eq!(
        lost.to_string(),
        "block 0: 0x1000003 was acknowledged, its sectors have [1000001, 1000001, 1000001, 1000001, 1000001, 1000001, 1000001, 1000001]"
    );
    assert_eq!(log.lost_in(&image(&[0, other])).len(), 1);
    assert_eq!(log.lost_in(&image(&[new])).len(), 1, "the image is short");
    assert_eq!(log.lost_in(&[]).len(), 2);
    // The blocks are swapped.
    assert_eq!(log.lost_in(&image(&[other, new])).len(), 2);
    let swapped = [vec![0; BLOCK_BYTES], content(other, 1), content(new, 0)].concat();
    assert_eq!(log.lost_in(&swapped).len(), 2);
}

#[test]
fn torn_block_is_lost_unless_its_write_was_in_flight() {
    let log = Log::read(&first_boot(&[('W', 0, 1), ('W', 1, 2), ('W', 0, 3)])).unwrap();
    let [old, other, new, under_way] = [1, 2, 3, 4].map(|write| sequence(1, write));
    let with = |sequence, sectors: std::ops::Range<usize>| {
        let mut image = image(&[new, other]);
        let content = &content(sequence, 0)[..512 * sectors.len()];
        image[BLOCK_BYTES + 512 * sectors.start..BLOCK_BYTES + 512 * sectors.end]
            .copy_from_slice(content);
        image
    };
    let lost = log.lost_in(&with(old, 7..8));
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].found, [new, new, new, new, new, new, new, old]);
    assert_eq!(log.lost_in(&with(0, 0..1)).len(), 1);
    assert_eq!(log.lost_in(&with(under_way, 0..3)), []);
    assert_eq!(log.lost_in(&with(under_way, 0..8)), []);
    let mut scribbled = with(under_way, 0..3);
    scribbled[BLOCK_BYTES + 100] ^= 1;
    assert_eq!(log.lost_in(&scribbled)[0].found[0], 0);
}

#[test]
#[should_panic(expected = "48 blocks")]
fn block_count_is_a_power_of_two() {
    Guest {
        requests_per_tick: 1,
        blocks: 48,
    }
    .boot_sector();
}

const GUEST: Guest = Guest {
    requests_per_tick: 20,
    blocks: 256,
};

/// QEMU with a guest on a raw file. It is killed when dropped, if it still runs.
struct Machine {
    dir: tempfile::TempDir,
    qemu: Child,
}

impl Machine {
    fn start(guest: Guest, interface: &str, disk_bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = fs::File::options();
        let disk = disk.write(true).create_new(true);
        let disk = disk.open(dir.path().join("disk")).unwrap();
        disk.set_len(disk_bytes).unwrap();
        disk.write_all_at(&guest.boot_sector(), 0).unwrap();
        let qemu = Command::new("qemu-system-x86_64")
            .args("-nodefaults -display none -M pc -accel tcg -m 32 -monitor stdio".split(' '))
            .args(["-serial", "file:log", "-drive"])
            .arg(format!("file=disk,format=raw,if={interface}"))
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { dir, qemu }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        bytes(&self.path(name))
    }

    /// Reads the log until `ask` returns a value, for four minutes at most, and returns the value.
    #[expect(
        clippy::disallowed_methods,
        reason = "the guest is in a real machine that takes its time"
    )]
    fn wait<T>(&self, mut ask: impl FnMut(Result<Log, String>) -> Option<T>) -> T {
        for _ in 0..2400 {
            if let Some(found) = ask(Log::read(&self.read("log"))) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("not in the log after four minutes");
    }

    /// Waits for this number of boots, and for this number of further writes.
    fn wait_for(&self, boots: usize, more_writes: usize) {
        let mut until = None;
        self.wait(|log| {
            let log = log.unwrap();
            let until = *until.get_or_insert(log.writes() + more_writes);
            (log.boots() >= boots && log.writes() >= until).then_some(())
        });
    }

    fn reset(&mut self) {
        let monitor = self.qemu.stdin.as_mut().unwrap();
        monitor.write_all(b"system_reset\n").unwrap();
    }

    fn kill(&mut self) {
        self.qemu.kill().unwrap();
        self.qemu.wait().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what QEMU wrote is in files, early on perhaps not yet"
)]
fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}

#[test]
fn killed_guest_loses_no_write_and_an_older_image_does() {
    if !testkit::needs::programs(&["qemu-system-x86_64"]) {
        return;
    }
    for interface in ["virtio", "ide"] {
        let mut machine = Machine::start(GUEST, interface, GUEST.disk_bytes());
        machine.wait_for(1, 200);
        machine.reset();
        machine.wait_for(2, 200);
        let older = machine.read("disk");
        machine.wait_for(2, 200);
        machine.kill();
        let log = Log::read(&machine.read("log")).unwrap();
        assert_eq!((log.boots(), log.errors()), (2, 0));
        assert!(log.reads() > log.writes() / 2);
        assert_eq!(log.lost_in(&machine.read("disk")), []);
        let lost = log.lost_in(&older);
        assert!(lost.len() > 50, "{lost:?}");
        let [_, boots, ..] = older.as_chunks::<512>().0 else {
            panic!("a short disk")
        };
        assert_eq!(boots[..4], 2_u32.to_le_bytes());
    }
}

#[test]
fn block_changed_behind_the_guest_is_found_by_its_reads() {
    if !testkit::needs::programs(&["qemu-system-x86_64"]) {
        return;
    }
    for (sectors, wrong) in [(8, ": read of block "), (1, ": torn: read of block ")] {
        let guest = Guest {
            blocks: 64,
            ..GUEST
        };
        let machine = Machine::start(guest, "virtio", guest.disk_bytes());
        machine.wait_for(1, 200);
        let disk = machine.path("disk");
        let disk = fs::File::options().write(true).open(disk).unwrap();
        for block in 1..=u64::from(guest.blocks) {
            let end = BLOCK_BYTES as u64 * (block + 1);
            let zeroes = vec![0; 512 * sectors];
            disk.write_all_at(&zeroes, end - zeroes.len() as u64)
                .unwrap();
        }
        let found = machine.wait(|log| log.err());
        assert!(found.contains(wrong), "{found}");
    }
}

#[test]
fn failed_requests_are_reported_and_no_write_is_lost() {
    if !testkit::needs::programs(&["qemu-system-x86_64"]) {
        return;
    }
    let guest = Guest {
        blocks: 1024,
        ..GUEST
    };
    let mut machine = Machine::start(guest, "virtio", guest.disk_bytes() / 2);
    machine.wait(|log| (log.unwrap().errors() > 100).then_some(()));
    machine.kill();
    let log = Log::read(&machine.read("log")).unwrap();
    assert!(log.writes() > 20 && log.reads() > 20, "{log:?}");
    assert_eq!(log.lost_in(&machine.read("disk")), []);
}
