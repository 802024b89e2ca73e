//! Quantities and their arithmetic.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use crate::size::parse_size;
use crate::text::{ParseUnitError, parse_scaled, print_scaled};

const SIZE_UNITS: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];
const TIME_UNITS: &[(&str, u64)] = &[
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const RATE_UNITS: &[(&str, u64)] = &[
    ("TiB/s", 1 << 40),
    ("GiB/s", 1 << 30),
    ("MiB/s", 1 << 20),
    ("KiB/s", 1 << 10),
    ("B/s", 1),
    // Decimal units are understood because data sheets use them; output never prints them.
    ("GB/s", 1_000_000_000),
    ("MB/s", 1_000_000),
];
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $what:literal, $parse:expr, $units_out:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// Returns the value as a float, for models.
            #[inline]
            pub fn as_f64(self) -> f64 {
                self.0 as f64
            }

            /// Returns `self − other`, or zero if that would be negative.
            #[inline]
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl Add for $name {
            type Output = Self;
            #[inline]
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            #[inline]
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl SubAssign for $name {
            #[inline]
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                Self(iter.map(|x| x.0).sum())
            }
        }
        impl FromStr for $name {
            type Err = ParseUnitError;
            fn from_str(text: &str) -> Result<Self, ParseUnitError> {
                $parse(text, $what).map(Self)
            }
        }
        impl fmt::Display for $name {
            /// The shortest exact form: the largest unit in which the value is a whole number.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&print_scaled(self.0, $units_out))
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $what })
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "{} with its unit, in quotes", $what)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                d.deserialize_any(Visitor)
            }
        }
    };
}

quantity!(
    /// A size in bytes. Text: `"256 GiB"`, `"4 KiB"`, also `"256G"`, `"1.5T"`, `"64k"` as `qemu-img` and `lvcreate` take them,
    /// and `"480 GB"` (data-sheet decimal).
    Bytes, "a size such as \"256 GiB\" or \"256G\"", parse_size, SIZE_UNITS
);
quantity!(
    /// A time or a span in nanoseconds. Text: `"5m"`, `"250us"`, `"1.5s"`.
    Nanos, "a time such as \"5m\" or \"250us\"", |text, what| parse_scaled(text, what, TIME_UNITS), TIME_UNITS
);
quantity!(
    /// A data rate in bytes per second. Text: `"200 MiB/s"`.
    BytesPerSec, "a rate such as \"200 MiB/s\"", |text, what| parse_scaled(text, what, RATE_UNITS), &RATE_UNITS[..5]
);

impl Nanos {
    /// Creates a time from whole seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// Creates a time from whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Creates a time from whole microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// Returns seconds as a float.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns microseconds as a float: the unit of every latency model in Terrace.
    #[inline]
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Creates a time from microseconds, rounded to the nanosecond; negative and NaN become zero.
    #[inline]
    pub fn from_micros_f64(us: f64) -> Self {
        Self((us * 1e3).round() as u64)
    }
}

impl Bytes {
    /// Creates a size from whole mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Creates a size from whole gibibytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Returns mebibytes as a float, for output.
    pub fn as_mib_f64(self) -> f64 {
        self.0 as f64 / (1u64 << 20) as f64
    }

    /// Returns gibibytes as a float.
    pub fn as_gib_f64(self) -> f64 {
        self.0 as f64 / (1u64 << 30) as f64
    }
}

impl BytesPerSec {
    /// Returns the time for `bytes` at this rate, which must not be zero.
    pub fn time_for(self, bytes: Bytes) -> Nanos {
        assert!(self.0 > 0, "a rate of zero moves nothing");
        Nanos(
            ((bytes.0 as u128 * 1_000_000_000).div_ceil(self.0 as u128)).min(u64::MAX as u128)
                as u64,
        )
    }
}

/// Requests per second. Text: `"240K"` is not accepted, write `"240000 IOPS"` or `"240 kIOPS"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Iops(pub f64);

impl FromStr for Iops {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        parse_scaled(
            text,
            "a request rate such as \"5000 IOPS\"",
            &[("kIOPS", 1000), ("IOPS", 1)],
        )
        .map(|v| Self(v as f64))
    }
}

impl fmt::Display for Iops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} IOPS", self.0.round()))
    }
}

impl JsonSchema for Iops {
    fn schema_name() -> Cow<'static, str> {
        "Iops".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "a request rate such as \"5000 IOPS\"" })
    }
}

impl Serialize for Iops {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Iops {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Iops;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a request rate such as \"5000 IOPS\", in quotes")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Iops, E> {
                text.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_forms_have_a_unit() {
        assert_eq!("256 GiB".parse::<Bytes>().unwrap(), Bytes::gib(256));
        assert_eq!("1.5s".parse::<Nanos>().unwrap(), Nanos::from_millis(1500));
        assert_eq!(
            "200 MiB/s".parse::<BytesPerSec>().unwrap(),
            BytesPerSec(200 << 20)
        );
        assert_eq!("480 GB".parse::<Bytes>().unwrap(), Bytes(480_000_000_000));
        assert_eq!("240 kIOPS".parse::<Iops>().unwrap(), Iops(240_000.0));
        for bad in [
            "256",
            "",
            "GiB",
            "-1 GiB",
            "1e400 B",
            "12 parsecs",
            "99999999999 TiB",
            "0.3 B",
            "NaN s",
            "inf s",
        ] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad:?} must be refused");
        }
        let text = "12 parsecs".parse::<Bytes>().unwrap_err().to_string();
        assert!(text.contains("parsecs") && text.contains("GiB"), "{text}");
    }

    #[test]
    fn bare_number_in_json_is_refused() {
        assert!(serde_json::from_str::<Nanos>("5").is_err());
        assert_eq!(
            serde_json::from_str::<Nanos>("\"5m\"").unwrap(),
            Nanos::from_secs(300)
        );
    }

    #[test]
    fn copy_time_rounds_up() {
        assert_eq!(
            BytesPerSec(500_000_000).time_for(Bytes(100_000_000_000)),
            Nanos::from_secs(200)
        );
        assert_eq!(BytesPerSec(3).time_for(Bytes(1)), Nanos(333_333_334));
    }

    proptest! {
        #[test]
        fn printed_quantities_parse_to_the_same_value(n in any::<u64>()) {
            prop_assert_eq!(Bytes(n).to_string().parse::<Bytes>().unwrap(), Bytes(n));
            prop_assert_eq!(Nanos(n).to_string().parse::<Nanos>().unwrap(), Nanos(n));
            prop_assert_eq!(BytesPerSec(n).to_string().parse::<BytesPerSec>().unwrap(), BytesPerSec(n));
        }

        #[test]
        fn arbitrary_text_does_not_panic(s in ".{0,24}") {
            let _ = s.parse::<Bytes>();
            let _ = s.parse::<Nanos>();
            let _ = s.parse::<Iops>();
        }
    }
}
