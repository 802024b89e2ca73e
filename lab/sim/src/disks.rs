//! Group of disks behind one device of the array: `[disks.TIER]`.
//!
//! ```text
//!  address ─▶ stripe, chunk ─▶ disk: first come, first served; positioning (none for sequential access), then transfer
//!  RAID 4, 5 and 6: a full-stripe write goes to all disks once; a smaller one reads, then writes its data and parity chunks
//!  write-back: completes at once; uses its disks later, and the parity disks for a tenth of that time
//! ```
//!
//! The times are those of [`algo::ServiceTime`]. Known deviations: disks do not reorder or read ahead, and write-back
//! memory is never full.

use algo::{DeviceCounters, ServiceTime, mix};
use config::find;
use config::scenario::{DisksConfig, Raid};
use model::{Op, Topology};
use units::Nanos;

use crate::device::{Io, count};
use crate::{ScenarioError, ScenarioFile};

/// Largest number of disks in a group.
const DISKS_MAX: u32 = 1024;

/// Group at the start of a run.
#[derive(Debug, Clone, Copy)]
pub struct DisksModel {
    service: ServiceTime,
    count: u32,
    raid: Raid,
    chunk: u64,
    /// Time that a write-back takes on its disk.
    write_back_ns: Option<f64>,
}

/// Time that a write-back takes on a parity disk, as a share of the time on its own disk.
const PARITY_SHARE: f64 = 0.1;

/// Returns the preset of a disk with the changes of the scenario.
fn service(preset: &ServiceTime, config: &DisksConfig) -> ServiceTime {
    let mut service = *preset;
    if let Some(positioning) = config.positioning {
        let ns = positioning.as_f64();
        (service.read_ns, service.write_ns) = (ns, ns);
        service.sequential_ns = service.sequential_ns.min(ns);
    }
    if let Some(spread) = config.spread {
        service.second_moment = 1.0 + spread * spread / 3.0;
    }
    if let Some(bandwidth) = config.bandwidth {
        service.byte_ns = 1e9 / bandwidth.as_f64();
    }
    service
}

impl ScenarioFile {
    /// Returns the group of each device; `None` for devices without one. `has_flash` marks devices that have a flash
    /// model.
    pub(crate) fn disks(
        &self,
        topology: &Topology,
        has_flash: impl Fn(usize) -> bool,
    ) -> Result<Vec<Option<DisksModel>>, ScenarioError> {
        let mut out = vec![None; topology.devices.len()];
        for (name, config) in &self.scenario.disks {
            let at = |key: &str| format!("disks.{name}.{key}");
            let names = topology.tiers.iter().map(|t| t.name.as_str());
            let tier = find(name, names)
                .map_err(|why| self.fault(&format!("disks.{name}"), format!("in tiers: {why}")))?;
            let known = ["disk-15k", "disk-7k2", "ssd-2010"];
            let preset = match find(&config.preset, known.into_iter()) {
                Ok(0) => ServiceTime::fc_15k(),
                Ok(1) => ServiceTime::sata_7k2(),
                Ok(_) => ServiceTime::flash_2010(),
                Err(why) => return Err(self.fault(&at("preset"), why)),
            };
            if let Some((key, why)) = config.fault() {
                return Err(self.fault(&at(key), why));
            }
            if let Some(why) = config.raid.refusal(config.count) {
                return Err(self.fault(&at("count"), why));
            }
            if config.count > DISKS_MAX {
                let why = format!("{} disks exceed the limit of {DISKS_MAX}", config.count);
                return Err(self.fault(&at("count"), why));
            }
            let chunk = config.chunk.0;
            if !chunk.is_power_of_two() || !(4096..=1 << 24).contains(&chunk) {
                let why = format!(
                    "{} is not a power of two between 4 KiB and 16 MiB",
                    config.chunk
                );
                return Err(self.fault(&at("chunk"), why));
            }
            for device in &topology.tiers[tier].devices {
                if has_flash(device.index()) {
                    let why =
                        "the tier's devices are SSDs of [flash]: use either [disks] or [flash]";
                    return Err(self.fault(&format!("disks.{name}"), why));
                }
                out[device.index()] = Some(DisksModel {
                    service: service(&preset, config),
                    count: config.count,
                    raid: config.raid,
                    chunk,
                    write_back_ns: config.write_back.map(Nanos::as_f64),
                });
            }
        }
        Ok(out)
    }
}

