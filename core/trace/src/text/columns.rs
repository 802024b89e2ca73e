//! Mapping of columns: as given by a user ([`ColumnSpec`]), and as used by the reader ([`Layout`]).

use std::collections::BTreeMap;
use std::str::FromStr;

use model::Op;

use super::date::looks_like_date;
use super::field::{TimeUnit, parse_time, parse_u64};
use super::header::{Role, Unit, recognize, unquoted};
use super::kinds::{Meanings, OpColumn, OpRule};
use super::reader::split;
use crate::detect::is_decimal;
use crate::error::{ColumnError, OptionError, quote};
use crate::source::SourceClock;

/// Largest number of columns that a mapping can use. Protects the table of fields of a row.
pub(crate) const COLUMNS_MAX: usize = 256;

/// Separator of the columns in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delimiter {
    /// One character.
    Byte(u8),
    /// Any run of blanks and tabs.
    Whitespace,
}

impl FromStr for Delimiter {
    type Err = OptionError;

    /// Parses `,`, `;`, `|`, any other single ASCII character that is not part of a number, or `tab` or `space`.
    fn from_str(text: &str) -> Result<Self, OptionError> {
        match text {
            "tab" | "\t" | "\\t" => Ok(Delimiter::Byte(b'\t')),
            "space" | " " => Ok(Delimiter::Whitespace),
            _ => match text.as_bytes() {
                [b] if b.is_ascii_graphic()
                    && !b.is_ascii_alphanumeric()
                    && !b"\"#.+-".contains(b) =>
                {
                    Ok(Delimiter::Byte(*b))
                }
                _ => Err(OptionError::Delimiter(text.into())),
            },
        }
    }
}

impl Delimiter {
    /// Returns the likely delimiter of a row.
    pub(crate) fn guess(line: &[u8]) -> Self {
        let found = b"\t,;|".iter().find(|b| line.contains(b));
        found.map_or(Delimiter::Whitespace, |b| Delimiter::Byte(*b))
    }
}

/// Presence of a header row with the names of the columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HeaderRow {
    /// Detection: there is a header if a column is mapped by name, or if its time is not a time.
    #[default]
    Auto,
    /// The first row is a header.
    Present,
    /// There is no header.
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ColumnRef {
    /// Number of the column, from 0 (users count from 1).
    Index(usize),
    Name(String),
}

/// Column mapping such as `time=1:s,volume=2,op=3,offset=4:bytes,length=5:bytes,latency=6:us`.
///
/// Each column is given by its number, counted from 1, or by its name in the header. The unit follows after a colon:
/// `s`, `ms`, `us`, `ns`, `filetime` or `date` for times; `bytes`, `sectors` (512), `kib`, `pages` (4096) or a number
/// of bytes for offsets and lengths; `words` (the default), `read1`, `read0`, `scsi` or `nvme` for the kind, or the
/// meaning of its values: `op=3:read=28|a8,write=2a`. With `op=read` or `op=write` all requests have one kind. Columns
/// without a mapping are searched in the header, whose names have units as suffixes (`time_ns`, `size_bytes`). A trace
/// without a volume column has one volume, `0`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Separator of columns; guessed from the first line if `None`.
    pub delimiter: Option<Delimiter>,
    /// Presence of a header.
    pub header: HeaderRow,
    columns: BTreeMap<Role, (ColumnRef, Option<String>)>,
    /// Kind of all requests, if it is fixed.
    all: Option<Op>,
    meanings: Meanings,
}

impl FromStr for ColumnSpec {
    type Err = ColumnError;

