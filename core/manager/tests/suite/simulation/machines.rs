//! Host of virtual machines in memory, with libvirt or plain QEMU, and the part of the agent that moves their disks.
//! The real code decides the steps of moves. libvirt, QEMU and files are small models with the pitfalls of the real
//! ones.
//!
//! ```text
//!   snapshot ─▶ Moves ── vmhost::moving::next ─▶ steps ─▶ Hypervisor ─▶ guests, block jobs, definitions
//!      ▲          │ intents (they survive the agent)           └───────▶ Files
//!      └──────────┴── vmhost::Inventory ◀── observed state
//! ```
//!
//! Each write of a guest increments the version of its disk. A domain that starts from a file with another version was
//! started from a stale image.

mod checks;
mod files;
mod guests;
mod hypervisor;
mod moves;
mod problem;
mod shown;

use std::collections::BTreeMap;

use algo::Rng;
use manager::agent::{AgentAction, Snapshot};
use manager::wire::{DeviceIoCounts, MoveOrder};
use vmhost::builds::CopyInitiator;
use vmhost::moving::Intent;
use vmhost::{Image, Platform};

use files::{Content, Files};
use guests::{FakeDisk, Guest, Open, PIECE, image, path_of};
use hypervisor::Hypervisor;
use moves::{DiskMove, Moves, Stop};

const SECOND: u64 = 1_000_000_000;
/// Free space that a target needs in addition to the image.
const SPARE: u64 = 64 << 20;
/// Requests per second up to which a crowded device is fast, and its rating.
const CROWD: f64 = 2000.0;
/// Wall-clock time at the start.
const BEGAN_S: u64 = 1_790_000_000;

/// Number of events by name.
#[derive(Debug, Default, Clone)]
pub struct EventCounts(pub BTreeMap<&'static str, u64>);

impl EventCounts {
    pub fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &EventCounts) {
        for (what, n) in &other.0 {
            *self.0.entry(what).or_default() += n;
        }
    }
}

/// One host. It survives its agents.
#[derive(Debug)]
pub struct FakeMachines {
    rng: Rng,
    pub host: Hypervisor,
    /// Tiers of its devices.
    tiers: Vec<String>,
    /// True if the kernel counts device I/O, then its counters by device. Busy time includes any time with requests in
    /// flight.
    counted: bool,
    counts: Vec<DeviceIoCounts>,
    /// True if devices with more than [`CROWD`] requests per second are slow.
    pub crowded: bool,
    /// Throttles of volumes, requests per second.
    pub limits: BTreeMap<String, u64>,
    /// Number of the host's present boot.
    boot: u32,
    /// Durable intents of moves.
    pub intents: BTreeMap<String, Intent>,
    /// State of the agent in memory; `None` without an agent.
    moves: Option<Moves>,
    /// True if the agent was killed during an action.
    pub killed: bool,
    /// True while faults are injected.
    with_problem: bool,
    /// Time until which copies do not continue.
    pub frozen_until_ns: u64,
    pub happened: EventCounts,
}

