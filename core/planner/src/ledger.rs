//! Remaining resources of each tier during a decision, and the filters that every strategy obeys.

use model::{
    Affinity, AffinityKind, Facts, FailedMove, Headroom, MeasuredLoad, Op, Policy, Rejection,
    Topology,
};
use units::{Bytes, DeviceId, Nanos, TierId, VolumeId};

use crate::Context;
use crate::assign::Shares;

/// Demand of a volume on a tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Requests per second.
    pub iops: f64,
    /// Largest number of requests per second that the tier's devices can serve of the volume's mix.
    pub iops_max: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Largest number of bytes per second that the tier's devices can transfer of the volume's mix.
    pub bytes_per_s_max: f64,
    /// Space.
    pub space: Bytes,
}

impl Demand {
    /// Returns the demand of a volume whose load is unknown or does not matter: its space alone.
    pub fn space_only(space: Bytes) -> Self {
        Self {
            iops: 0.0,
            iops_max: 1.0,
            bytes_per_s: 0.0,
            bytes_per_s_max: 1.0,
            space,
        }
    }

    /// Returns the demand of a volume with this load on this tier. `iops` is its expected request rate there.
    pub fn on_tier(
        topology: &Topology,
        tier: TierId,
        measured: &MeasuredLoad,
        iops: f64,
        space: Bytes,
    ) -> Self {
        let reads = measured.read_share();
        let (read_bytes, write_bytes) = (
            measured.mean_bytes(Op::Read),
            measured.mean_bytes(Op::Write),
        );
        let mean_bytes = reads * read_bytes + (1.0 - reads) * write_bytes;
        let bytes_per_s_max = topology.sum(tier, |s| {
            let time_per_byte = reads * read_bytes / s.read_bandwidth.as_f64()
                + (1.0 - reads) * write_bytes / s.write_bandwidth.as_f64();
            if time_per_byte > 0.0 {
                mean_bytes / time_per_byte
            } else {
                s.read_bandwidth.as_f64()
            }
        });
        Self {
            iops,
            // By the request-rate caps alone: bandwidth is a separate resource here.
            iops_max: topology.sum(tier, |s| s.max_iops(reads, 0.0, 0.0)),
            bytes_per_s: iops * mean_bytes,
            bytes_per_s_max,
            space,
        }
    }
}

impl Demand {
    /// Limits the demand to the plannable share of one device of the tier, since a volume is on one device.
    pub fn within_one_device(self, topology: &Topology, headroom: &Headroom, tier: TierId) -> Self {
        let devices = topology.tier(tier).devices.len() as f64;
        let fits = (headroom.performance * self.iops_max / devices / self.iops)
            .min(headroom.bandwidth * self.bytes_per_s_max / devices / self.bytes_per_s)
            .min(1.0);
        if fits.is_nan() {
            return self; // no demand at all
        }
        Self {
            iops: self.iops * fits,
            bytes_per_s: self.bytes_per_s * fits,
            ..self
        }
    }

    /// Returns the demand as shares of the capability of the tier with this space.
    pub fn shares(&self, space: Bytes) -> Shares {
        [
            self.iops / self.iops_max,
            self.bytes_per_s / self.bytes_per_s_max,
            self.space.as_f64() / space.as_f64(),
        ]
    }
}

/// Check of a tier's IOPS and bandwidth for a volume that is already on the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StayCheck {
    /// As for every other volume: some volumes leave an overloaded tier.
    Checked,
    /// Only lack of space can force it out: an overloaded tier stays overloaded.
    Exempt,
}

/// Remaining resources per tier and the assignments so far.
///
/// IOPS and bandwidth are shares of the tier's capability, so volumes of different mixes add up; space is in bytes. A volume
/// that is being moved counts for its target from the start.
#[derive(Debug, Clone)]
pub struct Ledger<'a> {
    facts: &'a Facts,
    policy: &'a Policy,
    iops_left: Vec<f64>,
    bandwidth_left: Vec<f64>,
    space_left: Vec<f64>,
    assigned: Vec<Option<TierId>>,
}

