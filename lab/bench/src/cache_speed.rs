//! Speed of each cache policy in references per second. `bench/cache.sh` compares it with other implementations.
//!
//! ```text
//! cache-speed generate FILE OBJECTS REFERENCES THETA    writes a trace of dense ids, popularity proportional to rank^-THETA
//! cache-speed run FILE SHARE [NAME…]                    measures each policy with a capacity of SHARE of the objects
//! ```
//!
//! Traces are in the format oracleGeneral of libCacheSim. Each reference has 24 bytes; only its id (from 1) is used here. `run` prints a
//! line per policy: name, capacity, references, seconds on a core, hits.
//!
//! A registered name stands for the complete policy, with its statistics of extents, slices and priorities if it has any. `places-…`
//! are its queues alone: a hash of the page determines the position in the queue at no cost.

use std::fs::File;
use std::io::{BufWriter, Write};

use algo::{Popularity, Rng, mix};
use cache::{
    AnyPolicy, DenseIds, EvaluateOptions, Outcome, Policy, Position, REGISTRY, ReferencesBuilder,
    ReferencesConfig, ResponseTimes, SegmentedLru, StackSizes, evaluate, replay,
};

use crate::BenchResult;

const RECORD: usize = 24;
/// Number of references in a time slice.
const SLICE: usize = 300_000;

pub(crate) fn main(args: &[String]) -> BenchResult {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["generate", file, objects, references, theta] => {
            generate(file, objects.parse()?, references.parse()?, theta.parse()?)?
        }
        ["run", file, share, only @ ..] => run(file, share.parse()?, only)?,
        _ => {
            return Err(crate::WRONG.into());
        }
    }
    Ok(())
}

/// Returns the time of this thread on a core in seconds, as counted by the kernel. Other processes on the machine do not add to it.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    ns.map_or(f64::NAN, |ns: f64| ns / 1e9)
}

fn generate(file: &str, objects: u64, references: usize, theta: f64) -> std::io::Result<()> {
    let popularity = Popularity::new(objects, theta);
    let mut rng = Rng::new(1, 1);
    let keys: Vec<u64> = (0..references)
        .map(|_| popularity.page(rng.next_u64()))
        .collect();
    let mut ids = DenseIds::new();
    let mut pages = Vec::new();
    assert!(ids.number(&keys, &mut pages));
    let mut last = vec![-1i64; ids.len() as usize];
    let mut next = vec![-1i64; pages.len()];
    for (at, page) in pages.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut last[*page as usize], at as i64);
    }
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    for (at, (page, next)) in pages.iter().zip(&next).enumerate() {
        out.write_all(&(at as u32).to_le_bytes())?;
        out.write_all(&(u64::from(*page) + 1).to_le_bytes())?;
        out.write_all(&1u32.to_le_bytes())?;
        out.write_all(&next.to_le_bytes())?;
    }
    out.flush()
}

