//! Tests of seasonal peaks: repeated peaks are expected, and a forecast has the recorded values.

use super::*;
use crate::curve::Curve;
use crate::load::{Backend, Cost, Place, Resource};
use crate::measured::Habit;
use crate::sample::{ResourceUse, Sample, WorkloadId};
use crate::site::WarmForecast;
use crate::zones::Zone;
use units::Bytes;

const HOUR: u64 = 3600;
const WEEK: u64 = 7 * 24 * HOUR;

fn hour(week: u64, hour: u64) -> Nanos {
    Nanos::from_secs(week * WEEK + hour * HOUR)
}

#[test]
fn weekly_peak_is_expected_from_its_second_occurrence_on() {
    let mut seasonal = SeasonRecord::new(SeasonalConfig::default());
    let zones = vec![Zone {
        number: 5,
        share: 0.2,
    }];
    for week in 0..6 {
        let now = hour(week, 30);
        let lead = Nanos::from_secs(2 * HOUR);
        let expected = seasonal
            .expect(now, lead, |r| r > 1800.0)
            .map(|e| (e.at, e.rate_per_s));
        let want = match week {
            0 | 1 => None,
            // The 90th percentile of four values is the largest one.
            _ => Some((hour(week, 32), 2000.0 + 10.0 * (week - 1) as f64)),
        };
        assert_eq!(expected, want, "week {week}");
        for h in 0..168 {
            let rate = if h == 32 {
                2000.0 + 10.0 * week as f64
            } else {
                300.0
            };
            let recorded = SlotRecord {
                zones: zones.clone(),
                ..SlotRecord::default()
            };
            seasonal.remember(hour(week, h), rate, recorded);
        }
    }
    let expected = seasonal.at(hour(9, 32)).unwrap();
    assert_eq!(expected.recorded.zones, zones);
    let early = seasonal.expect(hour(9, 28), Nanos::from_secs(2 * HOUR), |r| r > 1800.0);
    assert!(early.is_none(), "not yet");
}

#[test]
fn zero_slot_length_and_occurrences_are_raised_to_the_minimum() {
    let mut seasonal = SeasonRecord::new(SeasonalConfig {
        slot: Nanos::ZERO,
        occurrences: 0,
        occurrences_min: 0,
        ..SeasonalConfig::default()
    });
    for rate in [5.0, 7.0] {
        seasonal.remember(hour(0, 3), rate, SlotRecord::default());
    }
    let found = seasonal.expect(hour(0, 2), Nanos::from_secs(HOUR), |_| true);
    assert_eq!(found.map(|e| e.rate_per_s), Some(7.0));
}

#[test]
fn season_is_rounded_to_slots_without_overflow() {
    let mut seasonal = SeasonRecord::new(SeasonalConfig {
        season: Nanos::from_secs(5 * HOUR + 1),
        occurrences_min: 1,
        ..SeasonalConfig::default()
    });
    assert_eq!(seasonal.config.season, Nanos::from_secs(6 * HOUR));
    seasonal.remember(hour(0, 5), 5.0, SlotRecord::default());
    assert_eq!(seasonal.at(hour(0, 11)).unwrap().rate_per_s, 5.0);
    assert_eq!(seasonal.at(hour(0, 6)), None);
    // The search covers at most one season, however large `within` is.
    let far = Nanos(u64::MAX);
    assert!(seasonal.expect(hour(0, 2), far, |r| r > 6.0).is_none());
    assert!(seasonal.expect(far, far, |_| true).is_none());
    let endless = SeasonRecord::new(SeasonalConfig {
        season: far,
        ..SeasonalConfig::default()
    });
    let season = endless.config.season.0;
    assert!(season > u64::MAX / 2 && season.is_multiple_of(endless.config.slot.0));
}

