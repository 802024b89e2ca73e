//! Output of `terrace trace info` for measurements of load, as tables and as CSV.

use std::io::{self, Write};

use trace::measurements::{LoadInfo, LoadStats};

use crate::trace_table::{MIB, aligned, percent, rate, size, span};

/// Writes one file in full: every volume and the sum.
pub fn one(out: &mut impl Write, info: &LoadInfo) -> io::Result<()> {
    writeln!(out, "file             {}", info.file)?;
    writeln!(
        out,
        "measurements     of load, no requests: accesses of {} in slots of {}",
        size(info.access_bytes),
        span(info.slot_s)
    )?;
    writeln!(out, "volumes          {}", info.volumes.len())?;
    writeln!(out)?;
    let head = [
        "volume",
        "slots",
        "measured",
        "reads",
        "writes",
        "write",
        "IOPS",
        "peak",
        "MiB/s",
        "peak",
        "peak/mean",
        "largest WSS",
    ];
    let mut rows = vec![head.map(String::from)];
    rows.extend(info.volumes.iter().map(|v| row(&v.name, &v.load)));
    rows.push(row("all", &info.total));
    aligned(out, &rows)
}

fn row(name: &str, load: &LoadStats) -> [String; 12] {
    [
        name.to_owned(),
        load.intervals.to_string(),
        span(load.measured_s),
        load.reads_4k.to_string(),
        load.writes_4k.to_string(),
        percent(load.write_share),
        rate(Some(load.iops_4k_mean)),
        rate(Some(load.iops_4k_peak)),
        rate(Some(load.bandwidth_bytes_per_s_mean / MIB)),
        rate(Some(load.bandwidth_bytes_per_s_peak / MIB)),
        load.peak_to_mean
            .map_or_else(|| "-".into(), |ratio| format!("{ratio:.1}")),
        size(load.working_set_bytes_max),
    ]
}

/// Writes a header, one row per volume, and one row for their sum (`volume` is empty).
pub fn csv(out: &mut impl Write, infos: &[&LoadInfo]) -> io::Result<()> {
    writeln!(
        out,
        "file,volume,intervals,measured_s,reads_4k,writes_4k,write_share,iops_4k_mean,iops_4k_peak,\
         bandwidth_bytes_per_s_mean,bandwidth_bytes_per_s_peak,peak_to_mean,working_set_bytes_max"
    )?;
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let cell = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
    for info in infos {
        let volumes = info.volumes.iter().map(|v| (quoted(&v.name), &v.load));
        for (name, load) in volumes.chain([(String::new(), &info.total)]) {
            let cells = [
                quoted(&info.file),
                name,
                load.intervals.to_string(),
                load.measured_s.to_string(),
                load.reads_4k.to_string(),
                load.writes_4k.to_string(),
                cell(load.write_share),
                load.iops_4k_mean.to_string(),
                load.iops_4k_peak.to_string(),
                load.bandwidth_bytes_per_s_mean.to_string(),
                load.bandwidth_bytes_per_s_peak.to_string(),
                cell(load.peak_to_mean),
                load.working_set_bytes_max.to_string(),
            ];
            writeln!(out, "{}", cells.join(","))?;
        }
    }
    Ok(())
}