    fn from_str(text: &str) -> Result<Self, ColumnError> {
        let mut spec = Self::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (role, column) = part
                .split_once('=')
                .ok_or_else(|| ColumnError::Form(part.into()))?;
            let role = role.trim();
            let Some(role) = Role::from_name(role) else {
                spec.meanings.add(role, column.trim())?;
                continue;
            };
            let (column, mut unit) = match column.split_once(':') {
                Some((column, unit)) => (column.trim(), Some(unit.trim().to_owned())),
                None => (column.trim(), None),
            };
            if role == Role::Op {
                if let Some((left, right)) = unit.as_deref().and_then(|u| u.split_once('=')) {
                    spec.meanings.add(left, right)?;
                    unit = None;
                }
                if unit.is_none() && matches!(column, "read" | "write") {
                    let op = if column == "read" {
                        Op::Read
                    } else {
                        Op::Write
                    };
                    if spec.all.replace(op).is_some() || spec.columns.contains_key(&role) {
                        return Err(role.error("is mapped twice"));
                    }
                    continue;
                }
            }
            let column = match column.parse::<usize>() {
                Ok(0) => return Err(role.column_error("columns are counted from 1")),
                Ok(n) if n > COLUMNS_MAX => {
                    return Err(role.column_error(format!("beyond column {COLUMNS_MAX}")));
                }
                Ok(n) => ColumnRef::Index(n - 1),
                Err(_) if column.is_empty() => {
                    return Err(role.column_error("no column is named"));
                }
                Err(_) => ColumnRef::Name(column.to_owned()),
            };
            let twice = role == Role::Op && spec.all.is_some();
            if spec.columns.insert(role, (column, unit)).is_some() || twice {
                return Err(role.error("is mapped twice"));
            }
        }
        if spec.all.is_some() && !spec.meanings.is_empty() {
            return Err(ColumnError::Exclusive);
        }
        Ok(spec)
    }
}

/// Mapping applied to a file, with the index and unit of each column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) delimiter: Delimiter,
    /// True if the first row is a header.
    pub(crate) header: bool,
    /// Exact number of columns, if the format defines it. An empty column after them is allowed.
    pub(crate) columns: Option<usize>,
    pub(crate) time: (usize, TimeUnit),
    /// Origin of the times.
    pub(crate) clock: SourceClock,
    pub(crate) volume: VolumeColumns,
    pub(crate) op: OpColumn,
    /// Column, and bytes per unit.
    pub(crate) offset: (usize, u64),
    pub(crate) length: (usize, u64),
    pub(crate) latency: Option<(usize, TimeUnit)>,
}

/// Columns of the volume's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeColumns {
    /// No column: there is one volume.
    Single,
    /// One column.
    One(usize),
    /// Two columns, joined by a dot.
    Two(usize, usize),
}

impl Layout {
    /// Returns the number of columns that a row must have.
    pub(crate) fn columns_needed(&self) -> usize {
        let volume = match self.volume {
            VolumeColumns::Single => 0,
            VolumeColumns::One(a) => a,
            VolumeColumns::Two(a, b) => a.max(b),
        };
        let latency = self.latency.map_or(0, |c| c.0);
        let all = [
            self.time.0,
            volume,
            match self.op {
                OpColumn::All(_) => 0,
                OpColumn::In { index, .. } => index,
            },
            self.offset.0,
            self.length.0,
            latency,
        ];
        let last = all.into_iter().max().unwrap_or(0);
        self.columns.unwrap_or(last + 1)
    }
}

/// Applied mapping with its assumptions.
#[derive(Debug)]
pub(crate) struct ResolvedLayout {
    pub(crate) layout: Layout,
    pub(crate) assumed: Option<String>,
}

