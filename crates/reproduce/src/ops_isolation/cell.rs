//! One run: an experiment, a device, a mix of tenants, a seed.

use flash::drive::{Drive, DriveConfig, preset};
use flash::ftl::Sharing;
use flash::host::{
    Control, Disk, HostConfig, Outcome, Service, Split, TenantPlan, place_tenants, run,
};
use flash::{FlashError, host::Load};
use serde::Serialize;
use units::{Bytes, Nanos};

use super::setup::Setup;

/// What requests go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// A hard disk.
    Disk,
    /// An SSD with much free flash.
    Clean,
    /// An SSD in its steady state.
    Aged,
    /// The slides' simulated SSD: one unit, one request at a time.
    Simulated,
    /// Part 2's SSD.
    Ssd,
    /// The same without its write buffer.
    NoBuffer,
    /// The same with one channel.
    OneChannel,
    /// The same with its tags off.
    NoNcq,
}

impl Device {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "HDD",
            Self::Clean => "SSD, clean",
            Self::Aged => "SSD, aged",
            Self::Simulated => "simulated SSD",
            Self::Ssd => "SSD",
            Self::NoBuffer => "SSD, WBuf off",
            Self::OneChannel => "SSD 1CH",
            Self::NoNcq => "SSD, NCQ off",
        }
    }
}

/// How tenants share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One pool, first come, first served.
    PoolFcfs,
    /// One pool, host weights.
    PoolWeights,
    /// One pool, device time by weight.
    PoolTime,
    /// Flexible data placement: handles that keep tenants apart, host weights.
    HandlesWeights,
    /// Isolated with equal spare space, first come, first served.
    IsolatedFcfs,
    /// Isolated, spare space by the model, first come, first served.
    ModelFcfs,
    /// Isolated with equal spare space, equal device time.
    IsolatedTime,
    /// Isolated, spare space by the model, equal device time.
    ModelTime,
    /// Isolated, spare space by the controller, equal device time.
    ControlTime,
    /// Isolated with equal spare space, device time by weight.
    IsolatedWeighted,
}

