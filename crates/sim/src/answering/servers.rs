//! Compute servers on the request path: their links, and the caching appliances on them.
//!
//! ```text
//!  read    appliance: all pages there ─▶ `hit`, or `ssd_hit` where one is only on its SSD       else array ─▶ link ─▶ kept, if the rate at which it takes in allows ─▶ guest
//!  write   link ─▶ array; the appliance drops the pages (around) or keeps them (through)
//! ```
//!
//! Known to be left out: a read of a page that is on its way already is a hit at once; requests to the array take no time of the link.

use std::ops::Range;

use cache::{Clock, Effect, Lru, Origin, PageCache, Policy, Position};
use config::scenario::{ApplianceConfig, HostConfig, LinkSharing};
use model::Op;
use units::Bytes;

use super::fill::FillBudget;
use super::journey::{Hop, Journey, OnItsWay};
use super::link::Link;
use super::turns::Turns;
use super::watch::Watch;
use super::{ServersModel, page_cache};
use crate::Model;
use crate::pages::VolumePages;
use crate::source::Issue;

/// Directions of a link.
pub(super) const FROM_ARRAY: usize = 0;
const TO_ARRAY: usize = 1;

/// A request that is answered, or a part of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) done_ns: u64,
    /// By whom: the number of a tier, of the cache or of the appliances.
    pub(crate) by: usize,
}

/// Pages of one volume, kept on a server.
pub(crate) struct Appliance {
    server: u16,
    cache: PageCache<Lru>,
    /// What is in memory is here, too: the memory is a part of it.
    ssd: Option<PageCache<Clock>>,
    pages: VolumePages,
    effects: Vec<Effect>,
    /// When its processor is free.
    free_ns: u64,
    budget: FillBudget,
    /// When the last request through it is answered.
    pub(crate) busy_until_ns: u64,
    /// Answers through it that are on their way, where that is not known when a request is issued.
    pub(crate) inside: u32,
    /// Reads that it answered, and that it had to ask the array for.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    config: ApplianceConfig,
}

const ORIGIN: Origin = Origin {
    volume: 0,
    extent: 0,
};

impl Appliance {
    fn read(&mut self, issue: &Issue) {
        let pages = self.pages.of(issue.offset, issue.length);
        if let Some(ssd) = &mut self.ssd {
            ssd.read(pages.clone(), ORIGIN, Position::TOP, &mut self.effects);
        }
        self.cache
            .read(pages, ORIGIN, Position::TOP, &mut self.effects);
        self.effects.clear();
    }

    fn contains(&self, page: u32) -> bool {
        let on_ssd = |ssd: &PageCache<Clock>| ssd.contains(page);
        self.cache.contains(page) || self.ssd.as_ref().is_some_and(on_ssd)
    }

    /// Response time of a read whose pages are all there, on top of its processor's.
    fn hit_ns(&self, issue: &Issue) -> u64 {
        let missing = self
            .pages
            .missing(issue.offset, issue.length, |p| self.cache.contains(p));
        match missing {
            None => self.config.hit.0,
            Some(_) => self.config.ssd_hit.0,
        }
    }

    /// What changes data, and the array has done.
    fn changed(&mut self, issue: &Issue) {
        changed(self.pages, &mut self.cache, issue, &mut self.effects);
        if let Some(ssd) = &mut self.ssd {
            changed(self.pages, ssd, issue, &mut self.effects);
        }
        self.effects.clear();
    }

    /// Time in its processor, for a request that gets there now: when it goes on.
    fn through(&mut self, now_ns: u64, issue: &Issue) -> u64 {
        let read_bytes = match issue.op {
            Op::Read => issue.length,
            _ => 0,
        };
        self.free_ns = now_ns.max(self.free_ns) + self.config.request_ns(read_bytes);
        self.free_ns
    }
}