#[derive(Debug, Clone, Copy)]
struct Disk {
    free_ns: u64,
    /// Address at which the last access ended.
    ended_at: u64,
}

/// Disks of a group with their queues.
#[derive(Debug, Clone)]
pub(crate) struct DiskGroup {
    model: DisksModel,
    disks: Vec<Disk>,
    counters: DeviceCounters,
    /// Data disks that the present write-back touches.
    written: Vec<usize>,
}

impl DiskGroup {
    pub(crate) fn new(model: &DisksModel) -> Self {
        let nowhere = Disk {
            free_ns: 0,
            ended_at: u64::MAX,
        };
        Self {
            model: *model,
            disks: vec![nowhere; model.count as usize],
            counters: DeviceCounters::default(),
            written: Vec::with_capacity(model.count as usize),
        }
    }

    pub(crate) fn counters(&self) -> DeviceCounters {
        self.counters
    }

    pub(crate) fn submit(&mut self, now_ns: u64, io: &Io) -> u64 {
        count(&mut self.counters, io);
        match io.op {
            Op::Read | Op::Write => {}
            // A flush completes when all earlier writes are on the disks.
            Op::Flush => {
                let busiest = self.disks.iter().map(|d| d.free_ns).max();
                return busiest.unwrap_or(0).max(now_ns);
            }
            Op::Trim => return now_ns,
        }
        if let (Op::Write, Some(mean_ns)) = (io.op, self.model.write_back_ns) {
            self.write_back(now_ns, io, mean_ns);
            return now_ns;
        }
        let stripe_bytes = self.stripe_bytes();
        let (mut done, mut at, end) = (now_ns, io.at, io.at + io.length.max(1));
        while at < end {
            let stripe = at / stripe_bytes;
            let until = end.min((stripe + 1) * stripe_bytes);
            let within = (at - stripe * stripe_bytes)..(until - stripe * stripe_bytes);
            let bits = mix(io.bits, stripe);
            done = done.max(match io.op {
                Op::Read => self.read(now_ns, stripe, within, bits),
                _ => self.write(now_ns, stripe, within, bits),
            });
            at = until;
        }
        done
    }

    fn read(&mut self, now_ns: u64, stripe: u64, within: std::ops::Range<u64>, bits: u64) -> u64 {
        let mut done = now_ns;
        for (n, part) in chunks(within, self.model.chunk) {
            let mut disk = self.disk_of(stripe, n);
            if self.model.raid == Raid::Raid10 {
                let free = |d: usize| self.disks[d].free_ns;
                disk += usize::from(free(disk + 1) < free(disk));
            }
            done = done.max(self.access(now_ns, disk, Op::Read, stripe, part, mix(bits, n)));
        }
        done
    }

    fn write(&mut self, now_ns: u64, stripe: u64, within: std::ops::Range<u64>, bits: u64) -> u64 {
        let (chunk, raid) = (self.model.chunk, self.model.raid);
        let data = u64::from(raid.data_disks(self.model.count));
        let whole = within == (0..data * chunk);
        // The changed range of the parity covers the changed ranges of all chunks.
        let (mut first, mut last) = (chunk, 0);
        let mut done = now_ns;
        for (n, part) in chunks(within, chunk) {
            (first, last) = (first.min(part.start), last.max(part.end));
            let (disk, bits) = (self.disk_of(stripe, n), mix(bits, n));
            done = done.max(match raid {
                Raid::Raid0 => self.access(now_ns, disk, Op::Write, stripe, part, bits),
                Raid::Raid10 => {
                    let other = mix(bits, 1);
                    let second = part.clone();
                    self.access(now_ns, disk, Op::Write, stripe, part, bits)
                        .max(self.access(now_ns, disk + 1, Op::Write, stripe, second, other))
                }
                Raid::Raid4 | Raid::Raid5 | Raid::Raid6 => {
                    self.changed(now_ns, disk, stripe, part, (whole, bits))
                }
            });
        }
        for p in 0..self.parities() {
            let disk = self.parity_of(stripe, p);
            let bits = mix(bits, 0xB17 + p);
            done = done.max(self.changed(now_ns, disk, stripe, first..last, (whole, bits)));
        }
        done
    }

    fn parities(&self) -> u64 {
        match self.model.raid {
            Raid::Raid0 | Raid::Raid10 => 0,
            Raid::Raid4 | Raid::Raid5 => 1,
            Raid::Raid6 => 2,
        }
    }

