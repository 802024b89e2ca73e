//! Encoding and decoding of records.
//!
//! A field is a little-endian number; a text is its length in bytes as a `u16` and then UTF-8; an optional text is one
//! byte, 0 or 1, and the text if that is 1.

use model::{ControllerId, DirectIo, ExtentRanges, LeaseHolder};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, TierId, VolumeId};

use crate::membership::{DeviceStamp, MapState, Members, Membership, SecondCopy, Stamp};
use crate::record::{
    DeviceKind, DeviceRecord, Health, LOGICAL_BLOCK_MAX, LOGICAL_BLOCK_MIN, LeaseRecord,
    MoveRecord, SnapshotOf, SourceMark, SourceRecord, TierRecord, VolumeRecord,
};
use crate::refusal::MOVE_RANGES_MAX;
use crate::tables::{
    DIRECT_VERSION, Key, RANGES_VERSION, RECORD_VERSION, SNAPSHOT_VERSION, SOURCE_VERSION, Table,
    seal, unseal,
};
use crate::{ArrayError, ArrayId};

/// Record of a table; it knows its key.
pub(crate) trait Record: Sized {
    /// Type of the table's keys.
    type Id: Copy + Ord;
    const TABLE: Table;
    /// Newest version of the layout.
    const NEWEST: u8 = RECORD_VERSION;
    /// Key as shown in messages and covered by the checksum.
    fn key(id: Self::Id) -> Key;
    /// Returns the record's own key.
    fn id(&self) -> Self::Id;
    /// Oldest version of the layout that can represent this record.
    fn version(&self) -> u8 {
        RECORD_VERSION
    }
    /// Appends the fields.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads the fields; the error names the field.
    fn read(id: Self::Id, fields: &mut Fields<'_>) -> Result<Self, ArrayError>;

    /// Returns the value for the table.
    fn encode(&self) -> Vec<u8> {
        let mut body = vec![self.version()];
        self.write(&mut body);
        seal(Self::TABLE, Self::key(self.id()), body)
    }

    /// Decodes a value of the table; an error about its content names the field.
    fn decode(id: Self::Id, value: &[u8]) -> Result<Self, ArrayError> {
        let mut fields = Fields::unseal(Self::TABLE, Self::key(id), value)?;
        fields.version = fields.u8("version")?;
        if !(RECORD_VERSION..=Self::NEWEST).contains(&fields.version) {
            let known = match Self::NEWEST {
                RECORD_VERSION => RECORD_VERSION.to_string(),
                newest => format!("{RECORD_VERSION} to {newest}"),
            };
            return Err(fields.invalid(format!(
                "record version {} is unknown to this program, which reads {known}",
                fields.version
            )));
        }
        let record = Self::read(id, &mut fields)?;
        fields.end()?;
        Ok(record)
    }
}

/// Unread rest of a record.
pub(crate) struct Fields<'a> {
    table: Table,
    key: Key,
    rest: &'a [u8],
    /// Version of the record's layout, after it was read.
    version: u8,
}

impl<'a> Fields<'a> {
    /// Returns the fields of a value if its checksum matches.
    pub(crate) fn unseal(table: Table, key: Key, value: &'a [u8]) -> Result<Self, ArrayError> {
        Ok(Self {
            table,
            key,
            rest: unseal(table, key, value)?,
            version: 0,
        })
    }

    /// Returns the error for a record with invalid content.
    fn invalid(&self, why: impl Into<String>) -> ArrayError {
        ArrayError::Record {
            table: self.table.name(),
            key: self.key.to_string(),
            why: why.into(),
        }
    }

    fn take<const N: usize>(&mut self, field: &str) -> Result<[u8; N], ArrayError> {
        let (first, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| self.invalid(format!("field {field} is cut off")))?;
        self.rest = rest;
        Ok(*first)
    }

    fn u8(&mut self, field: &str) -> Result<u8, ArrayError> {
        self.take(field).map(u8::from_le_bytes)
    }

    fn u16(&mut self, field: &str) -> Result<u16, ArrayError> {
        self.take(field).map(u16::from_le_bytes)
    }

