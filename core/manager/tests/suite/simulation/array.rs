//! Array in memory: extents in slots, moves by batches, increasing counters. It checks its own consistency.

use std::collections::BTreeMap;

use manager::agent::{
    AgentAction, Counts, DeviceSnapshot, ExtentsSnapshot, HeatCursor, HeatSnapshot, MoveEnd,
    Snapshot, VolumeSnapshot, WantedExtents,
};
use manager::wire::{BusyWindow, DeviceIoCounts, Load, LoadOf, MovingWindow, Placed};
use model::{DeviceSpec, ExtentPlaces, ExtentRanges, preset};
use units::DeviceId;

pub const EXTENT: u64 = 64 << 20;

#[derive(Debug, Clone)]
pub struct FakeDevice {
    pub name: String,
    pub tier: String,
    pub slots: u64,
    spec: DeviceSpec,
    io: DeviceIoCounts,
}

#[derive(Debug, Clone)]
pub struct FakeVolume {
    pub name: String,
    class: String,
    pub home: String,
    /// Device and slot of each extent.
    pub extents: Vec<(usize, u64)>,
    pub moving: Option<Move>,
    last_move: Option<MoveEnd>,
    counts: Counts,
    pub rate: f64,
    inject: Option<(u64, u64)>,
    /// First extent of its hot fifth, which gets four fifths of its requests.
    pub hot: usize,
    /// Requests of each extent, and the turn of its last access, since the counters started.
    heat: Vec<(u32, u32)>,
    heat_since_ns: u64,
    turn: u32,
}

impl FakeVolume {
    pub fn is_gold(&self) -> bool {
        self.class == "gold"
    }

    pub fn hot_extents(&self) -> Vec<usize> {
        let n = self.extents.len();
        (0..n.div_ceil(5)).map(|i| (self.hot + i) % n).collect()
    }

    /// Restarts the counters, as a restarted array server does.
    pub fn forget_heat(&mut self) {
        self.heat.clear();
        self.heat_since_ns += 1;
        self.turn = 1;
    }

    fn touch(&mut self, ios: u64) {
        let hot = self.hot_extents();
        self.heat.resize(self.extents.len(), (0, 0));
        let all = self.extents.len() as u64;
        for extent in 0..self.extents.len() {
            let mut own = ios / 5 / all;
            if hot.contains(&extent) {
                own += ios * 4 / 5 / hot.len() as u64;
            }
            if own > 0 {
                let heat = &mut self.heat[extent];
                *heat = (heat.0.wrapping_add(own as u32), self.turn);
            }
        }
    }

    fn look(&mut self, since: Option<HeatCursor>) -> HeatSnapshot {
        let after = since.filter(|s| s.since_ns == self.heat_since_ns);
        let after = after.map_or(0, |s| s.turn);
        let heat = (0..).zip(&self.heat).filter(|(_, h)| h.1 > after);
        let seen = HeatSnapshot {
            at: HeatCursor {
                since_ns: self.heat_since_ns,
                turn: self.turn,
            },
            touched: heat.map(|(e, h)| (e, [h.0, 0])).collect(),
        };
        self.turn += 1;
        seen
    }
}

#[derive(Debug, Clone)]
pub struct Move {
    pub to: usize,
    pub extents: Option<ExtentRanges>,
    rate: u64,
    copied: u64,
    credit: f64,
    cancel: bool,
}

/// Returns the number of a volume's extents that must move to a device and are not on it.
fn elsewhere(v: &FakeVolume, extents: Option<&ExtentRanges>, to: usize) -> u64 {
    let left = v.extents.iter().enumerate();
    left.filter(|(e, place)| place.0 != to && named(extents, *e))
        .count() as u64
}

fn named(extents: Option<&ExtentRanges>, extent: usize) -> bool {
    extents.is_none_or(|all| all.contains(extent as u32))
}

/// Array of one host. It survives its agents.
#[derive(Debug, Clone)]
pub struct FakeArray {
    pub devices: Vec<FakeDevice>,
    pub volumes: Vec<FakeVolume>,
    pub tiers: Vec<String>,
    now_ns: u64,
    /// Time until which moves do not continue.
    pub frozen_until_ns: u64,
    /// True if devices with more than [`CROWD`] requests per second are slow, as in arrays that report use by volume.
    pub crowded: bool,
    /// Throttles of volumes, requests per second.
    pub limits: BTreeMap<String, u64>,
}

/// Requests per second up to which a crowded device is fast.
const CROWD: f64 = 2000.0;

