//! The 14 workloads of paper 0's Table V as closed-loop clients.
//!
//! Published are the name, the represented scenario, IOPS and bandwidth. Chosen by Terrace are the mix of reads and
//! writes, the sizes (their mean is bandwidth divided by IOPS), the randomness and the outstanding requests. They are
//! chosen so that one idle drive of tier 1 (PM953) reaches the published rate, if possible. "Zipf IOs" (1,942,000 IOPS)
//! has eight times the rate of the fastest drive and was evidently served by a cache. It is capped here, see
//! [`ClientPreset::target_iops`].

use units::{Bytes, Iops, Nanos};

use crate::client::{Habits, SizeShare};

/// Cap of the "Zipf IOs" preset, requests per second. One PM953 can read this with some headroom.
pub const ZIPF_CAP_IOPS: f64 = 200_000.0;

/// Workload preset.
#[derive(Debug, Clone, Copy)]
pub struct ClientPreset {
    /// Name in a scenario.
    pub name: &'static str,
    /// `heavy`, `middle` or `light`, as published.
    pub load: &'static str,
    /// Represented scenario, as published.
    pub stands_for: &'static str,
    /// Requests per second, as published.
    pub iops: f64,
    /// MiB per second, as published.
    pub mib_per_s: f64,
    read_share: f64,
    random_share: f64,
    /// Sizes in KiB with weights.
    sizes: &'static [(u64, f64)],
    outstanding: u32,
    skew: f64,
}

/// Job of Table V with the null engine: its requests use no device.
pub const NULL_ENGINE: &str = "zipf";

const K4: &[(u64, f64)] = &[(4, 1.0)];
const K8: &[(u64, f64)] = &[(8, 1.0)];
const K64: &[(u64, f64)] = &[(64, 1.0)];
/// Mix with mean 7.6 KiB.
const JESD: &[(u64, f64)] = &[(4, 0.67), (8, 0.13), (16, 0.15), (32, 0.05)];
/// Mix with mean 4.47 KiB.
const SMALL_MIX: &[(u64, f64)] = &[(4, 0.937), (8, 0.043), (16, 0.01), (24, 0.01)];

macro_rules! table {
    ($($name:literal $load:literal $stands_for:literal $iops:literal $mib:literal : $reads:literal $random:literal $sizes:ident depth $depth:literal skew $skew:literal;)*) => {
        &[$(ClientPreset {
            name: $name, load: $load, stands_for: $stands_for, iops: $iops, mib_per_s: $mib,
            read_share: $reads, random_share: $random, sizes: $sizes, outstanding: $depth, skew: $skew,
        },)*]
    };
}

/// All presets of Table V.
pub const CLIENT_PRESETS: &[ClientPreset] = table! {
    "basic-verify"    "heavy"  "SQL database server"        95_500.0    373.0    : 0.90 1.0 K4        depth 32 skew 0.9;
    "ssd-steady"      "heavy"  "system development"         116_000.0   453.0    : 0.93 1.0 K4        depth 32 skew 0.0;
    "zipf"            "heavy"  "web apps"                   1_942_000.0 7_585.0  : 1.00 1.0 K4        depth 48 skew 1.1;
    "async-read"      "heavy"  "read intensive apps"        88_300.0    345.0    : 1.00 1.0 K4        depth 16 skew 0.5;
    "async-write"     "heavy"  "write intensive apps"       6_650.0     25.0     : 0.00 1.0 K4        depth 8  skew 0.5;
    "flow"            "middle" "big data frameworks"        19_200.0    150.0    : 0.70 0.3 K8        depth 8  skew 0.3;
    "iometer"         "middle" "file server"                47_000.0    205.0    : 0.80 0.8 SMALL_MIX depth 16 skew 0.8;
    "jesd"            "middle" "high endurance apps"        18_300.0    136.0    : 0.40 0.9 JESD      depth 8  skew 0.9;
    "latency-profile" "middle" "cloud system manager"       39_600.0    155.0    : 1.00 1.0 K4        depth 8  skew 0.5;
    "ssd-test"        "middle" "hardware development"       47_000.0    205.0    : 0.75 0.5 SMALL_MIX depth 16 skew 0.0;
    "rand-zone"       "light"  "multi-user database"        7_750.0     30.3     : 0.80 1.0 K4        depth 2  skew 0.9;
    "surface-scan"    "light"  "enterprise backup server"   6_980.0     436.0    : 1.00 0.0 K64       depth 4  skew 0.0;
    "sync-read"       "light"  "read intensive sync apps"   6_650.0     25.0     : 1.00 0.5 K4        depth 1  skew 0.5;
    "sync-write"      "light"  "metadata sync server"       4.0         0.015625 : 0.00 1.0 K4        depth 1  skew 0.5;
};

