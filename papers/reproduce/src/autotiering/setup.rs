//! Setup of the experiment: published values, assumptions, and one scenario per scene and seed.

use std::fmt::Write;

use algo::Rng;
use serde::Serialize;
use sim::{ScenarioError, ScenarioFile};
use thiserror::Error;

use super::readings::{NOMINAL, SCENES, Scene};

/// All strategies: first those of the figures, then those of other readings only.
pub const STRATEGIES: [&str; 9] = [
    "noop",
    "static",
    "idt",
    "edt",
    LITERAL,
    CORRECTED,
    NOMINAL,
    MOVES_CHARGED,
    PATIENT,
];
/// Strategies in tables and charts of figures, in their order.
pub const FIGURED: &[&str; 6] = STRATEGIES.first_chunk().unwrap();
/// AutoTiering as published.
pub const LITERAL: &str = "autotiering-literal";
/// AutoTiering with its faults corrected.
pub const CORRECTED: &str = "autotiering";
/// AutoTiering as published, but only moves have a cost.
pub const MOVES_CHARGED: &str = "autotiering-moves-charged";
/// AutoTiering with its faults corrected and the cost of a move spread over eight epochs.
pub const PATIENT: &str = "autotiering-payback-8";

/// Tiers, high end first.
pub const TIERS: [&str; 3] = ["nvme", "sas", "sata"];
/// Presets of the drives by tier, with published sizes in bytes.
const DRIVES: [(&str, f64); 3] = [("pm953", 480e9), ("pm1633", 960e9), ("pm863", 960e9)];

/// Monitor epoch at full scale: the default of the program.
const MONITOR_NS: u64 = 60_000_000_000;
/// Number of monitor epochs per migration epoch: also the default.
const MONITORS_PER_MIGRATION: u64 = 15;
/// Calibration window at full scale: also the default.
const CALIBRATION_NS: u64 = 1_000_000_000;
/// Number of warm-up epochs, which do not count. The paper's warm-up is epochs 0 to 3; decisions begin at the end of
/// the first.
pub const WARMUP_EPOCHS: u64 = 4;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Scene.
    pub scene: Scene,
    /// Seed of all random draws.
    pub seed: u64,
    /// Strategy.
    pub strategy: &'static str,
}

/// Size of the experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Setup {
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Divisor of times and sizes; rates, latencies and bandwidths are not scaled.
    pub scale: u64,
    /// Number of counted migration epochs after the warm-up.
    pub epochs: u64,
}

/// Invalid setup.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// Too few seeds.
    #[error("{0} seeds give no interval: at least 2 and at most 100 are required")]
    Seeds(u64),
    /// The scale is out of range.
    #[error("a scale of {0} is not between 1 and 600")]
    Scale(u64),
    /// Too few or too many epochs.
    #[error("{0} epochs are not between 1 and 200")]
    Epochs(u64),
}

impl Setup {
    /// Creates a setup with `seeds` seeds from `first` on.
    ///
    /// # Errors
    /// If a number is out of its range.
    pub fn new(seeds: u64, first: u64, scale: u64, epochs: u64) -> Result<Self, SetupError> {
        if !(2..=100).contains(&seeds) {
            return Err(SetupError::Seeds(seeds));
        }
        if !(1..=600).contains(&scale) {
            return Err(SetupError::Scale(scale));
        }
        if !(1..=200).contains(&epochs) {
            return Err(SetupError::Epochs(epochs));
        }
        Ok(Self {
            seeds: (0..seeds).map(|i| first.wrapping_add(i)).collect(),
            scale,
            epochs,
        })
    }

    fn monitor_ns(&self) -> u64 {
        MONITOR_NS / self.scale
    }

    fn migration_ns(&self) -> u64 {
        self.monitor_ns() * MONITORS_PER_MIGRATION
    }

    /// Returns the length of a measurement window, simulated seconds.
    pub fn window_s(&self) -> f64 {
        self.monitor_ns() as f64 / 1e9
    }

    /// Returns the length of a migration epoch, simulated seconds.
    pub fn epoch_s(&self) -> f64 {
        self.migration_ns() as f64 / 1e9
    }

    /// Returns the number of measurement windows in a migration epoch.
    pub fn windows_per_epoch(&self) -> usize {
        MONITORS_PER_MIGRATION as usize
    }

