//! Tenants of one address space: owners of pages and blocks, and effect of shares.

use std::collections::BTreeMap;

use flash::FlashError;
use flash::ftl::{FlashWork, Ftl, FtlConfig, OpsShare, Sharing, TenantId};
use proptest::prelude::*;

use crate::properties::{sharings, streams, victims};

/// Physical pages: the last programmed content, until the block is erased.
#[derive(Default)]
struct Cells {
    stride: u32,
    cells: BTreeMap<u32, (u32, u64)>,
    writing: (u32, u64),
    programs: u64,
    erased: u64,
}

impl FlashWork for Cells {
    fn programmed(&mut self, page: u32) {
        self.programs += 1;
        let before = self.cells.insert(page, self.writing);
        assert!(before.is_none(), "page {page} is programmed twice");
    }
    fn copied(&mut self, block: u32, survivors: &[u64], to: u32) {
        for (survivor, at) in survivors.iter().zip(to..) {
            self.programs += 1;
            let what = self.cells[&(block * self.stride + (survivor >> 32) as u32)];
            let before = self.cells.insert(at, what);
            assert!(before.is_none(), "page {at} is programmed twice");
        }
    }
    fn summarized(&mut self, _: u32) {
        self.programs += 1;
    }
    fn erased(&mut self, block: u32, _: u32) {
        self.erased += 1;
        for page in block * self.stride..(block + 1) * self.stride {
            self.cells.remove(&page);
        }
    }
}

#[derive(Debug, Clone)]
enum Operation {
    /// Consecutive or spread pages.
    Write(u8, u16, u16, u8),
    /// Tenant that trims.
    Trim(u8, u16, u16),
    Share(u8, Option<u8>),
    Go(u8),
    Come(Option<u8>),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (any::<u8>(), any::<u16>(), 1u16..400, 1u8..9)
            .prop_map(|(t, p, n, step)| Operation::Write(t, p, n, step)),
        2 => (any::<u8>(), any::<u16>(), 1u16..600).prop_map(|(t, p, n)| Operation::Trim(t, p, n)),
        2 => (any::<u8>(), prop::option::of(any::<u8>())).prop_map(|(t, s)| Operation::Share(t, s)),
        1 => any::<u8>().prop_map(Operation::Go),
        1 => prop::option::of(any::<u8>()).prop_map(Operation::Come),
    ]
}

fn config() -> impl Strategy<Value = FtlConfig> {
    let pages = prop_oneof![Just(4u32), Just(7), Just(16)];
    let spare = prop_oneof![Just(0.2), Just(0.5)];
    (
        victims(),
        streams(),
        sharings(4),
        pages,
        (any::<bool>(), spare),
        1u32..3,
    )
        .prop_map(|(victim, streams, sharing, pages_per_block, more, lanes)| {
            let config = FtlConfig {
                blocks: 256,
                pages_per_block,
                spare_share: more.1,
                reserve_blocks: 2,
                victim,
                streams,
                sharing,
                summary_page: more.0,
                lanes,
                handles: 4,
                seed: 3,
            };
            config.with_reserve_for_streams()
        })
}