    /// Returns the disk of a stripe's parity. Parity moves down by one disk per stripe; in RAID 4 it is on the last
    /// disk.
    fn parity_of(&self, stripe: u64, p: u64) -> usize {
        let count = u64::from(self.model.count);
        if self.model.raid == Raid::Raid4 {
            return self.model.count as usize - 1;
        }
        ((count - 1 + count - stripe % count + p) % count) as usize
    }

    /// Returns the disk of a stripe's nth data chunk; for a mirrored pair, the first disk.
    fn disk_of(&self, stripe: u64, n: u64) -> usize {
        match self.model.raid {
            Raid::Raid0 | Raid::Raid4 => n as usize,
            Raid::Raid10 => 2 * n as usize,
            // Data follows the last parity, around the group.
            Raid::Raid5 | Raid::Raid6 => {
                let after = self.parity_of(stripe, self.parities() - 1) as u64 + 1;
                ((after + n) % u64::from(self.model.count)) as usize
            }
        }
    }

    /// Writes a part of a chunk whose parity must change. Reads it first, unless the full stripe is written.
    fn changed(
        &mut self,
        now_ns: u64,
        disk: usize,
        stripe: u64,
        part: std::ops::Range<u64>,
        (whole, bits): (bool, u64),
    ) -> u64 {
        if !whole {
            self.access(now_ns, disk, Op::Read, stripe, part.clone(), mix(bits, 2));
        }
        self.access(now_ns, disk, Op::Write, stripe, part, bits)
    }

    /// Performs one access of a disk and returns its end.
    fn access(
        &mut self,
        now_ns: u64,
        which: usize,
        op: Op,
        stripe: u64,
        part: std::ops::Range<u64>,
        bits: u64,
    ) -> u64 {
        let (service, chunk) = (&self.model.service, self.model.chunk);
        let at = stripe * chunk + part.start;
        let disk = &mut self.disks[which];
        let bytes = (part.end - part.start) as f64;
        let positioned = service.draw_ns(op, bytes, (bits >> 11) as f64 / (1u64 << 53) as f64);
        // If it is faster, the disk lets the parity chunk in between pass below its head instead of positioning.
        let takes = match at.checked_sub(disk.ended_at) {
            Some(gap) if gap <= chunk => {
                let passing = service.sequential_ns + (gap as f64 + bytes) * service.byte_ns;
                passing.min(positioned)
            }
            _ => positioned,
        };
        disk.ended_at = at + (part.end - part.start);
        self.takes(now_ns, which, takes)
    }

    /// Charges a write that is already complete to the disks: once per data disk, because one disk writes all its
    /// chunks together, and once per stripe for parity.
    fn write_back(&mut self, now_ns: u64, io: &Io, mean_ns: f64) {
        let (chunk, stripe_bytes) = (self.model.chunk, self.stripe_bytes());
        let end = io.at + io.length.max(1);
        let mut written = std::mem::take(&mut self.written);
        written.clear();
        for stripe in io.at / stripe_bytes..end.div_ceil(stripe_bytes) {
            let bits = mix(io.bits, stripe);
            let begins = stripe * stripe_bytes;
            let within = io.at.max(begins) - begins..end.min(begins + stripe_bytes) - begins;
            for (n, _) in chunks(within, chunk) {
                let (disk, bits) = (self.disk_of(stripe, n), mix(bits, n));
                if written.contains(&disk) {
                    continue;
                }
                written.push(disk);
                self.written_back(now_ns, disk, mean_ns, bits);
                if self.model.raid == Raid::Raid10 {
                    self.written_back(now_ns, disk + 1, mean_ns, mix(bits, 1));
                }
            }
            for p in 0..self.parities() {
                let (disk, bits) = (self.parity_of(stripe, p), mix(bits, 0xB17 + p));
                self.written_back(now_ns, disk, PARITY_SHARE * mean_ns, bits);
            }
        }
        self.written = written;
    }

    /// Charges one disk for its part of a write-back.
    fn written_back(&mut self, now_ns: u64, which: usize, mean_ns: f64, bits: u64) {
        let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
        let takes_ns = self.model.service.scattered_ns(mean_ns, unit);
        // The position of the head is unknown afterwards.
        self.disks[which].ended_at = u64::MAX;
        self.takes(now_ns, which, takes_ns);
    }

    /// Returns the data bytes of a stripe.
    fn stripe_bytes(&self) -> u64 {
        u64::from(self.model.raid.data_disks(self.model.count)) * self.model.chunk
    }

