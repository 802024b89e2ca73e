//! Closed forms: write amplification and IOPS from spare space, and back.
//!
//! ```text
//!  tGC(u)  = (u·Np·(tR + tPROG) + tERASE) / ((1 − u)·Np)     per page that the host writes; u: valid share of a victim
//!  IOPS(u) = 1 / (tGC(u) + tPROG + tXfer)                     while the device serves nobody else (paper 4)
//!  u_d     = (u − 1) / ln u                                   data's share of all pages (Menon)
//! ```
//!
//! [`cleaning`] relates spare space to u, [`cost`] u to time, [`sizing`] objectives to spare space.
//!
//! Known limits: uniform random writes of single pages, steady state, one unit at a time. Menon's u belongs to collection in order of
//! age: for greedy it is too high, at 5 % spare space by 6 % of the amplification; [`cleaning::amplification_greedy`] is within 2 %.

pub mod cleaning;
pub mod cost;
pub mod sizing;
