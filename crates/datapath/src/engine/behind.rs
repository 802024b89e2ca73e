//! Brings what a volume still has at the source of its import to the array, behind its guest: a group of extents after the other.
//!
//! ```text
//!   asked for slots ──▶ pieces read, and written ──▶ targets flushed ──▶ stored ──▶ places of their own
//!        │                     │ a guest's write waits: what was not begun leaves the group
//!        └── no space, a device or the source fails: they stay at the source, and are tried again later
//! ```
//!
//! Extents of a group are copied up (see `copy_up`): nobody writes to them meanwhile, and what is read comes from the source. One that holds
//! only zeroes becomes a hole. While one group is made durable the next one is copied.

use slab::Slab;
use units::{BytesPerSec, DeviceId};
use volume::{DeviceIo, Location, Others, Pace};

use super::copy_up::{ASK_AGAIN_NS, COPY_UPS_MAX};
use super::places::Quarantined;
use super::retry::Retry;
use super::{DataRef, Effect, Engine, Fault, IoKind, Owner, RESTS_NS, StoreRequest, Zeroes};

/// Groups at a time: one that is made durable, and one that is copied.
const GROUPS_MAX: usize = 2;

/// Pieces that are copied at a time; there is memory for as many.
const PIECES_MAX: usize = 8;

/// How long to wait before what failed is tried again.
const AGAIN_NS: u64 = 1_000_000_000;

/// Bandwidth while a guest works, if nobody has said one. It yields to guests, down to a share of this.
const BESIDE_GUESTS: BytesPerSec = BytesPerSec(1 << 30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The store was asked for slots.
    Asked,
    /// Pieces are copied.
    Copying,
    /// So many targets have to be flushed yet.
    Flushing { left: usize },
    /// The store was asked to make the new places durable.
    Storing,
    /// It could not say whether they are, and is asked again at this time.
    Unknown { again_ns: u64 },
}

/// Extents that are copied together.
#[derive(Debug)]
struct Group {
    extents: Vec<u32>,
    /// Their new places, in order; none of what holds only zeroes.
    to: Vec<Option<Location>>,
    /// The targets, and the losses that each had before.
    losses: Vec<(DeviceId, u64)>,
    phase: Phase,
    /// The next piece: which of the extents, and from which byte on.
    next: (usize, u64),
    in_flight: usize,
    /// A guest waits for one of them.
    wanted: bool,
    failed: Option<Fault>,
}

/// A piece that is being copied.
#[derive(Debug, Clone, Copy)]
struct Piece {
    group: u32,
    /// Which of its extents.
    index: usize,
    offset: u64,
    length: u64,
}

/// What is done about a source.
#[derive(Debug)]
pub(super) struct Behind {
    bandwidth: Option<BytesPerSec>,
    pace: Pace,
    /// When it was last asked to be woken for its pace.
    wake_ns: u64,
    cursor: usize,
    groups: Slab<Group>,
    pieces: Slab<Piece>,
    /// Not before this, as something failed.
    again_ns: u64,
    problem: Option<Fault>,
    /// The store was asked to forget the source.
    ending: bool,
    /// No new group begins: the volume goes.
    stopped: bool,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportStatus {
    /// Extents that are still at the source.
    pub left: usize,
    /// Why it does not go on, if so; it is tried again and again.
    pub problem: Option<Fault>,
}

impl Behind {
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

    /// Whether something is being copied to a device.
    pub(super) fn copies_to(&self, device: DeviceId) -> bool {
        let to = |g: &Group| g.losses.iter().any(|(d, _)| *d == device);
        self.groups.iter().any(|(_, g)| to(g))
    }

    /// Bytes that are made durable together: of a slow import not more than it copies in a second, so that it is seen to go on and loses
    /// little when something fails.
    fn group_bytes(&self, most: u64) -> u64 {
        self.bandwidth.map_or(most, |b| most.min(b.0))
    }

    /// The group whose slots were asked for, or whose pieces are copied.
    fn copying(&self) -> Option<u32> {
        let copies = |g: &Group| matches!(g.phase, Phase::Asked | Phase::Copying);
        let found = self.groups.iter().find(|(_, g)| copies(g));
        found.map(|(number, _)| number as u32)
    }
}

impl<G> Engine<G> {
    /// How fast what is at the source is copied at most; as fast as it can be, if that is not said. Guests are yielded to either way.
    pub fn set_import_bandwidth(&mut self, bandwidth: Option<BytesPerSec>) {
        if let Some(behind) = &mut self.behind {
            behind.bandwidth = bandwidth;
            behind.pace = Pace::new(bandwidth.unwrap_or(BESIDE_GUESTS));
        }
    }

