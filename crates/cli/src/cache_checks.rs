//! What `terrace sim cache` refuses before it simulates anything, and what it warns of.

use std::path::PathBuf;

use anyhow::Context;
use cache::{PolicyKind, ReferencesBuilder, ReferencesConfig};
use trace::ReadOptions;
use units::Bytes;

use crate::cache_read::Loaded;
use crate::cache_sizes::AskedSize;
use crate::trace_cmd::{Output, message, open};

/// What was asked for, as far as some of it does not go with the rest.
pub struct Asked<'a> {
    /// None is the optimum.
    pub policies: &'a [Option<PolicyKind>],
    /// Whether only a share of the pages is simulated.
    pub sampled: bool,
    /// Whether response times are given.
    pub response: bool,
    /// Whether extents are counted.
    pub extents: bool,
    /// Form of the output.
    pub output: Output,
}

impl Asked<'_> {
    /// Names of the policies that follow response times, if there are any.
    fn with_priorities(&self) -> Option<String> {
        let kinds = self.policies.iter().flatten();
        let names: Vec<&str> = kinds
            .filter(|k| matches!(k, PolicyKind::PriorityLru | PolicyKind::PriorityLruLazy))
            .map(|k| k.name())
            .collect();
        (!names.is_empty()).then(|| names.join(" and "))
    }

    /// Words for the effect of constant priorities. The lazy queue orders pages less exactly than that of hr-lru.
    fn as_hr_lru(&self) -> &'static str {
        match self.policies.contains(&Some(PolicyKind::PriorityLru)) {
            true => ": hits of priority-lru are those of hr-lru",
            false => "",
        }
    }

    /// Fails if some of it does not go together.
    pub fn refuse(&self) -> anyhow::Result<()> {
        if let Some(names) = self.with_priorities() {
            anyhow::ensure!(
                !(self.sampled && self.response),
                "--sample cannot be combined with --response for {names}: requests with only some pages in the sample hit too often, and priorities would follow these hits; use one of the two options"
            );
        }
        anyhow::ensure!(
            !(self.extents && self.output == Output::Csv),
            "--extents has no CSV columns: use -o table or -o json"
        );
        Ok(())
    }

    /// Says what will not be as one might think, whatever the trace.
    pub fn warn(&self) {
        if let Some(names) = self.with_priorities().filter(|_| !self.response) {
            message(format_args!(
                "warning: {names} without --response: priorities need response times, so they never change{}",
                self.as_hr_lru()
            ));
        }
        if self.extents && self.policies.contains(&None) {
            message(format_args!(
                "warning: --extents: belady (the optimum) is not counted by extent"
            ));
        }
    }

    /// The same for one trace.
    pub fn warn_of_trace(&self, file: &str, loaded: &Loaded) {
        let Some(names) = self.with_priorities() else {
            return;
        };
        let why = if !loaded.timed {
            "the trace has no times"
        } else if loaded.references.slices().is_empty() {
            "the trace is shorter than a slice of five minutes"
        } else {
            return;
        };
        message(format_args!(
            "warning: {file}: {why}, so priorities of {names} never change{}",
            self.as_hr_lru()
        ));
    }
}

/// Fails if there is no such page or sample.
pub fn check_config(config: ReferencesConfig) -> anyhow::Result<()> {
    ReferencesBuilder::new(config)?;
    Ok(())
}

/// Fails if a size that does not depend on the trace makes no cache.
pub fn check_sizes(sizes: &[AskedSize], page: Bytes) -> anyhow::Result<()> {
    let fixed = sizes.iter().filter(|s| !matches!(s, AskedSize::Percent(_)));
    for size in fixed {
        size.pages(0, page).context("--sizes")?;
    }
    Ok(())
}

/// Pages of the caches over a trace in which so many occur, each number once.
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

/// Opens all traces, so that one that is not there or not known does not end a run that has taken an hour. What is no file, like a
/// pipe, can be opened only once; and a single trace is read before anything else anyway.
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
    fn doubles_are_merged_and_fixed_sizes_are_looked_at_first() {
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
    fn what_does_not_go_together() {
        let asked = |policy, sampled, extents, output| {
            let policies = [policy];
            let asked = Asked {
                policies: &policies,
                sampled,
                response: true,
                extents,
                output,
            };
            asked.refuse()
        };
        for kind in [PolicyKind::PriorityLru, PolicyKind::PriorityLruLazy] {
            let error = asked(Some(kind), true, false, Output::Table).unwrap_err();
            assert!(error.to_string().contains(kind.name()), "{error}");
            asked(Some(kind), false, true, Output::Json).unwrap();
        }
        asked(Some(PolicyKind::HrLru), true, true, Output::Table).unwrap();
        assert!(asked(None, false, true, Output::Csv).is_err());
    }
}
