//! All interleavings of two servers on a simulated device, with a bounded number of disturbances.
//!
//! A disturbance is a slow request (carried out early or late), a failed request that is carried
//! out late, or a server that is stopped for a while (SIGSTOP) before a request or after its
//! result.

use super::super::claim::tests::claim;
use super::super::refusal::Refusal;
use super::*;

/// Duration of an undisturbed request.
const QUICK_NS: u64 = 10_000_000;

/// Longer than the limit of a heartbeat, shorter than a lease.
const SLOW_NS: u64 = BEAT_LIMIT_NS + INTERVAL_NS / 4;

/// Shorter than the limit of a heartbeat.
const SHORT_NS: u64 = 3 * BEAT_LIMIT_NS / 4;

/// Shorter than a lease, but a heartbeat that takes so long ends after a contender's wait.
const LONG_NS: u64 = WAIT_NS - INTERVAL_NS + INTERVAL_NS / 8;

/// Longer than a lease and the wait of a contender together.
const STOP_NS: u64 = LEASE_NS + WAIT_NS + INTERVAL_NS;

const HOME_A: u128 = 0xa;
const HOME_B: u128 = 0xb;

/// Choices of a run. Successive runs go through all combinations.
struct Choices {
    made: Vec<(usize, usize)>,
    at: usize,
    /// Number of disturbances left in this run.
    left: usize,
    seed: Option<u64>,
}

impl Choices {
    fn exhaustive() -> Self {
        Self {
            made: vec![],
            at: 0,
            left: 0,
            seed: None,
        }
    }

    fn choose(&mut self, of: usize) -> usize {
        if let Some(seed) = &mut self.seed {
            *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            return (*seed >> 33) as usize % of;
        }
        if self.at == self.made.len() {
            self.made.push((0, of));
        }
        let (chosen, all) = self.made[self.at];
        assert_eq!(all, of, "a run is not a function of its choices");
        self.at += 1;
        chosen
    }

    /// Returns a disturbance, or 0 for none.
    fn disturb(&mut self) -> usize {
        if self.left == 0 {
            return 0;
        }
        // In a random run most requests are undisturbed.
        let none = self.seed.is_some() && self.choose(8) > 0;
        let of = if self.seed.is_some() { 100 } else { 9 };
        let chosen = if none { 0 } else { self.choose(of) };
        self.left -= usize::from(chosen > 0);
        chosen
    }

