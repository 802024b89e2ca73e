//! Moves of disks: what is written down, and what is done next. One rule for every kind of host, and for its simulation.

mod intent;
mod step;

pub use intent::{Doubt, FileId, INTENT_FORM, ImageId, Intent, Kept, Phase};
pub use step::{Definition, Live, Naming, Seen, Step, next};