/// What changes data, in one of an appliance's caches.
fn changed<P: Policy>(
    pages: VolumePages,
    cache: &mut PageCache<P>,
    issue: &Issue,
    effects: &mut Vec<Effect>,
) {
    let bytes = (issue.offset, issue.length);
    match issue.op {
        Op::Read | Op::Flush => {}
        Op::Write => pages.write(cache, bytes, |_| ORIGIN, effects),
        Op::Trim => cache.discard(pages.of(bytes.0, bytes.1), effects),
    }
}

/// The ways of servers to the array.
pub(super) struct Ways {
    /// By server, from the array and to it; none is never waited for.
    links: Vec<Option<[Link; 2]>>,
    /// By server: what waits for its link from the array, where volumes take turns on that.
    pub(super) turns: Vec<Option<Turns>>,
    /// By server: time to the array, one way.
    latency_ns: Vec<u64>,
}

impl Ways {
    /// The way over the link of a server and back, with so many bytes of data, of a request that sets out `late_ns` after now.
    fn there_and_back(
        &mut self,
        server: u16,
        issue: &Issue,
        (now_ns, late_ns): (u64, u64),
        served: Served,
        watch: &mut Option<Box<Watch>>,
    ) -> Journey {
        let way_ns = self.latency_ns[usize::from(server)];
        let hop = |dir| Hop {
            server,
            dir,
            bytes: issue.length,
            after_ns: way_ns,
        };
        match issue.op {
            Op::Read => {
                let mut journey = Journey::until(served.done_ns + late_ns + way_ns);
                self.take(&mut journey, hop(FROM_ARRAY), issue.volume, now_ns, watch);
                journey
            }
            Op::Write => {
                let at_ns = now_ns + late_ns;
                let there_ns = self.send(&hop(TO_ARRAY), issue.volume, (now_ns, at_ns), watch);
                Journey::until(served.done_ns + (there_ns - now_ns) + 2 * way_ns)
            }
            Op::Trim | Op::Flush => Journey::until(served.done_ns + late_ns + 2 * way_ns),
        }
    }

    /// An answer takes a link: at once, as far as it is known when that has time.
    fn take(
        &mut self,
        journey: &mut Journey,
        hop: Hop,
        volume: u32,
        now_ns: u64,
        watch: &mut Option<Box<Watch>>,
    ) {
        if journey.is_known() && !self.takes_turns(hop.server, hop.dir) {
            let sent_ns = self.send(&hop, volume, (now_ns, journey.at_ns), watch);
            journey.at_ns = sent_ns + hop.after_ns;
        } else {
            journey.then(hop);
        }
    }

    /// Whether volumes take turns on a link.
    pub(super) fn takes_turns(&self, server: u16, dir: usize) -> bool {
        dir == FROM_ARRAY && self.turns[usize::from(server)].is_some()
    }

    /// Sends what takes a link from a time on: when it has been sent.
    pub(super) fn send(
        &mut self,
        hop: &Hop,
        volume: u32,
        (now_ns, at_ns): (u64, u64),
        watch: &mut Option<Box<Watch>>,
    ) -> u64 {
        self.counted_ns(hop, volume, watch);
        match &mut self.links[usize::from(hop.server)] {
            None => at_ns,
            Some(links) => links[hop.dir].send(now_ns, at_ns, hop.bytes),
        }
    }

    /// Time of a link that something takes; it is counted as its volume's.
    pub(super) fn counted_ns(&self, hop: &Hop, volume: u32, watch: &mut Option<Box<Watch>>) -> u64 {
        let takes_ns = self.takes_ns(hop.server, hop.dir, hop.bytes);
        if let Some(watch) = watch.as_mut().filter(|_| takes_ns > 0) {
            watch.took_link(volume, hop.server, hop.dir, takes_ns);
        }
        takes_ns
    }

    /// Time of a link that so many bytes take.
    pub(super) fn takes_ns(&self, server: u16, dir: usize, bytes: u64) -> u64 {
        let links = self.links[usize::from(server)].as_ref();
        links.map_or(0, |l| l[dir].takes_ns(bytes))
    }
}

