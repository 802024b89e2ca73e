//! Device presets: the drives of paper 0's tables, and current classes of SSD.
//!
//! Sources of the values:
//!
//! - Table I of paper 0 gives price, largest size and the *cell* times of the medium. IOPS caps and bandwidths of those presets
//!   are ours, typical of the interface class of the time.
//! - Table IV of paper 0 gives IOPS caps, bandwidths and sizes. The latencies are ours, because the paper gives none.
//! - Presets of the current classes have typical data-sheet values, not those of one product.
//! - All load curves are ours. Fit curves from fio runs if accuracy matters.

use units::{Bytes, BytesPerSec, Nanos};

use crate::{DeviceSpec, LoadCurve};

/// Device with a name and the source of its values.
#[derive(Debug, Clone, Copy)]
pub struct DevicePreset {
    /// Name in a scenario.
    pub name: &'static str,
    /// Source of the values.
    pub source: &'static str,
    model: &'static str,
    capacity_gb: f64,
    iops: (f64, f64),
    mb_per_s: (f64, f64),
    latency_us: (f64, f64),
    curve: &'static [(f64, f64)],
    jitter_sigma: f64,
    usd_per_gb: f64,
}

/// NVMe: latency rises late, because requests have many queues.
const CURVE_NVME: &[(f64, f64)] = &[
    (0.0, 1.0),
    (0.5, 1.08),
    (0.7, 1.25),
    (0.85, 1.6),
    (0.95, 2.3),
    (1.0, 3.2),
];
/// SAS: latency rises more at medium load than that of NVMe.
const CURVE_SAS: &[(f64, f64)] = &[
    (0.0, 1.0),
    (0.5, 1.15),
    (0.7, 1.4),
    (0.85, 1.9),
    (0.95, 2.8),
    (1.0, 4.0),
];
/// SATA: latency rises early, because one link has 32 tags.
const CURVE_SATA: &[(f64, f64)] = &[
    (0.0, 1.0),
    (0.4, 1.2),
    (0.6, 1.5),
    (0.8, 2.2),
    (0.95, 3.6),
    (1.0, 5.0),
];

/// Hard disk with one arm: a request waits for all requests before it (M/D/1 queue).
const CURVE_DISK: &[(f64, f64)] = &[
    (0.0, 1.0),
    (0.3, 1.21),
    (0.5, 1.5),
    (0.7, 2.17),
    (0.85, 3.83),
    (0.95, 10.5),
    (1.0, 12.0),
];

