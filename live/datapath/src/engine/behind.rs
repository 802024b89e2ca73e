//! Import in the background: copies the extents of a volume that are still at the source to the array, in groups.
//!
//! ```text
//!   slots requested ──▶ pieces read, and written ──▶ targets flushed ──▶ stored ──▶ own places
//!        │                     │ a guest's write waits: extents that are not started leave the group
//!        └── no space, or a failure of device or source: extents stay at the source; another attempt follows
//! ```
//!
//! Extents of a group are copied up (see `copy_up`): nobody writes to them meanwhile, and reads go to the source. An extent
//! of only zeroes becomes a hole. While one group is made durable, the next one is copied.

use slab::Slab;
use units::{BytesPerSec, DeviceId};
use volume::{DeviceIo, Location, NeighborSlack, Pace};

use super::copy_up::{ASK_AGAIN_NS, COPY_UPS_MAX};
use super::places::QuarantinedSlots;
use super::retry::Retry;
use super::{DataRef, Effect, Engine, Fault, IoKind, Owner, RESTS_NS, StoreRequest, Zeroes};

/// Number of groups: one that is made durable, and one that is copied.
const GROUPS_MAX: usize = 2;

/// Number of pieces that are copied at a time; each has a buffer.
const PIECES_MAX: usize = 8;

/// Time until the next attempt after a failure.
const AGAIN_NS: u64 = 1_000_000_000;

/// Default bandwidth while a guest is active. The copy yields to guests, down to a share of this.
const BESIDE_GUESTS: BytesPerSec = BytesPerSec(1 << 30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Slots are requested from the keeper.
    Asked,
    /// Pieces are copied.
    Copying,
    /// Number of targets that are not flushed yet.
    Flushing { left: usize },
    /// The keeper makes the new places durable.
    Storing,
    /// It is unknown if the places are durable; time of the next request to the keeper.
    Unknown { again_ns: u64 },
}

/// Extents that are copied together.
#[derive(Debug)]
struct Group {
    extents: Vec<u32>,
    /// New places, in order; none for an extent of only zeroes.
    to: Vec<Option<Location>>,
    /// Targets, and the number of losses of each before the copy.
    losses: Vec<(DeviceId, u64)>,
    phase: Phase,
    /// Next piece: index of the extent, and first byte.
    next: (usize, u64),
    in_flight: usize,
    /// True if a guest waits for an extent of the group.
    wanted: bool,
    failed: Option<Fault>,
}

/// Piece that is being copied.
#[derive(Debug, Clone, Copy)]
struct Piece {
    group: u32,
    /// Index of its extent in the group.
    index: usize,
    offset: u64,
    length: u64,
}

/// State of an import.
#[derive(Debug)]
pub(super) struct ImportState {
    bandwidth: Option<BytesPerSec>,
    pace: Pace,
    /// Time of the last wake-up that was requested for the pace.
    wake_ns: u64,
    cursor: usize,
    groups: Slab<Group>,
    pieces: Slab<Piece>,
    /// Earliest time of the next attempt after a failure.
    again_ns: u64,
    problem: Option<Fault>,
    /// True while the keeper removes the source.
    ending: bool,
    /// True if no new group starts, because the service of the volume ends.
    stopped: bool,
}

/// Progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportStatus {
    /// Number of extents that are still at the source.
    pub left: usize,
    /// Failure that stops the progress; attempts continue.
    pub problem: Option<Fault>,
}

