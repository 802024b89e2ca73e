//! Roles of CSV columns from their names: `time_s`, `Offset [bytes]`, `latency_ns`.

use super::field::TimeUnit;

/// Role of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Time,
    Volume,
    Op,
    Offset,
    Length,
    Latency,
}

impl Role {
    pub(super) const ALL: [Role; 6] = [
        Role::Time,
        Role::Volume,
        Role::Op,
        Role::Offset,
        Role::Length,
        Role::Latency,
    ];

    /// Returns the role of a name in a column mapping.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let name = if name == "size" { "length" } else { name };
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Time => "time",
            Role::Volume => "volume",
            Role::Op => "op",
            Role::Offset => "offset",
            Role::Length => "length",
            Role::Latency => "latency",
        }
    }

    /// Returns the names of columns for this role, without the unit's suffix and without the separators of their words.
    fn stems(self) -> &'static [&'static str] {
        match self {
            Role::Time => &[
                "time",
                "timestamp",
                "ts",
                "arrival",
                "arrivaltime",
                "issuetime",
                "starttime",
                "optime",
                "datetime",
            ],
            Role::Volume => &[
                "volume",
                "vol",
                "node",
                "device",
                "dev",
                "disk",
                "lun",
                "volumeid",
                "diskid",
                "deviceid",
                "disknumber",
            ],
            Role::Op => &[
                "op",
                "operation",
                "type",
                "rw",
                "iotype",
                "opcode",
                "opname",
                "optype",
                "requesttype",
                "rwbs",
                "command",
            ],
            Role::Offset => &[
                "offset",
                "start",
                "address",
                "sector",
                "startsector",
                "firstsector",
                "iooffset",
                "byteoffset",
            ],
            Role::Length => &["length", "len", "size", "requestsize", "iosize", "sectors"],
            Role::Latency => &[
                "latency",
                "lat",
                "responsetime",
                "servicetime",
                "duration",
                "response",
            ],
        }
    }
}

/// Unit of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Time(TimeUnit),
    /// Bytes per unit.
    Size(u64),
}

impl Unit {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        if let Some(unit) = TimeUnit::from_name(name) {
            return Some(Unit::Time(unit));
        }
        Some(Unit::Size(match name {
            "bytes" | "b" => 1,
            "sectors" => 512,
            "kib" => 1024,
            "pages" => 4096,
            _ => name.parse().ok().filter(|n| *n > 0)?,
        }))
    }
}

/// Returns a cell without its quotes.
pub(crate) fn unquoted(cell: &[u8]) -> &[u8] {
    let inner = cell.strip_prefix(b"\"").and_then(|c| c.strip_suffix(b"\""));
    inner.unwrap_or(cell).trim_ascii()
}

/// Returns a column's name in lower case with its words joined by `_`; `None` if it is not text.
pub(crate) fn normalized(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(unquoted(name))
        .ok()?
        .to_ascii_lowercase();
    let words = name
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    Some(words.collect::<Vec<_>>().join("_"))
}

/// Returns role and unit of a column according to its name.
pub(super) fn recognize(name: &[u8]) -> Option<(Role, Option<Unit>)> {
    let name = normalized(name)?;
    let role = |stem: &str| {
        let stem = stem.replace('_', "");
        Role::ALL
            .into_iter()
            .find(|role| role.stems().contains(&stem.as_str()))
    };
    if let Some(role) = role(&name) {
        // A sector is 512 bytes unless stated otherwise.
        let unit = if name.contains("sector") {
            Some(Unit::Size(512))
        } else if name.starts_with("byte") {
            Some(Unit::Size(1))
        } else {
            None
        };
        return Some((role, unit));
    }
    let (stem, suffix) = name.rsplit_once('_')?;
    let unit =
        Unit::from_name(suffix).filter(|_| !suffix.starts_with(|c: char| c.is_ascii_digit()))?;
    let role = role(stem)?;
    let fits = match unit {
        Unit::Time(TimeUnit::Date) => false,
        Unit::Time(_) => matches!(role, Role::Time | Role::Latency),
        Unit::Size(_) => matches!(role, Role::Offset | Role::Length),
    };
    fits.then_some((role, Some(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_names_determine_their_units() {
        let ns = Some(Unit::Time(TimeUnit::Nanos));
        assert_eq!(recognize(b"time_ns"), Some((Role::Time, ns)));
        assert_eq!(
            recognize(b" Size_Bytes "),
            Some((Role::Length, Some(Unit::Size(1))))
        );
        assert_eq!(
            recognize(b"response_time_us"),
            Some((Role::Latency, Some(Unit::Time(TimeUnit::Micros))))
        );
        assert_eq!(recognize(b"timestamp"), Some((Role::Time, None)));
        assert_eq!(recognize(b"node"), Some((Role::Volume, None)));
        assert_eq!(recognize(b"\"Time (ns)\""), Some((Role::Time, ns)));
        assert_eq!(recognize(b"ResponseTime_ns"), Some((Role::Latency, ns)));
        assert_eq!(recognize(b" IOType"), Some((Role::Op, None)));
        assert_eq!(
            recognize(b"ByteOffset"),
            Some((Role::Offset, Some(Unit::Size(1))))
        );
        assert_eq!(recognize(b"offset_ns"), None);
        assert_eq!(recognize(b"comment"), None);
    }
}
