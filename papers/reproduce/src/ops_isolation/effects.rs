//! Effect of one choice while the other is fixed: sharing with the same service, service with the same sharing.
//!
//! Compared by seed, because the loads of a seed are the same in all modes.

use serde::Serialize;

use super::figures::Row;
use super::mode::{Mode, ServiceMode, SharingMode};
use super::readings::Way;
use crate::claim::Value;

/// Difference of errors of proportionality above which it is reported.
pub(super) const NOTEWORTHY: f64 = 0.01;

/// Comparison of one mode with another.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Change {
    /// Error of proportionality minus that of the other mode: a negative value is closer to the weights.
    pub error: Value,
    /// Total requests per second relative to the other mode, minus one.
    pub iops: Value,
}

/// Separate effects of the two choices of one mode.
#[derive(Debug, Clone, Serialize)]
pub struct Effect {
    /// Arrival process of requests.
    pub way: Way,
    /// Name of the mix.
    pub mix: String,
    /// Mode.
    pub mode: Mode,
    /// Comparison with one pool and the same service; `None` for one pool.
    pub sharing_alone: Option<Change>,
    /// Comparison with first come, first served and the same sharing; `None` for that service.
    pub service_alone: Option<Change>,
    /// Both effects: comparison with one pool and first come, first served, as in the paper; `None` for that mode.
    pub both: Option<Change>,
}

fn change(row: &Row, from: &Row) -> Change {
    Change {
        error: row.paired(from, |a, b| a.error - b.error),
        iops: row.paired(from, |a, b| a.iops / b.iops - 1.0),
    }
}

/// Computes the effects of all rows in the comparison of modes.
pub(super) fn effects(rows: &[Row]) -> Vec<Effect> {
    let compared: Vec<&Row> = rows
        .iter()
        .filter(|r| r.experiment == "isolation")
        .collect();
    let against = |row: &Row, mode: Mode| {
        let mut others = compared.iter();
        let other = others.find(|r| r.way == row.way && r.mix == row.mix && r.mode == mode);
        other.filter(|_| mode != row.mode).map(|o| change(row, o))
    };
    let effect = |row: &&Row| {
        let Mode { sharing, service } = row.mode;
        let (pool, fcfs) = (SharingMode::OnePool, ServiceMode::Fcfs);
        Effect {
            way: row.way,
            mix: row.mix.clone(),
            mode: row.mode,
            sharing_alone: against(row, Mode::new(pool, service)),
            service_alone: against(row, Mode::new(sharing, fcfs)),
            both: against(row, Mode::new(pool, fcfs)),
        }
    };
    compared.iter().map(effect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops_isolation::cells::{MIXES, cells};
    use crate::ops_isolation::figures::Figures;
    use crate::ops_isolation::setup::Setup;

    #[test]
    fn effects_of_both_orders_add_up_to_the_combined_effect() {
        let setup = Setup {
            seeds: vec![1, 2],
            seconds: 20,
            tenant_mib: 64,
        };
        let (pool, apart) = (SharingMode::OnePool, SharingMode::IsolatedByModel);
        let (fcfs, time) = (ServiceMode::Fcfs, ServiceMode::EqualTime);
        let wanted =
            |m: &Mode| [pool, apart].contains(&m.sharing) && [fcfs, time].contains(&m.service);
        let both_seeds = [1, 2].map(|seed| cells(&setup, Way::Closed, seed)).concat();
        let mut four = both_seeds;
        four.retain(|c| c.experiment == "isolation" && c.mix == MIXES[0] && wanted(&c.mode));
        let results: Vec<_> = four.iter().map(|c| c.run().unwrap()).collect();
        let effects = Figures::new(&four, &results).effects;
        assert_eq!(effects.len(), 4);
        let of = |sharing, service| {
            let mode = Mode::new(sharing, service);
            effects.iter().find(|e| e.mode == mode).unwrap()
        };
        let first = of(pool, fcfs);
        assert!(
            first.sharing_alone.is_none() && first.service_alone.is_none() && first.both.is_none()
        );
        assert!(of(pool, time).sharing_alone.is_none());
        assert!(of(apart, fcfs).service_alone.is_none());
        let mean = |change: Option<Change>| change.unwrap().error.mean;
        let service_first =
            mean(of(pool, time).service_alone) + mean(of(apart, time).sharing_alone);
        let sharing_first =
            mean(of(apart, fcfs).sharing_alone) + mean(of(apart, time).service_alone);
        let both = mean(of(apart, time).both);
        assert!(
            (service_first - both).abs() < 1e-12,
            "{service_first} {both}"
        );
        assert!(
            (sharing_first - both).abs() < 1e-12,
            "{sharing_first} {both}"
        );
        assert!(
            both < -0.05,
            "spare space by the model is nearer to the weights: {both}"
        );
    }
}