fn ops(share: Option<u8>) -> OpsShare {
    share.map_or(OpsShare::ByData, |s| OpsShare::Given(f64::from(s) / 255.0))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, ..ProptestConfig::default() })]

    #[test]
    fn flash_loses_no_page_and_blocks_have_one_owner(
        config in config(), operations in prop::collection::vec(operation(), 1..120)
    ) {
        let isolated = config.sharing == Sharing::Isolated;
        let size = config.host_pages() as u32;
        let Ok(mut ftl) = Ftl::with_one_address_space(config, size) else {
            return Ok(());
        };
        let mut live: Vec<TenantId> = (0..2).map_while(|_| ftl.add_tenant_by_share(OpsShare::ByData).ok()).collect();
        if live.is_empty() {
            return Ok(());
        }
        let mut cells = Cells { stride: ftl.stride(), ..Cells::default() };
        // Content that the host expects: for each page its writer and time.
        let mut model: BTreeMap<u32, (TenantId, u64)> = BTreeMap::new();
        let mut version = 0;
        for operation in operations {
            let pick = |t: u8| live[usize::from(t) % live.len()];
            match operation {
                Operation::Write(t, p, n, step) => {
                    let tenant = pick(t);
                    for i in 0..u32::from(n) {
                        let page = (u32::from(p) + i * u32::from(step)) % size;
                        version += 1;
                        cells.writing = (page, version);
                        ftl.write(tenant, page, &mut cells);
                        model.insert(page, (tenant, version));
                    }
                }
                Operation::Trim(t, p, n) => {
                    for page in (u32::from(p)..).take(n.into()).map(|p| p % size) {
                        ftl.trim(pick(t), page);
                        model.remove(&page);
                    }
                }
                Operation::Share(t, share) => {
                    let (tenant, before) = (pick(t), ftl.ops_share(pick(t)).unwrap());
                    match ftl.set_ops_shares(&[(tenant, ops(share))]) {
                        Ok(()) => prop_assert!(isolated),
                        Err(FlashError::NotIsolated) => prop_assert!(!isolated),
                        Err(other) => {
                            prop_assert!(matches!(other, FlashError::Shares { .. }), "{}", other);
                            prop_assert_eq!(ftl.ops_share(tenant).unwrap(), before);
                        }
                    }
                }
                Operation::Go(t) if live.len() > 1 => {
                    let tenant = pick(t);
                    ftl.remove_tenant(tenant, &mut cells).unwrap();
                    live.retain(|l| *l != tenant);
                    model.retain(|_, v| v.0 != tenant);
                }
                Operation::Come(share) if live.len() < 4 => {
                    live.extend(ftl.add_tenant_by_share(ops(share)));
                }
                Operation::Go(_) | Operation::Come(_) => {}
            }
            prop_assert_eq!(ftl.verify(), Ok(()));
        }
        for page in 0..size {
            let held = ftl.read(live[0], page).map(|at| cells.cells[&at]);
            prop_assert_eq!(held, model.get(&page).map(|v| (page, v.1)));
        }
        for tenant in &live {
            let own = model.values().filter(|v| v.0 == *tenant).count() as u64;
            prop_assert_eq!(ftl.counts(*tenant).mapped, own);
            if isolated {
                prop_assert_eq!(ftl.moves(*tenant).foreign, 0);
                prop_assert_eq!(ftl.moves(*tenant).by_others, 0);
            }
        }
        prop_assert_eq!(ftl.flash_writes(), cells.programs);
        prop_assert_eq!(ftl.erases(), cells.erased);
    }
}

const BLOCKS: u32 = 512;

fn drive(sharing: Sharing, shares: &[OpsShare]) -> (Ftl, Vec<TenantId>, u32) {
    let config = FtlConfig {
        blocks: BLOCKS,
        pages_per_block: 64,
        spare_share: 0.15,
        sharing,
        handles: shares.len() as u32,
        ..FtlConfig::default()
    };
    let config = config.with_reserve_for_streams();
    let size = config.host_pages() as u32;
    let mut ftl = Ftl::with_one_address_space(config, size).unwrap();
    let tenants = shares.iter().map(|s| ftl.add_tenant_by_share(*s).unwrap());
    let tenants = tenants.collect();
    (ftl, tenants, size)
}

/// The first tenant overwrites its half of the drive in order, the second its half at random. Each writes as many pages
/// as the drive has.
fn two_loads(ftl: &mut Ftl, tenants: &[TenantId], size: u32, rounds: u32) {
    let half = size / 2;
    // Other pages than the last time.
    let mut random = algo::Rng::new((ftl.wear().mean * 1e3) as u64, u64::from(rounds));
    for i in 0..rounds * half {
        ftl.write(tenants[0], i % half, &mut ());
        let page = half + random.below(half.into()) as u32;
        ftl.write(tenants[1], page, &mut ());
    }
}

fn fill_halves(ftl: &mut Ftl, tenants: &[TenantId], size: u32) {
    for page in 0..size {
        let tenant = tenants[usize::from(page >= size / 2)];
        ftl.write(tenant, page, &mut ());
    }
}

/// Returns the write amplification of a tenant's writes, and how often its own pages were moved by any tenant.
fn amplification(sharing: Sharing) -> [(f64, f64); 2] {
    let (mut ftl, tenants, size) = drive(sharing, &[OpsShare::ByData; 2]);
    fill_halves(&mut ftl, &tenants, size);
    two_loads(&mut ftl, &tenants, size, 3);
    ftl.clear_counts();
    two_loads(&mut ftl, &tenants, size, 3);
    ftl.verify().unwrap();
    [0, 1].map(|t| {
        let (counts, moves) = (ftl.counts(tenants[t]), ftl.moves(tenants[t]));
        let moved = (moves.own + moves.by_others) as f64 / counts.host_writes as f64;
        (ftl.write_amplification_of(tenants[t]).unwrap(), moved)
    })
}