    /// Occupies a disk for the given time after its queued work. Returns the end.
    fn takes(&mut self, now_ns: u64, which: usize, takes_ns: f64) -> u64 {
        let disk = &mut self.disks[which];
        disk.free_ns = disk.free_ns.max(now_ns) + takes_ns as u64;
        let free_ns = disk.free_ns;
        let count = self.model.count;
        let (counts, of) = match self.model.raid {
            Raid::Raid4 => (which as u32 + 1 < count, count - 1),
            _ => (true, count),
        };
        if counts {
            self.counters.busy_ns += takes_ns / f64::from(of);
        }
        free_ns
    }
}

/// Splits a part of a stripe into chunks. Yields the number of each chunk and the range within it.
fn chunks(
    within: std::ops::Range<u64>,
    chunk: u64,
) -> impl Iterator<Item = (u64, std::ops::Range<u64>)> {
    let numbers = within.start / chunk..within.end.div_ceil(chunk);
    numbers.map(move |n| {
        let (first, end) = (n * chunk, (n + 1) * chunk);
        (
            n,
            within.start.max(first) - first..within.end.min(end) - first,
        )
    })
}

#[cfg(test)]
mod tests {
    use units::VolumeId;

    use super::*;

    fn group(raid: Raid, count: u32) -> DiskGroup {
        DiskGroup::new(&DisksModel {
            service: ServiceTime::sata_7k2(),
            count,
            raid,
            chunk: 65536,
            write_back_ns: None,
        })
    }

    fn io(op: Op, at: u64, length: u64, bits: u64) -> Io {
        Io {
            op,
            at,
            length,
            volume: VolumeId(0),
            copy: false,
            bits,
        }
    }

    /// Returns the number of busy disks after one request to an idle group, and the number of accesses.
    fn occupied(raid: Raid, count: u32, op: Op, at: u64, length: u64) -> (usize, f64) {
        let mut group = group(raid, count);
        group.submit(0, &io(op, at, length, 7));
        let busy = group.disks.iter().filter(|d| d.free_ns > 0).count();
        let each = ServiceTime::sata_7k2().mean_ns(Op::Read, 4096.0);
        (busy, group.counters.busy_ns * f64::from(count) / each)
    }

    #[test]
    fn redundancy_adds_disk_accesses() {
        let small = |raid, op| occupied(raid, 6, op, 3 * 65536, 4096);
        for raid in [
            Raid::Raid0,
            Raid::Raid10,
            Raid::Raid4,
            Raid::Raid5,
            Raid::Raid6,
        ] {
            assert_eq!(small(raid, Op::Read).0, 1, "{raid:?}");
        }
        for (raid, disks) in [
            (Raid::Raid0, 1),
            (Raid::Raid10, 2),
            (Raid::Raid4, 2),
            (Raid::Raid5, 2),
            (Raid::Raid6, 3),
        ] {
            assert_eq!(small(raid, Op::Write).0, disks, "{raid:?}");
        }
        // Means of many requests: a small write takes four or six accesses.
        for (raid, accesses) in [
            (Raid::Raid0, 1.0),
            (Raid::Raid10, 2.0),
            (Raid::Raid5, 4.0),
            (Raid::Raid6, 6.0),
        ] {
            let mut group = group(raid, 6);
            for i in 0..20_000 {
                let at = 4096 * (mix(i, 5) % (1 << 28));
                group.submit(0, &io(Op::Write, at, 4096, mix(i, 1)));
            }
            let each = ServiceTime::sata_7k2().mean_ns(Op::Write, 4096.0) * 20_000.0 / 6.0;
            let found = group.counters.busy_ns / each;
            assert!((found / accesses - 1.0).abs() < 0.02, "{raid:?}: {found}");
        }
        // A full-stripe write goes to each disk once and reads nothing.
        assert_eq!(occupied(Raid::Raid5, 6, Op::Write, 0, 5 * 65536).0, 6);
        let (_, accesses) = occupied(Raid::Raid5, 6, Op::Write, 5 * 65536, 5 * 65536);
        assert!(accesses < 6.0 * 2.0, "{accesses}");
    }

