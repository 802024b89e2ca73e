//! Invariants for any interleaving of writes, trims, collections, transfers, arrivals and departures.

use std::collections::{BTreeMap, BTreeSet};

use flash::FlashError;
use flash::ftl::{FlashWork, Ftl, FtlConfig, Sharing, Streams, TenantId, TenantSpec, Victim};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Operation {
    Write(u8, u16),
    /// Consecutive pages, so that collection has work.
    Burst(u8, u16),
    Trim(u8, u16),
    HandOver(u8, u8, u8),
    Return(u8, u8),
    Grant(u8, u8),
    Come(u16, u8),
    Go(u8),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (any::<u8>(), any::<u16>()).prop_map(|(t, p)| Operation::Write(t, p)),
        6 => (any::<u8>(), any::<u16>()).prop_map(|(t, p)| Operation::Burst(t, p)),
        3 => (any::<u8>(), any::<u16>()).prop_map(|(t, p)| Operation::Trim(t, p)),
        3 => (any::<u8>(), any::<u8>(), 1u8..5).prop_map(|(a, b, n)| Operation::HandOver(a, b, n)),
        1 => (any::<u8>(), 1u8..5).prop_map(|(t, n)| Operation::Return(t, n)),
        1 => (any::<u8>(), 1u8..5).prop_map(|(t, n)| Operation::Grant(t, n)),
        1 => (20u16..200, 3u8..12).prop_map(|(p, s)| Operation::Come(p, s)),
        1 => any::<u8>().prop_map(Operation::Go),
    ]
}

pub(crate) fn victims() -> impl Strategy<Value = Victim> {
    prop_oneof![
        Just(Victim::Greedy),
        Just(Victim::CostBenefit),
        (1u8..6).prop_map(Victim::Choices)
    ]
}

pub(crate) fn streams() -> impl Strategy<Value = Streams> {
    prop_oneof![
        Just(Streams::One),
        Just(Streams::HostAndCollected),
        Just(Streams::HotAndCold)
    ]
}

/// Draws a way to share. `isolated` is the weight of isolated blocks; each other way has weight 1.
pub(crate) fn sharings(isolated: u32) -> impl Strategy<Value = Sharing> {
    prop_oneof![
        1 => Just(Sharing::OnePool),
        isolated => Just(Sharing::Isolated),
        1 => Just(Sharing::HandlesInitially),
        1 => Just(Sharing::HandlesPersistently)
    ]
}

fn config() -> impl Strategy<Value = FtlConfig> {
    let pages = prop_oneof![Just(4u32), Just(7), Just(16)];
    (
        victims(),
        streams(),
        sharings(3),
        pages,
        any::<bool>(),
        1u32..3,
    )
        .prop_map(
            |(victim, streams, sharing, pages_per_block, summary_page, lanes)| FtlConfig {
                blocks: 192,
                pages_per_block,
                spare_share: 0.45,
                reserve_blocks: 9,
                victim,
                streams,
                sharing,
                summary_page,
                lanes,
                handles: 4,
                seed: 3,
            },
        )
}

/// Keeps real contents: physical pages hold the programmed data until their block is erased.
struct Flash {
    stride: u32,
    /// Map from physical page to (logical name, version).
    cells: BTreeMap<u32, (u16, u32, u64)>,
    writing: (u16, u32, u64),
    erased: u64,
    programs: u64,
    foreign: u64,
    owner: Option<u16>,
}