    fn u32(&mut self, field: &str) -> Result<u32, ArrayError> {
        self.take(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &str) -> Result<u64, ArrayError> {
        self.take(field).map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self, field: &str) -> Result<u128, ArrayError> {
        self.take(field).map(u128::from_le_bytes)
    }

    /// Returns an error if bytes follow the last field.
    pub(crate) fn end(&self) -> Result<(), ArrayError> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(self.invalid(format!("{n} bytes too many"))),
        }
    }

    fn text(&mut self, field: &str) -> Result<String, ArrayError> {
        let length = usize::from(self.u16(field)?);
        let (text, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| self.invalid(format!("field {field} is cut off")))?;
        self.rest = rest;
        match std::str::from_utf8(text) {
            Ok(text) => Ok(text.to_string()),
            Err(e) => Err(self.invalid(format!("field {field} is not text: {e}"))),
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("texts are limited before they get here");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

impl Record for TierRecord {
    type Id = u16;
    const TABLE: Table = Table::Tiers;
    fn key(id: u16) -> Key {
        Key::Short(id)
    }
    fn id(&self) -> u16 {
        self.id.0
    }
    fn write(&self, out: &mut Vec<u8>) {
        put_text(out, &self.name);
    }
    fn read(id: u16, fields: &mut Fields<'_>) -> Result<Self, ArrayError> {
        Ok(Self {
            id: TierId(id),
            name: fields.text("name")?,
        })
    }
}

impl Record for DeviceRecord {
    type Id = u16;
    const TABLE: Table = Table::Devices;
    const NEWEST: u8 = DIRECT_VERSION;
    fn key(id: u16) -> Key {
        Key::Short(id)
    }
    fn id(&self) -> u16 {
        self.id.0
    }
    fn version(&self) -> u8 {
        match self.direct {
            DirectIo::Off => RECORD_VERSION,
            DirectIo::On | DirectIo::Auto => DIRECT_VERSION,
        }
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tier.0.to_le_bytes());
        out.push(match self.kind {
            DeviceKind::File => 0,
            DeviceKind::Block => 1,
            DeviceKind::Nbd => 3,
            DeviceKind::Gone => 4,
        });
        out.extend_from_slice(&self.slots.to_le_bytes());
        out.extend_from_slice(&self.high_water.to_le_bytes());
        put_text(out, &self.name);
        put_text(out, &self.path);
        match &self.emulate {
            None => out.push(0),
            Some(spec) => {
                out.push(1);
                let json = serde_json::to_string(spec).expect("a spec is plain data");
                put_text(out, &json);
            }
        }
        match self.direct {
            DirectIo::Off => {}
            DirectIo::On => out.push(1),
            DirectIo::Auto => out.push(2),
        }
    }
    fn read(id: u16, fields: &mut Fields<'_>) -> Result<Self, ArrayError> {
        let tier = TierId(fields.u16("tier")?);
        let kind = match fields.u8("kind")? {
            0 => DeviceKind::File,
            1 => DeviceKind::Block,
            3 => DeviceKind::Nbd,
            4 => DeviceKind::Gone,
            other => {
                return Err(fields.invalid(format!("field kind is {other}, must be 0, 1, 3 or 4")));
            }
        };
        let (slots, high_water) = (fields.u32("slots")?, fields.u32("high-water mark")?);
        let (name, path) = (fields.text("name")?, fields.text("path")?);
        let emulate = match fields.u8("emulate")? {
            0 => None,
            1 => {
                let json = fields.text("emulate")?;
                let spec = serde_json::from_str(&json);
                Some(spec.map_err(|e| fields.invalid(format!("field emulate: {e}")))?)
            }
            other => {
                return Err(
                    fields.invalid(format!("field emulate begins with {other}, must be 0 or 1"))
                );
            }
        };
        let direct = match fields.version {
            RECORD_VERSION => DirectIo::Off,
            _ => match fields.u8("direct")? {
                1 => DirectIo::On,
                2 => DirectIo::Auto,
                other => {
                    return Err(fields.invalid(format!("field direct is {other}, must be 1 or 2")));
                }
            },
        };
        Ok(Self {
            id: DeviceId(id),
            tier,
            name,
            kind,
            path,
            slots,
            high_water,
            emulate,
            direct,
        })
    }
}

impl Record for VolumeRecord {
    type Id = u32;
    const TABLE: Table = Table::Volumes;
    const NEWEST: u8 = SOURCE_VERSION;
    fn key(id: u32) -> Key {
        Key::Long(id)
    }
    fn id(&self) -> u32 {
        self.id.0
    }
    fn version(&self) -> u8 {
        match (&self.snapshot, &self.source) {
            (_, Some(_)) => SOURCE_VERSION,
            (Some(_), None) => SNAPSHOT_VERSION,
            (None, None) => RECORD_VERSION,
        }
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.size.0.to_le_bytes());
        out.extend_from_slice(&self.home.0.to_le_bytes());
        out.push(match self.health {
            Health::Whole => 0,
            Health::Damaged => 1,
        });
        put_text(out, &self.name);
        put_text(out, &self.class);
        out.extend_from_slice(&self.logical_block.to_le_bytes());
        if let Some(of) = &self.snapshot {
            out.extend_from_slice(&of.volume.0.to_le_bytes());
            out.extend_from_slice(&of.sequence.to_le_bytes());
            out.extend_from_slice(&of.taken_s.to_le_bytes());
        }
        if let Some(source) = &self.source {
            out.extend_from_slice(&source.device.0.to_le_bytes());
            put_text(out, &source.from);
            put_text(out, &source.format);
            out.extend_from_slice(&source.mark.size.0.to_le_bytes());
            out.extend_from_slice(&source.mark.file_bytes.to_le_bytes());
            out.extend_from_slice(&source.mark.modified_ns.to_le_bytes());
            out.extend_from_slice(&source.mark.inode.to_le_bytes());
            out.extend_from_slice(&source.bandwidth.0.to_le_bytes());
        }
    }
    fn read(id: u32, fields: &mut Fields<'_>) -> Result<Self, ArrayError> {
        let (size, home) = (Bytes(fields.u64("size")?), TierId(fields.u16("home")?));
        let health = match fields.u8("health")? {
            0 => Health::Whole,
            1 => Health::Damaged,
            other => return Err(fields.invalid(format!("field health is {other}, must be 0 or 1"))),
        };
        Ok(Self {
            id: VolumeId(id),
            name: fields.text("name")?,
            size,
            home,
            class: fields.text("class")?,
            logical_block: read_logical_block(fields)?,
            health,
            snapshot: match fields.version {
                SNAPSHOT_VERSION => Some(read_snapshot(id, fields)?),
                _ => None,
            },
            source: match fields.version {
                SOURCE_VERSION => Some(read_source(fields)?),
                _ => None,
            },
        })
    }
}