/// All servers.
pub(crate) struct Servers {
    of_volume: Vec<u16>,
    pub(super) ways: Ways,
    /// Answers whose time is not known yet, by number, and numbers that are free.
    pub(super) on_their_way: Vec<Option<OnItsWay>>,
    pub(super) free: Vec<u32>,
    answer_later: bool,
    /// Appliances that are up, by number.
    appliances: Vec<Option<Appliance>>,
    /// By volume: the number of the one that its requests go through.
    through: Vec<Option<u32>>,
    /// The number of the appliances among those who serve.
    by: usize,
}

impl Servers {
    pub(crate) fn new(model: &ServersModel, by: usize) -> Self {
        let servers = model.servers.iter();
        let links = servers.clone().map(|s| s.link);
        // A flow for each volume, and one for its warm-up.
        let flows = 2 * model.of_volume.len();
        let turns = servers.clone().map(|s| match s.sharing {
            LinkSharing::FirstCome => None,
            LinkSharing::ByTurns => Some(Turns::new(flows)),
        });
        let by_turns = |s: &HostConfig| s.sharing == LinkSharing::ByTurns;
        Self {
            answer_later: servers.clone().any(by_turns),
            on_their_way: Vec::new(),
            free: Vec::new(),
            ways: Ways {
                turns: turns.collect(),
                links: links
                    .map(|l| l.map(|rate| [Link::new(rate.0), Link::new(rate.0)]))
                    .collect(),
                latency_ns: servers.map(|s| s.latency.0).collect(),
            },
            appliances: Vec::new(),
            through: vec![None; model.of_volume.len()],
            of_volume: model.of_volume.clone(),
            by,
        }
    }

    /// Whether the time of an answer may not be known when its request is issued: then none is taken to be.
    #[inline]
    pub(crate) fn answer_later(&self) -> bool {
        self.answer_later
    }

    /// An appliance is up on a server, empty: its number.
    pub(crate) fn start(
        &mut self,
        model: &Model,
        config: &ApplianceConfig,
        (volume, server): (u32, u16),
        cache: Bytes,
        now_ns: u64,
    ) -> u32 {
        let pages = VolumePages {
            page_bytes: config.page.0,
            volume_bytes: model.volumes[volume as usize].size.0,
            first: 0,
        };
        let universe = pages.of(0, pages.volume_bytes).end;
        let size = |space| page_cache(config, config.holds(space));
        let cache = PageCache::new(&size(cache), universe, 1, 1, Lru::new);
        let ssd = |space| PageCache::new(&size(space), universe, 1, 1, Clock::new);
        let ssd = config.ssd.map(ssd).transpose();
        self.appliances.push(Some(Appliance {
            server,
            cache: cache.expect("checked with the scenario"),
            ssd: ssd.expect("checked with the scenario"),
            pages,
            effects: Vec::new(),
            free_ns: now_ns,
            budget: FillBudget::new(config.fill_max, now_ns),
            busy_until_ns: now_ns,
            inside: 0,
            hits: 0,
            misses: 0,
            config: *config,
        }));
        self.appliances.len() as u32 - 1
    }

    /// An appliance is there no more.
    pub(crate) fn stop(&mut self, number: u32) {
        self.appliances[number as usize] = None;
    }

    /// Whether a volume's requests go to an appliance that is there no more: they wait until they are sent elsewhere.
    #[inline]
    pub(crate) fn stands_still(&self, volume: u32) -> bool {
        let through = self.through[volume as usize];
        through.is_some_and(|n| self.appliances[n as usize].is_none())
    }

    pub(crate) fn appliance(&self, number: u32) -> Option<&Appliance> {
        self.appliances[number as usize].as_ref()
    }

    pub(super) fn appliance_mut(&mut self, number: u32) -> Option<&mut Appliance> {
        self.appliances[number as usize].as_mut()
    }

    /// The number of the appliance that a volume's requests go through.
    pub(super) fn through(&self, volume: u32) -> Option<u32> {
        self.through[volume as usize]
    }

    /// Sends a volume's requests through an appliance, or none.
    pub(crate) fn route(&mut self, volume: usize, through: Option<u32>) {
        self.through[volume] = through;
    }