#[test]
fn seasonal_state_round_trips_or_is_refused() {
    let mut seasonal = SeasonRecord::new(SeasonalConfig::default());
    let habit = Habit {
        write_share: 0.25,
        read_bytes: 4096.0,
        costs: vec![Cost {
            read_s: 0.5,
            write_s: 0.0,
        }],
    };
    let recorded = SlotRecord {
        zones: vec![Zone {
            number: 1,
            share: 0.5,
        }],
        habit: Some(habit),
        ..SlotRecord::default()
    };
    for week in 0..6 {
        seasonal.remember(hour(week, 3), 100.0, recorded.clone());
    }
    let text = serde_json::to_string(&seasonal).unwrap();
    let read = |text: &str| serde_json::from_str::<SeasonRecord>(text);
    assert_eq!(read(&text).unwrap(), seasonal);
    let slot_of = |s| {
        format!(
            "\"slot\":{}",
            serde_json::to_string(&Nanos::from_secs(s)).unwrap()
        )
    };
    let (slot, short) = (slot_of(HOUR), slot_of(1));
    let rates = "[100.0,100.0,100.0,100.0]";
    for (from, to, why) in [
        (&slot[..], &short[..], "out of range"),
        ("\"occurrences\":4", "\"occurrences\":0", "out of range"),
        (
            "\"occurrences_min\":2",
            "\"occurrences_min\":9",
            "out of range",
        ),
        ("\"quantile\":0.9", "\"quantile\":1.5", "out of range"),
        // At most four occurrences are kept: a fifth one would never be dropped.
        (rates, "[1.0,1.0,1.0,1.0,1.0]", "slot 3 "),
        (rates, "[-1.0]", "slot 3 "),
        (
            "\"rate_max_per_s\":0.0",
            "\"rate_max_per_s\":-1.0",
            "slot 3 ",
        ),
        ("\"share\":0.5", "\"share\":1.5", "slot 3 "),
        ("\"write_share\":0.25", "\"write_share\":1.25", "slot 3 "),
        ("\"read_s\":0.5", "\"read_s\":-0.5", "slot 3 "),
        ("\"3\":", "\"168\":", "slot 168 "),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let error = read(&text.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(why), "{to}: {error}");
    }
}

#[test]
fn invalid_measurements_are_not_remembered() {
    let mut seasonal = peaks([100.0, 700.0, 1000.0, 800.0, 100.0]);
    let before = seasonal.clone();
    for rate in [f64::NAN, f64::INFINITY, -1.0] {
        seasonal.remember(hour(2, 31), rate, recorded(31, 700.0));
        let most = SlotRecord {
            rate_max_per_s: rate,
            ..SlotRecord::default()
        };
        seasonal.remember(hour(2, 31), 700.0, most);
        let mut zones = recorded(31, 700.0);
        zones.zones[0].share = rate;
        seasonal.remember(hour(2, 31), 700.0, zones);
        let mut habit = recorded(31, 700.0);
        habit.habit.as_mut().unwrap().read_bytes = rate;
        seasonal.remember(hour(2, 31), 700.0, habit);
    }
    assert_eq!(seasonal, before);
    let text = serde_json::to_string(&seasonal).unwrap();
    assert_eq!(serde_json::from_str::<SeasonRecord>(&text).unwrap(), before);
}

#[test]
fn forecast_examines_at_most_one_season() {
    // If all slots of a day matter, no peak starts.
    let mut always = SeasonRecord::new(SeasonalConfig {
        season: Nanos::from_secs(24 * HOUR),
        occurrences_min: 1,
        ..SeasonalConfig::default()
    });
    for h in 0..24 {
        always.remember(hour(0, h), 700.0, recorded(h, 700.0));
    }
    let looked = std::cell::Cell::new(0);
    let within = Nanos::from_secs(100 * WEEK);
    let found = always.forecast(hour(1, 3), within, &LOOKOUT, |_| {
        looked.set(looked.get() + 1);
        true
    });
    assert_eq!(found, None);
    assert!(looked.get() <= 2 * 24 + 2, "{}", looked.get());
}

