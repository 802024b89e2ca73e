//! Description of a run: tenants, and the service between them.

use units::{Bytes, Nanos};

use super::control::{Control, Slo};
use super::load::Load;
use super::service::Service;
use crate::drive::{Drive, Op, RequestResult};
use crate::ftl::TenantId;

/// Target that serves requests of tenants, with the drive behind it, if it is one.
pub trait Target {
    /// Serves a request that begins now; returns its completion time and cost.
    fn serve(
        &mut self,
        now_ns: u64,
        tenant: TenantId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> RequestResult;
    /// Returns the time from which a request finds its first resource free, as far as known now. A time up to `now_ns`
    /// means that it can begin.
    fn ready_ns(&mut self, now_ns: u64, tenant: TenantId, op: Op, offset: u64, bytes: u64) -> u64;
    /// Returns the number of parallel units, whose time is the device time.
    fn units(&self) -> usize;
    /// Returns the maximum number of concurrent requests.
    fn tags(&self) -> u32 {
        u32::MAX
    }
    /// Returns the drive, if the target is one: its tenants may own spare space.
    fn drive(&mut self) -> Option<&mut Drive> {
        None
    }
}

impl Target for Drive {
    fn serve(
        &mut self,
        now_ns: u64,
        tenant: TenantId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> RequestResult {
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

/// Tenant of a run.
#[derive(Debug, Clone)]
pub struct TenantPlan {
    /// Name.
    pub name: String,
    /// Weight for [`Service::HostWeights`] and [`Slo::Weight`].
    pub weight: f64,
    /// Share of device time under [`Service::DeviceTime`].
    pub time_share: f64,
    /// Size of its address space.
    pub bytes: Bytes,
    /// Its own spare space as a share of the drive's flash, if tenants own their blocks.
    pub spare_share: f64,
    /// Load.
    pub load: Load,
    /// Number of outstanding requests; ignored for a load with arrival times.
    pub depth: u32,
    /// Arrivals per second of an open loop; `None` for a closed loop or the recorded times.
    pub rate: Option<f64>,
    /// Objective.
    pub slo: Slo,
    /// Arrival of the tenant. At zero it is present before the device is aged.
    pub comes: Nanos,
    /// Departure of the tenant; `None` for never.
    pub goes: Option<Nanos>,
}

impl TenantPlan {
    /// Creates a tenant with a load, 16 outstanding requests and weight 1.
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

/// Settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct HostConfig {
    /// Service between tenants.
    pub service: Service,
    /// Number of requests passed to the device at a time, limited by its tags. The device may begin any of them. With
    /// 1, the host's order is kept.
    pub tags: u32,
    /// Time before the counted time.
    pub warmup: Nanos,
    /// Counted time.
    pub duration: Nanos,
    /// Window of the series.
    pub window: Nanos,
    /// Adjustment of spare space to objectives, if any.
    pub control: Option<Control>,
    /// Seed of the loads.
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
