//! `terrace top`: loads of tiers and volumes, in the columns of iostat.

use std::cmp::Ordering;

use manager::view::{LoadView, SloView, TierView, VolumeView};
use model::TierState;
use units::counted;

use super::{named, several};
use crate::format::{MICROS, NONE, fixed, gib, maybe, mib};
use crate::tables::{number, table, words};

/// Order of volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopOrder {
    /// Highest 99th percentile first.
    P99,
    /// Most requests first.
    Iops,
    /// Most bytes first.
    Mibps,
    /// By host and name.
    Name,
}

/// Sorts volumes. Volumes without a value come last; equal ones are sorted by name.
pub fn in_order(volumes: &mut [VolumeView], order: TopOrder) {
    let key = |v: &VolumeView| -> Option<f64> {
        let load = v.load?;
        match order {
            TopOrder::P99 => load.p99_us,
            TopOrder::Iops => Some(load.reads_per_s + load.writes_per_s),
            TopOrder::Mibps => Some(load.read_bytes_per_s + load.write_bytes_per_s),
            TopOrder::Name => None,
        }
    };
    volumes.sort_by(|a, b| {
        let by_value = match (key(a), key(b)) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        by_value.then_with(|| (&a.host, &a.name).cmp(&(&b.host, &b.name)))
    });
}

/// Number of lines of a table header with units.
const HEADER_LINES: usize = 3;

/// Renders tiers, and below them volumes in the given order; at most `lines_max` lines if it is given.
pub fn top(tiers: &[TierView], volumes: &[VolumeView], lines_max: Option<usize>) -> String {
    let hosts = tiers.iter().map(|t| t.host.as_str());
    let several = several(hosts.chain(volumes.iter().map(|v| v.host.as_str())));
    let mut out = tier_table(tiers, several);
    out.push('\n');
    if volumes.is_empty() {
        return out + "no volumes\n";
    }
    let above = out.lines().count() + HEADER_LINES;
    let shown = match lines_max {
        Some(lines) if above + volumes.len() > lines => lines.saturating_sub(above + 1),
        _ => volumes.len(),
    };
    out += &volume_table(&volumes[..shown], several);
    if shown < volumes.len() {
        out += &format!("{} not shown\n", counted(volumes.len() - shown, "volume"));
    }
    out
}

fn percent(share: f64) -> String {
    fixed(share * 100.0, 1)
}

fn tier_table(tiers: &[TierView], several: bool) -> String {
    let columns = [
        words("tier"),
        words("state"),
        number("volumes", ""),
        number("used", "GiB"),
        number("size", "GiB"),
        number("used", "%"),
        number("prov.", "GiB"),
        number("prov.", "× size"),
        number("busy", "%"),
        number("rMiB/s", ""),
        number("wMiB/s", ""),
    ];
    let rows = tiers.iter().map(|t| {
        let mut state = match t.state {
            TierState::Open => "open",
            TierState::Cordoned => "cordoned",
            TierState::Draining => "draining",
        };
        if t.devices.iter().any(|d| !d.connected) {
            state = "not connected";
        }
        let of_size = |bytes: u64| (t.size_bytes > 0).then(|| bytes as f64 / t.size_bytes as f64);
        vec![
            named(&t.host, &t.name, several),
            state.into(),
            t.volumes.to_string(),
            fixed(gib(t.used_bytes), 1),
            fixed(gib(t.size_bytes), 1),
            of_size(t.used_bytes).map_or(NONE.into(), percent),
            fixed(gib(t.provisioned_bytes), 1),
            maybe(of_size(t.provisioned_bytes), 2),
            t.utilization.map_or(NONE.into(), percent),
            fixed(mib(t.read_bytes_per_s), 1),
            fixed(mib(t.write_bytes_per_s), 1),
        ]
    });
    table(&columns, rows.collect())
}

fn volume_table(volumes: &[VolumeView], several: bool) -> String {
    let columns = [
        words("volume"),
        number("r/s", ""),
        number("w/s", ""),
        number("rMiB/s", ""),
        number("wMiB/s", ""),
        number("r_await", MICROS),
        number("w_await", MICROS),
        number("p99", MICROS),
        words("SLO"),
        number("queue", ""),
        words("tier"),
    ];
    let rows = volumes.iter().map(|v| {
        let load = v.load.as_ref();
        let of = |value: fn(&LoadView) -> f64, digits| {
            load.map_or(NONE.into(), |l| fixed(value(l), digits))
        };
        let latency = |value: fn(&LoadView) -> Option<f64>| maybe(load.and_then(value), 0);
        vec![
            named(&v.host, &v.name, several),
            of(|l| l.reads_per_s, 0),
            of(|l| l.writes_per_s, 0),
            of(|l| mib(l.read_bytes_per_s), 1),
            of(|l| mib(l.write_bytes_per_s), 1),
            latency(|l| l.read_mean_us),
            latency(|l| l.write_mean_us),
            latency(|l| l.p99_us),
            v.slo.as_ref().map_or(NONE, mark).into(),
            of(|l| l.outstanding, 1),
            place(v),
        ]
    });
    table(&columns, rows.collect())
}

/// Returns the state of the objective in the last window.
fn mark(slo: &SloView) -> &'static str {
    match slo.measured_us {
        None => NONE,
        Some(us) if us > slo.target_us => "over",
        Some(_) => "ok",
    }
}

/// Returns the tier of a volume, and the target of its move.
fn place(volume: &VolumeView) -> String {
    match &volume.moving {
        Some(moving) => format!("{} → {}", volume.tier, moving.to),
        None => volume.tier.clone(),
    }
}
