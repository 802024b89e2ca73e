//! Limits of disks by a hypervisor: parsed, lowered for a time, and restored.
//!
//! libvirt and QEMU have the same limits under different names: bytes and requests per second, with bursts, either in
//! total or by direction. The two kinds exclude each other. A disk with limits by direction accepts no total limit, so
//! each direction is lowered to half of the new limit.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::HostError;
use crate::qemu::Field;

/// Rate and burst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Rate per second; zero is no limit.
    rate: u64,
    /// Rate per second during a burst; zero is the hypervisor's default.
    burst: u64,
    /// Length of a burst in seconds.
    burst_seconds: u64,
}

/// Limits of one kind: total, reads, writes.
type ByDirection = [Limit; 3];

/// Limits of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    bytes: ByDirection,
    requests: ByDirection,
    /// Bytes that count as one request; zero is any number.
    request_bytes: u64,
    /// Group that shares the limits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    group: Option<String>,
}

/// Beginnings of the names of limits in libvirt and in QEMU.
const NAMES: [[&str; 2]; 6] = [
    ["total_bytes_sec", "bps"],
    ["read_bytes_sec", "bps_rd"],
    ["write_bytes_sec", "bps_wr"],
    ["total_iops_sec", "iops"],
    ["read_iops_sec", "iops_rd"],
    ["write_iops_sec", "iops_wr"],
];

/// Returns limits of at most this total rate.
fn lowered(before: ByDirection, most: u64) -> ByDirection {
    let [all, reads, writes] = before;
    let least = |limit: Limit, most: u64| Limit {
        rate: match limit.rate {
            0 => most,
            rate => rate.min(most),
        },
        ..Limit::default()
    };
    let by_direction = reads.rate > 0 || writes.rate > 0;
    let kept = match by_direction {
        true => reads.rate > 0 && writes.rate > 0,
        false => all.rate > 0,
    };
    let half = (most / 2).max(1);
    match by_direction {
        _ if kept && all.rate + reads.rate + writes.rate <= most => before,
        true => [Limit::default(), least(reads, half), least(writes, half)],
        false => [least(all, most), Limit::default(), Limit::default()],
    }
}

impl Limits {
    /// Creates limits without bursts from rates: bytes in total, of reads, of writes, then requests. Zero is no limit.
    pub(crate) fn of_rates(rates: [u64; 6]) -> Self {
        let mut limits = Self::default();
        for (limit, rate) in limits.all_mut().zip(rates) {
            limit.rate = rate;
        }
        limits
    }

    /// Returns the rates, in the order of [`Limits::of_rates`].
    pub(crate) fn rates(&self) -> [u64; 6] {
        let mut rates = [0; 6];
        for (rate, limit) in rates.iter_mut().zip(self.all()) {
            *rate = limit.rate;
        }
        rates
    }

    /// Parses the output of `virsh blkdeviotune DOMAIN DISK`.
    ///
    /// # Errors
    /// The fault, with its line.
    pub fn of_virsh(text: &str) -> Result<Self, HostError> {
        let mut found = Self::default();
        for (n, line) in text.lines().enumerate() {
            let fault = |why: &str| HostError::Line {
                what: "limits of a disk",
                line: n + 1,
                why: format!("{why}: {line:?}"),
            };
            if line.trim().is_empty() {
                continue;
            }
            let (name, said) = line.split_once(':').ok_or_else(|| fault("no colon"))?;
            let (name, said) = (name.trim(), said.trim());
            if name == "group_name" {
                found.group = (!said.is_empty()).then(|| said.into());
                continue;
            }
            let place = match name {
                "size_iops_sec" => Some(&mut found.request_bytes),
                name => NAMES.iter().zip(found.all_mut()).find_map(|(n, limit)| {
                    match name.strip_prefix(n[0])? {
                        "" => Some(&mut limit.rate),
                        "_max" => Some(&mut limit.burst),
                        "_max_length" => Some(&mut limit.burst_seconds),
                        _ => None,
                    }
                }),
            };
            // An unknown limit could not be restored.
            let place = place.ok_or_else(|| fault("unknown limit"))?;
            *place = said.parse().map_err(|_| fault("not a number"))?;
        }
        Ok(found)
    }

