//! Tiers, volumes and measurements for people.

use datapath::desk::{TierInfo, VolumeInfo};
use datapath::{Injected, LastMove, Latency, Measured};
use report::{number, table, words};
use serde::Serialize;
use units::{Bytes, BytesPerSec};

const NONE: &str = "-";
const MIB: f64 = (1u64 << 20) as f64;

fn fixed(value: f64, digits: usize) -> String {
    format!("{value:.digits$}")
}

fn share(part: Bytes, whole: Bytes) -> String {
    match whole.0 {
        0 => NONE.into(),
        _ => format!("{:.1}", part.as_f64() / whole.as_f64() * 100.0),
    }
}

fn size(bytes: Bytes) -> String {
    let b = bytes.as_f64();
    match bytes.0 {
        0..=0x3ff => bytes.to_string(),
        0x400..=0xf_ffff => format!("{:.1} KiB", b / 1024.0),
        0x10_0000..=0x3fff_ffff => format!("{:.1} MiB", b / MIB),
        _ => format!("{:.2} GiB", b / (1u64 << 30) as f64),
    }
}

fn rate(rate: BytesPerSec) -> String {
    format!("{:.1} MiB/s", rate.as_f64() / MIB)
}

/// The tiers of an array, and all of it together.
#[derive(Debug, Serialize)]
pub struct Tiers {
    tiers: Vec<TierInfo>,
    /// All tiers together.
    array: Whole,
}

/// An array as a whole.
#[derive(Debug, Serialize)]
struct Whole {
    used: Bytes,
    size: Bytes,
    /// Sizes of all volumes.
    provisioned: Bytes,
    /// That over the size of the array; none where the array has no size.
    overcommit: Option<f64>,
    /// At most; none where nothing is bounded.
    overcommit_max: Option<f64>,
}

impl Tiers {
    /// Adds the tiers up.
    pub fn of(tiers: Vec<TierInfo>, overcommit_max: Option<f64>) -> Self {
        let sum = |of: fn(&TierInfo) -> Bytes| {
            let each = tiers.iter().map(|t| of(t).0);
            Bytes(each.fold(0, u64::saturating_add))
        };
        let (size, provisioned) = (sum(|t| t.size), sum(|t| t.provisioned));
        let array = Whole {
            used: sum(|t| t.used),
            size,
            provisioned,
            overcommit: (size.0 > 0).then(|| provisioned.as_f64() / size.as_f64()),
            overcommit_max,
        };
        Self { tiers, array }
    }
}

fn times(part: Bytes, whole: Bytes) -> String {
    match whole.0 {
        0 => NONE.into(),
        _ => fixed(part.as_f64() / whole.as_f64(), 2),
    }
}

/// `terrace tier list`
pub fn tiers(all: &Tiers) -> String {
    let columns = [
        words("tier"),
        words("device"),
        number("used", ""),
        number("size", ""),
        number("use%", ""),
        number("provisioned", ""),
        number("times", "size"),
        number("limit IOPS", ""),
        number("limit MiB/s", ""),
        words("where"),
    ];
    let mut rows = vec![];
    for tier in &all.tiers {
        let iops = tier.iops.map_or(NONE.into(), |i| fixed(i.0, 0));
        let bandwidth = tier.bandwidth.map(|b| fixed(b.as_f64() / MIB, 1));
        rows.push(vec![
            tier.name.clone(),
            String::new(),
            size(tier.used),
            size(tier.size),
            share(tier.used, tier.size),
            size(tier.provisioned),
            times(tier.provisioned, tier.size),
            iops,
            bandwidth.unwrap_or(NONE.into()),
            String::new(),
        ]);
        for device in &tier.devices {
            let emulated = if device.emulated { " (emulated)" } else { "" };
            rows.push(vec![
                String::new(),
                device.name.clone(),
                size(device.used),
                size(device.size),
                share(device.used, device.size),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                format!("{}{emulated}", device.path),
            ]);
        }
    }
    let array = &all.array;
    let bound = array
        .overcommit_max
        .map(|most| format!("at most {most} times provisioned"));
    rows.push(vec![
        "(all)".into(),
        String::new(),
        size(array.used),
        size(array.size),
        share(array.used, array.size),
        size(array.provisioned),
        times(array.provisioned, array.size),
        String::new(),
        String::new(),
        bound.unwrap_or_default(),
    ]);
    table(&columns, rows)
}

fn placement(volume: &VolumeInfo) -> String {
    let parts = volume
        .tiers
        .iter()
        .map(|(t, b)| format!("{t} {}", size(*b)));
    match parts.collect::<Vec<_>>() {
        parts if parts.is_empty() => NONE.into(),
        parts => parts.join(", "),
    }
}

fn state(volume: &VolumeInfo) -> String {
    let mut parts = vec![if volume.exported {
        "served"
    } else {
        "not served"
    }];
    if !volume.healthy {
        parts.push("damaged");
    }
    let mut text = parts.join(", ");
    if let Some(to) = &volume.moving_to {
        text += &format!(", moving to {to}");
    }
    text
}

/// `terrace volume list`
pub fn volumes(volumes: &[VolumeInfo]) -> String {
    let columns = [
        words("volume"),
        number("size", ""),
        number("allocated", ""),
        words("placement"),
        words("home"),
        words("class"),
        words("state"),
    ];
    let rows = volumes.iter().map(|v| {
        vec![
            v.name.clone(),
            size(v.size),
            size(v.allocated),
            placement(v),
            v.home.clone(),
            v.class.clone(),
            state(v),
        ]
    });
    table(&columns, rows.collect())
}

