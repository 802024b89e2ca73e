//! Caches of pages in front of devices: what stays, what goes.
