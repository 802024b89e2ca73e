//! Table cells that several sections share.

use maud::{Markup, html};
use sim::{DirectionSummary, GroupSummary};

use crate::format::{MICROS, NONE, change, change_ratio, fixed, grouped};

/// Changes below this share are not coloured, because they round to zero.
const CHANGE_SHOWN_MIN: f64 = 0.0005;

/// Direction of an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImprovementDirection {
    Higher,
    Lower,
    /// Changes are neither good nor bad.
    Neither,
}

/// Subject of a table of loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loads {
    /// All volumes. Violations are in another table.
    Total,
    /// The same volumes under every strategy.
    Volumes,
    /// Tiers, which serve different volumes under each strategy: more load or latency is not worse by itself.
    Tiers,
}

pub(super) fn plain(value: f64, digits: usize) -> String {
    grouped(&fixed(value, digits))
}

pub(super) fn maybe(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| NONE.into(), |v| plain(v, digits))
}

pub(super) fn whole(value: u64) -> String {
    grouped(&value.to_string())
}

/// Renders a change in percent, with a sign and a colour.
pub(super) fn changed(
    base: Option<f64>,
    value: Option<f64>,
    better: ImprovementDirection,
) -> Markup {
    let (Some(base), Some(value)) = (base, value) else {
        return html! { td class="n" { (NONE) } };
    };
    let class = match change_ratio(base, value) {
        Some(r) if r.abs() >= CHANGE_SHOWN_MIN && better != ImprovementDirection::Neither => {
            match (r > 0.0) == (better == ImprovementDirection::Higher) {
                true => "n good",
                false => "n bad",
            }
        }
        _ => "n",
    };
    html! { td class=(class) { (change(base, value)) } }
}

fn latency(summary: &DirectionSummary, us: f64) -> String {
    maybe((summary.ios > 0).then_some(us), 1)
}

/// Table of loads and latencies.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadTable {
    pub(super) loads: Loads,
    /// Number of runs; changes are shown for more than one.
    pub(super) runs: usize,
}

impl LoadTable {
    fn compares(self) -> bool {
        self.runs > 1
    }

    /// Renders the header, with the columns of names `first` on the left.
    pub(super) fn head(self, first: &[&str]) -> Markup {
        let with_unit = |name: &str, unit: &str| html! { th class="n" scope="col" { (name) br; span class="unit" { (unit) } } };
        html! {
            thead {
                tr {
                    @for name in first { th rowspan="2" scope="col" { (name) } }
                    th class="over" colspan=(if self.compares() { 8 } else { 6 }) scope="colgroup" { "all requests" }
                    th class="over" colspan="4" scope="colgroup" { "reads" }
                    th class="over" colspan="4" scope="colgroup" { "writes" }
                    @if self.loads != Loads::Total { th class="over" scope="colgroup" { "objective" } }
                }
                tr {
                    (with_unit("IOPS", "/s"))
                    @if self.compares() { (with_unit("IOPS", "vs first")) }
                    (with_unit("mean", MICROS))
                    @if self.compares() { (with_unit("mean", "vs first")) }
                    (with_unit("p50", MICROS)) (with_unit("p95", MICROS)) (with_unit("p99", MICROS)) (with_unit("p99.9", MICROS))
                    (with_unit("r/s", "")) (with_unit("rMiB/s", "")) (with_unit("r_await", MICROS)) (with_unit("r_p99", MICROS))
                    (with_unit("w/s", "")) (with_unit("wMiB/s", "")) (with_unit("w_await", MICROS)) (with_unit("w_p99", MICROS))
                    @if self.loads != Loads::Total { (with_unit("SLO violation", "volume-seconds")) }
                }
            }
        }
    }

    /// Renders the cells for [`LoadTable::head`], with changes relative to the baseline; `None` for the baseline itself.
    pub(super) fn row(self, group: &GroupSummary, baseline: Option<&GroupSummary>) -> Markup {
        let GroupSummary {
            all, reads, writes, ..
        } = group;
        let served = |g: &GroupSummary| (g.all.ios > 0).then_some(g.all.mean_us);
        let (higher, lower) = match self.loads {
            Loads::Total | Loads::Volumes => {
                (ImprovementDirection::Higher, ImprovementDirection::Lower)
            }
            Loads::Tiers => (ImprovementDirection::Neither, ImprovementDirection::Neither),
        };
        html! {
            td class="n" { (plain(all.iops, 1)) }
            @if self.compares() { (changed(baseline.map(|b| b.all.iops), Some(all.iops), higher)) }
            td class="n" { (latency(all, all.mean_us)) }
            @if self.compares() { (changed(baseline.and_then(served), served(group), lower)) }
            @for us in [all.p50_us, all.p95_us, all.p99_us, all.p999_us] { td class="n" { (latency(all, us)) } }
            @for d in [reads, writes] {
                td class="n" { (plain(d.iops, 1)) }
                td class="n" { (plain(d.mib_per_s, 2)) }
                td class="n" { (latency(d, d.mean_us)) }
                td class="n" { (latency(d, d.p99_us)) }
            }
            @if self.loads != Loads::Total { td class="n" { (maybe(group.slo_violation_s, 1)) } }
        }
    }
}