impl ImportState {
    pub(super) fn new(bandwidth: Option<BytesPerSec>) -> Self {
        Self {
            bandwidth,
            pace: Pace::new(bandwidth.unwrap_or(BESIDE_GUESTS)),
            wake_ns: 0,
            cursor: 0,
            groups: Slab::new(),
            pieces: Slab::new(),
            again_ns: 0,
            problem: None,
            ending: false,
            stopped: false,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.groups.is_empty() && !self.ending
    }

    /// Returns true if a group is copied to a device.
    pub(super) fn copies_to(&self, device: DeviceId) -> bool {
        let to = |g: &Group| g.losses.iter().any(|(d, _)| *d == device);
        self.groups.iter().any(|(_, g)| to(g))
    }

    /// Returns the bytes that are made durable together. A slow import makes at most one second of copying durable at a
    /// time: its progress is visible, and a failure repeats little.
    fn group_bytes(&self, most: u64) -> u64 {
        self.bandwidth.map_or(most, |b| most.min(b.0))
    }

    /// Returns the group that waits for slots or is copied.
    fn copying(&self) -> Option<u32> {
        let copies = |g: &Group| matches!(g.phase, Phase::Asked | Phase::Copying);
        let found = self.groups.iter().find(|(_, g)| copies(g));
        found.map(|(number, _)| number as u32)
    }
}

impl<G> Engine<G> {
    /// Sets the largest bandwidth of the import; none for no limit. The import yields to guests in both cases.
    pub fn set_import_bandwidth(&mut self, bandwidth: Option<BytesPerSec>) {
        if let Some(behind) = &mut self.behind {
            behind.bandwidth = bandwidth;
            behind.pace = Pace::new(bandwidth.unwrap_or(BESIDE_GUESTS));
        }
    }

    /// Returns the progress of the import, if the volume has a source.
    pub fn import_status(&self) -> Option<ImportStatus> {
        let behind = self.behind.as_ref()?;
        Some(ImportStatus {
            left: self.map.left_at_source(),
            problem: behind.problem,
        })
    }

    /// Returns true if a buffer belongs to a piece of an import.
    pub fn is_behind(&self, data: DataRef) -> bool {
        matches!(data, DataRef::CopyUp(number) if number >= COPY_UPS_MAX as u32)
    }

    /// Returns the device that the import copies to now.
    pub fn import_target(&self) -> Option<DeviceId> {
        let behind = self.behind.as_ref()?;
        let group = &behind.groups[behind.copying()? as usize];
        group.losses.first().map(|(device, _)| *device)
    }

    /// Stops the import because the service of the volume ends. Pieces in flight are completed.
    pub fn stop_import(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if let Some(behind) = &mut self.behind {
            behind.stopped = true;
            behind.again_ns = u64::MAX;
            if let Some(number) = behind.copying() {
                let group = &mut behind.groups[number as usize];
                group.wanted = true;
                if group.phase == Phase::Copying {
                    self.cut_group(number);
                }
            }
        }
        self.settle();
    }

    /// Returns true if no operation of the import is in flight.
    pub(super) fn behind_is_quiet(&self) -> bool {
        self.behind.as_ref().is_none_or(ImportState::is_quiet)
    }

    /// Starts the next step of the import.
    pub(super) fn step_behind(&mut self) {
        let Some(behind) = &self.behind else {
            return;
        };
        for number in 0..GROUPS_MAX as u32 {
            let phase = behind.groups.get(number as usize).map(|g| g.phase);
            if matches!(phase, Some(Phase::Unknown { again_ns }) if again_ns <= self.now_ns) {
                return self.store_group(number);
            }
        }
        match behind.copying() {
            Some(number) => self.copy_group(number),
            None => self.begin_group(),
        }
    }

    fn begin_group(&mut self) {
        let behind = self.behind.as_ref().expect("it was looked at");
        if behind.ending || behind.again_ns > self.now_ns || behind.groups.len() >= GROUPS_MAX {
            return;
        }
        if self.map.left_at_source() == 0 {
            return self.end_import();
        }
        if self.rests() {
            return;
        }
        let most = behind.group_bytes(self.limits.batch.0) / self.map.extent_bytes().0;
        let most = most.max(1) as usize;
        let (from, all) = (behind.cursor, self.map.extents());
        let mut extents = vec![];
        let mut last = from;
        // One round over all extents finds those that were skipped before.
        for extent in (from..all).chain(0..from.min(all)) {
            if extents.len() == most {
                break;
            }
            last = extent + 1;
            if self.map.is_at_source(extent) && self.map.begin_copy_up(extent) {
                extents.push(extent as u32);
            }
        }
        let count = extents.len();
        let behind = self.behind.as_mut().expect("it was looked at");
        behind.cursor = last;
        if count == 0 {
            return; // all extents that are left are being copied up for guests
        }
        behind.groups.insert(Group {
            extents,
            to: vec![],
            losses: vec![],
            phase: Phase::Asked,
            next: (0, 0),
            in_flight: 0,
            wanted: false,
            failed: None,
        });
        let moves_to = self.moves_by().map(|o| o.to);
        let prefer = moves_to.or(self.map.main_device());
        let gather = StoreRequest::Gather { count, prefer };
        self.effects.push(Effect::Store(gather));
    }