impl FakeArray {
    /// Creates an array with three tiers, two devices on the last one, and volumes spread over them.
    pub fn new(volumes: usize, rng: &mut impl FnMut(u64) -> u64) -> Self {
        let device = |name: &str, tier: &str, slots: u64, model: &str| FakeDevice {
            name: name.into(),
            tier: tier.into(),
            slots,
            spec: preset(model).expect("a preset").spec(),
            io: DeviceIoCounts {
                busy_ns: None,
                ..DeviceIoCounts::default()
            },
        };
        let mut array = Self {
            devices: vec![
                device("fast-0", "fast", 24, "pm953"),
                device("mid-0", "mid", 40, "pm1633"),
                device("slow-0", "slow", 40, "pm863"),
                device("slow-1", "slow", 40, "pm863"),
            ],
            volumes: vec![],
            tiers: ["fast", "mid", "slow"].map(String::from).into(),
            now_ns: 0,
            frozen_until_ns: 0,
            crowded: false,
            limits: BTreeMap::new(),
        };
        for i in 0..volumes {
            let extents = 2 + rng(8);
            let first = rng(4) as usize;
            let mut placed = None;
            for d in 0..4 {
                let d = (first + d) % 4;
                if array.free(d) >= extents {
                    placed = Some(d);
                    break;
                }
            }
            let Some(d) = placed else { continue };
            let slots = (0..extents).map(|_| 0).collect::<Vec<u64>>();
            let mut volume = FakeVolume {
                name: format!("v{i}"),
                class: ["gold", "silver", "nobody-knows"][rng(3) as usize].into(),
                home: array.devices[d].tier.clone(),
                extents: vec![],
                moving: None,
                last_move: None,
                counts: Counts {
                    sample: None,
                    since_ns: 1,
                    total: Load::default(),
                },
                rate: (50 << rng(6)) as f64,
                inject: None,
                hot: rng(10) as usize,
                heat: vec![],
                heat_since_ns: 1,
                turn: 1,
            };
            array.volumes.push(volume.clone());
            for _ in slots {
                let slot = array.free_slot(d).expect("there is room");
                array
                    .volumes
                    .last_mut()
                    .expect("just pushed")
                    .extents
                    .push((d, slot));
            }
            volume = array.volumes.pop().expect("just pushed");
            array.volumes.push(volume);
        }
        array
    }

    fn taken(&self, device: usize) -> Vec<u64> {
        let all = self.volumes.iter().flat_map(|v| &v.extents);
        all.filter(|e| e.0 == device).map(|e| e.1).collect()
    }

    fn free(&self, device: usize) -> u64 {
        self.devices[device].slots - self.taken(device).len() as u64
    }

    fn free_slot(&self, device: usize) -> Option<u64> {
        let taken = self.taken(device);
        (0..self.devices[device].slots).find(|s| !taken.contains(s))
    }

    /// Checks that no slot belongs to two extents, and that none is beyond its device.
    pub fn check(&self) {
        let mut owners = BTreeMap::new();
        for v in &self.volumes {
            for (i, place) in v.extents.iter().enumerate() {
                assert!(
                    place.1 < self.devices[place.0].slots,
                    "{} lies beyond its device",
                    v.name
                );
                if let Some(other) = owners.insert(*place, (&v.name, i)) {
                    panic!("{place:?} belongs to {other:?} and {:?}", (&v.name, i));
                }
            }
        }
    }

    /// Adds extents to a volume on its home tier. Returns true if that tier is full.
    pub fn grow(&mut self, volume: usize, extents: u64) -> bool {
        for _ in 0..extents {
            let home = &self.volumes[volume].home;
            let place = (0..self.devices.len())
                .filter(|d| self.devices[*d].tier == *home)
                .find_map(|d| Some((d, self.free_slot(d)?)));
            match place {
                Some(place) => self.volumes[volume].extents.push(place),
                None => return true,
            }
        }
        false
    }

    pub fn step(&mut self, dt_ns: u64) {
        self.now_ns += dt_ns;
        let seconds = dt_ns as f64 / 1e9;
        let frozen = self.now_ns < self.frozen_until_ns;
        for i in 0..self.volumes.len() {
            self.serve(i, seconds);
            if !frozen {
                self.go_on(i, seconds);
            }
        }
        self.check();
    }