    /// Advances to the next combination; returns false after the last one.
    fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, of)) = self.made.pop() {
            if chosen + 1 < of {
                self.made.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

/// Content of the device.
#[derive(Clone)]
struct Disk {
    owner: ClaimContent,
    contender: ClaimContent,
    superblock: u128,
}

enum Effect {
    Read(Place),
    Write(Place, ClaimContent),
    Compare,
    Stamp,
}

/// A request or a sleep under way.
struct PendingStep {
    /// Time when the device carries out the request; `None` afterwards and for a sleep.
    effect_ns: Option<u64>,
    effect: Option<Effect>,
    event: Event,
    /// Time when the server continues with the result.
    back_ns: u64,
}

struct Server {
    id: u128,
    protocol: Protocol,
    lease_ns: u64,
    /// Superblock that the server expects.
    superblock: u128,
    stamped: bool,
    refused: Option<Refusal>,
    pending: Option<PendingStep>,
    /// Late writes that the server no longer waits for.
    late: Vec<(u64, Effect)>,
}

impl Server {
    fn new(id: u128, home: u128, rights: Rights, at_ns: u64, disk: &Disk) -> Self {
        let mine = claim(ClaimState::Claiming, home, id);
        Self {
            id,
            protocol: Protocol::new(mine, rights),
            lease_ns: 0,
            superblock: disk.superblock,
            stamped: false,
            refused: None,
            pending: Some(PendingStep {
                effect_ns: None,
                effect: None,
                event: Event::Go,
                back_ns: at_ns,
            }),
            late: vec![],
        }
    }
}

struct Run<'a> {
    disk: Disk,
    servers: Vec<Server>,
    choices: &'a mut Choices,
    now_ns: u64,
    ends_ns: u64,
    log: Vec<String>,
}

impl Run<'_> {
    /// Carries out all steps by time. Checks after each step that at most one server may
    /// write.
    fn run(&mut self) {
        let mut started = vec![false; self.servers.len()];
        while let Some((at_ns, server, which)) = self.next_step() {
            if at_ns > self.ends_ns || self.is_over() {
                return;
            }
            self.now_ns = at_ns;
            match which {
                Step::Late(index) => {
                    let (_, effect) = self.servers[server].late.remove(index);
                    self.carry_out(server, effect);
                }
                Step::Effect => {
                    let pending = self.servers[server].pending.as_mut().unwrap();
                    pending.effect_ns = None;
                    let effect = pending.effect.take().unwrap();
                    let event = self.carry_out(server, effect);
                    let pending = self.servers[server].pending.as_mut().unwrap();
                    if pending.event != Event::Failed {
                        pending.event = event;
                    }
                }
                Step::Back => {
                    let event = self.servers[server].pending.take().unwrap().event;
                    let now_ns = self.now_ns;
                    let one = &mut self.servers[server];
                    let action = match std::mem::replace(&mut started[server], true) {
                        false => one.protocol.start(now_ns),
                        true => one.protocol.step(now_ns, event),
                    };
                    self.begin(server, action);
                }
            }
            let owners = self.servers.iter().filter(|s| self.now_ns < s.lease_ns);
            let owners: Vec<u128> = owners.map(|s| s.id).collect();
            assert!(
                owners.len() < 2,
                "two owners {owners:?} at {} ms, seed {:?}, choices {:?}\n{}",
                self.now_ns / 1_000_000,
                self.choices.seed,
                self.choices.made,
                self.log.join("\n")
            );
        }
    }

    fn next_step(&mut self) -> Option<(u64, usize, Step)> {
        let mut steps = vec![];
        for (index, server) in self.servers.iter().enumerate() {
            let late = server.late.iter().enumerate();
            steps.extend(late.map(|(i, (at, _))| (*at, index, Step::Late(i))));
            if let Some(pending) = &server.pending {
                match pending.effect_ns {
                    Some(at_ns) => steps.push((at_ns, index, Step::Effect)),
                    None => steps.push((pending.back_ns, index, Step::Back)),
                }
            }
        }
        let first = steps.iter().map(|s| s.0).min()?;
        let mut steps: Vec<_> = steps.into_iter().filter(|s| s.0 == first).collect();
        // Simultaneous steps can happen in any order, which matters only if one of two requests is
        // a write.
        let requests = steps.iter().filter_map(|s| self.effect(s));
        let (writes, requests) = requests.fold((0, 0), |(writes, all), effect| {
            let write = matches!(effect, Effect::Write(..) | Effect::Stamp);
            (writes + usize::from(write), all + 1)
        });
        let chosen = match writes > 0 && requests > 1 {
            true => self.choices.choose(steps.len()),
            false => 0,
        };
        Some(steps.swap_remove(chosen))
    }

    fn effect(&self, (_, server, step): &(u64, usize, Step)) -> Option<&Effect> {
        let server = &self.servers[*server];
        match step {
            Step::Late(index) => Some(&server.late[*index].1),
            Step::Effect => server.pending.as_ref()?.effect.as_ref(),
            Step::Back => None,
        }
    }

    /// Returns true if the outcome is final: at most one server is left, it owns the device, and no
    /// late write is pending.
    fn is_over(&self) -> bool {
        let mut left = self.servers.iter().filter(|s| s.refused.is_none());
        let owns = left.next().is_none_or(|s| s.stamped);
        let late = self.servers.iter().any(|s| !s.late.is_empty());
        self.servers.len() > 1 && owns && left.next().is_none() && !late
    }

    fn carry_out(&mut self, server: usize, effect: Effect) -> Event {
        let disk = &mut self.disk;
        let one = &mut self.servers[server];
        match effect {
            Effect::Read(Place::Owner) => Event::Read(disk.owner.clone()),
            Effect::Read(Place::Contender) => Event::Read(disk.contender.clone()),
            Effect::Write(place, found) => {
                let written = found.claim().map(|c| (c.state, c.generation, c.counter));
                let at = self.now_ns / 1_000_000;
                self.log
                    .push(format!("{at} {:x}: {place:?} := {written:?}", one.id));
                match place {
                    Place::Owner => disk.owner = found,
                    Place::Contender => disk.contender = found,
                }
                Event::Written
            }
            Effect::Compare => Event::Same(disk.superblock == one.superblock),
            // The driver checks the lease right before a stamp.
            Effect::Stamp => {
                if self.now_ns < one.lease_ns {
                    disk.superblock = one.id;
                    one.superblock = one.id;
                    one.stamped = true;
                }
                Event::Go
            }
        }
    }

    fn begin(&mut self, server: usize, action: Action) {
        let now_ns = self.now_ns;
        let one = &mut self.servers[server];
        let effect = match action {
            Action::Refuse(why) => {
                let at = now_ns / 1_000_000;
                self.log.push(format!("{at} {:x}: refused {why:?}", one.id));
                one.lease_ns = 0;
                one.refused = Some(why);
                return;
            }
            Action::Sleep { until_ns } => {
                one.pending = Some(PendingStep {
                    effect_ns: None,
                    effect: None,
                    event: Event::Go,
                    back_ns: until_ns.max(now_ns),
                });
                return;
            }
            Action::Grant { until_ns } => {
                let at = now_ns / 1_000_000;
                let until = until_ns / 1_000_000;
                self.log
                    .push(format!("{at} {:x}: owner until {until}", one.id));
                one.lease_ns = until_ns;
                match one.stamped {
                    false => Effect::Stamp,
                    true => {
                        one.pending = Some(PendingStep {
                            effect_ns: None,
                            effect: None,
                            event: Event::Go,
                            back_ns: now_ns,
                        });
                        return;
                    }
                }
            }
            Action::Read(place) => Effect::Read(place),
            Action::CompareSuperblock => Effect::Compare,
            Action::Write { place, claim, .. } => {
                let found = claim.map_or(ClaimContent::Blank, ClaimContent::Claim);
                Effect::Write(place, found)
            }
        };
        // Start, effect and return of the request, and true if the server sees a failure.
        let (begin_ns, effect_ns, back_ns, failed) = match self.choices.disturb() {
            0 => (0, QUICK_NS / 2, QUICK_NS, false),
            1 => (0, 0, SLOW_NS, false),
            2 => (0, SLOW_NS, SLOW_NS, false),
            3 => (STOP_NS, QUICK_NS / 2, QUICK_NS, false),
            4 => (0, QUICK_NS / 2, STOP_NS, false),
            5 => (0, STOP_NS, QUICK_NS, true),
            6 => (0, SHORT_NS, SHORT_NS, false),
            7 => (0, LONG_NS, LONG_NS, false),
            8 => (0, STOP_NS, STOP_NS, false),
            // A disturbance of random length.
            length => {
                let ns = (length as u64 - 8) * INTERVAL_NS / 16;
                match self.choices.choose(3) {
                    0 => (ns, QUICK_NS / 2, QUICK_NS, false),
                    1 => (0, QUICK_NS / 2, ns, false),
                    _ => (0, ns, ns, false),
                }
            }
        };
        let at_ns = now_ns + begin_ns;
        let one = &mut self.servers[server];
        if failed {
            if !matches!(effect, Effect::Stamp) {
                one.late.push((at_ns + effect_ns, effect));
            }
            one.pending = Some(PendingStep {
                effect_ns: None,
                effect: None,
                event: Event::Failed,
                back_ns: at_ns + back_ns,
            });
            return;
        }
        one.pending = Some(PendingStep {
            effect_ns: Some(at_ns + effect_ns),
            effect: Some(effect),
            event: Event::Go,
            back_ns: at_ns + back_ns,
        });
    }
}

