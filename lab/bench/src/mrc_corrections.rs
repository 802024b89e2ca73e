//! Errors of sampled miss-ratio curves against exact ones, with different corrections for a sample of too many or too few references.
//!
//! Usage: `mrc-corrections [reads] FILE…`. All requests of a file count; with `reads`, only reads count, and writes drop their pages.
//! Prints mean absolute errors over seeds 1 to 20 for three curves of each sampler:
//!
//! - without correction;
//! - with the published adjustment, which counts the difference as hits of the smallest cache;
//! - with ours ([`algo::mrc::FixedRate::curve`]).
//!
//! One sampler has a fixed rate, at which 10,240 sampled pages are expected. The other one has a fixed size of at most 8,192 pages. The
//! last two columns are the largest errors of our correction, as means over the seeds. Pages have 4 KiB, or 512 B in files of page
//! references (OLTP, lirs). Files with fewer than 20,480 pages are left out.

use std::path::Path;

use algo::DenseIds;
use algo::mrc::{Curve, ExactCurve, FixedRate, FixedSize, Sampler};
use trace::{CacheKind, PageReferences, ReadOptions, Touch};
use units::Bytes;

use crate::BenchResult;

type Failure = Box<dyn std::error::Error>;

const SEEDS: u64 = 20;
const PAGES: f64 = 10_240.0;

struct BenchTrace {
    references: Vec<(u64, Touch)>,
    pages: u64,
    truth: Curve,
    /// Number of references in the exact curve.
    counted: u64,
}

fn load(file: &str, cache: CacheKind) -> Result<BenchTrace, Failure> {
    let numbered = ["OLTP", "lirs"].iter().any(|n| file.contains(n));
    let page = Bytes(if numbered { 512 } else { 4096 });
    let pages = PageReferences::new(page, cache).ok_or("no page")?;
    let loaded = trace::load(Path::new(file), &ReadOptions::default())?;
    let mut references = Vec::new();
    pages.each(loaded.records(), |page, touch| {
        references.push((page, touch));
    });
    let (mut ids, mut exact) = (DenseIds::new(), ExactCurve::new());
    for (page, touch) in &references {
        let id = ids.id(*page);
        match touch {
            Touch::Reference => exact.feed(&[id]),
            Touch::Drop => exact.invalidate(id),
        }
    }
    Ok(BenchTrace {
        references,
        pages: u64::from(ids.len()),
        counted: exact.references(),
        truth: exact.curve(),
    })
}

/// Applies the published adjustment to an uncorrected curve, whose sampled references have the weight `counted`.
fn adjusted(raw: &Curve, counted: f64, references: f64) -> Curve {
    let scale = counted / references;
    let points = raw
        .points()
        .iter()
        .map(|(size, ratio)| (*size, ratio * scale));
    Curve::new(points, raw.confidence)
}

/// Returns mean errors over the seeds: for both samplers without correction, with the published adjustment, and with ours. The last two
/// values are the largest errors of ours for both samplers.
fn errors(of: &BenchTrace) -> [f64; 8] {
    let mut sums = [0.0; 8];
    for seed in 1..=SEEDS {
        let mut rate = FixedRate::new(Sampler::new(PAGES / of.pages as f64, seed));
        let mut size = FixedSize::new(8192, seed);
        for (page, touch) in &of.references {
            match touch {
                Touch::Reference => {
                    rate.reference(*page);
                    size.reference(*page);
                }
                Touch::Drop => {
                    rate.invalidate(*page);
                    size.invalidate(*page);
                }
            }
        }
        let n = of.counted as f64;
        let (raw, raw_size) = (rate.curve_raw(), size.curve_raw());
        let curves = [
            adjusted(&raw, rate.counted(), n),
            rate.curve(),
            adjusted(&raw_size, size.counted(), n),
            size.curve(),
        ];
        let [rate_adjusted, rate_ours, size_adjusted, size_ours] = &curves;
        let all = [
            &raw,
            rate_adjusted,
            rate_ours,
            &raw_size,
            size_adjusted,
            size_ours,
        ];
        for (sum, curve) in sums.iter_mut().zip(all) {
            *sum += curve.error_against(&of.truth).mean / SEEDS as f64;
        }
        for (sum, curve) in sums[6..].iter_mut().zip([rate_ours, size_ours]) {
            *sum += curve.error_against(&of.truth).max / SEEDS as f64;
        }
    }
    sums
}

fn line(name: &str, references: &str, pages: &str, errors: &[f64; 8]) {
    print!("{name:<30} {references:>10} {pages:>9}");
    errors.iter().for_each(|e| print!("  {e:.4}"));
    println!();
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let mut files = args.to_vec();
    let mut cache = CacheKind::ReadWrite;
    if files.first().is_some_and(|f| f == "reads") {
        (cache, _) = (CacheKind::ReadsOnly, files.remove(0));
    }
    println!(
        "{:<30} {:>10} {:>9}  shards: raw, published, ours   shards-size: raw, published, ours  largest",
        "trace", "references", "pages"
    );
    let mut all = Vec::new();
    for file in &files {
        let name = file.rsplit('/').next().unwrap_or(file);
        let loaded = load(file, cache)?;
        if (loaded.pages as f64) < 2.0 * PAGES {
            println!("{name}: only {} pages, left out", loaded.pages);
            continue;
        }
        let errors = errors(&loaded);
        line(
            name,
            &loaded.counted.to_string(),
            &loaded.pages.to_string(),
            &errors,
        );
        all.push(errors);
    }
    if all.is_empty() {
        return Ok(());
    }
    let n = all.len() as f64;
    let mean = std::array::from_fn(|i| all.iter().map(|e| e[i]).sum::<f64>() / n);
    let worst = std::array::from_fn(|i| all.iter().map(|e| e[i]).fold(0.0, f64::max));
    line("mean", "", "", &mean);
    line("worst", "", "", &worst);
    Ok(())
}
