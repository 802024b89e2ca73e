//! Records to bytes and back.
//!
//! A field is a little-endian number; a text is its length in bytes as a `u16` and then UTF-8; an optional text is one
//! byte, 0 or 1, and the text if that is 1.

use model::ExtentRanges;
use units::{Bytes, BytesPerSec, DeviceId, TierId, VolumeId};

use crate::record::{DeviceKind, DeviceRecord, Health, MoveRecord, TierRecord, VolumeRecord};
use crate::refusal::MOVE_RANGES_MAX;
use crate::tables::{Key, RANGES_VERSION, RECORD_VERSION, Table, seal, unseal};
use crate::{ArrayError, ArrayId};

/// A record of a table: a value that knows its key.
pub(crate) trait Record: Sized {
    /// The type of the table's keys.
    type Id: Copy + Ord;
    /// Its table.
    const TABLE: Table;
    /// The newest version of its layout.
    const NEWEST: u8 = RECORD_VERSION;
    /// The key in messages and under the checksum.
    fn key(id: Self::Id) -> Key;
    /// Its own key.
    fn id(&self) -> Self::Id;
    /// The oldest version of its layout that can say what it says.
    fn version(&self) -> u8 {
        RECORD_VERSION
    }
    /// Appends the fields.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads the fields; the error names the field.
    fn read(id: Self::Id, fields: &mut Fields<'_>) -> Result<Self, String>;

    /// The table's value.
    fn encode(&self) -> Vec<u8> {
        let mut body = vec![self.version()];
        self.write(&mut body);
        seal(Self::TABLE, Self::key(self.id()), body)
    }

    /// The record of a table's value.
    fn decode(id: Self::Id, value: &[u8]) -> Result<Self, ArrayError> {
        let key = Self::key(id);
        let body = unseal(Self::TABLE, key, value)?;
        Self::read_all(id, Fields::of(body)).map_err(|why| ArrayError::Record {
            table: Self::TABLE.name(),
            key: key.to_string(),
            why,
        })
    }

    /// Version, fields and nothing else; the error names the field.
    fn read_all(id: Self::Id, mut fields: Fields<'_>) -> Result<Self, String> {
        fields.version = fields.u8("version")?;
        if !(RECORD_VERSION..=Self::NEWEST).contains(&fields.version) {
            let known = match Self::NEWEST {
                RECORD_VERSION => RECORD_VERSION.to_string(),
                newest => format!("{RECORD_VERSION} to {newest}"),
            };
            return Err(format!(
                "record version {} is unknown to this program, which reads {known}",
                fields.version
            ));
        }
        let record = Self::read(id, &mut fields)?;
        match fields.rest.len() {
            0 => Ok(record),
            n => Err(format!("{n} bytes too many")),
        }
    }
}

/// What is left to read of a record.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    /// Of the record's layout, once it was read.
    version: u8,
}

impl<'a> Fields<'a> {
    fn of(rest: &'a [u8]) -> Self {
        Self { rest, version: 0 }
    }

    fn take<const N: usize>(&mut self, field: &str) -> Result<[u8; N], String> {
        let (first, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| format!("field {field} is cut off"))?;
        self.rest = rest;
        Ok(*first)
    }

    fn u8(&mut self, field: &str) -> Result<u8, String> {
        self.take(field).map(u8::from_le_bytes)
    }

    fn u16(&mut self, field: &str) -> Result<u16, String> {
        self.take(field).map(u16::from_le_bytes)
    }