    /// Returns the number of unmeasured windows at the start.
    pub fn warmup_windows(&self) -> usize {
        (WARMUP_EPOCHS * MONITORS_PER_MIGRATION) as usize
    }

    /// Returns all runs, by scene, then by seed, then in the order of [`STRATEGIES`].
    pub fn jobs(&self) -> Vec<Job> {
        let seeds = |scene| self.seeds.iter().map(move |seed| (scene, *seed));
        let pairs = SCENES.into_iter().flat_map(seeds);
        let of = |(scene, seed)| {
            STRATEGIES.map(|strategy| Job {
                scene,
                seed,
                strategy,
            })
        };
        pairs.flat_map(of).collect()
    }

    /// Returns the scenario of a scene and a seed. The seed determines the volumes with their sizes, phases and bursts.
    ///
    /// # Errors
    /// None for setups made by [`Setup::new`]; an error is a fault of this module.
    pub fn scenario(&self, scene: Scene, seed: u64) -> Result<ScenarioFile, ScenarioError> {
        ScenarioFile::parse("reproduce-autotiering.toml", &self.text(scene, seed))
    }

    /// Returns the text of the scenario.
    pub fn text(&self, scene: Scene, seed: u64) -> String {
        let (monitor, migration) = (self.monitor_ns(), self.migration_ns());
        let calibration = CALIBRATION_NS / self.scale;
        let mut text = format!(
            "name = \"reproduce-autotiering\"\nabout = \"paper 0, Sec. V, {}: time and sizes divided by {}\"\n\
             seed = {seed}\nduration = \"{}ns\"\nwarmup = \"{}ns\"\nwindow = \"{monitor}ns\"\nextent = \"8 MiB\"\n\n\
             [policy]\nmonitor_epoch = \"{monitor}ns\"\nmigration_epoch = \"{migration}ns\"\n",
            scene.name(),
            self.scale,
            (WARMUP_EPOCHS + self.epochs) * migration,
            WARMUP_EPOCHS * migration,
        );
        let _ = write!(
            text,
            "\n[strategies.{NOMINAL}]\nuses = \"idt\"\norder = \"nominal\"\n"
        );
        for (name, own) in [
            (CORRECTED, ""),
            (LITERAL, "uses = \"autotiering\"\nform = \"literal\"\n"),
            (
                MOVES_CHARGED,
                "uses = \"autotiering\"\nform = \"literal\"\nmove_cost = \"seconds-of-moves\"\n",
            ),
            (PATIENT, "uses = \"autotiering\"\npayback_epochs = 8\n"),
        ] {
            let _ = write!(
                text,
                "\n[strategies.{name}]\n{own}[strategies.{name}.calibration]\nwindow = \"{calibration}ns\"\nwindow_max = \"{monitor}ns\"\n"
            );
        }
        for ((name, devices), (preset, bytes)) in TIERS.iter().zip(scene.devices()).zip(DRIVES) {
            let capacity = (bytes / self.scale as f64).round();
            let _ = write!(
                text,
                "\n[[tiers]]\nname = \"{name}\"\npreset = \"{preset}\"\ndevices = {devices}\ncapacity = \"{capacity:.0} B\"\n"
            );
        }
        // Sizes of disks are scaled to fill the same share of the drives in every scene.
        let space = |devices: [u64; 3]| -> f64 {
            let drives = devices.iter().zip(DRIVES);
            drives.map(|(n, d)| *n as f64 * d.1).sum()
        };
        let share = space(scene.devices()) / space(SCENES[0].devices());
        for (i, preset) in scene.workloads().into_iter().enumerate() {
            let rng = &mut Rng::new(seed, i as u64);
            self.vm(&mut text, preset, share, rng);
        }
        text
    }