/// Returns a rejection if moves of the volume to each of these devices have failed: that of the device with the earliest
/// retry.
pub(crate) fn move_failed(
    facts: &Facts,
    volume: VolumeId,
    devices: impl Iterator<Item = DeviceId>,
) -> Option<Rejection> {
    let failed = devices.map(|d| facts.failed_move(volume, d));
    let failed: Vec<&FailedMove> = failed.collect::<Option<_>>()?;
    let first = failed
        .into_iter()
        .min_by_key(|f| (f.left.unwrap_or(Nanos(u64::MAX)), f.device))?;
    Some(Rejection::MoveFailed {
        device: facts.topology.device(first.device).name.clone(),
        attempts: first.attempts,
        left: first.left,
        why: first.why.clone(),
    })
}

/// See [`Ledger::free`].
fn free(facts: &Facts, device: DeviceId) -> i128 {
    let now = &facts.devices[device.index()];
    let capacity = facts.topology.device(device).spec.capacity;
    i128::from(capacity.0) - i128::from(now.used.0) - i128::from(now.reserved.0)
}

/// Free space of a device that moves for latency and new volumes may take, bytes: all of it, or up to
/// the operator's limit `space_high`. Negative where more than that is in use.
pub(crate) fn room(facts: &Facts, policy: &Policy, device: DeviceId) -> i128 {
    free(facts, device) - above_limit(facts, policy, device)
}

/// Space of a device above the operator's limit `space_high`, bytes; 0 without a limit.
pub(crate) fn above_limit(facts: &Facts, policy: &Policy, device: DeviceId) -> i128 {
    let capacity = facts.topology.device(device).spec.capacity;
    policy.space_high.map_or(0, |high| {
        i128::from(capacity.0) - (capacity.as_f64() * high) as i128
    })
}

/// Space of a device that `headroom_space` reserves, bytes. Strategies may use the reserve: see `rates.reserve` of the
/// strategy `terrace`.
pub(crate) fn reserve(facts: &Facts, policy: &Policy, device: DeviceId) -> i128 {
    let capacity = facts.topology.device(device).spec.capacity;
    (capacity.as_f64() * (1.0 - policy.headroom.space).max(0.0)) as i128
}

impl<'a> Ledger<'a> {
    /// Returns a ledger without assignments.
    pub fn new(context: &Context<'a>) -> Self {
        let Context { facts, policy, .. } = *context;
        let tiers = facts.topology.tiers.len();
        Self {
            facts,
            policy,
            iops_left: vec![policy.headroom.performance; tiers],
            bandwidth_left: vec![policy.headroom.bandwidth; tiers],
            // Physical space limits every strategy; the reserve does not.
            space_left: facts
                .topology
                .tier_ids()
                .map(|t| facts.topology.capacity(t).as_f64())
                .collect(),
            assigned: vec![None; facts.volumes.len()],
        }
    }