    /// What a request has to have from the array; none where its appliance answers it.
    #[inline]
    pub(crate) fn wants(&self, issue: &Issue) -> Option<Issue> {
        let number = self.through[issue.volume as usize];
        let appliance = number.and_then(|n| self.appliance(n));
        match appliance.filter(|_| issue.op == Op::Read) {
            None => Some(*issue),
            Some(appliance) => {
                let there = |page| appliance.contains(page);
                let missing = appliance.pages.missing(issue.offset, issue.length, there);
                missing.map(|(offset, length)| Issue {
                    offset,
                    length,
                    ..*issue
                })
            }
        }
    }

    /// A request for which the array has served `part`, if that was wanted: the way of its answer, and who served it.
    #[inline]
    pub(crate) fn serve(
        &mut self,
        issue: &Issue,
        now_ns: u64,
        part: Option<(Issue, Served)>,
        watch: &mut Option<Box<Watch>>,
    ) -> (Journey, usize) {
        let number = self.through[issue.volume as usize];
        let own = self.of_volume[issue.volume as usize];
        let ways = &mut self.ways;
        let Some(n) = number else {
            let (_, served) = part.expect("without an appliance all of it is wanted");
            let journey = ways.there_and_back(own, issue, (now_ns, 0), served, watch);
            return (journey, served.by);
        };
        let appliance = self.appliances[n as usize].as_mut();
        let appliance = appliance.expect("it is there, or requests stand still");
        let at_ns = appliance.through(now_ns, issue);
        let read = issue.op == Op::Read;
        let (mut journey, by) = match part {
            None => {
                let hit_ns = appliance.hit_ns(issue);
                appliance.read(issue);
                appliance.hits += 1;
                (Journey::until(at_ns + hit_ns), self.by)
            }
            Some((part, served)) => {
                let times = (now_ns, at_ns - now_ns);
                let journey = ways.there_and_back(appliance.server, &part, times, served, watch);
                if !read {
                    appliance.changed(issue);
                } else {
                    appliance.misses += 1;
                    if appliance.budget.takes(now_ns, part.length) {
                        appliance.read(issue);
                    }
                }
                (journey, served.by)
            }
        };
        if appliance.server != own {
            // From the server where it is to that of its volume, and there.
            let way_ns = |server: u16| ways.latency_ns[usize::from(server)];
            journey.wait(2 * (way_ns(own) + way_ns(appliance.server)));
            let hop = Hop {
                server: own,
                dir: if read { FROM_ARRAY } else { TO_ARRAY },
                bytes: issue.length,
                after_ns: 0,
            };
            ways.take(&mut journey, hop, issue.volume, now_ns, watch);
        }
        appliance.busy_until_ns = appliance.busy_until_ns.max(journey.at_ns);
        (journey, by)
    }

    /// What of some pages a warm-up is to read: offset and length from the first to the last one that is not there yet.
    pub(crate) fn lacks(&self, number: u32, pages: Range<u32>) -> Option<(u64, u64)> {
        let appliance = self.appliance(number)?;
        let mut missing = pages.filter(|p| !appliance.contains(*p));
        let first = missing.next()?;
        let last = missing.next_back().unwrap_or(first);
        Some(appliance.pages.bytes(first..last + 1))
    }