impl Mode {
    /// Those of the comparison.
    pub const ALL: [Self; 10] = [
        Self::PoolFcfs,
        Self::PoolWeights,
        Self::PoolTime,
        Self::HandlesWeights,
        Self::IsolatedFcfs,
        Self::ModelFcfs,
        Self::IsolatedTime,
        Self::ModelTime,
        Self::ControlTime,
        Self::IsolatedWeighted,
    ];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::PoolFcfs => "one pool, FCFS",
            Self::PoolWeights => "one pool, host weights",
            Self::PoolTime => "one pool, device time by weight",
            Self::HandlesWeights => "handles (FDP), host weights",
            Self::IsolatedFcfs => "isolated, equal OPS, FCFS",
            Self::ModelFcfs => "isolated, OPS by model, FCFS",
            Self::IsolatedTime => "isolated, equal OPS, equal device time",
            Self::ModelTime => "isolated, OPS by model, equal device time",
            Self::ControlTime => "isolated, OPS by controller, equal device time",
            Self::IsolatedWeighted => "isolated, equal OPS, device time by weight",
        }
    }

    fn service(self) -> Service {
        match self {
            Self::PoolFcfs | Self::IsolatedFcfs | Self::ModelFcfs => Service::Fcfs,
            Self::PoolWeights | Self::HandlesWeights => Service::HostWeights,
            _ => Service::DeviceTime,
        }
    }

    fn sharing(self) -> Sharing {
        match self {
            Self::PoolFcfs | Self::PoolWeights | Self::PoolTime => Sharing::OnePool,
            Self::HandlesWeights => Sharing::HandlesPersistently,
            _ => Sharing::Isolated,
        }
    }

    fn split(self) -> Split {
        match self {
            Self::ModelFcfs | Self::ModelTime => Split::ByModel,
            _ => Split::Equal,
        }
    }

    fn time_by_weight(self) -> bool {
        matches!(self, Self::PoolTime | Self::IsolatedWeighted)
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Which experiment it belongs to.
    pub experiment: &'static str,
    /// What requests go to.
    pub device: Device,
    /// How tenants share it.
    pub mode: Mode,
    /// Name of the mix.
    pub mix: String,
    /// Load and weight of each tenant.
    pub tenants: Vec<(&'static str, f64)>,
    /// Requests that each tenant has outstanding.
    pub depth: u32,
    /// Seed of the loads.
    pub seed: u64,
    /// Simulated time that counts, seconds.
    pub seconds: u64,
    /// Space of each tenant, MiB.
    pub tenant_mib: u64,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct CellResult {
    /// The run.
    pub cell: Cell,
    /// Tenant by tenant.
    pub outcome: Outcome,
    /// Write amplification of the drive; none for a disk.
    pub waf: Option<f64>,
}

/// Weights of the paper's four virtual machines are not printed; these are usual.
const FOUR: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// Requests outstanding per tenant; the paper does not say.
const DEPTH: u32 = 16;
/// What it hangs on.
const DEPTHS: [u32; 5] = [2, 4, 8, 16, 32];

/// All cells of a seed.
pub(super) fn cells(setup: &Setup, seed: u64) -> Vec<Cell> {
    let mut all = Vec::new();
    let mut add =
        |experiment, device, mode, mix: &str, tenants: Vec<(&'static str, f64)>, seconds| {
            all.push(Cell {
                experiment,
                device,
                mode,
                mix: mix.into(),
                tenants,
                depth: DEPTH,
                seed,
                seconds,
                tenant_mib: setup.tenant_mib,
            });
        };
    let four = |load: &'static str| FOUR.iter().map(|w| (load, *w)).collect::<Vec<_>>();
    let s = setup.seconds;
    for load in ["financial", "msn", "exchange"] {
        add(
            "proportionality",
            Device::Disk,
            Mode::PoolWeights,
            load,
            four(load),
            s / 2,
        );
        add(
            "proportionality",
            Device::Clean,
            Mode::PoolWeights,
            load,
            four(load),
            15,
        );
        add(
            "proportionality",
            Device::Aged,
            Mode::PoolWeights,
            load,
            four(load),
            s / 4,
        );
    }
    let three = vec![("financial", 1.0), ("msn", 1.0), ("exchange", 1.0)];
    add(
        "moves",
        Device::Simulated,
        Mode::PoolFcfs,
        "F+M+E",
        three.clone(),
        2 * s,
    );
    add(
        "moves",
        Device::Simulated,
        Mode::IsolatedFcfs,
        "F+M+E",
        three,
        2 * s,
    );
    let mixes = [
        ("random 4 KiB 1:2:5:10", four("random-write-4k")),
        ("financial 1:2:5:10", four("financial")),
        (
            "F+M+E 1:5:10",
            vec![("financial", 1.0), ("msn", 5.0), ("exchange", 10.0)],
        ),
        ("F+E 1:10", vec![("financial", 1.0), ("exchange", 10.0)]),
    ];
    for (mix, tenants) in mixes {
        for mode in Mode::ALL {
            add(
                "isolation",
                Device::Simulated,
                mode,
                mix,
                tenants.clone(),
                2 * s,
            );
        }
    }
    for load in ["random-write-32k", "fileserver"] {
        for device in [
            Device::Disk,
            Device::Ssd,
            Device::NoBuffer,
            Device::OneChannel,
        ] {
            let seconds = if device == Device::Disk { s / 2 } else { s / 4 };
            add(
                "components",
                device,
                Mode::PoolWeights,
                load,
                four(load),
                seconds,
            );
        }
    }
    for load in ["proj", "exchange"] {
        for device in [Device::Ssd, Device::NoNcq] {
            let two = vec![(load, 1.0), (load, 5.0)];
            add("ncq", device, Mode::PoolWeights, load, two, s / 4);
        }
    }
    for device in [Device::Disk, Device::Clean, Device::Aged] {
        let seconds = match device {
            Device::Disk => s / 2,
            Device::Clean => 15,
            _ => s / 4,
        };
        for depth in DEPTHS {
            let mix = format!("financial, {depth} outstanding");
            add(
                "depth",
                device,
                Mode::PoolWeights,
                &mix,
                four("financial"),
                seconds,
            );
        }
    }
    for cell in all.iter_mut().filter(|c| c.experiment == "depth") {
        let depth = DEPTHS
            .iter()
            .find(|d| cell.mix == format!("financial, {d} outstanding"));
        cell.depth = depth.copied().unwrap_or(DEPTH);
    }
    all
}

impl Cell {
    /// A name that no other cell has.
    pub fn name(&self) -> String {
        format!(
            "{} {:?} {:?} {} {}",
            self.experiment, self.device, self.mode, self.mix, self.seed
        )
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the tenants do not fit the drive.
    pub fn run(&self) -> Result<CellResult, FlashError> {
        let bytes = Bytes(self.tenant_mib << 20);
        let mut plans: Vec<TenantPlan> = self
            .tenants
            .iter()
            .map(|(load, weight)| TenantPlan {
                weight: *weight,
                depth: self.depth,
                time_share: if self.mode.time_by_weight() {
                    *weight
                } else {
                    1.0
                },
                ..TenantPlan::new(&format!("VM-{weight}"), bytes, load_named(load))
            })
            .collect();
        let tags = match self.device {
            Device::Disk | Device::Simulated | Device::NoNcq => 1,
            _ => 32,
        };
        let warmup = match self.device {
            Device::Clean => 1,
            Device::Disk => 10,
            _ => self.seconds,
        };
        let config = HostConfig {
            service: self.mode.service(),
            tags,
            warmup: Nanos::from_secs(warmup),
            duration: Nanos::from_secs(self.seconds),
            window: Nanos::from_secs((self.seconds / 50).max(1)),
            control: (self.mode == Mode::ControlTime).then(|| Control {
                step: 0.02,
                ..Control::default()
            }),
            seed: self.seed,
        };
        if self.device == Device::Disk {
            let mut disk = Disk::new(&vec![bytes.0; plans.len()]);
            let outcome = run(&mut disk, &plans, &config)?;
            return Ok(self.result(outcome, None));
        }
        let all = Bytes(bytes.0 * plans.len() as u64);
        let mut drive = Drive::new(self.drive_config(), all)?;
        place_tenants(&mut drive, &mut plans, self.mode.split())?;
        if self.device == Device::Clean {
            let tenants: Vec<_> = drive.ftl().tenants().collect();
            for tenant in tenants {
                drive.ftl_mut().fill(tenant)?;
            }
        } else {
            drive.age(2.5);
        }
        let outcome = run(&mut drive, &plans, &config)?;
        Ok(self.result(outcome, drive.report().waf))
    }

    fn result(&self, outcome: Outcome, waf: Option<f64>) -> CellResult {
        CellResult {
            cell: self.clone(),
            outcome,
            waf,
        }
    }

    fn drive_config(&self) -> DriveConfig {
        let mut config = preset("paper4").unwrap_or_default();
        config.ftl.sharing = self.mode.sharing();
        config.ftl.handles = self.tenants.len() as u32;
        if config.ftl.sharing == Sharing::HandlesPersistently {
            config.ftl.reserve_blocks = config.ftl.handles + 1;
        }
        if self.device != Device::Simulated {
            // Scaled down with its capacity, so that each unit has as many erase blocks as that of a larger drive.
            config.pages_per_block /= 4;
            config.erase.0 /= 4;
        }
        match self.device {
            Device::Disk | Device::Simulated => {}
            Device::Clean => {
                config.channels = 4;
                config.ftl.spare_share = 0.5;
            }
            Device::Aged => config.channels = 4,
            Device::Ssd | Device::NoNcq => {
                config.channels = 8;
                config.buffer_pages = 2048;
            }
            Device::NoBuffer => config.channels = 8,
            Device::OneChannel => config.buffer_pages = 2048,
        }
        config
    }
}

fn load_named(name: &str) -> Load {
    // The names are those above, which a test reads.
    name.parse().unwrap_or(Load::FileServer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_loads_have_names_that_are_understood() {
        let setup = Setup::new(2, 1, true).unwrap();
        for cell in cells(&setup, 1) {
            for (load, _) in cell.tenants {
                assert!(load.parse::<Load>().is_ok(), "{load}");
            }
        }
    }

    #[test]
    fn every_kind_of_cell_runs() {
        let setup = Setup {
            seeds: vec![1, 2],
            seconds: 20,
            tenant_mib: 64,
        };
        let mut kinds: Vec<(Device, Mode)> = Vec::new();
        for cell in cells(&setup, 1) {
            if kinds.contains(&(cell.device, cell.mode)) {
                continue;
            }
            kinds.push((cell.device, cell.mode));
            let result = cell.run().unwrap();
            assert!(
                result.outcome.tenants.iter().all(|t| t.iops > 0.0),
                "{}",
                cell.name()
            );
            let foreign: u64 = result.outcome.tenants.iter().map(|t| t.moved_foreign).sum();
            assert!(cell.mode.sharing() != Sharing::Isolated || foreign == 0);
        }
    }
}
