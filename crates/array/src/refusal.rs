//! Why a change is not valid.

use model::DeviceSpec;
use thiserror::Error;
use units::Bytes;

use crate::record::{DeviceRecord, MoveRecord, TierRecord, VolumeRecord};

/// Longest name of a tier, device, volume or service class, in bytes: keeps tables and messages readable.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest path or URI, in bytes: what Linux allows a path.
pub const PATH_BYTES_MAX: usize = 4096;

/// Longest specification of an emulated device as JSON, in bytes: what the length of a text in a record can say.
const SPEC_BYTES_MAX: usize = u16::MAX as usize;

/// Largest id of a device; the one above it stands for "no device" in memory.
pub const DEVICE_ID_MAX: u16 = u16::MAX - 1;

/// Most slots of one device (64 TiB at the smallest extent); protects the memory of the allocator, 3 bits per slot.
pub const DEVICE_SLOTS_MAX: u32 = 1 << 30;

/// Most extents of one volume (16 TiB at the smallest extent); protects the memory of its map, 8 bytes per extent.
pub const VOLUME_EXTENTS_MAX: u64 = 1 << 28;

/// Most ranges of extents that one move names. Bounds the record of a move (16 KiB), which is read at every start, and the
/// line that orders it at a control socket (22 bytes a range at most, of 64 KiB).
pub const MOVE_RANGES_MAX: usize = 2048;

/// Most snapshots of one volume. Bounds the records that are read at every start, and the owners of a slot.
pub const SNAPSHOTS_MAX: usize = 1000;