/// All presets.
pub const PRESETS: &[DevicePreset] = &[
    DevicePreset {
        name: "pm953",
        source: "paper 0, Table IV, tier 1 (caps, bandwidth, size); latency and curve ours",
        model: "Samsung PM953",
        capacity_gb: 480.0,
        iops: (240e3, 19e3),
        mb_per_s: (1000.0, 870.0),
        latency_us: (95.0, 25.0),
        curve: CURVE_NVME,
        jitter_sigma: 0.25,
        usd_per_gb: 0.57,
    },
    DevicePreset {
        name: "pm1633",
        source: "paper 0, Table IV, tier 2 (caps, bandwidth, size); latency and curve ours",
        model: "Samsung PM1633",
        capacity_gb: 960.0,
        iops: (200e3, 37e3),
        mb_per_s: (1400.0, 930.0),
        latency_us: (120.0, 35.0),
        curve: CURVE_SAS,
        jitter_sigma: 0.25,
        usd_per_gb: 0.45,
    },
    DevicePreset {
        name: "pm863",
        source: "paper 0, Table IV, tier 3 (caps, bandwidth, size); latency and curve ours",
        model: "Samsung PM863",
        capacity_gb: 960.0,
        iops: (99e3, 18e3),
        mb_per_s: (540.0, 480.0),
        latency_us: (145.0, 55.0),
        curve: CURVE_SATA,
        jitter_sigma: 0.3,
        usd_per_gb: 0.28,
    },
    DevicePreset {
        name: "table1-3dxpoint",
        source: "paper 0, Table I (price, size, cell times); caps, bandwidth and curve ours",
        model: "3D XPoint",
        capacity_gb: 375.0,
        iops: (550e3, 500e3),
        mb_per_s: (2400.0, 2000.0),
        latency_us: (10.0, 10.0),
        curve: CURVE_NVME,
        jitter_sigma: 0.1,
        usd_per_gb: 4.50,
    },
    DevicePreset {
        name: "table1-nvme",
        source: "paper 0, Table I (price, size, cell times); caps, bandwidth and curve ours",
        model: "NVMe",
        capacity_gb: 3200.0,
        iops: (450e3, 150e3),
        mb_per_s: (2800.0, 1900.0),
        latency_us: (20.0, 20.0),
        curve: CURVE_NVME,
        jitter_sigma: 0.2,
        usd_per_gb: 0.57,
    },
    DevicePreset {
        name: "table1-slc",
        source: "paper 0, Table I (price, size, cell times); caps, bandwidth and curve ours",
        model: "SLC SATA3",
        capacity_gb: 480.0,
        iops: (90e3, 40e3),
        mb_per_s: (540.0, 480.0),
        latency_us: (25.0, 250.0),
        curve: CURVE_SATA,
        jitter_sigma: 0.25,
        usd_per_gb: 0.64,
    },
    DevicePreset {
        name: "table1-mlc",
        source: "paper 0, Table I (price, size, cell times); caps, bandwidth and curve ours",
        model: "MLC SATA3",
        capacity_gb: 2000.0,
        iops: (90e3, 25e3),
        mb_per_s: (540.0, 450.0),
        latency_us: (50.0, 750.0),
        curve: CURVE_SATA,
        jitter_sigma: 0.25,
        usd_per_gb: 0.30,
    },
    DevicePreset {
        name: "table1-tlc",
        source: "paper 0, Table I (price, size, cell times); caps, bandwidth and curve ours",
        model: "TLC SATA3",
        capacity_gb: 3840.0,
        iops: (85e3, 15e3),
        mb_per_s: (540.0, 400.0),
        latency_us: (75.0, 1125.0),
        curve: CURVE_SATA,
        jitter_sigma: 0.25,
        usd_per_gb: 0.28,
    },
    DevicePreset {
        name: "nvme-tlc",
        source: "typical PCIe 4 data-centre TLC drive (data-sheet class values)",
        model: "NVMe TLC",
        capacity_gb: 3840.0,
        iops: (1000e3, 180e3),
        mb_per_s: (6800.0, 4000.0),
        latency_us: (75.0, 12.0),
        curve: CURVE_NVME,
        jitter_sigma: 0.25,
        usd_per_gb: 0.12,
    },
    DevicePreset {
        name: "nvme-qlc",
        source: "typical PCIe 4 data-centre QLC drive (data-sheet class values; 4 KiB writes far below its bandwidth)",
        model: "NVMe QLC",
        capacity_gb: 15360.0,
        iops: (800e3, 20e3),
        mb_per_s: (6800.0, 1800.0),
        latency_us: (105.0, 20.0),
        curve: CURVE_NVME,
        jitter_sigma: 0.35,
        usd_per_gb: 0.07,
    },
    DevicePreset {
        name: "sas-ssd",
        source: "typical 12 Gb/s SAS TLC drive (data-sheet class values)",
        model: "SAS SSD",
        capacity_gb: 3840.0,
        iops: (400e3, 90e3),
        mb_per_s: (2100.0, 1800.0),
        latency_us: (110.0, 30.0),
        curve: CURVE_SAS,
        jitter_sigma: 0.25,
        usd_per_gb: 0.16,
    },
    DevicePreset {
        name: "sata-ssd",
        source: "typical 6 Gb/s SATA TLC drive (data-sheet class values)",
        model: "SATA SSD",
        capacity_gb: 3840.0,
        iops: (98e3, 30e3),
        mb_per_s: (550.0, 520.0),
        latency_us: (140.0, 50.0),
        curve: CURVE_SATA,
        jitter_sigma: 0.3,
        usd_per_gb: 0.10,
    },
    DevicePreset {
        name: "disk-15k",
        source: "one disk of 15,000 revolutions: 3.5 ms seek, 2 ms rotation, 120 MB/s (data-sheet class values)",
        model: "15k disk",
        capacity_gb: 600.0,
        iops: (177.0, 177.0),
        mb_per_s: (120.0, 120.0),
        latency_us: (5600.0, 5600.0),
        curve: CURVE_DISK,
        jitter_sigma: 0.35,
        usd_per_gb: 0.20,
    },
    DevicePreset {
        name: "disk-7k2",
        source: "one disk of 7,200 revolutions: 8.5 ms seek, 4.2 ms rotation, 80 MB/s (data-sheet class values)",
        model: "7.2k disk",
        capacity_gb: 4000.0,
        iops: (77.0, 77.0),
        mb_per_s: (80.0, 80.0),
        latency_us: (12_900.0, 12_900.0),
        curve: CURVE_DISK,
        jitter_sigma: 0.35,
        usd_per_gb: 0.025,
    },
];

/// Returns the preset with this name.
pub fn preset(name: &str) -> Option<&'static DevicePreset> {
    PRESETS.iter().find(|p| p.name == name)
}

impl DevicePreset {
    /// Returns the capability of the device.
    pub fn spec(&self) -> DeviceSpec {
        DeviceSpec {
            model: self.model.into(),
            capacity: Bytes((self.capacity_gb * 1e9) as u64),
            read_iops: self.iops.0,
            write_iops: self.iops.1,
            read_bandwidth: BytesPerSec((self.mb_per_s.0 * 1e6) as u64),
            write_bandwidth: BytesPerSec((self.mb_per_s.1 * 1e6) as u64),
            read_latency: Nanos::from_micros_f64(self.latency_us.0),
            write_latency: Nanos::from_micros_f64(self.latency_us.1),
            curve: LoadCurve::new(self.curve.to_vec()).expect("preset curves are valid"),
            jitter_sigma: self.jitter_sigma,
            usd_per_gb: self.usd_per_gb,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_devices_with_unique_names() {
        for (i, p) in PRESETS.iter().enumerate() {
            let spec = p.spec();
            assert!(
                spec.capacity > Bytes::ZERO && spec.read_iops > 0.0 && spec.write_iops > 0.0,
                "{}",
                p.name
            );
            assert!(
                PRESETS[..i].iter().all(|q| q.name != p.name),
                "{} twice",
                p.name
            );
        }
    }
}