/// `terrace volume show`
pub fn volume(volume: &VolumeInfo) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        out += &format!("{name:<16} {}\n", report::printable(&value));
    };
    line("volume", volume.name.clone());
    line("size", size(volume.size));
    line("allocated", size(volume.allocated));
    line("placement", placement(volume));
    line("home", volume.home.clone());
    line("class", volume.class.clone());
    line("state", state(volume));
    let Some(status) = &volume.status else {
        return out;
    };
    line("connections", status.connections.to_string());
    if let Some(path) = &status.recording {
        line("recording to", path.display().to_string());
    }
    if !status.away.is_empty() {
        line("away", format!("remote devices {:?}", status.away));
    }
    match (&status.moving, &status.last_move) {
        (Some(m), _) => line(
            "move",
            format!(
                "{}: {} copied, {} left, up to {}",
                m.phase,
                size(m.copied),
                size(m.left),
                rate(m.rate)
            ),
        ),
        (None, Some(last)) => line("last move", ended(last)),
        (None, None) => {}
    }
    if let Some(injected) = &status.injected {
        let what = if status.injecting {
            "injecting"
        } else {
            "last injection"
        };
        line(
            what,
            format!(
                "wanted {} µs read, {} µs write; added p50 {:.1} µs, p99 {:.1} µs",
                injected.wanted_read_us,
                injected.wanted_write_us,
                injected.added.p50_us,
                injected.added.p99_us
            ),
        );
    }
    match &status.measured {
        Some(m) => out += &measured(m),
        None => line("measured", "no: `terrace volume set --measure on`".into()),
    }
    out
}

/// How a move ended.
pub fn ended(last: &LastMove) -> String {
    match last {
        LastMove::Done { copied } => format!("done, {} copied", size(*copied)),
        LastMove::Stopped { why, copied } => format!("stopped: {why}; {} copied", size(*copied)),
    }
}

/// Measurements: rates and latency by direction, queue depth, the hottest extents.
pub fn measured(m: &Measured) -> String {
    let latency = |l: &Latency, of: fn(&Latency) -> f64| match l.count {
        0 => NONE.into(),
        _ => fixed(of(l), 1),
    };
    let per_second = |count: u64| fixed(count as f64 / m.seconds.max(1e-9), 1);
    let mib = |bytes: u64| fixed(bytes as f64 / MIB / m.seconds.max(1e-9), 2);
    let (read, write) = (&m.directions[0], &m.directions[1]);
    let mut out = format!(
        "measured         {:.1} s, {} errors\nqueue depth      mean {:.2}, now {}, most {}\n\n",
        m.seconds, m.errors, m.queue_depth_mean, m.outstanding, m.outstanding_max
    );
    let columns = [
        number("r/s", ""),
        number("w/s", ""),
        number("rMiB/s", ""),
        number("wMiB/s", ""),
        number("r_await", "µs"),
        number("w_await", "µs"),
    ];
    let cells = vec![
        per_second(read.requests),
        per_second(write.requests),
        mib(read.bytes),
        mib(write.bytes),
        latency(&read.latency, |l| l.mean_us),
        latency(&write.latency, |l| l.mean_us),
    ];
    out += &table(&columns, vec![cells]);
    let columns = [
        words("latency"),
        words("size"),
        number("requests", ""),
        number("mean", "µs"),
        number("p50", "µs"),
        number("p95", "µs"),
        number("p99", "µs"),
        number("p99.9", "µs"),
    ];
    let cells = |name: &str, size: &str, l: &Latency| {
        vec![
            name.to_owned(),
            size.to_owned(),
            l.count.to_string(),
            latency(l, |l| l.mean_us),
            latency(l, |l| l.p50_us),
            latency(l, |l| l.p95_us),
            latency(l, |l| l.p99_us),
            latency(l, |l| l.p999_us),
        ]
    };
    let mut rows = vec![];
    for direction in m.directions.iter().filter(|d| d.requests > 0) {
        rows.push(cells(&direction.name, "all", &direction.latency));
        for (size, l) in direction.sizes.iter().filter(|_| direction.sizes.len() > 1) {
            rows.push(cells("", size, l));
        }
    }
    if !rows.is_empty() {
        out += &format!("\n{}", table(&columns, rows));
    }
    if !m.hottest.is_empty() {
        let columns = [
            number("hot extent", ""),
            number("reads", ""),
            number("writes", ""),
        ];
        let row = |(extent, heat): &(u32, datapath::Heat)| {
            vec![
                extent.to_string(),
                heat.reads.to_string(),
                heat.writes.to_string(),
            ]
        };
        let rows = m.hottest.iter().map(row).collect();
        out += &format!("\n{}", table(&columns, rows));
    }
    out
}

/// What a latency session really did.
pub fn injected(i: &Injected) -> String {
    let columns = [
        words(""),
        number("answers", ""),
        number("mean", "µs"),
        number("p50", "µs"),
        number("p95", "µs"),
        number("p99", "µs"),
    ];
    let row = |name: &str, l: &Latency| {
        vec![
            name.to_owned(),
            l.count.to_string(),
            fixed(l.mean_us, 1),
            fixed(l.p50_us, 1),
            fixed(l.p95_us, 1),
            fixed(l.p99_us, 1),
        ]
    };
    format!(
        "wanted           read {} µs, write {} µs\n\n{}",
        i.wanted_read_us,
        i.wanted_write_us,
        table(
            &columns,
            vec![row("added", &i.added), row("late by", &i.late)]
        )
    )
}
