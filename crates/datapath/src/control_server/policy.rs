//! What may be made: service classes, and more room for guests than there is on devices.
//!
//! The data path has no configuration. A live manager, which has one, says what holds; until it does, and without a server,
//! any class is taken and nothing is bounded. It is kept in memory: whoever decides says it again when the server starts.

use std::sync::PoisonError;

use model::NO_CLASS;
use units::{Bytes, TierId};

use super::{ControlAnswer, ControlServer, Result, done};
use crate::keeper::Keeper;
use crate::text::unknown;

/// What may be made.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Allowed {
    /// Service classes; none is any.
    pub(super) classes: Option<Vec<String>>,
    /// Sizes of volumes over the size of the array; none is any.
    pub(super) overcommit_max: Option<f64>,
}

/// Whether a number bounds anything. Refuses what is no number too.
pub(crate) fn boundable(overcommit_max: f64) -> Result<()> {
    match overcommit_max > 0.0 && overcommit_max.is_finite() {
        true => Ok(()),
        false => Err(format!(
            "overcommit_max must be a factor above 0, not {overcommit_max}"
        )),
    }
}

impl ControlServer {
    pub(super) fn allow(&self, allowed: Allowed) -> Result<ControlAnswer> {
        allowed.overcommit_max.map_or(Ok(()), boundable)?;
        *self.allowed.lock().unwrap_or_else(PoisonError::into_inner) = allowed;
        done("accepted the policy".into())
    }

    pub(super) fn allowed(&self) -> Allowed {
        let allowed = self.allowed.lock();
        allowed.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Allowed {
    /// Refuses a class that nobody described. That of volumes without a class is always there.
    pub(super) fn class(&self, name: &str) -> Result<()> {
        let Some(classes) = &self.classes else {
            return Ok(());
        };
        if name == NO_CLASS || classes.iter().any(|c| c == name) {
            return Ok(());
        }
        let known = classes.iter().map(String::as_str);
        let why = unknown("service class", name, known);
        Err(format!(
            "{why} (classes are defined in the configuration of the controller)"
        ))
    }

    /// Refuses a volume with which more would be promised to guests than is bounded.
    pub(super) fn room(&self, keeper: &Keeper, what: &str, size: Bytes) -> Result<()> {
        let Some(most) = self.overcommit_max else {
            return Ok(());
        };
        let promised = keeper.volumes.values().filter(|v| v.snapshot.is_none());
        let promised = together(promised.map(|v| v.size));
        let all: Bytes = keeper.tiers.iter().map(|t| keeper.space(t.id).1).sum();
        let with = Bytes(promised.0.saturating_add(size.0));
        let bound = most * all.as_f64();
        if with.as_f64() <= bound {
            return Ok(());
        }
        // Whole MiB are exact enough to be read.
        let bound = Bytes::mib(bound as u64 >> 20);
        Err(format!(
            "cannot {what}: the array has {all}, its volumes have {promised}, and would have {with}; policy.overcommit_max allows {most} times the size of the array ({bound})"
        ))
    }
}

/// Sizes of the volumes whose home a tier is.
pub(super) fn provisioned(keeper: &Keeper, tier: TierId) -> Bytes {
    let at_home = keeper
        .volumes
        .values()
        .filter(|v| v.home == tier && v.snapshot.is_none());
    together(at_home.map(|v| v.size))
}

/// Thin volumes may be as large as anything: three of 8 EiB are more than a number holds.
fn together(sizes: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(sizes.fold(0, |all, size| all.saturating_add(size.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_nobody_described_is_refused() {
        let any = Allowed::default();
        assert_eq!(any.class("platinum"), Ok(()));
        let some = Allowed {
            classes: Some(vec!["gold".into(), "silver".into()]),
            ..any
        };
        assert_eq!(some.class("gold"), Ok(()));
        assert_eq!(some.class(NO_CLASS), Ok(()));
        assert_eq!(
            some.class("glod").unwrap_err(),
            "unknown service class \"glod\", did you mean \"gold\"? (classes are defined in the configuration of the controller)"
        );
        assert!(some.class("").is_err());
        let none = Allowed {
            classes: Some(vec![]),
            ..some
        };
        assert!(none.class("gold").is_err());
    }

    #[test]
    fn what_is_no_number_bounds_nothing() {
        for refused in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert!(boundable(refused).is_err(), "{refused}");
        }
        assert_eq!(boundable(0.5), Ok(()));
    }
}
