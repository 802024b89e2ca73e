//! Document of a trial. Names, paths and reasons from outside are made printable here; the page escapes them.

use manager::view::{DeviceView, PlanView, PlannedMove, TierView};
use units::counted;

use super::{
    DiskSeen, EPOCH_WINDOWS, Gain, MoveGain, PlaceSeen, Stays, Trial, TrialTier, WindowSeen,
};
use crate::chart::{LINE_COLORS, Line, LineChart, Quantity, Reference, Size};
use crate::document::{Block, Cell, Chart, Document, Section, Tone};
use crate::format::{MICROS, NONE, fixed, gib, maybe, mib, seconds, span};
use crate::tables::{Column, number, printable, words};

/// Maximum number of lines of a chart, one per colour.
const LINES_MAX: usize = LINE_COLORS;

/// Most recommendations at the end.
const RECOMMENDATIONS_MAX: usize = 5;

/// Medium of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Terminal: tables and short remarks.
    Terminal,
    /// Page: also charts and the computation of the interval.
    Page,
}

pub(super) fn document(trial: &Trial, form: Form) -> Document {
    let page = form == Form::Page;
    let mut sections = vec![in_short(trial), tiers(trial), disks(trial, form)];
    sections.extend(trial.plan.as_ref().map(|plan| moves(trial, plan)));
    sections.extend(stays(trial));
    if page {
        sections.extend(trial.gain.as_ref().map(|gain| interval(trial, gain)));
    }
    sections.extend([go_on(trial), recommendations(trial)]);
    Document {
        title: format!("Trial of {}", printable(&trial.host)),
        facts: vec![
            ("observed".into(), span(trial.seconds * 1_000_000_000)),
            (
                "objective".into(),
                format!("mean latency of at most {}", objective(trial)),
            ),
            ("terrace".into(), env!("CARGO_PKG_VERSION").into()),
            ("changed".into(), "nothing that remains".into()),
        ],
        sections,
    }
}

fn section(id: &str, title: impl Into<String>, blocks: Vec<Block>) -> Section {
    Section {
        id: id.into(),
        title: title.into(),
        blocks,
    }
}

fn objective(trial: &Trial) -> String {
    micros(trial.latency_us)
}

pub(super) fn micros(us: f64) -> String {
    let (value, digits, unit) = match us {
        us if us >= 1e4 => (us / 1e3, 1, "ms"),
        us if us >= 1e3 => (us / 1e3, 2, "ms"),
        us => (us, 0, "µs"),
    };
    let text = fixed(value, digits);
    let whole = text.trim_end_matches('0').strip_suffix('.');
    format!("{} {unit}", whole.unwrap_or(&text))
}

/// Returns the length of an epoch, from the windows of any disk.
fn epoch(trial: &Trial) -> String {
    let window_s = trial.disks.iter().map(|d| d.window_s).fold(0.0, f64::max);
    // Windows end some milliseconds late, so the length is rounded.
    seconds((window_s * EPOCH_WINDOWS as f64).round())
}

fn in_short(trial: &Trial) -> Section {
    let mut said = vec![];
    match (&trial.plan, &trial.gain) {
        (None, _) => said.push(format!(
            "no plan after {} s: run the trial to its end, or longer",
            trial.seconds
        )),
        (Some(_), None) => {
            said.push("no disk had requests in the last epoch, so latencies are unknown".into())
        }
        (Some(plan), Some(gain)) => {
            said.push(above(trial, gain, plan));
            said.extend(together(gain));
            said.extend(plan.moves.iter().filter_map(doubt));
        }
    }
    if one_place(trial) {
        said.push("only one pool, directory or storage was found: no move is possible".into());
    }
    section("in-short", "Summary", vec![Block::List(said)])
}

fn one_place(trial: &Trial) -> bool {
    trial.tiers.iter().map(|t| t.places.len()).sum::<usize>() < 2
}

fn above(trial: &Trial, gain: &Gain, plan: &PlanView) -> String {
    let now = format!(
        "{} of {} had a mean latency above {} in the last {}",
        gain.above_now,
        disks_with_requests(gain.disks),
        objective(trial),
        epoch(trial)
    );
    let moves = plan.moves.len();
    if moves == 0 {
        return format!("{now}; no move is recommended");
    }
    let range = match gain.above_after_range {
        Some((few, many)) if few != many => format!(" ({few} to {many} by the bounds below)"),
        _ => String::new(),
    };
    let moves = counted(moves, "move");
    format!("{now}; after {moves}: {}{range}", gain.above_after)
}