impl FakeMachines {
    /// Creates a host with three tiers, two devices on the last one, and domains with one or two disks spread over
    /// them.
    pub fn new(domains: usize, mut rng: Rng) -> Self {
        let devices = [
            ("fast-0", 24),
            ("mid-0", 40),
            ("slow-0", 40),
            ("slow-1", 40),
        ];
        let devices = devices.map(|(n, pieces)| (n.to_string(), pieces * PIECE));
        let mut files = Files::new(devices.into());
        let mut guests = vec![];
        let mut number = 0;
        for i in 0..domains {
            let kind = rng.below(8);
            let mut disks = vec![];
            for target in ["vda", "vdb"].iter().take(1 + rng.below(2) as usize) {
                let pieces = 2 + rng.below(7);
                let first = rng.below(4) as usize;
                let mut fits = (0..4).map(|d| (first + d) % 4);
                let Some(device) = fits.find(|d| files.free(*d) >= (pieces + 2) * PIECE) else {
                    continue;
                };
                let path = format!("/{}/d{i}-{target}.img", files.devices[device].0);
                let image = image(&path);
                let file = files.make(&path).expect("there is none");
                let content = Some(Content {
                    disk: number,
                    version: 0,
                });
                let made = files.get_mut(file);
                made.capacity = (pieces + rng.below(4)) * PIECE;
                made.bytes = pieces * PIECE;
                (made.content, made.flushed) = (content, content);
                disks.push(FakeDisk {
                    number,
                    target: (*target).into(),
                    class: ["gold", "silver", "nobody-knows"][rng.below(3) as usize].into(),
                    capacity: made.capacity,
                    acknowledged: 0,
                    live: Some(Open {
                        image: image.clone(),
                        file,
                    }),
                    defined: image.clone(),
                    durable: image.clone(),
                    last: image,
                    job: None,
                    ios: 0,
                    time_ns: 0,
                    rate: (50 << rng.below(6)) as f64,
                    stays: rng.below(8) == 0,
                    snapshot: false,
                    iothread: rng.below(3) == 0,
                    placed_ns: 0,
                    chosen: false,
                });
                number += 1;
            }
            guests.push(Guest {
                name: format!("d{i}"),
                uuid: format!("uuid-{i}"),
                life: Some(i as u32 + 1),
                paused: None,
                resumed_ns: None,
                let_go: false,
                back_ns: 0,
                started_ns: 0,
                platform: (kind == 0).then_some(Platform::OpenStack),
                fault: (kind == 1).then(|| "its QEMU has a known fault".into()),
                disks,
            });
        }
        guests.retain(|g| !g.disks.is_empty());
        let plain = rng.below(3) == 0;
        Self {
            host: Hypervisor {
                plain,
                next_life: guests.len() as u32 + 1,
                guests,
                files,
                now_ns: 0,
                late: vec![],
            },
            tiers: ["fast", "mid", "slow"].map(String::from).into(),
            counted: rng.below(2) == 0,
            counts: vec![DeviceIoCounts::default(); 4],
            crowded: false,
            limits: BTreeMap::new(),
            rng,
            boot: 1,
            intents: BTreeMap::new(),
            moves: None,
            killed: false,
            with_problem: false,
            frozen_until_ns: 0,
            happened: EventCounts::default(),
        }
    }

    fn now_s(&self) -> u64 {
        BEGAN_S + self.host.now_ns / SECOND
    }

    /// Returns true if an action fails now, with a probability of one in `of`.
    fn fails(&mut self, of: u64) -> bool {
        self.with_problem && self.rng.below(of) == 0
    }

    pub fn step(&mut self, dt_ns: u64, with_problem: bool) {
        self.with_problem = with_problem;
        self.host.now_ns += dt_ns;
        let now_ns = self.host.now_ns;
        let (due, later) = std::mem::take(&mut self.host.late)
            .into_iter()
            .partition(|(at, _)| *at <= now_ns);
        self.host.late = later;
        let due: Vec<(u64, hypervisor::Order)> = due;
        for (_, order) in due {
            if self.host.execute(&order).is_ok() {
                self.happened.count("orders carried out late");
            }
        }
        self.serve(dt_ns);
        if now_ns >= self.frozen_until_ns {
            let rng = &mut self.rng;
            // Events are delivered at most once per second, and sometimes much later.
            let mut late_ns = || match with_problem && rng.below(4) == 0 {
                true => rng.below(4) * SECOND,
                false => rng.below(SECOND),
            };
            self.host.copy(dt_ns, &mut late_ns);
        }
        self.go_wrong();
        self.operators_look();
        self.check();
    }

    /// Serves the guests' requests, with latencies by tier and by the load of a device. Counters start with the domain.
    fn serve(&mut self, dt_ns: u64) {
        let Hypervisor { guests, files, .. } = &mut self.host;
        let limits = &self.limits;
        let gets = |volume: &str, disk: &FakeDisk| {
            let limit = limits.get(volume).map_or(f64::INFINITY, |l| *l as f64);
            disk.rate.min(limit)
        };
        let on = |disk: &FakeDisk| disk.live.as_ref().expect("it runs").file.device as usize;
        let mut asked = [0.0; 4];
        for guest in guests.iter().filter(|g| g.runs()) {
            let disks = guest.disks.iter();
            disks.for_each(|d| asked[on(d)] += gets(&guest.volume(d), d));
        }
        for guest in guests.iter_mut().filter(|g| g.runs()) {
            guest.write(files);
            for i in 0..guest.disks.len() {
                let rate = gets(&guest.volume(&guest.disks[i]), &guest.disks[i]);
                let disk = &mut guest.disks[i];
                let device = on(disk);
                let crowd = self.crowded && asked[device] > CROWD;
                let (times, bare_ns) = match crowd {
                    true => (CROWD / asked[device], 5_000_000),
                    false => (1.0, [100_000, 300_000, 900_000, 900_000][device]),
                };
                let ios = (rate * times * dt_ns as f64 / 1e9) as u64;
                disk.ios += ios;
                disk.time_ns += ios * bare_ns;
                self.counts[device].reads += ios;
                self.counts[device].read_bytes += ios * 4096;
            }
        }
        for (counts, asked) in self.counts.iter_mut().zip(asked) {
            // The device is never idle for long, whatever its performance.
            *counts.busy_ns.get_or_insert(0) += if asked > 0.0 { dt_ns } else { 0 };
        }
    }

