//! What to do when a service-level objective breaks: detection, interference, sizes, solutions, hosts, ways of re-routing.
pub mod cacheable;
pub mod curve;
pub mod detect;
pub mod host;
pub mod interference;
pub mod load;
pub mod reroute;
pub mod sample;
pub mod sizing;
pub mod solutions;
