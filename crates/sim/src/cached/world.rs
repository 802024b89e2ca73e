//! The loop: requests through the cache to the devices, slices, hours, exchanges.

use std::collections::VecDeque;

use algo::{EventHeap, JitterTable, mix};
use cache::Policy;
use flash::FlashError;
use model::Op;
use planner::exchange::{Exchange, ExtentLoad, Station, exchange, next_factor};

use super::disk::Disk;
use super::flash_device::{FlashDevice, WearResult};
use super::front::Front;
use super::result::{CachedResult, Group, HourResult};
use super::sequence::{Player, Reference};
use super::setup::{BackEndMode, CachedArray, PAGES_PER_EXTENT, SLICES_PER_HOUR};

/// Steps of a slice: exchanges begin at the start of one.
const STEPS_PER_SLICE: u32 = 60;
/// Pages on their way to devices over the pages of the write part: past that, writes wait.
const DESTAGING_SHARE: f64 = 0.5;

/// Completions of a volume's last requests: as many may be outstanding.
#[derive(Debug, Clone)]
struct Window {
    done_ns: Vec<f64>,
    oldest: usize,
}

impl Window {
    fn new(outstanding: u32) -> Self {
        Self {
            done_ns: vec![0.0; outstanding.max(1) as usize],
            oldest: 0,
        }
    }

    fn add(&mut self, done_ns: f64) {
        self.done_ns[self.oldest] = done_ns;
        self.oldest = (self.oldest + 1) % self.done_ns.len();
    }
}

/// A device behind the cache.
#[derive(Debug, Clone)]
enum Device {
    Queue(Box<Disk>),
    Flash(Box<FlashDevice>),
}

/// What a volume's requests took in the hour that runs.
#[derive(Debug, Clone, Copy, Default)]
struct Response {
    sum_ns: f64,
    requests: u64,
    /// Of them, in the slice that runs.
    in_slice: u64,
}

impl Response {
    /// Mean over the target; none without requests.
    fn over(&self, target_ns: f64) -> Option<f64> {
        (self.requests > 0).then(|| self.sum_ns / self.requests as f64 / target_ns)
    }
}

/// An exchange under way.
#[derive(Debug, Clone, Copy)]
struct Exchanging {
    pair: Exchange,
    /// Devices that have not copied yet.
    left: u8,
}

pub(super) struct World<'a, P> {
    array: &'a CachedArray,
    front: Front<P>,
    players: Vec<Player<'a>>,
    windows: Vec<Window>,
    /// First extent of each volume.
    first_extent: Vec<u32>,
    heap: EventHeap,
    exponential: JitterTable,
    devices: Vec<Device>,
    /// Bytes written by class and kind of device, redundancy with them.
    written: Vec<Vec<f64>>,
    kind_of: Vec<u16>,
    /// First device and count of each device's kind: where the other half of a redundant write goes.
    peers: Vec<(u16, u16)>,
    write_cost: Vec<f64>,
    /// By extent, those that are never touched at the end.
    device_of: Vec<u16>,
    /// Place on that device, by extent.
    slot_of: Vec<u32>,
    volume_of: Vec<u16>,
    /// Requests of the hour that reached devices, by extent: reads and writes.
    reads: Vec<u32>,
    writes: Vec<u32>,
    destaging: VecDeque<f64>,
    destaging_max: usize,
    responses: Vec<Response>,
    weights: Vec<f64>,
    groups: Vec<Group>,
    exchanges: Vec<Exchanging>,
    begun: usize,
    done: u32,
    finished: Vec<u32>,
    evicted: Vec<u32>,
}