/// Why a [`Change`](crate::Change) is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// An id that is in use.
    #[error("{what} {id} already exists")]
    IdTaken {
        /// `tier`, `device`, `volume`.
        what: &'static str,
        id: u32,
    },
    /// A name or a path that is in use.
    #[error("{what} {text:?} already belongs to {other}")]
    TextTaken {
        /// `name`, `path`.
        what: &'static str,
        text: String,
        other: String,
    },
    /// A name, class or path that cannot be one.
    #[error("{what} {text:?}: {why}")]
    Text {
        /// `name`, `class`, `path`.
        what: &'static str,
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something that does not exist.
    #[error("no {what} {id}")]
    Unknown {
        /// `tier`, `device`, `volume`.
        what: &'static str,
        id: u32,
    },
    /// The id that stands for "no device".
    #[error("device id {id} is above {DEVICE_ID_MAX}")]
    DeviceId { id: u16 },
    /// A number of slots out of range.
    #[error("device {device}: {slots} slots, must be 1 to {DEVICE_SLOTS_MAX}")]
    DeviceSlots { device: u16, slots: u32 },
    /// A high-water mark that cannot be.
    #[error("device {device}: high-water mark {mark} of {slots} slots: {why}")]
    HighWater {
        device: u16,
        mark: u32,
        slots: u32,
        why: &'static str,
    },
    /// A size out of range.
    #[error("volume {volume}: {size} has {extents} extents, must be 1 to {VOLUME_EXTENTS_MAX}")]
    VolumeSize {
        volume: u32,
        size: Bytes,
        extents: u64,
    },
    /// A new size would leave places behind.
    #[error(
        "volume {volume}: cannot shrink to {extents} extents, because extent {placed} is allocated"
    )]
    Shrink {
        volume: u32,
        /// The extents left.
        extents: u64,
        /// The first extent after them that has a place.
        placed: u32,
    },
    /// An extent past the end of its volume.
    #[error("volume {volume} has {extents} extents, so extent {extent} does not exist")]
    ExtentOutside {
        volume: u32,
        extent: u32,
        /// The volume's extents.
        extents: u64,
    },
    /// A move of no extents, or of too many ranges of them.
    #[error(
        "a move of volume {volume} has {ranges} ranges of extents, must be 1 to {MOVE_RANGES_MAX}"
    )]
    MoveRanges {
        volume: u32,
        /// How many.
        ranges: usize,
    },
    /// A volume that cannot go, as there are snapshots of it.
    #[error("volume {volume} has snapshots: {names}: delete them first")]
    HasSnapshots {
        volume: u32,
        /// The names of its snapshots, of the first few if there are many.
        names: String,
    },
    /// A volume that has as many snapshots as there can be.
    #[error(
        "volume {volume} has {SNAPSHOTS_MAX} snapshots, which is the maximum: delete one first"
    )]
    TooManySnapshots { volume: u32 },
    /// A snapshot that cannot be taken, restored, or changed like that.
    #[error("volume {volume}: {why}")]
    Snapshot {
        /// The snapshot.
        volume: u32,
        /// Why not.
        why: String,
    },
    /// An import that cannot begin, or end, like that.
    #[error("import of volume {volume}: {why}")]
    Source {
        volume: u32,
        /// Why not.
        why: String,
    },
    /// A volume of which it is not known whether it is a snapshot, and of what.
    #[error(
        "the record of volume {volume} is corrupt, and it may be a snapshot between others: delete all other snapshots first"
    )]
    PerhapsSnapshot { volume: u32 },
    /// A volume that is moving, and would be another one.
    #[error("volume {volume} is moving: wait for the move or cancel it first")]
    Moves { volume: u32 },
    /// A volume that the map does not know everything about.
    #[error("volume {volume} is damaged: it cannot have new snapshots")]
    Damaged { volume: u32 },
    /// An extent that has no place yet, and should have one.
    #[error("extent {extent} of volume {volume} is not allocated")]
    NoPlace { volume: u32, extent: u32 },
    /// A slot past the end of its device.
    #[error("device {device} has {slots} slots, so slot {slot} does not exist")]
    SlotOutside {
        device: u16,
        slot: u32,
        /// The device's slots.
        slots: u32,
    },
    /// A place in a slot that, by the mark, was never written.
    #[error(
        "slot {slot} of device {device} is not below its high-water mark {high_water}, which must be raised first"
    )]
    AboveHighWater {
        device: u16,
        slot: u32,
        /// The mark.
        high_water: u32,
    },
    /// A device that is to go, and still holds something.
    #[error(
        "device {device} holds extent {extent} of volume {volume}, and perhaps others: move all data off it first"
    )]
    DeviceHolds {
        device: u16,
        volume: u32,
        /// The first such extent.
        extent: u32,
    },
    /// A device that is to go, and that something is moving to.
    #[error("volume {volume} is moving to device {device}: cancel the move first")]
    DeviceIsTarget { device: u16, volume: u32 },
    /// A change of what a device is that would lose places.
    #[error("device {device} cannot change its tier, nor have fewer slots")]
    DeviceChanged { device: u16 },
    /// A tier that is to go, and is in use.
    #[error("tier {tier} is in use: {why}")]
    TierInUse { tier: u16, why: String },
    /// A membership that does not come after the one that holds.
    #[error("membership of generation {generation} does not come after {confirmed}")]
    Membership {
        generation: u64,
        /// That of the one that holds.
        confirmed: u64,
    },
    /// Too many memberships were proposed that could not be confirmed.
    #[error(
        "too many memberships were proposed and not confirmed: reconnect the missing devices first"
    )]
    Proposals,
    /// There is no membership to confirm.
    #[error("no membership was proposed")]
    NothingProposed,
    /// The place that would be replaced is not known; forgetting it would hide the damage.
    #[error(
        "the record of extent {extent} of volume {volume} is corrupt and is not overwritten: delete the volume"
    )]
    LostExtent { volume: u32, extent: u32 },
}

/// What there is already of a kind, in messages.
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

/// Refuses the name of a controller that cannot be kept.
pub(crate) fn check_controller(name: &str) -> Result<(), Refusal> {
    check_text("controller", name, NAME_BYTES_MAX)
}

/// What a path must be by itself.
pub(crate) fn check_path(path: &str) -> Result<(), Refusal> {
    check_text("path", path, PATH_BYTES_MAX)
}

/// What a tier must be by itself.
pub(crate) fn check_tier(tier: &TierRecord) -> Result<(), Refusal> {
    check_text("name", &tier.name, NAME_BYTES_MAX)
}

/// What a device must be by itself.
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

/// A specification is stored as text, which has no NaN and no infinity.
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

/// What a move of a volume of so many extents must be.
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

/// What a volume must be by itself.
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
