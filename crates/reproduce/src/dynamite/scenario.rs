//! The stand-in for the paper's case study: USR-1 built to its published phases, FIO, SYS, the array and the server.

use serde::Serialize;
use sim::response::{
    ApplianceModel, ArrayModel, Arriving, Generated, Load, LoadPhase, MemoryBefore, Region,
    ResponseModel, ResponseWorkload, Uses, ZonesKnown,
};
use slo::host::Host;
use slo::reroute::{Attachment, Hypervisor, Protocol, Proxy};
use slo::{HostId, Promise};
use units::{Bytes, Nanos};

/// Number of USR-1 among the workloads.
pub(crate) const USR1: usize = 0;
/// Number of FIO.
pub(crate) const FIO: usize = 1;
/// Number of SYS.
pub(crate) const SYS: usize = 2;

/// Published ends of USR-1's phases, minutes (sec. 7.2); the segment is two hours long.
pub(crate) const SPIKE_END_MIN: u64 = 7;
pub(crate) const PEAK_BEGINS_MIN: u64 = 48;
pub(crate) const PEAK_ENDS_MIN: u64 = 75;
pub(crate) const END_MIN: u64 = 120;

/// Published objectives, requests per second (sec. 7.1).
pub(crate) const USR1_PROMISED: f64 = 1800.0;
pub(crate) const FIO_PROMISED: f64 = 5000.0;

/// What is not published and was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StandIn {
    /// USR-1's requests per second in the first spike.
    pub spike_per_s: f64,
    /// In the peak.
    pub peak_per_s: f64,
    /// And in the calm phases.
    pub calm_per_s: f64,
    /// Bytes of a request of USR-1.
    pub request: u32,
    /// USR-1's hot data in the peak, MiB.
    pub peak_hot_mib: u64,
    /// Its skew.
    pub peak_theta: f64,
    /// Hot data in the calm phases, MiB.
    pub calm_hot_mib: u64,
    /// Share of the reads that go anywhere, in spike and peak, and in the calm phases.
    pub cold_share: (f64, f64),
    /// Share of USR-1's requests that write.
    pub write_share: f64,
    /// FIO's file, GiB.
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

/// USR-1's volume.
const USR1_VOLUME: Bytes = Bytes::gib(48);
/// Where its hot regions begin.
const CALM_AT: Bytes = Bytes::gib(4);
const SPIKE_AT: Bytes = Bytes::gib(16);
const PEAK_AT: Bytes = Bytes::gib(28);

fn minutes(n: u64) -> Nanos {
    Nanos::from_secs(60 * n)
}

fn usr1(stand_in: &StandIn, seed: u64) -> ResponseWorkload {
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
    let load = Generated {
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
        arriving: Arriving::AtRandom,
        seed,
    };
    ResponseWorkload {
        name: "USR-1".into(),
        load: Load::Generated(load),
        objects: (USR1_VOLUME.0 / bytes) as u32,
        object_bytes: stand_in.request,
        outstanding_max: 16,
        objective: promised(USR1_PROMISED),
        host: HostId(0),
        attachment: attachment(),
        memory_before: MemoryBefore::Empty,
        uses: Uses::TheGroup,
    }
}

fn fio(stand_in: &StandIn, seed: u64) -> ResponseWorkload {
    const PAGE: u32 = 4096;
    let objects = (Bytes::gib(stand_in.fio_file_gib).0 / u64::from(PAGE)) as u32;
    let load = Generated {
        phases: vec![LoadPhase {
            until: minutes(END_MIN),
            rate_per_s: FIO_PROMISED,
            hot: 0,
            cold_share: 0.0,
            write_share: 0.0,
        }],
        regions: vec![Region {
            first: 0,
            objects,
            theta: 0.0,
        }],
        arriving: Arriving::Evenly,
        seed: seed ^ 0xF10,
    };
    ResponseWorkload {
        name: "FIO".into(),
        load: Load::Generated(load),
        objects,
        object_bytes: PAGE,
        outstanding_max: 16,
        objective: promised(FIO_PROMISED),
        host: HostId(0),
        attachment: attachment(),
        memory_before: MemoryBefore::Full,
        uses: Uses::TheGroup,
    }
}

fn sys(seed: u64) -> ResponseWorkload {
    let load = Generated {
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
        arriving: Arriving::AtRandom,
        seed: seed ^ 0x575,
    };
    ResponseWorkload {
        name: "SYS".into(),
        load: Load::Generated(load),
        objects: 100_000,
        object_bytes: 16 << 10,
        outstanding_max: 16,
        objective: Promise::default(),
        host: HostId(0),
        attachment: attachment(),
        memory_before: MemoryBefore::Empty,
        uses: Uses::OwnDisks,
    }
}

fn promised(rate: f64) -> Promise {
    Promise {
        rate_min_per_s: Some(rate),
        latency_max: None,
        ..Promise::default()
    }
}

/// NFS version 3 with an address per workload, as in the paper.
pub(crate) fn attachment() -> Attachment {
    Attachment {
        protocol: Protocol::Nfs3,
        own_addresses: 1,
        hypervisor: Hypervisor::Plain,
        proxy: Proxy::Absent,
    }
}

/// The paper's compute server (its table 2): eight cores and 24 GB, less the application machines' and the hypervisor's.
pub(crate) fn server() -> Host {
    Host {
        id: HostId(0),
        name: "compute server".into(),
        rack: 0,
        cpus_free: 6,
        memory_free: Bytes::gib(20),
    }
}

/// All three workloads, watched only.
pub(crate) fn scenario(stand_in: &StandIn, seed: u64) -> ResponseModel {
    ResponseModel {
        workloads: vec![usr1(stand_in, seed), fio(stand_in, seed), sys(seed)],
        hosts: vec![server()],
        array: ArrayModel::default(),
        appliance: ApplianceModel::default(),
        ops: None,
        elsewhere: None,
        responder: None,
        zones_known: ZonesKnown::Latest,
        forecasts: vec![],
        faults: vec![],
        duration: minutes(END_MIN),
        curves_at: vec![],
        marks: vec![minutes(PEAK_ENDS_MIN)],
        spans: vec![(minutes(PEAK_BEGINS_MIN + 1), minutes(PEAK_ENDS_MIN))],
        seed,
    }
}