impl<'a, P: Policy> World<'a, P> {
    pub(super) fn new(array: &'a CachedArray, front: Front<P>) -> Result<Self, FlashError> {
        let mut first_extent = Vec::new();
        let mut volume_of: Vec<u16> = Vec::new();
        for (v, volume) in array.volumes.iter().enumerate() {
            first_extent.push(volume_of.len() as u32);
            let extents = array.sequences[volume.sequence].extents() as usize;
            volume_of.resize(volume_of.len() + extents, v as u16);
        }
        let touched = volume_of.len();
        let all = (touched as f64 * array.extents_over_touched) as usize;
        // Extents that are never touched have no load: it does not matter whose they are.
        volume_of.resize(all.max(touched), 0);
        let device_of = placed(array, volume_of.len());
        let (slot_of, held) = slots(&device_of, array.devices());
        let (mut devices, mut kind_of, mut peers, mut write_cost) =
            (vec![], vec![], vec![], vec![]);
        for (k, kind) in array.kinds.iter().enumerate() {
            let first = devices.len() as u16;
            for _ in 0..kind.count {
                let extents = held[devices.len()];
                devices.push(match &kind.flash {
                    None => Device::Queue(Box::new(Disk::new(kind.station.service))),
                    Some(config) => {
                        let drive = FlashDevice::new(config, extents, array.page)?;
                        Device::Flash(Box::new(drive))
                    }
                });
                kind_of.push(k as u16);
                peers.push((first, kind.count));
                write_cost.push(kind.station.write_cost);
            }
        }
        let slot_ns = array.hour.0 / 2;
        let players: Vec<Player<'_>> = array
            .volumes
            .iter()
            .enumerate()
            .map(|(v, volume)| {
                let stream = mix(mix(array.seed, 0xCAC4E), v as u64);
                let sequence = &array.sequences[volume.sequence];
                Player::new(sequence, &volume.rates, slot_ns, stream)
            })
            .collect();
        let write_pages = f64::from(front.dirty_max());
        let mut world = Self {
            array,
            front,
            players,
            windows: vec![Window::new(array.outstanding); array.volumes.len()],
            first_extent,
            heap: EventHeap::new(),
            exponential: JitterTable::exponential(),
            devices,
            written: vec![vec![0.0; array.kinds.len()]; array.classes.len()],
            kind_of,
            peers,
            write_cost,
            device_of,
            slot_of,
            reads: vec![0; volume_of.len()],
            writes: vec![0; volume_of.len()],
            volume_of,
            destaging: VecDeque::new(),
            destaging_max: ((write_pages * DESTAGING_SHARE) as usize).max(1),
            responses: vec![Response::default(); array.volumes.len()],
            weights: vec![1.0; array.volumes.len()],
            groups: vec![Group::new(array.kinds.len()); array.classes.len()],
            exchanges: vec![],
            begun: 0,
            done: 0,
            finished: vec![],
            evicted: vec![],
        };
        for v in 0..world.players.len() {
            if let Some(time) = world.players[v].next_time(0, &world.exponential) {
                world.heap.push(time, v as u32);
            }
        }
        Ok(world)
    }

    pub(super) fn run(
        mut self,
        back_end: BackEndMode,
        progress: &mut dyn FnMut(u32),
    ) -> CachedResult {
        let array = self.array;
        let steps = u64::from(SLICES_PER_HOUR * STEPS_PER_SLICE);
        let after = |step: u64| array.hour.0 * step / steps;
        let kinds = array.kinds.len();
        let mut totals = vec![Group::new(kinds); array.classes.len()];
        let mut within = vec![(0u32, 0u32); array.classes.len()];
        let mut hours = Vec::new();
        let mut planned = 0;
        for hour in 0..array.hours {
            let begin = array.hour.0 * u64::from(hour);
            for step in 0..steps {
                self.begin_exchanges(begin, after(step));
                self.requests(begin + after(step + 1));
                if (step + 1).is_multiple_of(u64::from(STEPS_PER_SLICE)) {
                    self.end_slice(begin + after(step + 1));
                }
            }
            let counted = hour >= array.warmup_hours;
            for (v, volume) in array.volumes.iter().enumerate() {
                let target = array.classes[volume.class].target.as_f64();
                if let Some(ratio) = self.responses[v].over(target).filter(|_| counted) {
                    within[volume.class].1 += 1;
                    within[volume.class].0 += u32::from(ratio <= 1.0);
                }
            }
            hours.push(self.hour_result(hour, planned));
            for (total, group) in totals.iter_mut().zip(&mut self.groups) {
                if counted {
                    total.merge(group);
                }
                *group = Group::new(kinds);
            }
            planned = self.end_hour(back_end);
            progress(hour + 1);
        }
        let mut all = Group::new(kinds);
        totals.iter().for_each(|t| all.merge(t));
        let share = |(n, of): &(u32, u32)| (*of > 0).then(|| f64::from(*n) / f64::from(*of));
        CachedResult {
            classes: totals.iter().map(Group::result).collect(),
            within_target: within.iter().map(share).collect(),
            total: all.result(),
            wear: self.wear(),
            hours,
        }
    }

