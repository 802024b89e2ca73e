//! Flash models of the SSDs of a tier, if a scenario has them: `[flash.TIER]`.

use std::sync::Arc;

use config::scenario::FlashConfig;
use config::{find, suggestion};
use flash::drive::{DriveConfig, PRESETS, preset};
use flash::ftl::{Sharing, TenantId};
use flash::{Drive, FlashError};
use model::{SloClass, Topology};
use units::Bytes;

use crate::build::VolumeModel;
use crate::frames::FrameSize;
use crate::slots::first_places;
use crate::tenants::FlashTenants;
use crate::{ScenarioError, ScenarioFile};

/// Number of mapped pages of one drive if no scale is given: some tens of megabytes, and a short time for aging.
const SAMPLED_PAGES: u64 = 1 << 21;
/// Largest number of overwrites of the whole drive. It reaches its steady state long before.
const AGE_MAX: f64 = 10.0;

/// Drive at the start of a run.
#[derive(Debug, Clone)]
pub struct FlashModel {
    pub(crate) drive: Drive,
    /// Tenants of the drive, if the scenario has any.
    pub(crate) tenants: Option<Arc<FlashTenants>>,
    /// Numbers of the tenants on the drive, in the same order; a single one if there are no tenants.
    pub(crate) ids: Vec<TenantId>,
    pub(crate) discard: bool,
    pub(crate) frames: FrameSize,
}

impl ScenarioFile {
    /// Returns the drive of each device; `None` for devices without a flash model.
    pub(crate) fn flash(
        &self,
        topology: &Topology,
        volumes: &[VolumeModel],
        classes: &[SloClass],
    ) -> Result<Vec<Option<Arc<FlashModel>>>, ScenarioError> {
        let mut out = vec![None; topology.devices.len()];
        if self.scenario.flash.is_empty() {
            return Ok(out);
        }
        let extent = self.scenario.extent;
        let (_, maps) = first_places(volumes, extent, out.len());
        let frames = FrameSize::of(extent);
        // Volume of each used frame, in the order of allocation.
        let mut taken: Vec<Vec<u32>> = vec![Vec::new(); out.len()];
        for (v, map) in maps.iter().enumerate() {
            for e in 0..map.extents() {
                if let Some(place) = map.location(e) {
                    let n = frames.of_bytes(map.bytes_of(e)) as usize;
                    let taken = &mut taken[place.device.index()];
                    taken.resize(taken.len() + n, v as u32);
                }
            }
        }
        // The last frame of a volume may be partial.
        let odd = volumes.len() as u64;
        for (name, config) in &self.scenario.flash {
            let names = topology.tiers.iter().map(|t| t.name.as_str());
            let tier = find(name, names)
                .map_err(|why| self.fault(&format!("flash.{name}"), format!("in tiers: {why}")))?;
            let base = self.drive_config(name, config)?;
            let tenants = self.tenants(name, config, volumes, classes)?.map(Arc::new);
            for device in &topology.tiers[tier].devices {
                let capacity = topology.device(*device).spec.capacity;
                let room = Room {
                    capacity,
                    frames,
                    count: frames.room(capacity) + odd,
                    taken: &taken[device.index()],
                };
                let prepared = prepare(base.clone(), config, &room, tenants.clone());
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
                let why = "requires a preset or a complete drive";
                return Err(self.fault(&format!("flash.{tier}"), why));
            }
            (Some(_), Some(_)) => {
                return Err(self.fault(&key("drive"), "give either a preset or a drive, not both"));
            }
        };
        if drive.ftl.sharing != Sharing::OnePool {
            let why = format!("the sharing of erase blocks is set in flash.{tier}.isolation");
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

/// Addressable space of a drive. Its flash is that of `capacity`; additional addresses serve partial frames.
struct Room<'a> {
    capacity: Bytes,
    frames: FrameSize,
    /// Number of frames.
    count: u64,
    /// Volumes of the used frames, which are the first ones.
    taken: &'a [u32],
}

/// Returns a full and aged drive.
fn prepare(
    mut drive: DriveConfig,
    config: &FlashConfig,
    room: &Room<'_>,
    tenants: Option<Arc<FlashTenants>>,
) -> Result<FlashModel, FlashError> {
    let (capacity, frames) = (room.capacity, room.frames);
    let bytes = Bytes(room.count * frames.bytes);
    if config.scale.is_none() {
        let pages = bytes.0 / drive.page.0.max(1);
        drive.scale = pages.div_ceil(SAMPLED_PAGES).clamp(1, 65_536) as u32;
    }
    let flash = capacity.as_f64() / (1.0 - drive.ftl.spare_share);
    drive.ftl.spare_share = 1.0 - bytes.as_f64() / flash;
    let (mut drive, ids) = match &tenants {
        None => {
            let mut drive = Drive::new(drive, bytes)?;
            let tenant = drive.add_tenant(bytes, 0.0)?;
            drive.age(config.age);
            (drive, vec![tenant])
        }
        Some(tenants) => aged_by_tenants(drive, config.age, room, tenants)?,
    };
    // Space beyond the capacity was never written.
    let empty = match config.discard {
        true => Bytes(room.taken.len() as u64 * frames.bytes),
        false => capacity,
    };
    drive.trim(ids[0], empty.0, bytes.0.saturating_sub(empty.0));
    // Data of the aging in frames that are free now is discarded before the run, so the run does not count it.
    drive.settle();
    drive.clear_counts();
    Ok(FlashModel {
        drive,
        tenants,
        ids,
        discard: config.discard,
        frames,
    })
}

/// Returns the drive aged by tenants: the tenant of a frame's volume writes it, and the last tenant writes the frames
/// without a volume.
fn aged_by_tenants(
    mut drive: DriveConfig,
    age: f64,
    room: &Room<'_>,
    tenants: &FlashTenants,
) -> Result<(Drive, Vec<TenantId>), FlashError> {
    drive.ftl.sharing = tenants.sharing;
    drive.ftl.handles = tenants.names.len() as u32;
    let by_handle = matches!(
        tenants.sharing,
        Sharing::HandlesInitially | Sharing::HandlesPersistently
    );
    if by_handle {
        drive.ftl = drive.ftl.with_reserve_for_streams();
    }
    let bytes = Bytes(room.count * room.frames.bytes);
    let mut drive = Drive::with_one_address_space(drive, bytes)?;
    let ids = tenants.shares.iter();
    let ids = ids.map(|share| drive.add_tenant_by_share(*share));
    let ids = ids.collect::<Result<Vec<TenantId>, FlashError>>()?;
    drive.age_by_owner(age, |at| {
        let volume = room.taken.get((at / room.frames.bytes) as usize);
        let tenant = volume.map_or(tenants.others(), |v| tenants.of_volume[*v as usize]);
        ids[usize::from(tenant)]
    });
    Ok((drive, ids))
}
