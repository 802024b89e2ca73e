//! Table of volumes. The server sorts and filters it, because it may have thousands of rows.

use manager::view::VolumeView;
use maud::{Markup, html};

use super::data::{PageData, PageQuery, SortKey, SortOrder, VOLUMES_MAX, marks, violated};
use super::spark::sparkline;
use super::words::{NONE, bytes, count, duration, maybe, number, percent};

/// Sortable columns: key, name and unit.
const SORTED: [(SortKey, &str, &str); 9] = [
    (SortKey::Name, "volume", ""),
    (SortKey::Tier, "tier", ""),
    (SortKey::Class, "class", ""),
    (SortKey::Reads, "r/s", ""),
    (SortKey::Writes, "w/s", ""),
    (SortKey::ReadAwait, "r_await", "µs"),
    (SortKey::WriteAwait, "w_await", "µs"),
    (SortKey::P99, "p99", "µs"),
    (SortKey::Objective, "objective", "µs"),
];

/// Returns the name in URLs, which equals the serde name.
fn key_name(key: SortKey) -> &'static str {
    match key {
        SortKey::Name => "name",
        SortKey::Tier => "tier",
        SortKey::Class => "class",
        SortKey::Reads => "reads",
        SortKey::Writes => "writes",
        SortKey::ReadAwait => "read-await",
        SortKey::WriteAwait => "write-await",
        SortKey::P99 => "p99",
        SortKey::Objective => "objective",
    }
}

fn order_name(order: SortOrder) -> &'static str {
    match order {
        SortOrder::Ascending => "ascending",
        SortOrder::Descending => "descending",
    }
}

/// Renders the filter box. It is not part of the elements that a refresh replaces.
pub(super) fn filter(wanted: &PageQuery) -> Markup {
    html! {
        form id="filter-form" method="get" action="/" role="search" {
            label for="filter" { "Filter" }
            input id="filter" name="filter" type="search" value=(wanted.filter) autocomplete="off" spellcheck="false"
                placeholder="name, tier, class, violated, moving, pinned, limited …";
            input type="hidden" name="sort" value=(key_name(wanted.sort));
            input type="hidden" name="order" value=(order_name(wanted.order()));
            button type="submit" { "Filter" }
        }
    }
}

/// Renders the table.
pub(super) fn part(shown: &PageData, wanted: &PageQuery) -> Markup {
    let shown_rows = shown.volumes.len();
    html! {
        div id="volumes" {
            p class="note" role="status" {
                @if shown.matching > VOLUMES_MAX {
                    "The first " (count(shown_rows as u64)) " of " (count(shown.matching as u64)) " volumes: narrow the filter to see the others."
                } @else if shown.matching < shown.status.volumes as usize {
                    (count(shown.matching as u64)) " of " (count(shown.status.volumes)) " volumes match."
                } @else {
                    "All " (count(shown.matching as u64)) " volumes."
                }
            }
            div class="scroll" id="volumes-scroll" tabindex="0" role="region" aria-label="Table of volumes" {
                table {
                    thead { tr {
                        @for (key, name, unit) in SORTED { (head(key, name, unit, wanted)) }
                        th scope="col" { "p99 of the last windows" }
                        th scope="col" { "state" }
                    } }
                    tbody { @for v in &shown.volumes { (row(shown, v)) } }
                }
            }
        }
    }
}

/// Renders a header as a link, which works from the keyboard and without the script.
fn head(key: SortKey, name: &str, unit: &str, wanted: &PageQuery) -> Markup {
    let sorted = wanted.sort == key;
    let now = wanted.order();
    let text = matches!(key, SortKey::Name | SortKey::Tier | SortKey::Class);
    let next = match (sorted, now) {
        (true, SortOrder::Ascending) => SortOrder::Descending,
        (true, SortOrder::Descending) => SortOrder::Ascending,
        (false, _) if text => SortOrder::Ascending,
        (false, _) => SortOrder::Descending,
    };
    let query = [
        ("filter", &*wanted.filter),
        ("sort", key_name(key)),
        ("order", order_name(next)),
    ];
    // Serialization of texts cannot fail.
    let query = serde_urlencoded::to_string(query).unwrap_or_default();
    let arrow = match (sorted, now) {
        (false, _) => "",
        (true, SortOrder::Ascending) => " ▲",
        (true, SortOrder::Descending) => " ▼",
    };
    let class = if text { "" } else { "n" };
    html! {
        th scope="col" class=(class) aria-sort=(if sorted { order_name(now) } else { "none" }) {
            a class="sort" id={ "sort-" (key_name(key)) } href={ "/?" (query) "#volumes-section" }
                data-sort=(key_name(key)) data-order=(order_name(next)) { (name) (arrow) }
            @if !unit.is_empty() { br; span class="unit" { (unit) } }
        }
    }
}

