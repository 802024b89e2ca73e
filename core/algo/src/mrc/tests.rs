//! Comparisons of the estimators with each other and with simulated caches.

use super::*;
use crate::{DenseIds, Rng};

/// Returns independent references to `blocks` blocks, the i-th with weight (i + 1)^−theta.
fn zipf(blocks: usize, theta: f64, references: usize, seed: u64) -> Vec<u32> {
    let mut cumulated = Vec::with_capacity(blocks);
    let mut sum = 0.0;
    for weight in weights(blocks, theta) {
        sum += weight;
        cumulated.push(sum);
    }
    let mut rng = Rng::new(seed, 0);
    (0..references)
        .map(|_| {
            let at = rng.unit() * sum;
            cumulated.partition_point(|c| *c <= at).min(blocks - 1) as u32
        })
        .collect()
}

fn weights(blocks: usize, theta: f64) -> Vec<f64> {
    (0..blocks)
        .map(|i| libm::pow(i as f64 + 1.0, -theta))
        .collect()
}

fn exact(references: &[u32]) -> Curve {
    let mut exact = ExactCurve::new();
    exact.feed(references);
    exact.curve()
}

/// Counts hits of an LRU cache, a list with time stamps.
fn simulated_hits(references: &[u32], size: usize) -> u64 {
    let mut order = std::collections::BTreeMap::new();
    let mut when = std::collections::BTreeMap::new();
    let mut hits = 0;
    for (now, block) in references.iter().enumerate() {
        if let Some(then) = when.insert(*block, now) {
            order.remove(&then);
            hits += 1;
        } else if when.len() > size {
            let (_, evicted) = order.pop_first().expect("the cache is full");
            when.remove(&evicted);
        }
        order.insert(now, *block);
    }
    hits
}

#[test]
fn exact_curve_matches_simulated_caches() {
    let references = zipf(2000, 0.8, 30_000, 1);
    let mut all = ExactCurve::new();
    // In parts, as from a reader.
    references.chunks(777).for_each(|part| all.feed(part));
    let curve = all.curve();
    assert_eq!(all.references(), 30_000);
    for size in [1usize, 2, 10, 77, 300, 1000, 1999, 2000, 5000] {
        let hits = simulated_hits(&references, size);
        assert_eq!(all.hits(size as u64), hits, "size {size}");
        let misses = 1.0 - hits as f64 / 30_000.0;
        assert!(
            (curve.at(size as u64) - misses).abs() < 1e-12,
            "size {size}"
        );
    }
    assert!(curve.points().is_sorted_by(|a, b| a.0 < b.0 && a.1 >= b.1));
}

/// Working sets, reuse times and stack distances agree: 200,000 references, Zipf 0.9, 5,000 blocks.
#[test]
fn reuse_times_and_working_sets_give_the_same_curve() {
    let references = zipf(5000, 0.9, 200_000, 3);
    let truth = exact(&references);
    let mut times = ReuseTimes::new();
    times.feed(&references, 0);
    let mut sets = WorkingSets::new();
    references
        .iter()
        .for_each(|block| sets.reference(u64::from(*block)));
    let (times, sets) = (times.curve(), sets.curve());
    let sizes = [50, 100, 250, 500, 1000, 2000, 3000, 4000];
    let worst = |curve: &Curve| {
        let errors = sizes.map(|s| (curve.at(s) - truth.at(s)).abs());
        errors.into_iter().fold(0.0, f64::max)
    };
    assert!(worst(&times) <= 0.008, "{}", worst(&times));
    // One point per power of two of the window, and sketches.
    assert!(worst(&sets) <= 0.03, "{}", worst(&sets));
    let error = times.error_against(&truth);
    assert!(error.mean < 0.005, "{error:?}");
}

#[test]
fn working_set_sizes_are_exact() {
    let references = zipf(30_000, 0.7, 100_000, 9);
    let mut sets = WorkingSets::new();
    references
        .iter()
        .for_each(|block| sets.reference(u64::from(*block) << 20));
    let distinct = |part: &[u32]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part.dedup();
        part.len() as f64
    };
    let sizes = sets.sizes();
    assert_eq!(sizes.len(), 17, "1 to 65,536 references");
    for set in sizes {
        let complete = references.chunks_exact(set.references as usize);
        let windows = complete.len() as f64;
        let mean = complete.map(distinct).sum::<f64>() / windows;
        let error = set.blocks / mean - 1.0;
        assert!(error.abs() < 0.03, "{set:?}: {mean}");
    }
    assert!((sets.distinct() / distinct(&references) - 1.0).abs() < 0.03);
    assert!(sets.memory_bytes() < 400 << 10);
}

