//! The nouns: topology, inventory, measurements, policy, plan and report. Data only.

mod io;

pub use io::Op;
