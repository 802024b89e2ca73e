//! Compute servers on the request path: their links and their caching appliances.
//!
//! ```text
//!  read    appliance: all pages cached ─▶ `hit`, or `ssd_hit` if one is only on its SSD    else array ─▶ link ─▶ cached, if the fill rate allows ─▶ guest
//!  write   link ─▶ array; the appliance invalidates the pages (around) or caches them (through)
//! ```
//!
//! Simplifications: a read of a page that is already in transit is an immediate hit, and requests to the array use no
//! link time.

use std::ops::Range;

use cache::{Clock, Effect, Lru, Origin, PageCache, Policy, Position};
use config::scenario::{ApplianceConfig, HostConfig, LinkSharing};
use model::Op;
use units::Bytes;

use super::fill::FillBudget;
use super::journey::{Hop, Journey, PendingReply};
use super::link::Link;
use super::turns::Turns;
use super::watch::Watch;
use super::{ServersModel, page_cache};
use crate::Model;
use crate::pages::VolumePages;
use crate::source::Issue;

/// Indexes of the directions of a link.
pub(super) const FROM_ARRAY: usize = 0;
const TO_ARRAY: usize = 1;

/// Completed request, or part of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServedPart {
    pub(crate) done_ns: u64,
    /// Index of the part that served it: a tier, the cache or the appliances.
    pub(crate) by: usize,
}

/// Cached pages of one volume on a server.
pub(crate) struct Appliance {
    server: u16,
    cache: PageCache<Lru>,
    /// SSD level. It also contains all pages in memory.
    ssd: Option<PageCache<Clock>>,
    pages: VolumePages,
    effects: Vec<Effect>,
    /// Time at which the processor is free.
    free_ns: u64,
    budget: FillBudget,
    /// Completion time of the last request through the appliance.
    pub(crate) busy_until_ns: u64,
    /// Number of replies in transit through the appliance, if completion times are not known at the issue.
    pub(crate) inside: u32,
    /// Reads that the appliance served, and reads that it forwarded to the array.
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

    /// Returns the time of a read hit, in addition to the processor time.
    fn hit_ns(&self, issue: &Issue) -> u64 {
        let missing = self
            .pages
            .missing(issue.offset, issue.length, |p| self.cache.contains(p));
        match missing {
            None => self.config.hit.0,
            Some(_) => self.config.ssd_hit.0,
        }
    }

    /// Updates both caches after a write or trim that the array has completed.
    fn changed(&mut self, issue: &Issue) {
        changed(self.pages, &mut self.cache, issue, &mut self.effects);
        if let Some(ssd) = &mut self.ssd {
            changed(self.pages, ssd, issue, &mut self.effects);
        }
        self.effects.clear();
    }

    /// Occupies the processor for a request that arrives now. Returns the end of the processing.
    fn through(&mut self, now_ns: u64, issue: &Issue) -> u64 {
        let read_bytes = match issue.op {
            Op::Read => issue.length,
            _ => 0,
        };
        self.free_ns = now_ns.max(self.free_ns) + self.config.request_ns(read_bytes);
        self.free_ns
    }
}

/// Updates one of an appliance's caches after a write or trim.
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

/// Connections of servers to the array.
pub(super) struct Ways {
    /// Links by server, from the array and to it; `None` for an unlimited link.
    links: Vec<Option<[Link; 2]>>,
    /// Queues by server for the link from the array, if volumes share it by turns.
    pub(super) turns: Vec<Option<Turns>>,
    /// One-way latency to the array, by server.
    latency_ns: Vec<u64>,
}