#[test]
fn che_approximation_matches_a_simulation() {
    let weights = weights(3000, 0.9);
    let total: f64 = weights.iter().sum();
    let references = zipf(3000, 0.9, 400_000, 5);
    // The first misses are not part of the steady state.
    let (warm, measured) = references.split_at(50_000);
    for size in [30u64, 100, 300, 1000, 2000] {
        let che = che(&weights, size).unwrap();
        let before = simulated_hits(warm, size as usize);
        let hits = simulated_hits(&references, size as usize) - before;
        let simulated = hits as f64 / measured.len() as f64;
        assert!(
            (che.hit_ratio - simulated).abs() < 0.01,
            "size {size}: {che:?} {simulated}"
        );
        // Approximate number of references until a block is evicted: at least the size.
        assert!(che.characteristic_time * total > size as f64);
    }
    assert_eq!(che(&weights, 3000), None);
    assert_eq!(che(&[f64::NAN, -1.0], 1), None);
    let curve = Curve::of_rates(&weights, &[100, 1000, 3000]);
    assert_eq!(
        (curve.at(3000), curve.at(100) > curve.at(1000)),
        (0.0, true)
    );
}

/// Number of blocks in a sample of the size used in publications: 8 Ki of 82,000, over 20 seeds.
#[test]
fn samples_of_eight_thousand_blocks_are_within_one_percent() {
    let references = zipf(82_000, 0.9, 1_000_000, 11);
    let truth = exact(&references);
    let (mut rate_error, mut size_error, mut raw_error) = (0.0, 0.0, 0.0);
    for seed in 0..20 {
        let mut rate = FixedRate::new(Sampler::new(0.1, seed));
        let mut size = FixedSize::new(8192, seed);
        for block in &references {
            rate.reference(u64::from(*block));
            size.reference(u64::from(*block));
        }
        assert!(size.blocks() <= 8192 && size.memory_bytes() < 1 << 20);
        let error = rate.curve().error_against(&truth).mean;
        rate_error += error / 20.0;
        raw_error += rate.curve_raw().error_against(&truth).mean / 20.0;
        size_error += size.curve().error_against(&truth).mean / 20.0;
        let said = rate.curve().confidence.standard_error.unwrap();
        assert!(
            error < 4.0 * said + 0.002,
            "seed {seed}: off by {error}, {said} was said"
        );
    }
    println!(
        "mean absolute errors: rate {rate_error:.4} (raw {raw_error:.4}), size {size_error:.4}"
    );
    assert!(
        rate_error <= 0.01 && size_error <= 0.01,
        "{rate_error} {size_error}"
    );
    assert!(rate_error < raw_error, "the correction helps");
}

/// Three blocks with a third of the references; a sample of a fifth of the blocks has none, one or all. The others are
/// read at random or in a loop, and give no information about these three.
#[test]
fn unsampled_popular_blocks_are_corrected_to_hits() {
    let blocks = 40_000;
    for looping in [false, true] {
        let mut rng = Rng::new(5, 0);
        let mut next = 0;
        let references: Vec<u32> = (0..400_000)
            .map(|_| {
                next = (next + 1) % blocks;
                match rng.below(3) {
                    0 => rng.below(3) as u32,
                    _ if looping => 3 + next,
                    _ => 3 + rng.below(blocks.into()) as u32,
                }
            })
            .collect();
        let truth = exact(&references);
        let (mut without, mut errors) = (0, vec![]);
        for seed in 0..20 {
            let sampler = Sampler::new(0.2, seed);
            let mut rate = FixedRate::new(sampler);
            for block in &references {
                rate.reference(u64::from(*block));
            }
            without += u32::from((0..3).all(|hot| !sampler.keeps(hot)));
            let curve = rate.curve();
            // Over sizes, not over the points of the curves, because a loop has few points.
            let sizes = (1..100).map(|i| i * truth.size_max() / 100);
            let off = sizes.map(|s| (curve.at(s) - truth.at(s)).abs());
            let error = off.sum::<f64>() / 99.0;
            let said = curve.confidence.standard_error.unwrap();
            assert!(error < 4.0 * said + 0.005, "seed {seed}: {error}, {said}");
            errors.push(error);
        }
        errors.sort_by(f64::total_cmp);
        println!("{looping}: {without} samples without, {errors:.4?}");
        // A loop ends where a cache holds it completely, and the sample is off by a hundredth of that size.
        assert!(without >= 5 && errors[10] < 0.012 && errors[19] < 0.03);
    }
}