impl ColumnSpec {
    /// Applies the mapping to a file that begins with `rows`. Returns the reason if it is impossible.
    pub(crate) fn resolve(&self, rows: &[&[u8]]) -> Result<ResolvedLayout, ColumnError> {
        let first_line = rows.first().copied().unwrap_or_default();
        let delimiter = self
            .delimiter
            .unwrap_or_else(|| Delimiter::guess(first_line));
        let cells = cells(first_line, delimiter);
        let header = match self.header {
            HeaderRow::Present => true,
            HeaderRow::Absent => false,
            HeaderRow::Auto => self.looks_like_header(&cells),
        };
        let mut found: BTreeMap<Role, (usize, Option<Unit>)> = BTreeMap::new();
        if header {
            for (i, cell) in cells.iter().enumerate() {
                if let Some((role, unit)) = recognize(cell) {
                    found.entry(role).or_insert((i, unit));
                }
            }
        }
        let resolver = Resolver {
            spec: self,
            cells: &cells,
            header,
            found,
        };
        let mut assumed = Vec::new();
        let data = rows.get(usize::from(header)).copied().unwrap_or_default();
        let time = match resolver.column(Role::Time)? {
            Some((index, None)) => {
                let cells = self::cells(data, delimiter);
                let cell = cells.get(index).copied().unwrap_or_default();
                let unit = time_unit_of(cell).ok_or_else(|| resolver.no_unit(Role::Time, "us"))?;
                if unit.0 != TimeUnit::Date {
                    assumed.push(format!(
                        "the times have no unit and are read as {}: confirm with --columns time={}:{}",
                        unit.1,
                        index + 1,
                        unit.2
                    ));
                }
                (index, unit.0)
            }
            _ => resolver
                .time(Role::Time)?
                .ok_or_else(|| resolver.missing(Role::Time))?,
        };
        let offset = resolver
            .size(Role::Offset)?
            .ok_or_else(|| resolver.missing(Role::Offset))?;
        let length = resolver
            .size(Role::Length)?
            .ok_or_else(|| resolver.missing(Role::Length))?;
        let latency = resolver.time(Role::Latency)?;
        let volume = match resolver.column(Role::Volume)? {
            None => VolumeColumns::Single,
            Some((_, Some(ColumnText::Text(unit)))) => {
                return Err(ColumnError::VolumeUnit(unit.into()));
            }
            Some((i, _)) => VolumeColumns::One(i),
        };
        let op = match (self.all, resolver.op()?) {
            (Some(op), _) => OpColumn::All(op),
            (None, Some(column)) => column,
            (None, None) if !self.meanings.is_empty() => return Err(resolver.missing(Role::Op)),
            (None, None) => {
                assumed.push(
                    "no column has the kind of requests, so all are read as reads: name the column with \
                     --columns op=COLUMN, or confirm with --columns op=read"
                        .into(),
                );
                OpColumn::All(Op::Read)
            }
        };
        let layout = Layout {
            delimiter,
            header,
            columns: None,
            time,
            clock: time.1.clock(),
            volume,
            op,
            offset,
            length,
            latency,
        };
        Ok(ResolvedLayout {
            layout,
            assumed: (!assumed.is_empty()).then(|| assumed.join("; ")),
        })
    }

    fn looks_like_header(&self, cells: &[&[u8]]) -> bool {
        if self
            .columns
            .values()
            .any(|(column, _)| matches!(column, ColumnRef::Name(_)))
        {
            return true;
        }
        match self.columns.get(&Role::Time) {
            Some((ColumnRef::Index(i), _)) => cells.get(*i).is_some_and(|cell| !is_time(cell)),
            _ => cells.iter().any(|cell| recognize(cell).is_some()),
        }
    }
}

/// Returns the cells of a row without quotes.
pub(crate) fn cells(line: &[u8], delimiter: Delimiter) -> Vec<&[u8]> {
    let mut fields = Vec::new();
    split(line, delimiter, &mut fields, COLUMNS_MAX);
    fields
        .iter()
        .map(|(a, b)| unquoted(line[*a as usize..*b as usize].trim_ascii()))
        .collect()
}

/// Returns true for a number, possibly with a fraction, or a date.
fn is_time(cell: &[u8]) -> bool {
    is_decimal(cell) || looks_like_date(cell)
}

/// Returns the unit of a time according to its form, with description and name: a date, or a Unix or file time of 2001
/// to 2065.
fn time_unit_of(cell: &[u8]) -> Option<(TimeUnit, &'static str, &'static str)> {
    if looks_like_date(cell) {
        return Some((TimeUnit::Date, "dates", "date"));
    }
    let whole = cell.split(|b| *b == b'.').next().unwrap_or_default();
    parse_time("time", cell, TimeUnit::Nanos).ok()?;
    Some(match parse_u64("time", whole).ok()? {
        1_000_000_000..3_000_000_000 => (TimeUnit::Seconds, "Unix times in seconds", "s"),
        1_000_000_000_000..3_000_000_000_000 => {
            (TimeUnit::Millis, "Unix times in milliseconds", "ms")
        }
        1_000_000_000_000_000..3_000_000_000_000_000 => {
            (TimeUnit::Micros, "Unix times in microseconds", "us")
        }
        1_000_000_000_000_000_000..3_000_000_000_000_000_000 => {
            (TimeUnit::Nanos, "Unix times in nanoseconds", "ns")
        }
        126_000_000_000_000_000..147_000_000_000_000_000 => {
            (TimeUnit::Filetime, "Windows file times", "filetime")
        }
        _ => return None,
    })
}

