//! Extents with a second copy on another device: from the table `[mirrors]`, or as a remedy for an SLO violation
//! (`mirror` in the list of `[response]`).
//!
//! ```text
//!  every minute   heat, utilization ─▶ planner::mirrors ─┐
//!  every window   heat ─▶ controller: slo::Responder ─────┴▶ sets: copied by a volume::Mover that keeps both copies identical
//!  every 200 ms   latencies of both copies ─▶ volume::Offload ─▶ share of reads for the second copy
//! ```
//!
//! `volume` defines the effect on requests, as for moves: writes go to both copies, and reads of identical extents to
//! either. A volume first loses its second copies if its set changes or if the controller moves it.

use std::collections::BTreeSet;

use config::scenario::MirrorsConfig;
use manager::wire::{CopiesWindow, ExtentAccess, MirrorOrder, MirrorWindow, Remedies};
use model::{ExtentHeat, ExtentRanges, Op};
use planner::mirrors::{
    MirrorDevice, MirrorExtent, MirrorSet, MirrorTerms, MirrorVolume, mirrors, touched,
};
use slo::ladder::RemedyKind;
use units::{Bytes, BytesPerSec, DeviceId, Nanos, VolumeId};
use volume::{EndReads, MoveOrder, OFFLOAD_LOOK, Offload, OffloadLimits, Purpose};

use crate::agenda::{Agenda, Event};
use crate::engine::Simulation;
use crate::heat::ExtentCounters;
use crate::host::places;
use crate::result::{MirrorRecord, MirrorSummary};
use crate::source::Issue;
use crate::{Model, ScenarioError, ScenarioFile};

/// First number of jobs that are sets of mirrored extents instead of moves.
pub(crate) const MIRROR_JOBS: u32 = 1 << 31;

impl Model {
    /// Returns true if mirrors may be a remedy. They may not in combination with the table, which selects mirrors
    /// itself, nor behind a cache, where the load of the devices is unknown.
    pub(crate) fn mirrors_answer(&self) -> bool {
        let remedies = self.remedies.as_ref();
        remedies.is_some_and(|a| a.remedies.contains(&RemedyKind::Mirror))
            && self.mirrors.is_none()
            && self.cache.is_none()
            && self.topology.devices.len() > 1
    }

    /// Returns true if the scenario may have mirrors.
    fn has_mirrors(&self) -> bool {
        self.mirrors.is_some() || self.mirrors_answer()
    }
}

impl ScenarioFile {
    /// Reads the table `mirrors`; `None` if it is missing.
    pub(crate) fn mirrors(&self) -> Result<Option<MirrorsConfig>, ScenarioError> {
        let Some(config) = &self.scenario.mirrors else {
            return Ok(None);
        };
        let fault = |key: &str, why: String| Err(self.fault(&format!("mirrors.{key}"), why));
        for (key, share) in [
            ("read_share", config.read_share),
            ("busy", config.busy),
            ("free", config.free),
            ("offload_max", config.offload_max),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return fault(key, format!("must be a share from 0 to 1, not {share}"));
            }
        }
        let window = self.scenario.window.0;
        if config.every.0 == 0 || !config.every.0.is_multiple_of(window) {
            let why = format!(
                "{} is not a multiple of the window of {}",
                config.every,
                Nanos(window)
            );
            return fault("every", why);
        }
        if config.look < Nanos(1_000_000) || config.look > Nanos::from_secs(10) {
            let why = format!("{} is not between 1 ms and 10 s", config.look);
            return fault("look", why);
        }
        if config.bandwidth.0 < 1 << 20 {
            return fault("bandwidth", "must be at least 1 MiB/s".into());
        }
        Ok(Some(*config))
    }
}

/// Counts of the request path.
pub(crate) struct MirrorCounts {
    reads: ExtentCounters,
    writes: ExtentCounters,
    /// True if heat is counted.
    counts: bool,
    /// Device of the second copies by volume, then the reads that each copy served since the last adjustment.
    to: Vec<Option<DeviceId>>,
    ends: Vec<[EndReads; 2]>,
}

