//! Replies in transit to guests, if volumes share a link by turns (`sharing = "by-turns"`).
//!
//! ```text
//!  served ─▶ queued at the link for its volume's turn ─▶ sent ─▶ latency ─▶ (the next link) ─▶ complete
//! ```
//!
//! The send time of a reply depends on later replies, so it is unknown when the request is issued. In this mode, every
//! reply is an event, also one that uses no link, and its waiter continues when the event occurs.

use super::servers::{FROM_ARRAY, Servers};
use super::watch::Watch;
use crate::agenda::{Agenda, Event};
use crate::engine::Simulation;
use crate::source::{Issue, NEVER};
use crate::world::Waits;

/// Link that a reply uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    pub(super) server: u16,
    pub(super) dir: usize,
    pub(super) bytes: u64,
    /// Time from the end of sending until the reply reaches the next link, or its guest.
    pub(super) after_ns: u64,
}

/// Route of a reply. `at_ns` is the time at which the reply reaches its first link, or its guest if no link remains.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Journey {
    pub(crate) at_ns: u64,
    /// Links still to be passed, the next one first.
    pub(super) hops: [Option<Hop>; 2],
}

impl Journey {
    /// Returns the route of a reply that uses no link and completes at `at_ns`.
    pub(super) fn until(at_ns: u64) -> Self {
        Self {
            at_ns,
            hops: [None; 2],
        }
    }

    /// Returns true if the completion time is known.
    pub(super) fn is_known(&self) -> bool {
        self.hops[0].is_none()
    }

    /// Adds a delay.
    pub(super) fn wait(&mut self, ns: u64) {
        match self.hops.iter_mut().flatten().last() {
            None => self.at_ns += ns,
            Some(last) => last.after_ns += ns,
        }
    }

    pub(super) fn then(&mut self, hop: Hop) {
        let free = self.hops.iter_mut().find(|h| h.is_none());
        *free.expect("no answer takes more than two links") = Some(hop);
    }

    fn event(&self, answer: u32) -> Event {
        match self.hops[0] {
            Some(_) => Event::AtLink(answer),
            None => Event::Answered(answer),
        }
    }
}

/// Waiter for a reply.
#[derive(Clone, Copy)]
pub(crate) enum ReplyWaiter {
    Guest(Waits),
    /// Warm-up, by its number.
    Warm(u32),
}

/// Reply in transit.
pub(crate) struct PendingReply {
    pub(crate) issue: Issue,
    pub(crate) whose: ReplyWaiter,
    /// Index of the part that served it.
    by: usize,
    /// Appliance that the reply passes.
    through: Option<u32>,
    journey: Journey,
}

impl Servers {
    /// Starts the transit of a reply and returns its number.
    pub(crate) fn set_out(
        &mut self,
        issue: &Issue,
        whose: ReplyWaiter,
        (journey, by): (Journey, usize),
        agenda: &mut Agenda,
    ) -> u32 {
        let through = match whose {
            ReplyWaiter::Guest(_) => self.through(issue.volume),
            ReplyWaiter::Warm(_) => None,
        };
        if let Some(appliance) = through.and_then(|n| self.appliance_mut(n)) {
            appliance.inside += 1;
        }
        let on_its_way = PendingReply {
            issue: *issue,
            whose,
            by,
            through,
            journey,
        };
        let answer = match self.free.pop() {
            Some(answer) => {
                self.on_their_way[answer as usize] = Some(on_its_way);
                answer
            }
            None => {
                self.on_their_way.push(Some(on_its_way));
                self.on_their_way.len() as u32 - 1
            }
        };
        agenda.at(journey.at_ns, journey.event(answer));
        answer
    }

    /// Sets the waiter of a reply in transit.
    pub(crate) fn belongs_to(&mut self, answer: u32, waits: Waits) {
        let on_its_way = self.on_their_way[answer as usize].as_mut();
        on_its_way.expect("it has set out").whose = ReplyWaiter::Guest(waits);
    }

    /// Returns the arrival times of a volume's requests whose replies are in transit.
    pub(crate) fn arrivals(&self, volume: usize) -> impl Iterator<Item = u64> {
        let of_guest = move |o: &&PendingReply| {
            matches!(o.whose, ReplyWaiter::Guest(_)) && o.issue.volume as usize == volume
        };
        let all = self.on_their_way.iter().flatten();
        all.filter(of_guest).map(|o| o.issue.arrival_ns)
    }