    fn u32(&mut self, field: &str) -> Result<u32, String> {
        self.take(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &str) -> Result<u64, String> {
        self.take(field).map(u64::from_le_bytes)
    }

    fn text(&mut self, field: &str) -> Result<String, String> {
        let length = usize::from(self.u16(field)?);
        let (text, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| format!("field {field} is cut off"))?;
        self.rest = rest;
        let text: &'a str =
            std::str::from_utf8(text).map_err(|e| format!("field {field} is not text: {e}"))?;
        Ok(text.to_string())
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
    fn read(id: u16, fields: &mut Fields<'_>) -> Result<Self, String> {
        Ok(Self {
            id: TierId(id),
            name: fields.text("name")?,
        })
    }
}

impl Record for DeviceRecord {
    type Id = u16;
    const TABLE: Table = Table::Devices;
    fn key(id: u16) -> Key {
        Key::Short(id)
    }
    fn id(&self) -> u16 {
        self.id.0
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tier.0.to_le_bytes());
        out.push(match self.kind {
            DeviceKind::File => 0,
            DeviceKind::Block => 1,
            DeviceKind::Nbd => 2,
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
    }
    fn read(id: u16, fields: &mut Fields<'_>) -> Result<Self, String> {
        let tier = TierId(fields.u16("tier")?);
        let kind = match fields.u8("kind")? {
            0 => DeviceKind::File,
            1 => DeviceKind::Block,
            2 => DeviceKind::Nbd,
            other => return Err(format!("field kind is {other}, must be 0, 1 or 2")),
        };
        let (slots, high_water) = (fields.u32("slots")?, fields.u32("high-water mark")?);
        let (name, path) = (fields.text("name")?, fields.text("path")?);
        let emulate = match fields.u8("emulate")? {
            0 => None,
            1 => {
                let json = fields.text("emulate")?;
                let spec = serde_json::from_str(&json);
                Some(spec.map_err(|e| format!("field emulate: {e}"))?)
            }
            other => return Err(format!("field emulate begins with {other}, must be 0 or 1")),
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
        })
    }
}

impl Record for VolumeRecord {
    type Id = u32;
    const TABLE: Table = Table::Volumes;
    fn key(id: u32) -> Key {
        Key::Long(id)
    }
    fn id(&self) -> u32 {
        self.id.0
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
    }
    fn read(id: u32, fields: &mut Fields<'_>) -> Result<Self, String> {
        let (size, home) = (Bytes(fields.u64("size")?), TierId(fields.u16("home")?));
        let health = match fields.u8("health")? {
            0 => Health::Whole,
            1 => Health::Damaged,
            other => return Err(format!("field health is {other}, must be 0 or 1")),
        };
        Ok(Self {
            id: VolumeId(id),
            name: fields.text("name")?,
            size,
            home,
            class: fields.text("class")?,
            health,
        })
    }
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
    fn read(id: u32, fields: &mut Fields<'_>) -> Result<Self, String> {
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

fn read_ranges(fields: &mut Fields<'_>) -> Result<ExtentRanges, String> {
    let count = fields.u32("number of ranges")?;
    if count == 0 || count as usize > MOVE_RANGES_MAX {
        return Err(format!(
            "field number of ranges is {count}, must be 1 to {MOVE_RANGES_MAX}"
        ));
    }
    let range = |_| Ok((fields.u32("range")?, fields.u32("range")?));
    let ranges: Result<Vec<(u32, u32)>, String> = (0..count).map(range).collect();
    ExtentRanges::from_ranges(ranges?).map_err(|e| format!("field range: {e}"))
}

/// The record of table `meta`. Its first four bytes are the format version and its last eight the checksum in every
/// version of the format.
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

    /// The version, and the rest if it is ours.
    pub(crate) fn decode(value: &[u8]) -> Result<(u32, Option<Self>), ArrayError> {
        let body = unseal(Table::Meta, Self::KEY, value)?;
        let mut fields = Fields::of(body);
        let error = |why: String| ArrayError::Record {
            table: Table::Meta.name(),
            key: Self::KEY.to_string(),
            why,
        };
        let version = fields.u32("version").map_err(error)?;
        if version > crate::FORMAT_VERSION {
            return Ok((version, None));
        }
        let meta = Self {
            version,
            id: ArrayId(fields.take("id").map_err(error)?),
            extent: Bytes(fields.u64("extent").map_err(error)?),
        };
        Ok((version, Some(meta)))
    }
}