    /// Parses the limits in `inserted` of a disk in QEMU's answer to `query-block`.
    pub(crate) fn of_qemu(inserted: &Field<'_>) -> Result<Self, HostError> {
        let mut found = Self::default();
        let number = |name: &str| {
            let number = inserted.field(name).maybe(Field::number)?;
            Ok::<_, HostError>(number.unwrap_or(0))
        };
        for ([_, name], limit) in NAMES.iter().zip(found.all_mut()) {
            limit.rate = number(name)?;
            limit.burst = number(&format!("{name}_max"))?;
            limit.burst_seconds = number(&format!("{name}_max_length"))?;
        }
        found.request_bytes = number("iops_size")?;
        let group = inserted.field("group").maybe(Field::text)?;
        found.group = group.map(String::from);
        Ok(found)
    }

    /// Returns all limits in the order of [`NAMES`].
    fn all(&self) -> impl Iterator<Item = Limit> {
        self.bytes.into_iter().chain(self.requests)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.bytes.iter_mut().chain(&mut self.requests)
    }

    /// Returns true if there is any limit.
    pub fn is_any(&self) -> bool {
        self.all().any(|limit| limit.rate > 0)
    }

    /// Returns true if two disks are in the same group, so that their limits apply to both together.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        self.group.is_some() && self.group == other.group
    }

    /// Returns true if both have the same limits, independent of the name of the group.
    pub fn is_as(&self, other: &Self) -> bool {
        // A burst without a length has QEMU's default length, and one without a rate has no effect.
        let plain = |l: Limit| match (l.rate, l.burst) {
            (0, _) => (0, 0, 0),
            (rate, 0) => (rate, 0, 0),
            (rate, burst) => (rate, burst, l.burst_seconds.max(1)),
        };
        self.all().map(plain).eq(other.all().map(plain))
            && self.request_bytes == other.request_bytes
    }

    /// Returns these limits, lowered to at most this number of requests and bytes per second.
    #[must_use]
    pub fn lowered(&self, requests: Option<u64>, bytes: Option<u64>) -> Self {
        let at_most = |of: ByDirection, most: Option<u64>| match most {
            Some(most) => lowered(of, most),
            None => of,
        };
        Self {
            bytes: at_most(self.bytes, bytes),
            requests: at_most(self.requests, requests),
            ..self.clone()
        }
    }

    /// Returns the arguments of `virsh blkdeviotune` that set the limits.
    pub fn virsh_words(&self) -> Vec<String> {
        let mut words = vec![];
        let mut set = |name: String, number: u64| {
            words.push(format!("--{}", name.replace('_', "-")));
            words.push(number.to_string());
        };
        for ([name, _], limit) in NAMES.iter().zip(self.all()) {
            set((*name).into(), limit.rate);
            set(format!("{name}_max"), limit.burst);
            // Without this argument libvirt keeps the old length, which QEMU refuses without a burst.
            let seconds = match limit.burst {
                0 => 0,
                _ => limit.burst_seconds.max(1),
            };
            set(format!("{name}_max_length"), seconds);
        }
        set("size_iops_sec".into(), self.request_bytes);
        words
    }

    /// Returns the arguments of QEMU's `block_set_io_throttle` that set the limits for a device.
    pub fn qemu_arguments(&self, device: &str) -> Value {
        let mut arguments = Map::new();
        arguments.insert("id".into(), device.into());
        for ([_, name], limit) in NAMES.iter().zip(self.all()) {
            arguments.insert((*name).into(), limit.rate.into());
            if limit.burst > 0 {
                let seconds = limit.burst_seconds.max(1);
                arguments.insert(format!("{name}_max"), limit.burst.into());
                arguments.insert(format!("{name}_max_length"), seconds.into());
            }
        }
        if self.request_bytes > 0 {
            arguments.insert("iops_size".into(), self.request_bytes.into());
        }
        if let Some(group) = &self.group {
            arguments.insert("group".into(), json!(group));
        }
        Value::Object(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of libvirt 9.0 for a disk with limits by direction.
    const SAID: &str = "\
total_bytes_sec: 0
read_bytes_sec : 0
write_bytes_sec: 20000000
total_iops_sec : 0
read_iops_sec  : 1000
write_iops_sec : 0
total_bytes_sec_max: 0
read_iops_sec_max: 2000
size_iops_sec  : 4096
group_name     : /machine/peripheral/virtio-disk0/virtio-backend
read_iops_sec_max_length: 3
";

    fn limit(rate: u64) -> Limit {
        Limit {
            rate,
            ..Limit::default()
        }
    }

    #[test]
    fn libvirt_limits_round_trip() {
        let limits = Limits::of_virsh(SAID).unwrap();
        assert_eq!(limits.bytes[2], limit(20_000_000));
        assert_eq!(
            limits.requests[1],
            Limit {
                rate: 1000,
                burst: 2000,
                burst_seconds: 3
            }
        );
        let words = limits.virsh_words().join(" ");
        assert!(words.contains(
            "--write-bytes-sec 20000000 --write-bytes-sec-max 0 --write-bytes-sec-max-length 0"
        ));
        assert!(words.contains("--read-iops-sec-max 2000 --read-iops-sec-max-length 3"));
        assert!(words.contains("--size-iops-sec 4096") && !words.contains("group"));
        for (text, said) in [
            ("total_iops_sec : many\n", "line 1: not a number"),
            ("\nnew_limit: 7\n", "line 2: unknown limit"),
            ("total", "no colon"),
        ] {
            let why = Limits::of_virsh(text).unwrap_err().to_string();
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn qemu_limits_round_trip() {
        let inserted = json!({
            "bps": 0, "bps_rd": 0, "bps_wr": 7, "iops": 100, "iops_rd": 0, "iops_wr": 0,
            "iops_max": 300, "iops_max_length": 2, "iops_size": 512, "group": "g",
        });
        let limits = Limits::of_qemu(&Field::root("inserted", &inserted)).unwrap();
        let mut expected = inserted.clone();
        expected["id"] = "disk0".into();
        assert_eq!(limits.qemu_arguments("disk0"), expected);
    }

    #[test]
    fn lowered_limits_apply_with_any_previous_limits() {
        let of = |all, reads, writes| [all, reads, writes].map(limit);
        for (before, after) in [
            (of(0, 0, 0), of(100, 0, 0)),
            (of(500, 0, 0), of(100, 0, 0)),
            (of(70, 0, 0), of(70, 0, 0)),
            (of(0, 500, 0), of(0, 50, 50)),
            (of(0, 30, 0), of(0, 30, 50)),
            (of(0, 30, 500), of(0, 30, 50)),
            (of(0, 30, 70), of(0, 30, 70)),
        ] {
            assert_eq!(lowered(before, 100), after, "{before:?}");
        }
        // A burst would exceed the limit, unless the rate was low enough already.
        let bursts = |rate| {
            let all = Limit {
                rate,
                burst: 900,
                burst_seconds: 5,
            };
            [all, limit(0), limit(0)]
        };
        assert_eq!(lowered(bursts(200), 100), of(100, 0, 0));
        assert_eq!(lowered(bursts(100), 100), bursts(100));
        let limits = Limits::of_virsh(SAID).unwrap();
        assert_eq!(limits.lowered(None, None), limits);
        let low = limits.lowered(Some(10), None);
        assert_eq!((low.bytes, low.request_bytes), (limits.bytes, 4096));
        assert_eq!(low.requests, of(0, 5, 5));
    }

    #[test]
    fn limits_are_equal_regardless_of_group_and_burst_names() {
        let limits = Limits::of_virsh(SAID).unwrap();
        let mut other = limits.clone();
        other.group = None;
        other.bytes[2].burst_seconds = 1;
        other.bytes[1].burst_seconds = 1;
        assert!(limits.is_as(&other) && limits.is_any());
        other.requests[2].rate = 1;
        assert!(!limits.is_as(&other));
        assert!(!Limits::default().is_any());
        assert!(limits.is_shared_with(&limits) && !Limits::default().is_shared_with(&limits));
        assert!(!Limits::default().is_shared_with(&Limits::default()));
    }
}