fn run(file: &str, share: f64, only: &[&str]) -> std::io::Result<()> {
    let bytes = std::fs::read(file)?;
    let ids = bytes.chunks_exact(RECORD).map(|r| {
        let id: [u8; 8] = std::array::from_fn(|i| r[4 + i]);
        u64::from_le_bytes(id)
    });
    let pages: Vec<u32> = ids.map(|id| id as u32 - 1).collect();
    drop(bytes);
    let universe = pages.iter().max().map_or(0, |p| p + 1);
    let capacity = ((f64::from(universe) * share) as u32).max(1);
    let say = |name: &str, seconds: f64, hits: u64| {
        println!("{name} {capacity} {} {seconds:.6} {hits}", pages.len());
    };
    let wanted = |name: &str| only.is_empty() || only.contains(&name);
    if wanted("numbering") {
        // Ids that are spread over 64 bits, like hashes and addresses.
        let keys: Vec<u64> = pages.iter().map(|p| mix(7, u64::from(*p))).collect();
        let started = cpu();
        let (mut ids, mut out) = (DenseIds::new(), Vec::new());
        assert!(ids.number(&keys, &mut out));
        say("numbering", cpu() - started, 0);
        assert_eq!(out, pages);
    }
    for entry in REGISTRY {
        if wanted(entry.name) {
            let mut policy = AnyPolicy::new(entry.kind, capacity, universe);
            let started = cpu();
            let mut hits = 0;
            for (i, slice) in pages.chunks(SLICE).enumerate() {
                hits += policy.replay(slice).hits;
                // Alternates two slow hours with two fast hours, so priorities cover their whole range.
                policy.prioritize(&[Some(if i / 24 % 2 == 0 { 2.0 } else { 0.5 })]);
                policy.slice_ended();
                if i % 12 == 11 {
                    policy.hour_ended();
                }
            }
            say(entry.name, cpu() - started, hits);
        }
    }
    let place = |name: &str, mut policy: Box<dyn Replay>| {
        if wanted(name) {
            let started = cpu();
            let hits = policy.hits(&pages);
            say(name, cpu() - started, hits);
        }
    };
    let exact = || SegmentedLru::new(capacity, universe);
    place(
        "places-four",
        Box::new(Places(exact(), |bits| [3, 7, 13, 19][bits as usize >> 30])),
    );
    place("places-seventeen", Box::new(Places(exact(), seventeen)));
    if wanted("eight-sizes") {
        let sizes: Vec<u32> = (1..=8).map(|i| universe / 80 * i).collect();
        let started = cpu();
        let mut stack = StackSizes::new(&sizes, universe);
        stack.replay(&pages);
        let seconds = cpu() - started;
        say("eight-sizes", seconds, stack.counts()[7].1.hits);
    }
    for (name, kind) in [
        ("lru-by-extent", "lru"),
        ("priority-lru-by-extent", "priority-lru"),
    ] {
        if wanted(name) {
            by_extent(name, kind, &pages, capacity, &say);
        }
    }
    Ok(())
}

/// Measures `evaluate` with requests of one page each, with response times and statistics by extent.
fn by_extent(name: &str, kind: &str, pages: &[u32], capacity: u32, say: &dyn Fn(&str, f64, u64)) {
    let config = ReferencesConfig {
        page_bytes: 65_536,
        sample: None,
        seed: 0,
    };
    let mut builder = ReferencesBuilder::new(config).expect("a page has 64 KiB");
    for (i, page) in pages.iter().enumerate() {
        let time = i as u64 * 1_000_000;
        let offset = u64::from(*page) << 16;
        let pushed = builder.push(Some(time), 0, offset, 65_536);
        pushed.expect("pages have numbers");
    }
    let references = builder.finish().expect("they are not too many");
    let options = EvaluateOptions {
        extents: true,
        response: Some(ResponseTimes {
            hit_ns: 20_000,
            miss_ns: 6_000_000,
            target_ns: 2_000_000,
        }),
        ..EvaluateOptions::default()
    };
    let kind = kind.parse().expect("it is registered");
    let started = cpu();
    let found = evaluate(&references, kind, capacity, &options, &mut |_| ());
    say(name, cpu() - started, found.tally.pages.hits);
}

/// Maps a hash uniformly to the 17 positions of Priority-LRU.
fn seventeen(bits: u32) -> u32 {
    3 + ((u64::from(bits) * 17) >> 32) as u32
}

/// Queue policy in which the hash of a page determines its position, so the measurement covers only the queue.
struct Places<Q, F>(Q, F);

trait Replay {
    fn hits(&mut self, pages: &[u32]) -> u64;
}

impl<Q: Policy, F: Fn(u32) -> u32> Replay for Places<Q, F> {
    fn hits(&mut self, pages: &[u32]) -> u64 {
        replay(self, pages).hits
    }
}

impl<Q: Policy, F: Fn(u32) -> u32> Policy for Places<Q, F> {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        let segment = (self.1)(page.wrapping_mul(0x9E37_79B9));
        self.0.access_at(page, Position::from_segment(segment))
    }
    fn remove(&mut self, page: u32) -> bool {
        self.0.remove(page)
    }
    fn contains(&self, page: u32) -> bool {
        self.0.contains(page)
    }
    fn len(&self) -> u32 {
        self.0.len()
    }
    fn capacity(&self) -> u32 {
        self.0.capacity()
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
    #[inline]
    fn warm(&self, page: u32) -> u32 {
        self.0.warm(page)
    }
    #[inline]
    fn warm_victims(&self) -> u32 {
        self.0.warm_victims()
    }
}
