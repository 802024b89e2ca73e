//! Reasons a change is invalid.

use model::DeviceSpec;
use thiserror::Error;
use units::Bytes;

use crate::record::{DeviceRecord, MoveRecord, TierRecord, VolumeRecord};

/// Maximum length of a name of a tier, device, volume or service class, in bytes. Keeps tables and messages readable.
pub const NAME_BYTES_MAX: usize = 255;

/// Maximum length of a path or URI, in bytes: the limit of Linux for paths.
pub const PATH_BYTES_MAX: usize = 4096;

/// Maximum length of the JSON specification of an emulated device, in bytes: the limit of a text in a record.
const SPEC_BYTES_MAX: usize = u16::MAX as usize;

/// Largest id of a device. The next one stands for "no device" in memory.
pub const DEVICE_ID_MAX: u16 = u16::MAX - 1;

/// Maximum number of slots of a device (64 TiB at the smallest extent). Bounds the memory of the allocator, 3 bits per
/// slot.
pub const DEVICE_SLOTS_MAX: u32 = 1 << 30;

/// Maximum number of extents of a volume (16 TiB at the smallest extent). Bounds the memory of its map, 8 bytes per
/// extent.
pub const VOLUME_EXTENTS_MAX: u64 = 1 << 28;

/// Maximum number of extent ranges of one move. Bounds the record of a move (16 KiB), which is read at every start, and
/// the line that orders the move at a control socket (at most 22 bytes per range, of 64 KiB).
pub const MOVE_RANGES_MAX: usize = 2048;

/// Maximum number of snapshots of one volume. Bounds the records that are read at every start, and the owners of a
/// slot.
pub const SNAPSHOTS_MAX: usize = 1000;

