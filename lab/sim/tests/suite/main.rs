//! Integration tests of this crate in one program.

mod answering;
mod appliances;
mod caching;
mod disks;
mod everything;
mod examples;
mod extents;
mod faults;
mod flash;
mod goals;
mod mirrors;
mod oracle;
mod played;
mod remedies;
mod requests;
mod runs;
mod support;
mod tenants;
mod throttles;
