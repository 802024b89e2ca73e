//! Reading what the columns of a CSV are from their names: `time_s`, `offset_bytes`, `latency_ns`.

use super::field::TimeUnit;

/// What a column is for.
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

    /// Names of columns, without the unit's suffix, that are taken for this role.
    fn stems(self) -> &'static [&'static str] {
        match self {
            Role::Time => &[
                "time",
                "timestamp",
                "ts",
                "arrival",
                "arrival_time",
                "issue_time",
                "start_time",
            ],
            Role::Volume => &[
                "volume",
                "vol",
                "node",
                "device",
                "dev",
                "disk",
                "lun",
                "volume_id",
                "disk_id",
            ],
            Role::Op => &["op", "operation", "type", "rw", "io_type"],
            Role::Offset => &[
                "offset",
                "start",
                "address",
                "sector",
                "start_sector",
                "first_sector",
            ],
            Role::Length => &[
                "length",
                "len",
                "size",
                "request_size",
                "io_size",
                "sectors",
            ],
            Role::Latency => &[
                "latency",
                "lat",
                "response_time",
                "service_time",
                "duration",
            ],
        }
    }
}

/// The unit of a column.
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

/// What a column's name says.
pub(super) fn recognize(name: &[u8]) -> Option<(Role, Option<Unit>)> {
    let name = std::str::from_utf8(name).ok()?.trim().to_ascii_lowercase();
    let role = |stem: &str| {
        Role::ALL
            .into_iter()
            .find(|role| role.stems().contains(&stem))
    };
    if let Some(role) = role(&name) {
        // A sector of a disk is 512 bytes wherever nothing else is said.
        let unit = name.contains("sector").then_some(Unit::Size(512));
        return Some((role, unit));
    }
    let (stem, suffix) = name.rsplit_once('_')?;
    let unit =
        Unit::from_name(suffix).filter(|_| !suffix.starts_with(|c: char| c.is_ascii_digit()))?;
    let role = role(stem)?;
    let fits = match unit {
        Unit::Time(_) => matches!(role, Role::Time | Role::Latency),
        Unit::Size(_) => matches!(role, Role::Offset | Role::Length),
    };
    fits.then_some((role, Some(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_their_units() {
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
        assert_eq!(recognize(b"offset_ns"), None);
        assert_eq!(recognize(b"comment"), None);
    }
}
