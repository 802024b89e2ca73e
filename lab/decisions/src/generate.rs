//! Random arrays: tiers, volumes, classes and loads drawn from stated ranges.
//!
//! | drawn | range |
//! |---|---|
//! | tiers | 2 to 4, each of 1 to 3 devices; the first has 3,000 to 12,000 read IOPS per device, each next 0.3 to 0.7 of that |
//! | latency | 80 to 200 us at the top, each next tier 1.3 to 2.5 times as much |
//! | writes | 0.3 to 0.8 of the read cap |
//! | volumes | 4 to 24 of 1 to 8 GiB (log-uniform), three of four with a class |
//! | space | volumes take 45 to 80 % of all space; tiers grow downwards |
//! | load | log-normal weights (sigma 1), together 15 to 70 % of all devices' caps |
//! | over time | steady (40 %), a step (15 %), day and night (15 %), bursts (10 %), a ramp (10 %), closed loop (10 %) |
//! | objectives | gold p95 4 to 8, silver p95 8 to 20, bronze mean 15 to 60 times the top tier's latency |

use std::fmt::Write;

use algo::Rng;

/// Returns the text of a scenario, a function of the seed.
pub fn generate(seed: u64) -> String {
    let rng = &mut Rng::new(seed, 0x6E4E);
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!(
        "about = \"a random array, number {seed}\"\nseed = {seed}"
    ));
    line("duration = \"30m\"\nwindow = \"5s\"\ncopy_chunk = \"1 MiB\"\nstrategy = \"noop\"".into());
    line("[policy]\nmonitor_epoch = \"15s\"\nmigration_epoch = \"60s\"".into());
    let between = |low: f64, high: f64, rng: &mut Rng| low + (high - low) * rng.unit();
    let log_between =
        |low: f64, high: f64, rng: &mut Rng| low * libm::exp(libm::log(high / low) * rng.unit());
    // Volumes.
    let n = 4 + rng.below(21) as usize;
    let sizes: Vec<u64> = (0..n)
        .map(|_| log_between(1.0, 8.0, rng).round() as u64)
        .collect();
    let total: u64 = sizes.iter().sum();
    // Tiers.
    let tiers = 2 + rng.below(3) as usize;
    let space = total as f64 / between(0.45, 0.8, rng);
    let shares: Vec<f64> = (0..tiers).map(|t| libm::pow(1.8, t as f64)).collect();
    let all_shares: f64 = shares.iter().sum();
    let (mut iops, mut us) = (log_between(3e3, 12e3, rng), log_between(80.0, 200.0, rng));
    let top_us = us;
    let mut caps = 0.0;
    for (t, share) in shares.iter().enumerate() {
        let devices = 1 + rng.below(3);
        // A device has room for the largest volume, and some more.
        let capacity = (space * share / all_shares / devices as f64)
            .ceil()
            .max(10.0);
        let writes = between(0.3, 0.8, rng);
        line(format!(
            "[[tiers]]\nname = \"tier-{t}\"\npreset = \"pm953\"\ndevices = {devices}\ncapacity = \"{capacity} GiB\"\n\
             read_iops = \"{iops:.0} IOPS\"\nwrite_iops = \"{:.0} IOPS\"\nread_latency = \"{us:.0}us\"\nwrite_latency = \"{:.0}us\"",
            iops * writes,
            us * between(0.3, 1.0, rng)
        ));
        caps += iops * devices as f64;
        iops *= between(0.3, 0.7, rng);
        us *= between(1.3, 2.5, rng);
    }
    for (class, weight, statistic, low, high) in [
        ("gold", 4.0, "p95", 4.0, 8.0),
        ("silver", 2.0, "p95", 8.0, 20.0),
        ("bronze", 1.0, "mean", 15.0, 60.0),
    ] {
        let latency = top_us * log_between(low, high, rng);
        line(format!(
            "[[classes]]\nname = \"{class}\"\nweight = {weight:.1}\nlatency = \"{latency:.0}us\"\nstatistic = \"{statistic}\""
        ));
    }
    let weights: Vec<f64> = (0..n).map(|_| libm::exp(rng.normal())).collect();
    let asked = caps * between(0.15, 0.7, rng) / weights.iter().sum::<f64>();
    for (v, (size, weight)) in sizes.iter().zip(&weights).enumerate() {
        let class = ["gold", "silver", "bronze", ""][rng.below(4) as usize];
        let class = match class {
            "" => String::new(),
            name => format!("class = \"{name}\"\n"),
        };
        line(format!(
            "[[volumes]]\nname = \"v{v}\"\n{class}size = \"{size} GiB\""
        ));
        load(v, asked * weight, rng, &mut line);
    }
    out
}

