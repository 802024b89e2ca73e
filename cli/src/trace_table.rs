//! Output of `terrace trace info` as tables and as CSV.

use std::io::{self, Write};

use trace::{RequestLoad, SizeStats, TraceInfo};

/// Largest number of volumes in the table of one trace. One line sums up the others; JSON has all.
const VOLUMES_SHOWN_MAX: usize = 32;

const GIB: f64 = (1u64 << 30) as f64;
pub(crate) const MIB: f64 = (1u64 << 20) as f64;
const KIB: f64 = 1024.0;

pub(crate) fn size(bytes: u64) -> String {
    let b = bytes as f64;
    match bytes {
        0..=0x3ff => format!("{bytes} B"),
        0x400..=0xf_ffff => format!("{:.1} KiB", b / KIB),
        0x10_0000..=0x3fff_ffff => format!("{:.1} MiB", b / MIB),
        0x4000_0000.. => format!("{:.2} GiB", b / GIB),
    }
}

fn maybe(value: Option<u64>, show: impl Fn(u64) -> String) -> String {
    value.map_or_else(|| "unknown".into(), show)
}

/// Formats requests per second: one decimal, or three digits of a small number.
pub(crate) fn rate(per_s: Option<f64>) -> String {
    match per_s {
        None => "-".into(),
        Some(v) if v >= 1.0 || v <= 0.0 => format!("{v:.1}"),
        Some(v) => format!("{v:.*}", (2.0 - v.log10().floor()) as usize),
    }
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |s| format!("{:.1} %", s * 100.0))
}

pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.3} µs", s * 1e6),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.3} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

fn sizes(stats: Option<SizeStats>) -> String {
    match stats {
        None => "-".into(),
        Some(s) => format!(
            "mean {}, median {}, largest {}",
            size(s.mean_bytes.round() as u64),
            maybe(s.p50_bytes.map(u64::from), size),
            size(u64::from(s.max_bytes))
        ),
    }
}

/// Writes one trace in full.
pub fn one(out: &mut impl Write, info: &TraceInfo) -> io::Result<()> {
    let mut line = |name: &str, value: String| writeln!(out, "{name:<16} {value}");
    let assumed = if info.format_assumed {
        " (assumed)"
    } else {
        ""
    };
    let compression = match info.compression {
        trace::Compression::None => String::new(),
        other => format!(", {other}"),
    };
    line("file", info.file.clone())?;
    line("format", format!("{}{assumed}{compression}", info.format))?;
    line("requests", info.requests.to_string())?;
    let kinds = [
        ("reads", info.reads, info.bytes_read),
        ("writes", info.writes, info.bytes_written),
    ];
    for (name, count, bytes) in kinds {
        line(&format!("  {name}"), format!("{count} ({})", size(bytes)))?;
    }
    if info.trims > 0 {
        line(
            "  trims",
            format!("{} ({})", info.trims, size(info.bytes_trimmed)),
        )?;
    }
    if info.flushes > 0 {
        line("  flushes", info.flushes.to_string())?;
    }
    line("read share", percent(info.read_share))?;
    if info.other_events > 0 {
        line("other events", format!("{}, skipped", info.other_events))?;
    }
    match info.span_s {
        Some(seconds) => line("span", span(seconds))?,
        None => line("span", "no times: order only".into())?,
    }
    if let Some(origin) = info.origin_unix_ns {
        line("start", report::utc(origin))?;
    }
    if info.span_s.is_some() {
        let mean = rate(info.mean_iops);
        let peak = maybe(info.peak_iops_1s, |v| v.to_string());
        line("IOPS", format!("mean {mean}, peak second {peak}"))?;
    }
    line("read size", sizes(info.read_size))?;
    line("write size", sizes(info.write_size))?;
    let footprint = info
        .footprint_note
        .clone()
        .map(|note| format!("unknown: {note}"));
    line(
        "footprint",
        footprint.unwrap_or_else(|| maybe(info.footprint_bytes, size)),
    )?;
    let latency = match info.latency {
        Some(l) => format!(
            "mean {:.1} µs, p99 {:.1} µs (of {} requests)",
            l.mean_us, l.p99_us, l.requests
        ),
        None => "not recorded".into(),
    };
    line("latency", latency)?;
    line("time reversals", info.time_reversals.to_string())?;
    line("skipped records", info.skipped_records.to_string())?;
    line("content hash", info.content_hash.clone())?;
    writeln!(out)?;
    volumes(out, info)?;
    loads(out, info)
}

fn volumes(out: &mut impl Write, info: &TraceInfo) -> io::Result<()> {
    let mut rows = vec![
        [
            "volume",
            "requests",
            "reads",
            "writes",
            "read",
            "written",
            "end",
            "footprint",
        ]
        .map(String::from),
    ];
    for v in info.volumes.iter().take(VOLUMES_SHOWN_MAX) {
        rows.push([
            v.summary.name.clone(),
            v.requests.to_string(),
            v.summary.reads.to_string(),
            v.summary.writes.to_string(),
            size(v.summary.bytes_read),
            size(v.summary.bytes_written),
            size(v.summary.max_end_offset_bytes),
            maybe(v.footprint_bytes, size),
        ]);
    }
    aligned(out, &rows)?;
    if let Some(rest) = info
        .volumes
        .len()
        .checked_sub(VOLUMES_SHOWN_MAX)
        .filter(|rest| *rest > 0)
    {
        writeln!(out, "and {rest} more volumes (-o json shows all)")?;
    }
    Ok(())
}

