//! `terrace volume mrc`: miss ratios of caches of several sizes in front of a served volume, and its working sets.

use anyhow::bail;
use clap::Args;
use datapath::control_server::{ControlAnswer, ControlRequest, ReuseSample};
use report::{number, table};
use serde::Serialize;
use units::Bytes;

use crate::live::{OutputArg, unexpected};
use crate::volume_cmd::VolumeSelector;

/// Default number of sizes, which are powers of two.
const SIZES: u32 = 12;

/// `terrace volume mrc`
#[derive(Debug, Args)]
pub struct VolumeMrc {
    #[command(flatten)]
    which: VolumeSelector,
    /// Sizes of the cache; by default powers of two up to the size of the data read
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    sizes: Vec<Bytes>,
    #[command(flatten)]
    output: OutputArg,
}

/// Output: results for an LRU cache of reads with write-around, since the start of the measurement.
#[derive(Debug, Serialize)]
struct VolumeReuse {
    volume: String,
    page: Bytes,
    /// Number of page reads.
    references: u64,
    /// Share of the pages in the sample.
    rate: f64,
    pages_followed: u64,
    /// True if the sample is large enough for a reliable curve.
    enough: bool,
    /// Largest standard error of the miss ratios.
    standard_error: Option<f64>,
    /// Approximate size of the accessed data.
    touched: Bytes,
    miss_ratios: Vec<MissRatio>,
    working_sets: Vec<WorkingSetShown>,
}

#[derive(Debug, Serialize)]
struct MissRatio {
    size: Bytes,
    miss_ratio: f64,
}

#[derive(Debug, Serialize)]
struct WorkingSetShown {
    /// Number of page reads and writes.
    references: u64,
    size: Bytes,
}

/// Runs `terrace volume mrc`.
pub fn run(mrc: &VolumeMrc) -> anyhow::Result<()> {
    let volume = mrc.which.volume.clone();
    let ControlAnswer::Reuse(sample) = mrc.which.array.ask(ControlRequest::Reuse { volume })?
    else {
        return Err(unexpected());
    };
    let shown = of(&sample, &mrc.sizes)?;
    mrc.output.print("terrace.volume.mrc/1", &shown, text)
}

fn of(sample: &ReuseSample, sizes: &[Bytes]) -> anyhow::Result<VolumeReuse> {
    let Some(counts) = &sample.counts else {
        bail!(
            "no miss ratios for volume {:?}: it is not served, or not measured (`terrace volume set --measure on`), or had no requests since then",
            sample.volume
        );
    };
    let curve = counts.curve();
    let page = counts.page.0.max(1);
    let bytes = |pages: f64| Bytes(pages.round() as u64 * page);
    let bits = curve.size_max().max(1).next_power_of_two().trailing_zeros();
    let powers = (bits.saturating_sub(SIZES - 1)..=bits).map(|b| Bytes((1 << b) * page));
    let sizes = if sizes.is_empty() {
        powers.collect()
    } else {
        sizes.to_vec()
    };
    let ratio = |size: Bytes| MissRatio {
        size,
        miss_ratio: curve.at(size.0 / page),
    };
    Ok(VolumeReuse {
        volume: sample.volume.clone(),
        page: counts.page,
        references: counts.references,
        rate: counts.rate,
        pages_followed: counts.confidence.blocks,
        enough: counts.confidence.enough_blocks(),
        standard_error: counts.confidence.standard_error,
        touched: bytes(counts.distinct),
        miss_ratios: sizes.into_iter().map(ratio).collect(),
        working_sets: counts
            .working_sets
            .iter()
            .map(|set| WorkingSetShown {
                references: set.references,
                size: bytes(set.blocks),
            })
            .collect(),
    })
}

fn text(shown: &VolumeReuse) -> String {
    let error = shown
        .standard_error
        .map_or_else(|| "-".into(), |e| format!("{e:.3}"));
    let doubt = if shown.enough {
        ""
    } else {
        " (too few for a reliable curve)"
    };
    let mut out = format!(
        "volume           {}\npages read       {} of {}\nfollowed         {} pages, a share of {:.4}{doubt}\nstandard error   {error}\ntouched          {}\n",
        shown.volume,
        shown.references,
        shown.page,
        shown.pages_followed,
        shown.rate,
        crate::trace_table::size(shown.touched.0)
    );
    let rows = shown.miss_ratios.iter().map(|m| {
        vec![
            crate::trace_table::size(m.size.0),
            format!("{:.4}", m.miss_ratio),
        ]
    });
    let columns = [number("cache", ""), number("reads", "miss ratio")];
    out += &format!("\n{}", table(&columns, rows.collect()));
    let rows = shown.working_sets.iter().map(|set| {
        vec![
            set.references.to_string(),
            crate::trace_table::size(set.size.0),
        ]
    });
    let columns = [number("window", "references"), number("working set", "")];
    out += &format!("\n{}", table(&columns, rows.collect()));
    out
}

#[cfg(test)]
mod tests {
    use datapath::engine::{GuestOp, GuestRequest};
    use datapath::reuse::{PAGE, Reuse};

    use super::*;

    #[test]
    fn looping_reads_hit_when_the_cache_holds_the_loop() {
        let mut reuse = Reuse::new(PAGE);
        for _ in 0..4 {
            for at in 0..100_000u64 {
                reuse.count(&GuestRequest {
                    op: GuestOp::Read,
                    offset: at * 4096,
                    length: 4096,
                    fua: false,
                });
            }
        }
        let sample = ReuseSample {
            volume: "v".into(),
            counts: reuse.look(),
        };
        let shown = of(&sample, &[Bytes::mib(128), Bytes::gib(1)]).unwrap();
        assert!(shown.enough && shown.miss_ratios[0].miss_ratio > 0.95);
        assert!((shown.miss_ratios[1].miss_ratio - 0.25).abs() < 0.02);
        let powers = of(&sample, &[]).unwrap();
        assert_eq!(powers.miss_ratios.len() as u32, SIZES);
        assert!(text(&powers).contains("working set"));
        let unknown = ReuseSample {
            counts: None,
            ..sample
        };
        let error = of(&unknown, &[]).unwrap_err().to_string();
        assert!(error.contains("not measured"), "{error}");
    }
}