fn read_logical_block(fields: &mut Fields<'_>) -> Result<u32, ArrayError> {
    let bytes = fields.u32("logical block")?;
    let allowed = LOGICAL_BLOCK_MIN..=LOGICAL_BLOCK_MAX;
    match bytes.is_power_of_two() && allowed.contains(&bytes) {
        true => Ok(bytes),
        false => Err(fields.invalid(format!(
            "field logical block is {bytes}, must be a power of two from {LOGICAL_BLOCK_MIN} to {LOGICAL_BLOCK_MAX}"
        ))),
    }
}

fn read_source(fields: &mut Fields<'_>) -> Result<SourceRecord, ArrayError> {
    Ok(SourceRecord {
        device: DeviceId(fields.u16("source")?),
        from: fields.text("from")?,
        format: fields.text("format")?,
        mark: SourceMark {
            size: Bytes(fields.u64("source size")?),
            file_bytes: fields.u64("source file bytes")?,
            modified_ns: i64::from_le_bytes(fields.take("source modified")?),
            inode: fields.u64("source inode")?,
        },
        bandwidth: BytesPerSec(fields.u64("source bandwidth")?),
    })
}

fn read_snapshot(id: u32, fields: &mut Fields<'_>) -> Result<SnapshotOf, ArrayError> {
    let volume = fields.u32("snapshot of")?;
    if volume == id {
        return Err(fields.invalid("field snapshot of names the snapshot itself"));
    }
    Ok(SnapshotOf {
        volume: VolumeId(volume),
        sequence: fields.u32("sequence")?,
        taken_s: fields.u64("taken")?,
    })
}