fn disks_with_requests(n: u32) -> String {
    format!("{} with requests", counted(n, "disk"))
}

fn together(gain: &Gain) -> Option<String> {
    if gain.moves.is_empty() {
        return None;
    }
    let after = match gain.after_range_us {
        Some((low, high)) => format!(" ({} to {})", micros(low), micros(high)),
        None => String::new(),
    };
    let how_much = match gain.gain_range {
        Some(range) => format!(" ({})", percents(range)),
        None => String::new(),
    };
    Some(format!(
        "mean latency over all requests: {} → {}{after}: a gain of {} %{how_much}",
        micros(gain.before_us),
        micros(gain.after_us),
        percent(gain.gain)
    ))
}

/// Describes a doubtful move, for which no command is printed.
fn doubt(m: &PlannedMove) -> Option<String> {
    let why = m.doubt.as_ref()?;
    let text = format!("doubtful: {} to {}: {why}", m.volume, m.to_tier);
    Some(printable(&text))
}

fn percent(share: f64) -> String {
    fixed(share * 100.0, 0)
}

fn percents((low, high): (f64, f64)) -> String {
    format!("{} to {} %", percent(low), percent(high))
}

fn tiers(trial: &Trial) -> Section {
    let columns = vec![
        words("tier"),
        words("pool, directory or storage"),
        words("device (kernel)"),
        number("read latency", MICROS),
        words("assumed device"),
        number("disks", ""),
        number("used", "GiB"),
        number("size", "GiB"),
        number("busy", "%"),
    ];
    let mut rows = vec![];
    for tier in &trial.tiers {
        let now = trial.tiers_now.iter().find(|t| t.name == tier.name);
        for (place, found) in tier.places.iter().zip(&tier.found) {
            rows.push(place_row(tier, place, found, now));
        }
    }
    let mut blocks = vec![Block::Table(columns, rows)];
    let remarks = guesses(trial);
    if !remarks.is_empty() {
        blocks.push(Block::List(remarks));
    }
    section("tiers", "Tiers as assumed", blocks)
}

fn place_row(
    tier: &TrialTier,
    (name, path): &(String, String),
    found: &PlaceSeen,
    now: Option<&TierView>,
) -> Vec<Cell> {
    let place = match name == path {
        true => printable(path),
        false => format!("{} ({})", printable(name), printable(path)),
    };
    // The agent names a device after its directory or pool, and a local storage of a cluster once for each node.
    let of_node = format!("/{name}");
    let is_device =
        |d: &&DeviceView| d.name == *path || d.name == *name || d.name.ends_with(&of_node);
    let devices = now.into_iter().flat_map(|t| &t.devices).filter(is_device);
    let devices: Vec<&DeviceView> = devices.collect();
    let sum = |of: fn(&DeviceView) -> u64| {
        let all = devices.iter().map(|d| of(d)).sum();
        maybe((!devices.is_empty()).then(|| gib(all)), 1)
    };
    let busy = devices
        .iter()
        .filter_map(|d| d.utilization)
        .reduce(f64::max);
    let alone = tier.places.len() == 1;
    let taken = match tier.latency_times {
        Some(times) => format!("{}, latencies x {}", tier.preset, fixed(times, 2)),
        None => tier.preset.clone(),
    };
    vec![
        printable(&tier.name).into(),
        place.into(),
        found.device.as_deref().unwrap_or("not inspected").into(),
        maybe(found.read_us, 0).into(),
        taken.into(),
        now.filter(|_| alone)
            .map_or_else(|| NONE.into(), |t| t.volumes.to_string())
            .into(),
        sum(|d| d.used_bytes).into(),
        sum(|d| d.size_bytes).into(),
        maybe(busy.map(|u| u * 100.0), 0).into(),
    ]
}

