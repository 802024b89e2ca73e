//! Strategy in Python of the configuration, with its limits.

use std::path::Path;
use std::time::Duration;

use interpreter::{Limits, PythonStrategy, Source};
use manager::settings::Settings;
use planner::{AnyStrategy, HostedStrategy};

/// Longest time of a decision. The controller processes no requests meanwhile, so it is at most half a window, too: agents lose their
/// lease after three, and decisions of many arrays take at most two of these times in a row.
const DECISION_MAX: Duration = Duration::from_secs(5);

/// Most address space of each of the two processes of a strategy. Protects the memory of the host that serves the volumes.
const MEMORY_MAX: u64 = 4 << 30;

/// Settings whose strategy in Python, if they have one, can be started.
pub(crate) fn with_access(mut settings: Settings) -> Settings {
    settings.python = Some(start);
    settings
}

fn start(settings: &Settings) -> Box<dyn AnyStrategy> {
    let base = Path::new(&settings.text().file).parent();
    let source = Source::new(&settings.strategy.0, base.unwrap_or(Path::new("")));
    let half = Duration::from_nanos(settings.words.window.0 / 2);
    let limits = Limits {
        decision: DECISION_MAX.min(half),
        memory: MEMORY_MAX,
    };
    Box::new(HostedStrategy(PythonStrategy::live(source, limits)))
}