    /// Adds a VM with one workload: one or two datastore disks that share its load, and a system disk.
    fn vm(&self, text: &mut String, preset: &trace::ClientPreset, share: f64, rng: &mut Rng) {
        let habits = preset.habits();
        let depth = habits.outstanding.unwrap_or(1);
        // A workload with few requests in flight cannot be split without a change of its behaviour.
        let parts = if depth >= 4 {
            let first = 0.6 + 0.2 * rng.unit();
            vec![first, 1.0 - first]
        } else {
            vec![1.0]
        };
        for (i, part) in parts.iter().enumerate() {
            let gb = if i == 0 {
                between(rng, 60.0, 300.0)
            } else {
                between(rng, 40.0, 160.0)
            };
            let slots = if parts.len() == 1 {
                depth
            } else {
                ((f64::from(depth) * part).round() as u32).max(1)
            };
            let name = format!("{}-data{}", preset.name, i + 1);
            let rate = preset.target_iops() * part;
            self.volume(text, &name, preset.name, share * gb);
            let _ = write!(
                text,
                "[[clients]]\nvolume = \"{name}\"\npreset = \"{}\"\nhabits = {{ outstanding = {slots}, rate = \"{} IOPS\" }}\n",
                preset.name,
                whole(rate)
            );
            self.rhythm(text, rng, rate);
        }
        let name = format!("{}-system", preset.name);
        let gb = between(rng, 20.0, 50.0);
        let rate = 100.0 + 300.0 * rng.unit();
        self.volume(text, &name, preset.name, share * gb);
        let _ = write!(
            text,
            "[[clients]]\nvolume = \"{name}\"\nhabits = {{ outstanding = 1, read_share = 0.7, skew = 0.9, rate = \"{} IOPS\" }}\n",
            whole(rate)
        );
    }

    fn volume(&self, text: &mut String, name: &str, vm: &str, gb: f64) {
        let mib = (gb * 1e9 / self.scale as f64 / f64::from(1 << 20)).ceil();
        let _ = write!(
            text,
            "\n[[volumes]]\nname = \"{name}\"\nvm = \"{vm}\"\nsize = \"{mib:.0} MiB\"\n"
        );
    }

    /// Adds variation over time: a third of the disks is steady, a third falls to a tenth of its rate for some epochs, a third has bursts.
    fn rhythm(&self, text: &mut String, rng: &mut Rng, rate: f64) {
        let epochs = |n: f64| (n * self.migration_ns() as f64).round() as u64;
        match rng.below(3) {
            0 => {}
            1 => {
                let lengths = [0; 3].map(|_| epochs(1.0 + 3.0 * rng.unit()));
                let begins_low = rng.below(2) == 1;
                let phases: Vec<String> = lengths
                    .iter()
                    .enumerate()
                    .map(|(i, ns)| match (i % 2 == 0) == begins_low {
                        false => format!("{{ duration = \"{ns}ns\" }}"),
                        true => format!(
                            "{{ duration = \"{ns}ns\", habits = {{ rate = \"{} IOPS\" }} }}",
                            whole(rate / 10.0)
                        ),
                    })
                    .collect();
                let _ = writeln!(text, "phases = [{}]", phases.join(", "));
            }
            _ => {
                let every = epochs(0.7 + 1.6 * rng.unit());
                let length = self.monitor_ns() * (2 + rng.below(4));
                let factor = 1.5 + 1.5 * rng.unit();
                let _ = writeln!(
                    text,
                    "bursts = {{ every = \"{every}ns\", length = \"{length}ns\", factor = {factor:.3} }}"
                );
            }
        }
    }