    /// Serves the guests' requests, with latencies by tier and injected latencies.
    fn serve(&mut self, i: usize, seconds: f64) {
        let on = |v: &FakeVolume| v.extents.first().map_or(0, |e| e.0);
        let limits = &self.limits;
        let gets = |v: &FakeVolume| {
            let limit = limits.get(&v.name).map_or(f64::INFINITY, |l| *l as f64);
            v.rate.min(limit)
        };
        let device = on(&self.volumes[i]);
        let asked = self.volumes.iter().filter(|v| on(v) == device).map(gets);
        let crowd = self.crowded && asked.sum::<f64>() > CROWD;
        let (rate, held) = {
            let v = &self.volumes[i];
            (gets(v), gets(v) < v.rate)
        };
        let v = &mut self.volumes[i];
        let ios = (rate * seconds) as u64;
        let bare_ns = match crowd {
            true => 5_000_000,
            false => [100_000, 300_000, 900_000, 900_000][device],
        };
        let held_ns = v
            .inject
            .filter(|(_, until)| *until > self.now_ns)
            .map_or(0, |(delay, _)| delay);
        let latency_ns = bare_ns + held_ns;
        let mut add = LoadOf {
            ios,
            bytes: ios * 4096,
            sum_ns: ios * latency_ns,
            held_ns: ios * held_ns,
            buckets: vec![(algo::bucket_of(latency_ns) as u16, ios)],
        };
        if ios == 0 {
            add.buckets.clear();
        }
        v.counts.total.reads.add(&add);
        v.counts.total.depth_ns += ios * latency_ns;
        v.touch(ios);
        let name = self.devices[device].name.clone();
        let took_ns = (ios as f64 / CROWD * 1e9) as u64;
        if self.crowded {
            let sample = v.counts.sample.get_or_insert_default();
            let passed_ns = (seconds * 1e9) as u64;
            sample.issued += ios;
            sample.array_reads += ios;
            sample.occupied_ns += if held { passed_ns } else { passed_ns / 2 };
            sample.waiting = if held { 16 } else { 0 };
            let busy = sample.busy.iter_mut().find(|b| b.resource == name);
            match busy {
                Some(busy) => busy.reads_ns += took_ns,
                None => sample.busy.push(BusyWindow {
                    resource: name,
                    reads_ns: took_ns,
                    writes_ns: 0,
                }),
            }
        }
        let crowded = self.crowded;
        let io = &mut self.devices[device].io;
        if crowded {
            *io.busy_ns.get_or_insert(0) += took_ns;
        }
        io.reads += ios;
        io.read_bytes += ios * 4096;
    }

    fn go_on(&mut self, i: usize, seconds: f64) {
        let Some(mut moving) = self.volumes[i].moving.take() else {
            return;
        };
        if moving.cancel {
            self.volumes[i].last_move = Some(MoveEnd::Stopped {
                why: "cancelled".into(),
                copied_bytes: moving.copied,
                failed_io: None,
            });
            return;
        }
        moving.credit += moving.rate as f64 * seconds;
        while moving.credit >= EXTENT as f64 {
            let mut places = self.volumes[i].extents.iter().enumerate();
            let extents = moving.extents.as_ref();
            let next = places.find(|(e, place)| place.0 != moving.to && named(extents, *e));
            let next = next.map(|n| n.0);
            let Some(next) = next else { break };
            let Some(slot) = self.free_slot(moving.to) else {
                self.volumes[i].last_move = Some(MoveEnd::Stopped {
                    why: "no space on the target".into(),
                    copied_bytes: moving.copied,
                    failed_io: None,
                });
                return;
            };
            moving.credit -= EXTENT as f64;
            moving.copied += EXTENT;
            // The batch is copied, switched and released.
            self.volumes[i].extents[next] = (moving.to, slot);
            self.devices[moving.to].io.writes += 256;
            self.devices[moving.to].io.write_bytes += EXTENT;
        }
        if elsewhere(&self.volumes[i], moving.extents.as_ref(), moving.to) == 0 {
            self.volumes[i].last_move = Some(MoveEnd::Done {
                copied_bytes: moving.copied,
            });
        } else {
            self.volumes[i].moving = Some(moving);
        }
    }

