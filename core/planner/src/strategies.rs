//! Strategies. A new one is a file here and a line in the registry.

mod arms;
mod autotiering;
mod colloid;
mod edt;
mod idt;
mod noop;
mod qos_exchange;
mod static_order;
mod terrace;

pub use crate::movable::MoveUnit;
pub use arms::{Arms, ArmsConfig};
pub use autotiering::{AutoTiering, AutoTieringConfig, Form};
pub use colloid::{Colloid, ColloidConfig};
pub use edt::{Edt, EdtConfig};
pub use idt::{Idt, IdtConfig};
pub use noop::{Noop, NoopConfig};
pub use qos_exchange::{QosExchange, QosExchangeConfig};
pub use static_order::{StaticOrder, StaticOrderConfig};
pub use terrace::{Terrace, TerraceConfig};