/// Lists the assumptions about tiers that no measurement supports.
fn guesses(trial: &Trial) -> Vec<String> {
    let mut said = vec![];
    for tier in &trial.tiers {
        for ((_, path), found) in tier.places.iter().zip(&tier.found) {
            if let Some(why) = &found.not_read {
                said.push(format!(
                    "{} was not probed: {}",
                    printable(path),
                    printable(why)
                ));
            }
        }
        let read = tier.found.iter().any(|f| f.read_us.is_some());
        let busy = |d: &&DiskSeen| d.tier == tier.name && d.mean_us.is_some();
        if !read && !trial.disks.iter().any(|d| busy(&d)) {
            said.push(format!(
                "tier {}: its disks had no requests, so it was not measured: its predictions use only the preset {}, which is a guess",
                printable(&tier.name),
                tier.preset
            ));
        }
    }
    said
}

fn disks(trial: &Trial, form: Form) -> Section {
    let columns = vec![
        words("disk"),
        words("tier"),
        number("r/s", ""),
        number("w/s", ""),
        number("rMiB/s", ""),
        number("wMiB/s", ""),
        number("r_await", MICROS),
        number("w_await", MICROS),
        number("mean", MICROS),
        number("window means, 5–95 %", MICROS),
        number("above objective", "windows"),
    ];
    let rows = trial.disks.iter().map(|d| disk_row(trial, d));
    let mut blocks = vec![Block::Table(columns, rows.collect())];
    if trial.disks.is_empty() {
        blocks = vec![Block::Text(
            "no disk of a running domain is on one of the tiers".into(),
        )];
    }
    if form == Form::Page && !trial.disks.is_empty() {
        blocks.insert(0, charts(trial));
        let shown = trial.disks.len().min(LINES_MAX);
        if shown < trial.disks.len() {
            let text = format!(
                "The charts show the {shown} busiest of {} disks.",
                trial.disks.len()
            );
            blocks.insert(1, Block::Text(text));
        }
    }
    let time = span(trial.seconds * 1_000_000_000);
    section("disks", format!("Disks during the {time}"), blocks)
}

fn disk_row(trial: &Trial, d: &DiskSeen) -> Vec<Cell> {
    let range = |(low, high): (f64, f64)| format!("{}–{}", fixed(low, 0), fixed(high, 0));
    let is_above = d.mean_us.is_some_and(|us| us > trial.latency_us);
    let mean = Cell {
        text: maybe(d.mean_us, 0),
        tone: if is_above { Tone::Bad } else { Tone::Plain },
    };
    vec![
        printable(&d.volume).into(),
        printable(&d.tier).into(),
        fixed(d.reads_per_s, 0).into(),
        fixed(d.writes_per_s, 0).into(),
        fixed(mib(d.read_bytes_per_s), 1).into(),
        fixed(mib(d.write_bytes_per_s), 1).into(),
        maybe(d.read_mean_us, 0).into(),
        maybe(d.write_mean_us, 0).into(),
        mean,
        d.windows_us.map_or_else(|| NONE.into(), range).into(),
        format!("{} of {}", d.windows_above, d.windows).into(),
    ]
}

fn charts(trial: &Trial) -> Block {
    let shown = || trial.disks.iter().take(LINES_MAX).enumerate();
    let end_s = trial.disks.iter().flat_map(|d| d.series.last());
    let end_s = end_s.map(|p| p.at_s).fold(0.0, f64::max);
    let lines = |of: fn(&WindowSeen) -> Option<f64>| {
        let line = |(i, d): (usize, &DiskSeen)| Line {
            label: printable(&d.volume),
            style: i,
            points: d.series.iter().map(|p| (p.at_s, of(p))).collect(),
        };
        shown().map(line).collect()
    };
    let chart = |title: &str, quantity, lines, reference| {
        Chart::Line(LineChart {
            title: title.into(),
            quantity,
            size: Size::Full,
            lines,
            end_s,
            warmup_s: 0.0,
            reference,
            at_least: 0.0,
        })
    };
    let reference = Reference {
        at: trial.latency_us,
        label: format!("objective {}", objective(trial)),
    };
    Block::Charts(vec![
        chart(
            "Mean latency",
            Quantity::Latency,
            lines(|p| p.mean_us),
            Some(reference),
        ),
        chart("Load", Quantity::Iops, lines(|p| Some(p.per_s)), None),
    ])
}