enum Step {
    Late(usize),
    Effect,
    Back,
}

const PLAIN: Rights = Rights {
    force: false,
    new: false,
};
const FORCE: Rights = Rights {
    force: true,
    new: false,
};

/// Servers that start on a device: array directory, rights, time of the start.
type Starts<'a> = &'a [(u128, Rights, u64)];

fn disk(owner: ClaimContent) -> Disk {
    Disk {
        owner,
        contender: ClaimContent::Blank,
        superblock: 0,
    }
}

fn released_by(home: u128) -> Disk {
    disk(ClaimContent::Claim(claim(
        ClaimState::Released,
        home,
        0xdead,
    )))
}

fn left_by(home: u128) -> Disk {
    disk(ClaimContent::Claim(claim(ClaimState::Owned, home, 0xdead)))
}

/// Runs servers with the given choices. Returns for each server its refusal or the end of its
/// lease.
fn run(
    disk: &Disk,
    starts: Starts<'_>,
    disturbances: usize,
    choices: &mut Choices,
) -> Vec<Result<u64, Refusal>> {
    choices.left = disturbances;
    let started = (1..).zip(starts);
    let servers = started
        .map(|(id, (home, rights, at_ns))| Server::new(id, *home, *rights, *at_ns, disk))
        .collect();
    let last = starts.iter().map(|s| s.2).max().unwrap_or(0);
    let mut run = Run {
        disk: disk.clone(),
        servers,
        choices,
        now_ns: 0,
        ends_ns: last + STOP_NS + 3 * WAIT_NS,
        log: vec![],
    };
    run.run();
    let ended = run.servers.iter().map(|s| match &s.refused {
        Some(why) => Err(why.clone()),
        None => Ok(s.lease_ns),
    });
    ended.collect()
}