    /// All requests before `until_ns`.
    fn requests(&mut self, until_ns: u64) {
        while let Some((now, id)) = self.heap.first() {
            if now >= until_ns {
                break;
            }
            let v = id as usize;
            // A volume with all its requests outstanding asks for more when the oldest of them is answered: overload closes the loop.
            let window = &self.windows[v];
            let free = window.done_ns[window.oldest].ceil() as u64;
            if free > now {
                self.heap.reschedule_first(free);
                continue;
            }
            let reference = self.players[v].next();
            self.request(now, v, reference);
            match self.players[v].next_time(now, &self.exponential) {
                Some(time) => self.heap.reschedule_first(time),
                None => {
                    self.heap.pop();
                }
            }
        }
    }

    #[inline]
    fn request(&mut self, now: u64, v: usize, reference: Reference) {
        let first = self.first_extent[v] * PAGES_PER_EXTENT + reference.first;
        let end = first + u32::from(reference.pages);
        let hit = now as f64 + self.array.hit.as_f64();
        let (done, cached) = if reference.write {
            self.write(now, v, first, end, hit)
        } else {
            self.read(now, v, first, end, hit)
        };
        self.windows[v].add(done);
        let class = self.array.volumes[v].class;
        let response = done - now as f64;
        self.groups[class].record(response, cached);
        self.responses[v].sum_ns += response;
        self.responses[v].requests += 1;
        self.responses[v].in_slice += 1;
    }

    /// Pages that are missed are read from their devices, neighbours of one extent by one request.
    fn read(&mut self, now: u64, v: usize, first: u32, end: u32, hit: f64) -> (f64, bool) {
        let (mut done, mut cached) = (hit, true);
        let mut run = first..first;
        for page in first..end {
            if self.front.read(page, v) {
                continue;
            }
            cached = false;
            let joins = run.end == page && !page.is_multiple_of(PAGES_PER_EXTENT);
            if run.is_empty() {
                run = page..page + 1;
            } else if joins {
                run.end += 1;
            } else {
                done = done.max(self.fetch(now, v, run));
                run = page..page + 1;
            }
        }
        if !run.is_empty() {
            done = done.max(self.fetch(now, v, run));
        }
        (done, cached)
    }

    fn fetch(&mut self, now: u64, v: usize, run: std::ops::Range<u32>) -> f64 {
        let extent = (run.start / PAGES_PER_EXTENT) as usize;
        self.reads[extent] += 1;
        let device = self.device_of[extent];
        let class = self.array.volumes[v].class;
        self.groups[class].at_devices[usize::from(self.kind_of[usize::from(device)])] +=
            run.len() as u64;
        // The same draw whatever was hit before: methods are compared under the same random numbers.
        let draw = mix(self.players[v].drawn(), u64::from(run.start));
        self.submit(now, Op::Read, device, run, 1.0, draw)
    }

    /// Pages become dirty in the cache; those that have to go for them are destaged.
    fn write(&mut self, now: u64, v: usize, first: u32, end: u32, hit: f64) -> (f64, bool) {
        let mut evicted = std::mem::take(&mut self.evicted);
        for page in first..end {
            self.front.write(page, v, &mut evicted);
        }
        let mut done = hit;
        for page in evicted.drain(..) {
            let extent = (page / PAGES_PER_EXTENT) as usize;
            self.writes[extent] += 1;
            let device = self.device_of[extent];
            let class = self.array.volumes[usize::from(self.volume_of[extent])].class;
            self.groups[class].at_devices[usize::from(self.kind_of[usize::from(device)])] += 1;
            let written = self.destage(now, device, page);
            self.destaging.push_back(written);
            // The room of a page that is destaged is free when it is written.
            if self.destaging.len() > self.destaging_max {
                let oldest = self.destaging.pop_front().unwrap_or(hit);
                done = done.max(oldest);
            }
        }
        self.evicted = evicted;
        (done, done <= hit)
    }

