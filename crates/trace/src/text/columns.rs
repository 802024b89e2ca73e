//! Which column is what: as a user says it ([`ColumnSpec`]) and as the reader needs it ([`Layout`]).

use std::collections::BTreeMap;
use std::str::FromStr;

use super::field::{OpRule, TimeUnit, parse_time};
use super::header::{Role, Unit, recognize};
use super::reader::split;
use crate::error::quote;
use crate::source::SourceClock;

/// Columns that a row may have for a mapping to reach. Protects the table of fields of a row.
pub(crate) const COLUMNS_MAX: usize = 256;

/// What separates the columns of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delimiter {
    /// One character.
    Byte(u8),
    /// Any run of blanks and tabs.
    Whitespace,
}

impl FromStr for Delimiter {
    type Err = String;

    /// `,`, `;`, `|`, any other single ASCII character that is not part of a number, or `tab` or `space`.
    fn from_str(text: &str) -> Result<Self, String> {
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
                _ => Err(format!(
                    "\"{text}\" is not a delimiter: use one character such as \",\", or tab or space"
                )),
            },
        }
    }
}

impl Delimiter {
    /// What a row seems to be separated by.
    pub(crate) fn guess(line: &[u8]) -> Self {
        let found = b"\t,;|".iter().find(|b| line.contains(b));
        found.map_or(Delimiter::Whitespace, |b| Delimiter::Byte(*b))
    }
}

/// Whether the first row has the names of the columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HeaderRow {
    /// Look: it has if a column is mapped by name, or if its time is not a time.
    #[default]
    Auto,
    /// It has.
    Present,
    /// It has not.
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ColumnRef {
    /// Counted from 0 here, from 1 by users.
    Index(usize),
    Name(String),
}

/// A column mapping: `time=1:s,volume=2,op=3,offset=4:bytes,length=5:bytes,latency=6:us`.
///
/// Each column is given by its number, counted from 1, or by its name in the header. The unit follows after a
/// colon: `s`, `ms`, `us`, `ns`, `filetime` for times; `bytes`, `sectors` (512), `kib`, `pages` (4096) or a number
/// of bytes for offsets and lengths; `words` (the default), `read1`, `read0` or `bit0` for the kind. What is not
/// mapped is looked for in the header, whose names carry units as suffixes (`time_ns`, `size_bytes`). A trace
/// without a volume column has one volume, `0`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnSpec {
    /// What separates columns; guessed from the first line if `None`.
    pub delimiter: Option<Delimiter>,
    /// Whether there is a header.
    pub header: HeaderRow,
    columns: BTreeMap<Role, (ColumnRef, Option<String>)>,
}

impl FromStr for ColumnSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (role, column) = part.split_once('=').ok_or_else(|| {
                format!("\"{part}\" maps no column: write it as time=1:s or time=timestamp:us")
            })?;
            let role = role.trim();
            let role = Role::ALL.into_iter().find(|r| r.name() == role).ok_or_else(|| {
                format!("\"{role}\" is not a column: use time, volume, op, offset, length or latency")
            })?;
            let (column, unit) = match column.split_once(':') {
                Some((column, unit)) => (column.trim(), Some(unit.trim().to_owned())),
                None => (column.trim(), None),
            };
            let column = match column.parse::<usize>() {
                Ok(0) => return Err(format!("{}: columns are counted from 1", role.name())),
                Ok(n) if n > COLUMNS_MAX => {
                    return Err(format!("{}: beyond column {COLUMNS_MAX}", role.name()));
                }
                Ok(n) => ColumnRef::Index(n - 1),
                Err(_) if column.is_empty() => {
                    return Err(format!("{}: no column is named", role.name()));
                }
                Err(_) => ColumnRef::Name(column.to_owned()),
            };
            if spec.columns.insert(role, (column, unit)).is_some() {
                return Err(format!("{} is mapped twice", role.name()));
            }
        }
        Ok(spec)
    }
}

