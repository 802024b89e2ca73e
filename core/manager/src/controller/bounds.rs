//! Limits of a report, and the escaping of its texts.
//!
//! Long lists and texts are cut with a mark, so that no measurement is lost. Names are not
//! cut, since two could become equal: a report with an invalid name is refused.

use crate::problem::ProblemKind;
use crate::wire::{ArrayProblem, HandMove, NodeState, WindowReport};

/// Most bytes of a name. Protects messages and the store.
const NAME_BYTES_MAX: usize = 512;

/// Most audit lines of a report.
const LINES_MAX: usize = 32;

/// Most bytes of such a line.
const LINE_BYTES_MAX: usize = 1_024;

/// Most problems of a report, and most bytes of each of their texts.
const PROBLEMS_MAX: usize = 1_024;
const PROBLEM_BYTES_MAX: usize = 2_048;

/// Most bytes of the reason why a volume cannot move, and of the command that moves it.
const WORDS_BYTES_MAX: usize = 4_096;

/// Most entries of other lists: appliances, calibrations and their windows, places of a volume.
const LIST_MAX: usize = 4_096;

/// Appended to a text that was cut.
const MARK: &str = " … (cut)";

/// Cuts a text to at most `bytes_max` bytes, with a mark if it was longer.
fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max - MARK.len()));
        text += MARK;
    }
    text
}

/// Same as [`cut`], with escapes for characters that deceive a terminal.
pub(super) fn tidy(text: &str, bytes_max: usize) -> String {
    // More than fits, so the end gets its mark. Escapes are longer, hence the second cut.
    let text = &text[..text.floor_char_boundary(bytes_max + 4)];
    cut(units::shown(text).into_owned(), bytes_max)
}

fn tidy_in_place(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max || text.contains(units::is_hidden) {
        *text = tidy(text, bytes_max);
    }
}

/// Returns why a report has an invalid name or a list that is too long.
pub(super) fn fault(report: &WindowReport) -> Option<String> {
    let devices = report.devices.iter();
    let volumes = || report.volumes.iter();
    let names = report
        .tiers
        .iter()
        .chain(devices.flat_map(|d| [&d.name, &d.tier]))
        .chain(volumes().flat_map(|v| [&v.name, &v.class, &v.home]))
        .chain(volumes().flat_map(|v| &v.placed).map(|p| &p.device))
        .chain(volumes().flat_map(|v| &v.moving).map(|m| &m.device))
        .chain(report.calibrations.iter().map(|c| &c.volume));
    for name in names {
        if let Some(fault) = units::hidden_fault(name) {
            return Some(format!("name {} {fault}", tidy(name, 100)));
        }
        if name.len() > NAME_BYTES_MAX {
            let (name, bytes) = (tidy(name, 100), name.len());
            return Some(format!(
                "name {name} has {bytes} bytes, the limit is {NAME_BYTES_MAX}"
            ));
        }
    }
    let windows = report.calibrations.iter().map(|c| c.windows.len());
    let samples = volumes().flat_map(|v| &v.sample).map(|s| s.busy.len());
    let longest = volumes()
        .map(|v| v.placed.len())
        .chain(windows)
        .chain(samples)
        .chain([report.calibrations.len(), report.appliances.len()])
        .max();
    let longest = longest.filter(|n| *n > LIST_MAX)?;
    Some(format!(
        "a list has {longest} entries, the limit is {LIST_MAX}"
    ))
}

/// Cuts lists and texts of a report, and escapes its texts.
pub(super) fn tidy_report(report: &mut WindowReport) {
    let lines = report.problem.len();
    report.problem.truncate(LINES_MAX);
    for line in &mut report.problem {
        tidy_in_place(line, LINE_BYTES_MAX);
    }
    if lines > LINES_MAX {
        let more = lines - LINES_MAX;
        report
            .problem
            .push(format!("{more} more lines of this report were omitted"));
    }
    tidy_problems(report);
    for device in &mut report.devices {
        device
            .place
            .iter_mut()
            .for_each(|p| tidy_in_place(p, WORDS_BYTES_MAX));
        device.errors.truncate(PROBLEMS_MAX);
        for error in &mut device.errors {
            tidy_in_place(&mut error.op, NAME_BYTES_MAX);
            tidy_in_place(&mut error.errno, NAME_BYTES_MAX);
        }
    }
    for volume in &mut report.volumes {
        volume
            .vm
            .iter_mut()
            .for_each(|vm| tidy_in_place(vm, NAME_BYTES_MAX));
        volume.by_hand.iter_mut().for_each(tidy_hand_move);
        volume
            .bound
            .iter_mut()
            .for_each(|b| tidy_in_place(&mut b.why, WORDS_BYTES_MAX));
        let busy = volume.sample.iter_mut().flat_map(|s| &mut s.busy);
        busy.for_each(|b| tidy_in_place(&mut b.resource, NAME_BYTES_MAX));
    }
    for result in &mut report.calibrations {
        result
            .cut_off
            .iter_mut()
            .for_each(|why| tidy_in_place(why, LINE_BYTES_MAX));
    }
    for node in report.lends.iter_mut().flat_map(|l| &mut l.nodes) {
        if let NodeState::Failed { why } = &mut node.state {
            tidy_in_place(why, LINE_BYTES_MAX);
        }
    }
}

/// Keeps the most urgent problems, and the number of the others.
fn tidy_problems(report: &mut WindowReport) {
    let problems = &mut report.problems;
    let all = problems.len();
    if all > PROBLEMS_MAX {
        problems.sort_by_key(|t| ProblemKind::of_array(&t.kind));
        problems.truncate(PROBLEMS_MAX - 1);
    }
    for problem in &mut *problems {
        tidy_in_place(&mut problem.kind, NAME_BYTES_MAX);
        tidy_in_place(&mut problem.about, NAME_BYTES_MAX);
        tidy_in_place(&mut problem.what, PROBLEM_BYTES_MAX);
    }
    if all > PROBLEMS_MAX {
        let more = all + 1 - PROBLEMS_MAX;
        problems.push(ArrayProblem {
            kind: ProblemKind::Other.name().into(),
            about: "problems".into(),
            what: format!("{more} more problems are not listed: check the array on its host"),
        });
    }
}

/// Removes a command that would be cut or escaped: a changed command could lose data.
fn tidy_hand_move(by_hand: &mut HandMove) {
    match by_hand {
        HandMove::None { why } => tidy_in_place(why, WORDS_BYTES_MAX),
        HandMove::Command { text, storages, .. }
            if std::iter::once(&*text)
                .chain(storages.iter().map(|s| &s.text))
                .any(|text| tidy(text, WORDS_BYTES_MAX) != *text) =>
        {
            *by_hand = HandMove::None {
                why: "the command is too long or contains control characters".into(),
            };
        }
        HandMove::Command { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_at_a_character_and_marked() {
        assert_eq!(cut("short".into(), 20), "short");
        let long = cut("ü".repeat(100), 40);
        assert!(long.len() <= 40 && long.ends_with("… (cut)"), "{long}");
        let hidden = tidy(&"\u{202e}".repeat(1000), 64);
        assert!(
            hidden.len() <= 64 && hidden.starts_with("\\u{202e}"),
            "{hidden}"
        );
    }
}