    /// Redundant writes cost the page's device one half and another one of its kind the other.
    fn destage(&mut self, now: u64, device: u16, page: u32) -> f64 {
        let cost = self.write_cost[usize::from(device)];
        let (first, count) = self.peers[usize::from(device)];
        let run = page..page + 1;
        let nth = self.writes[(page / PAGES_PER_EXTENT) as usize];
        let draw = mix(u64::from(page), u64::from(nth));
        if cost <= 1.0 || count < 2 {
            return self.submit(now, Op::Write, device, run, cost, draw);
        }
        let next = 1 + (page / PAGES_PER_EXTENT) % u32::from(count - 1);
        let other = first + ((u32::from(device - first) + next) % u32::from(count)) as u16;
        let home = self.submit(now, Op::Write, device, run.clone(), cost / 2.0, draw);
        home.max(self.submit(now, Op::Write, other, run, cost / 2.0, !draw))
    }

    fn submit(
        &mut self,
        now: u64,
        op: Op,
        device: u16,
        run: std::ops::Range<u32>,
        times: f64,
        draw: u64,
    ) -> f64 {
        let extent = run.start / PAGES_PER_EXTENT;
        let pages = run.len() as u64;
        let bytes = pages as f64 * self.array.page.as_f64();
        if op == Op::Write {
            let volume = usize::from(self.volume_of[extent as usize]);
            let class = self.array.volumes[volume].class;
            self.written[class][usize::from(self.kind_of[usize::from(device)])] += bytes;
        }
        match &mut self.devices[usize::from(device)] {
            Device::Queue(disk) => {
                let bits = mix(self.array.seed, draw);
                let unit = (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
                let span = (u64::from(run.start), u64::from(run.end));
                disk.copy_until(now as f64, &mut self.finished);
                let done = disk.submit(now, op, span, bytes, times, unit);
                self.switch_finished();
                done
            }
            Device::Flash(drive) => {
                let address = (self.slot_of[extent as usize], run.start % PAGES_PER_EXTENT);
                drive.copy_until(now, &mut self.finished);
                let done = drive.submit(now, op, address, pages, times > 1.0);
                self.switch_finished();
                done
            }
        }
    }

    /// Extents whose copies are complete on both devices change places.
    fn switch_finished(&mut self) {
        while let Some(exchange) = self.finished.pop() {
            let under_way = &mut self.exchanges[exchange as usize];
            under_way.left -= 1;
            if under_way.left == 0 {
                let Exchange { a, b } = under_way.pair;
                self.device_of.swap(a as usize, b as usize);
                self.slot_of.swap(a as usize, b as usize);
                self.done += 1;
            }
        }
    }

    /// Exchanges begin one after the other over the start of the hour.
    fn begin_exchanges(&mut self, hour_ns: u64, since_hour_ns: u64) {
        let spread = self.array.exchange_spread.0.max(1);
        let all = self.exchanges.len();
        let due =
            (u128::from(since_hour_ns.min(spread)) * all as u128 / u128::from(spread)) as usize;
        let bytes = self.array.terms.extent.as_f64();
        let now = hour_ns + since_hour_ns;
        while self.begun < due {
            let Exchange { a, b } = self.exchanges[self.begun].pair;
            for extent in [a, b] {
                let device = usize::from(self.device_of[extent as usize]);
                match &mut self.devices[device] {
                    Device::Queue(disk) => disk.add_copy(now as f64, self.begun as u32, bytes),
                    Device::Flash(drive) => {
                        drive.add_copy(now, self.begun as u32, self.slot_of[extent as usize]);
                    }
                }
            }
            self.begun += 1;
        }
    }

    fn end_slice(&mut self, now: u64) {
        for device in &mut self.devices {
            match device {
                Device::Queue(disk) => disk.copy_until(now as f64, &mut self.finished),
                Device::Flash(drive) => drive.copy_until(now, &mut self.finished),
            }
        }
        self.switch_finished();
        let array = self.array;
        let over = array.volumes.iter().zip(&self.responses);
        // A volume that asked for nothing in the slice keeps its priority.
        let over = over.map(|(v, r)| {
            let ratio = r.over(array.classes[v.class].target.as_f64());
            ratio.filter(|_| r.in_slice > 0)
        });
        self.front.end_slice(over);
        self.responses.iter_mut().for_each(|r| r.in_slice = 0);
        // Where nothing waits, nothing is on its way any more.
        while self.destaging.front().is_some_and(|t| *t < now as f64) {
            self.destaging.pop_front();
        }
    }

    fn hour_result(&mut self, hour: u32, planned: u32) -> HourResult {
        let kinds = self.array.kinds.len();
        let (mut busy, mut copies) = (vec![0.0; kinds], vec![0.0; kinds]);
        for (device, kind) in self.devices.iter_mut().zip(&self.kind_of) {
            let (units, by_requests, by_copies) = match device {
                Device::Queue(d) => (d.units(), &mut d.busy_ns, &mut d.copy_ns),
                Device::Flash(d) => (d.units(), &mut d.busy_ns, &mut d.copy_ns),
            };
            let devices = f64::from(self.array.kinds[usize::from(*kind)].count);
            let all = self.array.hour.as_f64() * f64::from(units) * devices;
            busy[usize::from(*kind)] += std::mem::take(by_requests) / all;
            copies[usize::from(*kind)] += std::mem::take(by_copies) / all;
        }
        let mut total = Group::new(kinds);
        self.groups.iter().for_each(|g| total.merge(g));
        HourResult {
            hour,
            classes: self.groups.iter().map(Group::result).collect(),
            total: total.result(),
            priorities: self.priorities(),
            exchanges_planned: planned,
            exchanges_done: self.done,
            utilization: busy,
            utilization_copies: copies,
        }
    }

    /// Mean priority of the volumes of each class, percent.
    fn priorities(&self) -> Option<Vec<f64>> {
        let classes = 0..self.array.classes.len();
        let mean = |class: usize| {
            let volumes = self.array.volumes.iter().enumerate();
            let own = volumes.filter(|(_, v)| v.class == class);
            let (sum, n) = own.fold((0.0, 0), |(sum, n), (v, _)| {
                (sum + f64::from(self.front.priority(v).unwrap_or(0)), n + 1)
            });
            sum / f64::from(n.max(1))
        };
        self.front.priority(0)?;
        Some(classes.map(mean).collect())
    }

    /// Gives up what was not copied, decides what is exchanged next, and forgets the hour; the number of exchanges.
    fn end_hour(&mut self, back_end: BackEndMode) -> u32 {
        for device in &mut self.devices {
            match device {
                Device::Queue(disk) => disk.give_up(),
                Device::Flash(drive) => drive.give_up(),
            }
        }
        (self.begun, self.done) = (0, 0);
        self.exchanges.clear();
        if back_end != BackEndMode::Fixed {
            self.exchanges = self.decide(back_end);
        }
        self.front.end_hour();
        self.reads.fill(0);
        self.writes.fill(0);
        self.responses.fill(Response::default());
        self.exchanges.len() as u32
    }

    /// What was done to flash, by kind.
    fn wear(&self) -> Vec<WearResult> {
        let seconds = self.array.hour.as_secs_f64() * f64::from(self.array.hours);
        let of_kind = |(k, kind): (usize, &super::setup::DeviceKind)| {
            let devices = self.devices.iter().zip(&self.kind_of);
            let drives: Vec<&FlashDevice> = devices
                .filter_map(|(d, of)| match d {
                    Device::Flash(drive) if usize::from(*of) == k => Some(&**drive),
                    _ => None,
                })
                .collect();
            let reports: Vec<_> = drives.iter().map(|d| d.report()).collect();
            let (host, flash) = reports.iter().fold((0, 0), |sums, r| {
                (sums.0 + r.host_bytes.0, sums.1 + r.flash_bytes.0)
            });
            let n = reports.len() as f64;
            let years = drives.iter().filter_map(|d| d.years(seconds));
            (!drives.is_empty()).then(|| WearResult {
                kind: kind.name.clone(),
                waf: (host > 0).then(|| flash as f64 / host as f64),
                host_bytes: host,
                written_share: self
                    .written
                    .iter()
                    .map(|c| c[k] / (host.max(1) as f64))
                    .collect(),
                drive_writes: reports.iter().map(|r| r.drive_writes).sum::<f64>() / n,
                years: years.reduce(f64::min),
            })
        };
        self.array
            .kinds
            .iter()
            .enumerate()
            .filter_map(of_kind)
            .collect()
    }

    fn decide(&mut self, back_end: BackEndMode) -> Vec<Exchanging> {
        let array = self.array;
        let per_s = 1.0 / array.hour.as_secs_f64() as f32;
        let load = |e: usize| ExtentLoad {
            volume: u32::from(self.volume_of[e]),
            device: self.device_of[e],
            reads: self.reads[e] as f32 * per_s,
            writes: self.writes[e] as f32 * per_s,
        };
        let loads: Vec<ExtentLoad> = (0..self.device_of.len()).map(load).collect();
        let weights: Vec<f64> = match back_end {
            BackEndMode::Fixed | BackEndMode::Regular => vec![1.0; array.volumes.len()],
            BackEndMode::Qos => self.qos_weights(),
        };
        let stations: Vec<Station> = self
            .kind_of
            .iter()
            .map(|k| array.kinds[usize::from(*k)].station)
            .collect();
        let found = exchange(&stations, &loads, &weights, &array.terms);
        let exchanging = |pair: &Exchange| Exchanging {
            pair: *pair,
            left: 2,
        };
        found.list.iter().map(exchanging).collect()
    }

    /// Priorities of the back end: those of volumes that miss their target grow, and a nanosecond counts more where the target is
    /// tighter.
    fn qos_weights(&mut self) -> Vec<f64> {
        let array = self.array;
        let volumes = array.volumes.iter().zip(&self.responses);
        let weights = volumes.zip(&mut self.weights).map(|((v, r), weight)| {
            let target = array.classes[v.class].target.as_f64();
            if let Some(ratio) = r.over(target) {
                *weight = next_factor(*weight, ratio);
            }
            *weight * 1e6 / target
        });
        weights.collect()
    }
}

/// The places of extents on their devices, and how many each device has.
fn slots(device_of: &[u16], devices: usize) -> (Vec<u32>, Vec<u32>) {
    let mut held = vec![0; devices];
    let slot = |device: &u16| {
        let next: &mut u32 = &mut held[usize::from(*device)];
        *next += 1;
        *next - 1
    };
    (device_of.iter().map(slot).collect(), held)
}

/// Extents over devices as kinds have room for them, at random: what is touched is where anything is.
fn placed(array: &CachedArray, extents: usize) -> Vec<u16> {
    let mut slots: Vec<u16> = Vec::with_capacity(extents);
    let mut first = 0;
    for (k, kind) in array.kinds.iter().enumerate() {
        let last = k + 1 == array.kinds.len();
        let own = if last {
            extents - slots.len()
        } else {
            ((extents as f64 * kind.share) as usize).min(extents - slots.len())
        };
        slots.extend((0..own).map(|i| first + (i % usize::from(kind.count)) as u16));
        first += kind.count;
    }
    // A shuffle by Fisher and Yates.
    let stream = mix(array.seed, 0x97ACE);
    for i in (1..slots.len()).rev() {
        let j = ((u128::from(mix(stream, i as u64)) * (i as u128 + 1)) >> 64) as usize;
        slots.swap(i, j);
    }
    slots
}