    /// Handles the keeper's reply: the requested number of slots, or a fault.
    pub(super) fn gathered(&mut self, slots: Result<Vec<Location>, Fault>) {
        let behind = self.behind.as_ref().expect("it was asked for");
        let number = behind
            .copying()
            .expect("slots come when they are asked for");
        let slots = match slots {
            Ok(slots) => slots,
            Err(fault) => return self.group_failed(number, fault),
        };
        let mut devices: Vec<DeviceId> = slots.iter().map(|at| at.device).collect();
        devices.sort();
        devices.dedup();
        let mut losses = vec![];
        for device in devices {
            self.comes_to(device);
            losses.push((device, self.losses(device)));
        }
        let group = self.group(number);
        assert_eq!(slots.len(), group.extents.len(), "a slot for each extent");
        group.to = slots.into_iter().map(Some).collect();
        (group.losses, group.phase) = (losses, Phase::Copying);
        if group.wanted {
            self.cut_group(number);
        }
        self.copy_group(number);
    }

    fn group(&mut self, number: u32) -> &mut Group {
        let behind = self.behind.as_mut().expect("it has groups");
        &mut behind.groups[number as usize]
    }

    /// Shortens the group of an extent that a guest waits for.
    pub(super) fn is_wanted_now(&mut self, extent: u32) {
        let Some(behind) = &mut self.behind else {
            return;
        };
        let mut groups = behind.groups.iter_mut();
        let of = groups.find(|(_, g)| g.extents.contains(&extent));
        let Some((number, group)) = of else {
            return;
        };
        let before = std::mem::replace(&mut group.wanted, true);
        if !before && group.phase == Phase::Copying {
            self.cut_group(number as u32);
        }
    }

    /// Removes the extents that are not started from a group, except for those that it needs for progress.
    fn cut_group(&mut self, number: u32) {
        let group = self.group(number);
        let begun = group.next.0 + usize::from(group.next.1 > 0);
        let keep = begun.max(PIECES_MAX).min(group.extents.len());
        let extents = group.extents.split_off(keep);
        let to = group.to.split_off(keep);
        if extents.is_empty() {
            return;
        }
        let behind = self.behind.as_mut().expect("it has groups");
        behind.cursor = behind.cursor.min(extents[0] as usize);
        self.stay_at_source(extents, to);
    }

    /// Starts as many pieces as the limits allow.
    fn copy_group(&mut self, number: u32) {
        loop {
            let now_ns = self.now_ns;
            let paced = self.is_paced();
            let extent_bytes = self.map.extent_bytes().0;
            let most = self.limits.import_piece.0;
            let behind = self.behind.as_mut().expect("it has groups");
            let group = &mut behind.groups[number as usize];
            if group.phase != Phase::Copying {
                return;
            }
            let (index, offset) = group.next;
            if index == group.extents.len() || group.failed.is_some() {
                if group.in_flight == 0 {
                    self.group_copied(number);
                }
                return;
            }
            if behind.pieces.len() >= PIECES_MAX {
                return;
            }
            if paced && !group.wanted && behind.pace.next_ns() > now_ns {
                let at_ns = behind.pace.next_ns();
                if std::mem::replace(&mut behind.wake_ns, at_ns) != at_ns {
                    self.effects.push(Effect::Wake(at_ns));
                }
                return;
            }
            let extent = group.extents[index];
            let bytes = self.map.bytes_of(extent as usize).0;
            let length = most.min(bytes - offset);
            group.next = match offset + length == bytes {
                true => (index + 1, 0),
                false => (index, offset + length),
            };
            group.in_flight += 1;
            let piece = behind.pieces.insert(Piece {
                group: number,
                index,
                offset,
                length,
            }) as u32;
            if paced {
                let others = self.others;
                let behind = self.behind.as_mut().expect("as above");
                behind.pace.took(now_ns, length, &self.latency, others);
            }
            let from = self.map.location(extent as usize);
            let from = from.expect("what is at the source has a place");
            let at = u64::from(from.slot) * extent_bytes + offset;
            self.piece_io(
                piece,
                Owner::BehindRead(piece),
                from.device,
                at,
                IoKind::Read,
            );
        }
    }