    /// Reduces the load of all guests from now on.
    pub fn calm_down(&mut self) {
        let disks = self.host.guests.iter_mut().flat_map(|g| &mut g.disks);
        disks.for_each(|d| d.rate = 20.0);
    }

    /// # Errors
    /// Reason that no state is available.
    pub fn snapshot(&mut self) -> Result<Snapshot, String> {
        self.open()?;
        let looked = self.look();
        self.ended(looked)
    }

    fn ended<T>(&mut self, done: moves::StepResult<T>) -> Result<T, String> {
        done.map_err(|stop| match stop {
            Stop::Said(why) | Stop::Silent(why) => why,
            Stop::Killed => {
                self.agent_dies();
                self.killed = true;
                "the agent was killed".into()
            }
        })
    }

    pub fn agent_dies(&mut self) {
        self.moves = None;
    }

    /// # Errors
    /// Reason that the action is not executed.
    pub fn carry_out(&mut self, action: &AgentAction) -> Result<(), String> {
        match action {
            AgentAction::StartMove(order) => {
                let planned = self.plan(order)?;
                let began = self.begin(order, planned);
                self.ended(began)
            }
            AgentAction::CancelMove { volume } => {
                let cancelled = self.cancel(volume);
                self.ended(cancelled)
            }
            AgentAction::Inject { .. } => {
                Err("nothing is delayed on a host of virtual machines".into())
            }
            AgentAction::LendCache { .. }
            | AgentAction::UseNode { .. }
            | AgentAction::StopNode { .. } => Err("there is no cache".into()),
            AgentAction::Mirror { .. } | AgentAction::StopMirror { .. } => {
                Err("there are no second copies".into())
            }
            AgentAction::Throttle { .. } => unreachable!("the world does it"),
        }
    }

    /// Checks whether an order can be executed in the present state. Returns the planned move.
    fn plan(&mut self, order: &MoveOrder) -> Result<DiskMove, String> {
        if order.extents.is_some() {
            return Err("only whole disks are moved".into());
        }
        let files = &self.host.files;
        let mut all = self.host.guests.iter().filter(|g| g.life.is_some());
        let found = all.find_map(|g| {
            let disk = g.disks.iter().find(|d| g.volume(d) == order.volume)?;
            Some((g, disk))
        });
        let (guest, disk) = found.ok_or("there is no such disk in a running domain")?;
        let known = guest.known();
        let of = known.domain.disks.iter().find(|d| d.target == disk.target);
        let of = of.expect("it was just seen");
        if let Err(why) = known.verdict(of, CopyInitiator::Libvirt) {
            self.happened.count("orders refused for what is bound");
            return Err(why.to_string());
        }
        let open = disk.live.as_ref().expect("it runs");
        let device = files.devices.iter().position(|d| d.0 == order.device);
        let device = device.ok_or("there is no such device")?;
        let to = self.target_in(&order.device, &open.image)?;
        let bytes = files.get(open.file).bytes;
        let needed = bytes + SPARE.max(order.rate_bytes_per_s * 8);
        if files.free(device) < needed {
            return Err(format!("{} has no room for {needed} bytes", order.device));
        }
        Ok(DiskMove {
            uuid: guest.uuid.clone(),
            target: disk.target.clone(),
            from: open.image.clone(),
            to,
            capacity: disk.capacity,
            bytes,
            hold: vmhost::builds::holds_at_start(of),
        })
    }

    /// Returns the image of a disk on a device.
    fn target_in(&self, device: &str, from: &Image) -> Result<Image, String> {
        let name = path_of(from).rsplit('/').next().expect("it has a name");
        let stem = name.trim_end_matches(".img");
        let free = (1..=99).map(|n| match n {
            1 => format!("/{device}/{stem}.img"),
            n => format!("/{device}/{stem}-{n}.img"),
        });
        let mut free = free.filter(|path| self.host.files.at(path).is_none());
        let path = free.next().ok_or("it is full of files of this name")?;
        Ok(image(&path))
    }
}
