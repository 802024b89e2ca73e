//! Doubts about a calibration.

use algo::{Basis, DeviceFit};

use super::DIRECTIONS;
use super::fio::FioLoad;

/// Number of points per direction below which a fit is a guess.
const POINTS_FEW: u32 = 5;
/// Ratio of requests in flight to the depth below which fio itself limited the load.
const IN_FLIGHT_LOW: f64 = 0.75;
/// Ratio between the bandwidths of one request at a time and of many requests in flight, from which the difference is reported.
const STREAMS_DIFFER: f64 = 1.5;
/// Relative error (root mean square) from which a fit is poor.
const RMS_POOR: f64 = 0.15;
/// Utilization that some load must reach for a known curve.
const UTILIZATION_HIGH: f64 = 0.85;

/// Returns the doubts as sentences, most general first.
pub fn doubts(loads: &[FioLoad], fit: &DeviceFit) -> Vec<String> {
    let mut out = Vec::new();
    runs(loads, &mut out);
    for (dir, name) in DIRECTIONS.iter().enumerate() {
        let Some(found) = &fit.directions[dir] else {
            out.push(format!("no {name}: the preset's values are kept for them"));
            continue;
        };
        let quality = found.quality;
        if quality.points < POINTS_FEW {
            out.push(format!("{name}: only {} points", quality.points));
        }
        let alone = loads
            .iter()
            .zip(&fit.points)
            .any(|(l, p)| l.point.flows[dir].is_some() && p.in_flight < 1.5);
        if !alone {
            out.push(format!(
                "{name}: no load with one request in flight: the bare latency is extrapolated"
            ));
        }
        for (value, key, what) in [
            (found.iops, "iops", "small requests"),
            (found.bandwidth, "bandwidth", "large requests"),
        ] {
            let key = format!("{}_{key}", &name[..name.len() - 1]);
            match value.basis {
                Basis::Measured => {}
                Basis::NotReached => out.push(format!(
                    "{name}: no load of {what} reached the cap: {key} is estimated from latencies, at least the highest measured rate"
                )),
                Basis::Given => out.push(format!(
                    "{name}: no load of {what}: {key} is the value of the preset, and the bare latency depends on it"
                )),
            }
        }
        let streams = found
            .one_stream
            .map(|s| found.bandwidth.value / s)
            .filter(|r| *r > STREAMS_DIFFER || *r < 1.0 / STREAMS_DIFFER);
        if let Some(ratio) = streams {
            out.push(format!(
                "{name}: the bandwidth is {ratio:.1} times that of one request at a time; the model has one number for both, so its latency of single large requests is wrong"
            ));
        }
        if quality.rms_relative > RMS_POOR {
            out.push(format!(
                "{name}: the mean error of the model is {:.0} %: compare the points before you use it",
                quality.rms_relative * 100.0
            ));
        }
    }
    if fit.utilization_max < UTILIZATION_HIGH {
        out.push(format!(
            "no load used more than {:.0} % of the device's time: the curve beyond is assumed",
            fit.utilization_max * 100.0
        ));
    }
    out
}

fn runs(loads: &[FioLoad], out: &mut Vec<String>) {
    let mut some = |what: &dyn Fn(&FioLoad) -> bool, text: &str| {
        let n = loads.iter().filter(|l| what(l)).count();
        if n > 0 {
            let first = loads.iter().find(|l| what(l)).expect("counted");
            out.push(format!(
                "{n} of {} loads ({}{}) {text}",
                loads.len(),
                first.name,
                if n > 1 { ", …" } else { "" }
            ));
        }
    };
    some(
        &|l| !l.direct,
        "went through the page cache: run fio with direct=1",
    );
    some(
        &|l| l.depth_ignored,
        "had an iodepth without effect, since their engine waits for each request: use libaio or io_uring",
    );
    some(
        &|l| l.several_sizes,
        "mixed sizes of requests; the model sees their mean",
    );
    some(&|l| l.runtime_s < 1.0, "ran for less than a second");
    some(
        &|l| !l.paced && l.point.in_flight() < IN_FLIGHT_LOW * l.depth as f64,
        "had far fewer requests in flight than configured: fio or its CPU was slower than the device",
    );
    let random = |l: &&FioLoad| l.pattern.starts_with("rand");
    if loads.iter().any(|l| random(&l)) && loads.iter().any(|l| !random(&l)) {
        out.push(
            "sequential and random loads are mixed; the model has one latency for both".into(),
        );
    }
}