    /// Returns true if a copy at full speed would harm guests, or if a bandwidth is set.
    fn is_paced(&self) -> bool {
        let asked = self.requests.iter().any(|(_, s)| !s.aside);
        let works = asked || self.now_ns < self.answered_ns + RESTS_NS;
        let others = self.others != NeighborSlack::UNKNOWN;
        let ordered = self.behind.as_ref().is_some_and(|b| b.bandwidth.is_some());
        ordered || others || (works && self.answered_ns > 0)
    }

    fn piece_io(&mut self, piece: u32, owner: Owner, device: DeviceId, at: u64, kind: IoKind) {
        let behind = self.behind.as_ref().expect("it has pieces");
        let length = behind.pieces[piece as usize].length;
        let part = DeviceIo {
            device,
            op: model::Op::Read,
            offset: 0,
            length,
            at,
            mirror: false,
        };
        let data = match kind {
            IoKind::Zero => DataRef::None,
            _ => DataRef::CopyUp(COPY_UPS_MAX as u32 + piece),
        };
        self.start_io(owner, part, kind, data);
    }

    pub(super) fn behind_read(&mut self, piece: u32, result: Result<(), Fault>, zeroes: Zeroes) {
        if let Err(fault) = result {
            return self.piece_over(piece, Some(fault));
        }
        let extent_bytes = self.map.extent_bytes().0;
        let behind = self.behind.as_mut().expect("it has pieces");
        let Piece {
            group,
            index,
            offset,
            length,
        } = behind.pieces[piece as usize];
        let group = &mut behind.groups[group as usize];
        let whole = self.map.bytes_of(group.extents[index] as usize).0 == length;
        let to = group.to[index].expect("it has one until it is known to be empty");
        let kind = match zeroes {
            Zeroes::No => IoKind::Write { durable: false },
            Zeroes::All if whole => {
                group.to[index] = None;
                let slots = vec![to];
                let free = StoreRequest::Free { slots };
                self.effects.push(Effect::Store(free));
                return self.piece_over(piece, None);
            }
            Zeroes::All => IoKind::Zero,
        };
        let at = u64::from(to.slot) * extent_bytes + offset;
        self.piece_io(piece, Owner::BehindWrite(piece), to.device, at, kind);
    }

    pub(super) fn behind_written(&mut self, piece: u32, result: Result<(), Fault>) {
        self.piece_over(piece, result.err());
    }

    fn piece_over(&mut self, piece: u32, fault: Option<Fault>) {
        let behind = self.behind.as_mut().expect("it has pieces");
        let Piece { group: number, .. } = behind.pieces.remove(piece as usize);
        let group = &mut behind.groups[number as usize];
        group.in_flight -= 1;
        group.failed = group.failed.or(fault);
        self.copy_group(number);
    }

    /// Continues with a group whose pieces are all copied, or fails it when none is in flight after a failure.
    fn group_copied(&mut self, number: u32) {
        let group = self.group(number);
        if let Some(fault) = group.failed {
            return self.group_failed(number, fault);
        }
        let used = |d: &DeviceId| group.to.iter().flatten().any(|at| at.device == *d);
        let devices: Vec<DeviceId> = group.losses.iter().map(|l| l.0).filter(used).collect();
        if devices.is_empty() {
            return self.store_group(number);
        }
        group.phase = Phase::Flushing {
            left: devices.len(),
        };
        for device in devices {
            self.start_flush(Owner::BehindFlush(number), device);
        }
    }

