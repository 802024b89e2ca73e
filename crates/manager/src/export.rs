//! A decision as a scenario file.
use crate::settings::Settings;
use crate::store::StoredDecision;
use crate::view::PlanView;

/// Text.
pub fn scenario(_decision: &StoredDecision, _settings: &Settings) -> Result<String, String> {
    Err("not yet".into())
}

/// Old.
pub fn old_plan(_decision: &StoredDecision) -> Result<PlanView, String> {
    Err("not yet".into())
}