    /// Returns the assumptions in place of unpublished details, as text.
    pub fn assumptions(&self) -> Vec<String> {
        let scale = self.scale;
        vec![
            "Latencies of the drives: not published; 95/25, 120/35 and 145/55 µs (read/write) when idle, growing with load by curves of ours. Caps, bandwidths and sizes are Table IV's.".into(),
            "Drives per tier: not published (\"each tier has multiple SSDs\"); 2, 2 and 3, or one each in some readings, with VMDKs in proportion.".into(),
            "VMs: their number is not published; one per simulated workload of Table V. VMDKs per VM: not published; 2 or 3 (one or two datastore disks that share the workload's rate and its requests in flight 60:40 to 80:20, and a system disk of 100 to 400 IOPS).".into(),
            "Sizes of VMDKs: not published; drawn log-uniformly per seed: 60 to 300 GB, 40 to 160 GB for the second, 20 to 50 GB for the system disk.".into(),
            format!("Scale: time and sizes are divided by {scale} (drives, VMDKs, epochs, phases, bursts, calibration windows), which keeps the share of an epoch that a copy takes; rates, latencies, bandwidths and requests in flight are not scaled."),
            format!("Epochs: not published; monitor 1 min and migration 15 min before scaling, the program's defaults. {WARMUP_EPOCHS} migration epochs of warm-up are not measured (the paper shows 0 to 3), {} are.", self.epochs),
            "Workloads: Table V publishes IOPS and bandwidth, under the names of fio's example jobs, which the paper does not cite. \"Ours\": mix, sizes, randomness and requests in flight were chosen to meet the published rate on an idle drive of tier 1. \"fio's\": reads and writes, randomness and requests in flight of those jobs, with published rates and mean sizes; their consecutive phases are mixed here, with at most 256 requests in flight. \"Zipf IOs\" (1,942 K IOPS) has the engine `null` there and runs in one reading only, limited to 200 K.".into(),
            "Phases and I/O spikes: not published; per seed a third of the datastore disks is steady; a third falls to a tenth of its rate for 1 to 4 epochs at a time; a third has bursts of 1.5 to 3 times its rate for 2 to 5 minutes every 0.7 to 2.3 epochs.".into(),
            "Initial placement: not published; each VMDK on the drive with the largest share of free space.".into(),
            "SLA weights: not published; all 1, no objectives.".into(),
            "wetP, wetB, wetS, wetMig, agingFactor, specialty matrix, upper bounds Γ: not published; 1, 1, 1, 0.2, 0.5, the program's defaults by rank of the tier, 80 % of IOPS and bandwidth and 90 % of space. The corrected form spreads the cost of a move over several epochs (`payback_epochs`, its default).".into(),
            "Injected latencies: not published; 5 levels up to the difference to the slowest tier, at least 100 µs, 5 windows each, once per migration epoch; window lengths follow the scale.".into(),
            "Migration: not published; at most 4 copies at once, one per drive, 200 MiB/s each and a quarter of what source and target have left. The limits are the same for every strategy, including EDT.".into(),
            "Parameters: every strategy runs with its defaults, except for the differences between readings; none was tuned. Only the lengths of the calibration windows are adjusted, to the scale.".into(),
            "IDT and EDT run per VMDK, as the paper modified them. Rules that EDT's authors did not publish (the volumes that leave a throttled drive, and the condition of throttling) are our reconstruction.".into(),
            "Figures 3, 4 and 6 of the paper print no numbers, and its drives' latencies are unknown: only order and relative gain can be compared.".into(),
        ]
    }
}

/// Rounds a rate to the positive integer that scenarios require.
fn whole(rate: f64) -> u64 {
    rate.round().max(1.0) as u64
}

/// Draws a log-uniform number.
fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * libm::pow(high / low, rng.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_of_any_scale_and_seed_fit_their_tiers() {
        for (scale, scene) in [1, 45, 600]
            .into_iter()
            .flat_map(|s| SCENES.map(|x| (s, x)))
        {
            let setup = Setup::new(2, 7, scale, 10).unwrap();
            for seed in setup.seeds.iter().copied().chain(100..120) {
                let file = setup
                    .scenario(scene, seed)
                    .unwrap_or_else(|e| panic!("{e}"));
                let model = file.build(vec![]).unwrap_or_else(|e| panic!("{e}"));
                let vms = scene.workloads().len();
                assert_eq!(model.vms.len(), vms);
                assert!((13..=14).contains(&vms) && model.volumes.len() > 2 * vms - 2);
                for name in STRATEGIES {
                    file.strategy(name).unwrap_or_else(|e| panic!("{e}"));
                }
                let asked: u64 = model.volumes.iter().map(|v| v.size.0).sum();
                let drives = scene.devices().into_iter().zip(DRIVES);
                let there: f64 = drives.map(|(n, d)| n as f64 * d.1).sum();
                let full = asked as f64 * scale as f64 / there;
                assert!((0.3..0.9).contains(&full), "seed {seed}: {full}");
            }
        }
    }

    #[test]
    fn scenario_is_deterministic_per_seed() {
        let setup = Setup::new(2, 1, 40, 10).unwrap();
        let text = |scene, seed| setup.text(scene, seed);
        assert_eq!(text(SCENES[0], 1), text(SCENES[0], 1));
        assert_ne!(text(SCENES[0], 1), text(SCENES[0], 2));
        assert_ne!(text(SCENES[0], 1), text(SCENES[2], 1));
    }

    #[test]
    fn invalid_setup_is_refused() {
        assert_eq!(Setup::new(1, 1, 40, 10).unwrap_err(), SetupError::Seeds(1));
        assert_eq!(Setup::new(2, 1, 0, 10).unwrap_err(), SetupError::Scale(0));
        assert_eq!(Setup::new(2, 1, 40, 0).unwrap_err(), SetupError::Epochs(0));
    }
}
