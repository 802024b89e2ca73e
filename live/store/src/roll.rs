//! Roll-up of several windows into one.
//!
//! Requests and bytes are added. Means are weighted by requests; outstanding requests and utilization by time. Percentiles
//! and the statistic of the objective are the maxima of the windows: an upper bound, not the percentile of the whole time.
//! The device of a volume and the used space are the latest ones.

use std::collections::BTreeMap;

use manager::store::FlowSummary;

use crate::head::DeviceRow;
use crate::part::VolumeRow;
use crate::windows::Window;

/// Sums of the windows, added oldest first.
#[derive(Default)]
pub(crate) struct RollingSums {
    at_ns: u64,
    window_ns: u64,
    volumes: BTreeMap<u32, Volume>,
    devices: BTreeMap<u32, Device>,
}

#[derive(Default)]
struct Volume {
    row: VolumeRow,
    outstanding: WeightedMean,
    read_mean: WeightedMean,
    write_mean: WeightedMean,
}

#[derive(Default)]
struct Device {
    row: DeviceRow,
    utilization: WeightedMean,
}

/// Weighted mean.
#[derive(Default)]
struct WeightedMean {
    sum: u128,
    weight: u128,
}

impl WeightedMean {
    fn add(&mut self, value: u64, weight: u64) {
        let part = u128::from(value) * u128::from(weight);
        self.sum = self.sum.saturating_add(part);
        self.weight += u128::from(weight);
    }

    /// Returns the mean, rounded to the nearest integer; 0 without values.
    fn mean(&self) -> u64 {
        let half = self.weight / 2;
        let mean = self.sum.saturating_add(half).checked_div(self.weight);
        // The mean is at most the largest value, which has 64 bits.
        mean.unwrap_or(0) as u64
    }
}

impl RollingSums {
    /// Adds a window that is not older than the previous ones.
    pub(crate) fn add(&mut self, window: &Window) {
        self.at_ns = window.at_ns;
        self.window_ns = self.window_ns.saturating_add(window.window_ns);
        for row in &window.volumes {
            self.volumes.entry(row.volume).or_default().add(row);
        }
        for row in &window.devices {
            self.devices.entry(row.device).or_default().add(row);
        }
    }

    pub(crate) fn finish(self) -> Window {
        Window {
            at_ns: self.at_ns,
            window_ns: self.window_ns,
            volumes: self.volumes.into_values().map(Volume::finish).collect(),
            devices: self.devices.into_values().map(Device::finish).collect(),
        }
    }
}

impl Volume {
    fn add(&mut self, new: &VolumeRow) {
        let row = &mut self.row;
        row.volume = new.volume;
        row.device = new.device;
        row.measured_ns = row.measured_ns.saturating_add(new.measured_ns);
        row.p99_ns = row.p99_ns.max(new.p99_ns);
        row.slo_ns = row.slo_ns.max(new.slo_ns);
        add_flow(&mut row.reads, &new.reads);
        add_flow(&mut row.writes, &new.writes);
        self.outstanding.add(new.outstanding_milli, new.measured_ns);
        self.read_mean.add(new.reads.mean_ns, new.reads.ios);
        self.write_mean.add(new.writes.mean_ns, new.writes.ios);
    }

    fn finish(self) -> VolumeRow {
        let mut row = self.row;
        row.outstanding_milli = self.outstanding.mean();
        row.reads.mean_ns = self.read_mean.mean();
        row.writes.mean_ns = self.write_mean.mean();
        row
    }
}

fn add_flow(sum: &mut FlowSummary, new: &FlowSummary) {
    sum.ios = sum.ios.saturating_add(new.ios);
    sum.bytes = sum.bytes.saturating_add(new.bytes);
    sum.p50_ns = sum.p50_ns.max(new.p50_ns);
    sum.p95_ns = sum.p95_ns.max(new.p95_ns);
    sum.p99_ns = sum.p99_ns.max(new.p99_ns);
    sum.p999_ns = sum.p999_ns.max(new.p999_ns);
}