fn moves(trial: &Trial, plan: &PlanView) -> Section {
    let gain_of = |m: &PlannedMove| {
        let mut moves = trial.gain.iter().flat_map(|g| &g.moves);
        moves.find(|g| g.volume == m.volume)
    };
    let columns: Vec<Column> = vec![
        words("disk"),
        words("from → to"),
        number("before", MICROS),
        number("after", MICROS),
        number("after, 5–95 %", MICROS),
        number("gain", "%"),
        number("gain, 5–95 %", "%"),
        number("size", "GiB"),
        number("copy time", ""),
    ];
    let rows = plan.moves.iter().map(|m| move_row(m, gain_of(m)));
    let mut blocks = vec![match plan.moves.is_empty() {
        true => Block::Text("no moves are recommended".into()),
        false => Block::Table(columns, rows.collect()),
    }];
    if let Some(gain) = trial.gain.as_ref().filter(|g| !g.moves.is_empty()) {
        blocks.push(Block::Text(rests_on(trial, gain)));
        if gain.moves.iter().any(|m| m.gain < 0.0) {
            let text = "a negative gain is a loss, and the reason of the move explains it";
            blocks.push(Block::Text(text.into()));
        }
    }
    let mut why: Vec<String> = vec![];
    for m in &plan.moves {
        why.push(printable(&format!(
            "{}: {} → {}: {}",
            m.volume, m.from, m.to, m.reason
        )));
    }
    for h in &plan.held {
        why.push(printable(&format!(
            "rejected: {} from {} to {}: {}",
            h.volume, h.tier, h.wanted, h.why
        )));
    }
    why.extend(plan.notes.iter().map(|n| printable(n)));
    if !why.is_empty() {
        blocks.push(Block::List(why));
    }
    section("moves", "Recommended moves", blocks)
}

fn move_row(m: &PlannedMove, gain: Option<&MoveGain>) -> Vec<Cell> {
    // A gain is good only if its lower bound is positive.
    let tone = |g: &MoveGain| match (g.gain, g.gain_range) {
        (gain, _) if gain < 0.0 => Tone::Bad,
        (_, Some((low, _))) if low > 0.0 => Tone::Good,
        _ => Tone::Plain,
    };
    let range = |range: Option<(f64, f64)>, times: f64| {
        range.map_or_else(
            || NONE.into(),
            |(low, high)| format!("{} to {}", fixed(low * times, 0), fixed(high * times, 0)),
        )
    };
    vec![
        printable(&m.subject()).into(),
        format!("{} → {}", printable(&m.from_tier), printable(&m.to_tier)).into(),
        maybe(m.before_us, 0).into(),
        maybe(m.after_us, 0).into(),
        range(m.after_range_us, 1.0).into(),
        Cell {
            text: gain.map_or_else(|| NONE.into(), |g| percent(g.gain)),
            tone: gain.map_or(Tone::Plain, tone),
        },
        range(gain.and_then(|g| g.gain_range), 100.0).into(),
        fixed(gib(m.bytes), 2).into(),
        span(m.duration_ns).into(),
    ]
}

/// Describes the interval in a sentence.
fn rests_on(trial: &Trial, gain: &Gain) -> String {
    match gain.factor() {
        Some(factor) => format!(
            "before and after are mean latencies. 5–95 %: the error of predictions in the recorded suites (about nine of ten are within a factor of {} either way); for the gain also the differences between the epochs of {} of each disk; the error of a wrongly guessed device is not included",
            fixed(factor, 1),
            epoch(trial)
        ),
        None => {
            "before and after are mean latencies. No interval: the strategy gives no uncertainty"
                .into()
        }
    }
}

fn stays(trial: &Trial) -> Vec<Section> {
    let list = |of: &[Stays]| {
        let points = of
            .iter()
            .map(|(disk, why)| printable(&format!("{disk}: {why}")));
        vec![Block::List(points.collect())]
    };
    let mut sections = vec![];
    if !trial.fixed.is_empty() {
        sections.push(section(
            "fixed",
            "Disks that cannot be moved",
            list(&trial.fixed),
        ));
    }
    if !trial.left_out.is_empty() {
        sections.push(section(
            "left-out",
            "Disks that were not inspected",
            list(&trial.left_out),
        ));
    }
    sections
}