impl MirrorCounts {
    pub(crate) fn new(model: &Model) -> Option<Self> {
        if !model.has_mirrors() {
            return None;
        }
        Some(Self {
            counts: model.mirrors.is_some(),
            reads: ExtentCounters::new(model),
            writes: ExtentCounters::new(model),
            to: vec![None; model.volumes.len()],
            ends: vec![[EndReads::default(); 2]; model.volumes.len()],
        })
    }

    /// Counts a request for each extent that it reads or writes.
    #[inline]
    pub(crate) fn count(&mut self, issue: &Issue) {
        if !self.counts {
            return;
        }
        match issue.op {
            Op::Read => self.reads.count(issue),
            _ => self.writes.count(issue),
        }
    }

    /// Returns true if a volume has second copies.
    #[inline]
    pub(crate) fn has(&self, volume: usize) -> bool {
        self.to[volume].is_some()
    }

    /// Records a read of an identical extent, by the device that served it.
    #[inline]
    pub(crate) fn read(&mut self, volume: usize, device: DeviceId, latency_ns: u64) {
        let second = self.to[volume] == Some(device);
        self.ends[volume][usize::from(second)].add(latency_ns);
    }
}

/// Set of mirrored extents in progress.
struct ActiveMirror {
    to: DeviceId,
    extents: ExtentRanges,
    offload: Offload,
    record: MirrorRecord,
}

/// State and history of all mirrors.
pub(crate) struct Mirrors {
    /// Configuration of the table; `None` if mirrors are remedies.
    table: Option<MirrorsConfig>,
    /// True if an adjustment of the shares is scheduled.
    looks: bool,
    /// Volumes whose heat the controller requires.
    asked: BTreeSet<usize>,
    /// Present set, by volume.
    kept: Vec<Option<ActiveMirror>>,
    /// Set that follows the end of the present one, by volume.
    next: Vec<Option<(MirrorSet, BytesPerSec)>>,
    /// Earliest time of the next mirror, by volume, because the controller moves the volume.
    not_before_ns: Vec<u64>,
    busy_before: Vec<f64>,
    begun: u32,
    records: Vec<MirrorRecord>,
}

impl Mirrors {
    pub(crate) fn new(model: &Model, agenda: &mut Agenda) -> Option<Self> {
        if !model.has_mirrors() {
            return None;
        }
        let table = model.mirrors;
        if let Some(table) = table {
            agenda.at(table.every.0, Event::Mirrors);
            agenda.at(table.look.0, Event::MirrorLook);
        }
        Some(Self {
            table,
            looks: table.is_some(),
            asked: BTreeSet::new(),
            kept: model.volumes.iter().map(|_| None).collect(),
            next: model.volumes.iter().map(|_| None).collect(),
            not_before_ns: vec![0; model.volumes.len()],
            busy_before: vec![0.0; model.topology.devices.len()],
            begun: 0,
            records: Vec::new(),
        })
    }
}