/// A mapping that was applied to a file: everything by index, with its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) delimiter: Delimiter,
    /// The first row is a header.
    pub(crate) header: bool,
    /// Exact number of columns, if the format says so; an empty one behind them is tolerated.
    pub(crate) columns: Option<usize>,
    pub(crate) time: (usize, TimeUnit),
    /// What the times count from.
    pub(crate) clock: SourceClock,
    pub(crate) volume: VolumeColumns,
    pub(crate) op: (usize, OpRule),
    /// With the bytes per unit.
    pub(crate) offset: (usize, u64),
    pub(crate) length: (usize, u64),
    pub(crate) latency: Option<(usize, TimeUnit)>,
}

/// Where the volume's name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeColumns {
    /// Nowhere: one volume.
    Single,
    /// In one column.
    One(usize),
    /// In two, joined by a dot.
    Two(usize, usize),
}

impl Layout {
    /// Columns that a row must have.
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
            self.op.0,
            self.offset.0,
            self.length.0,
            latency,
        ];
        let last = all.into_iter().max().unwrap_or(0);
        self.columns.unwrap_or(last + 1)
    }
}

impl ColumnSpec {
    /// Applies the mapping to a file that begins with `first_line`; the reason if that cannot be done.
    pub(crate) fn resolve(&self, first_line: &[u8]) -> Result<Layout, String> {
        let delimiter = self
            .delimiter
            .unwrap_or_else(|| Delimiter::guess(first_line));
        let mut fields = Vec::new();
        split(first_line, delimiter, &mut fields, COLUMNS_MAX);
        let cells: Vec<&[u8]> = fields
            .iter()
            .map(|(a, b)| strip_quotes(first_line[*a as usize..*b as usize].trim_ascii()))
            .collect();
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
        let time = resolver
            .time(Role::Time)?
            .ok_or_else(|| resolver.missing(Role::Time))?;
        let offset = resolver
            .size(Role::Offset)?
            .ok_or_else(|| resolver.missing(Role::Offset))?;
        let length = resolver
            .size(Role::Length)?
            .ok_or_else(|| resolver.missing(Role::Length))?;
        let (op, rule) = resolver
            .column(Role::Op)?
            .ok_or_else(|| resolver.missing(Role::Op))?;
        let rule = match rule {
            None => OpRule::Words,
            Some(Given::Text(name)) => OpRule::from_name(name).ok_or_else(|| {
                format!("op: \"{name}\" is not a rule: use words, read1, read0 or bit0")
            })?,
            Some(Given::Unit(_)) => OpRule::Words,
        };
        let volume = match resolver.column(Role::Volume)? {
            None => VolumeColumns::Single,
            Some((_, Some(Given::Text(unit)))) => {
                return Err(format!("volume has no unit such as \"{unit}\""));
            }
            Some((i, _)) => VolumeColumns::One(i),
        };
        let latency = resolver.time(Role::Latency)?;
        Ok(Layout {
            delimiter,
            header,
            columns: None,
            time,
            clock: match time.1 {
                TimeUnit::Filetime => SourceClock::Unix,
                _ => SourceClock::Relative,
            },
            volume,
            op: (op, rule),
            offset,
            length,
            latency,
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
            Some((ColumnRef::Index(i), _)) => cells
                .get(*i)
                .is_some_and(|cell| parse_time("time", cell, TimeUnit::Nanos).is_err()),
            _ => cells.iter().any(|cell| recognize(cell).is_some()),
        }
    }
}

enum Given<'a> {
    Text(&'a str),
    Unit(Unit),
}

struct Resolver<'a> {
    spec: &'a ColumnSpec,
    cells: &'a [&'a [u8]],
    header: bool,
    found: BTreeMap<Role, (usize, Option<Unit>)>,
}

