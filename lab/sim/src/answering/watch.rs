//! Measurements of volumes for remedies, by window, in addition to their loads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manager::wire::{BusyWindow, VolumeSample};
use model::Op;
use slo::curve::Curve;
use slo::ladder::SpareOps;
use slo::zones::Zone;
use slo::{Knowledge, WorkloadId};
use units::VolumeId;
use volume::VolumeMap;

use super::{link_names, object_bytes, promise};
use crate::Model;
use crate::access::Accesses;
use crate::device::SimDevice;
use crate::evidence::AccessLog;
use crate::source::{Issue, outstanding_max};

/// Measurements of one volume.
struct VolumeWatch {
    accesses: Accesses,
    object_bytes: u64,
    /// End address of the last request.
    follows: u64,
    issued: u64,
    /// Completion time of the last request so far.
    busy_until_ns: u64,
    occupied_ns: u64,
    /// Number of requests with replies in transit, and the time since which there is at least one.
    on_their_way: u64,
    since_ns: u64,
    limits: Limits,
    /// Accesses since the last take, if accesses are logged.
    log: Option<Vec<u32>>,
    array_reads: u64,
    cache_hits: u64,
    /// True if the volume has a guaranteed rate. Requests that its sources have not issued yet then count.
    rate_promised: bool,
}

impl VolumeWatch {
    fn count(&mut self, issue: &Issue) {
        self.issued += 1;
        if !matches!(issue.op, Op::Read | Op::Write) {
            return;
        }
        let mut follows = issue.offset == self.follows;
        self.follows = issue.offset + issue.length;
        let first = issue.offset / self.object_bytes;
        let last = (issue.offset + issue.length.max(1) - 1) / self.object_bytes;
        let read = issue.op == Op::Read;
        for object in first..=last {
            let object = object as u32;
            let looked_at = self.accesses.issued(object, read, follows);
            if let Some(log) = self.log.as_mut().filter(|_| looked_at) {
                log.push(if read {
                    object
                } else {
                    object | AccessLog::WROTE
                });
            }
            follows = false;
        }
    }
}

/// Time in which the volume has its maximum number of outstanding requests.
#[derive(Default)]
struct Limits {
    /// Maximum number of outstanding requests; `None` if it is unknown.
    most: Option<u64>,
    /// Completion times of outstanding requests, if they are known.
    ends: BinaryHeap<Reverse<u64>>,
    /// Time until which, or since which, the maximum is reached.
    at_ns: u64,
    /// Time at the maximum in the current window, including time that is already determined.
    ns: u64,
}

impl Limits {
    /// Adds a request with a known completion time.
    fn issued(&mut self, now_ns: u64, done_ns: u64) {
        let Some(most) = self.most else {
            return;
        };
        while self.ends.peek().is_some_and(|end| end.0 <= now_ns) {
            self.ends.pop();
        }
        self.ends.push(Reverse(done_ns));
        if self.ends.len() as u64 >= most {
            let until_ns = self.ends.peek().map_or(now_ns, |end| end.0);
            self.ns += until_ns.saturating_sub(self.at_ns.max(now_ns));
            self.at_ns = self.at_ns.max(until_ns);
        }
    }

    /// Adds a request with an unknown completion time. `outstanding` includes it.
    fn set_out(&mut self, now_ns: u64, outstanding: u64) {
        if self.most == Some(outstanding) {
            self.at_ns = now_ns;
        }
    }

    /// Removes one of `outstanding` requests with unknown completion times.
    fn arrived(&mut self, now_ns: u64, outstanding: u64, since_ns: u64) {
        if self.most == Some(outstanding) {
            self.ns += now_ns - self.at_ns.max(since_ns);
        }
    }

    /// Ends the window that began at `since_ns` and returns its time at the maximum.
    fn take(&mut self, now_ns: u64, on_their_way: u64, since_ns: u64) -> u64 {
        let later_ns = self.at_ns.saturating_sub(now_ns);
        let mut ns = std::mem::replace(&mut self.ns, later_ns).saturating_sub(later_ns);
        if self.most.is_some_and(|most| on_their_way >= most) {
            ns += now_ns - self.at_ns.max(since_ns);
        }
        ns
    }
}

/// Largest number of sampled objects per volume. More would not improve the result and take longer.
const LOOKED_AT: u32 = 1 << 17;