impl Simulation<'_> {
    /// Selects the mirrored extents again.
    pub(crate) fn choose_mirrors(&mut self, now_ns: u64) {
        let Some(mut mirroring) = self.mirroring.take() else {
            return;
        };
        let config = mirroring.table.expect("it is by the table");
        self.agenda.at(now_ns + config.every.0, Event::Mirrors);
        let devices = self.mirror_devices(&mut mirroring, config.every);
        let volumes = self.mirror_volumes(now_ns, &mirroring);
        let terms = MirrorTerms {
            budget: config.budget,
            read_share: config.read_share,
            busy: config.busy,
            free: config.free,
        };
        let sets = mirrors(&devices, &volumes, &terms);
        for v in 0..self.model.volumes.len() {
            let set = sets.iter().find(|s| s.volume.index() == v);
            mirroring.next[v] = set.cloned().map(|set| (set, config.bandwidth));
        }
        self.mirroring = Some(mirroring);
        for v in 0..self.model.volumes.len() {
            self.set_mirrors(now_ns, v);
        }
    }

    /// Starts the required set of a volume, or ends a set that is not required any more.
    fn set_mirrors(&mut self, now_ns: u64, v: usize) {
        let Some(mirroring) = &mut self.mirroring else {
            return;
        };
        match (&mirroring.kept[v], mirroring.next[v].take()) {
            (None, None) => {}
            (None, Some((set, bandwidth))) => self.begin_mirror(now_ns, v, set, bandwidth),
            (Some(kept), Some((set, _))) if (kept.to, &kept.extents) == (set.to, &set.extents) => {}
            (Some(_), next) => {
                mirroring.next[v] = next;
                self.cancel_move(now_ns, v);
            }
        }
    }

    fn begin_mirror(&mut self, now_ns: u64, v: usize, set: MirrorSet, bandwidth: BytesPerSec) {
        let mirroring = self.mirroring.as_mut().expect("a set is its");
        let order = MoveOrder {
            to: set.to,
            bandwidth,
            extents: Some(set.extents.clone()),
            purpose: Purpose::Mirror,
        };
        let job = MIRROR_JOBS | mirroring.begun;
        mirroring.begun += 1;
        let usual = OffloadLimits::default();
        let limits = OffloadLimits {
            most: mirroring.table.map_or(usual.most, |t| t.offload_max),
            ..usual
        };
        let kept = ActiveMirror {
            to: set.to,
            offload: Offload::new(limits),
            record: MirrorRecord {
                volume: self.model.volumes[v].name.clone(),
                device: self.model.topology.device(set.to).name.clone(),
                extents: set.extents.count(),
                bytes: set.bytes.0,
                begun_s: Nanos(now_ns).as_secs_f64(),
                alike_s: None,
                ended_s: None,
                copied_bytes: 0,
                first_reads: 0,
                second_reads: 0,
                second_share: 0.0,
            },
            extents: set.extents,
        };
        mirroring.kept[v] = Some(kept);
        if !std::mem::replace(&mut mirroring.looks, true) {
            self.agenda.at(now_ns + OFFLOAD_LOOK.0, Event::MirrorLook);
        }
        let counts = self.world.mirror_counts.as_mut();
        counts.expect("there are mirrors").to[v] = Some(set.to);
        if !self.begin_copy(now_ns, v, job, order) {
            self.mirror_ended(now_ns, v, 0);
        }
    }

    /// Records the end of a volume's second copies.
    pub(crate) fn mirror_ended(&mut self, now_ns: u64, v: usize, copied: u64) {
        let counts = self.world.mirror_counts.as_mut();
        let counts = counts.expect("there are mirrors");
        counts.to[v] = None;
        let ends = std::mem::take(&mut counts.ends[v]);
        let mirroring = self.mirroring.as_mut().expect("a set is its");
        let kept = mirroring.kept[v].take().expect("a set ends once");
        let mut record = kept.record;
        record.add(ends);
        record.copied_bytes = copied;
        record.ended_s = Some(Nanos(now_ns).as_secs_f64());
        if record.copied_bytes > 0 {
            mirroring.records.push(record);
        }
    }

    /// Ends the second copies of a volume before its move. No new ones start before the move has started.
    pub(crate) fn give_mirror_up(&mut self, now_ns: u64, v: usize) {
        if let Some(mirroring) = &mut self.mirroring {
            mirroring.next[v] = None;
            let every = mirroring.table.map_or(0, |t| t.every.0);
            let windows = every + 3 * self.model.window.0;
            mirroring.not_before_ns[v] = now_ns + windows;
        }
        self.cancel_move(now_ns, v);
    }

    /// Starts the next set after the end of a volume's second copies.
    pub(crate) fn after_mirror(&mut self, now_ns: u64, v: usize) {
        self.set_mirrors(now_ns, v);
    }

    /// Adjusts the shares of reads for both copies.
    pub(crate) fn look_at_mirrors(&mut self, now_ns: u64) {
        let (Some(mirroring), Some(counts)) = (&mut self.mirroring, &mut self.world.mirror_counts)
        else {
            return;
        };
        mirroring.looks = mirroring.table.is_some() || mirroring.kept.iter().any(Option::is_some);
        if mirroring.looks {
            let look = mirroring.table.map_or(OFFLOAD_LOOK, |t| t.look);
            self.agenda.at(now_ns + look.0, Event::MirrorLook);
        }
        for (v, kept) in mirroring.kept.iter_mut().enumerate() {
            let Some(kept) = kept else {
                continue;
            };
            let ends = std::mem::take(&mut counts.ends[v]);
            kept.record.add(ends);
            let share = kept.offload.look(ends);
            kept.record.second_share = share;
            let moving = self.moving[v].as_ref();
            if moving.is_some_and(|m| m.is_alike()) {
                let at = Nanos(now_ns).as_secs_f64();
                kept.record.alike_s.get_or_insert(at);
            }
            // Before the first batch there is nothing to share, and the call fails.
            let _ = self.world.maps[v].share_reads(share);
        }
    }

    fn mirror_devices(&self, mirroring: &mut Mirrors, every: Nanos) -> Vec<MirrorDevice> {
        let devices = self.model.topology.devices.iter().enumerate();
        devices
            .map(|(d, device)| {
                let busy = self.world.devices[d].counters().busy_ns;
                let before = std::mem::replace(&mut mirroring.busy_before[d], busy);
                let copies = self.mirrored_on(d);
                MirrorDevice {
                    utilization: ((busy - before) / every.as_f64()).min(1.0),
                    capacity: device.spec.capacity,
                    used: (self.used[d] + self.reserved[d]).saturating_sub(copies),
                }
            })
            .collect()
    }

    /// Returns the bytes of second copies on a device, including those in progress.
    pub(crate) fn mirrored_on(&self, device: usize) -> Bytes {
        let mirrors = self.moving.iter().flatten().filter(|m| m.is_mirror());
        let there = mirrors.filter(|m| m.to().index() == device);
        there.map(|m| m.reserved).sum()
    }

    fn mirror_volumes(&mut self, now_ns: u64, mirroring: &Mirrors) -> Vec<MirrorVolume> {
        let counts = self.world.mirror_counts.as_mut();
        let counts = counts.expect("there are mirrors");
        let (reads, writes) = (counts.reads.take(), counts.writes.take());
        let mut extents: Vec<Vec<MirrorExtent>> = Vec::new();
        for (map, (reads, writes)) in self.world.maps.iter().zip(reads.iter().zip(&writes)) {
            let device = map.main_device();
            let here = |e: u32| map.location(e as usize).map(|l| l.device) == device;
            let own = touched(reads, writes).into_iter();
            let own = own.filter(|(e, _)| here(*e));
            let own = own.map(|(extent, [reads, writes])| MirrorExtent {
                extent,
                bytes: map.bytes_of(extent as usize),
                reads,
                writes,
            });
            extents.push(own.collect());
        }
        let volumes = extents.into_iter().enumerate();
        volumes
            .map(|(v, extents)| {
                let moving = self.moving[v].as_ref();
                let class = self.model.volumes[v].class;
                MirrorVolume {
                    volume: VolumeId::from_index(v),
                    device: self.device_of(v),
                    weight: self.model.classes[class.index()].weight,
                    extents,
                    mirrored: moving.filter(|m| m.is_mirror()).and_then(|m| {
                        let kept = mirroring.kept[v].as_ref()?;
                        Some((m.to(), kept.extents.clone()))
                    }),
                    is_busy: moving.is_some_and(|m| !m.is_mirror())
                        || self.sessions[v].is_some()
                        || now_ns < mirroring.not_before_ns[v],
                }
            })
            .collect()
    }

    /// Starts the mirrors that the controller orders and ends all others.
    pub(crate) fn order_mirrors(&mut self, now_ns: u64, remedies: &Remedies) {
        let (Some(mirroring), Some(counts)) = (&mut self.mirroring, &mut self.world.mirror_counts)
        else {
            return;
        };
        if mirroring.table.is_some() {
            return;
        }
        let volumes = &self.model.volumes;
        let number = |name: &String| volumes.iter().position(|v| v.name == *name);
        mirroring.asked = remedies.access.iter().filter_map(number).collect();
        counts.counts = !mirroring.asked.is_empty();
        for v in 0..self.model.volumes.len() {
            let name = &self.model.volumes[v].name;
            let order = remedies.mirrors.iter().find(|o| o.volume == *name);
            let moves = self.moving[v].as_ref().is_some_and(|m| !m.is_mirror());
            if moves || self.sessions[v].is_some() {
                continue;
            }
            let set = order.and_then(|o| self.set_of(v, o));
            let mirroring = self.mirroring.as_mut().expect("they are answers");
            mirroring.next[v] = set;
            self.set_mirrors(now_ns, v);
        }
    }

    fn set_of(&self, v: usize, order: &MirrorOrder) -> Option<(MirrorSet, BytesPerSec)> {
        let devices = &self.model.topology.devices;
        let to = devices.iter().position(|d| d.name == order.device)?;
        let map = &self.world.maps[v];
        let bytes = order.extents.iter().map(|e| map.bytes_of(e as usize));
        let set = MirrorSet {
            volume: VolumeId::from_index(v),
            to: DeviceId::from_index(to),
            bytes: bytes.sum(),
            extents: order.extents.clone(),
        };
        Some((set, BytesPerSec(order.rate_bytes_per_s)))
    }

    /// Returns the state of mirrors for the report, by volume; empty if mirrors are no remedy.
    pub(crate) fn mirror_windows(&mut self) -> Vec<Option<MirrorWindow>> {
        let volumes = self.model.volumes.len();
        let (Some(mirroring), Some(counts)) = (&self.mirroring, &mut self.world.mirror_counts)
        else {
            return vec![None; volumes];
        };
        if mirroring.table.is_some() {
            return vec![None; volumes];
        }
        let counted = counts
            .counts
            .then(|| (counts.reads.take(), counts.writes.take()));
        let access = |v: usize| -> Option<ExtentAccess> {
            let (reads, writes) = counted.as_ref().filter(|_| mirroring.asked.contains(&v))?;
            let map = &self.world.maps[v];
            let of = |heat: &[ExtentHeat]| heat[v].clone();
            Some(ExtentAccess {
                extent_bytes: map.extent_bytes().0,
                places: places(map),
                reads: of(reads),
                writes: of(writes),
            })
        };
        let windows = (0..volumes).map(|v| {
            let copies = mirroring.kept[v].as_ref().map(|kept| CopiesWindow {
                device: kept.record.device.clone(),
                bytes: kept.record.bytes,
                read_share: kept.record.second_share,
                by_hand: false,
            });
            Some(MirrorWindow {
                copies,
                access: access(v),
            })
        });
        windows.collect()
    }

    /// Returns the summary of mirrors. Called once, at the end.
    pub(crate) fn mirror_summary(&mut self) -> Option<MirrorSummary> {
        let mut mirroring = self.mirroring.take()?;
        let mut sets = std::mem::take(&mut mirroring.records);
        for (v, kept) in mirroring.kept.into_iter().enumerate() {
            let Some(kept) = kept else {
                continue;
            };
            let mut record = kept.record;
            record.copied_bytes = self.moving[v].as_ref().map_or(0, |m| m.copied().0);
            if let Some(counts) = &mut self.world.mirror_counts {
                record.add(counts.ends[v]);
            }
            sets.push(record);
        }
        sets.sort_by(|a, b| a.begun_s.total_cmp(&b.begun_s));
        (mirroring.table.is_some() || !sets.is_empty()).then_some(MirrorSummary { sets })
    }
}

impl MirrorRecord {
    fn add(&mut self, ends: [EndReads; 2]) {
        self.first_reads += ends[0].count;
        self.second_reads += ends[1].count;
    }
}