/// Runs all combinations with the given number of disturbances; returns their number.
fn all(disk: &Disk, starts: Starts<'_>, disturbances: usize) -> usize {
    let mut choices = Choices::exhaustive();
    let mut count = 0;
    loop {
        run(disk, starts, disturbances, &mut choices);
        count += 1;
        if !choices.next() {
            return count;
        }
    }
}

/// Offsets between two nearly simultaneous starts.
const APART_NS: [u64; 6] = [
    0,
    QUICK_NS / 2,
    QUICK_NS,
    3 * QUICK_NS / 2,
    2 * QUICK_NS,
    5 * QUICK_NS,
];

#[test]
fn start_after_an_orderly_stop_owns_without_waiting() {
    let mut choices = Choices::exhaustive();
    let mut first = Server::new(1, HOME_A, PLAIN, 0, &released_by(HOME_A));
    let action = first.protocol.start(0);
    assert_eq!(action, Action::Read(Place::Owner));
    let ends = run(&released_by(HOME_A), &[(HOME_A, PLAIN, 0)], 0, &mut choices);
    assert!(matches!(ends[..], [Ok(lease)] if lease > 0), "{ends:?}");
    // Every action up to the lease is a request: the server does not sleep.
    let mut disk = released_by(HOME_A);
    let (mut action, mut now_ns) = (action, 0);
    loop {
        now_ns += QUICK_NS;
        let event = match action {
            Action::Read(Place::Owner) => Event::Read(disk.owner.clone()),
            Action::Read(Place::Contender) => Event::Read(disk.contender.clone()),
            Action::Write { claim, .. } => {
                disk.owner = ClaimContent::Claim(claim.unwrap());
                Event::Written
            }
            Action::CompareSuperblock => Event::Same(true),
            Action::Grant { .. } => return,
            other => panic!("{other:?}"),
        };
        action = first.protocol.step(now_ns, event);
    }
}

#[test]
fn start_while_the_owner_runs_is_refused_even_with_force() {
    let starts = [(HOME_A, PLAIN, 0), (HOME_B, FORCE, 2 * INTERVAL_NS)];
    let mut choices = Choices::exhaustive();
    let ends = run(&released_by(HOME_A), &starts, 0, &mut choices);
    assert!(matches!(ends[0], Ok(lease) if lease > 0), "{ends:?}");
    assert!(matches!(ends[1], Err(Refusal::Live(_))), "{ends:?}");
}

