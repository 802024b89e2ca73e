//! Planned rate of copies.

use model::{Facts, Policy};
use units::{BytesPerSec, DeviceId, VolumeId};

/// Smallest planned rate of a copy: below it, a move would outlast any forecast.
const COPY_BANDWIDTH_MIN: BytesPerSec = BytesPerSec(1_000_000);

/// Returns the planned rate of a copy of a volume to a device: the budget's, or less if source and target have less to
/// spare.
pub fn copy_bandwidth(
    facts: &Facts,
    policy: &Policy,
    volume: VolumeId,
    to: DeviceId,
) -> BytesPerSec {
    within_budget(policy, spare_bandwidth(facts, volume, to))
}

/// Returns the planned rate for extents of a volume between two devices. The volume's own reads of them are unknown.
pub(crate) fn extents_bandwidth(
    facts: &Facts,
    policy: &Policy,
    from: DeviceId,
    to: DeviceId,
) -> BytesPerSec {
    within_budget(policy, spare_between(facts, from, to, 0.0))
}

fn within_budget(policy: &Policy, spare: f64) -> BytesPerSec {
    let budget = &policy.budget;
    let spare = spare * budget.copy_share;
    // The floor is for busy devices; it does not exceed the operator's limit.
    let rate = (spare as u64).max(COPY_BANDWIDTH_MIN.0);
    BytesPerSec(rate.min(budget.copy_bandwidth.0))
}

/// Returns μ of paper 0 (Alg. 2 l. 17), bytes per second: the smaller of the source's spare read bandwidth and the target's
/// spare write bandwidth. The volume's own reads are added to the source's, because the copy may use them.
pub(crate) fn spare_bandwidth(facts: &Facts, volume: VolumeId, to: DeviceId) -> f64 {
    let v = &facts.volumes[volume.index()];
    let own_read = v
        .measured
        .map_or(0.0, |m| m.reads.bytes as f64 / m.window.as_secs_f64());
    spare_between(facts, v.device, to, own_read)
}

fn spare_between(facts: &Facts, from: DeviceId, to: DeviceId, own_read: f64) -> f64 {
    let source = &facts.topology.device(from).spec;
    let target = &facts.topology.device(to).spec;
    let read_left = (source.read_bandwidth.as_f64() - facts.devices[from.index()].read_bytes_per_s)
        .max(0.0)
        + own_read;
    let write_left =
        (target.write_bandwidth.as_f64() - facts.devices[to.index()].write_bytes_per_s).max(0.0);
    read_left.min(write_left)
}
