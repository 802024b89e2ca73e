//! Hours of the week in which moves may start by themselves.

use serde::{Deserialize, Serialize};

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAY_MIN: u32 = 24 * 60;
const WEEK_MIN: u32 = 7 * DAY_MIN;

/// Time ranges of the week, in minutes since Monday 00:00; any time if there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hours {
    /// Start and length of each range, in minutes.
    stretches: Vec<(u32, u32)>,
    /// Minutes by which local time is ahead of UTC.
    offset_min: i32,
}

impl Hours {
    /// Parses ranges such as `22:00-06:00` (every day), `Sat 00:00-24:00` or `Mon-Fri 20:00-23:30`, and an offset
    /// such as `+02:00`. The offset does not change with daylight saving time.
    ///
    /// # Errors
    /// A message that names the invalid text.
    pub fn parse(texts: &[String], offset: &str) -> Result<Self, String> {
        let mut stretches = Vec::new();
        for text in texts {
            let (days, times) = match text.trim().rsplit_once(' ') {
                Some((days, times)) => (parse_days(days.trim()).ok_or_else(|| wrong(text))?, times),
                None => (0..7, text.trim()),
            };
            let (from, to) = times.split_once('-').ok_or_else(|| wrong(text))?;
            let (from, to) = (minute(from), minute(to));
            let (Some(from), Some(to)) = (from, to) else {
                return Err(wrong(text));
            };
            if from == to || from == DAY_MIN {
                return Err(format!(
                    "hours {text:?} are empty: start and end must differ, and 24:00 is not a valid start"
                ));
            }
            let length = if to > from {
                to - from
            } else {
                to + DAY_MIN - from
            };
            stretches.extend(days.map(|day| ((day % 7) * DAY_MIN + from, length)));
        }
        let offset_min = parse_offset(offset)
            .ok_or_else(|| format!("invalid UTC offset {offset:?}: write +02:00 or -05:30"))?;
        Ok(Self {
            stretches,
            offset_min,
        })
    }

    /// Returns true if the time is within one of the ranges.
    pub fn hold(&self, unix_ms: u64) -> bool {
        if self.stretches.is_empty() {
            return true;
        }
        let minutes = (unix_ms / 60_000) as i64 + i64::from(self.offset_min);
        // The first of January 1970 was a Thursday.
        let minute = (minutes + 3 * i64::from(DAY_MIN)).rem_euclid(i64::from(WEEK_MIN)) as u32;
        self.stretches.iter().any(|(begin, length)| {
            let into = (minute + WEEK_MIN - begin) % WEEK_MIN;
            into < *length
        })
    }

    /// Returns milliseconds of local time since 1970.
    pub fn local_ms(&self, unix_ms: u64) -> u64 {
        unix_ms.saturating_add_signed(i64::from(self.offset_min) * 60_000)
    }
}

fn wrong(text: &str) -> String {
    format!(
        "invalid hours {text:?}: write \"22:00-06:00\", \"Sat 00:00-24:00\" or \"Mon-Fri 20:00-23:30\""
    )
}

/// Parses days of the week, 0 is Monday. A range that wraps continues past 6.
fn parse_days(text: &str) -> Option<std::ops::Range<u32>> {
    let day = |name: &str| DAYS.iter().position(|d| *d == name).map(|d| d as u32);
    match text.split_once('-') {
        None => day(text).map(|d| d..d + 1),
        Some((first, last)) => {
            let (first, last) = (day(first)?, day(last)?);
            Some(first..if last >= first { last + 1 } else { last + 8 })
        }
    }
}

/// Returns the UTC time, in milliseconds since 1970, of a day and hour such as `Mon 08:00` in the first full week
/// of 1970. Other texts return `None`.
pub fn unix_ms_of(text: &str) -> Option<u64> {
    let (name, time) = text.trim().split_once(' ')?;
    let day = DAYS.iter().position(|d| d.eq_ignore_ascii_case(name))? as u64;
    // 1970 began on a Thursday.
    let minutes = (4 + day) * u64::from(DAY_MIN) + u64::from(minute(time)?);
    Some(minutes * 60_000)
}

fn minute(text: &str) -> Option<u32> {
    let (hour, minute) = text.trim().split_once(':')?;
    let two = |t: &str| (t.len() == 2).then(|| t.parse::<u32>().ok()).flatten();
    let (hour, minute) = (two(hour)?, two(minute)?);
    let all = hour * 60 + minute;
    (minute < 60 && all <= DAY_MIN).then_some(all)
}

fn parse_offset(text: &str) -> Option<i32> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let minutes = minute(&text[1..])?;
    (minutes <= 14 * 60).then_some(sign * minutes as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(text: &str, offset: &str) -> Hours {
        Hours::parse(&[text.to_string()], offset).unwrap()
    }

    #[test]
    fn of_every_day_of_some_days_and_over_midnight() {
        // Saturday, 21 November 2026, 23:30 UTC.
        let at = 1_795_303_800_000;
        assert!(hours("22:00-06:00", "+00:00").hold(at));
        assert!(!hours("00:00-22:00", "+00:00").hold(at));
        assert!(hours("Sat 00:00-24:00", "+00:00").hold(at));
        assert!(!hours("Sun 00:00-24:00", "+00:00").hold(at));
        assert!(hours("Sun 00:00-24:00", "+01:00").hold(at));
        assert!(hours("Fri-Mon 23:00-23:45", "+00:00").hold(at));
        assert!(!hours("Mon-Fri 00:00-24:00", "+00:00").hold(at));
        // A range that starts on Saturday evening continues on Sunday morning.
        assert!(hours("Sat 22:00-06:00", "+00:00").hold(at + 3_600_000));
        assert!(!hours("Sun 22:00-06:00", "+00:00").hold(at + 3_600_000));
        assert!(Hours::default().hold(at));
    }

    #[test]
    fn a_day_and_hour_is_a_time() {
        let at = |text| unix_ms_of(text).unwrap();
        assert!(hours("Mon 08:00-09:00", "+00:00").hold(at("Mon 08:30")));
        assert!(hours("Sun 23:00-24:00", "+00:00").hold(at("sun 23:59")));
        assert!(!hours("Sun 23:00-24:00", "+00:00").hold(at("Sat 23:59")));
        for bad in ["Mon", "08:00", "Mon 8:00", "Xyz 08:00"] {
            assert_eq!(unix_ms_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "22-06",
            "25:00-26:00",
            "22:00-22:00",
            "Foo 22:00-23:00",
            "2:00-3:00",
            "24:00-02:00",
        ] {
            assert!(Hours::parse(&[bad.to_string()], "+00:00").is_err(), "{bad}");
        }
        assert!(Hours::parse(&[], "02:00").is_err());
        assert!(Hours::parse(&[], "+25:00").is_err());
    }
}