#[test]
fn sample_of_all_blocks_is_exact() {
    let references = zipf(3000, 0.8, 50_000, 2);
    let truth = exact(&references);
    let mut rate = FixedRate::new(Sampler::new(1.0, 7));
    let mut size = FixedSize::new(4000, 7);
    for block in &references {
        rate.reference(u64::from(*block));
        size.reference(u64::from(*block));
    }
    for (size_of, curve) in [("rate", rate.curve()), ("size", size.curve())] {
        // Above 512, distances have an accuracy of 0.4 %.
        let error = curve.error_against(&truth);
        assert!(error.max < 0.003, "{size_of}: {error:?}");
    }
    assert_eq!(
        (size.sampler().rate(), size.blocks()),
        (1.0, u64::from(rate.blocks() as u32))
    );
}

/// Scans, so no block stays in the sample for long: the threshold keeps falling, and memory does not grow.
#[test]
fn fixed_size_sample_does_not_grow() {
    let mut size = FixedSize::new(8192, 3);
    for block in 0..4_000_000u64 {
        size.reference(block);
        if block % 5 == 0 {
            size.invalidate(block / 2);
        }
    }
    assert!(size.memory_bytes() < 1 << 20, "{}", size.memory_bytes());
    assert!(size.blocks() <= 8192 && size.blocks() > 7000);
    let rate = size.sampler().rate();
    assert!((rate * 4_000_000.0 / 8192.0 - 1.0).abs() < 0.1, "{rate}");
    let curve = size.curve();
    assert!(
        curve.at(1 << 40) > 0.98,
        "a scan never hits: {}",
        curve.at(1 << 40)
    );
}

/// Inverse of the hash: returns the block with this hash and these lower bits.
fn block_of(hash: u32, bits: u64, seed: u64) -> u64 {
    // Newton's method: each step doubles the number of correct bits.
    let inverse = |odd: u64| {
        (0..6).fold(odd, |x, _| {
            x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)))
        })
    };
    let z = u64::from(hash) << 40 | bits;
    let z = z.wrapping_mul(inverse(0xD6E8_FEB8_6659_FD93));
    let z = (z ^ (z >> 32)).wrapping_mul(inverse(0x9E37_79B9_7F4A_7C15));
    z ^ crate::mix(seed, 0x5A_4D91E)
}

/// In a volume of 2 TiB, 32 pages have one hash. A sample sees only those of low hashes.
#[test]
fn fixed_size_sample_of_terabytes_is_large_enough() {
    const SEED: u64 = 3;
    let mut size = FixedSize::below(Sampler::new(1024.0 / f64::from(MODULUS), SEED), 8192);
    let mut below_the_most = 0;
    for bits in 0..32u64 {
        for hash in 0..1024 {
            let block = block_of(hash, bits * 7919, SEED);
            assert_eq!(size.sampler().hash(block), hash);
            size.reference(block);
            let full = size.sampler().threshold() < 1024;
            below_the_most += u64::from(full && size.blocks() < SAMPLED_BLOCKS_MIN);
            assert!(!full || size.confidence().enough_blocks());
        }
    }
    assert_eq!(size.sampler().threshold(), 256);
    assert!(below_the_most > 1000, "{below_the_most}");
    let few = Confidence {
        blocks: 7167,
        ..Confidence::default()
    };
    assert!(!few.enough_blocks());
}

