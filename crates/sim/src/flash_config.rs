//! What is inside the SSDs of a tier, where a scenario says so: `[flash.TIER]`.

use std::sync::Arc;

use config::scenario::FlashConfig;
use config::{find, suggestion};
use flash::drive::{DriveConfig, PRESETS, preset};
use flash::ftl::{Sharing, TenantId};
use flash::{Drive, FlashError};
use model::Topology;
use units::Bytes;

use crate::build::VolumeModel;
use crate::frames::FrameSize;
use crate::slots::first_places;
use crate::{ScenarioError, ScenarioFile};

/// Pages that the maps of one drive hold unless a scale is given: some tens of megabytes, and a moment to age them.
const SAMPLED_PAGES: u64 = 1 << 21;
/// Overwrites of the whole drive at most; it is in its steady state long before.
const AGE_MAX: f64 = 10.0;

/// A drive as it is when a run begins.
#[derive(Debug, Clone)]
pub struct FlashModel {
    pub(crate) drive: Drive,
    pub(crate) tenant: TenantId,
    pub(crate) discard: bool,
    pub(crate) frames: FrameSize,
}

impl ScenarioFile {
    /// The drives, by device; none for those without.
    pub(crate) fn flash(
        &self,
        topology: &Topology,
        volumes: &[VolumeModel],
    ) -> Result<Vec<Option<Arc<FlashModel>>>, ScenarioError> {
        let mut out = vec![None; topology.devices.len()];
        if self.scenario.flash.is_empty() {
            return Ok(out);
        }
        let extent = self.scenario.extent;
        let (_, maps) = first_places(volumes, extent, out.len());
        let frames = FrameSize::of(extent);
        let mut taken = vec![0; out.len()];
        for map in &maps {
            for e in 0..map.extents() {
                let device = map.location(e).map(|l| l.device.index());
                device
                    .into_iter()
                    .for_each(|d| taken[d] += frames.of_bytes(map.bytes_of(e)));
            }
        }
        // The last frame of a volume is not always full.
        let odd = volumes.len() as u64;
        for (name, config) in &self.scenario.flash {
            let names = topology.tiers.iter().map(|t| t.name.as_str());
            let tier = find(name, names)
                .map_err(|why| self.fault(&format!("flash.{name}"), format!("in tiers: {why}")))?;
            let base = self.drive_config(name, config)?;
            for device in &topology.tiers[tier].devices {
                let capacity = topology.device(*device).spec.capacity;
                let room = frames.room(capacity) + odd;
                let taken = taken[device.index()];
                let prepared = prepare(base.clone(), config, capacity, frames, room, taken);
                let model = prepared.map_err(|e| {
                    let device = &topology.device(*device).name;
                    self.fault(
                        &format!("flash.{name}"),
                        format!("device \"{device}\": {e}"),
                    )
                })?;
                out[device.index()] = Some(Arc::new(model));
            }
        }
        Ok(out)
    }

    fn drive_config(&self, tier: &str, config: &FlashConfig) -> Result<DriveConfig, ScenarioError> {
        let key = |key: &str| format!("flash.{tier}.{key}");
        let mut drive = match (&config.preset, &config.drive) {
            (Some(name), None) => preset(name).ok_or_else(|| {
                let why = suggestion(name, PRESETS.iter().map(|p| p.name));
                self.fault(&key("preset"), format!("unknown drive \"{name}\"{why}"))
            })?,
            (None, Some(drive)) => drive.clone(),
            (None, None) => {
                let why = "needs a preset, or a drive in full as drive";
                return Err(self.fault(&format!("flash.{tier}"), why));
            }
            (Some(_), Some(_)) => {
                return Err(self.fault(&key("drive"), "give either a preset or a drive"));
            }
        };
        if drive.ftl.sharing != Sharing::OnePool {
            let why = "volumes move between drives, so they share one pool of erase blocks; `terrace sim ssd` compares ways to share";
            return Err(self.fault(&key("drive"), why));
        }
        if !(0.0..=AGE_MAX).contains(&config.age) {
            let why = format!("{} is not between 0 and {AGE_MAX}", config.age);
            return Err(self.fault(&key("age"), why));
        }
        drive.ftl.spare_share = config.spare.unwrap_or(drive.ftl.spare_share);
        drive.endurance = config.endurance.unwrap_or(drive.endurance);
        drive.scale = config.scale.unwrap_or(drive.scale);
        drive.ftl.seed = self.scenario.seed;
        Ok(drive)
    }
}

/// A full and aged drive, of whose `room` frames the first `taken` are in use. Its flash is that of `capacity`, whatever is made
/// addressable for frames that are not full.
fn prepare(
    mut drive: DriveConfig,
    config: &FlashConfig,
    capacity: Bytes,
    frames: FrameSize,
    room: u64,
    taken: u64,
) -> Result<FlashModel, FlashError> {
    let bytes = Bytes(room * frames.bytes);
    if config.scale.is_none() {
        let pages = bytes.0 / drive.page.0.max(1);
        drive.scale = pages.div_ceil(SAMPLED_PAGES).clamp(1, 65_536) as u32;
    }
    let flash = capacity.as_f64() / (1.0 - drive.ftl.spare_share);
    drive.ftl.spare_share = 1.0 - bytes.as_f64() / flash;
    let mut drive = Drive::new(drive, bytes)?;
    let tenant = drive.add_tenant(bytes, 0.0)?;
    drive.age(config.age);
    // What is beyond the capacity has never been there.
    let empty = match config.discard {
        true => Bytes(taken * frames.bytes),
        false => capacity,
    };
    drive.trim(tenant, empty.0, bytes.0.saturating_sub(empty.0));
    drive.clear_counts();
    Ok(FlashModel {
        drive,
        tenant,
        discard: config.discard,
        frames,
    })
}