impl Record for MoveRecord {
    type Id = u32;
    const TABLE: Table = Table::Moves;
    const NEWEST: u8 = RANGES_VERSION;
    fn key(id: u32) -> Key {
        Key::Long(id)
    }
    fn id(&self) -> u32 {
        self.volume.0
    }
    fn version(&self) -> u8 {
        match self.extents {
            None => RECORD_VERSION,
            Some(_) => RANGES_VERSION,
        }
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to.0.to_le_bytes());
        out.extend_from_slice(&self.bandwidth.0.to_le_bytes());
        if let Some(extents) = &self.extents {
            let ranges = extents.ranges();
            out.extend_from_slice(&(ranges.len() as u32).to_le_bytes());
            for (first, end) in ranges {
                out.extend_from_slice(&first.to_le_bytes());
                out.extend_from_slice(&end.to_le_bytes());
            }
        }
    }
    fn read(id: u32, fields: &mut Fields<'_>) -> Result<Self, ArrayError> {
        Ok(Self {
            volume: VolumeId(id),
            to: DeviceId(fields.u16("to")?),
            bandwidth: BytesPerSec(fields.u64("bandwidth")?),
            extents: match fields.version {
                RECORD_VERSION => None,
                _ => Some(read_ranges(fields)?),
            },
        })
    }
}

impl Record for DeviceStamp {
    type Id = u16;
    const TABLE: Table = Table::Stamps;
    fn key(id: u16) -> Key {
        Key::Short(id)
    }
    fn id(&self) -> u16 {
        self.device.0
    }
    fn write(&self, out: &mut Vec<u8>) {
        put_stamp(out, self.now);
        out.push(u8::try_from(self.was.len()).expect("a device carries one of a few stamps"));
        self.was.iter().for_each(|was| put_stamp(out, *was));
    }
    fn read(id: u16, fields: &mut Fields<'_>) -> Result<Self, ArrayError> {
        Ok(Self {
            device: DeviceId(id),
            now: read_stamp(fields)?,
            was: {
                let count = fields.u8("was")?;
                let all: Result<Vec<Stamp>, ArrayError> =
                    (0..count).map(|_| read_stamp(fields)).collect();
                all?
            },
        })
    }
}

fn put_stamp(out: &mut Vec<u8>, stamp: Stamp) {
    out.extend_from_slice(&stamp.generation.to_le_bytes());
    out.extend_from_slice(&stamp.nonce.to_le_bytes());
}

fn read_stamp(fields: &mut Fields<'_>) -> Result<Stamp, ArrayError> {
    Ok(Stamp {
        generation: fields.u64("generation")?,
        nonce: fields.u64("nonce")?,
    })
}

fn put_membership(out: &mut Vec<u8>, membership: &Membership) {
    put_stamp(out, membership.stamp);
    let Members { first, second } = membership.members;
    out.push(u8::from(first) | u8::from(second) << 1);
}

fn read_membership(fields: &mut Fields<'_>) -> Result<Membership, ArrayError> {
    let stamp = read_stamp(fields)?;
    let members = match fields.u8("members")? {
        bits @ 0..=3 => Members {
            first: bits & 1 != 0,
            second: bits & 2 != 0,
        },
        other => return Err(fields.invalid(format!("field members is {other}, must be 0 to 3"))),
    };
    Ok(Membership { stamp, members })
}

