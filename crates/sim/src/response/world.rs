//! The request path: workloads, appliances and warm-ups as clients of the array; discrete events, one thread, a seed.

mod managed;
mod requests;

use algo::{EventHeap, Histogram, JitterTable};
use units::{Bytes, Nanos};

use super::backend::{Access, Backend};
use super::elsewhere::Group;
use super::keeps::FillBudget;
use super::load::{Arrivals, LoadOp, RecordedRequest};
use super::model::{MemoryBefore, ResponseModel, Uses};
use super::monitor::Monitor;
use super::mover::{Copied, Mover};
use super::nodes::{Fill, Node};
use crate::answering::Turns;

/// An appliance in the request path.
pub(super) struct Placed {
    pub(super) node: Node,
    pub(super) hops: u64,
    budget: FillBudget,
    free: u64,
    /// Requests under way in it.
    pub(super) inside: u32,
    /// By object: which version it keeps, if any.
    held: Vec<u32>,
}

impl Placed {
    pub(super) fn new(node: Node, hops: u64, budget: FillBudget, objects: u32) -> Self {
        Self {
            node,
            hops,
            budget,
            free: 0,
            inside: 0,
            held: vec![0; objects as usize],
        }
    }
}

/// Where a volume's requests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    Backend,
    /// Through the node of that number.
    Node(usize),
}

/// A warm-up under way.
#[derive(Debug, Clone)]
pub(super) struct WarmRun {
    /// First object and number of objects of each zone that is still to be read.
    pub(super) zones: Vec<(u32, u32)>,
    pub(super) gap_ns: u64,
}

enum Source {
    Load(Arrivals),
    Warm(Option<WarmRun>),
}

struct Client {
    source: Source,
    free: Vec<u32>,
    outstanding: u32,
    occupied_since: u64,
    occupied_ns: u64,
    /// The same for all slots in use.
    limited_since: u64,
    limited_ns: u64,
    /// Throttle.
    gap_ns: u64,
    allowed: u64,
    wakes_at: u64,
    follows: u32,
}

#[derive(Clone, Copy)]
enum Stage {
    /// On its way to the backend.
    Arriving,
    /// Waits for a disk, or is read.
    Disk,
    Done,
}

#[derive(Clone, Copy)]
struct Slot {
    issued: u64,
    object: u32,
    objects: u32,
    op: LoadOp,
    stage: Stage,
    through: Option<(usize, Fill)>,
    /// Sum of its objects' versions when it was sent to be filled.
    versions: u64,
    inside: Option<usize>,
}

/// What the caller has to deal with.
pub(super) enum Wake {
    Sample,
    Control,
    /// A warm-up has nothing left to read.
    Warmed(usize),
    End,
}

pub(super) struct World {
    workloads: usize,
    slots_each: usize,
    clients: Vec<Client>,
    slots: Vec<Slot>,
    heap: EventHeap,
    backend: Backend,
    link: Turns,
    pub(super) monitors: Vec<Monitor>,
    pub(super) nodes: Vec<Option<Placed>>,
    /// Which nodes stand before each workload's volume.
    pub(super) nodes_of: Vec<Vec<usize>>,
    pub(super) paths: Vec<Path>,
    /// When the hosts of all appliances were lost last.
    pub(super) lost_at: u64,
    first: Vec<u32>,
    bytes: Vec<u32>,
    uses: Vec<Uses>,
    own_free: Vec<u64>,
    own: JitterTable,
    appliance: super::model::ApplianceModel,
    /// By workload: bytes written on flash for each byte that it writes.
    waf: Vec<f64>,
    /// By workload and object: how often it was written. What anybody keeps is held against this.
    versions: Vec<Vec<u32>>,
    /// Reads that were answered with less than the last write, and objects that differed when a volume was switched over: none.
    pub(super) stale: u64,
    group: Option<Group>,
    movers: Vec<Option<Mover>>,
    /// By workload: versions on the other backend, once that serves it.
    away: Vec<Option<Vec<u32>>>,
    pub(super) copies: Vec<(usize, Copied)>,
    spans: Vec<(Nanos, Nanos)>,
    /// By workload and span.
    pub(super) latencies: Vec<Histogram>,
    pub(super) now: u64,
    end: u64,
    pub(super) requests: u64,
    seed: u64,
}

