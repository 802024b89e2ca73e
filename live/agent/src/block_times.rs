//! Times in which real devices of a served array were in use, from the kernel's counters of the block devices below
//! them.
//!
//! The kernel counts the time in which any request is in flight, of the array or of another user. The result is an
//! upper bound for the time in which the array used the device. Array devices that are files on one block device share
//! its time in proportion to their I/O. Time in which none of these files completed I/O is assigned to none. A device
//! without a block device below it (memory, network file systems, file systems of several devices) has no value. Each
//! partition is a block device of its own.

use std::collections::BTreeMap;

use datapath::control_server::DeviceSample;

/// Bytes that count as one more request when the time of a block device is divided.
const BYTES_PER_IO: u64 = 64 << 10;

/// Source of the kernel's counters.
pub(crate) trait Blocks {
    /// Returns the number of the block device at this path, or of the one below the file at this path.
    fn below(&self, path: &str) -> Option<u64>;

    /// Returns the time in which a block device was in use, in nanoseconds, as a counter that only grows.
    fn busy_ns(&self, block: u64) -> Option<u64>;
}

/// Counters by device name.
#[derive(Debug, Default)]
pub(crate) struct BlockTimes {
    devices: BTreeMap<String, BlockCounters>,
    /// Counters of block devices at the last reading.
    blocks: BTreeMap<u64, u64>,
}

#[derive(Debug, Clone, Copy)]
struct BlockCounters {
    block: u64,
    since_ns: u64,
    /// I/O since then, in requests and their equivalents in bytes.
    io: u64,
    busy_ns: u64,
}

impl BlockTimes {
    /// Adds the devices' I/O and the kernel's counters up to now. Returns by device name the time in use since the
    /// device was first seen. Emulated devices are left out, because they report their own time.
    pub(crate) fn look(
        &mut self,
        devices: &[DeviceSample],
        kernel: &impl Blocks,
    ) -> BTreeMap<String, u64> {
        let real = devices.iter().filter(|d| d.emulate.is_none());
        let below = real.filter_map(|d| Some((kernel.below(&d.path)?, d)));
        let mut by_block: BTreeMap<u64, Vec<&DeviceSample>> = BTreeMap::new();
        below.for_each(|(block, d)| by_block.entry(block).or_default().push(d));
        let before = std::mem::take(&mut self.blocks);
        let earlier = std::mem::take(&mut self.devices);
        for (block, of) in by_block {
            let Some(now_ns) = kernel.busy_ns(block) else {
                continue;
            };
            self.blocks.insert(block, now_ns);
            let more_ns = before.get(&block).map_or(0, |b| now_ns.saturating_sub(*b));
            let known = |d: &DeviceSample| earlier.get(&d.name).filter(|k| k.block == block);
            let done = |d: &DeviceSample| {
                let same = known(d).filter(|k| k.since_ns == d.since_ns);
                same.map_or(0, |k| io(d).saturating_sub(k.io))
            };
            let all: u64 = of.iter().map(|d| done(d)).sum();
            for d in &of {
                let own_ns = match (of.len(), all) {
                    (1, _) => more_ns,
                    (_, 0) => 0,
                    _ => (u128::from(more_ns) * u128::from(done(d)) / u128::from(all)) as u64,
                };
                let counted = BlockCounters {
                    block,
                    since_ns: d.since_ns,
                    io: io(d),
                    busy_ns: known(d).map_or(0, |k| k.busy_ns) + own_ns,
                };
                self.devices.insert(d.name.clone(), counted);
            }
        }
        let all = self.devices.iter();
        all.map(|(name, of)| (name.clone(), of.busy_ns)).collect()
    }
}

