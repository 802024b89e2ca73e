//! Moves of disks: their intents, and the decision of the next step. One rule for every kind of host and for its
//! simulation.

mod intent;
mod step;

pub use intent::{Doubt, FileId, INTENT_FORM, ImageId, Intent, KeptFile, Phase};
pub use step::{DefinedImage, Definition, LiveDomain, MoveObservation, Step, next};