/// Writes means and peaks of the volumes, if the trace is long enough for a meaningful peak second.
fn loads(out: &mut impl Write, info: &TraceInfo) -> io::Result<()> {
    let Some(all) = info.load.filter(|load| load.iops.peak_1s.is_some()) else {
        return Ok(());
    };
    let head = [
        "volume", "IOPS", "peak 1s", "peak 60s", "60s/mean", "MiB/s", "peak 1s", "peak 60s",
        "60s/mean",
    ];
    let mut rows = vec![head.map(String::from)];
    let volumes = info.volumes.iter().take(VOLUMES_SHOWN_MAX);
    let mut loads: Vec<(&str, RequestLoad)> = volumes
        .filter_map(|v| Some((v.summary.name.as_str(), v.load?)))
        .collect();
    if info.volumes.len() > 1 {
        loads.push(("all", all));
    }
    for (name, load) in loads {
        let RequestLoad {
            iops,
            bandwidth_bytes_per_s: bytes,
        } = load;
        let mib = |v: Option<f64>| rate(v.map(|v| v / MIB));
        let ratio = |v: Option<f64>| v.map_or_else(|| "-".into(), |v| format!("{v:.1}"));
        rows.push([
            name.to_owned(),
            rate(iops.mean),
            rate(iops.peak_1s),
            rate(iops.peak_60s),
            ratio(iops.peak_60s_to_mean),
            mib(bytes.mean),
            mib(bytes.peak_1s),
            mib(bytes.peak_60s),
            ratio(bytes.peak_60s_to_mean),
        ]);
    }
    writeln!(out)?;
    aligned(out, &rows)
}

/// Writes several traces, with a row per trace.
pub fn many(out: &mut impl Write, infos: &[&TraceInfo]) -> io::Result<()> {
    let head = [
        "file",
        "format",
        "requests",
        "read",
        "span",
        "mean IOPS",
        "peak/s",
        "footprint",
        "volumes",
        "latency",
    ];
    let mut rows = vec![head.map(String::from)];
    for info in infos {
        rows.push([
            info.file.clone(),
            format!(
                "{}{}",
                info.format,
                if info.format_assumed { "?" } else { "" }
            ),
            info.requests.to_string(),
            percent(info.read_share),
            info.span_s.map_or_else(|| "no times".into(), span),
            rate(info.mean_iops),
            info.peak_iops_1s
                .map_or_else(|| "-".into(), |v| v.to_string()),
            maybe(info.footprint_bytes, size),
            info.volumes.len().to_string(),
            info.latency
                .map_or_else(|| "-".into(), |l| format!("{:.0} µs", l.mean_us)),
        ]);
    }
    aligned(out, &rows)
}

/// Writes columns that are as wide as their widest cell. The first two are left-aligned, numbers are right-aligned.
pub(crate) fn aligned<const N: usize>(
    out: &mut impl Write,
    rows: &[[String; N]],
) -> io::Result<()> {
    let widths: [usize; N] = std::array::from_fn(|i| {
        rows.iter()
            .map(|row| row[i].chars().count())
            .max()
            .unwrap_or(0)
    });
    let left = |i: usize| i == 0 || (i == 1 && N == 10);
    for row in rows {
        let cells = row
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(i, (cell, width))| {
                if left(i) {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Writes a header and one row per trace. Unknown values are empty.
pub fn csv(out: &mut impl Write, infos: &[&TraceInfo]) -> io::Result<()> {
    fn cell(value: Option<impl ToString>) -> String {
        value.map_or_else(String::new, |v| v.to_string())
    }
    writeln!(
        out,
        "file,format,format_assumed,compression,requests,reads,writes,trims,flushes,bytes_read,bytes_written,span_s,\
         mean_iops,peak_iops_1s,read_share,read_size_mean_bytes,write_size_mean_bytes,footprint_bytes,volumes,\
         time_reversals,skipped_records,latency_mean_us,latency_p99_us,content_hash"
    )?;
    for info in infos {
        let cells = [
            format!("\"{}\"", info.file.replace('"', "\"\"")),
            info.format.to_string(),
            info.format_assumed.to_string(),
            info.compression.to_string(),
            info.requests.to_string(),
            info.reads.to_string(),
            info.writes.to_string(),
            info.trims.to_string(),
            info.flushes.to_string(),
            info.bytes_read.to_string(),
            info.bytes_written.to_string(),
            cell(info.span_s),
            cell(info.mean_iops),
            cell(info.peak_iops_1s),
            cell(info.read_share),
            cell(info.read_size.map(|s| s.mean_bytes)),
            cell(info.write_size.map(|s| s.mean_bytes)),
            cell(info.footprint_bytes),
            info.volumes.len().to_string(),
            info.time_reversals.to_string(),
            info.skipped_records.to_string(),
            cell(info.latency.map(|l| l.mean_us)),
            cell(info.latency.map(|l| l.p99_us)),
            info.content_hash.clone(),
        ];
        writeln!(out, "{}", cells.join(","))?;
    }
    Ok(())
}
