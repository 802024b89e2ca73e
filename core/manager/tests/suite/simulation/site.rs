//! Host of the simulation: an array, or virtual machines.

use std::collections::BTreeMap;

use algo::Rng;
use manager::agent::{AgentAction, Snapshot, WantedExtents};
use model::ExtentRanges;

use super::array::FakeArray;
use super::machines::FakeMachines;

pub enum Site {
    Array(Box<FakeArray>),
    Machines(Box<FakeMachines>),
}

/// Move in progress.
pub struct ActiveMove {
    pub volume: String,
    pub device: String,
    pub extents: Option<ExtentRanges>,
}

impl Site {
    /// Creates arrays, virtual machines, or both, by the seed.
    pub fn new(seed: u64, number: u64, below: &mut impl FnMut(u64) -> u64) -> Self {
        let machines = match seed % 3 {
            0 => false,
            1 => true,
            _ => number % 2 == 1,
        };
        match machines {
            false => Site::Array(Box::new(FakeArray::new(8, below))),
            true => {
                let rng = Rng::new(seed, 0x7E44 + number);
                Site::Machines(Box::new(FakeMachines::new(6, rng)))
            }
        }
    }

    /// Makes devices slow under high load from now on.
    pub fn crowd(&mut self) {
        match self {
            Site::Array(array) => array.crowded = true,
            Site::Machines(machines) => machines.crowded = true,
        }
    }

    /// Sets the present throttles of volumes, and whether guests of crowded devices reduce their load.
    pub fn serve(&mut self, limits: BTreeMap<String, u64>, quiet: bool) {
        match self {
            Site::Array(array) => {
                array.limits = limits;
                if quiet && array.crowded {
                    array.volumes.iter_mut().for_each(|v| v.rate = 20.0);
                }
            }
            Site::Machines(machines) => {
                machines.limits = limits;
                if quiet && machines.crowded {
                    machines.calm_down();
                }
            }
        }
    }

    pub fn step(&mut self, dt_ns: u64, with_problem: bool) {
        match self {
            Site::Array(array) => array.step(dt_ns),
            Site::Machines(machines) => machines.step(dt_ns, with_problem),
        }
    }

    pub fn check(&self) {
        match self {
            Site::Array(array) => array.check(),
            Site::Machines(machines) => {
                machines.check();
                machines.all_is_well();
            }
        }
    }

    /// Returns the names of all volumes, visible or not.
    pub fn volumes(&self) -> Vec<String> {
        match self {
            Site::Array(array) => array.volumes.iter().map(|v| v.name.clone()).collect(),
            Site::Machines(machines) => machines.volumes(),
        }
    }

    /// Returns the places of data, by volume and device.
    pub fn places(&self) -> Vec<(String, String)> {
        match self {
            Site::Array(array) => array.places(),
            Site::Machines(machines) => machines.places(),
        }
    }

    pub fn under_way(&self) -> Vec<ActiveMove> {
        match self {
            Site::Array(array) => {
                let moves = array.volumes.iter().filter_map(|v| {
                    let moving = v.moving.as_ref()?;
                    Some(ActiveMove {
                        volume: v.name.clone(),
                        device: array.devices[moving.to].name.clone(),
                        extents: moving.extents.clone(),
                    })
                });
                moves.collect()
            }
            Site::Machines(machines) => {
                let moves = machines.intents.values().filter(|i| i.moves());
                let moves = moves.map(|i| ActiveMove {
                    volume: i.volume.clone(),
                    device: i.device.clone(),
                    extents: None,
                });
                moves.collect()
            }
        }
    }

    /// # Errors
    /// Reason that no state is available now.
    pub fn snapshot(&mut self) -> Result<Snapshot, String> {
        match self {
            Site::Array(array) => Ok(array.snapshot()),
            Site::Machines(machines) => machines.snapshot(),
        }
    }

    pub fn look_at_extents(&mut self, wanted: Vec<WantedExtents>, snapshot: &mut Snapshot) {
        match self {
            Site::Array(array) => array.look_at_extents(wanted, snapshot),
            Site::Machines(_) => {} // they report no extents
        }
    }

    /// # Errors
    /// Reason that the action is not executed.
    pub fn carry_out(&mut self, action: &AgentAction) -> Result<(), String> {
        match self {
            Site::Array(array) => array.carry_out(action),
            Site::Machines(machines) => machines.carry_out(action),
        }
    }

    pub fn agent_dies(&mut self) {
        if let Site::Machines(machines) = self {
            machines.agent_dies();
        }
    }

    /// Returns true if the agent was killed during an action since the last call.
    pub fn has_killed(&mut self) -> bool {
        match self {
            Site::Array(_) => false,
            Site::Machines(machines) => std::mem::take(&mut machines.killed),
        }
    }

    pub fn freeze(&mut self, until_ns: u64) {
        match self {
            Site::Array(array) => array.frozen_until_ns = until_ns,
            Site::Machines(machines) => machines.frozen_until_ns = until_ns,
        }
    }

    /// Returns `Some` for a volume that no agent moves, with true if a person may move it.
    pub fn bound_for_good(&self, volume: &str) -> Option<bool> {
        match self {
            Site::Array(_) => None,
            Site::Machines(machines) => machines.bound_for_good(volume),
        }
    }
}
