//! The strategies. A new one is a file here and a line in the registry.

mod autotiering;
mod edt;
mod idt;
mod noop;
mod qos_exchange;
mod static_order;
mod terrace;

pub use autotiering::{AutoTiering, AutoTieringConfig, Form};
pub use edt::{Edt, EdtConfig};
pub use idt::{Idt, IdtConfig};
pub use noop::{Noop, NoopConfig};
pub use qos_exchange::{QosExchange, QosExchangeConfig};
pub use static_order::{StaticOrder, StaticOrderConfig};
pub use terrace::{Terrace, TerraceConfig};