    /// Handles the flush of a target. Any loss that the device reported since the start of the copy, to any volume, may be
    /// of copied data.
    pub(super) fn behind_flushed(&mut self, number: u32, device: DeviceId) {
        let losses = self.losses(device);
        let group = self.group(number);
        let before = group.losses.iter().find(|l| l.0 == device);
        let lost = before.is_none_or(|l| losses > l.1);
        let Phase::Flushing { left } = &mut group.phase else {
            unreachable!("a flush is waited for");
        };
        *left -= 1;
        let over = *left == 0;
        if lost {
            let loss = self.loss(device);
            self.group(number).failed.get_or_insert(loss);
        }
        match self.group(number).failed {
            Some(fault) if over => self.group_failed(number, fault),
            None if over => self.store_group(number),
            _ => {}
        }
    }

    fn store_group(&mut self, number: u32) {
        let group = self.group(number);
        group.phase = Phase::Storing;
        let extents = group.extents.iter().copied();
        let places = extents.zip(group.to.iter().copied()).collect();
        let arrive = StoreRequest::Arrive {
            group: number,
            places,
        };
        self.effects.push(Effect::Store(arrive));
    }

    /// Handles the keeper's reply: the new places are durable, or that is unknown.
    pub(super) fn arrived(&mut self, number: u32, done: Result<(), Fault>) {
        if done.is_err() {
            let again_ns = self.now_ns + ASK_AGAIN_NS;
            self.group(number).phase = Phase::Unknown { again_ns };
            return self.effects.push(Effect::Wake(again_ns));
        }
        let behind = self.behind.as_mut().expect("it has groups");
        let group = behind.groups.remove(number as usize);
        if behind.again_ns <= self.now_ns {
            behind.problem = None; // unless another group has failed since
        }
        let arrived = group.extents.into_iter().zip(group.to);
        let before = arrived.map(|(extent, to)| self.map.copied_up(extent as usize, to));
        let before = before.collect();
        self.leave(before);
    }

    /// Leaves the extents of a failed group at the source for now.
    fn group_failed(&mut self, number: u32, fault: Fault) {
        let again_ns = self.now_ns + AGAIN_NS;
        let behind = self.behind.as_mut().expect("it has groups");
        let group = behind.groups.remove(number as usize);
        if !behind.stopped {
            behind.again_ns = again_ns;
            self.effects.push(Effect::Wake(again_ns));
        }
        behind.problem = Some(fault);
        self.stay_at_source(group.extents, group.to);
    }

    /// Leaves extents at the source for now, and frees the slots for them, which nobody has read.
    fn stay_at_source(&mut self, extents: Vec<u32>, to: Vec<Option<Location>>) {
        for extent in extents {
            self.map.not_copied_up(extent as usize, false);
        }
        let slots: Vec<Location> = to.into_iter().flatten().collect();
        if !slots.is_empty() {
            let free = StoreRequest::Free { slots };
            self.effects.push(Effect::Store(free));
        }
        self.retry = Retry::All;
    }

    /// Ends the import when all extents have their own places and no request reads from the source.
    fn end_import(&mut self) {
        let source = self.map.source();
        let known = |q: &QuarantinedSlots| q.slots.iter().any(|at| Some(at.device) == source);
        if self.quarantine.iter().any(known) || !self.copy_ups.is_empty() {
            return;
        }
        // After a trim that may not be durable, the map may still have a place at the source.
        let unsure = self.unsure.iter().filter(|(_, d)| Some(**d) == source);
        let unsure: Vec<u32> = unsure.map(|(extent, _)| *extent).collect();
        if !unsure.is_empty() {
            return self.vacate_again(unsure);
        }
        let behind = self.behind.as_mut().expect("it was looked at");
        if behind.groups.is_empty() {
            behind.ending = true;
            self.effects.push(Effect::Store(StoreRequest::Imported));
        }
    }

