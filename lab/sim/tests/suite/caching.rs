//! Cache in front of the devices, in whole runs: compared with an LRU list of pages, in every write mode, and during
//! moves.

use std::sync::Arc;

use algo::Rng;
use model::Op;
use sim::{CacheSummary, GroupKind, Manifest, Model, RunOptions, RunResult, ScenarioFile};
use trace::{LoadedTrace, Record, Request};

const PAGE: u64 = 64 << 10;

/// Two tiers and two volumes. `a` has an objective. Additional tables follow the volumes.
fn model(records: &[Record], more: &str) -> Model {
    let text = format!(
        r#"
seed = 5
window = "1s"
[[tiers]]
name = "fast"
preset = "nvme-tlc"
capacity = "8 GiB"
[[tiers]]
name = "slow"
preset = "pm863"
capacity = "16 GiB"
[[classes]]
name = "gold"
weight = 4.0
latency = "1ms"
statistic = "mean"
[[volumes]]
name = "a"
class = "gold"
size = "1 GiB"
tier = "slow"
[[volumes]]
name = "b"
size = "2 GiB"
tier = "slow"
[[traces]]
file = "t"
{more}
"#
    );
    let file = ScenarioFile::parse("cache.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let trace = LoadedTrace::from_records(records.to_vec(), None, &["a", "b"]).unwrap();
    file.build(vec![Arc::new(trace)])
        .unwrap_or_else(|e| panic!("{e}"))
}

fn run_under(strategy: &str, records: &[Record], more: &str) -> RunResult {
    let strategy = planner::build(strategy, Default::default()).unwrap();
    let options = RunOptions {
        series: true,
        decisions: false,
        optimum: None,
    };
    let model = model(records, more);
    sim::run(&model, strategy, Manifest::default(), options, &mut |_| {}).unwrap()
}

fn run(records: &[Record], more: &str) -> RunResult {
    run_under("noop", records, more)
}

/// Returns skewed requests of one to three pages, some of them partial, to both volumes.
fn requests(n: u64, reads: f64) -> Vec<Record> {
    let mut rng = Rng::new(3, 0);
    let one = |i: u64| {
        let volume = rng.below(2) as u32;
        let hot = rng.unit() < 0.8;
        let page = rng.below(if hot { 400 } else { 12_000 });
        let (shift, length) = match rng.below(4) {
            0 => (4096, 8192),
            1 => (0, 3 * PAGE),
            _ => (0, PAGE),
        };
        Record::new(Request {
            time_ns: i * 400_000,
            volume,
            op: if rng.unit() < reads {
                Op::Read
            } else {
                Op::Write
            },
            offset_bytes: page * PAGE + shift,
            length_bytes: length as u32,
        })
    };
    (0..n).map(one).collect()
}

/// Returns read hits and misses of an LRU list of the given number of pages. `allocates` decides whether a written page
/// is cached.
fn listed(
    records: &[Record],
    pages: usize,
    allocates: impl Fn(bool, bool) -> Option<bool>,
) -> (u64, u64) {
    let mut list: Vec<(u32, u64)> = Vec::new();
    let (mut hits, mut misses) = (0, 0);
    for r in records {
        let (offset, length) = (r.offset_bytes, u64::from(r.length_bytes));
        for page in offset / PAGE..(offset + length).div_ceil(PAGE) {
            let key = (r.volume(), page);
            let at = list.iter().position(|p| *p == key);
            let whole = offset <= page * PAGE && (page + 1) * PAGE <= offset + length;
            let stays = match r.op() {
                Op::Read => {
                    hits += u64::from(at.is_some());
                    misses += u64::from(at.is_none());
                    Some(true)
                }
                _ => allocates(whole, at.is_some()),
            };
            let Some(stays) = stays else { continue };
            if let Some(at) = at {
                list.remove(at);
            }
            if stays {
                list.insert(0, key);
                list.truncate(pages);
            }
        }
    }
    (hits, misses)
}

fn cache(result: &RunResult) -> &CacheSummary {
    result.cache.as_ref().expect("there is a cache")
}

fn reads(cache: &CacheSummary) -> (u64, u64) {
    let of = cache.parts.iter().map(|p| p.counts);
    of.fold((0, 0), |(h, m), c| (h + c.read_hits, m + c.read_misses))
}

#[test]
fn cache_hits_match_an_lru_list() {
    let records = requests(20_000, 0.7);
    for pages in [64, 700] {
        let size = format!("[cache]\nsize = \"{} KiB\"\n", pages * 64);
        // Write-through: a fully written page is cached; a partially written one only if it was cached before.
        let through = listed(&records, pages, |whole, there| {
            (whole || there).then_some(true)
        });
        assert_eq!(reads(cache(&run(&records, &size))), through);
        let around = listed(&records, pages, |_, there| there.then_some(false));
        let result = run(&records, &format!("{size}writes = \"write-around\"\n"));
        assert_eq!(reads(cache(&result)), around);
        assert_eq!(cache(&result).destaged_pages, 0);
    }
}

/// Hits take the time of a hit and cause no device I/O.
#[test]
fn cache_hits_cause_no_device_io_and_misses_read_whole_pages() {
    // Each page of both volumes twice, in parts of 4 KiB.
    let twice = |i: u64| {
        Record::new(Request {
            time_ns: i * 1_000_000,
            volume: (i % 2) as u32,
            op: Op::Read,
            offset_bytes: (i / 2 % 500) * PAGE + 4096,
            length_bytes: 4096,
        })
    };
    let records: Vec<Record> = (0..2000).map(twice).collect();
    let result = run(&records, "[cache]\nsize = \"1 GiB\"\nhit = \"30us\"\n");
    let tier = |name: &str| {
        let mut tiers = result.of_kind(GroupKind::Tier);
        tiers.find(|g| g.name == name).unwrap().all
    };
    assert_eq!((tier("cache").ios, tier("slow").ios), (1000, 1000));
    assert_eq!((tier("cache").mean_us, tier("fast").ios), (30.0, 0));
    let volumes = &cache(&result).volumes;
    assert!(volumes.iter().all(|v| v.read_hit_ratio == Some(0.5)));
    // A miss reads 64 KiB and takes as long as a request of that size without a cache.
    let whole = |r: &Record| {
        Record::new(Request {
            time_ns: r.time_ns,
            volume: r.volume(),
            op: Op::Read,
            offset_bytes: r.offset_bytes / PAGE * PAGE,
            length_bytes: PAGE as u32,
        })
    };
    let without = run(&records.iter().map(whole).collect::<Vec<_>>(), "");
    let first = |r: &RunResult| r.series.as_ref().unwrap().groups[0].reads.mean_us[0];
    assert_eq!(first(&result), first(&without));
    let series = result.series.as_ref().unwrap();
    assert_eq!(series.cache_read_hit_ratio.first(), Some(&Some(0.0)));
    assert_eq!(series.cache_read_hit_ratio[1], Some(1.0));
}

#[test]
fn cache_of_zero_size_changes_no_results() {
    let records = requests(8_000, 0.6);
    let plain = run(&records, "");
    let parts = "[cache]\nsize = \"64 MiB\"\nparts = [{ volume = \"a\", share = 0 }, { volume = \"b\", share = 0 }]\n";
    let mut none = run(&records, parts);
    assert!(cache(&none).volumes.is_empty());
    none.groups.retain(|g| g.name != "cache");
    assert_eq!(none.groups, plain.groups);
}

/// Dirty pages at the end and destaged pages together equal the written pages, page by page.
#[test]
fn written_back_pages_are_the_written_pages() {
    let records = requests(20_000, 0.3);
    let more = "[cache]\nsize = \"20 MiB\"\nwrites = \"write-back\"\nwrite_share = 0.5\n";
    let result = run(&records, more);
    let summary = cache(&result);
    assert!(summary.destaged_pages > 1000, "{}", summary.destaged_pages);
    let written: u64 = summary
        .volumes
        .iter()
        .map(|v| v.counts.write_hits + v.counts.write_misses)
        .sum();
    assert!(summary.destaged_pages < written);
    // Writes do not wait for a device while destages are below their limit.
    let writes = result.total().writes;
    assert!(writes.p50_us < 25.0, "{}", writes.p50_us);
    let tier = |name: &str| {
        let mut tiers = result.of_kind(GroupKind::Tier);
        tiers.find(|g| g.name == name).unwrap().writes.ios
    };
    assert_eq!((tier("slow"), tier("cache")), (0, writes.ios));
}

#[test]
fn cache_partitions_are_isolated() {
    let records = requests(20_000, 1.0);
    let parts = "[cache]\nsize = \"64 MiB\"\nparts = [{ class = \"gold\", share = 0.75 }]\n";
    let result = run(&records, parts);
    let of = |v: u32| -> Vec<Record> {
        let of = records.iter().filter(|r| r.volume() == v);
        of.copied().collect()
    };
    let pages = [768, 256];
    for (v, name) in ["gold", "others"].into_iter().enumerate() {
        let part = cache(&result)
            .parts
            .iter()
            .find(|p| p.name == name)
            .unwrap();
        let want = listed(&of(v as u32), pages[v], |_, _| None);
        assert_eq!(
            (part.counts.read_hits, part.counts.read_misses),
            want,
            "{name}"
        );
        assert_eq!(part.size_bytes, pages[v] as u64 * PAGE);
    }
}

/// A strategy moves volumes in every write mode. No page is lost or left over, and two runs give the same bytes.
#[test]
fn volumes_move_behind_a_cache() {
    let records = requests(30_000, 0.5);
    for writes in ["write-through", "write-around", "write-back"] {
        let more = format!(
            "[cache]\nsize = \"32 MiB\"\npolicy = \"priority-lru\"\nslice = \"2s\"\nhour = \"6s\"\nwrites = \"{writes}\"\n\
             parts = [{{ volume = \"a\", share = 0.5 }}]\n\
             [policy]\nmonitor_epoch = \"1s\"\nmigration_epoch = \"2s\"\ncopy_bandwidth = \"400 MiB/s\"\n"
        );
        let result = run_under("static", &records, &more);
        let moved = run_under("idt", &records, &more);
        assert!(moved.moves.done > 0, "{writes}");
        for run in [&result, &moved] {
            let groups = run.groups.iter();
            let total = run.total().all.ios;
            assert_eq!((total, run.unfinished), (30_000, 0), "{writes}");
            let tiers = groups.filter(|g| g.kind == GroupKind::Tier);
            assert_eq!(tiers.map(|t| t.all.ios).sum::<u64>(), total);
        }
        // Moves do not change the cached data.
        assert_eq!(reads(cache(&result)), reads(cache(&moved)), "{writes}");
        assert_eq!(moved, run_under("idt", &records, &more), "{writes}");
        let gold = &cache(&moved).volumes[0];
        assert!(gold.priority_percent.is_some(), "{writes}");
    }
}

/// Strategies see the load of the devices: a volume that always hits has no load.
#[test]
fn strategies_see_device_measurements_behind_a_cache() {
    let read = |i: u64| {
        Record::new(Request {
            time_ns: i * 200_000,
            volume: 0,
            op: Op::Read,
            offset_bytes: (i % 100) * PAGE,
            length_bytes: 4096,
        })
    };
    let records: Vec<Record> = (0..50_000).map(read).collect();
    let policy = "[policy]\nmonitor_epoch = \"1s\"\nmigration_epoch = \"2s\"\ncopy_bandwidth = \"400 MiB/s\"\n";
    let plain = run_under("idt", &records, policy);
    let cached = format!("[cache]\nsize = \"64 MiB\"\n{policy}");
    let cached = run_under("idt", &records, &cached);
    let asked = |r: &RunResult| -> Vec<String> {
        let of_a = r.move_log.iter().filter(|m| m.volume == "a");
        of_a.map(|m| m.reason.clone()).collect()
    };
    assert_eq!(asked(&plain), ["rank 1 by IOPS (5000/s)"]);
    assert_eq!(asked(&cached), ["rank 1 by IOPS (0/s)"]);
}

#[test]
fn invalid_cache_options_are_refused_with_their_line() {
    let refused = |more: &str| -> String {
        let text = format!(
            "duration = \"9s\"\n[[tiers]]\nname = \"t\"\npreset = \"pm863\"\n[[volumes]]\nname = \"a\"\nsize = \"1 GiB\"\n[[clients]]\nvolume = \"a\"\n{more}"
        );
        let file = ScenarioFile::parse("c.toml", &text);
        match file.and_then(|f| f.build(vec![])) {
            Ok(_) => panic!("taken: {more}"),
            Err(e) => e.to_string(),
        }
    };
    for (keys, says) in [
        ("", "c.toml:10: cache: give either a size or a share"),
        (
            "size = \"1 MiB\"\nshare = 0.1\n",
            "give either a size or a share",
        ),
        (
            "share = 1.5\n",
            "c.toml:11: cache.share: 1.5 must be above 0 and below 1",
        ),
        (
            "share = 0.1\npage = \"5 KiB\"\n",
            "c.toml:12: cache.page: the page size must be a power of two from 4 KiB to 256 KiB",
        ),
        ("size = \"1 KiB\"\n", "c.toml:11: cache.size: 0 pages"),
        (
            "share = 0.1\nslice = \"15s\"\n",
            "c.toml:12: cache.slice: 15s is not a multiple of 10s",
        ),
        (
            "share = 0.1\nhour = \"7m\"\n",
            "cache.hour: 7m is not a multiple of 5m",
        ),
        (
            "share = 0.1\npolicy = \"lfru\"\n",
            "c.toml:12: unknown variant `lfru`, expected one of",
        ),
        (
            "share = 0.1\nparts = [{ class = \"gold\", share = 0.1 }]\n",
            "cache.parts[0].class: ",
        ),
        (
            "share = 0.1\nparts = [{ volume = \"a\", share = 1.1 }]\n",
            "cache.parts[0].share: must be a share from 0 to 1, not 1.1",
        ),
        (
            "share = 0.1\nparts = [{ share = 0.1 }]\n",
            "cache.parts[0]: give either a class or a volume",
        ),
        (
            "share = 0.1\nparts = [{ volume = \"a\", share = 0.1 }, { volume = \"a\", share = 0.1 }]\n",
            "cache.parts[1].volume: already has a part",
        ),
        (
            "share = 0.1\nwrites = \"write-back\"\nwrite_share = 1.0\n",
            "cache.write_share: ",
        ),
    ] {
        let why = refused(&format!("[cache]\n{keys}"));
        assert!(why.contains(says), "{keys}: {why}");
    }
}
