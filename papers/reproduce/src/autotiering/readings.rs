//! Scenes of the experiment, and the readings of the paper defined by scenes and rivals.

use serde::{Deserialize, Serialize};
use trace::{CLIENT_PRESETS, ClientPreset, FIO_PRESETS, NULL_ENGINE};

use super::setup::{CORRECTED, LITERAL, MOVES_CHARGED, PATIENT};
use crate::claim::Reading;

/// Workloads and number of drives. Each scene is simulated under every strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scene {
    /// Table V without the workload of fio's `null` engine, with read/write mixes of this project.
    OurMixes,
    /// Table V with read/write mixes of this project. The workload of the `null` engine is limited to the read IOPS of one drive.
    AllRows,
    /// Table V without the workload of the `null` engine, with the mixes of fio's example jobs.
    FioMixes,
    /// The mixes of fio's example jobs on one drive per tier.
    OneDrive,
}

/// All scenes; figures use the first.
pub const SCENES: [Scene; 4] = [
    Scene::OurMixes,
    Scene::AllRows,
    Scene::FioMixes,
    Scene::OneDrive,
];

impl Scene {
    /// Returns the printed name.
    pub fn name(self) -> &'static str {
        match self {
            Scene::OurMixes => "our-mixes",
            Scene::AllRows => "all-rows",
            Scene::FioMixes => "fio-mixes",
            Scene::OneDrive => "one-drive",
        }
    }

    pub(crate) fn workloads(self) -> Vec<&'static ClientPreset> {
        let rows = match self {
            Scene::FioMixes | Scene::OneDrive => FIO_PRESETS,
            Scene::OurMixes | Scene::AllRows => CLIENT_PRESETS,
        };
        let all = self == Scene::AllRows;
        rows.iter()
            .filter(|p| all || p.name != NULL_ENGINE)
            .collect()
    }

    /// Returns the number of drives per tier.
    pub(crate) fn devices(self) -> [u64; 3] {
        match self {
            Scene::OneDrive => [1, 1, 1],
            Scene::OurMixes | Scene::AllRows | Scene::FioMixes => [2, 2, 3],
        }
    }

    fn mixes(self) -> &'static str {
        match self {
            Scene::OurMixes => "ours",
            Scene::AllRows => "ours, with \"Zipf IOs\"",
            Scene::FioMixes | Scene::OneDrive => "fio's example jobs",
        }
    }
}

/// Reading: a scene, and the variants of AutoTiering and IDT that are compared in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) scene: Scene,
    pub(crate) form: &'static str,
    pub(crate) idt: &'static str,
}

const BY_MIX: &str = "idt";
/// IDT with one order of tiers for all volumes.
pub const NOMINAL: &str = "idt-nominal";

/// All readings. The numbers of the first one are printed with each claim.
pub(crate) const VIEWS: [View; 10] = [
    view(Scene::OurMixes, CORRECTED, BY_MIX),
    view(Scene::OurMixes, LITERAL, BY_MIX),
    view(Scene::OurMixes, PATIENT, BY_MIX),
    view(Scene::AllRows, CORRECTED, BY_MIX),
    view(Scene::AllRows, LITERAL, BY_MIX),
    view(Scene::FioMixes, CORRECTED, NOMINAL),
    view(Scene::FioMixes, LITERAL, NOMINAL),
    view(Scene::FioMixes, MOVES_CHARGED, NOMINAL),
    view(Scene::OneDrive, CORRECTED, NOMINAL),
    view(Scene::OneDrive, LITERAL, NOMINAL),
];

const fn view(scene: Scene, form: &'static str, idt: &'static str) -> View {
    View { scene, form, idt }
}

impl View {
    pub(crate) fn reading(self) -> Reading {
        let form = match self.form {
            LITERAL => "as printed",
            MOVES_CHARGED => "as printed, moves charged only",
            PATIENT => "corrected, payback of 8 epochs",
            _ => "corrected",
        };
        let short = match self.form {
            LITERAL => "literal",
            MOVES_CHARGED => "moves-charged",
            PATIENT => "payback-8",
            _ => "corrected",
        };
        let order = match self.idt {
            NOMINAL => "nominal",
            _ => "by mix",
        };
        let drives = self.scene.devices().map(|n| n.to_string()).join(", ");
        Reading {
            id: format!("{}-{short}", self.scene.name()),
            says: says(self),
            choices: vec![
                ("workloads", self.scene.mixes().into()),
                ("drives by tier", drives),
                ("AutoTiering", form.into()),
                ("IDT's order of tiers", order.into()),
            ],
        }
    }
}

fn says(view: View) -> String {
    let scene = match view.scene {
        Scene::OurMixes => {
            "Table V without \"Zipf IOs\": no drive reaches 1,942,000 IOPS, and fio's example job of that name has the engine `null`. The other rows have our mixes"
        }
        Scene::AllRows => "all rows of Table V, with \"Zipf IOs\" limited to 200,000 IOPS",
        Scene::FioMixes => {
            "the rows of Table V as fio's example jobs of the same names, of which two heavy ones only write. If tiers are ordered by nominal IOPS, IDT's writes go to tier 1, as in Fig. 4"
        }
        Scene::OneDrive => {
            "fio's example jobs on one drive per tier, with disks of matching size: the paper does not give the number of drives per tier, and its 100,000 to 125,000 IOPS are low for seven drives"
        }
    };
    let form = match view.form {
        LITERAL => "the listing as printed",
        MOVES_CHARGED => {
            "the listing as printed, but only moves are charged, since Eq. 1 calls g a cost of migrating"
        }
        PATIENT => "faults corrected, with the cost of a move spread over 8 epochs",
        _ => "faults corrected",
    };
    format!("{scene}; {form}")
}