enum ColumnText<'a> {
    Text(&'a str),
    Unit(Unit),
}

struct Resolver<'a> {
    spec: &'a ColumnSpec,
    cells: &'a [&'a [u8]],
    header: bool,
    found: BTreeMap<Role, (usize, Option<Unit>)>,
}

impl Role {
    /// Returns the error for a number, name, unit or rule of the column.
    fn column_error(self, why: impl Into<String>) -> ColumnError {
        let (role, why) = (self.name(), why.into());
        ColumnError::Column { role, why }
    }

    /// Returns the error for the mapping of the column.
    fn error(self, why: &'static str) -> ColumnError {
        let role = self.name();
        ColumnError::Role { role, why }
    }
}

impl Resolver<'_> {
    fn missing(&self, role: Role) -> ColumnError {
        let among = if self.header {
            let names: Vec<String> = self.cells.iter().take(20).map(|c| quote(c)).collect();
            format!(" among {}", names.join(", "))
        } else {
            String::new()
        };
        let role = role.name();
        ColumnError::Missing { role, among }
    }

    fn column(&self, role: Role) -> Result<Option<(usize, Option<ColumnText<'_>>)>, ColumnError> {
        let Some((column, unit)) = self.spec.columns.get(&role) else {
            return Ok(self
                .found
                .get(&role)
                .map(|(i, unit)| (*i, unit.map(ColumnText::Unit))));
        };
        let index = match column {
            ColumnRef::Index(i) => *i,
            ColumnRef::Name(name) => {
                let is_named = |cell: &&[u8]| cell.eq_ignore_ascii_case(name.as_bytes());
                match self.cells.iter().position(is_named) {
                    Some(i) if self.header => i,
                    _ => {
                        let why = format!("the header has no column \"{name}\"");
                        return Err(role.column_error(why));
                    }
                }
            }
        };
        if let Some(unit) = unit {
            return Ok(Some((index, Some(ColumnText::Text(unit)))));
        }
        // Without a given unit, the column's name may contain it.
        let named = if self.header {
            self.cells.get(index).and_then(|cell| recognize(cell))
        } else {
            None
        };
        Ok(Some((
            index,
            named.and_then(|(_, unit)| unit).map(ColumnText::Unit),
        )))
    }

    fn op(&self) -> Result<Option<OpColumn>, ColumnError> {
        let Some((index, rule)) = self.column(Role::Op)? else {
            return Ok(None);
        };
        let rule = match rule {
            Some(ColumnText::Text(name)) => OpRule::from_name(name).ok_or_else(|| {
                Role::Op.column_error(format!(
                    "unknown rule \"{name}\": use {}, or map values: op={}:read=28|a8,write=2a",
                    OpRule::NAMES,
                    index + 1
                ))
            })?,
            Some(ColumnText::Unit(_)) | None => OpRule::default(),
        };
        Ok(Some(OpColumn::In {
            index,
            rule,
            meanings: self.spec.meanings.clone(),
        }))
    }

    fn no_unit(&self, role: Role, example: &'static str) -> ColumnError {
        let role = role.name();
        ColumnError::NoUnit { role, example }
    }

    fn unit(
        &self,
        role: Role,
        example: &'static str,
    ) -> Result<Option<(usize, Unit)>, ColumnError> {
        Ok(match self.column(role)? {
            None => None,
            Some((_, None)) => return Err(self.no_unit(role, example)),
            Some((i, Some(ColumnText::Unit(unit)))) => Some((i, unit)),
            Some((i, Some(ColumnText::Text(text)))) => {
                let unit = Unit::from_name(text)
                    .ok_or_else(|| role.column_error(format!("unknown unit \"{text}\"")))?;
                Some((i, unit))
            }
        })
    }

    fn time(&self, role: Role) -> Result<Option<(usize, TimeUnit)>, ColumnError> {
        match self.unit(role, "us")? {
            None => Ok(None),
            Some((_, Unit::Time(TimeUnit::Date))) if role != Role::Time => {
                Err(role.error("must not be a date: use s, ms, us, ns or filetime"))
            }
            Some((i, Unit::Time(unit))) => Ok(Some((i, unit))),
            Some(_) => Err(role.error("has a unit of size: use s, ms, us, ns, filetime or date")),
        }
    }

    fn size(&self, role: Role) -> Result<Option<(usize, u64)>, ColumnError> {
        match self.unit(role, "bytes")? {
            None => Ok(None),
            Some((i, Unit::Size(bytes))) => Ok(Some((i, bytes))),
            Some(_) => {
                Err(role.error("has a unit of time: use bytes, sectors, kib, pages or a number"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_mapped_by_number_and_by_name() {
        let spec: ColumnSpec = "time=1:s, op=3:read0,offset=4:sectors,length=5:4096"
            .parse()
            .unwrap();
        let layout = spec.resolve(&[b"0.5;x;0;8;1"]).unwrap().layout;
        assert_eq!(
            (layout.delimiter, layout.header),
            (Delimiter::Byte(b';'), false)
        );
        assert_eq!(
            (layout.offset, layout.length, layout.op),
            ((3, 512), (4, 4096), OpColumn::new(2, OpRule::Read0))
        );
        let spec: ColumnSpec = "time=when:us".parse().unwrap();
        let layout = spec
            .resolve(&[b"op,when,offset_bytes,size_bytes,disk"])
            .unwrap()
            .layout;
        assert_eq!((layout.time, layout.header), ((1, TimeUnit::Micros), true));
        assert_eq!(layout.volume, VolumeColumns::One(4));
    }

    #[test]
    fn invalid_column_mapping_is_explained() {
        for (spec, line, says) in [
            ("time=1", "1,R,0,512", "needs a unit"),
            (
                "time=1:s,op=2,offset=3:bytes",
                "1,R,0,512",
                "no column for the length",
            ),
            ("time=when:s", "a,b,c", "no column \"when\""),
            ("time=1:bytes", "1,2", "unit of size"),
            (
                "",
                "time_s,op,offset_bytes",
                "no column for the length among time_s, op, offset_bytes",
            ),
        ] {
            let error = spec
                .parse::<ColumnSpec>()
                .unwrap()
                .resolve(&[line.as_bytes()])
                .unwrap_err()
                .to_string();
            assert!(error.contains(says), "{spec}: {error}");
        }
        for (spec, says) in [
            ("time", "maps no column"),
            ("when=1", "maps neither a column nor a kind"),
            ("op=read,op=3", "mapped twice"),
            ("op=3:read=1,write=1", "two kinds"),
            ("op=read,write=1", "exclude each other"),
            ("time=0:s", "from 1"),
        ] {
            let error = spec.parse::<ColumnSpec>().unwrap_err().to_string();
            assert!(error.contains(says), "{spec}: {error}");
        }
    }

    #[test]
    fn missing_unit_or_kind_is_assumed_with_a_note() {
        let header = b"time,offset_bytes,length_bytes".as_slice();
        for (time, unit, note) in [
            ("1455592511.181", TimeUnit::Seconds, Some("seconds")),
            ("1577808144360", TimeUnit::Millis, Some("milliseconds")),
            ("1577808144360767", TimeUnit::Micros, Some("microseconds")),
            ("1577808144360767000", TimeUnit::Nanos, Some("nanoseconds")),
            ("128166372003061629", TimeUnit::Filetime, Some("file times")),
            ("2024-03-01 12:00:00.002", TimeUnit::Date, None),
        ] {
            let row = format!("{time},0,4096");
            let resolved = ColumnSpec::default()
                .resolve(&[header, row.as_bytes()])
                .unwrap();
            assert_eq!(resolved.layout.time, (0, unit), "{time}");
            let assumed = resolved.assumed.unwrap();
            assert!(assumed.contains("op=read"), "{assumed}");
            assert_eq!(assumed.contains("no unit"), note.is_some(), "{assumed}");
            assert!(note.is_none_or(|note| assumed.contains(note)), "{assumed}");
        }
        let unknown = ColumnSpec::default().resolve(&[header, b"17,0,4096"]);
        assert!(unknown.unwrap_err().to_string().contains("needs a unit"));
        let said: ColumnSpec = "time=1:us,op=read".parse().unwrap();
        let resolved = said.resolve(&[header, b"17,0,4096"]).unwrap();
        assert_eq!(
            (resolved.layout.op, resolved.assumed),
            (OpColumn::All(Op::Read), None)
        );
    }
}