    /// Returns the operator's rules for volumes that belong together or apart.
    pub fn affinity(&self) -> &'a [Affinity] {
        &self.policy.affinity
    }

    /// Returns the remaining shares of the tier's IOPS, bandwidth and space; never below zero.
    pub fn left(&self, tier: TierId) -> Shares {
        let t = tier.index();
        let space = self.facts.topology.capacity(tier).as_f64();
        [
            self.iops_left[t],
            self.bandwidth_left[t],
            self.space_left[t] / space,
        ]
        .map(|share| share.max(0.0))
    }

    /// Returns the tier to which a volume was assigned in this decision.
    pub fn assigned(&self, volume: VolumeId) -> Option<TierId> {
        self.assigned[volume.index()]
    }

    /// Checks that the volume may and can be placed on the tier.
    ///
    /// # Errors
    /// Returns the filter that rejects it, with its numbers.
    pub fn admits(
        &self,
        volume: VolumeId,
        tier: TierId,
        demand: &Demand,
        staying: StayCheck,
    ) -> Result<(), Rejection> {
        self.permits(volume, tier)?;
        let t = tier.index();
        let lacking = |resource: &str, need: f64, left: f64| {
            Err(Rejection::Headroom {
                resource: resource.into(),
                need,
                left: left.max(0.0),
            })
        };
        let exempt = staying == StayCheck::Exempt && self.tier_now(volume) == tier;
        let slack = 1.0 + 1e-9; // sums of shares in floating point
        if !exempt && demand.iops > demand.iops_max * self.iops_left[t] * slack {
            return lacking("iops", demand.iops, demand.iops_max * self.iops_left[t]);
        }
        if !exempt && demand.bytes_per_s > demand.bytes_per_s_max * self.bandwidth_left[t] * slack {
            return lacking(
                "bandwidth",
                demand.bytes_per_s,
                demand.bytes_per_s_max * self.bandwidth_left[t],
            );
        }
        // Volumes that are bound to this one must fit on the tier too.
        let space = demand.space + self.unassigned_partners(volume);
        if space.as_f64() > self.space_left[t] {
            return lacking("space", space.as_f64(), self.space_left[t]);
        }
        Ok(())
    }

    /// Checks the rules alone, without regard to load: moves under way, pins, cordons, affinity, and one device whose empty
    /// space could hold the volume.
    pub fn permits(&self, volume: VolumeId, tier: TierId) -> Result<(), Rejection> {
        let facts = self.facts;
        let v = &facts.volumes[volume.index()];
        let name_of = |t: TierId| facts.topology.tier(t).name.clone();
        if let Some(running) = facts.moves.iter().find(|m| m.volume == volume) {
            // If only extents of the volume move, the rest of the volume stays.
            let ends_on = match running.extents {
                None => running.to,
                Some(_) => v.device,
            };
            return if tier == facts.topology.tier_of(ends_on) {
                Ok(())
            } else {
                Err(Rejection::MoveUnderWay)
            };
        }
        if let Some(pinned) = self.policy.pin_of(volume).filter(|p| *p != tier) {
            return Err(Rejection::Pinned {
                tier: name_of(pinned),
            });
        }
        let here = facts.topology.tier_of(v.device);
        if tier == here {
            return Ok(());
        }
        self.takes_data(tier)?;
        for rule in self
            .policy
            .affinity
            .iter()
            .filter(|r| r.kind == AffinityKind::SameTier)
        {
            if rule.volumes.contains(&volume) {
                let elsewhere = rule
                    .volumes
                    .iter()
                    .find(|o| self.assigned(**o).is_some_and(|assigned| assigned != tier));
                if let Some(other) = elsewhere {
                    let with = facts.volumes[other.index()].name.clone();
                    return Err(Rejection::Affinity {
                        with,
                        rule: "same-tier".into(),
                    });
                }
            }
        }
        self.has_not_failed(volume, tier)?;
        self.fits_when_empty(tier, v.taken())
    }

    /// Rejects a tier if moves of the volume to all of its devices have failed.
    fn has_not_failed(&self, volume: VolumeId, tier: TierId) -> Result<(), Rejection> {
        let devices = self.devices(tier).iter().copied();
        move_failed(self.facts, volume, devices).map_or(Ok(()), Err)
    }

    /// Checks the rules alone for extents of a volume that no rule keeps whole.
    pub fn permits_part(
        &self,
        volume: VolumeId,
        tier: TierId,
        size: Bytes,
    ) -> Result<(), Rejection> {
        if self.facts.moves.iter().any(|m| m.volume == volume) {
            return Err(Rejection::MoveUnderWay);
        }
        self.takes_data(tier)?;
        self.has_not_failed(volume, tier)?;
        self.fits_when_empty(tier, size)
    }

    /// Returns the devices of a tier with room for a new volume. Assignments of this decision do not count.
    ///
    /// # Errors
    /// Returns the filter that rejects the tier, with its numbers.
    pub fn admits_new(&self, tier: TierId, size: Bytes) -> Result<Vec<DeviceId>, Rejection> {
        self.takes_data(tier)?;
        self.fits_when_empty(tier, size)?;
        let devices = self.devices(tier).iter().copied();
        let room_on = |d: DeviceId| room(self.facts, self.policy, d);
        let need = i128::from(size.0);
        let roomy: Vec<DeviceId> = devices.clone().filter(|d| room_on(*d) >= need).collect();
        if roomy.is_empty() {
            let most = devices.map(room_on).max().unwrap_or(0);
            let most_free = Bytes(u64::try_from(most).unwrap_or(0));
            let need = size;
            return Err(Rejection::NoDevice { need, most_free });
        }
        Ok(roomy)
    }

    /// Returns the devices of a tier.
    pub fn devices(&self, tier: TierId) -> &'a [DeviceId] {
        &self.facts.topology.tier(tier).devices
    }

    /// Returns the bytes of a device that are neither used nor reserved; negative if the reservations exceed its capacity.
    pub fn free(&self, device: DeviceId) -> i128 {
        free(self.facts, device)
    }

    fn takes_data(&self, tier: TierId) -> Result<(), Rejection> {
        match self.policy.takes_no_data(tier) {
            true => Err(Rejection::Cordoned),
            false => Ok(()),
        }
    }

    fn fits_when_empty(&self, tier: TierId, need: Bytes) -> Result<(), Rejection> {
        let capacities = self.facts.topology.specs(tier).map(|s| s.capacity);
        let largest = capacities.max().unwrap_or(Bytes::ZERO);
        match need > largest {
            true => Err(Rejection::TooBig { need, largest }),
            false => Ok(()),
        }
    }

    /// Returns the size of the volumes that must share a tier with this one and are not assigned yet.
    fn unassigned_partners(&self, volume: VolumeId) -> Bytes {
        let mut partners: Vec<VolumeId> = self
            .policy
            .affinity
            .iter()
            .filter(|r| r.kind == AffinityKind::SameTier && r.volumes.contains(&volume))
            .flat_map(|r| r.volumes.iter().copied())
            .filter(|o| *o != volume && self.assigned[o.index()].is_none())
            .collect();
        partners.sort();
        partners.dedup();
        partners
            .iter()
            .map(|p| self.facts.volumes[p.index()].taken())
            .sum()
    }

    /// Takes the volume's demand from the tier.
    pub fn assign(&mut self, volume: VolumeId, tier: TierId, demand: &Demand) {
        let t = tier.index();
        self.assigned[volume.index()] = Some(tier);
        self.iops_left[t] -= demand.iops / demand.iops_max;
        self.bandwidth_left[t] -= demand.bytes_per_s / demand.bytes_per_s_max;
        self.space_left[t] -= demand.space.as_f64();
    }

    /// Returns the resources that [`Ledger::assign`] took.
    pub fn release(&mut self, volume: VolumeId, tier: TierId, demand: &Demand) {
        let t = tier.index();
        self.assigned[volume.index()] = None;
        self.iops_left[t] += demand.iops / demand.iops_max;
        self.bandwidth_left[t] += demand.bytes_per_s / demand.bytes_per_s_max;
        self.space_left[t] += demand.space.as_f64();
    }

    /// Returns the tier that holds a volume now (its target, while it is being moved).
    pub fn tier_now(&self, volume: VolumeId) -> TierId {
        tier_now(self.facts, volume)
    }
}

/// Returns the device that holds most of a volume now (its target, while the whole volume is being moved).
pub(crate) fn device_now(facts: &Facts, volume: VolumeId) -> DeviceId {
    let whole = |m: &&model::RunningMove| m.volume == volume && m.extents.is_none();
    let moving = facts.moves.iter().find(whole);
    moving.map_or(facts.volumes[volume.index()].device, |m| m.to)
}

/// Returns the tier of [`device_now`].
pub(crate) fn tier_now(facts: &Facts, volume: VolumeId) -> TierId {
    facts.topology.tier_of(device_now(facts, volume))
}
