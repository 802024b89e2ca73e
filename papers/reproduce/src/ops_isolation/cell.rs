//! Cell: one run of an experiment with a device, a mix of tenants and a seed.

use flash::FlashError;
use flash::drive::Drive;
use flash::host::{Disk, HostConfig, Load, Outcome, TenantPlan, place_tenants, run};
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use super::device::Device;
use super::mode::{Mode, ServiceMode, SharingMode};
use super::readings::Way;

/// Arrival rate of a tenant, relative to the rate that the largest weight is due.
const OVER_DUE: f64 = 1.1;
/// Fraction of a run's time in which the served rate is measured.
const MEASURED_PART: u64 = 5;

/// Run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Arrival process of requests.
    pub way: Way,
    /// Experiment.
    pub experiment: &'static str,
    /// Device.
    pub device: Device,
    /// Sharing of the device by the tenants, and service.
    pub mode: Mode,
    /// Name of the mix.
    pub mix: String,
    /// Load and weight of each tenant.
    pub tenants: Vec<(&'static str, f64)>,
    /// Number of outstanding requests per tenant; `None` for an open loop.
    pub depths: Option<Vec<u32>>,
    /// Seed of the loads.
    pub seed: u64,
    /// Counted simulated time in seconds.
    pub seconds: u64,
    /// Space of each tenant in MiB.
    pub tenant_mib: u64,
}

/// Result of a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellResult {
    /// Result of each tenant.
    pub outcome: Outcome,
    /// Write amplification of the drive; `None` for a disk.
    pub waf: Option<f64>,
}

impl Cell {
    /// Returns a unique name of the cell.
    pub fn name(&self) -> String {
        format!(
            "{}, {}, {}, {}, {}, seed {}",
            self.way.name(),
            self.experiment,
            self.device.name(),
            self.mode.name(),
            self.mix,
            self.seed
        )
    }

    /// Runs the cell.
    ///
    /// # Errors
    /// The tenants do not fit on the drive, or the queue of an open loop grows too long.
    pub fn run(&self) -> Result<CellResult, FlashError> {
        let plans = match self.depths {
            Some(_) => self.plans(None),
            None => self.plans(Some(self.arrivals()?)),
        };
        self.run_with(plans)
    }

    fn run_with(&self, mut plans: Vec<TenantPlan>) -> Result<CellResult, FlashError> {
        let bytes = self.tenant_bytes();
        let config = self.host_config();
        if self.device == Device::Disk {
            let mut disk = Disk::new(&vec![bytes.0; plans.len()]);
            let outcome = run(&mut disk, &plans, &config)?;
            return Ok(CellResult { outcome, waf: None });
        }
        let all = Bytes(bytes.0 * plans.len() as u64);
        let mut device = self.device.drive(self.mode, plans.len() as u32);
        // Each seed has its own aged drive, so the intervals include that variation.
        device.ftl.seed = self.seed;
        let mut drive = Drive::new(device, all)?;
        place_tenants(&mut drive, &mut plans, self.mode.sharing.split())?;
        if self.device == Device::Clean {
            let tenants: Vec<_> = drive.ftl().tenants().collect();
            for tenant in tenants {
                drive.ftl_mut().fill(tenant)?;
            }
        } else {
            drive.age(2.5);
        }
        let outcome = run(&mut drive, &plans, &config)?;
        Ok(CellResult {
            outcome,
            waf: drive.report().waf,
        })
    }

    /// Returns the arrivals per second of each tenant in an open loop. The rate is a tenth above the rate that the
    /// largest weight is due, out of the rate of this device with one pool, first come, first served, in closed loops.
    /// It is the same for all modes of sharing and service.
    fn arrivals(&self) -> Result<f64, FlashError> {
        let closed = Self {
            mode: Mode::new(SharingMode::OnePool, ServiceMode::Fcfs),
            depths: Way::Closed.depths(self.tenants.len(), self.seed),
            seconds: (self.seconds / MEASURED_PART).max(10),
            ..self.clone()
        };
        let served = closed.run_with(closed.plans(None))?.outcome;
        let served: f64 = served.tenants.iter().map(|t| t.iops).sum();
        let weights = || self.tenants.iter().map(|(_, weight)| *weight);
        let due = weights().fold(0.0, f64::max) / weights().sum::<f64>();
        Ok(OVER_DUE * due * served)
    }

    fn tenant_bytes(&self) -> Bytes {
        Bytes(self.tenant_mib << 20)
    }

    fn plans(&self, rate: Option<f64>) -> Vec<TenantPlan> {
        let plan = |(i, (load, weight)): (usize, &(&'static str, f64))| {
            let bytes = self.tenant_bytes();
            let usual = TenantPlan::new(&format!("VM-{weight}"), bytes, load_named(load));
            TenantPlan {
                weight: *weight,
                depth: self.depths.as_ref().map_or(usual.depth, |d| d[i]),
                rate,
                time_share: self.mode.service.time_share(*weight),
                ..usual
            }
        };
        self.tenants.iter().enumerate().map(plan).collect()
    }

    fn host_config(&self) -> HostConfig {
        let warmup = match self.device {
            Device::Clean => 1,
            Device::Disk => 10,
            _ => self.seconds,
        };
        HostConfig {
            service: self.mode.service.of_host(),
            tags: self.device.tags(),
            warmup: Nanos::from_secs(warmup),
            duration: Nanos::from_secs(self.seconds),
            window: Nanos::from_secs((self.seconds / 50).max(1)),
            control: self.mode.sharing.control(self.device.elements()),
            seed: self.seed,
        }
    }
}

fn load_named(name: &str) -> Load {
    // The names are those in the list of cells, which a test parses.
    name.parse().unwrap_or(Load::FileServer)
}

#[cfg(test)]
mod tests {
    use crate::ops_isolation::cells::cells;
    use crate::ops_isolation::mode::{ServiceMode, SharingMode};
    use crate::ops_isolation::readings::Way;
    use crate::ops_isolation::setup::Setup;

    #[test]
    fn run_is_reproducible_to_the_byte() {
        let setup = Setup {
            seeds: vec![1, 2],
            seconds: 20,
            tenant_mib: 64,
        };
        let mut all = cells(&setup, Way::Closed, 1).into_iter();
        let controlled = all.find(|c| {
            c.mode.sharing == SharingMode::IsolatedByController
                && c.mode.service == ServiceMode::EqualTime
        });
        let cell = controlled.unwrap();
        let text = |seed| {
            let mut cell = cell.clone();
            cell.seed = seed;
            serde_json::to_string(&cell.run().unwrap().outcome).unwrap()
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }
}
