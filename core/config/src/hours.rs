//! Hours of the week in which moves may start by themselves. Time zones are compiled in, so a scenario has the same hours on every host.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;

use crate::ValueError;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAY_MIN: u32 = 24 * 60;
const WEEK_MIN: u32 = 7 * DAY_MIN;

/// Time ranges of the local week, in minutes since Monday 00:00; any time if there are none.
#[derive(Debug, Clone, PartialEq)]
pub struct Hours {
    /// Start and length of each range, in minutes.
    stretches: Vec<(u32, u32)>,
    zone: TimeZone,
}

impl Default for Hours {
    fn default() -> Self {
        Self {
            stretches: vec![],
            zone: TimeZone::UTC,
        }
    }
}

impl Hours {
    /// Parses ranges such as `22:00-06:00` (every day), `Sat 00:00-24:00` or `Mon-Fri 20:00-23:30`, and a time zone: a name of the IANA
    /// database such as `Europe/Berlin`, with its daylight saving time, or a fixed offset such as `+02:00`.
    ///
    /// # Errors
    /// [`ValueError`] with the invalid text.
    pub fn parse(texts: &[String], zone: &str) -> Result<Self, ValueError> {
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
                return Err(ValueError::EmptyHours(text.clone()));
            }
            let length = if to > from {
                to - from
            } else {
                to + DAY_MIN - from
            };
            stretches.extend(days.map(|day| ((day % 7) * DAY_MIN + from, length)));
        }
        let zone = DateTimeParser::new().parse_time_zone(zone).map_err(|why| {
            let (zone, why) = (zone.into(), why.to_string());
            ValueError::TimeZone { zone, why }
        })?;
        Ok(Self { stretches, zone })
    }

    /// Returns true if the time is within one of the ranges.
    pub fn hold(&self, unix_ms: u64) -> bool {
        if self.stretches.is_empty() {
            return true;
        }
        let local = self.zone.to_datetime(timestamp(unix_ms));
        let day = u32::from(local.weekday().to_monday_zero_offset().unsigned_abs());
        let [hour, minute] = [local.hour(), local.minute()].map(|n| u32::from(n.unsigned_abs()));
        let minute = day * DAY_MIN + hour * 60 + minute;
        self.stretches.iter().any(|(begin, length)| {
            let into = (minute + WEEK_MIN - begin) % WEEK_MIN;
            into < *length
        })
    }

    /// Returns milliseconds of local time since 1970.
    pub fn local_ms(&self, unix_ms: u64) -> u64 {
        let offset = self.zone.to_offset(timestamp(unix_ms));
        unix_ms.saturating_add_signed(i64::from(offset.seconds()) * 1000)
    }
}

/// A time that no calendar has is the last one that it has.
fn timestamp(unix_ms: u64) -> Timestamp {
    let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

fn wrong(text: &str) -> ValueError {
    ValueError::HoursForm(text.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(text: &str, zone: &str) -> Hours {
        Hours::parse(&[text.to_string()], zone).unwrap()
    }

    #[test]
    fn hours_apply_to_given_days_and_across_midnight() {
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
    fn named_zone_has_daylight_saving_time() {
        let night = hours("22:00-06:00", "Europe/Berlin");
        // Days of November and July 2026.
        let [winter, summer] = [1_795_238_000_000, 1_784_698_200_000];
        for (at, ahead_h) in [(winter, 1), (summer, 2)] {
            assert_eq!(night.local_ms(at), at + ahead_h * 3_600_000);
        }
        let half_past_four = |at: u64| at / 86_400_000 * 86_400_000 + 16_200_000;
        assert!(night.hold(half_past_four(winter)));
        assert!(!night.hold(half_past_four(summer)));
    }

    #[test]
    fn weekday_with_hour_converts_to_a_time() {
        let at = |text| unix_ms_of(text).unwrap();
        assert!(hours("Mon 08:00-09:00", "+00:00").hold(at("Mon 08:30")));
        assert!(hours("Sun 23:00-24:00", "+00:00").hold(at("sun 23:59")));
        assert!(!hours("Sun 23:00-24:00", "+00:00").hold(at("Sat 23:59")));
        for bad in ["Mon", "08:00", "Mon 8:00", "Xyz 08:00"] {
            assert_eq!(unix_ms_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn invalid_hours_are_refused() {
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
        for bad in ["", "02:00", "+26:00", "Europe/Bonn"] {
            assert!(Hours::parse(&[], bad).is_err(), "{bad}");
        }
    }
}
