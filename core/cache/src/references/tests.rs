//! Tests of the conversion of requests to references.

use super::*;

fn config(page_bytes: u64, sample: Option<f64>) -> ReferencesConfig {
    ReferencesConfig {
        page_bytes,
        sample,
        seed: 1,
    }
}

#[test]
fn requests_are_split_into_pages() {
    let mut builder = ReferencesBuilder::new(config(4096, None)).unwrap();
    builder.push(Some(0), 0, 4000, 200).unwrap();
    builder.push(Some(5), 1, 0, 4096).unwrap();
    builder.push(Some(9), 0, 4096, 0).unwrap();
    builder.push(Some(SLICE_NS * 13), 0, 8191, 1).unwrap();
    builder.push(Some(SLICE_NS * 13), 0, 5 << 20, 512).unwrap();
    let made = builder.finish().unwrap();
    assert_eq!(made.pages(), [0, 1, 2, 1, 3]);
    let parts: Vec<_> = (0..5).map(|i| made.part(i)).collect();
    assert_eq!(
        parts,
        [
            (96, false),
            (104, true),
            (4096, true),
            (1, true),
            (512, true)
        ]
    );
    assert_eq!(
        (made.universe(), made.requests(), made.bytes()),
        (4, 4, 4809)
    );
    assert_eq!(made.slices().len(), 13);
    assert!(made.slices().iter().all(|s| s.at == 3));
    assert_eq!(made.slices().iter().filter(|s| s.hour).count(), 1);
    let layout = made.layout();
    let extents: Vec<u32> = (0..4).map(|p| layout.extent(p)).collect();
    assert_eq!(extents, [0, 0, 1, 2]);
    assert_eq!((made.extent(1), made.extent(2)), ((1, 0), (0, 1)));
    assert_eq!((layout.volumes(), layout.extents(4)), (2, 3));
}

#[test]
fn sample_has_all_references_of_a_page_or_none() {
    let mut all = ReferencesBuilder::new(config(4096, None)).unwrap();
    let mut some = ReferencesBuilder::new(config(4096, Some(0.1))).unwrap();
    let mut rng = algo::Rng::new(1, 1);
    for _ in 0..100_000 {
        let offset = rng.below(50_000) * 4096;
        all.push(None, 0, offset, 4096).unwrap();
        some.push(None, 0, offset, 4096).unwrap();
    }
    let (all, some) = (all.finish().unwrap(), some.finish().unwrap());
    assert_eq!((all.references(), some.references()), (100_000, 100_000));
    let ratio = some.working_set_pages() as f64 / all.working_set_pages() as f64;
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    assert_eq!(some.scaled(10_000), 1000);
    assert_eq!(some.scaled(3), 1);
}

/// The last page of a request in the sample ends the request, so no two requests merge.
#[test]
fn sampled_requests_keep_their_ends() {
    let mut some = ReferencesBuilder::new(config(4096, Some(0.3))).unwrap();
    let (mut begun, mut pages) = (0, 0);
    for request in 0..500u64 {
        some.push(None, 0, request * 8 * 4096, 8 * 4096).unwrap();
        let kept = some.made.parts.len();
        begun += usize::from(kept > pages);
        assert!(kept == pages || some.made.part(kept - 1).1);
        pages = kept;
    }
    let some = some.finish().unwrap();
    let ends = (0..pages).filter(|r| some.part(*r).1).count();
    assert_eq!(ends, begun);
    assert!(begun < 500 && pages > begun, "{begun} of {pages}");
}

#[test]
fn invalid_references_are_refused() {
    assert_eq!(
        ReferencesBuilder::new(config(3000, None)).unwrap_err(),
        ReferencesError::PageBytes(3000)
    );
    for share in [0.0, 1.5, f64::NAN] {
        assert!(ReferencesBuilder::new(config(4096, Some(share))).is_err());
    }
    let mut builder = ReferencesBuilder::new(config(512, None)).unwrap();
    let error = builder.push(None, 0, u64::MAX - 10, 10).unwrap_err();
    assert!(matches!(error, ReferencesError::TooFar { .. }));
    let mut builder = ReferencesBuilder::new(config(1 << 20, None)).unwrap();
    builder.push(None, 65_535, u64::MAX - 10, 10).unwrap();
    assert_eq!(builder.finish().unwrap().part(0), (10, true));
}
