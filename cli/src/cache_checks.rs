//! Checks and warnings of `terrace sim cache` before the simulation.

use std::path::PathBuf;

use anyhow::Context;
use cache::{PolicyKind, ReferencesBuilder, ReferencesConfig};
use trace::ReadOptions;
use units::Bytes;

use crate::cache_read::CacheTrace;
use crate::cache_sizes::AskedSize;
use crate::trace_cmd::{Output, message, open};

/// Options that may contradict each other.
pub struct CacheOptions<'a> {
    /// Policies; `None` is the optimum (Belady).
    pub policies: &'a [Option<PolicyKind>],
    /// True if only a share of the pages is simulated.
    pub sampled: bool,
    /// True if response times are given.
    pub response: bool,
    /// True if extents are counted.
    pub extents: bool,
    /// Form of the output.
    pub output: Output,
}

impl CacheOptions<'_> {
    /// Returns true if a policy depends on response times.
    fn with_priorities(&self) -> bool {
        self.policies.contains(&Some(PolicyKind::PriorityLru))
    }

    /// Returns an error if the options contradict each other.
    pub fn refuse(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !(self.with_priorities() && self.sampled && self.response),
            "--sample cannot be combined with --response for priority-lru: requests with only some pages in the sample hit too often, and priorities would follow these hits; use one of the two options"
        );
        anyhow::ensure!(
            !(self.extents && self.output == Output::Csv),
            "--extents has no CSV columns: use -o table or -o json"
        );
        Ok(())
    }

    /// Warns of options without effect, independently of the trace.
    pub fn warn(&self) {
        if self.with_priorities() && !self.response {
            message(format_args!(
                "warning: priority-lru without --response: priorities need response times, so they never change and the hits are those of hr-lru"
            ));
        }
        if self.extents && self.policies.contains(&None) {
            message(format_args!(
                "warning: --extents: belady (the optimum) is not counted by extent"
            ));
        }
    }

    /// Warns of options without effect on a trace.
    pub fn warn_of_trace(&self, file: &str, loaded: &CacheTrace) {
        let why = if !self.with_priorities() {
            return;
        } else if !loaded.timed {
            "the trace has no times"
        } else if loaded.references.slices().is_empty() {
            "the trace is shorter than a slice of five minutes"
        } else {
            return;
        };
        message(format_args!(
            "warning: {file}: {why}, so priorities of priority-lru never change: its hits are those of hr-lru"
        ));
    }
}

/// Returns an error if the page size or the sample is invalid.
pub fn check_config(config: ReferencesConfig) -> anyhow::Result<()> {
    ReferencesBuilder::new(config)?;
    Ok(())
}

/// Returns an error if a size that does not depend on the trace is invalid.
pub fn check_sizes(sizes: &[AskedSize], page: Bytes) -> anyhow::Result<()> {
    let fixed = sizes.iter().filter(|s| !matches!(s, AskedSize::Percent(_)));
    for size in fixed {
        size.pages(0, page).context("--sizes")?;
    }
    Ok(())
}

/// Returns the sizes of the caches in pages, without duplicates, for a trace with `working_set` distinct pages.
pub fn sizes(sizes: &[AskedSize], working_set: u64, page: Bytes) -> anyhow::Result<Vec<u64>> {
    let mut unique = Vec::new();
    for size in sizes {
        let pages = size.pages(working_set, page).context("--sizes")?;
        if !unique.contains(&pages) {
            unique.push(pages);
        }
    }
    Ok(unique)
}

/// Opens all traces, so a missing or unknown one is reported at once and not after an hour of simulation. Pipes are not opened, because they
/// can be opened only once. A single trace is not opened either, because it is read first anyway.
pub fn open_all(traces: &[PathBuf], options: &ReadOptions) -> anyhow::Result<()> {
    if traces.len() == 1 {
        return Ok(());
    }
    for path in traces {
        let found =
            std::fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
        if found.is_file() || found.is_dir() {
            open(path, options)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_are_deduplicated_and_absolute_sizes_are_checked_first() {
        let page = Bytes(4096);
        let asked: Vec<AskedSize> = ["10%", "100p", "400 KiB", "5p"]
            .map(|s| s.parse().unwrap())
            .to_vec();
        check_sizes(&asked, page).unwrap();
        assert_eq!(sizes(&asked, 1000, page).unwrap(), [100, 5]);
        assert!(check_sizes(&["1 KiB".parse().unwrap()], page).is_err());
        let share = ["0.01%".parse().unwrap()];
        check_sizes(&share, page).unwrap();
        assert!(sizes(&share, 1000, page).is_err());
    }

    #[test]
    fn conflicting_cache_options_are_refused() {
        let asked = |policy, sampled, extents, output| {
            let policies = [policy];
            let asked = CacheOptions {
                policies: &policies,
                sampled,
                response: true,
                extents,
                output,
            };
            asked.refuse()
        };
        let kind = PolicyKind::PriorityLru;
        let error = asked(Some(kind), true, false, Output::Table).unwrap_err();
        assert!(error.to_string().contains(kind.name()), "{error}");
        asked(Some(kind), false, true, Output::Json).unwrap();
        asked(Some(PolicyKind::HrLru), true, true, Output::Table).unwrap();
        assert!(asked(None, false, true, Output::Csv).is_err());
    }
}
