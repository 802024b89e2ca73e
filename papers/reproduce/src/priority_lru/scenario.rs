//! Simulation of an array: its scenario and the run.

use std::fmt::Write as _;

use sim::{Manifest, RunOptions, ScenarioFile};
use units::Nanos;

use super::array::{Array, ArrayError, BackEndMode, CacheMode, InternalModel, Kind};
use super::result::ArrayResult;
use super::sequence::{EXTENT, PAGE, PAGES_PER_EXTENT};

/// Number of slices in an hour. Priorities are set at the end of each slice.
const SLICES_PER_HOUR: u64 = 12;
/// Factor on measured loads for planning, because the next hour differs from the last one.
const BURST: f64 = 2.0;
/// Weight of a write's response time relative to a read's. Guests do not wait for destaging, but they wait for a full write cache.
const WRITE_SHARE: f64 = 0.05;
/// Largest number of outstanding requests of a volume. Further requests are issued later.
const OUTSTANDING: u32 = 32;
/// Share of the cache that is reserved for writes.
const CACHE_WRITE_SHARE: f64 = 0.2;
/// Largest number of concurrent copies. It is small, because copies queue with guest requests on the SSD.
const COPIES: u32 = 8;
/// Largest rate of one copy, MB/s. The exchanges of an hour finish within the hour even at a fifth of it, the rate of copies while a class
/// violates its target.
const COPY_MB_PER_S: u64 = 20;

impl Array {
    /// Simulates the array.
    ///
    /// # Errors
    /// None for arrays of this paper; an error is a fault of this module.
    pub(super) fn run(
        &self,
        cache: CacheMode,
        back_end: BackEndMode,
    ) -> Result<ArrayResult, ArrayError> {
        let file = ScenarioFile::parse("reproduce-priority-lru.toml", &self.text(cache))?;
        let traces = self.playing().map(|v| v.plays.trace.clone());
        let model = file.build(traces.collect())?;
        let strategy = file.strategy(match back_end {
            BackEndMode::Fixed => "noop",
            BackEndMode::Regular => "regular",
            BackEndMode::Qos => "qos",
        })?;
        let options = RunOptions {
            series: true,
            decisions: false,
            optimum: None,
        };
        let result = sim::run(&model, strategy, Manifest::default(), options, &mut |_| ())?;
        Ok(ArrayResult::new(self, &result))
    }

    /// Returns the volumes that have requests.
    fn playing(&self) -> impl Iterator<Item = &super::array::Volume> {
        let plays = |v: &&super::array::Volume| v.rates.iter().any(|r| *r > 0.0);
        self.volumes.iter().filter(plays)
    }

    /// Returns the text of the scenario.
    pub(super) fn text(&self, cache: CacheMode) -> String {
        let mut text = String::new();
        let (hour, slice) = (self.hour.0, self.hour.0 / SLICES_PER_HOUR);
        let _ = write!(
            text,
            "name = \"reproduce-priority-lru\"\nseed = {}\nduration = \"{}ns\"\nwarmup = \"{}ns\"\n\
             window = \"{slice}ns\"\nstretch = \"{hour}ns\"\nextent = \"{} B\"\ninitial_placement = \"scattered\"\n\n\
             [policy]\nmonitor_epoch = \"{}ns\"\nmigration_epoch = \"{hour}ns\"\nheadroom_space = 1.0\n\
             moves_per_epoch = 100000\nconcurrent_moves = {COPIES}\nconcurrent_moves_per_device = {COPIES}\n\
             copy_bandwidth = \"{COPY_MB_PER_S} MB/s\"\ncopy_share = 1.0\n",
            self.seed & (u64::MAX >> 1),
            hour * u64::from(self.hours),
            hour * u64::from(self.warmup_hours),
            EXTENT.0,
            hour / 2,
        );
        for (name, classes) in [("regular", false), ("qos", true)] {
            let _ = write!(
                text,
                "\n[strategies.{name}]\nuses = \"qos-exchange\"\nclasses = {classes}\nexchanges = {}\nburst = {BURST:?}\nwrite_share = {WRITE_SHARE:?}\n",
                self.exchanges
            );
        }
        self.cache(&mut text, cache, slice);
        for (kind, capacity) in self.kinds.iter().zip(self.capacities()) {
            tier(&mut text, kind, capacity);
        }
        for class in &self.classes {
            let _ = write!(
                text,
                "\n[[classes]]\nname = \"{}\"\nlatency = \"{}ns\"\nstatistic = \"mean\"\n",
                class.name, class.target.0
            );
        }
        for v in &self.volumes {
            let _ = write!(
                text,
                "\n[[volumes]]\nname = \"{}\"\nclass = \"{}\"\nsize = \"{} B\"\n",
                v.name,
                self.classes[v.class].name,
                u64::from(v.plays.extents) * EXTENT.0
            );
        }
        for v in self.playing() {
            let _ = write!(
                text,
                "\n[[traces]]\nfile = \"{0}\"\nvolume = \"{0}\"\nreplay = \"rates\"\noutstanding = {OUTSTANDING}\nslot = \"{1}ns\"\nrates_per_s = {2:?}\n",
                v.name,
                hour / 2,
                v.rates
            );
        }
        text
    }