    /// Queues a reply at a link.
    fn at_link(
        &mut self,
        now_ns: u64,
        answer: u32,
        watch: &mut Option<Box<Watch>>,
        agenda: &mut Agenda,
    ) {
        let on_its_way = self.on_their_way[answer as usize].as_ref();
        let on_its_way = on_its_way.expect("it has not arrived");
        let issue = on_its_way.issue;
        let hop = on_its_way.journey.hops[0].expect("it takes one");
        let warm = matches!(on_its_way.whose, ReplyWaiter::Warm(_));
        let flow = 2 * issue.volume as usize + usize::from(warm);
        let ways = &mut self.ways;
        if !ways.takes_turns(hop.server, hop.dir) {
            let sent_ns = ways.send(&hop, issue.volume, (now_ns, now_ns), watch);
            return self.passed(sent_ns, answer, agenda);
        }
        let takes_ns = ways.counted_ns(&hop, issue.volume, watch);
        let turns = ways.turns[usize::from(hop.server)].as_mut();
        let turns = turns.expect("looked at above");
        if turns.push(flow, answer, hop.bytes as u32).is_some() {
            agenda.at(now_ns + takes_ns, Event::LinkSent(hop.server));
        }
    }

    /// Completes the sending of a reply on a link, and starts the next one.
    fn link_sent(&mut self, now_ns: u64, server: u16, agenda: &mut Agenda) {
        let turns = self.ways.turns[usize::from(server)].as_mut();
        let (answer, next) = turns.expect("it takes turns").sent();
        if let Some(bytes) = next {
            let takes_ns = self.ways.takes_ns(server, FROM_ARRAY, u64::from(bytes));
            agenda.at(now_ns + takes_ns, Event::LinkSent(server));
        }
        self.passed(now_ns, answer, agenda);
    }

    /// Moves a reply past its link.
    fn passed(&mut self, sent_ns: u64, answer: u32, agenda: &mut Agenda) {
        let on_its_way = self.on_their_way[answer as usize].as_mut();
        let journey = &mut on_its_way.expect("it has not arrived").journey;
        let [passed, next] = journey.hops;
        journey.at_ns = sent_ns + passed.expect("it took one").after_ns;
        journey.hops = [next, None];
        agenda.at(journey.at_ns, journey.event(answer));
    }

    /// Removes a reply that has arrived and returns it.
    fn arrived(&mut self, answer: u32) -> PendingReply {
        let arrived = self.on_their_way[answer as usize].take();
        let arrived = arrived.expect("it arrives once");
        self.free.push(answer);
        if let Some(appliance) = arrived.through.and_then(|n| self.appliance_mut(n)) {
            appliance.inside -= 1;
        }
        arrived
    }
}

impl Simulation<'_> {
    /// Handles a reply that reaches a link.
    pub(crate) fn at_link(&mut self, now_ns: u64, answer: u32) {
        let world = &mut self.world;
        let servers = world.servers.as_mut().expect("their answers");
        servers.at_link(now_ns, answer, &mut world.watch, &mut self.agenda);
    }

    /// Handles the end of sending on a link.
    pub(crate) fn link_sent(&mut self, now_ns: u64, server: u16) {
        self.world
            .servers_mut()
            .link_sent(now_ns, server, &mut self.agenda);
    }

    /// Handles a reply that reaches its waiter.
    pub(crate) fn answered(&mut self, now_ns: u64, answer: u32) {
        let arrived = self.world.servers_mut().arrived(answer);
        let waits = match arrived.whose {
            ReplyWaiter::Warm(run) => return self.warm_answered(now_ns, run),
            ReplyWaiter::Guest(waits) => waits,
        };
        self.world.arrived(&arrived.issue, now_ns, arrived.by);
        if let Waits::Source(id) = waits {
            let (source, _) = self.origins[id as usize];
            let next = self.sources[source as usize].answered(now_ns);
            if let Some(next) = next.filter(|n| *n != NEVER) {
                self.heap.push(next, id);
            }
        }
    }
}
