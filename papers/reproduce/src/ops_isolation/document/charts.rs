//! Charts of the document.

use report::{BarChart, Chart, Mark, ValueBar, XyChart, XySeries};

use crate::claim::Value;
use crate::ops_isolation::device::Device;
use crate::ops_isolation::figures::Row;
use crate::ops_isolation::mode::{Mode, ServiceMode, SharingMode};

fn bar(v: &Value) -> Option<ValueBar> {
    Some(ValueBar {
        value: v.mean,
        whisker: v.interval.map(|i| (i.ci95_low, i.ci95_high)),
    })
}

fn machines(row: Option<&&Row>) -> Vec<String> {
    let tenants = row.map_or(&[][..], |r| &r.tenants);
    tenants.iter().map(|(_, w)| format!("VM-{w}")).collect()
}

/// Bandwidths relative to the smallest weight, by device.
pub(super) fn by_device(rows: &[&Row], mix: &str) -> Chart {
    let rows: Vec<&Row> = rows.iter().filter(|r| r.mix == mix).copied().collect();
    let of = |r: &&Row| {
        let bars = r.proportionality.iter().map(bar).collect();
        (r.device.name().to_owned(), bars)
    };
    let mut series: Vec<(String, Vec<Option<ValueBar>>)> = rows.iter().map(of).collect();
    let tenants = rows.first().map_or(&[][..], |r| &r.tenants);
    let weights = tenants.iter().map(|(_, weight)| {
        Some(ValueBar {
            value: *weight,
            whisker: None,
        })
    });
    series.push(("weight".into(), weights.collect()));
    Chart::Bars(BarChart {
        title: mix.into(),
        unit: "bandwidth over VM-1's".into(),
        groups: machines(rows.first()),
        series,
    })
}

/// Error of proportionality by number of outstanding requests, one line per device.
pub(super) fn by_depth(rows: &[&Row]) -> Chart {
    let mut depths: Vec<&str> = Vec::new();
    let mut devices: Vec<Device> = Vec::new();
    for r in rows {
        if !depths.contains(&r.mix.as_str()) {
            depths.push(&r.mix);
        }
        if !devices.contains(&r.device) {
            devices.push(r.device);
        }
    }
    let at = |device: Device, mix: &str| {
        let row = rows.iter().find(|r| r.device == device && r.mix == mix);
        row.and_then(|r| bar(&r.error))
    };
    let series = devices.iter().map(|d| {
        let bars = depths.iter().map(|mix| at(*d, mix)).collect();
        (d.name().to_owned(), bars)
    });
    let series = series.collect();
    // "financial, 8 outstanding": the load is in the title.
    let short = |mix: &&str| mix.split(", ").nth(1).unwrap_or(mix).to_owned();
    Chart::Bars(BarChart {
        title: "Financial, by requests outstanding per virtual machine".into(),
        unit: "error of proportionality".into(),
        groups: depths.iter().map(short).collect(),
        series,
    })
}

/// Share of the tenant's own pages among the pages that its collections moved.
pub(super) fn own_moves(rows: &[&Row]) -> Chart {
    let series = rows.iter().map(|r| {
        let bars = r.own_share.iter().map(|v| v.as_ref().and_then(bar));
        (r.mode.sharing.name().to_owned(), bars.collect())
    });
    let tenants = rows.first().map_or(&[][..], |r| &r.tenants);
    Chart::Bars(BarChart {
        title: "Share of own pages among the pages that a virtual machine's collections move"
            .into(),
        unit: "share".into(),
        groups: tenants.iter().map(|(load, _)| (*load).to_owned()).collect(),
        series: series.collect(),
    })
}

/// Limit at which larger errors are cut off. A few are ten times as large and would make the others invisible.
const CUT: f64 = 1.0;

/// Errors of all combinations of sharing and service for one mix. Values above [`CUT`] end there, without a whisker.
pub(super) fn matrix(rows: &[&Row], mix: &str) -> Chart {
    let cut = |v: &Value| {
        let beyond = ValueBar {
            value: CUT,
            whisker: None,
        };
        bar(v).map(|b| if b.value > CUT { beyond } else { b })
    };
    let at = |mode: Mode| {
        let row = rows.iter().find(|r| r.mix == mix && r.mode == mode);
        row.and_then(|r| cut(&r.error))
    };
    let series = SharingMode::ALL.map(|sharing| {
        let bars = ServiceMode::ALL.map(|service| at(Mode::new(sharing, service)));
        (sharing.name().to_owned(), bars.to_vec())
    });
    Chart::Bars(BarChart {
        title: mix.into(),
        unit: "error of proportionality; bars without an interval are cut at 1".into(),
        groups: ServiceMode::ALL.map(|s| s.name().to_owned()).to_vec(),
        series: series.to_vec(),
    })
}

/// Bandwidth of each tenant over time, one chart per SSD.
pub(super) fn series(rows: &[&Row], mix: &str) -> Vec<Chart> {
    let of_ssds = rows
        .iter()
        .filter(|r| r.mix == mix && r.device != Device::Disk);
    of_ssds.map(|r| over_time(r)).collect()
}

fn over_time(row: &Row) -> Chart {
    let line = |(i, points): (usize, &Vec<f64>)| XySeries {
        label: format!("VM-{}", row.tenants[i].1),
        style: i,
        mark: Mark::Line,
        points: points
            .iter()
            .enumerate()
            .map(|(w, mib)| ((w as f64 + 0.5) * row.window_s, *mib))
            .collect(),
    };
    Chart::Xy(XyChart {
        title: format!("{}, {}", row.mix, row.device.name()),
        x: "time, s".into(),
        y: "MiB/s".into(),
        series: row.series.iter().enumerate().map(line).collect(),
        marks: Vec::new(),
    })
}
