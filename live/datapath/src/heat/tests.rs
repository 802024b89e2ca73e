//! Several readers, compared with an oracle that keeps all counts.

use std::collections::BTreeMap;

use algo::Rng;

use super::*;

const EXTENT: u64 = 1 << 16;

fn request(op: GuestOp, offset: u64, length: u64) -> GuestRequest {
    GuestRequest {
        op,
        offset,
        length,
        fua: false,
    }
}

/// Reader that looks at times and keeps all results.
#[derive(Default)]
struct Watcher {
    at: Option<(u64, u32)>,
    known: BTreeMap<u32, Heat>,
}

impl Watcher {
    fn look(&mut self, map: &mut HeatMap) -> Vec<u32> {
        let mut seen = map.look(self.at);
        seen.touched.sort_unstable_by_key(|t| t.0);
        if self.at.is_none_or(|at| at.0 != seen.since_ns) {
            self.known.clear();
        }
        self.at = Some((seen.since_ns, seen.turn));
        assert!(seen.touched.windows(2).all(|p| p[0].0 < p[1].0), "rising");
        let extents = seen.touched.iter().map(|t| t.0).collect();
        self.known.extend(seen.touched);
        extents
    }
}

#[test]
fn heat_watchers_see_all_changes_since_their_last_read() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed, 0x4ea7);
        let extents = 1 + rng.below(3000);
        let mut map = HeatMap::new(5, extents as usize, EXTENT).unwrap();
        let mut all: BTreeMap<u32, Heat> = BTreeMap::new();
        let mut watchers: Vec<(Watcher, BTreeMap<u32, Heat>)> = vec![];
        watchers.resize_with(3, Default::default);
        for _ in 0..rng.below(400) {
            for _ in 0..rng.below(60) {
                // Most requests touch few extents.
                let near = 1 + rng.below(extents);
                let extent = rng.below(near);
                let offset = extent * EXTENT + rng.below(EXTENT);
                let length = rng.below(3 * EXTENT);
                let op = [GuestOp::Read, GuestOp::Write, GuestOp::Trim, GuestOp::Flush]
                    [rng.below(4) as usize];
                map.count(9, &request(op, offset, length));
                let last = (offset + length.max(1) - 1) / EXTENT;
                for extent in (extent..=last).filter(|e| *e < extents) {
                    match op {
                        GuestOp::Read => all.entry(extent as u32).or_default().reads += 1,
                        GuestOp::Write => all.entry(extent as u32).or_default().writes += 1,
                        _ => {}
                    }
                }
            }
            let who = rng.below(3) as usize;
            let (watcher, before) = &mut watchers[who];
            let extents = watcher.look(&mut map);
            let grew = all.iter().filter(|(e, h)| before.get(e) != Some(h));
            assert_eq!(
                extents,
                grew.map(|g| *g.0).collect::<Vec<_>>(),
                "seed {seed}"
            );
            assert_eq!(watcher.known, all, "seed {seed}");
            *before = all.clone();
        }
        assert!(
            map.log.len() <= 2 * all.len() + LOG_SLACK + 1,
            "it is tidied"
        );
        let (touched, hottest) = map.hottest(usize::MAX);
        assert_eq!(touched, all.len() as u64);
        assert_eq!(hottest.iter().copied().collect::<BTreeMap<_, _>>(), all);
        assert!(
            hottest
                .windows(2)
                .all(|p| p[0].1.requests() >= p[1].1.requests())
        );
    }
}

#[test]
fn full_heat_counter_restarts_the_counts() {
    let mut map = HeatMap::new(100, 4, EXTENT).unwrap();
    let read = request(GuestOp::Read, 2 * EXTENT, 512);
    map.count(100, &read);
    let first = map.look(None);
    assert_eq!((first.since_ns, first.turn, first.extents), (100, 1, 4));
    map.cells[2].heat.reads = u32::MAX - 2;
    map.count(100, &read);
    let second = map.look(Some((100, 1)));
    assert_eq!(second.touched[0].1.reads, u32::MAX - 1);
    map.count(100, &read);
    let third = map.look(Some((second.since_ns, second.turn)));
    assert_eq!((third.since_ns, third.touched), (101, vec![]));
    map.count(200, &read);
    assert_eq!(
        map.look(Some((100, 7))).touched.len(),
        1,
        "a turn of another beginning"
    );
    assert_eq!(map.look(Some((101, 0))).touched.len(), 1);
}

#[test]
fn reads_of_idle_heat_counts_do_not_advance_the_turn() {
    let mut map = HeatMap::new(0, 2, EXTENT).unwrap();
    map.count(0, &request(GuestOp::Write, 0, 1));
    let turns: Vec<u32> = (0..5).map(|_| map.look(None).turn).collect();
    assert_eq!(turns, [1; 5]);
    assert_eq!(map.look(Some((0, 1))).touched, []);
}

#[test]
fn heat_has_an_extent_limit_and_allows_any_extent_size() {
    assert!(HeatMap::new(0, HEAT_EXTENTS_MAX + 1, EXTENT).is_none());
    let mut map = HeatMap::new(0, 1, 12_345).unwrap();
    map.count(0, &request(GuestOp::Read, 12_344, 1));
    assert_eq!(
        map.look(None).touched,
        [(
            0,
            Heat {
                reads: 1,
                writes: 0
            }
        )]
    );
}