fn io(d: &DeviceSample) -> u64 {
    d.reads + d.writes + (d.read_bytes + d.write_bytes) / BYTES_PER_IO
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    /// Block devices by number, with their time in use. The first directory of a file's path names its block device.
    struct Fake(BTreeMap<u64, u64>);

    impl Blocks for Fake {
        fn below(&self, path: &str) -> Option<u64> {
            path.split('/').nth(1)?.parse().ok()
        }

        fn busy_ns(&self, block: u64) -> Option<u64> {
            self.0.get(&block).copied()
        }
    }

    fn device(name: &str, path: &str, reads: u64, read_bytes: u64) -> DeviceSample {
        DeviceSample {
            name: name.into(),
            tier: "t".into(),
            path: path.into(),
            size: Bytes(1),
            used: Bytes(0),
            emulate: None,
            connected: true,
            since_ns: 1,
            reads,
            writes: 0,
            read_bytes,
            write_bytes: 0,
            stages: datapath::stages::DeviceStagesSample::default(),
            errors: vec![],
        }
    }

    /// Samples of one reading, and the kernel's times at that moment.
    type Look<'a> = (&'a [DeviceSample], &'a [(u64, u64)]);

    /// Times after each of several readings, in order of device names.
    fn times(looks: &[Look<'_>]) -> Vec<Vec<(String, u64)>> {
        let mut times = BlockTimes::default();
        let look = |(devices, blocks): &Look<'_>| {
            let kernel = Fake(blocks.iter().copied().collect());
            times.look(devices, &kernel).into_iter().collect()
        };
        looks.iter().map(look).collect()
    }

    fn named(times: &[(&str, u64)]) -> Vec<(String, u64)> {
        times.iter().map(|(n, ns)| (n.to_string(), *ns)).collect()
    }

    #[test]
    fn device_on_its_own_disk_has_all_its_busy_time() {
        let idle = [device("a", "/8/x", 5, 0)];
        let seen = times(&[
            (&idle, &[(8, 1_000)]),
            (&idle, &[(8, 1_300)]),
            (&idle, &[(8, 1_350)]),
        ]);
        assert_eq!(
            seen,
            [
                named(&[("a", 0)]),
                named(&[("a", 300)]),
                named(&[("a", 350)])
            ]
        );
    }

    #[test]
    fn devices_on_one_disk_share_busy_time_by_their_work() {
        let looks = |a, b, bytes| [device("a", "/8/x", a, bytes), device("b", "/8/y", b, 0)];
        let seen = times(&[
            (&looks(0, 0, 0), &[(8, 0)]),
            (&looks(30, 10, 0), &[(8, 400)]),
            // Other users used it.
            (&looks(30, 10, 0), &[(8, 900)]),
            // A large request counts as several.
            (&looks(31, 20, 9 * BYTES_PER_IO), &[(8, 1_000)]),
        ]);
        assert_eq!(seen[1], named(&[("a", 300), ("b", 100)]));
        assert_eq!(seen[2], seen[1]);
        assert_eq!(seen[3], named(&[("a", 350), ("b", 150)]));
    }

    #[test]
    fn busy_time_excludes_removed_devices_and_unattributable_io() {
        let both = [device("a", "/8/x", 10, 0), device("b", "/8/y", 10, 0)];
        let one = [device("b", "/8/y", 30, 0), device("c", "/tmpfs/z", 9, 9)];
        let mut anew = device("b", "/8/y", 4, 0);
        anew.since_ns = 2;
        let anew = [device("a", "/8/x", 5, 0), anew];
        let emulated = model::preset("pm953").map(|p| p.spec());
        let emulated = [DeviceSample {
            emulate: emulated,
            ..device("b", "/8/y", 99, 0)
        }];
        let seen = times(&[
            (&both, &[(8, 0)]),
            (&one, &[(8, 100)]),
            // The I/O since then is unknown for both.
            (&anew, &[(8, 200)]),
            (&anew, &[]),
            (&emulated, &[(8, 900)]),
        ]);
        assert_eq!(seen[1], named(&[("b", 100)]));
        assert_eq!(seen[2], named(&[("a", 0), ("b", 100)]));
        assert_eq!((&seen[3], &seen[4]), (&vec![], &vec![]));
    }
}
