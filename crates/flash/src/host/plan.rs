//! What is to be run: tenants, and how they are served.

use units::{Bytes, Nanos};

use super::control::{Control, Slo};
use super::load::Load;
use super::service::Service;
use crate::drive::{Drive, Op, Served};
use crate::ftl::TenantId;

/// Something that serves requests of tenants, and the drive behind it, if that is what it is.
pub trait Target {
    /// When a request that is begun now is done, and what it cost.
    fn serve(&mut self, now_ns: u64, tenant: TenantId, op: Op, offset: u64, bytes: u64) -> Served;
    /// From when on a request that is begun finds what it needs first free, as far as that is known now; `now_ns` or less: it can begin.
    fn ready_ns(&mut self, now_ns: u64, tenant: TenantId, op: Op, offset: u64, bytes: u64) -> u64;
    /// Things that work side by side, whose time is the device's.
    fn units(&self) -> usize;
    /// Most requests that it has at a time.
    fn tags(&self) -> u32 {
        u32::MAX
    }
    /// The drive, where there is one: tenants with spare space of their own.
    fn drive(&mut self) -> Option<&mut Drive> {
        None
    }
}

impl Target for Drive {
    fn serve(&mut self, now_ns: u64, tenant: TenantId, op: Op, offset: u64, bytes: u64) -> Served {
        self.submit(now_ns, tenant, op, offset, bytes)
    }

    fn ready_ns(&mut self, now_ns: u64, tenant: TenantId, op: Op, offset: u64, bytes: u64) -> u64 {
        Drive::ready_ns(self, now_ns, tenant, op, offset, bytes)
    }

    fn units(&self) -> usize {
        self.config().units() as usize
    }

    fn tags(&self) -> u32 {
        self.config().tags
    }

    fn drive(&mut self) -> Option<&mut Drive> {
        Some(self)
    }
}

/// A tenant.
#[derive(Debug, Clone)]
pub struct TenantPlan {
    /// Its name.
    pub name: String,
    /// Its weight: of [`Service::HostWeights`], and of [`Slo::Weight`].
    pub weight: f64,
    /// Its share of device time under [`Service::DeviceTime`].
    pub time_share: f64,
    /// Its space.
    pub bytes: Bytes,
    /// Spare space of its own as a share of the drive's flash, where tenants own their blocks.
    pub spare_share: f64,
    /// What it asks for.
    pub load: Load,
    /// Requests outstanding; without meaning for a load with arrivals of its own.
    pub depth: u32,
    /// Requests that arrive each second, whether or not others were answered; none: closed loop, or the recorded times.
    pub rate: Option<f64>,
    /// What it is to get.
    pub slo: Slo,
    /// When it comes. Zero: it is there before the device is aged.
    pub comes: Nanos,
    /// When it goes; none: never.
    pub goes: Option<Nanos>,
}

impl TenantPlan {
    /// A tenant with a load, 16 requests outstanding and weight 1.
    pub fn new(name: &str, bytes: Bytes, load: Load) -> Self {
        Self {
            name: name.into(),
            weight: 1.0,
            time_share: 1.0,
            bytes,
            spare_share: 0.0,
            load,
            depth: 16,
            rate: None,
            slo: Slo::Weight,
            comes: Nanos(0),
            goes: None,
        }
    }
}

/// How the run is made.
#[derive(Debug, Clone, PartialEq)]
pub struct HostConfig {
    /// The service between tenants.
    pub service: Service,
    /// Requests that the device is given at a time, as far as it has tags; it may begin any of them. 1: the host's order is kept.
    pub tags: u32,
    /// Before what counts.
    pub warmup: Nanos,
    /// What counts.
    pub duration: Nanos,
    /// Of the series.
    pub window: Nanos,
    /// Whether and how spare space follows objectives.
    pub control: Option<Control>,
    /// For loads.
    pub seed: u64,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            service: Service::Fcfs,
            tags: 32,
            warmup: Nanos(0),
            duration: Nanos(60_000_000_000),
            window: Nanos(1_000_000_000),
            control: None,
            seed: 1,
        }
    }
}
