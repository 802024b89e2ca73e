//! What to do when a service-level objective breaks.
