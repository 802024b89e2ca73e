//! Generated traces by name: `generate:preset=jesd,duration=1h` in place of a file. Requests exist one at a time, so memory does not grow with
//! their number.
//!
//! | key | value | default |
//! |---|---|---|
//! | `preset` | workload of one volume; repeatable | none: required |
//! | `volume-size` | size of each volume | 100 GiB |
//! | `requests` | number of requests | without limit |
//! | `duration` | length of the trace | 60 s, or without limit with `requests` |
//! | `latency` | response time of every request | 100 µs |
//! | `seed` | seed | 1 |

use std::path::Path;
use std::str::FromStr;

use units::{Bytes, Nanos};

use crate::error::{Location, OptionError, TraceError};
use crate::generate::{GenerateOptions, GeneratedVolume, Generator};
use crate::record::{LATENCY_UNKNOWN, RawRecord};
use crate::source::{RecordSource, SourceClock, VolumeNames};

/// First characters of the name of a generated trace.
const PREFIX: &str = "generate:";
/// Default length.
const DURATION: Nanos = Nanos::from_secs(60);
/// Default size of a volume.
const VOLUME_SIZE: Bytes = Bytes::gib(100);
/// Default response time.
const LATENCY: Nanos = Nanos::from_micros(100);
/// Longest trace: half of the range of times, so that no time overflows.
const DURATION_MAX: Nanos = Nanos(i64::MAX as u64 / 2);

/// Returns true for the name of a generated trace, such as `generate:preset=jesd,duration=1h`.
pub fn is_generated(path: &Path) -> bool {
    specification(path).is_some()
}

/// Returns the specification of a generated trace; `None` for a file.
pub(crate) fn specification(path: &Path) -> Option<&str> {
    path.to_str()?.strip_prefix(PREFIX)
}

/// Source of the requests of a generated trace.
pub(crate) struct GeneratedSource {
    requests: Generator,
    volumes: VolumeNames,
    left: u64,
    made: u64,
}

impl GeneratedSource {
    /// Creates the source from its specification, such as `preset=jesd,requests=1000`.
    pub(crate) fn new(specification: &str) -> Result<Self, TraceError> {
        let source = Self::parse(specification);
        source.map_err(|error| TraceError::Columns {
            file: format!("{PREFIX}{specification}"),
            reason: error.to_string(),
        })
    }

    fn parse(specification: &str) -> Result<Self, OptionError> {
        let (mut presets, mut size, mut seed) = (Vec::new(), VOLUME_SIZE, 1);
        let (mut requests, mut duration, mut latency) = (None, None, LATENCY);
        for part in specification.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| OptionError::Form(part.into()))?;
            match key {
                "preset" => presets.push(value),
                "volume-size" => size = parsed(key, value)?,
                "requests" => requests = Some(parsed(key, value)?),
                "duration" => duration = Some(parsed::<Nanos>(key, value)?.min(DURATION_MAX)),
                "latency" => latency = parsed(key, value)?,
                "seed" => seed = parsed(key, value)?,
                _ => return Err(OptionError::UnknownKey(key.into())),
            }
        }
        if presets.is_empty() {
            let known = crate::presets::client_preset_names();
            return Err(OptionError::NoPreset { known });
        }
        let volume = |(i, preset): (usize, &&str)| {
            let name = match presets.iter().filter(|p| *p == preset).count() {
                1 => (*preset).into(),
                _ => format!("{preset}-{i}"),
            };
            GeneratedVolume::of_preset(name, preset, size)
        };
        let volumes: Vec<GeneratedVolume> = presets.iter().enumerate().map(volume).collect();
        let unlimited = match requests {
            Some(_) => DURATION_MAX,
            None => DURATION,
        };
        let options = GenerateOptions {
            duration: duration.unwrap_or(unlimited),
            latency,
            seed,
        };
        Ok(Self {
            requests: Generator::new(&volumes, options)?,
            volumes: VolumeNames::listed(volumes.iter().map(|v| v.name.as_str())),
            left: requests.unwrap_or(u64::MAX),
            made: 0,
        })
    }
}

fn parsed<T: FromStr<Err: ToString>>(key: &str, value: &str) -> Result<T, OptionError> {
    let parsed = value.parse();
    parsed.map_err(|why: T::Err| OptionError::Value {
        key: key.into(),
        value: value.into(),
        why: why.to_string(),
    })
}

impl RecordSource for GeneratedSource {
    fn next(&mut self, out: &mut RawRecord) -> Result<bool, TraceError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(false);
        };
        let Some(record) = self.requests.next() else {
            return Ok(false);
        };
        (self.left, self.made) = (left, self.made + 1);
        *out = RawRecord {
            time_ns: record.time_ns as i64,
            offset_bytes: record.offset_bytes,
            latency_ns: LATENCY_UNKNOWN,
            length_bytes: record.length_bytes,
            volume: record.volume(),
            op: record.op(),
        };
        Ok(true)
    }

    fn volumes(&self) -> &VolumeNames {
        &self.volumes
    }

    fn has_latencies(&self) -> bool {
        false
    }

    fn clock(&self) -> SourceClock {
        SourceClock::Recording
    }

    fn location(&self) -> Location {
        Location::Record(self.made.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curves::{CurveOptions, Method, Rate, Reopened, estimates};
    use crate::{CacheKind, PageReferences, ReadOptions, TraceStream, load};

    const NAME: &str =
        "generate:preset=jesd,preset=zipf,volume-size=1GiB,requests=20000,latency=50us";

    #[test]
    fn generated_trace_is_read_like_a_file_and_again_with_the_same_requests() {
        let options = ReadOptions::default();
        let loaded = load(Path::new(NAME), &options).unwrap();
        assert_eq!(loaded.records().len(), 20_000);
        let names: Vec<&str> = loaded.volumes.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names, ["jesd", "zipf"]);
        let mut stream = TraceStream::open(Path::new(NAME), &options).unwrap();
        for record in loaded.records() {
            assert_eq!(stream.next_record().unwrap().unwrap().0, *record);
        }
        assert_eq!(stream.next_record().unwrap(), None);
        assert_eq!(stream.time_reversals(), 0);
    }

    #[test]
    fn curves_of_a_stream_equal_those_of_the_same_records_in_memory() {
        let loaded = load(Path::new(NAME), &ReadOptions::default()).unwrap();
        let reopened = Reopened {
            path: NAME.into(),
            options: ReadOptions::default(),
        };
        let pages = PageReferences::new(Bytes(4096), CacheKind::ReadWrite).unwrap();
        for rate in [Rate::Share(0.3), Rate::Auto] {
            let asked = CurveOptions {
                methods: &Method::ALL,
                rate,
                seed: 7,
            };
            let note = &mut |_: String| ();
            let streamed = estimates(&reopened, &pages, &asked, note).unwrap();
            let in_memory = estimates(&loaded.records(), &pages, &asked, note).unwrap();
            assert_eq!(format!("{streamed:?}"), format!("{in_memory:?}"));
        }
    }

    #[test]
    fn specification_with_an_error_names_it() {
        for (specification, says) in [
            ("requests=5", "no preset; known: basic-verify"),
            ("preset=jesd,size=1GiB", "unknown key \"size\""),
            ("preset=jesd,seed=x", "seed=x: "),
            ("preset=jest", "jest: preset: unknown workload"),
            ("jesd", "write KEY=VALUE"),
        ] {
            let error = GeneratedSource::new(specification).err().expect("an error");
            let error = error.to_string();
            let named = format!("generate:{specification}: ");
            assert!(error.starts_with(&named) && error.contains(says), "{error}");
        }
    }
}