/// Returns the sampling factor: one in so many objects is sampled.
fn sampled(objects: u32) -> u32 {
    objects.div_ceil(LOOKED_AT).next_power_of_two()
}

/// Measurements of all volumes.
pub(crate) struct Watch {
    volumes: Vec<VolumeWatch>,
    /// Names of the devices, then of the links, two for each server.
    resources: Vec<String>,
    devices: usize,
    /// Time in use for reads and writes, by volume and resource.
    busy: Vec<[u64; 2]>,
    /// Start of the window.
    since_ns: u64,
}

impl Watch {
    pub(crate) fn new(model: &Model) -> Option<Self> {
        let remedies = model.remedies.as_ref()?;
        let page = remedies.appliance.page;
        let zone = remedies.workflow.warm.zone;
        let volumes = model.volumes.iter().enumerate().map(|(n, v)| {
            let bytes = object_bytes(v.size, page);
            let objects = v.size.0.div_ceil(u64::from(bytes)) as u32;
            VolumeWatch {
                accesses: Accesses::new(objects, bytes, zone, sampled(objects)),
                object_bytes: u64::from(bytes),
                follows: u64::MAX,
                issued: 0,
                busy_until_ns: 0,
                occupied_ns: 0,
                on_their_way: 0,
                since_ns: 0,
                limits: Limits {
                    most: outstanding_max(model, VolumeId::from_index(n)),
                    ..Limits::default()
                },
                log: None,
                array_reads: 0,
                cache_hits: 0,
                rate_promised: promise(model, remedies, v).rate_min_per_s.is_some(),
            }
        });
        let devices = model.topology.devices.iter().map(|d| d.name.clone());
        let servers = model.servers.iter().flat_map(|s| &s.names);
        let resources: Vec<String> = devices.chain(servers.flat_map(|s| link_names(s))).collect();
        Some(Self {
            volumes: volumes.collect(),
            busy: vec![[0; 2]; model.volumes.len() * resources.len()],
            resources,
            devices: model.topology.devices.len(),
            since_ns: 0,
        })
    }

    /// Starts to log accesses.
    pub(crate) fn log_accesses(&mut self) {
        for v in &mut self.volumes {
            v.log = Some(Vec::new());
        }
    }

    /// Moves the logged accesses of a volume in the last window to `to`. `goes_on` says if logging continues.
    pub(crate) fn log_into(&mut self, volume: usize, to: &mut AccessLog, goes_on: bool) {
        let v = &mut self.volumes[volume];
        let Some(log) = v.log.as_mut() else {
            return;
        };
        (to.object_bytes, to.one_in) = (v.object_bytes, v.accesses.sampled());
        to.accesses.append(log);
        to.ends.push(to.accesses.len());
        if !goes_on {
            v.log = None;
        }
    }

    /// Records a request that is issued now and completes at `done_ns`.
    #[inline]
    pub(crate) fn issued(&mut self, issue: &Issue, now_ns: u64, done_ns: u64) {
        let v = &mut self.volumes[issue.volume as usize];
        v.limits.issued(now_ns, done_ns);
        let begins = issue.arrival_ns.max(self.since_ns).max(v.busy_until_ns);
        v.occupied_ns += done_ns.saturating_sub(begins);
        v.busy_until_ns = v.busy_until_ns.max(done_ns);
        v.count(issue);
    }

    /// Records a request that is issued now with an unknown completion time.
    pub(crate) fn set_out(&mut self, issue: &Issue, now_ns: u64) {
        let v = &mut self.volumes[issue.volume as usize];
        if v.on_their_way == 0 {
            v.since_ns = now_ns;
        }
        v.on_their_way += 1;
        v.limits.set_out(now_ns, v.on_their_way);
        v.count(issue);
    }

    /// Records the completion of such a request.
    pub(crate) fn arrived(&mut self, volume: u32, now_ns: u64) {
        let v = &mut self.volumes[volume as usize];
        v.limits.arrived(now_ns, v.on_their_way, self.since_ns);
        v.on_their_way -= 1;
        if v.on_their_way == 0 {
            v.occupied_ns += now_ns - v.since_ns.max(self.since_ns);
        }
    }

    /// Records a read that reached the array. `hit` is true if the array's cache had all of it.
    #[inline]
    pub(crate) fn array_read(&mut self, volume: u32, hit: bool) {
        let v = &mut self.volumes[volume as usize];
        v.array_reads += 1;
        v.cache_hits += u64::from(hit);
    }