impl Ways {
    /// Returns the route of a request over a server's link and back with its data. The request starts `late_ns` after
    /// now.
    fn there_and_back(
        &mut self,
        server: u16,
        issue: &Issue,
        (now_ns, late_ns): (u64, u64),
        served: ServedPart,
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

    /// Adds a link to a reply's route. If the send time can be computed, the reply is sent at once.
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

    /// Returns true if volumes share a link by turns.
    pub(super) fn takes_turns(&self, server: u16, dir: usize) -> bool {
        dir == FROM_ARRAY && self.turns[usize::from(server)].is_some()
    }

    /// Sends a transfer from a time on. Returns the end of sending.
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

    /// Returns the link time of a transfer, and counts it for the volume.
    pub(super) fn counted_ns(&self, hop: &Hop, volume: u32, watch: &mut Option<Box<Watch>>) -> u64 {
        let takes_ns = self.takes_ns(hop.server, hop.dir, hop.bytes);
        if let Some(watch) = watch.as_mut().filter(|_| takes_ns > 0) {
            watch.took_link(volume, hop.server, hop.dir, takes_ns);
        }
        takes_ns
    }

    /// Returns the link time of a number of bytes.
    pub(super) fn takes_ns(&self, server: u16, dir: usize, bytes: u64) -> u64 {
        let links = self.links[usize::from(server)].as_ref();
        links.map_or(0, |l| l[dir].takes_ns(bytes))
    }
}

/// All compute servers.
pub(crate) struct Servers {
    of_volume: Vec<u16>,
    pub(super) ways: Ways,
    /// Replies in transit by number, then the free numbers.
    pub(super) on_their_way: Vec<Option<PendingReply>>,
    pub(super) free: Vec<u32>,
    answer_later: bool,
    /// Running appliances, by number.
    appliances: Vec<Option<Appliance>>,
    /// Number of the appliance on the volume's route, by volume.
    through: Vec<Option<u32>>,
    /// Index of the appliances among the parts that serve requests.
    by: usize,
}

impl Servers {
    pub(crate) fn new(model: &ServersModel, by: usize) -> Self {
        let servers = model.servers.iter();
        let links = servers.clone().map(|s| s.link);
        // Two flows per volume: one for its requests and one for its warm-up.
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

    /// Returns true if completion times may be unknown at the issue. All completion times are then treated as unknown.
    #[inline]
    pub(crate) fn answer_later(&self) -> bool {
        self.answer_later
    }

    /// Starts an empty appliance on a server and returns its number.
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

    /// Removes an appliance.
    pub(crate) fn stop(&mut self, number: u32) {
        self.appliances[number as usize] = None;
    }

    /// Returns true if a volume's route leads to an appliance that no longer exists. Its requests wait until the route
    /// changes.
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

    /// Returns the number of the appliance on a volume's route.
    pub(super) fn through(&self, volume: u32) -> Option<u32> {
        self.through[volume as usize]
    }

    /// Routes a volume's requests through an appliance, or directly.
    pub(crate) fn route(&mut self, volume: usize, through: Option<u32>) {
        self.through[volume] = through;
    }

    /// Returns the request for the array; `None` if the appliance serves the request itself.
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

    /// Completes a request for which the array has served `part`, if needed. Returns the route of the reply and the
    /// index of the part that served the request.
    #[inline]
    pub(crate) fn serve(
        &mut self,
        issue: &Issue,
        now_ns: u64,
        part: Option<(Issue, ServedPart)>,
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
            // Transfer from the appliance's server to the volume's server.
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

    /// Returns the part of the given pages that a warm-up must read: offset and length from the first missing page to
    /// the last.
    pub(crate) fn lacks(&self, number: u32, pages: Range<u32>) -> Option<(u64, u64)> {
        let appliance = self.appliance(number)?;
        let mut missing = pages.filter(|p| !appliance.contains(*p));
        let first = missing.next()?;
        let last = missing.next_back().unwrap_or(first);
        Some(appliance.pages.bytes(first..last + 1))
    }

    /// Adds the data that a warm-up has read from the array. Returns its route to the appliance.
    pub(crate) fn warmed(
        &mut self,
        number: u32,
        issue: &Issue,
        now_ns: u64,
        served: ServedPart,
        watch: &mut Option<Box<Watch>>,
    ) -> Journey {
        let Some(appliance) = &mut self.appliances[number as usize] else {
            return Journey::until(served.done_ns);
        };
        appliance.budget.charge(now_ns, issue.length);
        // The access counts neither as hit nor as miss of the guest.
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

    /// Returns a model of one server and a volume of 200 pages.
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

    /// Volume behind an appliance with memory for 20 pages.
    struct ApplianceFixture {
        servers: Servers,
        now_ns: u64,
    }

    impl ApplianceFixture {
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

        /// Issues a request for a page. Returns its latency if the appliance serves it.
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
            let from_array = ServedPart {
                done_ns: now_ns + 500_000,
                by: 0,
            };
            let part = self.servers.wants(&issue).map(|p| (p, from_array));
            let (journey, _) = self.servers.serve(&issue, now_ns, part, &mut None);
            part.is_none().then(|| journey.at_ns - now_ns)
        }

        /// Reads all pages in turn, twice. Returns the number of hits of the second pass by latency.
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
    fn appliance_memory_holds_as_many_pages_as_fit() {
        assert_eq!(ApplianceFixture::new(|_| ()).twice(20), [(101, 20)]);
        assert_eq!(
            ApplianceFixture::new(|_| ()).twice(21),
            [],
            "an LRU, read in turn"
        );
    }

    #[test]
    fn reduced_memory_holds_more_pages_at_a_cost_per_page() {
        let reducing = |c: &mut ApplianceConfig| {
            c.reduction = Some(ReductionConfig {
                ratio: 3.0,
                per_page: Nanos(10),
            });
        };
        // Sixteen pages of 4 KiB.
        assert_eq!(ApplianceFixture::new(reducing).twice(60), [(261, 60)]);
        assert_eq!(ApplianceFixture::new(reducing).twice(61), []);
    }

    #[test]
    fn page_evicted_from_memory_is_on_the_ssd_until_it_is_written() {
        let with_ssd = |c: &mut ApplianceConfig| c.ssd = Some(Bytes(100 * PAGE));
        let mut through = ApplianceFixture::new(with_ssd);
        assert_eq!(through.twice(100), [(5001, 100)]);
        // The last twenty pages are also in memory.
        assert_eq!(through.ask(Op::Read, 99), Some(101));
        // A write bypasses the appliance and invalidates the page in both levels.
        for page in [99, 5] {
            assert_eq!(through.ask(Op::Write, page), None);
            assert_eq!(through.ask(Op::Read, page), None);
            assert_eq!(through.ask(Op::Read, page), Some(101));
        }
    }
}