#[test]
fn forecast_rate_ignores_a_single_burst_but_not_two_minutes() {
    let rate = |most: &[f64]| {
        let sample = |rate: &f64| Sample {
            reads_per_s: *rate,
            ..Sample::default()
        };
        let samples: Vec<Sample> = most.iter().map(sample).collect();
        let backend = Backend {
            resources: vec![],
            memory: vec![],
            use_max: 0.8,
        };
        SlotRecord::of(&samples, &backend, vec![], None).rate_max_per_s
    };
    let mut hour = vec![600.0; 360];
    hour[100] = 6000.0;
    assert_eq!(rate(&hour), (11.0 * 600.0 + 6000.0) / 12.0);
    hour[200..212].fill(1200.0);
    assert_eq!(rate(&hour), 1200.0);
    // With fewer samples the mean of all is used.
    assert_eq!(rate(&[100.0, 300.0]), 200.0);
    assert_eq!(rate(&[]), 0.0);
}

#[test]
fn only_the_last_four_occurrences_count() {
    let mut seasonal = SeasonRecord::new(SeasonalConfig::default());
    for week in 0..5 {
        let rate = if week == 0 { 9000.0 } else { 100.0 };
        seasonal.remember(hour(week, 3), rate, SlotRecord::default());
    }
    assert_eq!(seasonal.at(hour(5, 3)).unwrap().rate_per_s, 100.0);
}

/// Two weeks with these rates in hours 30 to 34, each with a zone of its own number.
fn peaks(rates: [f64; 5]) -> SeasonRecord {
    let mut seasonal = SeasonRecord::new(SeasonalConfig::default());
    for week in 0..2 {
        for (h, rate) in (30..).zip(rates) {
            seasonal.remember(hour(week, h), rate, recorded(h, rate));
        }
    }
    seasonal
}

/// Record of an hour with one sample: a read takes 1 ms of the disks and a write 2 ms; every fifth request writes.
fn recorded(number: u64, rate: f64) -> SlotRecord {
    let sample = Sample {
        reads_per_s: 0.8 * rate,
        writes_per_s: 0.2 * rate,
        bytes_read_per_s: 0.8 * rate * 8192.0,
        backend_reads_per_s: 0.8 * rate,
        memory_hits: Some(0.0),
        busy: vec![Some(ResourceUse {
            reads: 0.8 * rate * 0.001,
            writes: 0.2 * rate * 0.002,
        })],
        ..Sample::default()
    };
    let backend = Backend {
        resources: vec![Resource {
            name: "disks".into(),
            place: Place::BehindMemory,
        }],
        memory: vec![Bytes::gib(1)],
        use_max: 0.8,
    };
    let zones = vec![Zone { number, share: 0.5 }];
    let curve = Curve::new(vec![(Bytes::gib(number), 0.1)]);
    SlotRecord::of(&[sample], &backend, zones, Some(curve))
}

const LOOKOUT: Lookout = Lookout {
    workload: WorkloadId(7),
    promised_per_s: Some(900.0),
    lead: Nanos::from_secs(1200),
    warm: WarmForecast::Read,
};

#[test]
fn forecast_covers_the_entire_peak_with_its_details() {
    let seasonal = peaks([100.0, 700.0, 1000.0, 800.0, 100.0]);
    let day = Nanos::from_secs(24 * HOUR);
    let ahead = |now, lookout| seasonal.forecast(now, day, lookout, |r| r > 500.0);
    let PeakForecast { act_at, forecast } = ahead(hour(2, 20), &LOOKOUT).unwrap();
    // The forecast has the start of the first slot and the record of the busiest one.
    assert_eq!(forecast.at, hour(2, 31));
    assert_eq!(act_at, Nanos(hour(2, 31).0 - 1_200_000_000_000));
    assert_eq!(forecast.workload, WorkloadId(7));
    assert_eq!(forecast.warm, WarmForecast::Read);
    assert_eq!(forecast.rate_per_s, 1000.0);
    assert_eq!(forecast.zones[0].number, 32);
    assert_eq!(forecast.curve.unwrap().at(Bytes::gib(32)), 0.1);
    // The peak may start late in its first slot, and it is three slots long.
    assert_eq!((forecast.by, forecast.until), (hour(2, 32), hour(2, 34)));
    assert_eq!(forecast.seen, 2);
    let habit = &forecast.habit;
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    assert!(near(habit.write_share, 0.2) && near(habit.read_bytes, 8192.0));
    assert!(near(habit.costs[0].read_s, 0.001) && near(habit.costs[0].write_s, 0.002));
    // A workload in violation had a higher demand than its measured rate.
    let promised = Lookout {
        promised_per_s: Some(1500.0),
        ..LOOKOUT
    };
    let more = ahead(hour(2, 20), &promised).unwrap().forecast;
    assert_eq!(more.rate_per_s, 1500.0);
    // If less than the lead is left, the time to act is now. A peak that has started is not returned.
    let late = Nanos(hour(2, 31).0 - 1);
    assert_eq!(ahead(late, &LOOKOUT).unwrap().act_at, late);
    assert_eq!(ahead(hour(2, 31), &LOOKOUT), None);
    let next = seasonal.forecast(hour(2, 31), Nanos(u64::MAX), &LOOKOUT, |r| r > 500.0);
    assert_eq!(next.unwrap().forecast.at, hour(3, 31));
}

