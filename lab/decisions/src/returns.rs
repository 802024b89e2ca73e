//! Returns: moves that take a volume back to a place that it left recently.
//!
//! A move is a return if it ends on a tier that the volume, or the same part of it, left at most [`RETURN_EPOCHS`] migration
//! epochs before, whatever happened in between. A move within a tier is a return if it ends on such a device. Operator
//! orders to drain a tier do not count. Returns with a cause are reported in addition to the total: the offered load of the
//! volume, or of one with a large share, has changed.

use model::JobStatus;
use sim::{Model, MoveRecord};

use crate::judge::{OfferedLoads, ordered};

/// Number of migration epochs within which a move back is a return.
const RETURN_EPOCHS: f64 = 20.0;

/// Returns of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Returns {
    /// Number of returns.
    pub(crate) all: u64,
    /// Number of returns with a cause.
    pub(crate) caused: u64,
}

/// Returns true if two moves of a volume have extents in common.
fn meets(a: &MoveRecord, b: &MoveRecord) -> bool {
    let both = a.ranges.as_ref().zip(b.ranges.as_ref());
    both.is_none_or(|(a, b)| a.meets(b))
}

/// Returns true if a move copied data to its target, or still does.
fn took_place(m: &MoveRecord) -> bool {
    !matches!(m.state, JobStatus::Failed | JobStatus::Cancelled)
}

/// Returns true if `again` ends on the tier, or device, that `before` left.
fn goes_back(before: &MoveRecord, again: &MoveRecord) -> bool {
    match again.from == again.to {
        true => before.devices.0 == again.devices.1,
        false => before.from == again.to && before.to != before.from,
    }
}

/// Counts returns among the moves of a run that were begun, in the order in which they were planned.
pub(crate) fn returns(model: &Model, begun: &[&MoveRecord], offered: &OfferedLoads) -> Returns {
    let epoch_s = model.policy.epochs.migration.as_secs_f64();
    let epoch = |m: &MoveRecord| ((m.planned_s / epoch_s).round() as usize).saturating_sub(1);
    let mut found = Returns::default();
    for (v, volume) in model.volumes.iter().enumerate() {
        let own = |m: &&&MoveRecord| m.volume == volume.name && took_place(m) && !ordered(model, m);
        let of_volume: Vec<&&MoveRecord> = begun.iter().filter(own).collect();
        for (i, again) in of_volume.iter().enumerate() {
            let soon =
                |m: &MoveRecord| again.planned_s - m.planned_s <= RETURN_EPOCHS * epoch_s + 1e-6;
            let before = of_volume[..i]
                .iter()
                .rev()
                .find(|m| soon(m) && meets(m, again) && goes_back(m, again));
            if let Some(before) = before {
                found.all += 1;
                found.caused += u64::from(offered.changed(model, v, epoch(before), epoch(again)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use sim::ScenarioFile;

    use super::*;

    /// Returns a move of volume v between tiers, each a letter with the number of a device.
    fn record(from: &str, to: &str, planned_s: f64) -> MoveRecord {
        MoveRecord {
            volume: "v".into(),
            vm: "v".into(),
            from: from[..1].into(),
            to: to[..1].into(),
            devices: (from.into(), to.into()),
            planned_s,
            started_s: Some(planned_s),
            ended_s: None,
            state: JobStatus::Done,
            why_not: None,
            reason: String::new(),
            is_remedy: false,
            extents: None,
            ranges: None,
            bytes: 0,
            predicted_us: None,
            before_us: None,
            range_us: None,
            observed_us: None,
        }
    }

    fn part(ranges: &str, m: MoveRecord) -> MoveRecord {
        MoveRecord {
            extents: Some(1),
            ranges: Some(ranges.parse().expect("ranges")),
            ..m
        }
    }

    /// Returns a model with tiers a, b and c and a migration epoch of a minute.
    fn model(draining: &str) -> Model {
        let tier = |name: &str| {
            format!("[[tiers]]\nname = \"{name}\"\npreset = \"pm953\"\ncapacity = \"6 GiB\"\n")
        };
        let text = format!(
            "duration = \"60m\"\nwindow = \"5s\"\nstrategy = \"noop\"\n[policy]\nmonitor_epoch = \"15s\"\nmigration_epoch = \"60s\"\n\
             drain = [{draining}]\n{}{}{}[[volumes]]\nname = \"v\"\nsize = \"1 GiB\"\ntier = \"a\"\n[[clients]]\nvolume = \"v\"\n\
             habits = {{ outstanding = 1, rate = \"10 IOPS\" }}\n",
            tier("a"),
            tier("b"),
            tier("c")
        );
        let file = ScenarioFile::parse("s.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        file.build(vec![]).unwrap_or_else(|e| panic!("{e}"))
    }

    fn count(moves: &[MoveRecord]) -> u64 {
        let begun: Vec<&MoveRecord> = moves.iter().collect();
        returns(&model(""), &begun, &OfferedLoads::none()).all
    }

    #[test]
    fn return_to_a_tier_within_twenty_epochs_counts() {
        let there = record("a1", "b1", 60.0);
        assert_eq!(
            count(&[there.clone(), record("b1", "a2", 120.0)]),
            1,
            "another device of it"
        );
        let between = record("b1", "c1", 300.0);
        let back = |s| record("c1", "a1", s);
        assert_eq!(count(&[there.clone(), between.clone(), back(1260.0)]), 1);
        assert_eq!(
            count(&[there.clone(), between, back(1320.0)]),
            0,
            "21 epochs"
        );
        assert_eq!(count(&[there.clone(), record("b1", "c1", 120.0)]), 0);
        let failed = MoveRecord {
            state: JobStatus::Failed,
            ..record("b1", "a1", 120.0)
        };
        assert_eq!(count(&[there, failed]), 0);
    }

    #[test]
    fn return_within_a_tier_requires_the_same_device() {
        let there = record("a1", "a2", 60.0);
        assert_eq!(count(&[there.clone(), record("a2", "a1", 120.0)]), 1);
        assert_eq!(count(&[there.clone(), record("a2", "a3", 120.0)]), 0);
        // It never left its tier, so coming to that tier is no return.
        let away = record("a2", "b1", 120.0);
        assert_eq!(count(&[there, away, record("b1", "a3", 180.0)]), 1);
    }

    #[test]
    fn extents_return_if_some_of_them_left() {
        let there = part("0-9", record("a1", "b1", 60.0));
        let back = |ranges| part(ranges, record("b1", "a1", 120.0));
        assert_eq!(count(&[there.clone(), back("9-10")]), 1);
        assert_eq!(count(&[there.clone(), back("10-19")]), 0);
        assert_eq!(count(&[there, record("b1", "a1", 120.0)]), 1);
    }

    #[test]
    fn ordered_drains_do_not_count_and_causes_are_counted_separately() {
        let moves = [record("a1", "b1", 60.0), record("b1", "a1", 120.0)];
        let begun: Vec<&MoveRecord> = moves.iter().collect();
        let none = returns(&model("\"b\""), &begun, &OfferedLoads::none());
        assert_eq!(none, Returns::default());
        let mut step = vec![100.0; 12];
        step[2..].fill(300.0);
        let caused = returns(&model(""), &begun, &OfferedLoads::new(vec![step]));
        assert_eq!(caused, Returns { all: 1, caused: 1 });
    }
}