    #[test]
    fn disks_have_equal_shares_and_distinct_addresses() {
        for (raid, count) in [
            (Raid::Raid0, 5),
            (Raid::Raid10, 6),
            (Raid::Raid5, 5),
            (Raid::Raid6, 6),
        ] {
            let group = group(raid, count);
            let data = u64::from(raid.data_disks(count));
            let mut seen = vec![0u32; count as usize];
            for stripe in 0..u64::from(count) * 4 {
                let mut here: Vec<usize> = (0..data).map(|n| group.disk_of(stripe, n)).collect();
                here.extend((0..group.parities()).map(|p| group.parity_of(stripe, p)));
                here.iter().for_each(|d| seen[*d] += 1);
                here.sort_unstable();
                here.dedup();
                let all = data + group.parities();
                assert_eq!(here.len() as u64, all, "{raid:?}, stripe {stripe}");
            }
            // Only the first disk of a pair is named.
            let named = 1 + usize::from(raid == Raid::Raid10);
            assert!(
                seen.iter().step_by(named).all(|n| *n == seen[0]),
                "{seen:?}"
            );
        }
    }

    #[test]
    fn raid_4_has_its_parity_on_one_disk() {
        let four = group(Raid::Raid4, 5);
        for stripe in 0..20 {
            assert_eq!(four.parity_of(stripe, 0), 4);
            let data: Vec<usize> = (0..4).map(|n| four.disk_of(stripe, n)).collect();
            assert_eq!(data, [0, 1, 2, 3]);
        }
        // One reader keeps one disk busy. The group is busy by one divided by the number of data disks.
        let mut four = group(Raid::Raid4, 5);
        let done = four.submit(0, &io(Op::Read, 0, 4096, 7));
        assert!((four.counters.busy_ns * 4.0 - done as f64).abs() < 1.0);
    }

    #[test]
    fn write_back_is_acknowledged_at_once_and_uses_disk_time_later() {
        let mut group = group(Raid::Raid4, 5);
        group.model.write_back_ns = Some(1e6);
        const WRITES: u64 = 4000;
        for n in 0..WRITES {
            let at = 65536 * (mix(n, 3) % (1 << 24));
            assert_eq!(group.submit(77, &io(Op::Write, at, 4096, mix(n, 5))), 77);
        }
        let ms = |d: &Disk| (d.free_ns - 77) as f64 / 1e6;
        let data: f64 = group.disks[..4].iter().map(ms).sum();
        let each = data / WRITES as f64;
        assert!((each - 1.0).abs() < 0.03, "{each} ms");
        let parity = ms(&group.disks[4]) / WRITES as f64;
        assert!((parity - 0.1).abs() < 0.003, "{parity} ms");
        // A write larger than a chunk takes the same time on each disk.
        let mut one = super::DiskGroup::new(&DisksModel {
            raid: Raid::Raid0,
            count: 1,
            ..group.model
        });
        one.submit(0, &io(Op::Write, 0, 1 << 20, 3));
        assert!(one.disks[0].free_ns <= 2_000_000, "{:?}", one.disks);
        // A read waits for earlier write-backs of its disk, and a flush for all of them.
        let queue = group.disks[0].free_ns;
        assert!(group.submit(77, &io(Op::Read, 0, 4096, 1)) > queue);
        let busiest = group.disks.iter().map(|d| d.free_ns).max();
        assert_eq!(group.submit(77, &io(Op::Flush, 0, 0, 0)), busiest.unwrap());
    }

    #[test]
    fn sequential_io_needs_no_seek_and_disks_work_in_parallel() {
        let mut one = group(Raid::Raid5, 5);
        let (mut now, mut n) = (0, 0);
        while n < 400 {
            now = one.submit(now, &io(Op::Read, n * 65536, 65536, n));
            n += 1;
        }
        let alone = ServiceTime::sata_7k2().mean_ns(Op::Read, 65536.0);
        assert!((now as f64) < 400.0 * 0.2 * alone, "{now}");
        // Parallel random reads use all disks on average.
        let mut group = group(Raid::Raid5, 5);
        let mut last = 0;
        for i in 0..10_000 {
            let at = 65536 * (mix(i, 3) % (1 << 24));
            last = last.max(group.submit(0, &io(Op::Read, at, 4096, mix(i, 9))));
        }
        let each = last as f64 / 10_000.0;
        let expected = ServiceTime::sata_7k2().mean_ns(Op::Read, 4096.0) / 5.0;
        assert!((each / expected - 1.0).abs() < 0.05, "{each} {expected}");
        assert_eq!(group.submit(0, &io(Op::Flush, 0, 0, 0)), last);
    }
}