fn row(shown: &PageData, v: &VolumeView) -> Markup {
    let load = v.load.as_ref();
    html! {
        tr class=(if violated(v) { "violated" } else { "" }) {
            th scope="row" { (shown.named(&v.host, &v.name)) br; span class="faint" { (bytes(v.allocated_bytes)) " of " (bytes(v.size_bytes)) } }
            td { @if v.on_tiers.len() > 1 {
                @for (i, t) in v.on_tiers.iter().enumerate() { @if i > 0 { br; } (t.tier) " " span class="faint" { (bytes(t.bytes)) } }
            } @else { (v.tier) br; span class="faint" { (v.device) } } }
            td { (v.class) }
            td class="n" { (maybe(load.map(|l| l.reads_per_s))) }
            td class="n" { (maybe(load.map(|l| l.writes_per_s))) }
            td class="n" { (maybe(load.and_then(|l| l.read_mean_us))) }
            td class="n" { (maybe(load.and_then(|l| l.write_mean_us))) }
            td class="n" { (maybe(load.and_then(|l| l.p99_us))) }
            td class="n" { (objective(v)) }
            td { (sparkline(v)) }
            td class="state" { (state(v)) }
        }
    }
}

fn objective(v: &VolumeView) -> Markup {
    let Some(slo) = &v.slo else {
        return html! { span class="faint" { "none" } };
    };
    html! {
        (slo.statistic.name()) " ≤ " (number(slo.target_us)) br;
        @match slo.measured_us {
            Some(m) if m > slo.target_us => span class="bad" { "✗ violated: " (number(m)) },
            Some(m) => span class="good" { "✓ met: " (number(m)) },
            None => span class="faint" { "idle" },
        }
        @if slo.violated > 0 { br; span class="faint" { "violated in " (count(slo.violated)) " of " (count(v.p99_us.len() as u64)) " windows" } }
    }
}

fn state(v: &VolumeView) -> Markup {
    let errors = v.load.map_or(0, |l| l.errors);
    let special = marks(v).iter().any(|(name, on)| *on && *name != "violated");
    html! {
        @if let Some(moving) = &v.moving {
            @let all = moving.copied_bytes.saturating_add(moving.left_bytes).max(1);
            span class="mark" { "moving to " (moving.to) ", " (percent(moving.copied_bytes as f64 / all as f64)) } " "
        }
        @if v.calibrating { span class="mark" { "calibrating" } " " }
        @if let Some(tier) = &v.pinned { span class="mark" { "pinned to " (tier) } " " }
        @if let Some(bound) = &v.bound { span class="mark" title=(bound.why) { (if bound.by_hand { "by hand" } else { "cannot move" }) } " " }
        @if let Some(t) = &v.throttle { span class="mark" { "limited" @if !t.in_force { ", not in force yet" } @match &t.for_volume { Some(of) => { " for the objective of " (of) }, None if t.left_ns > 0 => { " for " (duration(t.left_ns)) }, None => {} } } " " }
        @if v.load.is_none() { span class="mark" { "load unknown" } " " }
        @if let Some(left) = v.cooldown_left_ns { span class="faint" { "in cooldown for " (duration(left)) " " } }
        @if errors > 0 { span class="bad" { (count(errors)) " errors" } }
        @if !special && v.cooldown_left_ns.is_none() && errors == 0 { span class="faint" { (NONE) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_names_match_the_parsed_names() {
        for (key, ..) in SORTED {
            assert_eq!(serde_json::to_value(key).unwrap(), key_name(key));
        }
        for order in [SortOrder::Ascending, SortOrder::Descending] {
            assert_eq!(serde_json::to_value(order).unwrap(), order_name(order));
        }
    }
}
