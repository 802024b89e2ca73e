//! Priorities: volumes that miss their response time get better positions in the queue (Priority-LRU).
//!
//! At the end of each slice, a volume's priority rises by 5 % if its response time since the start of the hour exceeds
//! the desired one, and falls by 5 % otherwise, within ±30 %. A missed page is inserted at the position given by its
//! extent's hit ratio plus the priority of its volume, between 20 % and 100 %. From zero to the limit takes six slices,
//! half an hour.

use crate::rates::POSITION_MIN_PERCENT;

/// Step of a priority in percent.
pub const PRIORITY_STEP_PERCENT: i32 = 5;
/// Limit of priorities in both directions, in percent.
pub const PRIORITY_MAX_PERCENT: i32 = 30;

/// Priorities of the volumes `0..n` in percent; all start at 0.
#[derive(Debug, Clone)]
pub struct Priorities {
    percent: Vec<i32>,
}

impl Priorities {
    /// Creates priorities for `volumes` volumes.
    pub fn new(volumes: u32) -> Self {
        Self {
            percent: vec![0; volumes as usize],
        }
    }

    /// Raises the number of volumes to `volumes` at least; new ones start at 0.
    pub fn grow(&mut self, volumes: u32) {
        let volumes = (volumes as usize).max(self.percent.len());
        self.percent.resize(volumes, 0);
    }

    /// Resets the priority of a volume to 0.
    pub fn forget(&mut self, volume: u32) {
        if let Some(percent) = self.percent.get_mut(volume as usize) {
            *percent = 0;
        }
    }

    /// Ends a slice for a volume. `response_over_target` is its mean response time since the start of the hour divided
    /// by the desired one; `None`, for no I/O in the slice, keeps its priority. Exactly on target counts as fast
    /// enough.
    pub fn end_slice(&mut self, volume: u32, response_over_target: Option<f64>) {
        let Some(ratio) = response_over_target.filter(|r| !r.is_nan()) else {
            return;
        };
        let step = if ratio > 1.0 {
            PRIORITY_STEP_PERCENT
        } else {
            -PRIORITY_STEP_PERCENT
        };
        let percent = &mut self.percent[volume as usize];
        *percent = (*percent + step).clamp(-PRIORITY_MAX_PERCENT, PRIORITY_MAX_PERCENT);
    }

    /// Ends a slice for all volumes. Values beyond the known volumes are ignored; they belong to another part of a
    /// cache.
    pub fn slice_ended(&mut self, response_over_target: &[Option<f64>]) {
        let known = response_over_target.iter().take(self.percent.len());
        for (volume, ratio) in known.enumerate() {
            self.end_slice(volume as u32, *ratio);
        }
    }

    /// Returns a volume's priority in percent.
    #[inline]
    pub fn of(&self, volume: u32) -> i32 {
        self.percent[volume as usize]
    }
}

/// Returns the insertion position of a missed page in percent, from the position given by its extent's hit ratio
/// ([`crate::ExtentRates::position`]) and its volume's priority.
#[inline]
pub fn insertion(position_percent: f64, priority_percent: i32) -> f64 {
    (position_percent + f64::from(priority_percent)).clamp(POSITION_MIN_PERCENT, 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::interval;

    #[test]
    fn priority_shifts_the_insertion_position() {
        for (index, priority, percent) in [
            (0.45, 0, 70.0),
            (0.45, -30, 40.0),
            (0.45, 30, 100.0),
            (0.1, -5, 20.0),
            (1.0, 30, 100.0),
            (0.3, -15, 25.0),
        ] {
            assert_eq!(insertion(interval(index), priority), percent);
        }
    }

    #[test]
    fn seventeen_insertion_places_are_reachable() {
        let mut places: Vec<usize> = Vec::new();
        for index in [0.1, 0.3, 0.5, 0.9] {
            for priority in (-30..=30).step_by(5) {
                let percent = insertion(interval(index), priority);
                places.push(crate::Position::from_percent(percent).segment());
            }
        }
        places.sort_unstable();
        places.dedup();
        assert_eq!(places, (3..20).collect::<Vec<_>>());
    }

    #[test]
    fn priorities_change_in_steps_within_limits() {
        let mut priorities = Priorities::new(3);
        for slice in 1..=8 {
            priorities.slice_ended(&[Some(1.5), Some(1.0), None]);
            let steps = slice.min(6) * 5;
            assert_eq!(priorities.of(0), steps);
            assert_eq!(priorities.of(1), -steps, "on target is fast enough");
            assert_eq!(priorities.of(2), 0, "no I/O, no change");
        }
        priorities.end_slice(0, Some(f64::NAN));
        assert_eq!(priorities.of(0), 30);
    }
}
