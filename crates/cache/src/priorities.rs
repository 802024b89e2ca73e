//! Volumes that are slower than they should be get better places in the queue (Priority-LRU).
//!
//! At the end of each slice a volume's priority rises by 5 % if its response time since the hour began is above the desired
//! one, and falls by 5 % if not, within ±30 %. A missed page begins at the place that its extent's hit ratio gives, plus the
//! priority of its volume, between 20 % and 100 %. It takes six slices, half an hour, from nothing to an end.

use crate::rates::POSITION_MIN_PERCENT;

/// Step of a priority, percent.
pub const PRIORITY_STEP_PERCENT: i32 = 5;
/// Priorities are within ± this, percent.
pub const PRIORITY_MAX_PERCENT: i32 = 30;

/// Priorities of the volumes `0..n`, percent; all begin at 0.
#[derive(Debug, Clone)]
pub struct Priorities {
    percent: Vec<i32>,
}

impl Priorities {
    /// For `volumes` volumes.
    pub fn new(volumes: u32) -> Self {
        Self {
            percent: vec![0; volumes as usize],
        }
    }

    /// There are so many volumes now, at least; new ones begin at 0.
    pub fn grow(&mut self, volumes: u32) {
        let volumes = (volumes as usize).max(self.percent.len());
        self.percent.resize(volumes, 0);
    }

    /// A volume begins at 0 again.
    pub fn forget(&mut self, volume: u32) {
        if let Some(percent) = self.percent.get_mut(volume as usize) {
            *percent = 0;
        }
    }

    /// A slice is over. `response_over_target` is the volume's mean response time since the hour began over its desired one;
    /// none if it had no I/O in the slice, which leaves its priority as it is. Exactly on target counts as fast enough.
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

    /// The same for all volumes; what is said of others than those that it is for counts nothing, as of volumes in another part of a cache.
    pub fn slice_ended(&mut self, response_over_target: &[Option<f64>]) {
        let known = response_over_target.iter().take(self.percent.len());
        for (volume, ratio) in known.enumerate() {
            self.end_slice(volume as u32, *ratio);
        }
    }

    /// A volume's priority, percent.
    #[inline]
    pub fn of(&self, volume: u32) -> i32 {
        self.percent[volume as usize]
    }
}

/// Where a missed page begins, percent, from the place that its extent's hit ratio gives ([`crate::ExtentRates::position`]) and
/// its volume's priority.
#[inline]
pub fn insertion(position_percent: f64, priority_percent: i32) -> f64 {
    (position_percent + f64::from(priority_percent)).clamp(POSITION_MIN_PERCENT, 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::interval;

    #[test]
    fn places_with_priorities() {
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
    fn seventeen_places_can_be_reached() {
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
    fn priorities_move_by_steps_and_end() {
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
