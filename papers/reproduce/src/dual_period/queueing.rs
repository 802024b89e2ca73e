//! Selected cells of the grid in the queueing simulation, with devices, queues, and copies that compete with guests.
//!
//! Paper 1 counts I/Os without queueing. Here the same loads arrive at their times at two devices whose service times
//! differ as the paper's tiers do, and moves take device time. [`QueueingSetup::assumptions`] lists the assumptions.

use std::fmt::Write as _;

use planner::extents::{AdaptivePeriodConfig, DualPeriodConfig};
use serde::{Deserialize, Serialize};
use sim::{GroupKind, RunOptions, ScenarioFile};
use thiserror::Error;
use trace::conditions::{Construction, PAGES};

use super::Method;
use super::choice::Choice;
use super::grid::Grid;
use super::setup::SOME;

/// Shares of the fast tier in percent.
const SHARES: [u8; 2] = [10, 30];
const METHODS: [Method; 5] = [
    Method::Existing(1),
    Method::Existing(24),
    Method::Proposed(10),
    Method::Proposed(30),
    Method::Adaptive,
];
/// Number of warm-up days, as in the evaluation by counting.
const WARMUP_DAYS: u32 = 2;
/// Maximum length of a run in days: a longer run gives no new information.
const DAYS_MAX: u32 = 30;

/// Capability of the slow device: a small group of drives (assumed).
const SLOW_IOPS: u32 = 500;
const SLOW_LATENCY_NS: u64 = 6_000_000;
/// Speed of the fast device relative to the slow one (paper 1, table 2).
const RATIO: u32 = 180;
/// Number of volumes among which the pages are distributed, because a volume has one move at a time.
const VOLUMES: u32 = 8;
/// Rate of a copy.
const COPY_MIB_PER_S: u32 = 20;

/// Parameters of the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueingSetup {
    /// Length of a run, days.
    pub days: u32,
    /// Seed of all loads.
    pub seed: u64,
}

/// Invalid number of days.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "a queueing cell requires 3 to {DAYS_MAX} days, not {days}: the first two are not measured"
)]
pub struct QueueingDays {
    /// Requested number of days.
    pub days: u32,
}

/// Cell to run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueingJob {
    setup: QueueingSetup,
    condition: &'static str,
    share: u8,
    method: Method,
}

/// Result of a cell in the queueing simulation: a condition at a share of the fast tier under one method.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueueingCell {
    /// Condition.
    pub condition: String,
    /// Share of the fast tier, percent.
    pub fast_share_percent: u8,
    /// Method.
    pub method: String,
    /// Requests per second.
    pub iops: f64,
    /// Share of requests that the fast tier served.
    pub fast_hits: f64,
    /// Mean latency of guests in microseconds.
    pub latency_mean_us: f64,
    /// 99th percentile of the latency.
    pub latency_p99_us: f64,
    /// Bytes moved, including the warm-up.
    pub bytes_moved: u64,
    /// Number of completed moves.
    pub moves: u64,
    /// Total system I/O performance of the method in the evaluation by counting, relative to the slow tier.
    pub total_by_counting: f64,
}

/// Methods at one condition and share, in both orders.
#[derive(Debug, Clone, Serialize)]
pub struct Orders {
    /// Condition.
    pub condition: String,
    /// Share of the fast tier, percent.
    pub fast_share_percent: u8,
    /// Methods by total performance as counted, best first.
    pub by_counting: Vec<String>,
    /// Methods by mean latency, best first.
    pub by_latency: Vec<String>,
    /// Number of pairs of methods with the same order in both.
    pub pairs_alike: u32,
    /// Number of pairs.
    pub pairs: u32,
}

/// All cells.
#[derive(Debug, Clone, Serialize)]
pub struct Queueing {
    /// Setup of the runs.
    pub setup: QueueingSetup,
    /// Cells, ordered by condition.
    pub cells: Vec<QueueingCell>,
    /// Comparison of the order of methods with that of the counting.
    pub orders: Vec<Orders>,
    /// Assumptions.
    pub assumptions: Vec<String>,
}

impl QueueingSetup {
    /// Creates a setup.
    ///
    /// # Errors
    /// The run is too short to be measured, or longer than a month.
    pub fn new(days: u32, seed: u64) -> Result<Self, QueueingDays> {
        let sensible = (WARMUP_DAYS + 1..=DAYS_MAX).contains(&days);
        sensible
            .then_some(Self { days, seed })
            .ok_or(QueueingDays { days })
    }

    /// Returns conditions A, B, D and G, the last three with cycles of 1 h and 6 h and without one, at fast tiers of 10
    /// and 30 %.
    pub fn jobs(&self) -> Vec<QueueingJob> {
        let mut jobs = Vec::new();
        for condition in SOME {
            for share in SHARES {
                jobs.extend(METHODS.map(|method| QueueingJob {
                    setup: self.clone(),
                    condition,
                    share,
                    method,
                }));
            }
        }
        jobs
    }

