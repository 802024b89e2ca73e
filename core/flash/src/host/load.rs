//! Loads of tenants.
//!
//! All loads are generated from a seed. Those named after traces are *stand-ins*: a mix of kind, size and skew that is
//! typical of the trace's family, without a fit to the trace.

mod generator;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::drive::Op;

pub use generator::Generator;

/// Request of a recorded load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Time since the first request.
    pub at_ns: u64,
    /// Operation.
    pub op: Op,
    /// Offset.
    pub offset: u64,
    /// Length.
    pub bytes: u32,
}

/// Kind of load.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// Independent requests of one size.
    Random {
        /// Share of reads.
        reads: f64,
        /// Size in bytes.
        bytes: u32,
        /// Skew of popularity (Zipf's theta); 0 is uniform.
        theta: f64,
    },
    /// Sequential requests, which restart at the end of the space.
    Sequential {
        /// Share of reads: each pass is read or written as a whole.
        reads: f64,
        /// Size in bytes.
        bytes: u32,
    },
    /// Files of 128 KiB that are read, written or appended to, 32 KiB at a time, in bursts of mostly one kind.
    FileServer,
    /// Named family.
    StandIn(StandIn),
    /// Recorded requests, folded into the tenant's space.
    Recorded(Arc<[RecordedRequest]>),
}

/// Stand-in for a published trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandIn {
    /// OLTP (SPC Financial): small, mostly writes, very skewed.
    Financial,
    /// A mail and messaging back end (MS Production MSN): mid-sized, two thirds reads.
    Msn,
    /// A mail server (MS Production Exchange): 8 KiB to 32 KiB, half and half.
    Exchange,
    /// Project directories (MSR proj): mid-sized, mostly writes in runs.
    Proj,
}

/// Unknown name of a load.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "unknown load \"{0}\": give random-write-SIZE, random-read-SIZE, random-mix-SIZE, zipf[-SIZE], sequential[-write|-read][-SIZE], \
     fileserver, financial, msn, exchange or proj"
)]
pub struct LoadError(pub String);

impl FromStr for Load {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        let wrong = || LoadError(text.into());
        let stand_in = |s| Ok(Self::StandIn(s));
        match text {
            "fileserver" => return Ok(Self::FileServer),
            "financial" => return stand_in(StandIn::Financial),
            "msn" => return stand_in(StandIn::Msn),
            "exchange" => return stand_in(StandIn::Exchange),
            "proj" => return stand_in(StandIn::Proj),
            _ => {}
        }
        let mut words = text.split('-');
        let kind = words.next().unwrap_or("");
        let (mut reads, mut bytes) = (0.0, if kind == "sequential" { 131_072 } else { 4096 });
        for word in words {
            match word {
                "write" => reads = 0.0,
                "read" => reads = 1.0,
                "mix" => reads = 0.5,
                size => bytes = size_of_request(size).ok_or_else(wrong)?,
            }
        }
        match kind {
            "random" => Ok(Self::Random {
                reads,
                bytes,
                theta: 0.0,
            }),
            "zipf" => Ok(Self::Random {
                reads,
                bytes,
                theta: 0.99,
            }),
            "sequential" => Ok(Self::Sequential { reads, bytes }),
            _ => Err(wrong()),
        }
    }
}

