//! Limits of block devices, to refuse calibrations that no device can have.

use crate::DeviceSpec;

/// Lowest latency of a file or a block device, microseconds. The fastest drives, with 3D XPoint on PCIe 4, need 5 to 6 µs for a read of
/// 4 KiB, plus the way through the kernel. The page cache and file systems in memory need 1 to 2 µs.
pub const LATENCY_MIN_US: f64 = 5.0;
/// Highest bandwidth of a device, bytes per second: PCIe 5.0 with 16 lanes.
pub const BANDWIDTH_MAX: f64 = 64e9;
/// Largest number of requests in flight on a device: a queue of NVMe.
const IN_FLIGHT_MAX: f64 = 65_536.0;
/// Smallest request, bytes.
const SECTOR: f64 = 512.0;

/// Describes a latency that no device has; `None` if it is possible.
fn impossible_latency(us: f64) -> Option<String> {
    let refused = !us.is_finite() || us < LATENCY_MIN_US;
    refused.then(|| {
        format!(
            "{us:.1} µs is impossible: a file or block device needs at least {LATENCY_MIN_US:.0} µs per request, so memory such as the page cache answered"
        )
    })
}

impl DeviceSpec {
    /// Returns the key of the first value that no device can have, and the reason why it is impossible. Simulations may use such devices, calibrations may not.
    ///
    /// By Little's law, a rate times the latency is the number of requests in flight. A rate times the smallest request is a bandwidth.
    pub fn impossible(&self) -> Option<(&'static str, String)> {
        let directions = [
            (
                ["read_latency", "read_iops", "read_bandwidth"],
                (self.read_latency, self.read_iops, self.read_bandwidth),
            ),
            (
                ["write_latency", "write_iops", "write_bandwidth"],
                (self.write_latency, self.write_iops, self.write_bandwidth),
            ),
        ];
        for ([latency_key, rate, bandwidth_key], (latency, iops, bandwidth)) in directions {
            let (us, bytes_per_s) = (latency.as_micros_f64(), bandwidth.as_f64());
            if let Some(why) = impossible_latency(us) {
                return Some((latency_key, why));
            }
            let bus = format!(
                "the bus of a device transfers at most {:.0} GB/s",
                BANDWIDTH_MAX / 1e9
            );
            if bytes_per_s > BANDWIDTH_MAX {
                let why = format!("{:.1} GB/s is impossible: {bus}", bytes_per_s / 1e9);
                return Some((bandwidth_key, why));
            }
            let smallest = iops * SECTOR;
            if smallest > BANDWIDTH_MAX {
                let why = format!(
                    "{iops:.0} requests per second are impossible: with {SECTOR:.0} bytes each they are {:.1} GB/s, and {bus}",
                    smallest / 1e9
                );
                return Some((rate, why));
            }
            let in_flight = iops * us * 1e-6;
            if in_flight > IN_FLIGHT_MAX {
                let why = format!(
                    "{iops:.0} requests per second with {us:.0} µs each are impossible: by Little's law {in_flight:.0} requests are in flight, and a queue holds at most {IN_FLIGHT_MAX:.0}"
                );
                return Some((rate, why));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use units::{BytesPerSec, Nanos};

    use super::*;

    #[test]
    fn presets_are_valid_and_values_beyond_the_limits_are_named() {
        for preset in crate::PRESETS {
            assert_eq!(preset.spec().impossible(), None, "{}", preset.name);
        }
        let spec = crate::preset("nvme-tlc").expect("a preset").spec();
        let cached = DeviceSpec {
            read_latency: Nanos::from_micros(1),
            ..spec.clone()
        };
        let (key, why) = cached.impossible().unwrap();
        assert_eq!(key, "read_latency");
        assert!(why.starts_with("1.0 µs is impossible"), "{why}");
        let beyond_bus = DeviceSpec {
            write_bandwidth: BytesPerSec(70_000_000_000),
            ..spec.clone()
        };
        assert_eq!(beyond_bus.impossible().unwrap().0, "write_bandwidth");
        let many = DeviceSpec {
            read_iops: 1e9,
            ..spec.clone()
        };
        assert_eq!(many.impossible().unwrap().0, "read_iops");
        // A rate that needs 100,000 requests in flight.
        let queued = DeviceSpec {
            read_iops: 1e6,
            read_latency: Nanos::from_millis(100),
            ..spec
        };
        let (key, why) = queued.impossible().unwrap();
        assert!(
            key == "read_iops" && why.contains("Little's law 100000"),
            "{why}"
        );
        assert_eq!(impossible_latency(5.0), None);
        assert!(impossible_latency(f64::NAN).is_some());
    }
}
