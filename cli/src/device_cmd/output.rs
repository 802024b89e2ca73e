//! Output of a calibration as tables, as JSON, as a tier of a scenario and as a chart.

use std::fmt::Write;

use algo::{Basis, Directions, LoadShare, Value, closed_loop};
use model::DeviceSpec;
use report::{LoadChart, LoadPanel, LoadSeries, number, table, words};
use serde_json::json;
use units::{Bytes, BytesPerSec, Iops, Nanos};

use super::{Calibration, DIRECTIONS};

/// Number of points of a curve in a chart.
const CURVE_POINTS: u32 = 160;

fn basis_name(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::NotReached => "not reached",
        Basis::Given => "preset",
    }
}

impl Calibration {
    fn directions(&self) -> impl Iterator<Item = (usize, &'static str, &Directions)> {
        DIRECTIONS
            .iter()
            .enumerate()
            .filter_map(|(i, name)| Some((i, *name, self.fit.directions[i].as_ref()?)))
    }

    pub(super) fn tables(&self) -> String {
        let mut out = format!(
            "device {}: {} loads, the rest as preset {}\n\n{}\n{}",
            self.name,
            self.loads.len(),
            self.preset.name,
            self.values_table(),
            self.quality_table(),
        );
        let _ = write!(out, "\nload curve (load % × factor on the bare latency):");
        for (u, factor) in self.fit.curve.points() {
            let _ = write!(out, " {:.0}×{factor:.2}", u * 100.0);
        }
        let _ = writeln!(
            out,
            "\nloads reached {:.0} %; beyond, the curve is assumed",
            self.fit.utilization_max * 100.0
        );
        match self.fit.jitter_sigma {
            Some(sigma) => {
                let _ = writeln!(
                    out,
                    "spread of like requests: sigma {sigma:.2} of a log-normal factor"
                );
            }
            None => {
                let _ = writeln!(
                    out,
                    "spread of like requests: unknown (no percentiles at one request in flight)"
                );
            }
        }
        let _ = write!(out, "\n{}", self.points_table());
        out
    }

    fn values_table(&self) -> String {
        let columns = [
            words("direction"),
            number("latency", "µs"),
            number("cap", "r/s"),
            words("which is"),
            number("bandwidth", "MiB/s"),
            words("which is"),
            number("one stream", "MiB/s"),
        ];
        let mib = |bytes: f64| format!("{:.0}", bytes / f64::from(1 << 20));
        let rows = self.directions().map(|(_, name, d)| {
            vec![
                name.into(),
                format!("{:.1}", d.base_us.value),
                format!("{:.0}", d.iops.value),
                basis_name(d.iops.basis).into(),
                mib(d.bandwidth.value),
                basis_name(d.bandwidth.basis).into(),
                d.one_stream.map_or("-".into(), mib),
            ]
        });
        table(&columns, rows.collect())
    }

    fn quality_table(&self) -> String {
        let columns = [
            words("fit of"),
            number("points", ""),
            number("R²", "of ln latency"),
            number("error", "RMS, %"),
            number("largest", "%"),
            words("which is"),
        ];
        let rows = self.directions().map(|(_, name, d)| {
            let q = d.quality;
            vec![
                name.into(),
                q.points.to_string(),
                q.r2.map_or("-".into(), |r| format!("{r:.4}")),
                format!("{:.1}", q.rms_relative * 100.0),
                format!("{:+.1}", q.worst_relative * 100.0),
                self.loads[q.worst_point].name.clone(),
            ]
        });
        table(&columns, rows.collect())
    }

    fn points_table(&self) -> String {
        let columns = [
            words("load"),
            words("direction"),
            number("size", "KiB"),
            number("in flight", ""),
            number("load", "%"),
            number("r/s", "measured"),
            number("r/s", "fitted"),
            number("latency", "µs measured"),
            number("latency", "µs fitted"),
            number("off", "%"),
        ];
        let mut rows = Vec::new();
        for (load, fitted) in self.loads.iter().zip(&self.fit.points) {
            for (dir, flow) in load.point.flows.iter().enumerate() {
                let Some(flow) = flow else { continue };
                let share = flow.iops / load.point.iops();
                let latency_us = fitted.latency_us[dir];
                rows.push(vec![
                    load.name.clone(),
                    DIRECTIONS[dir].into(),
                    format!("{:.0}", flow.bytes / 1024.0),
                    format!("{:.1}", fitted.in_flight),
                    format!("{:.0}", fitted.utilization * 100.0),
                    format!("{:.0}", flow.iops),
                    format!("{:.0}", fitted.iops * share),
                    format!("{:.1}", flow.latency_us),
                    format!("{latency_us:.1}"),
                    format!("{:+.1}", (latency_us / flow.latency_us - 1.0) * 100.0),
                ]);
            }
        }
        table(&columns, rows)
    }

