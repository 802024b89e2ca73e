//! Mirrors, with every I/O ended by hand.