/// Reason a [`Change`](crate::Change) is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The id is in use.
    #[error("{what} {id} already exists")]
    IdTaken {
        /// `tier`, `device`, `volume`.
        what: &'static str,
        id: u32,
    },
    /// The name or path is in use.
    #[error("{what} {text:?} already belongs to {other}")]
    TextTaken {
        /// `name`, `path`.
        what: &'static str,
        text: String,
        other: String,
    },
    /// The name, class or path is invalid.
    #[error("{what} {text:?}: {why}")]
    Text {
        /// `name`, `class`, `path`.
        what: &'static str,
        text: String,
        /// Reason.
        why: String,
    },
    /// The object does not exist.
    #[error("no {what} {id}")]
    Unknown {
        /// `tier`, `device`, `volume`.
        what: &'static str,
        id: u32,
    },
    /// The id is reserved for "no device".
    #[error("device id {id} is above {DEVICE_ID_MAX}")]
    DeviceId { id: u16 },
    /// The number of slots is out of range.
    #[error("device {device}: {slots} slots, must be 1 to {DEVICE_SLOTS_MAX}")]
    DeviceSlots { device: u16, slots: u32 },
    /// The high-water mark is invalid.
    #[error("device {device}: high-water mark {mark} of {slots} slots: {why}")]
    HighWater {
        device: u16,
        mark: u32,
        slots: u32,
        why: &'static str,
    },
    /// The size is out of range.
    #[error("volume {volume}: {size} has {extents} extents, must be 1 to {VOLUME_EXTENTS_MAX}")]
    VolumeSize {
        volume: u32,
        size: Bytes,
        extents: u64,
    },
    /// The new size would cut off extents that have places.
    #[error(
        "volume {volume}: cannot shrink to {extents} extents, because extent {placed} is allocated"
    )]
    Shrink {
        volume: u32,
        /// Number of extents after the change.
        extents: u64,
        /// First extent beyond them that has a place.
        placed: u32,
    },
    /// The extent is past the end of its volume.
    #[error("volume {volume} has {extents} extents, so extent {extent} does not exist")]
    ExtentOutside {
        volume: u32,
        extent: u32,
        /// Number of extents of the volume.
        extents: u64,
    },
    /// The move has no extents, or too many ranges.
    #[error(
        "a move of volume {volume} has {ranges} ranges of extents, must be 1 to {MOVE_RANGES_MAX}"
    )]
    MoveRanges {
        volume: u32,
        /// Number of ranges.
        ranges: usize,
    },
    /// The volume cannot be removed, because it has snapshots.
    #[error("volume {volume} has snapshots: {names}: delete them first")]
    HasSnapshots {
        volume: u32,
        /// Names of its snapshots; only the first few if there are many.
        names: String,
    },
    /// The volume has the maximum number of snapshots.
    #[error(
        "volume {volume} has {SNAPSHOTS_MAX} snapshots, which is the maximum: delete one first"
    )]
    TooManySnapshots { volume: u32 },
    /// The snapshot cannot be taken, restored or changed in this way.
    #[error("volume {volume}: {why}")]
    Snapshot {
        /// Snapshot.
        volume: u32,
        /// Reason.
        why: String,
    },
    /// The import cannot start or end in this way.
    #[error("import of volume {volume}: {why}")]
    Source {
        volume: u32,
        /// Reason.
        why: String,
    },
    /// The record of a volume that may be a snapshot in question is corrupt.
    #[error(
        "the record of volume {volume} is corrupt, and it may be a snapshot between others: delete all other snapshots first"
    )]
    PerhapsSnapshot { volume: u32 },
    /// The volume has a move, and the change would alter it.
    #[error("volume {volume} is moving: wait for the move or cancel it first")]
    Moves { volume: u32 },
    /// Records of the volume are lost.
    #[error("volume {volume} is damaged: it cannot have new snapshots")]
    Damaged { volume: u32 },
    /// The extent has no place yet but needs one.
    #[error("extent {extent} of volume {volume} is not allocated")]
    NoPlace { volume: u32, extent: u32 },
    /// The slot is past the end of its device.
    #[error("device {device} has {slots} slots, so slot {slot} does not exist")]
    SlotOutside {
        device: u16,
        slot: u32,
        /// Number of slots of the device.
        slots: u32,
    },
    /// The place is in a slot that was never written, according to the high-water mark.
    #[error(
        "slot {slot} of device {device} is not below its high-water mark {high_water}, which must be raised first"
    )]
    AboveHighWater {
        device: u16,
        slot: u32,
        /// High-water mark.
        high_water: u32,
    },
    /// The device to be removed still has an extent.
    #[error(
        "device {device} holds extent {extent} of volume {volume}, and perhaps others: move all data off it first"
    )]
    DeviceHolds {
        device: u16,
        volume: u32,
        /// First such extent.
        extent: u32,
    },
    /// The device to be removed is the target of a move.
    #[error("volume {volume} is moving to device {device}: cancel the move first")]
    DeviceIsTarget { device: u16, volume: u32 },
    /// The change of the device would lose places.
    #[error("device {device} cannot change its tier, nor have fewer slots")]
    DeviceChanged { device: u16 },
    /// The tier to be removed is in use.
    #[error("tier {tier} is in use: {why}")]
    TierInUse { tier: u16, why: String },
    /// The generation of the membership is not above the confirmed one.
    #[error("membership of generation {generation} does not come after {confirmed}")]
    Membership {
        generation: u64,
        /// Confirmed generation.
        confirmed: u64,
    },
    /// Too many memberships were proposed without a confirmation.
    #[error(
        "too many memberships were proposed and not confirmed: reconnect the missing devices first"
    )]
    Proposals,
    /// No proposed membership exists.
    #[error("no membership was proposed")]
    NothingProposed,
    /// The place that would be replaced is unknown. Overwriting its record would hide the damage.
    #[error(
        "the record of extent {extent} of volume {volume} is corrupt and is not overwritten: delete the volume"
    )]
    LostExtent { volume: u32, extent: u32 },
}

/// Text for messages that names the existing object.
pub(crate) fn taken(
    what: &'static str,
    text: &str,
    of: &'static str,
    id: impl std::fmt::Display,
) -> Refusal {
    Refusal::TextTaken {
        what,
        text: text.into(),
        other: format!("{of} {id}"),
    }
}