#[test]
fn isolated_sequential_writer_is_not_amplified_by_a_random_one() {
    let [in_order, at_random] = amplification(Sharing::OnePool);
    assert!(in_order.0 > 1.5 && at_random.0 > 1.5, "{in_order:?}");
    assert!(in_order.1 > 0.5, "{in_order:?}");
    let [in_order, at_random] = amplification(Sharing::Isolated);
    assert!(in_order.0 < 1.02, "{in_order:?}");
    // Half of the spare blocks for half of the data equals a drive of its own.
    assert!((3.1..3.9).contains(&at_random.0), "{at_random:?}");
    // Handles separate data but not spare space: collection takes blocks that would soon be invalid, and blocks of the
    // other tenant.
    let [in_order, _] = amplification(Sharing::HandlesPersistently);
    assert!(in_order.0 > 1.5, "{in_order:?}");
}

#[test]
fn spare_share_is_ownership_beyond_data_and_changes_take_effect() {
    let shares = [OpsShare::Given(0.25), OpsShare::ByData];
    let (mut ftl, tenants, size) = drive(Sharing::Isolated, &shares);
    fill_halves(&mut ftl, &tenants, size);
    two_loads(&mut ftl, &tenants, size, 3);
    let spare = |ftl: &Ftl| [0, 1].map(|t| ftl.spare_blocks(tenants[t]).unwrap());
    let all: u32 = spare(&ftl).iter().sum();
    let near = |is: u32, share: f64| (f64::from(is) - share * f64::from(all)).abs() <= 2.0;
    assert!(near(spare(&ftl)[0], 0.25), "{:?} of {all}", spare(&ftl));
    ftl.clear_counts();
    two_loads(&mut ftl, &tenants, size, 1);
    let before = ftl.write_amplification_of(tenants[1]).unwrap();
    // No block is collected at once, and no data is lost.
    let erases = ftl.erases();
    ftl.set_ops_shares(&[(tenants[0], OpsShare::Given(0.75))])
        .unwrap();
    assert_eq!(ftl.erases(), erases);
    ftl.verify().unwrap();
    two_loads(&mut ftl, &tenants, size, 2);
    assert!(near(spare(&ftl)[0], 0.75), "{:?} of {all}", spare(&ftl));
    ftl.clear_counts();
    two_loads(&mut ftl, &tenants, size, 1);
    let after = ftl.write_amplification_of(tenants[1]).unwrap();
    assert!(after > 1.4 * before, "{after} {before}");
}

#[test]
fn leaving_or_trimmed_tenant_frees_its_blocks_for_others() {
    let shares = [OpsShare::Given(0.5), OpsShare::Given(0.3)];
    let (mut ftl, tenants, size) = drive(Sharing::Isolated, &shares);
    fill_halves(&mut ftl, &tenants, size);
    two_loads(&mut ftl, &tenants, size, 2);
    for page in 0..size / 2 {
        ftl.trim(tenants[1], page);
    }
    ftl.verify().unwrap();
    assert_eq!(ftl.spare_blocks(tenants[0]), Ok(0));
    // The share without an owner stays unowned. The other tenant gets the rest as it writes.
    let mut random = algo::Rng::new(1, 9);
    for _ in 0..3 * size {
        let page = size / 2 + random.below((size / 2).into()) as u32;
        ftl.write(tenants[1], page, &mut ());
    }
    ftl.verify().unwrap();
    let data = (size / 2).div_ceil(64);
    let spare = BLOCKS - data;
    let owned = ftl.spare_blocks(tenants[1]).unwrap();
    assert!(
        (f64::from(owned) - 0.8 * f64::from(spare)).abs() < 3.0,
        "{owned} of {spare}"
    );
    assert_eq!(ftl.unowned_blocks(), spare - owned);
    // The tenant writes again, and the other one yields its blocks.
    fill_halves(&mut ftl, &tenants, size);
    two_loads(&mut ftl, &tenants, size, 2);
    ftl.verify().unwrap();
    let spare = BLOCKS - size.div_ceil(64);
    let owned = ftl.spare_blocks(tenants[0]).unwrap();
    assert!(
        (f64::from(owned) - 0.5 * f64::from(spare)).abs() < 3.0,
        "{owned} of {spare}"
    );
}