impl Device {
    fn add(&mut self, new: &DeviceRow) {
        let row = &mut self.row;
        row.device = new.device;
        row.measured_ns = row.measured_ns.saturating_add(new.measured_ns);
        row.used_bytes = new.used_bytes;
        row.reads = row.reads.saturating_add(new.reads);
        row.writes = row.writes.saturating_add(new.writes);
        row.read_bytes = row.read_bytes.saturating_add(new.read_bytes);
        row.write_bytes = row.write_bytes.saturating_add(new.write_bytes);
        self.utilization.add(new.utilization_milli, new.measured_ns);
    }

    fn finish(self) -> DeviceRow {
        DeviceRow {
            utilization_milli: self.utilization.mean(),
            ..self.row
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(ios: u64, mean_ns: u64, p_ns: u64) -> FlowSummary {
        FlowSummary {
            ios,
            bytes: ios * 4096,
            mean_ns,
            p50_ns: p_ns,
            p95_ns: p_ns + 1,
            p99_ns: p_ns + 2,
            p999_ns: p_ns + 3,
        }
    }

    fn window(at_ns: u64, window_ns: u64, volumes: Vec<VolumeRow>) -> Window {
        let device = DeviceRow {
            device: 9,
            measured_ns: window_ns,
            used_bytes: at_ns,
            reads: 3,
            writes: 5,
            read_bytes: 7,
            write_bytes: u64::MAX,
            utilization_milli: at_ns,
        };
        Window {
            at_ns,
            window_ns,
            volumes,
            devices: vec![device],
        }
    }

    #[test]
    fn roll_up_has_sums_weighted_means_and_largest_percentiles() {
        let row = |device, measured_ns, reads, outstanding_milli| VolumeRow {
            volume: 1,
            device,
            measured_ns,
            outstanding_milli,
            reads,
            slo_ns: measured_ns,
            ..VolumeRow::default()
        };
        let known = VolumeRow {
            volume: 4,
            measured_ns: 30,
            ..VolumeRow::default()
        };
        let first = row(7, 10, flow(3, 100, 500), 1000);
        let second = row(8, 30, flow(1, 301, 400), 2000);
        let mut rolling = RollingSums::default();
        rolling.add(&window(10, 10, vec![first]));
        rolling.add(&window(40, 30, vec![known, second]));
        let rolled = rolling.finish();
        assert_eq!((rolled.at_ns, rolled.window_ns), (40, 40));
        let mut wanted = row(8, 40, flow(4, 150, 500), 1750);
        wanted.slo_ns = 30;
        // The volume is missing in the first window, so its time is 30 ns, not 40.
        assert_eq!(rolled.volumes, [wanted, known]);
        let device = rolled.devices[0];
        assert_eq!(
            (device.reads, device.writes, device.read_bytes),
            (6, 10, 14)
        );
        assert_eq!((device.write_bytes, device.used_bytes), (u64::MAX, 40));
        assert_eq!(
            device.utilization_milli, 33,
            "(10·10 + 40·30) ÷ 40, rounded"
        );
    }

    #[test]
    fn roll_up_of_idle_volumes_and_large_numbers_does_not_overflow() {
        let most = VolumeRow {
            measured_ns: u64::MAX,
            outstanding_milli: u64::MAX,
            reads: flow(u64::MAX / 4096, u64::MAX, 0),
            ..VolumeRow::default()
        };
        let mut rolling = RollingSums::default();
        for at_ns in 0..3 {
            rolling.add(&window(at_ns, u64::MAX, vec![most]));
        }
        let rolled = rolling.finish();
        assert_eq!(rolled.volumes[0].writes.mean_ns, 0);
        assert_eq!(rolled.volumes[0].reads.bytes, u64::MAX);
        assert_eq!(rolled.window_ns, u64::MAX);
    }
}