impl Resolver<'_> {
    fn missing(&self, role: Role) -> String {
        let name = role.name();
        if self.header {
            let names: Vec<String> = self.cells.iter().take(20).map(|c| quote(c)).collect();
            format!(
                "no column for the {name} among {}: map it with --columns {name}=…",
                names.join(", ")
            )
        } else {
            format!("no column for the {name}: map it with --columns {name}=…")
        }
    }

    fn column(&self, role: Role) -> Result<Option<(usize, Option<Given<'_>>)>, String> {
        let Some((column, unit)) = self.spec.columns.get(&role) else {
            return Ok(self
                .found
                .get(&role)
                .map(|(i, unit)| (*i, unit.map(Given::Unit))));
        };
        let index = match column {
            ColumnRef::Index(i) => *i,
            ColumnRef::Name(name) => {
                match self.cells.iter().position(|cell| *cell == name.as_bytes()) {
                    Some(i) if self.header => i,
                    _ => {
                        return Err(format!(
                            "{}: there is no column \"{name}\" in the header",
                            role.name()
                        ));
                    }
                }
            }
        };
        if let Some(unit) = unit {
            return Ok(Some((index, Some(Given::Text(unit)))));
        }
        // No unit given: the column's name may carry it.
        let named = if self.header {
            self.cells.get(index).and_then(|cell| recognize(cell))
        } else {
            None
        };
        Ok(Some((
            index,
            named.and_then(|(_, unit)| unit).map(Given::Unit),
        )))
    }

    fn unit(&self, role: Role, example: &str) -> Result<Option<(usize, Unit)>, String> {
        let name = role.name();
        Ok(match self.column(role)? {
            None => None,
            Some((_, None)) => {
                return Err(format!(
                    "the {name} needs its unit: --columns {name}=…:{example}"
                ));
            }
            Some((i, Some(Given::Unit(unit)))) => Some((i, unit)),
            Some((i, Some(Given::Text(text)))) => {
                let unit = Unit::from_name(text)
                    .ok_or_else(|| format!("{name}: unknown unit \"{text}\""))?;
                Some((i, unit))
            }
        })
    }

    fn time(&self, role: Role) -> Result<Option<(usize, TimeUnit)>, String> {
        match self.unit(role, "us")? {
            None => Ok(None),
            Some((i, Unit::Time(unit))) => Ok(Some((i, unit))),
            Some(_) => Err(format!(
                "{} has a unit of size: use s, ms, us, ns or filetime",
                role.name()
            )),
        }
    }

    fn size(&self, role: Role) -> Result<Option<(usize, u64)>, String> {
        match self.unit(role, "bytes")? {
            None => Ok(None),
            Some((i, Unit::Size(bytes))) => Ok(Some((i, bytes))),
            Some(_) => Err(format!(
                "{} has a unit of time: use bytes, sectors, kib, pages or a number",
                role.name()
            )),
        }
    }
}

fn strip_quotes(cell: &[u8]) -> &[u8] {
    cell.strip_prefix(b"\"")
        .and_then(|c| c.strip_suffix(b"\""))
        .unwrap_or(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_by_number_and_by_name() {
        let spec: ColumnSpec = "time=1:s, op=3:read0,offset=4:sectors,length=5:4096"
            .parse()
            .unwrap();
        let layout = spec.resolve(b"0.5;x;0;8;1").unwrap();
        assert_eq!(
            (layout.delimiter, layout.header),
            (Delimiter::Byte(b';'), false)
        );
        assert_eq!(
            (layout.offset, layout.length, layout.op),
            ((3, 512), (4, 4096), (2, OpRule::Read0))
        );
        let spec: ColumnSpec = "time=when:us".parse().unwrap();
        let layout = spec
            .resolve(b"op,when,offset_bytes,size_bytes,disk")
            .unwrap();
        assert_eq!((layout.time, layout.header), ((1, TimeUnit::Micros), true));
        assert_eq!(layout.volume, VolumeColumns::One(4));
    }

    #[test]
    fn what_cannot_be_applied_is_explained() {
        for (spec, line, says) in [
            ("time=1", "1,R,0,512", "needs its unit"),
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
                .resolve(line.as_bytes())
                .unwrap_err();
            assert!(error.contains(says), "{spec}: {error}");
        }
        for (spec, says) in [
            ("time", "maps no column"),
            ("when=1", "not a column"),
            ("time=0:s", "from 1"),
        ] {
            let error = spec.parse::<ColumnSpec>().unwrap_err();
            assert!(error.contains(says), "{spec}: {error}");
        }
    }
}
