//! One run: an experiment, a device, a mix of tenants, a seed.

use flash::FlashError;
use flash::drive::Drive;
use flash::host::{Disk, HostConfig, Load, Outcome, TenantPlan, place_tenants, run};
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use super::device::Device;
use super::mode::{Mode, ServiceMode, SharingMode};
use super::readings::Way;

/// Arrivals of a tenant over what the greatest weight is due.
const OVER_DUE: f64 = 1.1;
/// Part of a run's time for which it is measured what is served.
const MEASURED_PART: u64 = 5;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// How requests come.
    pub way: Way,
    /// Which experiment it belongs to.
    pub experiment: &'static str,
    /// What requests go to.
    pub device: Device,
    /// How tenants share it, and how they are served.
    pub mode: Mode,
    /// Name of the mix.
    pub mix: String,
    /// Load and weight of each tenant.
    pub tenants: Vec<(&'static str, f64)>,
    /// Requests that each tenant has outstanding; none where they arrive in their own time.
    pub depths: Option<Vec<u32>>,
    /// Seed of the loads.
    pub seed: u64,
    /// Simulated time that counts, seconds.
    pub seconds: u64,
    /// Space of each tenant, MiB.
    pub tenant_mib: u64,
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellResult {
    /// Tenant by tenant.
    pub outcome: Outcome,
    /// Write amplification of the drive; none for a disk.
    pub waf: Option<f64>,
}

impl Cell {
    /// A name that no other cell has.
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

    /// Runs it.
    ///
    /// # Errors
    /// When the tenants do not fit the drive, or so many requests arrive that too many wait.
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
        // Each seed has its own aged drive, so that the intervals know of that too.
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

    /// Requests a second of each tenant where they arrive in their own time: a tenth more than the greatest weight is due of what this
    /// device serves in one pool, first come, first served, in closed loops. The same for all ways to share and to serve.
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
    // The names are those of the list of cells, which a test reads.
    name.parse().unwrap_or(Load::FileServer)
}

#[cfg(test)]
mod tests {
    use crate::ops_isolation::cells::cells;
    use crate::ops_isolation::mode::{ServiceMode, SharingMode};
    use crate::ops_isolation::readings::Way;
    use crate::ops_isolation::setup::Setup;

    #[test]
    fn a_run_repeats_to_the_byte() {
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
