//! Registry of methods as cells, one line each. Methods that need the future exist only here.

use planner::ConfigError;
use planner::extents::{
    AdaptivePeriod, AgedFrequency, Clairvoyant, DualPeriod, ExtentPolicy, MovingAverages, Period,
};
use serde_json::Value;
use units::Nanos;

use super::cell::{Cell, CellSpec, PolicyCell};

/// Method that can be evaluated by counting.
pub struct Method {
    /// Name of the method.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// True if the method receives future requests. Its result is a bound, not that of a usable method.
    pub knows_the_future: bool,
    build: fn(Value, CellSpec) -> Result<Box<dyn Cell>, ConfigError>,
    periods: fn(Value) -> Result<Periods, ConfigError>,
}

/// Periods of a method, each with the name of its parameter.
type Periods = Vec<(&'static str, Nanos)>;

/// All methods.
pub const METHODS: &[Method] = &[
    method::<Period>(),
    method::<DualPeriod>(),
    method::<AdaptivePeriod>(),
    method::<MovingAverages>(),
    method::<AgedFrequency>(),
    Method {
        knows_the_future: true,
        ..method::<Clairvoyant>()
    },
];

const fn method<P: ExtentPolicy>() -> Method {
    Method {
        name: P::NAME,
        summary: P::SUMMARY,
        knows_the_future: false,
        build: |config, spec| Ok(Box::new(PolicyCell::new(policy::<P>(config)?, spec))),
        periods: |config| Ok(policy::<P>(config)?.periods()),
    }
}

fn policy<P: ExtentPolicy>(config: Value) -> Result<P, ConfigError> {
    let fault = |why: String| ConfigError {
        strategy: P::NAME.into(),
        key: String::new(),
        why,
    };
    let config = if config.is_null() {
        P::Config::default()
    } else {
        serde_json::from_value(config).map_err(|e| fault(e.to_string()))?
    };
    P::new(&config)
}

/// Returns the periods of a method with these parameters; empty if [`cell`] rejects them.
pub fn periods(name: &str, config: Value) -> Periods {
    let method = METHODS.iter().find(|m| m.name == name);
    let periods = method.map(|m| (m.periods)(config));
    periods.and_then(Result::ok).unwrap_or_default()
}

/// Returns a method with these parameters (null for the defaults) for one size of the fast tier; `None` for an unknown
/// name.
///
/// # Errors
/// Invalid parameters.
pub fn cell(
    name: &str,
    config: Value,
    spec: CellSpec,
) -> Result<Option<Box<dyn Cell>>, ConfigError> {
    let method = METHODS.iter().find(|m| m.name == name);
    method.map(|m| (m.build)(config, spec)).transpose()
}
