//! `terrace why` and `terrace why-not` with a live controller.

use std::fmt::Write;

use manager::view::{
    OnTierView, OptionView, PeakView, ResponseView, ThrottleView, VolumeView, WhyNotView, WhyView,
};
use units::{Nanos, counted};

use super::{ago, line, outcomes};
use crate::format::{MICROS, fixed, gib, maybe, mib, span, with_unit_of};
use crate::parts::parts;
use crate::tables::{number, printable, table, words};

/// Explains the place of a volume: its state, the last decision with its numbers and options, and the effect of its moves.
/// `now` is the controller's time.
pub fn why(why: &WhyView, now: Nanos) -> String {
    let mut out = String::new();
    volume(&mut out, &why.volume);
    match why.generation.zip(why.at_ns) {
        Some((generation, at_ns)) => {
            let _ = writeln!(out, "\nplan {generation}, {}", ago(now, at_ns));
        }
        None => out.push('\n'),
    }
    let _ = writeln!(out, "  {}", printable(&why.outcome));
    for note in &why.notes {
        let _ = writeln!(out, "  {}", printable(note));
    }
    extents(&mut out, why);
    evidence(&mut out, why);
    options(&mut out, why);
    if !why.outcomes.is_empty() {
        let _ = write!(out, "\nmoves\n{}", outcomes(&why.outcomes, now));
    }
    if !why.responses.is_empty() {
        out.push_str("\nSLO violations\n");
        for r in &why.responses {
            response(&mut out, r, now);
        }
    }
    out
}

/// Adds a remedy for a violation of this volume or of another one.
fn response(out: &mut String, r: &ResponseView, now: Nanos) {
    let _ = writeln!(
        out,
        "  {}, {}: {}",
        printable(&r.volume),
        ago(now, r.at_ns),
        printable(&r.evidence.join("; "))
    );
    let ended = r.ended_ns.map(|ns| format!(" {}", ago(now, ns)));
    let _ = writeln!(
        out,
        "    {}: {}{}",
        r.state.name(),
        printable(&r.action),
        ended.unwrap_or_default()
    );
    if let Some(prediction) = &r.prediction {
        let _ = writeln!(out, "    predicted: {}", printable(prediction));
    }
    if let Some(price) = &r.price {
        let _ = writeln!(out, "    price: {}", printable(price));
    }
    for other in &r.others {
        let (remedy, price) = (printable(&other.action), printable(&other.price));
        let _ = writeln!(out, "    alternative: {remedy}, price: {price}");
    }
    for no in &r.refused {
        let _ = writeln!(
            out,
            "    rejected: {}: {}",
            no.remedy.name(),
            printable(&no.why)
        );
    }
    if let Some(peak) = &r.peak {
        peak_line(out, peak, now);
        return;
    }
    let _ = match r.recovered_ns.zip(r.violated_last_ns) {
        Some((recovered, violated)) => writeln!(
            out,
            "    recovered {}; last violated {} after the violation was found",
            ago(now, recovered),
            span(violated.saturating_sub(r.found_ns))
        ),
        None => writeln!(out, "    objective still violated"),
    };
}

/// Adds the state of an expected peak for which a remedy was chosen in advance.
fn peak_line(out: &mut String, peak: &PeakView, now: Nanos) {
    let _ = match &peak.outcome {
        Some(outcome) => writeln!(
            out,
            "    peak: maximum {} requests/s, {} expected; {} of {} windows violated the objective",
            fixed(outcome.rate_max_per_s, 0),
            fixed(peak.rate_per_s, 0),
            outcome.violated,
            outcome.windows
        ),
        None if now.0 < peak.at_ns => {
            writeln!(out, "    peak expected in {}", span(peak.at_ns - now.0))
        }
        None if now.0 < peak.until_ns => {
            writeln!(out, "    peak expected now")
        }
        None => writeln!(out, "    the result of the peak is unknown"),
    };
}

fn limited(t: &ThrottleView) -> String {
    let iops = t.iops.map(|n| format!("{n} requests"));
    let bytes = t.bandwidth_bytes_per_s;
    let bytes = bytes.map(|n| format!("{} MiB", fixed(mib(n as f64), 1)));
    let both: Vec<String> = iops.into_iter().chain(bytes).collect();
    let most = format!("to {} a second", both.join(" and "));
    if let Some(of) = &t.for_volume {
        let so = if t.in_force { "" } else { ", not in force yet" };
        return format!("{most} for the objective of {}{so}", printable(of));
    }
    match (t.left_ns, t.in_force) {
        (0, _) => format!("{most}, in force but no longer ordered"),
        (left, true) => format!(
            "{most} for {}: its load and latency are not evaluated",
            span(left)
        ),
        (left, false) => format!("{most} for {}, ordered but not in force yet", span(left)),
    }
}