    /// Returns the assumptions as text.
    pub fn assumptions(&self) -> Vec<String> {
        vec![
            format!("The slow tier is one device of {SLOW_IOPS} requests/s and 6 ms; the fast tier serves {RATIO} times as many in a {RATIO}th of the time, for reads and writes. The ratio of service times is the paper's ratio of I/O performance. The absolute latencies are ours, so only their order and ratios are results."),
            format!("The fast tier holds exactly as many pages as in the evaluation by counting, and 5 % more space for exchanges of pages. It is empty at the start."),
            format!("Pages of 10 MiB (the paper: 10 MB) are assigned to {VOLUMES} volumes in turn; one move at a time copies at most {COPY_MIB_PER_S} MiB/s in pieces of 128 KiB, which the devices serve like requests of guests."),
            "Conditions B to G have independent jitter, also in the evaluation by counting. Requests are drawn from the rates of each hour, 8 KiB, half of them reads. The device model does not distinguish sequential from random requests.".into(),
            format!("{} days, of which the first {WARMUP_DAYS} are not measured; one seed. The evaluation by counting has its own length.", self.days),
        ]
    }
}

impl QueueingJob {
    /// Returns the cell as a scenario for `terrace sim run`.
    pub fn scenario(&self) -> String {
        let Self {
            setup,
            condition,
            share,
            method,
        } = self;
        let page_mib = 10;
        let held = (u64::from(*share) * u64::from(PAGES) + 50) / 100;
        let space = held + held.div_ceil(20);
        let volume_mib = u64::from(PAGES.div_ceil(VOLUMES)) * page_mib;
        let mut text = format!(
            "name = \"dual-period {condition} {share}\"\nseed = {}\nduration = \"{}h\"\nwarmup = \"{}h\"\n\
             window = \"30m\"\nextent = \"10 MiB\"\ncopy_chunk = \"128 KiB\"\nstrategy = \"cell\"\n\
             [policy]\nmonitor_epoch = \"30m\"\nmigration_epoch = \"1h\"\ncopy_share = 1.0\n\
             concurrent_moves = 1\ncopy_bandwidth = \"{COPY_MIB_PER_S} MiB/s\"\nheadroom_space = {:.9}\n",
            setup.seed,
            24 * setup.days,
            24 * WARMUP_DAYS,
            // Half a page more, so that rounding removes none.
            (held as f64 + 0.5) / space as f64,
        );
        let slow_mib = u64::from(VOLUMES) * volume_mib + 1024;
        for (name, times, mib) in [("fast", RATIO, space * page_mib), ("slow", 1, slow_mib)] {
            let latency = SLOW_LATENCY_NS / u64::from(times);
            let iops = SLOW_IOPS * times;
            let bandwidth = times * 150;
            let _ = write!(
                text,
                "[[tiers]]\nname = \"{name}\"\nspec = {{ model = \"{name}\", capacity = \"{mib} MiB\", \
                 read_iops = {iops}.0, write_iops = {iops}.0, read_bandwidth = \"{bandwidth} MiB/s\", write_bandwidth = \"{bandwidth} MiB/s\", \
                 read_latency = \"{latency}ns\", write_latency = \"{latency}ns\", curve = [[0.0, 1.0]], jitter_sigma = 0.25, \
                 usd_per_gb = {} }}\n",
                if name == "fast" { "1.0" } else { "0.1" },
            );
        }
        let names: Vec<String> = (0..VOLUMES).map(|v| format!("\"v{v}\"")).collect();
        for name in &names {
            let _ = write!(
                text,
                "[[volumes]]\nname = {name}\nsize = \"{volume_mib} MiB\"\ntier = \"slow\"\n"
            );
        }
        let _ = write!(
            text,
            "[[generators]]\ncondition = \"{condition}\"\nvolumes = [{}]\n\
             [strategies.cell]\n{}",
            names.join(", "),
            parameters(*method)
        );
        text
    }

    /// Runs the cell.
    pub fn run(&self) -> QueueingCell {
        let file = ScenarioFile::parse("cell.toml", &self.scenario());
        let file = file.unwrap_or_else(|e| panic!("a cell is a scenario: {e}"));
        let model = file.build(vec![]);
        let model = model.unwrap_or_else(|e| panic!("a cell can be built: {e}"));
        let strategy = file.strategy("cell");
        let strategy = strategy.unwrap_or_else(|e| panic!("a cell has its method: {e}"));
        let options = RunOptions {
            series: false,
            decisions: false,
            optimum: None,
        };
        let result = sim::run(&model, strategy, Default::default(), options, &mut |_| {});
        let result = result.unwrap_or_else(|e| panic!("a plan keeps the rules: {e}"));
        let all = result.total().all;
        let mut tiers = result.of_kind(GroupKind::Tier);
        let fast = tiers.find(|t| t.name == "fast").map_or(0, |t| t.all.ios);
        QueueingCell {
            condition: self.condition.into(),
            fast_share_percent: self.share,
            method: self.method.name(),
            iops: all.iops,
            fast_hits: fast as f64 / all.ios.max(1) as f64,
            latency_mean_us: all.mean_us,
            latency_p99_us: all.p99_us,
            bytes_moved: result.moves.bytes,
            moves: result.moves.done,
            total_by_counting: 0.0,
        }
    }
}