#[test]
fn unreleased_claim_of_another_directory_needs_force() {
    for (home, rights) in [(HOME_A, PLAIN), (HOME_B, FORCE)] {
        let mut choices = Choices::exhaustive();
        let ends = run(&left_by(HOME_A), &[(home, rights, 0)], 0, &mut choices);
        assert!(matches!(ends[..], [Ok(lease)] if lease > 0), "{ends:?}");
    }
    let mut choices = Choices::exhaustive();
    let ends = run(&left_by(HOME_A), &[(HOME_B, PLAIN, 0)], 0, &mut choices);
    assert!(
        matches!(ends[..], [Err(Refusal::LeftBehind(_))]),
        "{ends:?}"
    );
}

#[test]
fn simultaneous_starts_in_any_interleaving_have_at_most_one_owner() {
    let disks = [
        (released_by(HOME_A), HOME_A, HOME_B, PLAIN),
        (released_by(0xc), HOME_A, HOME_B, PLAIN),
        (disk(ClaimContent::Blank), HOME_A, HOME_B, PLAIN),
        (left_by(HOME_A), HOME_A, HOME_B, FORCE),
        (left_by(0xc), HOME_A, HOME_B, FORCE),
    ];
    let mut count = 0;
    for (disk, one, other, rights) in disks {
        // The offsets include the moments when the first server takes the device over.
        let takes = (0..8).map(|n| WAIT_NS + n * QUICK_NS - QUICK_NS);
        for apart_ns in APART_NS.into_iter().chain(takes) {
            count += all(&disk, &[(one, rights, 0), (other, rights, apart_ns)], 1);
            count += all(&disk, &[(one, rights, apart_ns), (other, rights, 0)], 1);
        }
    }
    println!("{count} interleavings");
}

#[test]
fn forced_take_over_of_a_delayed_owner_has_at_most_one_owner() {
    let mut count = 0;
    // From one heartbeat of the owner to the one after the next.
    for step in 0..40 {
        let at_ns = 2 * INTERVAL_NS + step * INTERVAL_NS / 16;
        let starts = [(HOME_A, PLAIN, 0), (HOME_B, FORCE, at_ns)];
        count += all(&released_by(HOME_A), &starts, 1);
    }
    println!("{count} interleavings");
}

#[test]
fn starts_and_take_overs_with_many_delays_have_at_most_one_owner() {
    let mut owned = 0;
    testkit::seeds::run(0..20_000, |seed| {
        let mut choices = Choices {
            seed: Some(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            ..Choices::exhaustive()
        };
        let disks = [
            released_by(HOME_A),
            left_by(HOME_A),
            left_by(0xc),
            disk(ClaimContent::Blank),
        ];
        let disk = &disks[choices.choose(disks.len())];
        let mut starts = vec![];
        for home in [HOME_A, HOME_B, HOME_B + 1]
            .into_iter()
            .take(2 + choices.choose(2))
        {
            let at_ns = choices.choose(64) as u64 * INTERVAL_NS / 8 * choices.choose(2) as u64;
            starts.push((home, FORCE, at_ns));
        }
        let ends = run(disk, &starts, 12, &mut choices);
        owned += usize::from(ends.iter().any(|e| matches!(e, Ok(lease) if *lease > 0)));
        Ok(())
    });
    assert!(owned > 0);
}

#[test]
fn owner_of_a_slow_device_regains_its_lease() {
    let mut choices = Choices::exhaustive();
    let mut ended = vec![];
    loop {
        ended.extend(run(
            &released_by(HOME_A),
            &[(HOME_A, PLAIN, 0)],
            1,
            &mut choices,
        ));
        if !choices.next() {
            break;
        }
    }
    let owns = |e: &&Result<u64, Refusal>| matches!(e, Ok(lease) if *lease > STOP_NS);
    let refused: Vec<_> = ended.iter().filter(|e| !owns(e)).collect();
    // Requests of the start are not retried: the start fails, and nothing is lost.
    let only_starts = |e: &&Result<u64, Refusal>| **e == Err(Refusal::NoReply);
    assert!(refused.iter().all(only_starts), "{refused:?}");
    assert!(
        refused.len() < ended.len() / 4,
        "{} of {}",
        refused.len(),
        ended.len()
    );
}