/// A write-around cache that drops written blocks: reads only, including samples.
#[test]
fn read_only_curves_account_for_dropped_writes() {
    let references = zipf(60_000, 0.9, 600_000, 21);
    let mut rng = Rng::new(4, 4);
    let writes: Vec<bool> = references.iter().map(|_| rng.unit() < 0.3).collect();
    let mut all = ExactCurve::new();
    let mut wrong = ExactCurve::new();
    let mut times = ReuseTimes::new();
    let (mut rate, mut size) = (
        FixedRate::new(Sampler::new(0.2, 1)),
        FixedSize::new(8192, 1),
    );
    let mut ids = DenseIds::new();
    let mut reads = 0;
    for (block, write) in references.iter().zip(&writes) {
        let id = ids.id(u64::from(*block));
        if *write {
            all.invalidate(id);
            times.invalidate(id, reads, 1.0);
            rate.invalidate(u64::from(*block));
            size.invalidate(u64::from(*block));
        } else {
            all.feed(&[id]);
            times.reference(id, reads, 1.0);
            rate.reference(u64::from(*block));
            size.reference(u64::from(*block));
            reads += 1;
        }
        wrong.feed(&[id]);
    }
    // The simulated cache of the largest size gives the number of hits.
    let mut there = vec![false; 60_000];
    let mut hits = 0;
    for (block, write) in references.iter().zip(&writes) {
        let was = std::mem::replace(&mut there[*block as usize], !write);
        hits += u64::from(was && !write);
    }
    assert_eq!(all.hits(u64::MAX), hits);
    assert_eq!(all.references(), reads);
    let truth = all.curve();
    for (name, curve, most) in [
        ("rate", rate.curve(), 0.02),
        ("size", size.curve(), 0.02),
        ("times", times.curve(), 0.02),
    ] {
        let error = curve.error_against(&truth);
        assert!(error.mean < most, "{name}: {error:?}");
    }
    let error = wrong.curve().error_against(&truth);
    assert!(error.mean > 0.1, "writes are not hits: {error:?}");
}

/// Two hosts with different loads: the merged curve is that of both, each with such a cache.
#[test]
fn curves_of_several_hosts_merge() {
    let (a, b) = (zipf(20_000, 0.7, 200_000, 1), zipf(4000, 1.0, 400_000, 2));
    let sampled = |references: &[u32], rate: f64| {
        let mut shards = FixedRate::new(Sampler::new(rate, 9));
        references
            .iter()
            .for_each(|r| shards.reference(u64::from(*r)));
        shards
    };
    let (sa, sb) = (sampled(&a, 0.5), sampled(&b, 1.0));
    let mut merged = sa.distances();
    merged.merge(&sb.distances());
    assert!((merged.total() - 600_000.0).abs() < 1.0);
    let curve = merged.curve(Confidence::default());
    let (ea, eb) = (exact(&a), exact(&b));
    for size in [100, 1000, 3000, 10_000] {
        let want = (ea.at(size) + 2.0 * eb.at(size)) / 3.0;
        assert!((curve.at(size) - want).abs() < 0.02, "size {size}");
    }
}

#[test]
fn windows_of_a_fixed_size_sample_continue_its_state() {
    let references = zipf(50_000, 0.9, 400_000, 6);
    let (mut whole, mut parts) = (FixedSize::new(8192, 2), FixedSize::new(8192, 2));
    let (mut merged, mut counted) = (Distances::new(), 0);
    for (i, block) in references.iter().enumerate() {
        whole.reference(u64::from(*block));
        parts.reference(u64::from(*block));
        if i % 100_000 == 99_999 {
            let (distances, n) = parts.take_window();
            merged.merge(&distances);
            counted += n;
        }
    }
    assert_eq!(counted, whole.references());
    assert!((merged.total() - counted as f64).abs() < 1.0);
    let error = merged
        .curve(Confidence::default())
        .error_against(&whole.curve());
    // Each window is corrected with its own groups, so they differ in the last digits.
    assert!(error.mean < 0.001 && error.max < 0.01, "{error:?}");
}

#[test]
fn windows_of_reuse_times_add_up() {
    let references = zipf(5_000, 0.9, 60_000, 6);
    let mut rng = Rng::new(4, 4);
    let (mut whole, mut parts) = (ReuseTimes::new(), ReuseTimes::new());
    let (mut times, mut dropped) = (Distances::new(), Distances::new());
    for (now, block) in references.iter().enumerate() {
        let now = now as u64;
        for one in [&mut whole, &mut parts] {
            one.reference(*block, now, 1.0);
        }
        let written = rng.below(5_000) as u32;
        for one in [&mut whole, &mut parts] {
            one.invalidate(written, now, 1.0);
        }
        if now.is_multiple_of(7_000) || now == 59_999 {
            let window = parts.take_window();
            times.merge(&window.0);
            dropped.merge(&window.1);
        }
    }
    assert_eq!((&times, &dropped), (whole.times(), whole.dropped()));
    assert_eq!(parts.times().total(), 0.0);
}

/// Without countable references, the miss ratio is unknown, not zero.
#[test]
fn empty_references_give_no_reuse_time_curve() {
    let mut times = ReuseTimes::new();
    assert!(times.curve().points().is_empty());
    times.invalidate(0, 1, 1.0);
    times.invalidate(1, 2, 1.0);
    assert!(times.curve().points().is_empty());
}
