//! Stand-in for the paper's case study: USR-1 built to its published phases, FIO, SYS, the array and the server.

use std::sync::Arc;

use serde::Serialize;
use trace::{LoadedTrace, Record};
use units::{Bytes, Nanos};

use super::array::ArrayModel;
use super::case::{Case, Load, Part, RemedyParameters, Workload};
use super::load::{LoadPhase, RandomLoad, Region};

/// Index of USR-1 among the workloads.
pub(crate) const USR1: usize = 0;
/// Index of FIO.
pub(crate) const FIO: usize = 1;
/// Index of SYS.
pub(crate) const SYS: usize = 2;

/// Published ends of USR-1's phases in minutes (sec. 7.2); the segment is two hours long.
pub(crate) const SPIKE_END_MIN: u64 = 7;
pub(crate) const PEAK_BEGINS_MIN: u64 = 48;
pub(crate) const PEAK_ENDS_MIN: u64 = 75;
pub(crate) const END_MIN: u64 = 120;

/// Published objectives, requests per second (sec. 7.1).
pub(crate) const USR1_PROMISED: f64 = 1800.0;
pub(crate) const FIO_PROMISED: f64 = 5000.0;

/// Parameters that are not published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StandIn {
    /// USR-1's requests per second in the first spike.
    pub spike_per_s: f64,
    /// USR-1's requests per second in the peak.
    pub peak_per_s: f64,
    /// USR-1's requests per second in the calm phases.
    pub calm_per_s: f64,
    /// Bytes of a request of USR-1.
    pub request: u32,
    /// USR-1's hot data in the peak, in MiB.
    pub peak_hot_mib: u64,
    /// Skew of the hot data.
    pub peak_theta: f64,
    /// Hot data in the calm phases, in MiB.
    pub calm_hot_mib: u64,
    /// Share of the reads that go to all data: in spike and peak, and in the calm phases.
    pub cold_share: (f64, f64),
    /// Share of writes among USR-1's requests.
    pub write_share: f64,
    /// Size of FIO's file in GiB.
    pub fio_file_gib: u64,
}

impl Default for StandIn {
    fn default() -> Self {
        Self {
            spike_per_s: 1560.0,
            peak_per_s: 1880.0,
            calm_per_s: 600.0,
            request: 60 << 10,
            peak_hot_mib: 3000,
            peak_theta: 0.0,
            calm_hot_mib: 1024,
            cold_share: (0.02, 0.01),
            write_share: 0.05,
            fio_file_gib: 20,
        }
    }
}

/// Size of USR-1's volume.
const USR1_VOLUME: Bytes = Bytes::gib(48);
/// Start of its hot regions.
const CALM_AT: Bytes = Bytes::gib(4);
const SPIKE_AT: Bytes = Bytes::gib(16);
const PEAK_AT: Bytes = Bytes::gib(28);

fn minutes(n: u64) -> Nanos {
    Nanos::from_secs(60 * n)
}

/// Returns drawn or recorded requests as a trace of one volume.
pub(super) fn requests(records: Vec<Record>, name: &str) -> Load {
    let trace = LoadedTrace::from_records(records, None, &[name]);
    Load::Requests(Arc::new(trace.expect("they are in order")))
}

fn usr1(stand_in: &StandIn, seed: u64, until: Nanos) -> Workload {
    let bytes = u64::from(stand_in.request);
    let region = |at: Bytes, mib: u64, theta: f64| Region {
        first: (at.0 / bytes) as u32,
        objects: (Bytes::mib(mib).0 / bytes) as u32,
        theta,
    };
    let phase = |until: u64, hot: usize, rate_per_s: f64| LoadPhase {
        until: minutes(until),
        rate_per_s,
        hot,
        cold_share: match hot {
            0 => stand_in.cold_share.1,
            _ => stand_in.cold_share.0,
        },
        write_share: stand_in.write_share,
    };
    let load = RandomLoad {
        phases: vec![
            phase(SPIKE_END_MIN, 1, stand_in.spike_per_s),
            phase(PEAK_BEGINS_MIN, 0, stand_in.calm_per_s),
            phase(PEAK_ENDS_MIN, 2, stand_in.peak_per_s),
            phase(END_MIN, 0, stand_in.calm_per_s),
        ],
        regions: vec![
            region(CALM_AT, stand_in.calm_hot_mib, 0.3),
            region(SPIKE_AT, stand_in.peak_hot_mib, stand_in.peak_theta),
            region(PEAK_AT, stand_in.peak_hot_mib, stand_in.peak_theta),
        ],
        objects: (USR1_VOLUME.0 / bytes) as u32,
        object_bytes: stand_in.request,
        seed,
    };
    Workload {
        name: "USR-1".into(),
        size: USR1_VOLUME,
        load: requests(load.records(until), "USR-1"),
        promised_per_s: Some(USR1_PROMISED),
        part: Part::Large,
    }
}

fn fio(stand_in: &StandIn) -> Workload {
    Workload {
        name: "FIO".into(),
        size: Bytes::gib(stand_in.fio_file_gib),
        load: Load::RandomReader {
            rate_per_s: FIO_PROMISED,
        },
        promised_per_s: Some(FIO_PROMISED),
        part: Part::SmallFull,
    }
}

fn sys(seed: u64, until: Nanos) -> Workload {
    const OBJECTS: u32 = 100_000;
    const OBJECT: u32 = 16 << 10;
    let load = RandomLoad {
        phases: vec![LoadPhase {
            until: minutes(END_MIN),
            rate_per_s: 40.0,
            hot: 0,
            cold_share: 0.2,
            write_share: 0.5,
        }],
        regions: vec![Region {
            first: 0,
            objects: 50_000,
            theta: 0.8,
        }],
        objects: OBJECTS,
        object_bytes: OBJECT,
        seed: seed ^ 0x575,
    };
    Workload {
        name: "SYS".into(),
        size: Bytes(u64::from(OBJECTS) * u64::from(OBJECT)),
        load: requests(load.records(until), "SYS"),
        promised_per_s: None,
        part: Part::OwnDisks,
    }
}

/// Returns the selected workloads in their order, without remedies, for this number of minutes.
pub(super) fn scenario(
    stand_in: &StandIn,
    array: &ArrayModel,
    wanted: &[usize],
    (until_min, seed): (u64, u64),
) -> Case {
    let until = minutes(until_min);
    let workload = |w: &usize| match *w {
        USR1 => usr1(stand_in, seed, until),
        FIO => fio(stand_in),
        _ => sys(seed, until),
    };
    Case {
        workloads: wanted.iter().map(workload).collect(),
        array: array.clone(),
        page: Bytes(4096),
        answering: RemedyParameters::default(),
        duration: until,
        mark: minutes(PEAK_ENDS_MIN),
        span: (minutes(PEAK_BEGINS_MIN + 1), minutes(PEAK_ENDS_MIN)),
        curves_at: vec![],
        seed,
    }
}