    pub(super) fn toml(&self) -> String {
        let spec = &self.fit.spec;
        let mut out = format!(
            "# {} loads by fio, fitted by `terrace device calibrate`. Other values are from the preset.\n[[tiers]]\nname = \"{}\"\npreset = \"{}\"\n",
            self.loads.len(),
            self.name,
            self.preset.name
        );
        let mut line = |key: String, text: String, basis: Basis| {
            let remark = match basis {
                Basis::Measured => "",
                Basis::NotReached => " # no load reached it",
                Basis::Given => return,
            };
            let _ = writeln!(out, "{key} = \"{text}\"{remark}");
        };
        for (dir, name, found) in self.directions() {
            let key = |what: &str| format!("{}_{what}", &name[..name.len() - 1]);
            let (iops, bandwidth, latency) = if dir == 0 {
                (spec.read_iops, spec.read_bandwidth, spec.read_latency)
            } else {
                (spec.write_iops, spec.write_bandwidth, spec.write_latency)
            };
            line(key("iops"), Iops(iops).to_string(), found.iops.basis);
            line(
                key("bandwidth"),
                rounded(bandwidth).to_string(),
                found.bandwidth.basis,
            );
            // Rounded to 10 ns, because measurements are not more precise.
            let latency = Nanos(latency.0.div_ceil(10) * 10);
            line(key("latency"), latency.to_string(), found.base_us.basis);
        }
        let points: Vec<String> = spec
            .curve
            .points()
            .iter()
            .map(|(u, f)| format!("[{u:?}, {f:?}]"))
            .collect();
        let _ = writeln!(
            out,
            "curve = [{}] # loads reached {:.2}",
            points.join(", "),
            self.fit.utilization_max
        );
        if let Some(sigma) = self.fit.jitter_sigma {
            let _ = writeln!(out, "jitter_sigma = {sigma:?}");
        }
        out
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let value = |v: Value| json!({ "value": v.value, "basis": basis_name(v.basis) });
        let direction = |dir: usize| {
            self.fit.directions[dir].as_ref().map(|d| {
                let q = d.quality;
                json!({
                    "latency_us": value(d.base_us),
                    "iops": value(d.iops),
                    "bandwidth_bytes_per_s": value(d.bandwidth),
                    "one_stream_bytes_per_s": d.one_stream,
                    "fit": {
                        "points": q.points,
                        "r2_ln_latency": q.r2,
                        "rms_relative": q.rms_relative,
                        "worst_relative": q.worst_relative,
                        "worst_load": self.loads[q.worst_point].name,
                    },
                })
            })
        };
        let points = self
            .loads
            .iter()
            .zip(&self.fit.points)
            .map(|(load, fitted)| {
                let flow = |dir: usize| {
                    load.point.flows[dir].map(|f| {
                        json!({
                            "bytes": f.bytes,
                            "measured_iops": f.iops,
                            "measured_latency_us": f.latency_us,
                            "fitted_iops": fitted.iops * f.iops / load.point.iops(),
                            "fitted_latency_us": fitted.latency_us[dir],
                        })
                    })
                };
                json!({
                    "file": load.file,
                    "load": load.name,
                    "pattern": load.pattern,
                    "depth": load.depth,
                    "in_flight": fitted.in_flight,
                    "utilization": fitted.utilization,
                    "read": flow(0),
                    "write": flow(1),
                })
            });
        json!({
            "schema": "terrace.device.calibration/1",
            "name": self.name,
            "preset": self.preset.name,
            "read": direction(0),
            "write": direction(1),
            "curve": self.fit.curve.points(),
            "utilization_max": self.fit.utilization_max,
            "jitter_sigma": self.fit.jitter_sigma,
            "points": points.collect::<Vec<_>>(),
            "warnings": self.doubts,
            "toml": self.toml(),
        })
    }

    pub(super) fn page(&self) -> String {
        let warnings: String = self.doubts.iter().map(|d| format!("{d}\n")).collect();
        let mut tables = vec![
            ("Calibration", self.tables()),
            ("For a scenario", self.toml()),
        ];
        if !warnings.is_empty() {
            tables.insert(0, ("Warnings", warnings));
        }
        self.chart().page(&tables)
    }

    /// Makes the chart. It shows pure loads only, because a mix has no curve.
    pub(super) fn chart(&self) -> LoadChart {
        let panels = self.directions().map(|(dir, name, _)| {
            let alone: Vec<_> = self
                .loads
                .iter()
                .zip(&self.fit.points)
                .filter(|(l, _)| l.point.flows[1 - dir].is_none())
                .filter_map(|(l, p)| Some((l.point.flows[dir]?, p)))
                .collect();
            let kib = |bytes: f64| (bytes / 1024.0).round() as u64;
            let mut sizes: Vec<u64> = alone.iter().map(|(f, _)| kib(f.bytes)).collect();
            sizes.sort_unstable();
            sizes.dedup();
            let series = sizes.into_iter().map(|size| {
                let of_size = || alone.iter().filter(move |(f, _)| kib(f.bytes) == size);
                let most = of_size().map(|(_, p)| p.in_flight).fold(1.0, f64::max);
                LoadSeries {
                    label: Bytes(size << 10).to_string(),
                    points: of_size()
                        .map(|(f, p)| (p.utilization, f.latency_us))
                        .collect(),
                    curve: curve(&self.fit.spec, dir, size as f64 * 1024.0, most),
                }
            });
            LoadPanel {
                title: name.into(),
                series: series.collect(),
            }
        });
        LoadChart {
            title: format!(
                "{}: latency over load, measured (dots) and fitted (lines)",
                self.name
            ),
            panels: panels.collect(),
        }
    }
}

/// Rounds a rate to whole MiB/s if that is precise enough.
fn rounded(rate: BytesPerSec) -> BytesPerSec {
    let unit = if rate.0 >= 256 << 20 {
        1 << 20
    } else {
        1 << 10
    };
    BytesPerSec((rate.0 as f64 / unit as f64).round().max(1.0) as u64 * unit)
}

/// Returns points of load and latency, from a twentieth of a request in flight up to a little more than `most`.
fn curve(spec: &DeviceSpec, dir: usize, bytes: f64, most: f64) -> Vec<(f64, f64)> {
    let mut load = [LoadShare { share: 0.0, bytes }; 2];
    load[dir].share = 1.0;
    (0..=CURVE_POINTS)
        .map(|i| {
            let in_flight = 0.05 * (1.1 * most / 0.05).powf(f64::from(i) / f64::from(CURVE_POINTS));
            let settled = closed_loop(spec, &load, in_flight);
            (settled.utilization, settled.latency_us[dir])
        })
        .collect()
}
