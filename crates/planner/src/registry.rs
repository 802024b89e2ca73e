//! All strategies by name: one line each.

use thiserror::Error;

use crate::extents::{AdaptivePeriod, AgedFrequency, DualPeriod, Extents, MovingAverages, Period};
use crate::strategies::{
    Arms, AutoTiering, Colloid, Edt, Idt, Noop, QosExchange, StaticOrder, Terrace,
};
use crate::{AnyStrategy, ConfigError, Strategy};

/// A strategy that can be asked for by name.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// JSON schema of its parameters.
    pub schema: fn() -> serde_json::Value,
    build: fn(serde_json::Value) -> Result<Box<dyn AnyStrategy>, ConfigError>,
}

/// All of them.
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

/// The strategy where nobody names one: live, in scenarios, in the demonstration.
pub const DEFAULT_STRATEGY: &str = <Terrace as Strategy>::NAME;
/// Strategy without moves: the reference of harm and of relative results.
pub const NOOP: &str = <Noop as Strategy>::NAME;

/// A name that is no strategy's.
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

/// The entry of that name.
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

/// The strategy of that name with these parameters (null for the defaults).
pub fn build(name: &str, config: serde_json::Value) -> Result<Box<dyn AnyStrategy>, BuildError> {
    Ok((find(name)?.build)(config)?)
}

/// Why there is no such strategy.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The name.
    #[error(transparent)]
    Unknown(#[from] UnknownStrategy),
    /// The parameters.
    #[error(transparent)]
    Config(#[from] ConfigError),
}
