//! Closed forms: write amplification and IOPS as functions of spare space, and their inverses.
//!
//! ```text
//!  tGC(u)  = (u·Np·(tR + tPROG) + tERASE) / ((1 − u)·Np)     per page that the host writes; u: valid share of a victim
//!  IOPS(u) = 1 / (tGC(u) + tPROG + tXfer)                     while the device serves only this tenant (paper 4)
//!  u_d     = (u − 1) / ln u                                   data's share of all pages (Menon)
//! ```
//!
//! [`cleaning`] relates spare space to u, [`cost`] u to time, [`sizing`] objectives to spare space.
//!
//! Limits: uniform random writes of single pages, steady state, one unit at a time. Menon's u applies to collection in
//! order of age. For greedy collection it is too high: by 6 % of the amplification at 5 % spare space.
//! [`cleaning::amplification_greedy`] is within 2 %.

pub mod cleaning;
pub mod cost;
pub mod sizing;