/// Mean time of a request of a workload on disks of its own.
const OWN_DISK_NS: f64 = 5_500_000.0;

/// What each workload's writes cost at the start, as multiples.
fn waf_of(model: &ResponseModel) -> Vec<f64> {
    let of = |w: usize| match model.ops {
        Some(ops) if ops.workload.index() == w => ops.waf,
        _ => 1.0,
    };
    (0..model.workloads.len()).map(of).collect()
}

impl World {
    pub(super) fn new(model: &ResponseModel) -> Self {
        let w = model.workloads.len();
        let most = model
            .workloads
            .iter()
            .map(|w| w.outstanding_max)
            .max()
            .unwrap_or(1);
        let slots_each = most.max(model.appliance.warm_outstanding);
        let classes: Vec<(u32, u32)> = model
            .workloads
            .iter()
            .map(|w| (w.objects, w.object_bytes))
            .collect();
        let mut first = vec![0];
        classes
            .iter()
            .for_each(|c| first.push(first[first.len() - 1] + c.0));
        let client = |c: usize| {
            let (source, slots) = if c < w {
                let workload = &model.workloads[c];
                let arrivals = Arrivals::new(workload.load.clone(), workload.objects);
                (Source::Load(arrivals), workload.outstanding_max)
            } else {
                (Source::Warm(None), model.appliance.warm_outstanding)
            };
            Client {
                source,
                free: (0..slots)
                    .map(|s| (c * slots_each + s) as u32)
                    .rev()
                    .collect(),
                outstanding: 0,
                occupied_since: 0,
                occupied_ns: 0,
                limited_since: 0,
                limited_ns: 0,
                gap_ns: 0,
                allowed: 0,
                wakes_at: u64::MAX,
                follows: u32::MAX,
            }
        };
        let idle = Slot {
            issued: 0,
            object: 0,
            objects: 0,
            op: LoadOp::Read,
            stage: Stage::Done,
            through: None,
            versions: 0,
            inside: None,
        };
        let zone = model
            .responder
            .as_ref()
            .map_or(Bytes::mib(64), |r| r.warm.zone);
        let monitor = |c: &(u32, u32)| Monitor::new(c.0, c.1, zone);
        let mut world = Self {
            workloads: w,
            slots_each,
            clients: (0..2 * w).map(client).collect(),
            slots: vec![idle; 2 * w * slots_each],
            heap: EventHeap::new(),
            backend: Backend::new(model.array.clone(), &classes, model.seed),
            link: Turns::new(2 * w),
            monitors: classes.iter().map(monitor).collect(),
            nodes: Vec::new(),
            nodes_of: vec![Vec::new(); w],
            paths: vec![Path::Backend; w],
            lost_at: 0,
            first,
            bytes: classes.iter().map(|c| c.1).collect(),
            uses: model.workloads.iter().map(|w| w.uses).collect(),
            own_free: vec![0; w],
            own: JitterTable::new(0.4),
            appliance: model.appliance,
            waf: waf_of(model),
            versions: classes.iter().map(|c| vec![0; c.0 as usize]).collect(),
            stale: 0,
            group: model
                .elsewhere
                .as_ref()
                .map(|e| Group::new(e.spare_per_s, model.seed)),
            movers: classes.iter().map(|_| None).collect(),
            away: vec![None; w],
            copies: Vec::new(),
            spans: model.spans.clone(),
            latencies: vec![Histogram::default(); w * model.spans.len()],
            now: 0,
            end: model.duration.0,
            requests: 0,
            seed: model.seed,
        };
        for (c, workload) in model.workloads.iter().enumerate() {
            if workload.memory_before == MemoryBefore::Full {
                (0..workload.objects).for_each(|o| world.backend.memory.keep(c, o));
            }
        }
        world.heap.push(super::SAMPLE.0, world.sample_id());
        (0..w).for_each(|c| world.issue(c));
        world
    }