    /// What a warm-up has read from the array, on its way to the appliance.
    pub(crate) fn warmed(
        &mut self,
        number: u32,
        issue: &Issue,
        now_ns: u64,
        served: Served,
        watch: &mut Option<Box<Watch>>,
    ) -> Journey {
        let Some(appliance) = &mut self.appliances[number as usize] else {
            return Journey::until(served.done_ns);
        };
        appliance.budget.charge(now_ns, issue.length);
        // It is no hit and no miss of its guest.
        for page in appliance.pages.of(issue.offset, issue.length) {
            appliance.cache.policy_mut().access(page);
            if let Some(ssd) = &mut appliance.ssd {
                ssd.policy_mut().access(page);
            }
        }
        let server = appliance.server;
        self.ways
            .there_and_back(server, issue, (now_ns, 0), served, watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScenarioFile;
    use config::scenario::ReductionConfig;
    use units::Nanos;

    const PAGE: u64 = 64 << 10;

    /// One server with a volume of 200 pages.
    fn model() -> Model {
        let text = r#"
duration = "10s"
[[tiers]]
name = "one"
preset = "pm863"
[hosts.one]
[[volumes]]
name = "a"
size = "12800 KiB"
[[clients]]
volume = "a"
"#;
        let file = ScenarioFile::parse("servers.toml", text);
        file.and_then(|f| f.build(vec![]))
            .unwrap_or_else(|e| panic!("{e}"))
    }

    /// A volume's requests through an appliance with memory for 20 pages.
    struct Through {
        servers: Servers,
        now_ns: u64,
    }

    impl Through {
        fn new(change: impl Fn(&mut ApplianceConfig)) -> Self {
            let model = model();
            let mut config = ApplianceConfig {
                page: Bytes(PAGE),
                per_request: Nanos(1),
                hit: Nanos(100),
                ssd_hit: Nanos(5000),
                ..ApplianceConfig::default()
            };
            change(&mut config);
            let mut servers = Servers::new(model.servers.as_ref().unwrap(), 1);
            let number = servers.start(&model, &config, (0, 0), Bytes(20 * PAGE), 0);
            servers.route(0, Some(number));
            Self { servers, now_ns: 0 }
        }

        /// One request for a page: how long it takes, if the appliance answers it.
        fn ask(&mut self, op: Op, page: u64) -> Option<u64> {
            self.now_ns += 1_000_000;
            let now_ns = self.now_ns;
            let issue = Issue {
                volume: 0,
                op,
                offset: page * PAGE,
                length: PAGE,
                arrival_ns: now_ns,
                bits: 0,
            };
            let from_array = Served {
                done_ns: now_ns + 500_000,
                by: 0,
            };
            let part = self.servers.wants(&issue).map(|p| (p, from_array));
            let (journey, _) = self.servers.serve(&issue, now_ns, part, &mut None);
            part.is_none().then(|| journey.at_ns - now_ns)
        }

        /// Reads pages in turn, twice; of the second time, how many hits took how long.
        fn twice(&mut self, pages: u64) -> Vec<(u64, usize)> {
            for page in 0..pages {
                self.ask(Op::Read, page);
            }
            let mut times: Vec<u64> = (0..pages).filter_map(|p| self.ask(Op::Read, p)).collect();
            times.sort_unstable();
            times
                .chunk_by(|a, b| a == b)
                .map(|c| (c[0], c.len()))
                .collect()
        }
    }

    #[test]
    fn memory_alone_holds_what_fits() {
        assert_eq!(Through::new(|_| ()).twice(20), [(101, 20)]);
        assert_eq!(Through::new(|_| ()).twice(21), [], "an LRU, read in turn");
    }

    #[test]
    fn reduced_it_holds_more_and_each_page_costs_time() {
        let reducing = |c: &mut ApplianceConfig| {
            c.reduction = Some(ReductionConfig {
                ratio: 3.0,
                per_page: Nanos(10),
            });
        };
        // Sixteen times 4 KiB.
        assert_eq!(Through::new(reducing).twice(60), [(261, 60)]);
        assert_eq!(Through::new(reducing).twice(61), []);
    }

    #[test]
    fn what_memory_has_dropped_is_on_the_ssd_until_it_is_written() {
        let with_ssd = |c: &mut ApplianceConfig| c.ssd = Some(Bytes(100 * PAGE));
        let mut through = Through::new(with_ssd);
        assert_eq!(through.twice(100), [(5001, 100)]);
        // The last twenty are in memory, too.
        assert_eq!(through.ask(Op::Read, 99), Some(101));
        // A write goes around it, and drops the page from both.
        for page in [99, 5] {
            assert_eq!(through.ask(Op::Write, page), None);
            assert_eq!(through.ask(Op::Read, page), None);
            assert_eq!(through.ask(Op::Read, page), Some(101));
        }
    }
}