/// Presets with the rows of Table V and the mixes of fio's example jobs of the same names, which the paper does not
/// cite: `basic-verify`, `ssd-steadystate`, `aio-read`, `flow`, `iometer-file-access-server`, `jesd219`,
/// `latency-profile`, `ssd-test`, `rand-zones`, `surface-scan`. Published rates and sizes are kept. Reads and writes,
/// randomness and outstanding requests are those of the jobs (consecutive phases are mixed in equal parts; at most 256
/// outstanding). `zipf` is omitted, because that job uses the engine `null`.
pub const FIO_PRESETS: &[ClientPreset] = table! {
    "fio-basic-verify"    "heavy"  "SQL database server"       95_500.0  373.0    : 0.00 1.0 K4        depth 16  skew 0.0;
    "fio-ssd-steady"      "heavy"  "system development"        116_000.0 453.0    : 0.00 1.0 K4        depth 128 skew 0.0;
    "fio-async-read"      "heavy"  "read intensive apps"       88_300.0  345.0    : 1.00 1.0 K4        depth 60  skew 0.0;
    "fio-async-write"     "heavy"  "write intensive apps"      6_650.0   25.0     : 0.00 1.0 K4        depth 60  skew 0.0;
    "fio-flow"            "middle" "big data frameworks"       19_200.0  150.0    : 0.89 0.89 K8       depth 256 skew 0.0;
    "fio-iometer"         "middle" "file server"               47_000.0  205.0    : 0.80 1.0 SMALL_MIX depth 64  skew 0.0;
    "fio-jesd"            "middle" "high endurance apps"       18_300.0  136.0    : 0.40 1.0 JESD      depth 256 skew 0.9;
    "fio-latency-profile" "middle" "cloud system manager"      39_600.0  155.0    : 1.00 1.0 K4        depth 128 skew 0.0;
    "fio-ssd-test"        "middle" "hardware development"      47_000.0  205.0    : 0.50 0.5 SMALL_MIX depth 4   skew 0.0;
    "fio-rand-zone"       "light"  "multi-user database"       7_750.0   30.3     : 1.00 1.0 K4        depth 1   skew 0.9;
    "fio-surface-scan"    "light"  "enterprise backup server"  6_980.0   436.0    : 0.50 0.0 K64       depth 1   skew 0.0;
    "fio-sync-read"       "light"  "read intensive sync apps"  6_650.0   25.0     : 1.00 0.5 K4        depth 1   skew 0.0;
    "fio-sync-write"      "light"  "metadata sync server"      4.0       0.015625 : 0.00 1.0 K4        depth 1   skew 0.0;
};

/// Returns all presets.
fn presets() -> impl Iterator<Item = &'static ClientPreset> {
    CLIENT_PRESETS.iter().chain(FIO_PRESETS)
}

/// Returns the preset of a name.
pub fn client_preset(name: &str) -> Option<&'static ClientPreset> {
    presets().find(|p| p.name == name)
}

/// Returns all names for messages.
pub fn client_preset_names() -> String {
    presets().map(|p| p.name).collect::<Vec<_>>().join(", ")
}

impl ClientPreset {
    /// Returns the rate of the preset: the published one, or the cap if no drive can reach it.
    pub fn target_iops(&self) -> f64 {
        if self.name == NULL_ENGINE {
            ZIPF_CAP_IOPS
        } else {
            self.iops
        }
    }

    /// Returns the preset as habits of a client.
    pub fn habits(&self) -> Habits {
        let size = |(kib, share): &(u64, f64)| SizeShare {
            size: Bytes(kib << 10),
            share: *share,
        };
        Habits {
            outstanding: Some(self.outstanding),
            read_share: Some(self.read_share),
            random_share: Some(self.random_share),
            sizes: Some(self.sizes.iter().map(size).collect()),
            think: Some(Nanos::ZERO),
            think_random: Some(false),
            rate: Some(Iops(self.target_iops())),
            skew: Some(self.skew),
            footprint: Some(1.0),
        }
    }
}
