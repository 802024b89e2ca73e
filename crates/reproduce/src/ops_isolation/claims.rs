//! What the slides say, and what becomes of it here.

mod isolation;

use super::cells::LOADS;
use super::device::Device;
use super::figures::{Figures, Row};
use super::mode::{Mode, ServiceMode, SharingMode};
use crate::dual_period::{Claim, Measure, Outlook, Rule, Value, claim, measure, near};

/// An error below this is "close to I/O weight".
const CLOSE: f64 = 0.15;
/// |ln| of a ratio of ratios beyond which they differ.
const DIFFERENT: f64 = 0.05;

const PART_1: &str = "part 1, Results";

/// All of them, judged.
pub(super) fn claims(figures: &Figures) -> Vec<Claim> {
    let mut all = proportional(figures);
    all.extend(moves(figures));
    all.extend(isolation::claims(figures));
    all.extend(components(figures));
    all
}

/// A claim that stands or falls with its measures.
fn open(id: &'static str, source: &'static str, says: &'static str, ours: Vec<Measure>) -> Claim {
    claim(id, source, says, None, Outlook::Open, ours)
}

fn noted(mut claim: Claim, note: &'static str) -> Claim {
    claim.note = note;
    claim
}

/// Errors of proportionality under host weights, each against the rule.
fn errors(
    figures: &Figures,
    experiment: &str,
    devices: &[Device],
    mixes: &[&str],
    rule: Rule,
) -> Vec<Measure> {
    let pairs = devices
        .iter()
        .flat_map(|d| mixes.iter().map(move |m| (*d, *m)));
    let one = |(device, mix): (Device, &str)| {
        let row = figures.row(experiment, device, Mode::POOL_WEIGHTS, mix)?;
        let name = format!("{mix} on {}: proportionality error", device.name());
        Some(measure(name, row.error, rule))
    };
    pairs.filter_map(one).collect()
}

fn proportional(figures: &Figures) -> Vec<Claim> {
    const DEPTH: &str = "hangs on how many requests are outstanding, which the slides do not say: see the table by depth";
    let of = |device, rule| errors(figures, "proportionality", &[device], &LOADS, rule);
    vec![
        open(
            "hdd-proportional",
            PART_1,
            "HDD: proportionality close to I/O weight",
            of(Device::Disk, Rule::Below(CLOSE)),
        ),
        noted(
            open(
                "aged-not-proportional",
                PART_1,
                "not so for the aged SSD",
                of(Device::Aged, Rule::Above(CLOSE)),
            ),
            DEPTH,
        ),
        noted(
            open(
                "clean-not-proportional",
                PART_1,
                "not so for the clean SSD",
                of(Device::Clean, Rule::Above(CLOSE)),
            ),
            DEPTH,
        ),
    ]
}

fn moves(figures: &Figures) -> Vec<Claim> {
    let row = |sharing| {
        let mode = Mode::new(sharing, ServiceMode::Fcfs);
        figures.row("moves", Device::Simulated, mode, "F+M+E")
    };
    let (pool, apart) = (row(SharingMode::OnePool), row(SharingMode::IsolatedEqual));
    let measures = |row: Option<&Row>, rule: Rule| -> Vec<Measure> {
        let named = shares(row).into_iter().zip(LOADS);
        named
            .map(|(v, load)| measure(format!("{load}: share of its own"), v, rule))
            .collect()
    };
    let financial = measures(pool, near(0.30)).into_iter().take(1).collect();
    vec![
        noted(
            claim(
                "own-moves",
                "part 1, Analysis #3",
                "while VM-F runs, only 30 % of moved pages are its own",
                Some(0.30),
                Outlook::Open,
                financial,
            ),
            "the slides do not say how many VMs ran; three are on the slide of the analysis",
        ),
        open(
            "foreign-moves",
            "part 1, Analyses #2 and #3",
            "collection that one VM sets off moves others' pages: unnecessary work induced by others",
            measures(pool, Rule::Below(0.5)),
        ),
        open(
            "isolated-moves",
            "part 1, Avoiding interference",
            "with OPS isolation each VM pays only for its own collection",
            measures(apart, Rule::Between(1.0, 1.0)),
        ),
    ]
}

/// Of the pages that each tenant's collections moved, the share that was its own.
fn shares(row: Option<&Row>) -> Vec<Value> {
    row.map_or(Vec::new(), |r| {
        r.own_share.iter().flatten().copied().collect()
    })
}

fn components(figures: &Figures) -> Vec<Claim> {
    let all = [
        Device::Disk,
        Device::Ssd,
        Device::NoBuffer,
        Device::OneChannel,
    ];
    vec![
        open(
            "random-proportional",
            "part 2, random write 32 KB",
            "proportionality generally close to I/O weight, on all devices",
            errors(
                figures,
                "components",
                &all,
                &["random-write-32k"],
                Rule::Below(CLOSE),
            ),
        ),
        noted(
            open(
                "fileserver-deviates",
                "part 2, Fileserver",
                "proportionality deviates for SSD and SSD 1CH",
                fileserver(figures),
            ),
            "judged against the same device under random writes, seed by seed; by itself the error may stay below 0.15",
        ),
        noted(
            open(
                "ncq-changes",
                "part 2, Effect of NCQ",
                "with NCQ on and off the time series of two VMs differ",
                ncq(figures),
            ),
            "judged by ln((bandwidth of VM-5 / VM-1 with NCQ on) / (the same with it off)), seed by seed: all of its interval beyond 0.05 on the \
             side of its mean",
        ),
    ]
}

fn fileserver(figures: &Figures) -> Vec<Measure> {
    let one = |device: Device| {
        let of = |mix| figures.row("components", device, Mode::POOL_WEIGHTS, mix);
        let files = of("fileserver")?;
        let difference = files.paired(of("random-write-32k")?, |a, b| a.error - b.error);
        let name = format!(
            "{}: proportionality error beyond that of random writes",
            device.name()
        );
        Some(measure(name, difference, Rule::Above(0.0)))
    };
    [Device::Ssd, Device::OneChannel]
        .into_iter()
        .filter_map(one)
        .collect()
}

fn ncq(figures: &Figures) -> Vec<Measure> {
    let one = |mix: &str| {
        let of = |device| figures.row("ncq", device, Mode::POOL_WEIGHTS, mix);
        let change = of(Device::Ssd)?.paired(of(Device::NoNcq)?, |on, off| {
            libm::log(on.proportionality[1] / off.proportionality[1])
        });
        let name = format!("{mix}: ln of the change of the ratio of bandwidths");
        Some(measure(name, change, beyond(change.mean)))
    };
    ["proj", "exchange"].into_iter().filter_map(one).collect()
}

/// The rule that a change is more than [`DIFFERENT`], in the direction that it has.
fn beyond(mean: f64) -> Rule {
    if mean < 0.0 {
        Rule::Below(-DIFFERENT)
    } else {
        Rule::Above(DIFFERENT)
    }
}
