//! What to do when a service-level objective breaks: detection, interference, sizes, solutions, hosts, ways of re-routing.
pub mod cacheable;
pub mod curve;
pub mod detect;
pub mod host;
pub mod interference;
pub mod ladder;
pub mod load;
pub mod removal;
pub mod reroute;
pub mod sample;
pub mod seasonal;
pub mod sizing;
pub mod solutions;
pub mod warm;
pub mod zones;
