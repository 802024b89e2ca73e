//! Strategy without moves: the baseline that every strategy must beat.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::VolumeId;

use crate::{ConfigError, Context, Draft, Strategy, Wish};

/// Leaves every volume in place. Not for production: it does not even relieve a full tier.
pub struct Noop;

/// Parameters of `noop`: none.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoopConfig {}

impl Strategy for Noop {
    type Config = NoopConfig;
    type State = ();
    const NAME: &'static str = "noop";
    const SUMMARY: &'static str = "makes no moves";

    fn new(_: NoopConfig) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn plan(&self, context: &Context<'_>, _: &(), draft: &mut Draft) {
        if context.facts.placement_due {
            let volumes = (0..context.facts.volumes.len()).map(VolumeId::from_index);
            draft.wishes = volumes.map(|v| Wish::stay(context, v)).collect();
        }
    }
}
