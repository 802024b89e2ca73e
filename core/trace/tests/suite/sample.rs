//! Samples: units are kept completely, with the same result each time, and at about the requested rate.

use std::collections::BTreeMap;
use std::io::Cursor;

use model::Op;
use trace::{Record, SampleCounts, SampleSpec, TraceStream, load_stream};
use units::{Bytes, Nanos};

use crate::common::{self, options};

/// Returns a text of two volumes with 4096 places of 1 MiB each, four requests per place over a minute, and a flush
/// after every 64 requests.
fn text() -> String {
    let mut text = String::from("time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n");
    for i in 0..32_768u64 {
        let (volume, place) = (
            if i % 2 == 0 { "a" } else { "b" },
            i.wrapping_mul(2_654_435_761) % 4096,
        );
        let at = i * 60_000_000_000 / 32_768;
        text += &format!(
            "{at},{volume},R,{},8192,5\n",
            (place << 20) + (i % 7) * 4096
        );
        if i % 64 == 0 {
            text += &format!("{at},{volume},F,0,0,\n");
        }
    }
    text
}

fn sample(spec: &SampleSpec) -> Result<(Vec<Record>, Vec<String>, SampleCounts), String> {
    let fail = |e: trace::TraceError| e.to_string();
    let text = Cursor::new(text());
    let mut stream = TraceStream::from_reader("x", text, &options(None)).map_err(fail)?;
    stream.sample(spec).map_err(fail)?;
    let (mut records, mut sampled) = (Vec::new(), SampleCounts::default());
    while let Some((record, _)) = stream.next_record().map_err(fail)? {
        records.push(record);
        sampled = stream.sampled().unwrap();
    }
    sampled.requests_seen = stream.sampled().unwrap().requests_seen;
    let names = stream.volumes().iter().map(str::to_owned).collect();
    Ok((records, names, sampled))
}

fn at_rate(rate: f64, seed: u64) -> SampleSpec {
    SampleSpec {
        rate: Some(rate),
        seed,
        ..SampleSpec::default()
    }
}

fn places(records: &[Record]) -> BTreeMap<(u32, u64), u64> {
    let mut places = BTreeMap::new();
    for r in records.iter().filter(|r| r.op() != Op::Flush) {
        *places
            .entry((r.volume(), r.offset_bytes >> 20))
            .or_default() += 1;
    }
    places
}

#[test]
fn sampled_place_has_all_its_requests_or_none() {
    let (all, names, _) = sample(&at_rate(1.0, 1)).unwrap();
    assert_eq!(
        (all.len(), names),
        (32_768 + 512, vec!["a".to_owned(), "b".to_owned()])
    );
    let whole = places(&all);
    let (some, _, sampled) = sample(&at_rate(0.1, 1)).unwrap();
    let kept = places(&some);
    assert!(
        kept.iter()
            .all(|(place, requests)| whole[place] == *requests)
    );
    let share = kept.len() as f64 / whole.len() as f64;
    assert!((share - 0.1).abs() < 0.02, "{share}");
    assert_eq!(sampled.requests_kept, some.len() as u64);
    assert!((sampled.rate().unwrap() - 0.1).abs() < 0.02);
    assert_eq!(
        some,
        sample(&at_rate(0.1, 1)).unwrap().0,
        "the same each time"
    );
    assert_ne!(
        some,
        sample(&at_rate(0.1, 2)).unwrap().0,
        "another seed, other places"
    );
    // A lower rate keeps a subset of the same places.
    let fewer = places(&sample(&at_rate(0.02, 1)).unwrap().0);
    assert!(!fewer.is_empty() && fewer.keys().all(|place| kept.contains_key(place)));
}

#[test]
fn sample_selects_volumes_times_and_every_nth_request() {
    let spec = SampleSpec {
        volumes: vec!["b".into()],
        from: Some(Nanos::from_secs(10)),
        to: Some(Nanos::from_secs(20)),
        every: Some(3),
        ..SampleSpec::default()
    };
    let (records, names, sampled) = sample(&spec).unwrap();
    assert_eq!(names, ["b"]);
    assert!(
        records
            .iter()
            .all(|r| r.volume() == 0 && r.time_ns < 10_000_000_000)
    );
    let expected = (32_768f64 / 2.0 / 6.0 / 3.0).round();
    assert!(
        (records.len() as f64 - expected).abs() <= 1.0,
        "{}",
        records.len()
    );
    // Reading stops at the end of the time window.
    assert!(sampled.requests_seen < 13_000, "{sampled:?}");
}

#[test]
fn invalid_sample_options_are_refused() {
    let spec = |change: fn(&mut SampleSpec)| {
        let mut spec = SampleSpec::default();
        change(&mut spec);
        sample(&spec).unwrap_err()
    };
    for (error, says) in [
        (spec(|s| s.rate = Some(0.0)), "and 1, not"),
        (spec(|s| s.rate = Some(f64::NAN)), "and 1, not"),
        (spec(|s| s.unit = Some(Bytes(5000))), "power of two"),
        (spec(|s| s.every = Some(0)), "--every must be"),
        (
            spec(|s| s.to = Some(Nanos(0))),
            "the start of a sample must be before its end",
        ),
        (
            spec(|s| s.volumes = vec!["c".into()]),
            "the trace has no volume \"c\"",
        ),
    ] {
        assert!(error.contains(says), "{error}");
    }
    let mut stream =
        TraceStream::from_reader("x", Cursor::new(common::LIRS), &options(None)).unwrap();
    let window = SampleSpec {
        from: Some(Nanos(1)),
        ..SampleSpec::default()
    };
    assert!(
        stream
            .sample(&window)
            .unwrap_err()
            .to_string()
            .contains("no times")
    );
    let every = SampleSpec {
        every: Some(2),
        ..SampleSpec::default()
    };
    stream.sample(&every).unwrap();
    assert_eq!(
        load_stream(stream, &options(None)).unwrap().records().len(),
        2
    );
}