#[test]
fn settled_shares_are_owned_at_once() {
    let shares = [OpsShare::Given(0.25), OpsShare::ByData];
    let (mut ftl, tenants, size) = drive(Sharing::Isolated, &shares);
    fill_halves(&mut ftl, &tenants, size);
    let spare = |ftl: &Ftl| [0, 1].map(|t| ftl.spare_blocks(tenants[t]).unwrap());
    for share in [0.25, 0.75, 0.1] {
        ftl.set_ops_shares(&[(tenants[0], OpsShare::Given(share))])
            .unwrap();
        ftl.settle(&mut ());
        ftl.verify().unwrap();
        let all = f64::from(spare(&ftl).iter().sum::<u32>() + ftl.unowned_blocks());
        let is = f64::from(spare(&ftl)[0]);
        assert!((is - share * all).abs() <= 1.0, "{is} of {all}");
        assert!(ftl.unowned_blocks() <= 1);
        two_loads(&mut ftl, &tenants, size, 1);
        ftl.verify().unwrap();
    }
}

#[test]
fn tenants_in_one_pool_change_only_the_attribution() {
    let (mut alone, one, size) = drive(Sharing::OnePool, &[OpsShare::ByData]);
    two_loads(&mut alone, &[one[0], one[0]], size, 3);
    let (mut two, tenants, size) = drive(Sharing::OnePool, &[OpsShare::ByData; 2]);
    two_loads(&mut two, &tenants, size, 3);
    assert_eq!(alone.flash_writes(), two.flash_writes());
    assert_eq!(alone.wear(), two.wear());
    let config = alone.config().clone();
    let (mut ranges, tenant) = Ftl::with_one_tenant(config).unwrap();
    two_loads(&mut ranges, &[tenant, tenant], size, 3);
    assert_eq!(ranges.flash_writes(), two.flash_writes());
}

#[test]
fn invalid_shares_are_refused_without_effect() {
    let (mut ftl, tenants, _) = drive(
        Sharing::Isolated,
        &[OpsShare::Given(0.6), OpsShare::Given(0.3)],
    );
    let more = ftl.add_tenant_by_share(OpsShare::Given(0.2)).unwrap_err();
    assert!(more.to_string().contains("which exceeds 1"), "{more}");
    let up = ftl.set_ops_shares(&[(tenants[1], OpsShare::Given(0.5))]);
    assert!(matches!(up, Err(FlashError::Shares { .. })));
    let neither = ftl.set_ops_shares(&[(tenants[1], OpsShare::Given(-0.5))]);
    assert!(matches!(neither, Err(FlashError::Range { .. })));
    // Both changes together are valid.
    ftl.set_ops_shares(&[
        (tenants[1], OpsShare::Given(0.6)),
        (tenants[0], OpsShare::Given(0.4)),
    ])
    .unwrap();
    assert_eq!(
        ftl.set_ops_shares(&[(TenantId(7), OpsShare::ByData)]),
        Err(FlashError::NoTenant(7))
    );
    assert_eq!(
        ftl.hand_over(tenants[0], None, 1, &mut ()),
        Err(FlashError::ByShare)
    );
    assert_eq!(ftl.grant(tenants[0], 1), Err(FlashError::ByShare));
    let (mut pool, tenants, _) = drive(Sharing::OnePool, &[OpsShare::ByData]);
    assert_eq!(
        pool.set_ops_shares(&[(tenants[0], OpsShare::Given(0.5))]),
        Err(FlashError::NotIsolated)
    );
    // 16 blocks beyond the data are too few for the reserves of this number of tenants.
    let config = FtlConfig {
        blocks: 128,
        spare_share: 0.125,
        sharing: Sharing::Isolated,
        ..FtlConfig::default()
    };
    let size = config.host_pages() as u32;
    let mut tight = Ftl::with_one_address_space(config, size).unwrap();
    for _ in 0..3 {
        tight.add_tenant_by_share(OpsShare::ByData).unwrap();
    }
    let why = tight.add_tenant_by_share(OpsShare::ByData).unwrap_err();
    assert!(
        why.to_string()
            .starts_with("4 isolated tenants need 18 spare erase blocks"),
        "{why}"
    );
}
