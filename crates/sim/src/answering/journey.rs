//! Answers on their way to guests, where volumes share a link by turns (`sharing = "by-turns"`).
//!
//! ```text
//!  served ─▶ at the link, waits for its volume's turn ─▶ sent ─▶ the way ─▶ (the next link) ─▶ answered
//! ```
//!
//! When an answer is sent depends on what comes after it, so that is not known when its request is issued, as everything else is. Then
//! every answer, also one that takes no link, is an event: who waits for it goes on when it is there.

use super::servers::{FROM_ARRAY, Servers};
use super::watch::Watch;
use crate::agenda::{Agenda, Event};
use crate::engine::Simulation;
use crate::source::{Issue, NEVER};
use crate::world::Waits;

/// A link that an answer takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    pub(super) server: u16,
    pub(super) dir: usize,
    pub(super) bytes: u64,
    /// From when it was sent until it is at the next link, or answered.
    pub(super) after_ns: u64,
}

/// The way of an answer: when it is at its first link, or where it has to go when that is known already, answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Journey {
    pub(crate) at_ns: u64,
    /// The next first.
    pub(super) hops: [Option<Hop>; 2],
}

impl Journey {
    /// Of an answer that is there at a time.
    pub(super) fn until(at_ns: u64) -> Self {
        Self {
            at_ns,
            hops: [None; 2],
        }
    }

    /// Whether it is known when it is there.
    pub(super) fn is_known(&self) -> bool {
        self.hops[0].is_none()
    }

    /// It waits, for as long as that takes.
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

/// Who waits for an answer.
#[derive(Clone, Copy)]
pub(crate) enum Whose {
    Guest(Waits),
    /// A warm-up, by its number.
    Warm(u32),
}

/// An answer on its way.
pub(crate) struct OnItsWay {
    pub(crate) issue: Issue,
    pub(crate) whose: Whose,
    /// The number of who served it.
    by: usize,
    /// The appliance that it goes through.
    through: Option<u32>,
    journey: Journey,
}

impl Servers {
    /// An answer sets out; its number.
    pub(crate) fn set_out(
        &mut self,
        issue: &Issue,
        whose: Whose,
        (journey, by): (Journey, usize),
        agenda: &mut Agenda,
    ) -> u32 {
        let through = match whose {
            Whose::Guest(_) => self.through(issue.volume),
            Whose::Warm(_) => None,
        };
        if let Some(appliance) = through.and_then(|n| self.appliance_mut(n)) {
            appliance.inside += 1;
        }
        let on_its_way = OnItsWay {
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

    /// Says who waits for an answer that has set out.
    pub(crate) fn belongs_to(&mut self, answer: u32, waits: Waits) {
        let on_its_way = self.on_their_way[answer as usize].as_mut();
        on_its_way.expect("it has set out").whose = Whose::Guest(waits);
    }

    /// Arrivals of a volume's requests whose answers are on their way.
    pub(crate) fn arrivals(&self, volume: usize) -> impl Iterator<Item = u64> {
        let of_guest = move |o: &&OnItsWay| {
            matches!(o.whose, Whose::Guest(_)) && o.issue.volume as usize == volume
        };
        let all = self.on_their_way.iter().flatten();
        all.filter(of_guest).map(|o| o.issue.arrival_ns)
    }

    /// An answer is at a link.
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
        let warm = matches!(on_its_way.whose, Whose::Warm(_));
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

    /// A link has sent an answer, and sends the next.
    fn link_sent(&mut self, now_ns: u64, server: u16, agenda: &mut Agenda) {
        let turns = self.ways.turns[usize::from(server)].as_mut();
        let (answer, next) = turns.expect("it takes turns").sent();
        if let Some(bytes) = next {
            let takes_ns = self.ways.takes_ns(server, FROM_ARRAY, u64::from(bytes));
            agenda.at(now_ns + takes_ns, Event::LinkSent(server));
        }
        self.passed(now_ns, answer, agenda);
    }

    /// An answer has passed its link.
    fn passed(&mut self, sent_ns: u64, answer: u32, agenda: &mut Agenda) {
        let on_its_way = self.on_their_way[answer as usize].as_mut();
        let journey = &mut on_its_way.expect("it has not arrived").journey;
        let [passed, next] = journey.hops;
        journey.at_ns = sent_ns + passed.expect("it took one").after_ns;
        journey.hops = [next, None];
        agenda.at(journey.at_ns, journey.event(answer));
    }

    /// An answer is there: what it was, and who served it.
    fn arrived(&mut self, answer: u32) -> OnItsWay {
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
    /// An answer is at a link.
    pub(crate) fn at_link(&mut self, now_ns: u64, answer: u32) {
        let world = &mut self.world;
        let servers = world.servers.as_mut().expect("their answers");
        servers.at_link(now_ns, answer, &mut world.watch, &mut self.agenda);
    }

    /// A link has sent an answer.
    pub(crate) fn link_sent(&mut self, now_ns: u64, server: u16) {
        self.world
            .servers_mut()
            .link_sent(now_ns, server, &mut self.agenda);
    }

    /// An answer is there.
    pub(crate) fn answered(&mut self, now_ns: u64, answer: u32) {
        let arrived = self.world.servers_mut().arrived(answer);
        let waits = match arrived.whose {
            Whose::Warm(run) => return self.warm_answered(now_ns, run),
            Whose::Guest(waits) => waits,
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
