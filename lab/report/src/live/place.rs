//! `terrace place`: the best tier for a volume that does not exist yet.

use std::fmt::Write;

use manager::view::{PlaceCostView, PlaceStanding, PlaceTierView, PlaceView};
use units::Nanos;

use super::ago;
use crate::format::{MICROS, NONE, fixed, gib, maybe};
use crate::tables::{number, printable, table, words};

/// Renders the tiers, best first, with the reason for or against each, and notes. `now` is the controller's time.
pub fn place(place: &PlaceView, now: Nanos) -> String {
    let mut out = String::new();
    let what = format!(
        "new volume of {} GiB, class {}, on host {}, by strategy {} with data from {}: {}",
        fixed(gib(place.size_bytes), 2),
        place.class,
        place.host,
        place.strategy,
        ago(now, place.at_ns),
        match (&place.tier, &place.why_not) {
            (Some(tier), _) => format!("best tier {tier}"),
            (None, Some(why)) => format!("no recommendation: {why}"),
            (None, None) => "no recommendation".into(),
        }
    );
    let _ = writeln!(out, "{}\n", printable(&what));
    let columns = [
        words("tier"),
        number("latency", MICROS),
        number("5–95 %", MICROS),
        number("violation", "s/s"),
        number("of others", "s/s"),
        number("busy", "%"),
        number("space left", "GiB"),
        words("verdict"),
    ];
    let rows = place.tiers.iter().map(row).collect();
    out += &table(&columns, rows);
    out.push('\n');
    // Without a recommendation the first line has this text already.
    let worth_saying = |t: &&PlaceTierView| match t.standing {
        PlaceStanding::Best | PlaceStanding::Refused => true,
        PlaceStanding::Unknown => Some(&t.verdict) != place.why_not.as_ref(),
        PlaceStanding::Possible => false,
    };
    for tier in place.tiers.iter().filter(worth_saying) {
        let why = format!(
            "{}, {}: {}",
            tier.tier,
            standing(tier.standing),
            tier.verdict
        );
        let _ = writeln!(out, "{}", printable(&why));
    }
    for note in &place.notes {
        let _ = writeln!(out, "note: {}", printable(note));
    }
    out
}

fn row(tier: &PlaceTierView) -> Vec<String> {
    let range = tier.latency_range_us;
    let cost = |of: fn(&PlaceCostView) -> Option<f64>| maybe(tier.cost.as_ref().and_then(of), 3);
    vec![
        tier.tier.clone(),
        maybe(tier.latency_us, 0),
        range.map_or(NONE.into(), |(low, high)| {
            format!("{}–{}", fixed(low, 0), fixed(high, 0))
        }),
        cost(|c| Some(c.own_per_s)),
        cost(|c| c.others_per_s),
        maybe(tier.device_use.map(|u| u * 100.0), 1),
        maybe(tier.free_after_bytes.map(gib), 1),
        standing(tier.standing).into(),
    ]
}

fn standing(standing: PlaceStanding) -> &'static str {
    match standing {
        PlaceStanding::Best => "best",
        PlaceStanding::Possible => "possible",
        PlaceStanding::Unknown => "unknown",
        PlaceStanding::Refused => "refused",
    }
}
