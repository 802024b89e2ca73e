//! Limits on new volumes: known service classes, and the largest overcommitment of space.
//!
//! The data path has no configuration. A live controller sends the limits. Until then, and without a server, any class is
//! accepted and sizes are unlimited. The limits are only in memory: the controller sends them again when the server starts.

use std::sync::PoisonError;

use model::NO_CLASS;
use units::{Bytes, TierId};

use super::{ControlAnswer, ControlServer, DatapathError, Result, done};
use crate::keeper::Keeper;
use crate::text::hint;

/// Limits on new volumes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct NewVolumeLimits {
    /// Service classes; none for any.
    pub(super) classes: Option<Vec<String>>,
    /// Largest ratio of the total size of volumes to the size of the array; none for any.
    pub(super) overcommit_max: Option<f64>,
}

/// Checks a limit of overcommitment. NaN is refused, too.
pub(crate) fn boundable(overcommit_max: f64) -> Result<()> {
    match overcommit_max > 0.0 && overcommit_max.is_finite() {
        true => Ok(()),
        false => Err(DatapathError::Invalid(format!(
            "overcommit_max must be a factor above 0, not {overcommit_max}"
        ))),
    }
}

impl ControlServer {
    pub(super) fn allow(&self, allowed: NewVolumeLimits) -> Result<ControlAnswer> {
        allowed.overcommit_max.map_or(Ok(()), boundable)?;
        *self.allowed.lock().unwrap_or_else(PoisonError::into_inner) = allowed;
        done("accepted the policy".into())
    }

    pub(super) fn allowed(&self) -> NewVolumeLimits {
        let allowed = self.allowed.lock();
        allowed.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl NewVolumeLimits {
    /// Refuses an unknown class. The class of volumes without a class is always known.
    pub(super) fn class(&self, name: &str) -> Result<()> {
        let Some(classes) = &self.classes else {
            return Ok(());
        };
        if name == NO_CLASS || classes.iter().any(|c| c == name) {
            return Ok(());
        }
        let hint = hint(name, classes.iter().map(String::as_str));
        Err(DatapathError::Unknown {
            kind: "service class",
            name: name.into(),
            hint: format!("{hint} (classes are defined in the configuration of the controller)"),
        })
    }

    /// Refuses a volume with which the total size would exceed the limit.
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
        // Whole MiB are precise enough for a message.
        let bound = Bytes::mib(bound as u64 >> 20);
        Err(DatapathError::Refused(format!(
            "cannot {what}: the array has {all}, its volumes have {promised}, and would have {with}; policy.overcommit_max allows {most} times the size of the array ({bound})"
        )))
    }
}

/// Returns the total size of the volumes whose home is a tier.
pub(super) fn provisioned(keeper: &Keeper, tier: TierId) -> Bytes {
    let at_home = keeper
        .volumes
        .values()
        .filter(|v| v.home == tier && v.snapshot.is_none());
    together(at_home.map(|v| v.size))
}

/// Adds sizes with saturation: three thin volumes of 8 EiB exceed the range of the number.
fn together(sizes: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(sizes.fold(0, |all, size| all.saturating_add(size.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undefined_class_is_refused() {
        let any = NewVolumeLimits::default();
        any.class("platinum").unwrap();
        let some = NewVolumeLimits {
            classes: Some(vec!["gold".into(), "silver".into()]),
            ..any
        };
        some.class("gold").unwrap();
        some.class(NO_CLASS).unwrap();
        assert_eq!(
            some.class("glod").unwrap_err().to_string(),
            "unknown service class \"glod\", did you mean \"gold\"? (classes are defined in the configuration of the controller)"
        );
        assert!(some.class("").is_err());
        let none = NewVolumeLimits {
            classes: Some(vec![]),
            ..some
        };
        assert!(none.class("gold").is_err());
    }

    #[test]
    fn overcommit_limit_must_be_a_positive_finite_number() {
        for refused in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert!(boundable(refused).is_err(), "{refused}");
        }
        boundable(0.5).unwrap();
    }
}
