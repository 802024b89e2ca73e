//! Choice of devices with room.

use model::{AffinityKind, Goal, Rejection, RunningMove};
use units::{Bytes, DeviceId, TierId, VolumeId};

use super::Arranger;
use crate::Wish;
use crate::ledger::{above_limit, move_failed};

impl Arranger<'_> {
    /// Returns the device of the tier with room, least load and most free space; never the wish's own device.
    pub(super) fn choose_device(&self, wish: &Wish, tier: TierId) -> Result<DeviceId, Rejection> {
        let volume = &self.facts.volumes[wish.volume.index()];
        let need = |d: &DeviceId| self.brought_by(wish, *d);
        let own = wish.extents.as_ref().map_or(volume.device, |_| wish.here);
        let failed = |d: &DeviceId| self.facts.failed_move(wish.volume, *d).is_some();
        let all = self.facts.topology.tier(tier).devices.iter().copied();
        let all = all.filter(|d| *d != own);
        if all.clone().next().is_some() && !all.clone().any(|d| self.facts.reaches(wish.volume, d))
        {
            return Err(Rejection::Unreachable {
                tier: self.facts.topology.tier(tier).name.clone(),
            });
        }
        let all = all.filter(|d| self.facts.reaches(wish.volume, *d));
        if let Some(by) = move_failed(self.facts, wish.volume, all.clone()) {
            return Err(by);
        }
        let devices: Vec<DeviceId> = all.filter(|d| !failed(d)).collect();
        let room = |d: &DeviceId| self.space[d.index()].later - self.kept_free(*d, wish.goal);
        let mut apart = None;
        let best = devices
            .iter()
            .filter(|d| room(d) >= i128::from(need(d).0))
            .filter(|d| match self.meets_on(wish.volume, **d) {
                None => true,
                Some(other) => {
                    apart = Some(other);
                    false
                }
            })
            .min_by_key(|d| {
                let s = &self.space[d.index()];
                let must_wait = s.now < i128::from(need(d).0);
                let another = wish.device.is_some_and(|wanted| wanted != **d);
                (
                    another,
                    (s.utilization * 1e3).round() as i64,
                    must_wait,
                    std::cmp::Reverse(s.later),
                    **d,
                )
            });
        if let Some(device) = best {
            return Ok(*device);
        }
        if let Some(other) = apart {
            let with = self.facts.volumes[other.index()].name.clone();
            return Err(Rejection::Affinity {
                with,
                rule: "different-devices".into(),
            });
        }
        let most = devices.iter().map(|d| room(d).max(0)).max().unwrap_or(0);
        let most_free = Bytes(u64::try_from(most).unwrap_or(u64::MAX));
        let empty = devices.iter().any(|d| {
            let facts = &self.facts.devices[d.index()];
            let capacity = self.facts.topology.device(*d).spec.capacity;
            let free = capacity
                .saturating_sub(facts.used)
                .saturating_sub(facts.reserved);
            i128::from(free.0) - self.kept_free(*d, wish.goal) >= i128::from(need(d).0)
        });
        let need = self.bytes_of(wish);
        // It would fit into the space that is free now, but other moves of this plan take that.
        Err(if empty {
            Rejection::TransientSpace { need, most_free }
        } else {
            Rejection::NoDevice { need, most_free }
        })
    }

    /// Space of a device that moves for this goal must leave free, so data that was moved away for space does not return for
    /// latency.
    pub(super) fn kept_free(&self, device: DeviceId, goal: Goal) -> i128 {
        match goal >= Goal::Space {
            true => above_limit(self.facts, self.policy, device),
            false => 0,
        }
    }

    /// Returns the share of a device's space that is used after the plan so far and the moves under way.
    pub(crate) fn used_share(&self, device: DeviceId) -> f64 {
        let facts = self.facts;
        let capacity = facts.topology.device(device).spec.capacity;
        // A move under way may have moved some bytes already. They are counted twice until the next decision.
        let leaving = facts.moves.iter().filter(|m| m.from == device);
        let leaving: i128 = leaving.map(|m| i128::from(self.bytes_under_way(m).0)).sum();
        let used = i128::from(capacity.0) - self.space[device.index()].later - leaving;
        used.max(0) as f64 / capacity.as_f64()
    }

    /// Returns the bytes that a move under way takes from its source, at most.
    fn bytes_under_way(&self, m: &RunningMove) -> Bytes {
        let volume = &self.facts.volumes[m.volume.index()];
        match (&m.extents, &volume.extents) {
            (Some(ranges), Some(facts)) => ranges
                .bytes(volume.size, facts.extent)
                .unwrap_or_else(|| volume.taken()),
            _ => volume.taken(),
        }
    }

    /// Returns true if a move of the volume was accepted.
    pub(crate) fn moves(&self, volume: VolumeId) -> bool {
        self.moves.iter().any(|m| m.volume == volume)
    }

    /// Returns a volume that must not share a device with `volume` and is or will be on `device`. A volume that is being
    /// moved is on both of its devices until the move has succeeded.
    fn meets_on(&self, volume: VolumeId, device: DeviceId) -> Option<VolumeId> {
        let rules = self
            .policy
            .affinity
            .iter()
            .filter(|r| r.kind == AffinityKind::DifferentDevices);
        rules
            .filter(|r| r.volumes.contains(&volume))
            .flat_map(|r| r.volumes.iter().copied())
            .find(|other| {
                let moving = self.facts.moves.iter().find(|m| m.volume == *other);
                let leaves = moving.is_some_and(|m| m.from == device);
                *other != volume && (leaves || self.final_device(*other) == device)
            })
    }

    pub(super) fn final_device(&self, volume: VolumeId) -> DeviceId {
        let planned = self.moves.iter().find(|m| m.volume == volume).map(|m| m.to);
        let running = self
            .facts
            .moves
            .iter()
            .find(|m| m.volume == volume && m.extents.is_none())
            .map(|m| m.to);
        planned
            .or(running)
            .unwrap_or_else(|| self.facts.volumes[volume.index()].device)
    }
}
