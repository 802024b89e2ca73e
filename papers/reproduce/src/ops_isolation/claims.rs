//! Claims of the slides, and their results.

mod isolation;

use super::cells::LOADS;
use super::device::Device;
use super::figures::{Figures, Row};
use super::mode::{Mode, ServiceMode, SharingMode};
use super::readings::{USUAL, Way};
use crate::claim::{ClaimFinding, Measure, Rule, measure, near, said};

/// Error below which the result counts as "close to I/O weight".
const CLOSE: f64 = 0.15;
/// |ln| of a ratio of ratios above which they differ.
const DIFFERENT: f64 = 0.05;
/// Share of VM-F's own pages among the pages moved while it runs: the only number of the slides.
const OWN_PUBLISHED: f64 = 0.30;

const PART_1: &str = "part 1, Results";

/// Figures of one way of running.
#[derive(Clone, Copy)]
struct OfWay<'a> {
    figures: &'a Figures,
    way: Way,
}

impl<'a> OfWay<'a> {
    fn row(self, experiment: &str, device: Device, mode: Mode, mix: &str) -> Option<&'a Row> {
        self.figures.row(self.way, experiment, device, mode, mix)
    }
}

/// Returns all claims that apply to a reading, judged.
pub(super) fn claims(figures: &Figures, way: Way, service: ServiceMode) -> Vec<ClaimFinding> {
    let of = OfWay { figures, way };
    let mut all = Vec::new();
    if service == USUAL {
        if way.on_all_devices() {
            all.extend(proportional(of));
        }
        all.extend(moves(of));
    }
    if way.isolates() {
        all.extend(isolation::claims(of, service));
    }
    if service == USUAL && way.on_all_devices() {
        all.extend(components(of));
    }
    all
}

/// Creates measures of the errors of proportionality under host weights, each with the rule.
fn errors(
    of: OfWay<'_>,
    experiment: &str,
    devices: &[Device],
    mixes: &[&str],
    rule: Rule,
) -> Vec<Measure> {
    let pairs = devices
        .iter()
        .flat_map(|d| mixes.iter().map(move |m| (*d, *m)));
    let one = |(device, mix): (Device, &str)| {
        let row = of.row(experiment, device, Mode::POOL_WEIGHTS, mix);
        let name = format!("{mix} on {}: proportionality error", device.name());
        measure(name, row.map(|r| r.error), rule)
    };
    pairs.map(one).collect()
}

fn proportional(of: OfWay<'_>) -> Vec<ClaimFinding> {
    let on = |device, rule| errors(of, "proportionality", &[device], &LOADS, rule);
    vec![
        said(
            "hdd-proportional",
            PART_1,
            "HDD: proportionality close to I/O weight",
        )
        .found(on(Device::Disk, Rule::Below(CLOSE))),
        said("aged-not-proportional", PART_1, "not so for the aged SSD")
            .found(on(Device::Aged, Rule::Above(CLOSE))),
        said("clean-not-proportional", PART_1, "not so for the clean SSD")
            .found(on(Device::Clean, Rule::Above(CLOSE))),
    ]
}

fn moves(of: OfWay<'_>) -> Vec<ClaimFinding> {
    let row = |sharing| {
        let mode = Mode::new(sharing, ServiceMode::Fcfs);
        of.row("moves", of.way.simulated(), mode, "F+M+E")
    };
    let (pool, apart) = (row(SharingMode::OnePool), row(SharingMode::IsolatedEqual));
    let measures = |row: Option<&Row>, rule: Rule| -> Vec<Measure> {
        let shares = row.map_or(&[][..], |r| &r.own_share);
        let of = |(i, load): (usize, &str)| {
            let share = shares.get(i).copied().flatten();
            measure(format!("{load}: share of its own"), share, rule)
        };
        LOADS.into_iter().enumerate().map(of).collect()
    };
    let financial = measures(pool, near(OWN_PUBLISHED)).into_iter().take(1);
    vec![
        said(
            "own-moves",
            "part 1, Analysis #3",
            "while VM-F runs, only 30 % of moved pages are its own",
        )
        .printed(OWN_PUBLISHED)
        .note("the slides do not give the number of VMs; the slide of the analysis shows three")
        .found(financial.map(|m| m.printed(OWN_PUBLISHED)).collect()),
        said(
            "foreign-moves",
            "part 1, Analyses #2 and #3",
            "collection started by one VM moves pages of other VMs: unnecessary work induced by others",
        )
        .found(measures(pool, Rule::Below(0.5))),
        said(
            "isolated-moves",
            "part 1, Avoiding interference",
            "with OPS isolation each VM pays only for its own collection",
        )
        .found(measures(apart, Rule::Between(1.0, 1.0))),
    ]
}

fn components(of: OfWay<'_>) -> Vec<ClaimFinding> {
    let all = [
        Device::Disk,
        Device::Ssd,
        Device::NoBuffer,
        Device::OneChannel,
    ];
    let random = ["random-write-32k"];
    vec![
        said(
            "random-proportional",
            "part 2, random write 32 KB",
            "proportionality generally close to I/O weight, on all devices",
        )
        .found(errors(of, "components", &all, &random, Rule::Below(CLOSE))),
        said(
            "fileserver-deviates",
            "part 2, Fileserver",
            "proportionality deviates for SSD and SSD 1CH",
        )
        .note("judged against the same device under random writes, seed by seed; the absolute error may stay below 0.15")
        .found(fileserver(of)),
        said(
            "ncq-changes",
            "part 2, Effect of NCQ",
            "with NCQ on and off the time series of two VMs differ",
        )
        .note(
            "judged by ln((bandwidth of VM-5 / VM-1 with NCQ on) / (the same with it off)), seed by seed: all of its interval beyond 0.05 on the \
             side of its mean",
        )
        .found(ncq(of)),
    ]
}

fn fileserver(of: OfWay<'_>) -> Vec<Measure> {
    let one = |device: Device| {
        let row = |mix| of.row("components", device, Mode::POOL_WEIGHTS, mix);
        let rows = row("fileserver").zip(row("random-write-32k"));
        let difference = rows.map(|(files, random)| files.paired(random, |a, b| a.error - b.error));
        let name = format!(
            "{}: proportionality error beyond that of random writes",
            device.name()
        );
        measure(name, difference, Rule::Above(0.0))
    };
    [Device::Ssd, Device::OneChannel].map(one).into()
}

fn ncq(of: OfWay<'_>) -> Vec<Measure> {
    let one = |mix: &str| {
        let row = |device| of.row("ncq", device, Mode::POOL_WEIGHTS, mix);
        let change = row(Device::Ssd).zip(row(Device::NoNcq)).map(|(on, off)| {
            on.paired(off, |on, off| {
                libm::log(on.proportionality[1] / off.proportionality[1])
            })
        });
        let name = format!("{mix}: ln of the change of the ratio of bandwidths");
        measure(name, change, beyond(change.map_or(0.0, |c| c.mean)))
    };
    ["proj", "exchange"].map(one).into()
}

/// Returns the rule for a change of more than [`DIFFERENT`] in the direction of the mean.
fn beyond(mean: f64) -> Rule {
    if mean < 0.0 {
        Rule::Below(-DIFFERENT)
    } else {
        Rule::Above(DIFFERENT)
    }
}