    /// Adds device time that a volume's request used.
    #[inline]
    pub(crate) fn took(&mut self, volume: u32, device: usize, dir: usize, ns: u64) {
        self.busy[volume as usize * self.resources.len() + device][dir] += ns;
    }

    /// Adds time of one direction of a server's link that a volume's requests used.
    #[inline]
    pub(crate) fn took_link(&mut self, volume: u32, server: u16, dir: usize, ns: u64) {
        self.took(
            volume,
            self.devices + 2 * usize::from(server) + dir,
            dir,
            ns,
        );
    }

    /// Returns true if a volume has a guaranteed rate.
    pub(crate) fn is_rate_promised(&self, volume: usize) -> bool {
        self.volumes[volume].rate_promised
    }

    /// Takes a volume's measurements of the window. `waiting` has the arrival times of held requests. `behind` is the
    /// number of requests that are due and that its sources have not issued.
    pub(crate) fn take(
        &mut self,
        now_ns: u64,
        volume: usize,
        waiting: impl Iterator<Item = u64>,
        behind: u64,
    ) -> VolumeSample {
        let v = &mut self.volumes[volume];
        let (mut oldest_ns, mut count) = (u64::MAX, 0);
        for arrival_ns in waiting {
            oldest_ns = oldest_ns.min(arrival_ns);
            count += 1;
        }
        // The guest sees waiting requests as outstanding.
        let begins = oldest_ns.max(self.since_ns).max(v.busy_until_ns);
        v.occupied_ns += now_ns.saturating_sub(begins);
        if count > 0 {
            v.busy_until_ns = v.busy_until_ns.max(now_ns);
        }
        if v.on_their_way > 0 {
            v.occupied_ns += now_ns - v.since_ns.max(self.since_ns);
        }
        let later_ns = v.busy_until_ns.saturating_sub(now_ns);
        let limited_ns = v.limits.take(now_ns, v.on_their_way, self.since_ns);
        let touched = v.accesses.end_sample();
        let busy = self.busy.chunks_mut(self.resources.len()).nth(volume);
        let busy = busy.into_iter().flatten().zip(&self.resources);
        let busy = busy.filter_map(|(busy, resource)| {
            let [reads_ns, writes_ns] = std::mem::take(busy);
            (reads_ns + writes_ns > 0).then(|| BusyWindow {
                resource: resource.clone(),
                reads_ns,
                writes_ns,
            })
        });
        VolumeSample {
            sequential: touched.sequential,
            issued: std::mem::take(&mut v.issued),
            working_set_bytes: Some(touched.working_set.0),
            // Time of requests that complete in a later window counts in that window.
            occupied_ns: std::mem::replace(&mut v.occupied_ns, later_ns).saturating_sub(later_ns),
            limited_ns,
            waiting: count + behind,
            array_reads: std::mem::take(&mut v.array_reads),
            cache_hits: std::mem::take(&mut v.cache_hits),
            busy: busy.collect(),
        }
    }

    /// Starts a window.
    pub(crate) fn begin_window(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
    }
}

/// Measurements that are computed only when a violation requires them.
pub(crate) struct LazyMeasurements<'a> {
    pub watch: &'a Watch,
    pub devices: &'a [SimDevice],
    pub maps: &'a [VolumeMap],
}

impl LazyMeasurements<'_> {
    fn accesses(&self, workload: WorkloadId) -> &Accesses {
        &self.watch.volumes[workload.index()].accesses
    }
}

impl Knowledge for LazyMeasurements<'_> {
    fn curve(&self, workload: WorkloadId) -> Option<Curve> {
        self.accesses(workload).curve()
    }

    fn zones(&self, workload: WorkloadId) -> Vec<Zone> {
        self.accesses(workload).zones(0)
    }

    fn zones_before(&self, workload: WorkloadId) -> Vec<Zone> {
        self.accesses(workload).zones(2)
    }

    /// Returns the spare flash of the volume's drive; `None` for a volume on several drives.
    fn spare_flash(&self, workload: WorkloadId) -> Option<SpareOps> {
        let w = workload.index();
        let [(device, _)] = self.maps[w].holders() else {
            return None;
        };
        let flash = self.devices[device.index()].as_flash()?;
        let space = flash.spare_space(flash.tenant_number(w)?)?;
        Some(SpareOps {
            workload,
            waf: space.waf,
            waf_with_spare: space.waf_with_spare,
        })
    }
}
