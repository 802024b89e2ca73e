//! Tables of tiers, volumes and measurements for people.

use datapath::control_server::{DeviceInfo, TierInfo, VolumeInfo};
use datapath::{CacheSample, InjectedDelay, LastMove, Latency, MeasureStatus};
use model::DirectIo;
use report::{number, table, words};
use serde::Serialize;
use units::{Bytes, BytesPerSec};

use crate::volume_listed::{ListedVolume, ListedVolumes};

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

/// Formats a size for people.
pub fn size(bytes: Bytes) -> String {
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

/// Tiers of an array, and their sum.
#[derive(Debug, Serialize)]
pub struct Tiers {
    tiers: Vec<TierInfo>,
    /// All tiers together.
    array: ArrayTotals,
}

/// An array as a whole.
#[derive(Debug, Serialize)]
struct ArrayTotals {
    used: Bytes,
    size: Bytes,
    /// Sizes of all volumes.
    provisioned: Bytes,
    /// Ratio of the provisioned size to the size of the array; `None` if the array has no size.
    overcommit: Option<f64>,
    /// Limit of the ratio; `None` without a limit.
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
        let array = ArrayTotals {
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

/// Returns true if the table must show the direct I/O setting of a device.
fn wanted(device: &DeviceInfo) -> bool {
    device.direct != DirectIo::Off || device.direct_next
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
    let (mut rows, mut used, mut lost) = (vec![], String::new(), String::new());
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
            let direct = match &device.direct_now {
                Some((true, _)) => " (direct)",
                Some((false, _)) | None => "",
            };
            if let Some((direct, why)) = device.direct_now.as_ref().filter(|_| wanted(device)) {
                let way = match direct {
                    true => "direct I/O",
                    false => "through the page cache",
                };
                let next = match device.direct_next {
                    true => format!("; after the next start: {}", device.direct),
                    false => String::new(),
                };
                let line = format!("device {}: {way}: {why}{next}", device.name);
                used += &format!("{}\n", report::printable(&line));
            }
            let is_lost = if device.lost.is_some() { " (lost)" } else { "" };
            if let Some(why) = &device.lost {
                let name = &device.name;
                let line = format!("device {name} of tier {} is lost: {why}", tier.name);
                lost += &format!("{}\n", report::printable(&line));
            }
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
                format!("{}{emulated}{direct}{is_lost}", device.path),
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
    below(table(&columns, rows), &format!("{used}{lost}"))
}

/// Appends lines to a table, if any.
fn below(table: String, lines: &str) -> String {
    match lines {
        "" => table,
        lines => format!("{table}\n{lines}"),
    }
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

fn state(listed: &ListedVolume) -> String {
    let volume = &listed.info;
    let mut parts = vec![match (volume.exported, volume.stalled) {
        (_, true) => "stalled",
        (true, false) => "served",
        (false, false) => "not served",
    }];
    if !volume.healthy {
        parts.push("damaged");
    }
    if listed.incomplete.is_some() {
        parts.push("incomplete");
    }
    let mut text = parts.join(", ");
    if let Some(to) = &volume.moving_to {
        text += &format!(", moving to {to}");
    }
    text
}

/// `terrace volume list`
pub fn volumes(volumes: &[ListedVolume]) -> String {
    let columns = [
        words("volume"),
        number("size", ""),
        number("allocated", ""),
        words("placement"),
        words("home"),
        words("class"),
        words("state"),
    ];
    let rows = volumes.iter().map(|listed| {
        let v = &listed.info;
        vec![
            v.name.clone(),
            size(v.size),
            size(v.allocated),
            placement(v),
            v.home.clone(),
            v.class.clone(),
            state(listed),
        ]
    });
    let lost = volumes.iter().filter_map(|v| v.incomplete.as_deref());
    let lost: String = lost
        .map(|what| format!("{}\n", report::printable(what)))
        .collect();
    below(table(&columns, rows.collect()), &lost)
}

/// `terrace volume snapshot list`
pub fn snapshots(snapshots: &[ListedVolume]) -> String {
    let columns = [
        words("snapshot"),
        words("of"),
        words("taken"),
        number("size", ""),
        number("allocated", ""),
        words("placement"),
        words("state"),
    ];
    let rows = snapshots.iter().filter_map(|listed| {
        let (v, of) = (&listed.info, listed.info.snapshot.as_ref()?);
        Some(vec![
            v.name.clone(),
            of.of.clone(),
            report::utc(
                i64::try_from(of.taken_s)
                    .unwrap_or(0)
                    .saturating_mul(1_000_000_000),
            ),
            size(v.size),
            size(v.allocated),
            placement(v),
            state(listed),
        ])
    });
    table(&columns, rows.collect())
}

/// Formats the processor time of polling; empty below one second.
pub fn polled(all: &ListedVolumes) -> String {
    match all.polled_s.filter(|s| *s >= 1.0) {
        None => String::new(),
        Some(s) => format!(
            "polling: {} s of processor time since the server was started\n",
            fixed(s, 0)
        ),
    }
}

/// Formats the cache use of a volume and its effect.
pub fn cached(cache: &CacheSample) -> String {
    let of = match (cache.part, cache.lent) {
        (_, Some(lent)) => format!(
            " of the {} that it has for {} as a remedy for an SLO violation",
            size(lent.part),
            lent.left.words()
        ),
        (Some(part), None) => format!(" of its {}", size(part)),
        (None, None) => match (cache.class_part, cache.kept_out) {
            (_, true) => return "not cached: its share is 0".into(),
            (Some(part), _) => format!(" of the {} of its class", size(part)),
            (None, _) => String::new(),
        },
    };
    let counts = &cache.counts;
    let reads = counts.read_hits + counts.read_misses;
    let ratio = counts.read_hit_ratio();
    let ratio = ratio.map_or("no reads".into(), |r| {
        format!("{:.1} % of {reads} page reads hit", r * 100.0)
    });
    let priority = cache.priority_percent;
    let priority = priority.map_or(String::new(), |p| format!(", priority {p:+} %"));
    format!("{}{of}; {ratio}{priority}", size(cache.bytes))
}

/// `terrace volume show`
pub fn volume(listed: &ListedVolume) -> String {
    let volume = &listed.info;
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        out += &format!("{name:<16} {}\n", report::printable(&value));
    };
    line("volume", volume.name.clone());
    line("size", size(volume.size));
    line("allocated", size(volume.allocated));
    line("placement", placement(volume));
    line("logical block", format!("{} B", volume.logical_block));
    line("home", volume.home.clone());
    line("class", volume.class.clone());
    line("state", state(listed));
    if let Some(what) = &listed.incomplete {
        line("incomplete", what.clone());
    }
    if let Some(import) = &volume.import {
        let (left, from) = (size(import.left), &import.from);
        line(
            "importing from",
            format!("{from} ({}), {left} left", import.format),
        );
        if let Some(problem) = &import.problem {
            line("import waits", problem.clone());
        }
        if let Some(warning) = &import.warning {
            line("import warns", warning.clone());
        }
        if let Some(more) = &import.more {
            line("not imported", more.clone());
        }
    }
    let Some(status) = &volume.status else {
        return out;
    };
    line("connections", status.connections.to_string());
    if let Some(path) = &status.stages.record.recording {
        line("recording to", path.display().to_string());
    }
    if !status.away.is_empty() {
        line("away", format!("remote devices {:?}", status.away));
    }
    if let Some(cache) = &status.cache {
        line("cache", cached(cache));
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
    match (&status.mirror, &status.last_mirror) {
        (Some(m), _) => line(
            "mirror",
            format!(
                "{}: {} on {}, {} % of reads go there ({} of {}){}",
                m.phase,
                size(m.bytes),
                m.to,
                fixed(100.0 * m.read_share, 1),
                m.reads_second,
                m.reads_first + m.reads_second,
                match m.left {
                    Some(left) =>
                        format!(", for {} as a remedy for an SLO violation", left.words()),
                    None => String::new(),
                }
            ),
        ),
        (None, Some(last)) => line(
            "last mirror",
            format!("ended: {}; {} copied", last.why, size(last.copied)),
        ),
        (None, None) => {}
    }
    if let Some(injected) = &status.stages.inject.injected {
        let what = if status.stages.inject.injecting {
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
    match &status.stages.measure.measured {
        Some(m) => out += &measured(m),
        None => line("measured", "no: `terrace volume set --measure on`".into()),
    }
    out
}

/// Formats the result of a move.
pub fn ended(last: &LastMove) -> String {
    match last {
        LastMove::Done { copied } => format!("done, {} copied", size(*copied)),
        LastMove::Stopped { why, copied, .. } => {
            format!("stopped: {why}; {} copied", size(*copied))
        }
    }
}

/// Formats measurements: rates and latency by direction, queue depth, and the hottest extents.
pub fn measured(m: &MeasureStatus) -> String {
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

/// Formats the actual delays of an injection session.
pub fn injected(i: &InjectedDelay) -> String {
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

#[cfg(test)]
mod tests {

    use super::*;

    fn device(name: &str, lost: Option<&str>) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            path: format!("/srv/{name}"),
            used: Bytes::mib(32),
            size: Bytes::mib(256),
            emulated: false,
            direct: DirectIo::Off,
            direct_next: false,
            direct_now: None,
            lost: lost.map(Into::into),
        }
    }

    fn tier(name: &str, lost: Option<&str>) -> TierInfo {
        TierInfo {
            name: name.into(),
            used: Bytes::mib(32),
            size: Bytes::mib(256),
            provisioned: Bytes::mib(64),
            devices: vec![device(&format!("{name}-0"), lost)],
            iops: None,
            bandwidth: None,
        }
    }

    fn listed(name: &str, exported: bool, incomplete: Option<&str>) -> ListedVolume {
        ListedVolume {
            info: VolumeInfo {
                name: name.into(),
                size: Bytes::mib(64),
                allocated: Bytes::mib(32),
                tiers: vec![("far".into(), Bytes::mib(32))],
                home: "far".into(),
                class: "gold".into(),
                logical_block: 512,
                healthy: true,
                exported,
                stalled: false,
                moving_to: None,
                moving_extents: None,
                snapshot: None,
                import: None,
                status: None,
            },
            incomplete: incomplete.map(Into::into),
        }
    }

    #[test]
    fn tier_table_shows_io_mode_with_its_reason() {
        let mut all = tier("fast", None);
        all.devices[0].direct_now = Some((false, "as configured".into()));
        let text = |tier: &TierInfo| tiers(&Tiers::of(vec![tier.clone()], None));
        assert!(
            !text(&all).contains("page cache"),
            "nobody asked for another way"
        );
        all.devices[0].direct = DirectIo::Auto;
        let why = "a durable write of 4 KiB takes 92 µs";
        all.devices[0].direct_now = Some((true, why.into()));
        let said = text(&all);
        assert!(said.contains("fast-0 (direct)"), "{said}");
        assert!(
            said.contains(&format!("device fast-0: direct I/O: {why}")),
            "{said}"
        );
    }

    #[test]
    fn lost_device_is_shown_with_the_reason() {
        let why = "cannot open /srv/far-0: it is not there";
        let text = tiers(&Tiers::of(
            vec![tier("near", None), tier("far", Some(why))],
            None,
        ));
        let lines: Vec<&str> = text.lines().collect();
        let of = |name: &str| lines.iter().find(|l| l.contains(name)).unwrap();
        assert!(of("/srv/far-0").ends_with("/srv/far-0 (lost)"), "{text}");
        assert!(of("/srv/near-0").ends_with("/srv/near-0"), "{text}");
        let said = format!("device far-0 of tier far is lost: {why}");
        assert_eq!(lines[lines.len() - 2..], ["", &said]);
        let text = tiers(&Tiers::of(vec![tier("near", None)], None));
        assert!(!text.contains("lost"), "{text}");
    }

    #[test]
    fn volume_with_lost_extents_is_shown_as_incomplete() {
        let what = "files: 32 MiB on far-0 cannot be read or written; the rest is served";
        let all = [
            listed("db", true, None),
            listed("files", true, Some(what)),
            listed("old", false, Some("old: 1 MiB on far-0 cannot be read")),
        ];
        let text = volumes(&all);
        let row = |name: &str| {
            let start = format!(" {name} ");
            let mut rows = text.lines().filter(|l| l.starts_with(&start));
            rows.next().unwrap().trim_end().to_owned()
        };
        assert!(row("db").ends_with("   served"), "{text}");
        assert!(row("files").ends_with("   served, incomplete"), "{text}");
        assert!(row("old").ends_with("   not served, incomplete"), "{text}");
        assert!(text.contains(&format!("\n\n{what}\nold: ")), "{text}");
        let mut stalled = listed("db", false, None);
        stalled.info.stalled = true;
        assert!(volume(&stalled).contains("state            stalled\n"));
        let one = volume(&all[1]);
        assert!(
            one.contains("state            served, incomplete\n"),
            "{one}"
        );
        let line = format!("incomplete       {what}\n");
        assert!(one.contains(&line), "{one}");
        assert!(!volume(&all[0]).contains("incomplete"));
    }
}
