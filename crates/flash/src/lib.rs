//! What happens inside a solid-state drive: flash translation, garbage collection, over-provisioning.
