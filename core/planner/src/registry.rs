//! All strategies by name: one line each.

use thiserror::Error;

use crate::extents::{AdaptivePeriod, AgedFrequency, DualPeriod, Extents, MovingAverages, Period};
use crate::strategies::{
    Arms, AutoTiering, Colloid, Edt, Idt, Noop, QosExchange, StaticOrder, Terrace,
};
use crate::{AnyStrategy, ConfigError, Strategy};

/// Entry of the registry: a strategy by name.
pub struct Entry {
    /// Name of the strategy.
    pub name: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// JSON schema of its parameters.
    pub schema: fn() -> serde_json::Value,
    build: fn(serde_json::Value) -> Result<Box<dyn AnyStrategy>, ConfigError>,
}

/// All strategies.
pub const REGISTRY: &[Entry] = &[
    entry::<Noop>(),
    entry::<StaticOrder>(),
    entry::<Idt>(),
    entry::<Edt>(),
    entry::<AutoTiering>(),
    entry::<Extents<Period>>(),
    entry::<Extents<DualPeriod>>(),
    entry::<Extents<AdaptivePeriod>>(),
    entry::<Extents<MovingAverages>>(),
    entry::<Extents<AgedFrequency>>(),
    entry::<QosExchange>(),
    entry::<Colloid>(),
    entry::<Arms>(),
    entry::<Terrace>(),
];

/// Default strategy: live, in scenarios, in the demonstration.
pub const DEFAULT_STRATEGY: &str = <Terrace as Strategy>::NAME;
/// Strategy without moves: the reference of harm and of relative results.
pub const NOOP: &str = <Noop as Strategy>::NAME;

/// Error: no strategy has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown strategy \"{name}\"{hint}; known: {known}")]
pub struct UnknownStrategy {
    name: String,
    hint: String,
    known: String,
}

const fn entry<T: Strategy>() -> Entry {
    Entry {
        name: T::NAME,
        summary: T::SUMMARY,
        schema: || schemars::schema_for!(T::Config).to_value(),
        build: |config| {
            let fault = |why: String| ConfigError::new(T::NAME, String::new(), why);
            let config = if config.is_null() {
                T::Config::default()
            } else {
                serde_json::from_value(config).map_err(|e| fault(e.to_string()))?
            };
            Ok(Box::new(T::new(config)?))
        },
    }
}

/// Returns the entry with that name.
pub fn find(name: &str) -> Result<&'static Entry, UnknownStrategy> {
    REGISTRY.iter().find(|e| e.name == name).ok_or_else(|| {
        let near = REGISTRY
            .iter()
            .map(|e| e.name)
            .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
        let hint = near.filter(|n| strsim::jaro_winkler(n, name) > 0.75);
        UnknownStrategy {
            name: name.into(),
            hint: hint
                .map(|n| format!(", did you mean \"{n}\"?"))
                .unwrap_or_default(),
            known: REGISTRY
                .iter()
                .map(|e| e.name)
                .collect::<Vec<_>>()
                .join(", "),
        }
    })
}

/// Builds the strategy with that name and these parameters (null for the defaults).
pub fn build(name: &str, config: serde_json::Value) -> Result<Box<dyn AnyStrategy>, BuildError> {
    Ok((find(name)?.build)(config)?)
}

/// Reason why a strategy cannot be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// Unknown name.
    #[error(transparent)]
    Unknown(#[from] UnknownStrategy),
    /// Invalid parameters.
    #[error(transparent)]
    Config(#[from] ConfigError),
}
