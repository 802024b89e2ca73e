//! Toy platform: machines that are only names. It shows all parts of a platform.

use std::path::Path;

use manager::agent::{
    ActionError, AgentAction, DeviceSnapshot, Snapshot, VolumeSnapshot, WantedExtents,
};
use manager::settings::MachinesConfig;
use manager::wire::{ArrayPolicy, DeviceIoCounts, Placed};
use model::{ClassObjective, LeaseHolder, LeaseStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::error::{AgentError, Result};
use crate::host::Host;
use crate::machines::MachinesSettings;
use crate::places::class_of;
use crate::platform::{KeyFault, Keys};

/// Toys.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ToyKeys {
    /// Names of the machines.
    machines: Vec<String>,
    /// Color of the toys.
    #[serde(default = "red")]
    color: String,
    #[serde(flatten)]
    common: MachinesConfig,
}

fn red() -> String {
    "red".into()
}

impl Keys for ToyKeys {
    const NAME: &'static str = "toy";

    fn title(&self) -> String {
        format!("{} toy machines", self.machines.len())
    }

    fn open(self, _: &Path, settings: MachinesSettings) -> Result<Box<dyn Host>, KeyFault> {
        Ok(Box::new(Toy {
            keys: self,
            settings,
        }))
    }
}

struct Toy {
    keys: ToyKeys,
    settings: MachinesSettings,
}

impl Host for Toy {
    fn called(&self) -> &'static str {
        "toys"
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        let tiers = &self.settings.tiers;
        let device = |tier: &crate::TierOf| DeviceSnapshot {
            name: tier.places[0].to_string(),
            tier: tier.name.clone(),
            size_bytes: 1 << 30,
            used_bytes: 0,
            emulate: None,
            connected: true,
            place: None,
            since_ns: 1,
            io: DeviceIoCounts::default(),
            errors: vec![],
            node: None,
        };
        let volume = |name: &String| VolumeSnapshot {
            name: format!("{name}:disk"),
            class: class_of(&self.settings.classes, &format!("{name}:disk")),
            size_bytes: 1 << 20,
            home: tiers[0].name.clone(),
            placed: vec![Placed {
                device: tiers[0].places[0].to_string(),
                bytes: 1 << 20,
            }],
            movable: false,
            bound: None,
            by_hand: None,
            throttle: None,
            moving: None,
            last_move: None,
            counts: None,
            cache: None,
            can_mirror: false,
            mirror: None,
            reuse: None,
            extents: None,
            node: None,
        };
        Ok(Snapshot {
            tiers: tiers.iter().map(|t| t.name.clone()).collect(),
            devices: tiers.iter().map(device).collect(),
            volumes: self.keys.machines.iter().map(volume).collect(),
            problems: vec![],
            second: None,
        })
    }

    fn look_at_extents(&mut self, _: Vec<WantedExtents>, _: &mut Snapshot) -> Result<()> {
        Ok(())
    }

    fn claim(&mut self, _: &LeaseHolder, _: Nanos) -> Result<LeaseStatus> {
        Err(AgentError::Refused("no lease".into()))
    }

    fn hold_to(&mut self, _: &ArrayPolicy) -> Result<()> {
        Ok(())
    }

    fn promise(&mut self, _: &[ClassObjective], _: Nanos) -> Result<()> {
        Ok(())
    }

    fn carry_out(&mut self, _: &AgentAction) -> Result<(), ActionError> {
        Err("not possible".into())
    }
}