/// Returns the strategy of a method with its parameters, in the notation of scenarios.
fn parameters(method: Method) -> String {
    match method {
        Method::Existing(hours) => format!("uses = \"period\"\nperiod = \"{hours}h\"\n"),
        Method::Proposed(share) => {
            let DualPeriodConfig { long, short, .. } = DualPeriodConfig::default();
            let share = f64::from(share) / 100.0;
            format!(
                "uses = \"dual-period\"\nlong = \"{long}\"\nshort = \"{short}\"\nshare = {share:?}\n"
            )
        }
        Method::Adaptive => {
            let AdaptivePeriodConfig { slot, season, .. } = AdaptivePeriodConfig::default();
            format!("uses = \"adaptive-period\"\nslot = \"{slot}\"\nseason = \"{season}\"\n")
        }
        other => unreachable!("{} is not among the cells", other.name()),
    }
}

impl Queueing {
    /// Combines the cells of all jobs with the results of the counting.
    pub(crate) fn new(setup: QueueingSetup, mut cells: Vec<QueueingCell>, grid: &Grid) -> Self {
        let view = grid.view(Choice::of(Construction::Jitter));
        for cell in &mut cells {
            let at = view.at(&cell.condition, cell.fast_share_percent);
            let method = METHODS.into_iter().find(|m| m.name() == cell.method);
            let method = method.expect("cells are of these methods");
            cell.total_by_counting = at[0].total(method);
        }
        let orders = cells.chunks(METHODS.len()).map(orders).collect();
        Self {
            assumptions: setup.assumptions(),
            setup,
            cells,
            orders,
        }
    }
}

fn orders(cells: &[QueueingCell]) -> Orders {
    let ranked = |better: &dyn Fn(&QueueingCell) -> f64| {
        let mut order: Vec<&QueueingCell> = cells.iter().collect();
        order.sort_by(|a, b| better(b).total_cmp(&better(a)));
        order.iter().map(|c| c.method.clone()).collect()
    };
    let (mut alike, mut pairs) = (0, 0);
    for (i, a) in cells.iter().enumerate() {
        for b in &cells[i + 1..] {
            pairs += 1;
            let counted = a.total_by_counting > b.total_by_counting;
            alike += u32::from(counted == (a.latency_mean_us < b.latency_mean_us));
        }
    }
    Orders {
        condition: cells[0].condition.clone(),
        fast_share_percent: cells[0].fast_share_percent,
        by_counting: ranked(&|c| c.total_by_counting),
        by_latency: ranked(&|c| -c.latency_mean_us),
        pairs_alike: alike,
        pairs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_is_a_scenario_with_the_published_capacity() {
        let setup = QueueingSetup::new(4, 1).unwrap();
        let jobs = setup.jobs();
        assert_eq!(jobs.len(), 10 * 2 * 5);
        for job in &jobs {
            let file = ScenarioFile::parse("cell.toml", &job.scenario()).unwrap();
            let model = file.build(vec![]).unwrap();
            file.strategy("cell").unwrap();
            let space = model.topology.devices[0].spec.capacity.as_f64();
            let pages = (space * model.policy.headroom.space / (10 << 20) as f64) as u32;
            // Paper 1: K = round(H · 8679).
            assert_eq!(pages, if job.share == 10 { 868 } else { 2604 });
            let [fast, slow] = [0, 1].map(|d: usize| &model.topology.devices[d].spec);
            assert_eq!(fast.read_iops / slow.read_iops, 180.0);
        }
        assert_eq!(QueueingSetup::new(2, 1), Err(QueueingDays { days: 2 }));
    }

    #[test]
    fn cell_counts_fast_tier_requests_and_copies_compete() {
        let mut setup = QueueingSetup::new(3, 1).unwrap();
        setup.days = 3;
        let cell = |method| {
            QueueingJob {
                setup: setup.clone(),
                condition: "G-not-move",
                share: 30,
                method,
            }
            .run()
        };
        let (hourly, daily) = (cell(Method::Existing(1)), cell(Method::Existing(24)));
        for c in [&hourly, &daily] {
            assert!((c.iops - 85.0).abs() < 2.0, "{c:?}");
            assert!((0.5..0.75).contains(&c.fast_hits), "{c:?}");
        }
        // Noise moves pages every hour; with a daily period it moves far fewer.
        assert!(
            hourly.bytes_moved > 3 * daily.bytes_moved,
            "{hourly:?} {daily:?}"
        );
        assert!(
            daily.latency_mean_us < hourly.latency_mean_us,
            "{hourly:?} {daily:?}"
        );
    }
}