/// The first moves that have a command, in the order of the plan, because a move may need the space that another one frees.
fn recommendations(trial: &Trial) -> Section {
    let planned = || trial.plan.iter().flat_map(|p| &p.moves);
    let with = planned().filter_map(|m| Some((m, trial.commands.get(&m.volume)?)));
    let with: Vec<(&PlannedMove, &String)> = with.collect();
    let mut blocks = vec![];
    if with.is_empty() {
        let text = format!("nothing to gain now: {}", no_gain(trial));
        blocks.push(Block::Text(printable(&text)));
    } else {
        let text =
            "Run these commands in this order, one at a time, and check the state before each.";
        blocks.push(Block::Text(text.into()));
    }
    for (n, (m, command)) in with.iter().take(RECOMMENDATIONS_MAX).enumerate() {
        let latency = match (m.before_us, m.after_us) {
            (Some(before), Some(after)) => format!(": {} → {}", micros(before), micros(after)),
            _ => String::new(),
        };
        let what = format!(
            "{}. {}, {} → {}{latency}",
            n + 1,
            m.volume,
            m.from_tier,
            m.to_tier
        );
        blocks.push(Block::Text(printable(&what)));
        blocks.push(Block::Lines(vec![printable(command)]));
    }
    let mut without: Vec<String> = planned()
        .filter_map(|m| {
            let why = trial.no_commands.get(&m.volume)?;
            Some(printable(&format!("{}: no command: {why}", m.volume)))
        })
        .collect();
    let left = with.len().saturating_sub(RECOMMENDATIONS_MAX);
    if left > 0 {
        without.push(format!(
            "{left} further moves: see the table of recommended moves"
        ));
    }
    if !without.is_empty() {
        blocks.push(Block::List(without));
    }
    section("recommendations", "Recommendations", blocks)
}

/// The reason why no move has a command.
fn no_gain(trial: &Trial) -> String {
    let Some(plan) = &trial.plan else {
        return format!(
            "no plan after {} s; run the trial to its end, or longer",
            trial.seconds
        );
    };
    let busy = trial.disks.iter().filter(|d| d.mean_us.is_some()).count();
    let above = trial.gain.as_ref().map_or(0, |g| g.above_now);
    match plan.moves.len() {
        0 if one_place(trial) => "only one pool, directory or storage was found".into(),
        0 if trial.disks.is_empty() => "no disk is on one of the tiers".into(),
        0 if busy == 0 => "no disk had requests".into(),
        0 if above == 0 => format!(
            "all disks with requests have a mean latency below {}",
            objective(trial)
        ),
        0 => format!(
            "{above} of {} miss {}, and no move would help them for certain",
            disks_with_requests(busy as u32),
            objective(trial)
        ),
        1 => "the only move in question has no command, for the following reason".into(),
        n => format!("the {n} moves in question have no command, for the following reasons"),
    }
}

fn interval(trial: &Trial, gain: &Gain) -> Section {
    let epoch = epoch(trial);
    let mut points = vec![format!(
        "Before: the mean of all requests in the last {epoch}, as the hypervisor counts them. After: the prediction of the model for that load on the other device."
    )];
    if let Some(factor) = gain.factor() {
        points.push(format!(
            "The bounds of after are those of every prediction of Terrace, here a factor of {} either way. A trial makes no moves, so its own error is unknown: about nine of ten outcomes in the recorded suites of scenarios and random arrays are within this factor (`terrace bench decisions`).",
            fixed(factor, 2)
        ));
        points.push(format!(
            "The bounds of a gain also contain the differences between the disk's own epochs of {epoch} during the trial (1.645 standard deviations of the logarithms of their means): a disk whose latency changes from minute to minute has wide bounds. Both are assumed to be independent."
        ));
        points.push("All moves together: disks are weighted by their requests, all predictions are assumed to have the same error, and disks that stay are assumed to keep their latency.".into());
    }
    points.push("Not included: the error of a wrongly guessed device. The preset of a tier is a guess until a disk on it was busy, it was probed (--probe), or it was set (--preset).".into());
    section(
        "interval",
        "How the interval is computed",
        vec![Block::List(points)],
    )
}

fn go_on(trial: &Trial) -> Section {
    let host = printable(&trial.host);
    let points = vec![
        format!("`terrace init {host}`, with the other options of this trial, writes terrace.toml with these tiers; it only recommends moves"),
        "`terrace config check terrace.toml`, `terrace serve --config terrace.toml`, and after some hours or days `terrace plan --explain`".into(),
        "to enable moves: set `moves = true` in terrace.toml, and run as a user who may change the virtual machines and their images; then `terrace apply PLAN`, or a mode above \"recommend\"".into(),
    ];
    section("go-on", "Next steps", vec![Block::List(points)])
}