    fn source_id(&self, client: usize) -> u32 {
        (self.slots.len() + client) as u32
    }

    fn sample_id(&self) -> u32 {
        (self.slots.len() + self.clients.len()) as u32
    }

    fn link_id(&self) -> u32 {
        self.sample_id() + 1
    }

    /// Wakes the caller at a time.
    pub(super) fn wake_at(&mut self, at: u64) {
        self.heap.push(at, self.sample_id() + 2);
    }

    /// Runs until the caller is needed.
    pub(super) fn run(&mut self) -> Wake {
        let slots = self.slots.len() as u32;
        while let Some((time, id)) = self.heap.pop() {
            if time > self.end {
                break;
            }
            self.now = time;
            if id < slots {
                let slot = id as usize;
                match self.slots[slot].stage {
                    Stage::Arriving => self.backend_read(slot, Access::Random),
                    Stage::Disk => self.off_disk(slot),
                    Stage::Done => {
                        let client = slot / self.slots_each;
                        self.complete(slot, client);
                        self.issue(client);
                        if self.warmed(client) {
                            return Wake::Warmed(client - self.workloads);
                        }
                    }
                }
            } else if id < self.sample_id() {
                let client = (id - slots) as usize;
                if self.clients[client].wakes_at == time {
                    self.clients[client].wakes_at = u64::MAX;
                    self.issue(client);
                    if self.warmed(client) {
                        return Wake::Warmed(client - self.workloads);
                    }
                }
            } else if id == self.link_id() {
                let (slot, next) = self.link.sent();
                self.heap.push(time + self.backend.controller(), slot);
                if let Some(bytes) = next {
                    self.transmit(bytes);
                }
            } else if id == self.sample_id() {
                self.heap.push(time + super::SAMPLE.0, id);
                return Wake::Sample;
            } else {
                return Wake::Control;
            }
        }
        Wake::End
    }

    /// Whether a warm-up has just ended.
    fn warmed(&mut self, client: usize) -> bool {
        let c = &mut self.clients[client];
        match &c.source {
            Source::Warm(Some(run)) if run.zones.is_empty() && c.outstanding == 0 => {
                c.source = Source::Warm(None);
                true
            }
            _ => false,
        }
    }

    /// Issues what may be issued now, and says when to look again.
    pub(super) fn issue(&mut self, client: usize) {
        while !self.clients[client].free.is_empty() {
            let Some(at) = self.next_at(client) else {
                return;
            };
            let c = &mut self.clients[client];
            let at = at.max(c.allowed);
            if at > self.now {
                if at < c.wakes_at {
                    c.wakes_at = at;
                    let id = self.source_id(client);
                    self.heap.push(at, id);
                }
                return;
            }
            let gap = c.gap_ns;
            c.allowed = self.now.max(c.allowed) + gap;
            let request = match &mut c.source {
                Source::Load(arrivals) => arrivals.take(self.now),
                Source::Warm(run) => {
                    let run = run.as_mut().expect("it had a next one");
                    let zone = run.zones.last_mut().expect("it had a next one");
                    let object = zone.0;
                    *zone = (object + 1, zone.1 - 1);
                    if zone.1 == 0 {
                        run.zones.pop();
                    }
                    c.allowed = self.now + run.gap_ns;
                    RecordedRequest {
                        at: Nanos(self.now),
                        object,
                        objects: 1,
                        op: LoadOp::Read,
                    }
                }
            };
            self.start(client, &request);
        }
    }

    /// When the next request of a client is due; `None` where it has none, or must not issue any.
    fn next_at(&mut self, client: usize) -> Option<u64> {
        if client < self.workloads && self.stands_still(client) {
            return None;
        }
        match &self.clients[client].source {
            Source::Load(arrivals) => arrivals.peek().map(|r| r.at.0),
            Source::Warm(run) => {
                let run = run.as_ref()?;
                (!run.zones.is_empty()).then_some(0)
            }
        }
    }
}
