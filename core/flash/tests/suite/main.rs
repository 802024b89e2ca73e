//! Tests of this crate in one program.

mod agreement;
mod by_share;
mod coming;
mod control;
mod limits;
mod presets;
mod properties;
mod queueing;
mod scaled;
#[path = "../../../../lab/bench/src/speed.rs"]
mod speed;
mod tenants;
mod write_amplification;