impl FlashWork for Flash {
    fn programmed(&mut self, page: u32) {
        self.programs += 1;
        let before = self.cells.insert(page, self.writing);
        assert!(
            before.is_none(),
            "page {page} is programmed twice without an erasure"
        );
    }
    fn copied(&mut self, block: u32, survivors: &[u64], to: u32) {
        for (survivor, at) in survivors.iter().zip(to..) {
            self.programs += 1;
            let from = block * self.stride + (survivor >> 32) as u32;
            let what = self.cells[&from];
            if self.owner.is_some_and(|o| o != what.0) {
                self.foreign += 1;
            }
            let before = self.cells.insert(at, what);
            assert!(
                before.is_none(),
                "page {at} is programmed twice without an erasure"
            );
        }
    }
    fn summarized(&mut self, _: u32) {
        self.programs += 1;
    }
    fn erased(&mut self, block: u32, _: u32) {
        self.erased += 1;
        let range = block * self.stride..(block + 1) * self.stride;
        let gone: Vec<u32> = self.cells.range(range).map(|(p, _)| *p).collect();
        for page in gone {
            self.cells.remove(&page);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn flash_loses_no_page_under_random_operations(config in config(), operations in prop::collection::vec(operation(), 1..160)) {
        let isolated = config.sharing == Sharing::Isolated;
        let mut ftl = match Ftl::new(config.clone()) {
            Ok(ftl) => ftl,
            Err(FlashError::SpareTooSmall { .. } | FlashError::ReserveTooSmall { .. }) => return Ok(()),
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        let mut flash = Flash {
            stride: ftl.stride(), cells: BTreeMap::new(), writing: (0, 0, 0), erased: 0, programs: 0, foreign: 0, owner: None,
        };
        let mut live: Vec<TenantId> = Vec::new();
        for pages in [60, 90] {
            live.extend(ftl.add_tenant(TenantSpec { pages, spare_blocks: 14 }));
        }
        // Content that the host expects: (tenant, page) to version.
        let mut model: BTreeMap<(u16, u32), u64> = BTreeMap::new();
        let mut version = 0;
        let pick = |live: &[TenantId], t: u8| live[usize::from(t) % live.len()];
        for operation in operations {
            if live.is_empty() && !matches!(operation, Operation::Come(..)) {
                continue;
            }
            match operation {
                Operation::Write(t, p) | Operation::Burst(t, p) => {
                    let tenant = pick(&live, t);
                    let pages = ftl.pages_of(tenant).unwrap();
                    let n = if matches!(operation, Operation::Burst(..)) { 80 } else { 1 };
                    for i in 0..n {
                        let page = (u32::from(p) + i * 7) % pages;
                        version += 1;
                        flash.writing = (tenant.0, page, version);
                        flash.owner = isolated.then_some(tenant.0);
                        ftl.write(tenant, page, &mut flash);
                        model.insert((tenant.0, page), version);
                    }
                }
                Operation::Trim(t, p) => {
                    let tenant = pick(&live, t);
                    let page = u32::from(p) % ftl.pages_of(tenant).unwrap();
                    ftl.trim(tenant, page);
                    model.remove(&(tenant.0, page));
                }
                Operation::HandOver(a, b, n) => {
                    let (from, to) = (pick(&live, a), pick(&live, b));
                    flash.owner = isolated.then_some(from.0);
                    let spare = ftl.spare_blocks(from);
                    match ftl.hand_over(from, Some(to), n.into(), &mut flash) {
                        Ok(()) if from != to => {
                            prop_assert_eq!(ftl.spare_blocks(from).unwrap() + u32::from(n), spare.unwrap());
                        }
                        Ok(()) => {}
                        Err(FlashError::NotIsolated) => prop_assert!(!isolated),
                        Err(other) => prop_assert!(matches!(other, FlashError::SpareTooSmall { .. }), "{}", other),
                    }
                }
                Operation::Return(t, n) => {
                    flash.owner = isolated.then_some(pick(&live, t).0);
                    let before = ftl.unowned_blocks();
                    if ftl.hand_over(pick(&live, t), None, n.into(), &mut flash).is_ok() {
                        prop_assert_eq!(ftl.unowned_blocks(), before + u32::from(n));
                    }
                }
                Operation::Grant(t, n) => {
                    let _ = ftl.grant(pick(&live, t), n.into());
                }
                Operation::Come(pages, spare) => {
                    if live.len() < 4 {
                        let came = ftl.add_tenant(TenantSpec { pages: pages.into(), spare_blocks: spare.into() });
                        live.extend(came);
                    }
                }
                Operation::Go(t) => {
                    let tenant = pick(&live, t);
                    flash.owner = None;
                    ftl.remove_tenant(tenant, &mut flash).unwrap();
                    live.retain(|l| *l != tenant);
                    model.retain(|k, _| k.0 != tenant.0);
                }
            }
        }
        prop_assert_eq!(ftl.verify(), Ok(()));
        prop_assert_eq!(flash.foreign, 0);
        // Every page is at its mapped place with its last content, and no two pages share a place.
        let mut places = BTreeSet::new();
        for tenant in &live {
            for page in 0..ftl.pages_of(*tenant).unwrap() {
                let at = ftl.read(*tenant, page);
                let held = at.map(|at| flash.cells[&at]);
                let want = model.get(&(tenant.0, page)).map(|v| (tenant.0, page, *v));
                prop_assert_eq!(held, want);
                if let Some(at) = at {
                    prop_assert!(places.insert(at));
                }
            }
            if isolated {
                prop_assert_eq!(ftl.moves(*tenant).foreign, 0);
                prop_assert_eq!(ftl.moves(*tenant).by_others, 0);
            }
        }
        prop_assert_eq!(places.len(), model.len());
    }
}

/// Checks the counts against the flash operations.
#[test]
fn counts_match_the_flash_operations() {
    for sharing in [
        Sharing::OnePool,
        Sharing::Isolated,
        Sharing::HandlesInitially,
        Sharing::HandlesPersistently,
    ] {
        let config = FtlConfig {
            blocks: 128,
            pages_per_block: 16,
            spare_share: 0.3,
            reserve_blocks: 4,
            handles: 3,
            sharing,
            streams: Streams::HostAndCollected,
            ..FtlConfig::default()
        };
        let mut ftl = Ftl::new(config).unwrap();
        let tenants: Vec<TenantId> = (0..3)
            .map(|_| {
                ftl.add_tenant(TenantSpec {
                    pages: 400,
                    spare_blocks: 12,
                })
                .unwrap()
            })
            .collect();
        let mut flash = Flash {
            stride: 16,
            cells: BTreeMap::new(),
            writing: (0, 0, 0),
            erased: 0,
            programs: 0,
            foreign: 0,
            owner: None,
        };
        let mut random = algo::Rng::new(1, 2);
        for i in 0..30_000u64 {
            let tenant = tenants[random.below(3) as usize];
            let page = random.below(400) as u32;
            flash.writing = (tenant.0, page, i);
            ftl.write(tenant, page, &mut flash);
        }
        assert_eq!(ftl.host_writes(), 30_000);
        assert_eq!(ftl.flash_writes(), flash.programs);
        assert_eq!(ftl.erases(), flash.erased);
        let wear = ftl.wear();
        assert!((wear.mean * 128.0 - flash.erased as f64).abs() < 1e-6);
        assert!(f64::from(wear.least) <= wear.mean && wear.mean <= f64::from(wear.most));
        let own: u64 = tenants.iter().map(|t| ftl.moves(*t).own).sum();
        let foreign: u64 = tenants.iter().map(|t| ftl.moves(*t).foreign).sum();
        let by_others: u64 = tenants.iter().map(|t| ftl.moves(*t).by_others).sum();
        assert_eq!(foreign, by_others);
        assert_eq!(own + foreign + 30_000, flash.programs);
        match sharing {
            Sharing::Isolated => assert_eq!(foreign, 0),
            // Three equal tenants in one pool: a third of the moved pages are the tenant's own.
            Sharing::OnePool => {
                let share = own as f64 / (own + foreign) as f64;
                assert!((share - 1.0 / 3.0).abs() < 0.02, "{share}");
            }
            // Own blocks, but victims of any tenant.
            _ => assert!(foreign > 0),
        }
        let before = ftl.moved(tenants[0], tenants[1]);
        assert!(sharing == Sharing::Isolated || before > 0);
        ftl.clear_counts();
        assert_eq!(ftl.moved(tenants[0], tenants[1]), 0);
        ftl.verify().unwrap();
    }
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    let base = FtlConfig {
        blocks: 64,
        pages_per_block: 16,
        ..FtlConfig::default()
    };
    let refused = |config: FtlConfig| Ftl::new(config).unwrap_err().to_string();
    let text = refused(FtlConfig {
        spare_share: 0.03,
        ..base.clone()
    });
    assert!(
        text.contains("garbage collection needs 2 spare blocks"),
        "{text}"
    );
    let text = refused(FtlConfig {
        spare_share: f64::NAN,
        ..base.clone()
    });
    assert_eq!(text, "spare_share = NaN is outside 0.001..=0.95");
    let text = refused(FtlConfig {
        reserve_blocks: 1,
        ..base.clone()
    });
    assert_eq!(
        text,
        "1 reserve blocks are too few for 1 streams of garbage collection: 2 are required"
    );
    let text = refused(FtlConfig {
        blocks: 1 << 30,
        ..base.clone()
    });
    assert!(text.contains("scale the drive down"), "{text}");
    let isolated = FtlConfig {
        sharing: Sharing::Isolated,
        ..base
    };
    let mut ftl = Ftl::new(isolated).unwrap();
    let text = ftl
        .add_tenant(TenantSpec {
            pages: 112,
            spare_blocks: 2,
        })
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("garbage collection needs 2 spare blocks"),
        "{text}"
    );
    let text = ftl
        .add_tenant(TenantSpec {
            pages: 112,
            spare_blocks: 60,
        })
        .unwrap_err()
        .to_string();
    assert_eq!(text, "a tenant needs 67 erase blocks, but only 64 are free");
    let text = ftl
        .add_tenant(TenantSpec {
            pages: 5000,
            spare_blocks: 3,
        })
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "a tenant of 5000 pages does not fit: the largest free range has 921 pages"
    );
    assert_eq!(
        ftl.remove_tenant(TenantId(3), &mut ()),
        Err(FlashError::NoTenant(3))
    );
    ftl.verify().unwrap();
}
