//! Definition of the demonstration: tiers, classes, volumes and their loads.

use std::time::Duration;

use model::{DeviceSpec, LoadCurve};
use units::{Bytes, BytesPerSec, Nanos};

/// Service class.
pub struct Class {
    pub name: &'static str,
    /// Weight in scores.
    pub weight: f64,
    /// Objective for the 99th percentile.
    pub p99: Duration,
}

/// Classes, the most important first.
pub const CLASSES: [Class; 3] = [
    Class {
        name: "gold",
        weight: 4.0,
        p99: Duration::from_millis(5),
    },
    Class {
        name: "silver",
        weight: 2.0,
        p99: Duration::from_millis(10),
    },
    Class {
        name: "bronze",
        weight: 1.0,
        p99: Duration::from_millis(40),
    },
];

/// Tier of one emulated device.
pub(crate) struct DemoTier {
    pub(crate) name: &'static str,
    pub(crate) mib: u64,
    read_us: u64,
    write_us: u64,
    iops: f64,
    mib_per_s: u64,
}

/// Tiers, high end first. They are slower than real flash, so that measured latencies are those of the device, and not
/// of a small machine's scheduler.
pub(crate) const TIERS: [DemoTier; 3] = [
    DemoTier {
        name: "nvme",
        mib: 320,
        read_us: 300,
        write_us: 300,
        iops: 4000.0,
        mib_per_s: 400,
    },
    DemoTier {
        name: "sata",
        mib: 512,
        read_us: 1_000,
        write_us: 1_000,
        iops: 2000.0,
        mib_per_s: 200,
    },
    DemoTier {
        name: "qlc",
        mib: 1024,
        read_us: 4_000,
        write_us: 5_000,
        iops: 1600.0,
        mib_per_s: 160,
    },
];

impl DemoTier {
    /// Returns the device to emulate.
    pub(crate) fn spec(&self) -> DeviceSpec {
        DeviceSpec {
            model: format!("demonstration {}", self.name),
            capacity: Bytes::mib(self.mib),
            read_iops: self.iops,
            write_iops: self.iops,
            read_bandwidth: BytesPerSec(self.mib_per_s << 20),
            write_bandwidth: BytesPerSec(self.mib_per_s << 20),
            read_latency: Nanos::from_micros(self.read_us),
            write_latency: Nanos::from_micros(self.write_us),
            curve: LoadCurve::new(vec![(0.0, 1.0), (0.5, 1.2), (0.8, 1.6), (1.0, 2.5)])
                .expect("it rises from 1"),
            jitter_sigma: 0.15,
            usd_per_gb: 0.05 * self.iops / 1000.0,
        }
    }
}

/// Recorded trace in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordedTrace {
    /// Redis with an append-only file.
    Redis,
    /// Write-ahead log of PostgreSQL.
    PgWal,
}

impl RecordedTrace {
    /// Returns the name and the content of the file.
    pub(crate) fn file(self) -> (&'static str, &'static [u8]) {
        match self {
            RecordedTrace::Redis => (
                "redis.csv.zst",
                include_bytes!("../../../traces/captured/redis.csv.zst"),
            ),
            RecordedTrace::PgWal => (
                "pg-wal.csv.zst",
                include_bytes!("../../../traces/captured/pg-wal.csv.zst"),
            ),
        }
    }
}

/// Behaviour of a volume's guests in one half of the demonstration.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Habit {
    /// Closed-loop clients: each sends a request, waits for the answer, and thinks.
    Closed {
        clients: u32,
        think_us: u64,
        read_percent: u64,
        kib: u32,
        order: AccessPattern,
    },
    /// A client that repeatedly writes at random places, flushes and thinks, like a log.
    Log { think_us: u64, kib: u32 },
    /// A recorded trace at its times divided by `speed`, one request at a time.
    Trace { trace: RecordedTrace, speed: f64 },
}

/// Order of the requests' addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessPattern {
    Random,
    Sequential,
}