    /// Handles a trim whose durability is unknown. If extents were at the source, the trim is repeated before the source is
    /// removed.
    pub(super) fn vacate_failed(&mut self, slots: &[Location]) {
        let source = self.map.source();
        let Some(behind) = &mut self.behind else {
            return;
        };
        if slots.iter().any(|at| Some(at.device) == source) && !behind.stopped {
            behind.again_ns = behind.again_ns.max(self.now_ns + AGAIN_NS);
            self.effects.push(Effect::Wake(behind.again_ns));
        }
    }

    /// Repeats a trim, but not for extents that are being placed: it would come after the new place.
    fn vacate_again(&mut self, mut extents: Vec<u32>) {
        let source = self.map.source().expect("it is not let go of yet");
        let is_hole = |e: &u32| self.map.location(*e as usize).is_none();
        extents.retain(|e| is_hole(e) && !self.placing.contains(e));
        if extents.is_empty() {
            return;
        }
        let at = |e: &u32| Location {
            device: source,
            slot: *e,
        };
        self.quarantine.push(QuarantinedSlots {
            extents: extents.clone(),
            slots: extents.iter().map(at).collect(),
            epoch: self.grace.end_epoch(),
            durable: false,
            waiter: None,
        });
        self.effects
            .push(Effect::Store(StoreRequest::Vacate { extents }));
    }

    /// Handles the keeper's reply: the source is removed, or that has failed.
    pub(super) fn imported(&mut self, done: Result<(), Fault>) {
        let behind = self.behind.as_mut().expect("it was asked for");
        behind.ending = false;
        if done.is_err() {
            // The keeper compares the source with its earlier state again.
            behind.again_ns = behind.again_ns.max(self.now_ns + ASK_AGAIN_NS);
            let again_ns = behind.again_ns;
            if !behind.stopped {
                self.effects.push(Effect::Wake(again_ns));
            }
            return;
        }
        self.behind = None;
        self.map.forget_source();
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;
    use volume::VolumeMap;

    use super::*;
    use crate::engine::{EngineLimits, GuestOp, GuestRequest, StoreReply};

    const EXTENT: u64 = 1 << 20;

    fn asked(engine: &mut Engine<()>) -> Vec<StoreRequest> {
        let mut effects = vec![];
        engine.take_effects(&mut effects);
        let asked = effects.into_iter().filter_map(|effect| match effect {
            Effect::Store(request) => Some(request),
            _ => None,
        });
        asked.collect()
    }

    #[test]
    fn failed_trim_is_stored_again_before_the_source_is_released() {
        let device = DeviceId(7);
        let at = |slot| Some(Location { device, slot });
        let map = VolumeMap::from_source(
            Bytes(2 * EXTENT),
            Bytes(EXTENT),
            vec![at(0), at(1)],
            Some(device),
        );
        let mut engine = Engine::new(map, EngineLimits::default());
        let trim = GuestRequest {
            op: GuestOp::Trim,
            offset: 0,
            length: 2 * EXTENT,
            fua: false,
        };
        engine.submit(0, (), trim);
        let extents = vec![0, 1];
        let vacate = StoreRequest::Vacate {
            extents: extents.clone(),
        };
        assert_eq!(asked(&mut engine), std::slice::from_ref(&vacate));
        let answer = |done| StoreReply::Vacated {
            extents: extents.clone(),
            done,
        };
        for turn in 1..4 {
            let now_ns = turn * 2 * AGAIN_NS;
            engine.store_done(now_ns, answer(Err(Fault::Io)));
            assert_eq!(asked(&mut engine), []);
            engine.wake(now_ns + AGAIN_NS);
            assert_eq!(asked(&mut engine), std::slice::from_ref(&vacate));
        }
        engine.store_done(8 * AGAIN_NS, answer(Ok(())));
        assert_eq!(asked(&mut engine), [StoreRequest::Imported]);
    }
}