    /// How far the import is, if the volume has a source.
    pub fn import_status(&self) -> Option<ImportStatus> {
        let behind = self.behind.as_ref()?;
        Some(ImportStatus {
            left: self.map.left_at_source(),
            problem: behind.problem,
        })
    }

    /// Whether bytes are those of a piece that is copied behind the guest.
    pub fn is_behind(&self, data: DataRef) -> bool {
        matches!(data, DataRef::CopyUp(number) if number >= COPY_UPS_MAX as u32)
    }

    /// Where the import copies to now.
    pub fn import_target(&self) -> Option<DeviceId> {
        let behind = self.behind.as_ref()?;
        let group = &behind.groups[behind.copying()? as usize];
        group.losses.first().map(|(device, _)| *device)
    }

    /// No more is copied: what is under way ends. For a volume that is let go of.
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

    /// Whether nothing of the import is in flight.
    pub(super) fn behind_is_quiet(&self) -> bool {
        self.behind.as_ref().is_none_or(Behind::is_quiet)
    }

    /// Goes on with what is next.
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
        // Once round: what was left behind is looked for again.
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
            return; // all that is left is being copied up, for guests
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

    /// The store's answer: as many slots as were asked for, or why there are none.
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

    /// A guest waits for an extent: the group that it is in should be over soon.
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

    /// What was not begun leaves the group, but for so much that it makes progress.
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

    /// Begins as many pieces as may be under way.
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

    /// Whether somebody would suffer from a copy that is as fast as it can be.
    fn is_paced(&self) -> bool {
        let asked = self.requests.iter().any(|(_, s)| !s.aside);
        let works = asked || self.now_ns < self.answered_ns + RESTS_NS;
        let others = self.others != Others::UNKNOWN;
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

    /// All pieces are copied, or none is under way any more after one has failed.
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

    /// A target is flushed. What was copied may be lost if it lost something since, whoever's flush told of it.
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

    /// The store has the new places, or cannot say.
    pub(super) fn arrived(&mut self, number: u32, done: Result<(), Fault>) {
        if done.is_err() {
            let again_ns = self.now_ns + ASK_AGAIN_NS;
            self.group(number).phase = Phase::Unknown { again_ns };
            return self.effects.push(Effect::Wake(again_ns));
        }
        let behind = self.behind.as_mut().expect("it has groups");
        let group = behind.groups.remove(number as usize);
        if behind.again_ns <= self.now_ns {
            behind.problem = None; // else another one has failed since
        }
        let arrived = group.extents.into_iter().zip(group.to);
        let before = arrived.map(|(extent, to)| self.map.copied_up(extent as usize, to));
        let before = before.collect();
        self.leave(before);
    }

    /// The extents of a group stay at the source for now.
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

    /// Extents stay at the source for now, and slots that were taken for them are free: nobody has read from those.
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

    /// Nothing is at the source any more. It is let go of when nobody reads from it.
    fn end_import(&mut self) {
        let source = self.map.source();
        let known = |q: &Quarantined| q.slots.iter().any(|at| Some(at.device) == source);
        if self.quarantine.iter().any(known) || !self.copy_ups.is_empty() {
            return;
        }
        // After a trim that may not be durable the map may still know of it.
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

    /// The store could not say whether extents have no place any more: if they were at the source, it is asked again before that is let go of.
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

    /// What is being given a place is not vacated: that would be behind it.
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
        self.quarantine.push(Quarantined {
            extents: extents.clone(),
            slots: extents.iter().map(at).collect(),
            epoch: self.grace.end_epoch(),
            durable: false,
            waiter: None,
        });
        self.effects
            .push(Effect::Store(StoreRequest::Vacate { extents }));
    }

    /// The store has forgotten the source, or could not.
    pub(super) fn imported(&mut self, done: Result<(), Fault>) {
        let behind = self.behind.as_mut().expect("it was asked for");
        behind.ending = false;
        if done.is_err() {
            // It looks once more whether the source is what it was.
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
    fn a_trim_that_could_not_be_stored_is_stored_again_before_the_source_goes() {
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