    fn cache(&self, text: &mut String, mode: CacheMode, slice: u64) {
        let (policy, literal, ageing) = match mode {
            CacheMode::Lru => ("lru", true, "never"),
            CacheMode::HrLru => ("hr-lru", true, "never"),
            CacheMode::PriorityLru => ("priority-lru", true, "never"),
            CacheMode::PriorityLruCorrected => ("priority-lru", false, "two-slices"),
        };
        let _ = write!(
            text,
            "\n[cache]\nsize = \"{} B\"\npage = \"{} B\"\npolicy = \"{policy}\"\nwrites = \"write-back\"\nwrite_share = {CACHE_WRITE_SHARE:?}\n\
             hit = \"{}ns\"\nextent_pages = {PAGES_PER_EXTENT}\nslice = \"{slice}ns\"\nhour = \"{}ns\"\nliteral = {literal}\nageing = \"{ageing}\"\n",
            self.cache_bytes(),
            PAGE.0,
            self.hit.0,
            self.hour.0,
        );
    }
}

/// Adds a tier for a kind of devices: its capabilities as strategies see them, and its internal model.
fn tier(text: &mut String, kind: &Kind, capacity: u64) {
    let (name, service) = (kind.name, &kind.service);
    // A group of disks is one device that serves as many requests at once.
    let (devices, disks) = match kind.inside {
        InternalModel::Disks(_) => (1, kind.count),
        InternalModel::Flash(..) => (kind.count, 1),
    };
    let preset = match kind.inside {
        InternalModel::Disks(_) if kind.count > 1 => "disk-15k",
        InternalModel::Disks(_) => "sata-ssd",
        InternalModel::Flash(..) => "nvme-tlc",
    };
    let at_once = f64::from(disks * service.units);
    let (read, write) = (service.read_ns, service.write_ns * kind.write_cost());
    let bandwidth = at_once * 1e9 / service.byte_ns;
    // A small write with RAID 5 reads and then writes, on the disks of data and parity in parallel.
    let bare_write = match kind.write_cost() > 1.0 {
        true => Nanos((2.0 * service.write_ns) as u64),
        false => Nanos(service.write_ns as u64),
    };
    let _ = write!(
        text,
        "\n[[tiers]]\nname = \"{name}\"\npreset = \"{preset}\"\ndevices = {devices}\ncapacity = \"{capacity} B\"\n\
         read_iops = \"{:.0} IOPS\"\nwrite_iops = \"{:.0} IOPS\"\nread_bandwidth = \"{bandwidth:.0} B/s\"\nwrite_bandwidth = \"{bandwidth:.0} B/s\"\n\
         read_latency = \"{}ns\"\nwrite_latency = \"{}ns\"\n",
        at_once * 1e9 / read,
        at_once * 1e9 / write,
        service.read_ns as u64,
        bare_write.0,
    );
    match kind.inside {
        InternalModel::Disks(disk) => {
            let raid = if disks > 1 { "raid5" } else { "raid0" };
            // A chunk is larger than an extent, so an extent is on one disk or two.
            let _ = write!(
                text,
                "\n[disks.{name}]\npreset = \"{disk}\"\ncount = {disks}\nraid = \"{raid}\"\nchunk = \"4 MiB\"\n"
            );
        }
        InternalModel::Flash(drive, scale) => {
            let _ = write!(
                text,
                "\n[flash.{name}]\npreset = \"{drive}\"\nscale = {scale}\nage = 2.0\ndiscard = false\n"
            );
        }
    }
}