fn load(v: usize, rate: f64, rng: &mut Rng, line: &mut impl FnMut(String)) {
    let reads = 0.3 + 0.7 * rng.unit();
    let random = 0.5 + 0.5 * rng.unit();
    let mix = format!("read_share = {reads:.2}, random_share = {random:.2}");
    let rate = rate.max(1.0);
    // Enough requests in flight for the rate at a latency of twenty milliseconds.
    let depth = ((rate * 0.02).ceil() as u64).clamp(2, 32);
    let capped = |rate: f64| {
        format!(
            "outstanding = {depth}, {mix}, rate = \"{:.0} IOPS\"",
            rate.max(1.0)
        )
    };
    let kind = rng.unit();
    let minutes = 3 + rng.below(8);
    let factor = libm::exp(libm::log(6.0) * rng.unit()) * 1.3;
    let head = |habits: String| format!("[[clients]]\nvolume = \"v{v}\"\nhabits = {{ {habits} }}");
    let phase = |length: String, rate: f64| {
        format!(
            "[[clients.phases]]\nduration = \"{length}\"\nhabits = {{ rate = \"{:.0} IOPS\" }}",
            rate.max(1.0)
        )
    };
    match kind {
        k if k < 0.4 => line(head(capped(rate))),
        k if k < 0.55 => {
            // One step up or down.
            let after = if rng.below(2) == 0 {
                rate * factor
            } else {
                rate / factor
            };
            line(head(capped(rate)));
            line(phase(format!("{}m", minutes + 2), rate));
            line(phase("60m".into(), after));
        }
        k if k < 0.7 => {
            line(head(capped(rate)));
            line(phase(format!("{minutes}m"), rate));
            line(phase(format!("{minutes}m"), rate / factor));
        }
        k if k < 0.8 => {
            let every = 60 + rng.below(180);
            let length = 3 + rng.below(12);
            line(head(capped(rate)));
            line(format!(
                "bursts = {{ every = \"{every}s\", length = \"{length}s\", factor = {factor:.1} }}"
            ));
        }
        k if k < 0.9 => {
            line(head(capped(rate)));
            for step in 0..10 {
                let share = f64::from(step) / 9.0;
                line(phase("3m".into(), rate * (0.4 + share * (factor - 0.4))));
            }
        }
        _ => {
            let slots = 1 + rng.below(6);
            // Rate of one slot if its requests take half a millisecond.
            let think_us = (slots as f64 / rate * 1e6 - 500.0).clamp(0.0, 1e6);
            line(head(format!(
                "outstanding = {slots}, {mix}, think = \"{think_us:.0}us\""
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::ScenarioFile;

    #[test]
    fn each_seed_generates_a_valid_array() {
        let mut tiers = [0; 5];
        for seed in 1..300 {
            let text = generate(seed);
            let file =
                ScenarioFile::parse("g", &text).unwrap_or_else(|e| panic!("{seed}: {e}\n{text}"));
            let model = file
                .build(vec![])
                .unwrap_or_else(|e| panic!("{seed}: {e}\n{text}"));
            tiers[model.topology.tiers.len()] += 1;
            assert_eq!(text, generate(seed));
        }
        assert!(tiers[2] > 50 && tiers[3] > 50 && tiers[4] > 50, "{tiers:?}");
    }
}