#[test]
fn second_peak_has_a_separate_forecast() {
    let seasonal = peaks([700.0, 100.0, 800.0, 900.0, 100.0]);
    let day = Nanos::from_secs(24 * HOUR);
    let at = |now| seasonal.forecast(now, day, &LOOKOUT, |r| r > 500.0);
    let at = |now| at(now).map(|f| (f.forecast.at, f.forecast.zones[0].number));
    assert_eq!(at(hour(2, 29)), Some((hour(2, 30), 30)));
    assert_eq!(at(hour(2, 30)), Some((hour(2, 32), 33)));
    assert_eq!(at(hour(2, 32)), None);
}

#[test]
fn unrecorded_slot_is_not_forecast() {
    let mut seasonal = peaks([100.0, 700.0, 1000.0, 800.0, 100.0]);
    let day = Nanos::from_secs(24 * HOUR);
    let ahead = |seasonal: &SeasonRecord| {
        let foreseen = seasonal.forecast(hour(2, 20), day, &LOOKOUT, |r| r > 500.0);
        foreseen.map(|f| (f.forecast.zones[0].number, f.forecast.rate_per_s))
    };
    // Without a curve in the busiest hour, its previous curve is used.
    let without = |h, rate| SlotRecord {
        curve: None,
        ..recorded(h, rate)
    };
    let curve = |seasonal: &SeasonRecord| {
        let foreseen = seasonal.forecast(hour(2, 20), day, &LOOKOUT, |r| r > 500.0);
        foreseen
            .and_then(|f| f.forecast.curve)
            .map(|c| c.points()[0].0)
    };
    for _ in 0..3 {
        seasonal.remember(hour(2, 32), 1000.0, without(32, 1000.0));
        assert_eq!(ahead(&seasonal), Some((32, 1000.0)));
        assert_eq!(curve(&seasonal), Some(Bytes::gib(32)));
    }
    // The previous curve is kept only as long as its hour is remembered. Then the next busiest hour is the model, at the
    // highest rate.
    seasonal.remember(hour(2, 32), 1000.0, without(32, 1000.0));
    assert_eq!(ahead(&seasonal), Some((33, 1000.0)));
    for _ in 0..4 {
        seasonal.remember(hour(2, 31), 700.0, without(31, 700.0));
        seasonal.remember(hour(2, 33), 800.0, without(33, 800.0));
    }
    // Without any curve there is a forecast, but it has no curve.
    assert_eq!(ahead(&seasonal), Some((32, 1000.0)));
    assert_eq!(curve(&seasonal), None);
    // Without a habit there is no forecast.
    for h in [31, 32, 33] {
        seasonal.remember(hour(2, h), 1000.0, SlotRecord::default());
    }
    assert_eq!(ahead(&seasonal), None);
    // A load that matters all the time has no peak, because it has no start.
    let always = peaks([700.0; 5]);
    let within = Nanos::from_secs(2 * HOUR);
    let mid = always.forecast(hour(2, 31), within, &LOOKOUT, |r| r > 500.0);
    assert_eq!(mid, None);
}