    pub fn carry_out(&mut self, action: &AgentAction) -> Result<(), String> {
        match action {
            AgentAction::StartMove(order) => {
                let to = self
                    .devices
                    .iter()
                    .position(|d| d.name == order.device)
                    .ok_or("no such device")?;
                let need = {
                    let v = self
                        .volumes
                        .iter()
                        .find(|v| v.name == order.volume)
                        .ok_or("no such volume")?;
                    if v.moving.is_some() {
                        return Err("it is being moved already".into());
                    }
                    elsewhere(v, order.extents.as_ref(), to)
                };
                let promised: u64 = self
                    .volumes
                    .iter()
                    .filter_map(|v| v.moving.as_ref().map(|m| (v, m)))
                    .filter(|(_, m)| m.to == to)
                    .map(|(v, m)| elsewhere(v, m.extents.as_ref(), to))
                    .sum();
                if need + promised > self.free(to) {
                    return Err(format!("device {} has no room", order.device));
                }
                let v = self
                    .volumes
                    .iter_mut()
                    .find(|v| v.name == order.volume)
                    .expect("as above");
                if order.extents.is_none() {
                    v.home = order.tier.clone();
                }
                v.moving = Some(Move {
                    to,
                    extents: order.extents.clone(),
                    rate: order.rate_bytes_per_s,
                    copied: 0,
                    credit: 0.0,
                    cancel: false,
                });
                Ok(())
            }
            AgentAction::CancelMove { volume } => {
                let v = self
                    .volumes
                    .iter_mut()
                    .find(|v| v.name == *volume)
                    .ok_or("no such volume")?;
                match &mut v.moving {
                    Some(m) => m.cancel = true,
                    None => return Err("it is not being moved".into()),
                }
                Ok(())
            }
            AgentAction::Inject {
                volume,
                delay_ns,
                lasting_ns,
            } => {
                let now = self.now_ns;
                let v = self
                    .volumes
                    .iter_mut()
                    .find(|v| v.name == *volume)
                    .ok_or("no such volume")?;
                v.inject = Some((*delay_ns, now + lasting_ns));
                Ok(())
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

    /// Returns the places of data, by volume and device.
    pub fn places(&self) -> Vec<(String, String)> {
        let all = self.volumes.iter().flat_map(|v| {
            let places = v.extents.iter();
            places.map(|(device, _)| (v.name.clone(), self.devices[*device].name.clone()))
        });
        let all: std::collections::BTreeSet<_> = all.collect();
        all.into_iter().collect()
    }

    /// Returns true if latency is being injected into any volume.
    pub fn injecting(&self) -> bool {
        let now = self.now_ns;
        self.volumes.iter().any(|v| {
            v.inject
                .is_some_and(|(delay, until)| delay > 0 && until > now)
        })
    }

    /// Adds the extents of some volumes to a snapshot.
    pub fn look_at_extents(&mut self, wanted: Vec<WantedExtents>, snapshot: &mut Snapshot) {
        for WantedExtents { volume, since } in wanted {
            let v = self.volumes.iter_mut().find(|v| v.name == volume);
            let v = v.expect("it was just seen");
            let places = v.extents.iter().map(|e| Some(DeviceId::from_index(e.0)));
            let extents = ExtentsSnapshot {
                extent_bytes: EXTENT,
                places: ExtentPlaces::of(places),
                heat: Some(v.look(since)),
            };
            let seen = snapshot.volumes.iter_mut().find(|v| v.name == volume);
            seen.expect("it was just seen").extents = Some(extents);
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        let devices = self
            .devices
            .iter()
            .enumerate()
            .map(|(i, d)| DeviceSnapshot {
                name: d.name.clone(),
                tier: d.tier.clone(),
                size_bytes: d.slots * EXTENT,
                used_bytes: self.taken(i).len() as u64 * EXTENT,
                emulate: Some(d.spec.clone()),
                connected: true,
                place: None,
                since_ns: 1,
                io: d.io,
                errors: vec![],
                node: None,
            });
        let volumes = self.volumes.iter().map(|v| {
            let mut placed: Vec<Placed> = vec![];
            for (i, d) in self.devices.iter().enumerate() {
                let n = v.extents.iter().filter(|e| e.0 == i).count() as u64;
                if n > 0 {
                    placed.push(Placed {
                        device: d.name.clone(),
                        bytes: n * EXTENT,
                    });
                }
            }
            VolumeSnapshot {
                name: v.name.clone(),
                class: v.class.clone(),
                size_bytes: v.extents.len() as u64 * EXTENT,
                home: v.home.clone(),
                placed,
                movable: true,
                bound: None,
                by_hand: None,
                throttle: None,
                moving: v.moving.as_ref().map(|m| MovingWindow {
                    device: self.devices[m.to].name.clone(),
                    copied_bytes: m.copied,
                    left_bytes: elsewhere(v, m.extents.as_ref(), m.to) * EXTENT,
                    rate_bytes_per_s: m.rate,
                    extents: m.extents.clone(),
                }),
                last_move: v.last_move.clone(),
                counts: Some(v.counts.clone()),
                cache: None,
                can_mirror: false,
                mirror: None,
                reuse: None,
                extents: None,
                node: None,
            }
        });
        Snapshot {
            tiers: self.tiers.clone(),
            devices: devices.collect(),
            volumes: volumes.collect(),
            problems: vec![],
            second: None,
        }
    }
}