fn check_text(what: &'static str, text: &str, most: usize) -> Result<(), Refusal> {
    let refuse = |why: String| Refusal::Text {
        what,
        text: text.chars().take(NAME_BYTES_MAX).collect(),
        why,
    };
    if text.is_empty() {
        return Err(refuse("must not be empty".into()));
    }
    if text.len() > most {
        let why = format!("{} bytes, at most {most} are allowed", text.len());
        return Err(refuse(why));
    }
    match units::hidden_fault(text) {
        Some(fault) => Err(refuse(fault)),
        None => Ok(()),
    }
}

/// Checks the name of a controller.
pub(crate) fn check_controller(name: &str) -> Result<(), Refusal> {
    check_text("controller", name, NAME_BYTES_MAX)
}

/// Checks a path by itself.
pub(crate) fn check_path(path: &str) -> Result<(), Refusal> {
    check_text("path", path, PATH_BYTES_MAX)
}

/// Checks a tier by itself.
pub(crate) fn check_tier(tier: &TierRecord) -> Result<(), Refusal> {
    check_text("name", &tier.name, NAME_BYTES_MAX)
}

/// Checks a device by itself.
pub(crate) fn check_device(record: &DeviceRecord) -> Result<(), Refusal> {
    let (device, slots, mark) = (record.id.0, record.slots, record.high_water);
    check_text("name", &record.name, NAME_BYTES_MAX)?;
    check_path(&record.path)?;
    if device > DEVICE_ID_MAX {
        return Err(Refusal::DeviceId { id: device });
    }
    if !(1..=DEVICE_SLOTS_MAX).contains(&slots) {
        return Err(Refusal::DeviceSlots { device, slots });
    }
    check_spec(record)?;
    let why = match record.kind.begins_as_zeroes() {
        _ if mark > slots => "it is past the end",
        false if mark < slots => {
            "only a file's slots are known to be zeroes where nothing was written"
        }
        _ => return Ok(()),
    };
    Err(Refusal::HighWater {
        device,
        mark,
        slots,
        why,
    })
}

/// Checks the specification of an emulated device. It is stored as text, which has no NaN and no infinity.
fn check_spec(record: &DeviceRecord) -> Result<(), Refusal> {
    let Some(spec) = &record.emulate else {
        return Ok(());
    };
    let json = serde_json::to_string(spec).expect("a spec is plain data");
    let back: Result<DeviceSpec, _> = serde_json::from_str(&json);
    let why = match back {
        Ok(_) if json.len() > SPEC_BYTES_MAX => {
            format!("{} bytes, at most {SPEC_BYTES_MAX} are allowed", json.len())
        }
        Ok(back) if back == *spec => return Ok(()),
        Ok(_) => "could not be read back unchanged".into(),
        Err(e) => format!("would not be read back: {e}"),
    };
    Err(Refusal::Text {
        what: "specification of",
        text: record.name.clone(),
        why,
    })
}

/// Checks a move of a volume with this number of extents.
pub(crate) fn check_move(record: &MoveRecord, extents: u64) -> Result<(), Refusal> {
    let Some(chosen) = &record.extents else {
        return Ok(());
    };
    let (volume, ranges) = (record.volume.0, chosen.ranges().len());
    if !(1..=MOVE_RANGES_MAX).contains(&ranges) {
        return Err(Refusal::MoveRanges { volume, ranges });
    }
    match chosen.last().filter(|last| u64::from(*last) >= extents) {
        None => Ok(()),
        Some(extent) => Err(Refusal::ExtentOutside {
            volume,
            extent,
            extents,
        }),
    }
}

/// Checks a volume by itself.
pub(crate) fn check_volume(record: &VolumeRecord, extent: Bytes) -> Result<(), Refusal> {
    check_text("name", &record.name, NAME_BYTES_MAX)?;
    check_text("class", &record.class, NAME_BYTES_MAX)?;
    if let Some(source) = &record.source {
        check_path(&source.from)?;
        check_text("format", &source.format, NAME_BYTES_MAX)?;
        if record.snapshot.is_some() {
            let (volume, why) = (record.id.0, "a snapshot cannot be an import".into());
            return Err(Refusal::Source { volume, why });
        }
    }
    let extents = record.extents(extent);
    match (1..=VOLUME_EXTENTS_MAX).contains(&extents) {
        true => Ok(()),
        false => Err(Refusal::VolumeSize {
            volume: record.id.0,
            size: record.size,
            extents,
        }),
    }
}
