//! Tests of this crate in one program.

mod commits;
mod copies;
mod crash;
mod damage;
mod membership;
mod slots;
mod snapshots;
mod sources;
mod space;
mod superblock;
mod support;