/// Volume with its load.
pub struct Load {
    pub name: &'static str,
    pub class: &'static str,
    /// Size in MiB. All of the volume is written before the demonstration begins.
    pub mib: u64,
    /// Initial tier.
    pub tier: &'static str,
    /// Load before and after the change.
    pub(crate) habits: [Habit; 2],
}

impl Load {
    pub(crate) fn size(&self) -> Bytes {
        Bytes::mib(self.mib)
    }

    /// Returns the index of the control with similar requests.
    pub(crate) fn control(&self) -> usize {
        let flushes = |habit: &Habit| !matches!(habit, Habit::Closed { .. });
        usize::from(self.habits.iter().any(flushes))
    }
}

const fn random(clients: u32, think_us: u64, read_percent: u64, kib: u32) -> Habit {
    Habit::Closed {
        clients,
        think_us,
        read_percent,
        kib,
        order: AccessPattern::Random,
    }
}

const fn sequential(clients: u32, think_us: u64, read_percent: u64, kib: u32) -> Habit {
    Habit::Closed {
        clients,
        think_us,
        read_percent,
        kib,
        order: AccessPattern::Sequential,
    }
}

const fn same(habit: Habit) -> [Habit; 2] {
    [habit, habit]
}

const fn control(name: &'static str, habit: Habit) -> Load {
    Load {
        name,
        class: "",
        mib: 16,
        tier: "nvme",
        habits: same(habit),
    }
}

/// Controls. They send few requests, so a single late one counts, on a device without other users. A flush waits for
/// the machine's own disk, which is not emulated, so volumes that flush have a control that flushes.
pub(crate) const CONTROLS: [Load; 2] = [
    control("control", random(1, 20_000, 80, 8)),
    control(
        "control-log",
        Habit::Log {
            think_us: 40_000,
            kib: 24,
        },
    ),
];

/// All volumes. Their initial tiers follow the order of purchase: the newest volume is on the fastest tier.
pub const LOADS: [Load; 12] = [
    Load {
        name: "shop-db",
        class: "gold",
        mib: 64,
        tier: "qlc",
        habits: [random(4, 4_000, 80, 8), random(1, 40_000, 80, 8)],
    },
    Load {
        name: "shop-wal",
        class: "gold",
        mib: 32,
        tier: "qlc",
        habits: same(Habit::Trace {
            trace: RecordedTrace::PgWal,
            speed: 5.0,
        }),
    },
    Load {
        name: "shop-web",
        class: "silver",
        mib: 48,
        tier: "sata",
        habits: same(random(1, 10_000, 95, 16)),
    },
    Load {
        name: "mail-index",
        class: "gold",
        mib: 48,
        tier: "sata",
        habits: [random(1, 20_000, 70, 4), random(4, 4_000, 70, 4)],
    },
    Load {
        name: "mail-store",
        class: "silver",
        mib: 96,
        tier: "qlc",
        habits: same(random(2, 12_000, 60, 16)),
    },
    Load {
        name: "mail-cache",
        class: "silver",
        mib: 32,
        tier: "qlc",
        habits: same(Habit::Trace {
            trace: RecordedTrace::Redis,
            speed: 8.0,
        }),
    },
    Load {
        name: "ci-build",
        class: "bronze",
        mib: 64,
        tier: "nvme",
        habits: same(random(1, 50_000, 40, 16)),
    },
    Load {
        name: "ci-cache",
        class: "bronze",
        mib: 64,
        tier: "nvme",
        habits: same(random(1, 80_000, 90, 64)),
    },
    Load {
        name: "dwh-stage",
        class: "bronze",
        mib: 96,
        tier: "nvme",
        habits: same(sequential(1, 60_000, 10, 128)),
    },
    Load {
        name: "dwh-scan",
        class: "silver",
        mib: 96,
        tier: "sata",
        habits: [sequential(1, 100_000, 100, 128), random(3, 8_000, 100, 8)],
    },
    Load {
        name: "archive",
        class: "bronze",
        mib: 96,
        tier: "sata",
        habits: same(random(1, 400_000, 50, 64)),
    },
    Load {
        name: "test-vm",
        class: "bronze",
        mib: 48,
        tier: "nvme",
        habits: same(random(1, 100_000, 60, 4)),
    },
];