impl MapState {
    const KEY: Key = Key::Name(crate::tables::STATE_KEY);

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = vec![RECORD_VERSION];
        body.extend_from_slice(&self.commits.to_le_bytes());
        put_membership(&mut body, &self.confirmed);
        body.push(u8::from(self.pending.is_some()));
        if let Some(pending) = &self.pending {
            put_membership(&mut body, pending);
        }
        body.push(self.earlier.len() as u8);
        self.earlier.iter().for_each(|s| put_stamp(&mut body, *s));
        match &self.second {
            SecondCopy::Auto => body.push(0),
            SecondCopy::Off => body.push(1),
            SecondCopy::At(path) => {
                body.push(2);
                put_text(&mut body, path);
            }
        }
        body.push(u8::from(self.lease.is_some()));
        if let Some(LeaseRecord { holder, lasting }) = &self.lease {
            let ControllerId {
                store,
                epoch,
                start,
            } = holder.id;
            for number in [store, epoch, start, lasting.0] {
                body.extend_from_slice(&number.to_le_bytes());
            }
            put_text(&mut body, &holder.name);
        }
        seal(Table::State, Self::KEY, body)
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, ArrayError> {
        let fields = &mut Fields::unseal(Table::State, Self::KEY, value)?;
        let version = fields.u8("version")?;
        if version != RECORD_VERSION {
            return Err(fields.invalid(format!(
                "record version {version} is unknown to this program, which reads {RECORD_VERSION}"
            )));
        }
        let state = Self {
            commits: fields.u64("commits")?,
            confirmed: read_membership(fields)?,
            pending: match fields.u8("pending")? {
                0 => None,
                1 => Some(read_membership(fields)?),
                other => {
                    return Err(fields
                        .invalid(format!("field pending begins with {other}, must be 0 or 1")));
                }
            },
            earlier: {
                let count = fields.u8("earlier")?;
                let all: Result<Vec<Stamp>, ArrayError> =
                    (0..count).map(|_| read_stamp(fields)).collect();
                all?
            },
            second: match fields.u8("second copy")? {
                0 => SecondCopy::Auto,
                1 => SecondCopy::Off,
                2 => SecondCopy::At(fields.text("second copy")?),
                other => {
                    return Err(fields.invalid(format!(
                        "field second copy begins with {other}, must be 0 to 2"
                    )));
                }
            },
            lease: match fields.u8("lease")? {
                0 => None,
                1 => Some(read_lease(fields)?),
                other => {
                    return Err(
                        fields.invalid(format!("field lease begins with {other}, must be 0 or 1"))
                    );
                }
            },
        };
        fields.end()?;
        Ok(state)
    }
}

fn read_lease(fields: &mut Fields<'_>) -> Result<LeaseRecord, ArrayError> {
    let id = ControllerId {
        store: fields.u64("store of the controller")?,
        epoch: fields.u64("epoch of the controller")?,
        start: fields.u64("start of the controller")?,
    };
    let lasting = Nanos(fields.u64("length of the lease")?);
    let name = fields.text("name of the controller")?;
    let holder = LeaseHolder { id, name };
    Ok(LeaseRecord { holder, lasting })
}

fn read_ranges(fields: &mut Fields<'_>) -> Result<ExtentRanges, ArrayError> {
    let count = fields.u32("number of ranges")?;
    if count == 0 || count as usize > MOVE_RANGES_MAX {
        return Err(fields.invalid(format!(
            "field number of ranges is {count}, must be 1 to {MOVE_RANGES_MAX}"
        )));
    }
    let range = |_| Ok((fields.u32("range")?, fields.u32("range")?));
    let ranges: Result<Vec<(u32, u32)>, ArrayError> = (0..count).map(range).collect();
    ExtentRanges::from_ranges(ranges?).map_err(|e| fields.invalid(format!("field range: {e}")))
}

/// Record of table `meta`. In every version of the format its first four bytes are the format version and its last
/// eight the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) version: u32,
    pub(crate) id: ArrayId,
    pub(crate) extent: Bytes,
}

impl Meta {
    const KEY: Key = Key::Name(crate::tables::META_KEY);

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = self.version.to_le_bytes().to_vec();
        body.extend_from_slice(&self.id.0);
        body.extend_from_slice(&self.extent.0.to_le_bytes());
        seal(Table::Meta, Self::KEY, body)
    }

    /// Returns the version, and the rest if this program supports the version.
    pub(crate) fn decode(value: &[u8]) -> Result<(u32, Option<Self>), ArrayError> {
        let mut fields = Fields::unseal(Table::Meta, Self::KEY, value)?;
        let version = fields.u32("version")?;
        if version != crate::FORMAT_VERSION {
            return Ok((version, None));
        }
        let meta = Self {
            version,
            id: ArrayId(fields.take("id")?),
            extent: Bytes(fields.u64("extent")?),
        };
        Ok((version, Some(meta)))
    }
}
