//! For how long real devices of a served array were in use, by the kernel's count for the block devices below them.
//!
//! What the kernel counts is the time with anything under way, the array's or anybody else's: the most of the device that can have been in use. Devices of the
//! array that are files on one block device are dealt out its time by their I/O; what it did while none of them ended any is nobody's. Of what is on no block
//! device (memory, file systems of a network or of several devices) nothing is known. Partitions are block devices of their own.

use std::collections::BTreeMap;

use datapath::control_server::DeviceSample;

/// Bytes that count as much as one more request does, where a block device's time is dealt out.
const BYTES_PER_IO: u64 = 64 << 10;

/// What is asked of the kernel.
pub(crate) trait Blocks {
    /// The block device of a file, or that a path leads to.
    fn below(&self, path: &str) -> Option<u64>;

    /// How long a block device was in use, in nanoseconds, by a counter that grows.
    fn busy_ns(&self, block: u64) -> Option<u64>;
}

/// Counters by device's name.
#[derive(Debug, Default)]
pub(crate) struct BlockTimes {
    devices: BTreeMap<String, Counted>,
    /// Of block devices, as they were last read.
    blocks: BTreeMap<u64, u64>,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    block: u64,
    since_ns: u64,
    /// I/O since then, in requests and what counts as such.
    io: u64,
    busy_ns: u64,
}

impl BlockTimes {
    /// Takes in what devices have done by now, and what the kernel says; by device's name how long it was in use since it was first looked at. Emulated
    /// devices say it themselves.
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
                let counted = Counted {
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

    /// Block devices by number, with how long they were in use; files are on the one that their path begins with.
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

    /// Samples of one look, and the kernel's times then.
    type Look<'a> = (&'a [DeviceSample], &'a [(u64, u64)]);

    /// Times of some looks, in order of devices' names.
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
    fn a_device_of_its_own_has_all_of_its_time_whoever_used_it() {
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
    fn devices_on_one_disk_share_its_time_by_what_they_did() {
        let looks = |a, b, bytes| [device("a", "/8/x", a, bytes), device("b", "/8/y", b, 0)];
        let seen = times(&[
            (&looks(0, 0, 0), &[(8, 0)]),
            (&looks(30, 10, 0), &[(8, 400)]),
            // Others used it.
            (&looks(30, 10, 0), &[(8, 900)]),
            // A large request counts as several.
            (&looks(31, 20, 9 * BYTES_PER_IO), &[(8, 1_000)]),
        ]);
        assert_eq!(seen[1], named(&[("a", 300), ("b", 100)]));
        assert_eq!(seen[2], seen[1]);
        assert_eq!(seen[3], named(&[("a", 350), ("b", 150)]));
    }

    #[test]
    fn what_has_gone_what_is_on_no_disk_and_what_begins_anew() {
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
            // Of neither it is known how much it did since.
            (&anew, &[(8, 200)]),
            (&anew, &[]),
            (&emulated, &[(8, 900)]),
        ]);
        assert_eq!(seen[1], named(&[("b", 100)]));
        assert_eq!(seen[2], named(&[("a", 0), ("b", 100)]));
        assert_eq!((&seen[3], &seen[4]), (&vec![], &vec![]));
    }
}
