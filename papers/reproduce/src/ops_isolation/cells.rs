//! List of all runs.

use super::cell::Cell;
use super::device::Device;
use super::mode::{Mode, ServiceMode, SharingMode};
use super::readings::Way;
use super::setup::Setup;

/// Three loads of part 1, in the paper's order.
pub(super) const LOADS: [&str; 3] = ["financial", "msn", "exchange"];

/// Mixes in the comparison of modes.
pub(super) const MIXES: [&str; 4] = [
    "random 4 KiB 1:2:5:10",
    "financial 1:2:5:10",
    "F+M+E 1:5:10",
    "F+E 1:10",
];

/// Weights of the paper's four virtual machines are not printed; these are common values.
const FOUR: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// Numbers of outstanding requests per tenant, on which the effect of weights depends.
const DEPTHS: [u32; 5] = [2, 4, 8, 16, 32];

/// Counted seconds on a clean drive: too few for garbage collection to begin.
const CLEAN_S: u64 = 15;

type Tenants = Vec<(&'static str, f64)>;

fn four(load: &'static str) -> Tenants {
    FOUR.iter().map(|w| (load, *w)).collect()
}

fn tenants_of(mix: &str) -> Tenants {
    match mix {
        "random 4 KiB 1:2:5:10" => four("random-write-4k"),
        "financial 1:2:5:10" => four("financial"),
        "F+M+E 1:5:10" => vec![("financial", 1.0), ("msn", 5.0), ("exchange", 10.0)],
        _ => vec![("financial", 1.0), ("exchange", 10.0)],
    }
}

/// Cells of one seed, while the list is built.
struct List<'a> {
    setup: &'a Setup,
    way: Way,
    seed: u64,
    cells: Vec<Cell>,
}

/// Returns all cells of a seed for one way of running. Cells without a claim are run in the first way only.
pub(super) fn cells(setup: &Setup, way: Way, seed: u64) -> Vec<Cell> {
    let mut list = List {
        setup,
        way,
        seed,
        cells: Vec::new(),
    };
    if way.on_all_devices() {
        list.proportionality();
        list.components();
        list.ncq();
    }
    if way == Way::Closed {
        list.depth();
    }
    list.moves();
    if way.isolates() {
        list.isolation();
    }
    list.cells
}

/// Returns true if a claim uses this way of sharing.
fn is_claimed(mode: Mode) -> bool {
    [SharingMode::OnePool, SharingMode::IsolatedByController].contains(&mode.sharing)
}

impl List<'_> {
    /// Adds a cell with the usual number of outstanding requests and the duration that its device needs.
    fn add(
        &mut self,
        experiment: &'static str,
        device: Device,
        mode: Mode,
        mix: &str,
        tenants: Tenants,
    ) {
        let one_unit = self.setup.seconds;
        let seconds = match device {
            // Long enough for a controller that moves a few blocks every ten seconds.
            Device::Simulated => 4 * one_unit,
            // Arrivals exceed the service, and the queue has a limit.
            Device::Elements if self.way == Way::Open => one_unit / 4,
            Device::Elements => one_unit,
            Device::Disk => one_unit / 2,
            Device::Clean => CLEAN_S,
            _ => one_unit / 4,
        };
        let depths = self.way.depths(tenants.len(), self.seed);
        self.cells.push(Cell {
            way: self.way,
            experiment,
            device,
            mode,
            mix: mix.into(),
            tenants,
            depths,
            seed: self.seed,
            seconds,
            tenant_mib: self.setup.tenant_mib,
        });
    }

    fn proportionality(&mut self) {
        for load in LOADS {
            for device in [Device::Disk, Device::Clean, Device::Aged] {
                self.add(
                    "proportionality",
                    device,
                    Mode::POOL_WEIGHTS,
                    load,
                    four(load),
                );
            }
        }
    }

    fn depth(&mut self) {
        for device in [Device::Disk, Device::Clean, Device::Aged] {
            for depth in DEPTHS {
                let mix = format!("financial, {depth} outstanding");
                self.add("depth", device, Mode::POOL_WEIGHTS, &mix, four("financial"));
                if let Some(cell) = self.cells.last_mut() {
                    cell.depths = Some(vec![depth; FOUR.len()]);
                }
            }
        }
    }

    fn moves(&mut self) {
        for sharing in [SharingMode::OnePool, SharingMode::IsolatedEqual] {
            let three = LOADS.map(|load| (load, 1.0)).to_vec();
            let mode = Mode::new(sharing, ServiceMode::Fcfs);
            self.add("moves", self.way.simulated(), mode, "F+M+E", three);
        }
    }

    fn isolation(&mut self) {
        for mix in MIXES {
            let way = self.way;
            for mode in Mode::all().filter(|m| way == Way::Closed || is_claimed(*m)) {
                self.add("isolation", way.simulated(), mode, mix, tenants_of(mix));
            }
        }
    }

    fn components(&mut self) {
        for load in ["random-write-32k", "fileserver"] {
            for device in [
                Device::Disk,
                Device::Ssd,
                Device::NoBuffer,
                Device::OneChannel,
            ] {
                self.add("components", device, Mode::POOL_WEIGHTS, load, four(load));
            }
        }
    }

    fn ncq(&mut self) {
        for load in ["proj", "exchange"] {
            for device in [Device::Ssd, Device::NoNcq] {
                let two = vec![(load, 1.0), (load, 5.0)];
                self.add("ncq", device, Mode::POOL_WEIGHTS, load, two);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flash::ftl::Sharing;
    use flash::host::Load;

    use super::*;

    #[test]
    fn loads_have_names_that_parse() {
        let setup = Setup::new(2, 1, true).unwrap();
        for cell in cells(&setup, Way::Closed, 1) {
            for (load, _) in cell.tenants {
                assert!(load.parse::<Load>().is_ok(), "{load}");
            }
        }
    }

    #[test]
    fn each_mix_has_each_combination_of_sharing_and_service() {
        let setup = Setup::new(2, 1, true).unwrap();
        let all = cells(&setup, Way::Closed, 1);
        for mix in MIXES {
            for mode in Mode::all() {
                let same =
                    |c: &&Cell| c.experiment == "isolation" && c.mix == mix && c.mode == mode;
                assert_eq!(all.iter().filter(same).count(), 1, "{mix}, {}", mode.name());
            }
        }
    }

    #[test]
    fn each_kind_of_cell_runs() {
        let setup = Setup {
            seeds: vec![1, 2],
            seconds: 80,
            tenant_mib: 64,
        };
        let mut kinds: Vec<(Way, Device, Mode)> = Vec::new();
        let all = Way::ALL.map(|way| cells(&setup, way, 1)).concat();
        for cell in all {
            let kind = (cell.way, cell.device, cell.mode);
            if kinds.contains(&kind) {
                continue;
            }
            kinds.push(kind);
            let result = cell.run().unwrap();
            let tenants = &result.outcome.tenants;
            assert!(tenants.iter().all(|t| t.iops > 0.0), "{}", cell.name());
            let foreign: u64 = tenants.iter().map(|t| t.moved_foreign).sum();
            let isolated = cell.mode.sharing.on_flash() == Sharing::Isolated;
            assert!(!isolated || foreign == 0, "{}", cell.name());
        }
    }
}