/// Parses a size such as `4k`, `32k` or `1m` (powers of 1,024), from 512 bytes to 8 MiB.
fn size_of_request(text: &str) -> Option<u32> {
    let (digits, scale) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    let bytes = digits.parse::<u32>().ok()?.checked_mul(scale)?;
    (512..=8 << 20).contains(&bytes).then_some(bytes)
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = |reads: f64| match reads {
            0.0 => "write".to_owned(),
            1.0 => "read".to_owned(),
            r => format!("{:.0}% read", 100.0 * r),
        };
        let size = |bytes: u32| match bytes.is_multiple_of(1024) {
            true => format!("{}k", bytes / 1024),
            false => bytes.to_string(),
        };
        match self {
            Self::Random {
                reads,
                bytes,
                theta,
            } => {
                let name = if *theta > 0.0 { "zipf" } else { "random" };
                write!(f, "{name}-{}-{}", kind(*reads), size(*bytes))
            }
            Self::Sequential { reads, bytes } => {
                write!(f, "sequential-{}-{}", kind(*reads), size(*bytes))
            }
            Self::FileServer => f.write_str("fileserver"),
            Self::StandIn(StandIn::Financial) => f.write_str("financial"),
            Self::StandIn(StandIn::Msn) => f.write_str("msn"),
            Self::StandIn(StandIn::Exchange) => f.write_str("exchange"),
            Self::StandIn(StandIn::Proj) => f.write_str("proj"),
            Self::Recorded(requests) => write!(f, "{} recorded requests", requests.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_names_parse_and_invalid_ones_are_refused() {
        let random = |reads, bytes, theta| Load::Random {
            reads,
            bytes,
            theta,
        };
        for (text, want) in [
            ("random-write-32k", random(0.0, 32_768, 0.0)),
            ("random-read-4k", random(1.0, 4096, 0.0)),
            ("random-mix-512", random(0.5, 512, 0.0)),
            ("zipf", random(0.0, 4096, 0.99)),
            ("zipf-1m", random(0.0, 1 << 20, 0.99)),
            (
                "sequential-read-64k",
                Load::Sequential {
                    reads: 1.0,
                    bytes: 65_536,
                },
            ),
            ("fileserver", Load::FileServer),
            ("proj", Load::StandIn(StandIn::Proj)),
        ] {
            assert_eq!(text.parse::<Load>(), Ok(want), "{text}");
        }
        for text in [
            "",
            "random-",
            "random-write-0k",
            "random-99999999m",
            "burst",
            "zipf-4x",
        ] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
    }

    #[test]
    fn requests_stay_within_the_tenant() {
        for name in [
            "random-mix-32k",
            "zipf-64k",
            "sequential",
            "fileserver",
            "financial",
            "msn",
            "exchange",
            "proj",
        ] {
            for space in [1 << 20, 10_000_000] {
                let mut generator = Generator::new(name.parse().unwrap(), space, 1, 2);
                let mut again = generator.clone();
                for _ in 0..2000 {
                    let r = generator.next_request().unwrap();
                    assert!(r.offset + u64::from(r.bytes) <= space, "{name}: {r:?}");
                    assert_eq!(Some(r), again.next_request());
                }
            }
        }
    }

    #[test]
    fn recorded_requests_are_issued_once_and_wrapped() {
        let one = RecordedRequest {
            at_ns: 5,
            op: Op::Read,
            offset: 1 << 40,
            bytes: 4096,
        };
        let mut generator = Generator::new(Load::Recorded([one].into()), 1 << 20, 1, 1);
        let got = generator.next_request().unwrap();
        assert_eq!((got.at_ns, got.op), (5, Op::Read));
        assert!(got.offset < 1 << 20);
        assert_eq!(generator.next_request(), None);
    }

    #[test]
    fn offset_of_a_trace_is_preserved_for_any_size() {
        let with = |offset, bytes| RecordedRequest {
            at_ns: 0,
            op: Op::Write,
            offset,
            bytes,
        };
        let space = 1 << 20;
        let place = 5 * space + 12_288;
        let all = [
            with(place, 4096),
            with(place, 65_536),
            with(space - 4096, 65_536),
        ];
        let mut generator = Generator::new(Load::Recorded(all.into()), space, 1, 1);
        let got = all.map(|_| generator.next_request().unwrap());
        assert_eq!(got.map(|r| r.offset), [12_288, 12_288, space - 4096]);
        assert_eq!(got.map(|r| r.bytes), [4096, 65_536, 4096]);
    }
}