fn volume(out: &mut String, v: &VolumeView) {
    line(
        out,
        "volume",
        &format!("{}/{}, class {}", v.host, v.name, v.class),
    );
    let size = format!(
        "{} GiB, {} GiB allocated",
        fixed(gib(v.size_bytes), 2),
        fixed(gib(v.allocated_bytes), 2)
    );
    line(out, "size", &size);
    let mut place = format!("{} ({})", v.tier, v.device);
    if let Some(tier) = &v.pinned {
        place += &format!(", pinned to {tier}");
    }
    if let Some(moving) = &v.moving {
        let left = fixed(gib(moving.left_bytes), 2);
        place += &format!(", moving to {} ({left} GiB left)", moving.to);
    }
    if let Some(left) = v.cooldown_left_ns {
        place += &format!(", may move again in {}", span(left));
    }
    line(out, "tier", &place);
    if let Some(bound) = v.bound.as_ref().filter(|b| b.by_hand) {
        line(out, "moves", &format!("by hand: {}", bound.why));
    }
    if v.on_tiers.len() > 1 {
        let all: u64 = v.on_tiers.iter().filter_map(|t| t.requests).sum();
        let share = |t: &OnTierView| match t.requests {
            Some(requests) if all > 0 => {
                let percent = requests as f64 / all as f64 * 100.0;
                format!(" with {} % of its requests", fixed(percent, 1))
            }
            _ => String::new(),
        };
        let tier =
            |t: &OnTierView| format!("{} GiB on {}{}", fixed(gib(t.bytes), 2), t.tier, share(t));
        let tiers: Vec<String> = v.on_tiers.iter().map(tier).collect();
        line(out, "extents", &tiers.join(", "));
    }
    if let Some(throttle) = &v.throttle {
        line(out, "limited", &limited(throttle));
    }
    let load = v.load.as_ref().map_or("unknown".into(), |l| {
        format!(
            "{} r/s, {} w/s, {} MiB/s read, {} MiB/s written, queue {}",
            fixed(l.reads_per_s, 0),
            fixed(l.writes_per_s, 0),
            fixed(mib(l.read_bytes_per_s), 1),
            fixed(mib(l.write_bytes_per_s), 1),
            fixed(l.outstanding, 1)
        )
    });
    line(out, "load", &load);
    if let Some(slo) = &v.slo {
        let objective = format!(
            "{} of at most {} {MICROS}, measured {}; violated in {} of the last {} windows",
            slo.statistic.name(),
            fixed(slo.target_us, 0),
            maybe(slo.measured_us, 0),
            slo.violated,
            v.p99_us.len()
        );
        line(out, "objective", &objective);
    }
    if v.calibrating {
        line(
            out,
            "calibration",
            "replies are delayed to measure the reaction",
        );
    }
}

/// Adds the decisions about extents that are placed separately.
fn extents(out: &mut String, why: &WhyView) {
    for e in &why.extents {
        let mut text = format!(
            "{} ({} GiB) {} → {}: {}",
            counted(e.extents, "extent"),
            fixed(gib(e.bytes), 2),
            e.from,
            e.to,
            e.reason
        );
        if let Some(by) = &e.refused {
            text += &format!("; rejected: {by}");
        }
        let _ = writeln!(out, "    {}", printable(&text));
    }
}

fn evidence(out: &mut String, why: &WhyView) {
    if why.evidence.is_empty() {
        return;
    }
    out.push_str("  based on\n");
    let widths = why.evidence.keys().map(|k| k.chars().count());
    let width = widths.max().unwrap_or(0);
    for (name, value) in &why.evidence {
        let number = with_unit_of(name, *value);
        let _ = writeln!(out, "    {:width$}  {number}", printable(name));
    }
}

fn options(out: &mut String, why: &WhyView) {
    if why.options.is_empty() {
        return;
    }
    let columns = [
        words("tier"),
        number("score", ""),
        number("latency", MICROS),
        number("IOPS", "/s"),
        words("verdict"),
    ];
    let label = |o: &OptionView| match o.tier == why.volume.tier {
        true => format!("{} (current)", o.tier),
        false => o.tier.clone(),
    };
    let rows = why.options.iter().map(|o| {
        vec![
            label(o),
            maybe(o.score, 4),
            maybe(o.latency_us, 1),
            maybe(o.iops, 0),
            o.verdict.clone(),
        ]
    });
    out.push_str("  options (latency and IOPS are predictions)\n");
    for line in table(&columns, rows.collect()).lines() {
        let _ = writeln!(out, "   {line}");
    }
    let scored = why.options.iter();
    parts(out, scored.map(|o| (label(o), o.score, o.parts.as_ref())));
}

/// Explains why a volume is not on a tier.
pub fn why_not(why: &WhyNotView) -> String {
    let by = why
        .generation
        .map_or(String::new(), |g| format!(", plan {g}"));
    let text = format!(
        "volume {} is on {}, not on {}{by}: {}",
        why.volume, why.here, why.tier, why.why
    );
    match why.here == why.tier {
        true => printable(&format!("volume {} is on {}", why.volume, why.tier)) + "\n",
        false => printable(&text) + "\n",
    }
}
