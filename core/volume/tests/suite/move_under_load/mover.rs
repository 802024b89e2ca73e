//! The same world with moves by [`Mover`], of the whole volume or of some extents. Slots, flushes and the store complete at
//! random times, fail, or have an unknown result.

use model::ExtentRanges;
use proptest::prelude::*;
use units::BytesPerSec;
use volume::{
    FlushResult, GuestLatency, Guests, MoveLimits, MoveOrder, MoveStep, Mover, NeighborSlack,
    Purpose, ReserveResult, Slack,
};

use super::*;

/// Reason for an early end of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    NoSlots,
    Cancelled,
    Failed,
    Lost,
}

/// Operation that the mover waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MoverOperation {
    Slots(usize),
    Read,
    Write,
    Flush,
    Switch,
}

struct Driver {
    world: World,
    mover: Option<Mover<Why>>,
    asked: Vec<MoverOperation>,
    now_ns: u64,
    wake_ns: u64,
    others: NeighborSlack,
    /// Number of known losses of the target.
    losses: u64,
    /// Number of losses at the start of the last batch.
    losses_at_begin: u64,
    ended: Vec<Option<Why>>,
}

impl Driver {
    fn new(holes: u8) -> Self {
        Self {
            world: World::new(holes),
            mover: None,
            asked: vec![],
            now_ns: 0,
            wake_ns: 0,
            others: NeighborSlack::UNKNOWN,
            losses: 0,
            losses_at_begin: 0,
            ended: vec![],
        }
    }

    fn start(&mut self, to: usize, extents: Option<ExtentRanges>, purpose: Purpose) {
        if self.mover.is_some() || self.world.map.relocating() {
            return;
        }
        let order = MoveOrder {
            to: DeviceId::from_index(to),
            bandwidth: BytesPerSec(if (self.now_ns / 1_000_000).is_multiple_of(2) {
                1 << 30
            } else {
                1 << 14
            }),
            extents,
            purpose,
        };
        let limits = MoveLimits {
            batch: Bytes(2 * EXTENT as u64),
            chunk: Bytes(CHUNK),
        };
        self.mover = Some(Mover::new(self.now_ns, order, limits, &self.world.map));
        self.step();
    }

    fn step(&mut self) {
        while let Some(mover) = &mut self.mover {
            let own = &GuestLatency::NONE;
            let others = self.others;
            let world = &mut self.world;
            let Some(step) = mover.step(self.now_ns, &mut world.map, Guests { own, others }) else {
                return;
            };
            match step {
                MoveStep::Reserve { count, .. } => self.asked.push(MoverOperation::Slots(count)),
                MoveStep::Wake(at_ns) => self.wake_ns = at_ns,
                MoveStep::Read { chunk, from } => {
                    let (_, to) = world.map.copy_ends(chunk);
                    world.copies.push(ChunkCopy {
                        chunk,
                        bytes: None,
                        from,
                        to,
                    });
                    self.asked.push(MoverOperation::Read);
                }
                MoveStep::Flush { .. } => self.asked.push(MoverOperation::Flush),
                MoveStep::Switch => self.asked.push(MoverOperation::Switch),
                MoveStep::Free { slots } => {
                    world.moving = None;
                    slots.into_iter().for_each(|slot| world.give_back(slot));
                    world.retry_held();
                }
                MoveStep::Over => {
                    let (why, _) = self.mover.take().expect("it is over once").into_end();
                    self.ended.push(why);
                }
            }
        }
    }

    fn give_up(&mut self, why: Why) {
        if let Some(mover) = &mut self.mover
            && mover.give_up(&mut self.world.map, why)
        {
            self.given_up();
        }
        self.step();
    }

    /// Discards a cancelled batch.
    fn given_up(&mut self) {
        let moving = self.world.moving.as_mut().expect("a batch was given up");
        moving.phase = Phase::Cancelled;
        self.world.retry_held();
    }

    fn reserved(&mut self, count: usize, fails: bool) {
        let world = &mut self.world;
        let mover = self.mover.as_mut().expect("slots are for a move");
        let to = mover.order().to;
        let free = &mut world.free[to.index()];
        let slots = match fails || free.len() < count {
            true => Err(Why::NoSlots),
            false => Ok(free.split_off(free.len() - count)),
        };
        let located = |slots: Vec<u32>| slots.into_iter().map(|slot| Location { device: to, slot });
        let slots = slots.map(|s| located(s).collect());
        let ReserveResult { unused, begun } =
            mover.reserved(self.now_ns, &mut world.map, slots, self.losses);
        unused.into_iter().for_each(|slot| world.give_back(slot));
        if begun {
            self.losses_at_begin = self.losses;
            world.in_flight.iter_mut().for_each(|r| r.earlier = true);
            world.moving = Some(ActiveMove {
                targets: world.map.batch_targets(),
                phase: Phase::Copying,
                given_up: vec![],
            });
            if world.in_flight.is_empty() {
                mover.earlier_complete(&mut world.map);
            }
        }
        self.step();
    }

    /// Completes the I/O of a chunk.
    fn copied(&mut self, was: &MoverOperation, fails: bool) {
        let world = &mut self.world;
        let mover = self.mover.as_mut().expect("a move ends after its chunks");
        let copy = world.copies.last_mut().expect("a chunk is on its way");
        if fails {
            world.copies.clear();
            if mover.chunk_failed(&mut world.map, Why::Failed) {
                self.given_up();
            }
            return self.step();
        }
        let length = copy.chunk.length as usize;
        if *was == MoverOperation::Read {
            let from = copy.from.1 as usize;
            copy.bytes = Some(world.disks[copy.from.0.index()][from..from + length].to_vec());
            match mover.chunk_read(self.now_ns, &mut world.map) {
                Some(_) => self.asked.push(MoverOperation::Write),
                None => world.copies.clear(),
            }
        } else {
            let copy = world.copies.pop().expect("just looked at");
            let to = copy.to.1 as usize;
            let bytes = copy.bytes.expect("it was read");
            world.disks[copy.to.0.index()][to..to + length].copy_from_slice(&bytes);
            if let Some(chunk) = mover.chunk_written(self.now_ns, &mut world.map) {
                world.retry_touching(chunk.offset..chunk.offset + chunk.length);
            }
        }
        self.step();
    }

    /// Completes one of the requested operations.
    fn happen(&mut self, pick: usize) {
        if self.asked.is_empty() {
            if pick.is_multiple_of(2) {
                self.now_ns = self.now_ns.max(self.wake_ns);
            }
            self.now_ns += 1_000_000;
            return self.step();
        }
        let fails = pick.is_multiple_of(31);
        let asked = self.asked.swap_remove(pick % self.asked.len());
        match asked {
            MoverOperation::Slots(count) => self.reserved(count, fails),
            MoverOperation::Read | MoverOperation::Write => self.copied(&asked, fails),
            MoverOperation::Flush => {
                self.losses += u64::from(fails);
                let mover = self.mover.as_mut();
                match mover.map(|m| m.flushed(self.now_ns, self.losses)) {
                    Some(FlushResult::Durable) => {
                        assert_eq!(
                            self.losses, self.losses_at_begin,
                            "what is lost is not switched to"
                        );
                        self.asked.push(MoverOperation::Switch);
                    }
                    Some(FlushResult::Lost) => self.give_up(Why::Lost),
                    Some(FlushResult::GivenUp) | None => {}
                }
            }
            MoverOperation::Switch if fails => {
                let mover = self.mover.as_mut().expect("a switch has its move");
                self.wake_ns = mover.switch_unknown(self.now_ns);
            }
            MoverOperation::Switch => {
                let world = &mut self.world;
                world.check_ends_agree();
                let mover = self.mover.as_mut().expect("a switch has its move");
                mover.switched(self.now_ns, &mut world.map);
                let moving = world.moving.as_mut().expect("a switch has its batch");
                moving.phase = Phase::Switched;
                world.moves += 1;
                world.check_contents();
                world.retry_held();
                self.step();
            }
        }
    }

    /// Completes a part of a request and continues requests that wait for it.
    fn land(&mut self, pick: usize) {
        self.world.land_alone(pick);
        if self.world.in_flight.iter().all(|r| !r.earlier)
            && let Some(mover) = &mut self.mover
        {
            mover.earlier_complete(&mut self.world.map);
        }
        self.step();
        self.world.release_quarantine();
        self.world.check_held();
    }

    fn rest(&mut self) {
        for pick in 1..6000 {
            self.land(pick);
            self.happen(31 * pick + 1);
            // A mirror lasts until it is cancelled.
            if pick > 3000 && self.mover.as_ref().is_some_and(Mover::is_mirrored) {
                self.give_up(Why::Cancelled);
            }
        }
        assert!(self.mover.is_none() && self.asked.is_empty());
        self.world.rest();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn complete_moves_lose_no_acknowledged_write(
        holes in 0u8..32,
        steps in prop::collection::vec((0u8..64, 0usize..4000, 0u64..SIZE as u64, 1u64..150), 0..1500)
    ) {
        let mut driver = Driver::new(holes);
        for (what, pick, offset, length) in steps {
            let length = length.min(SIZE as u64 - offset);
            match what {
                0..7 => driver.world.submit(write(offset, length)),
                7 => driver.world.submit(Request { op: Op::Trim, offset, length }),
                8..11 => driver.world.submit(Request { op: Op::Read, offset, length }),
                11 => driver.world.submit(Request { op: Op::Flush, offset: 0, length: 0 }),
                12..32 => driver.land(pick),
                32 if pick.is_multiple_of(3) => driver.give_up(Why::Cancelled),
                33 => driver.world.vacate_alone(pick % EXTENTS),
                34..36 => {
                    let some = (0..EXTENTS as u32).filter(|e| pick >> (e + 1) & 1 == 1);
                    let extents = ExtentRanges::from_sorted(some);
                    let purpose = match pick / 7 % 2 {
                        0 => Purpose::Move,
                        _ => Purpose::Mirror,
                    };
                    driver.start(pick % DEVICES, (pick % 2 == 0).then_some(extents), purpose);
                }
                36 => {
                    let of = |pick: usize| match pick % 4 {
                        0 => Slack::Unbound,
                        1 => Slack::Unknown,
                        _ => Slack::Used((pick % 64) as f32 / 16.0),
                    };
                    driver.others = NeighborSlack { source: of(pick), target: of(pick / 64) };
                }
                37..40 => {
                    let share = (pick % 5) as f64 / 4.0;
                    let _ = driver.world.map.share_reads(share);
                }
                _ => driver.happen(pick),
            }
        }
        driver.rest();
    }
}

#[test]
fn volume_is_on_the_target_after_its_move() {
    let mut driver = Driver::new(0b1000);
    driver.start(2, None, Purpose::Move);
    for pick in 0..6000 {
        if pick % 3 == 0 {
            driver.world.submit(write((pick * 37 % 150) as u64, 40));
        }
        driver.land(pick);
        driver.happen(31 * pick + 1);
    }
    driver.rest();
    assert_eq!(driver.ended, [None]);
    assert_eq!(driver.world.map.holders(), [(DeviceId(2), 4)]);
    assert_eq!(
        driver.world.moves, 3,
        "two extents at most, holes among them"
    );
}

#[test]
fn mirrored_reads_use_both_devices_until_the_mirror_ends() {
    let mut driver = Driver::new(0);
    driver.start(2, Some("1-2".parse().unwrap()), Purpose::Mirror);
    let devices_of = |driver: &mut Driver, offset: u64| {
        let mut parts = vec![];
        let mut seen = [0; DEVICES];
        for _ in 0..100 {
            let read = Request {
                op: Op::Read,
                offset,
                length: 10,
            };
            let Submission::Issued(ticket) = driver.world.map.submit(read, &mut parts).unwrap()
            else {
                panic!("a read never waits");
            };
            ticket.map(|t| driver.world.map.complete(t));
            parts.iter().for_each(|p| seen[p.device.index()] += 1);
        }
        seen
    };
    for pick in 0..3000 {
        driver.land(pick);
        driver.happen(31 * pick + 1);
    }
    assert!(driver.mover.as_ref().unwrap().is_mirrored());
    assert_eq!(driver.world.map.mirrored_bytes(), Bytes(200));
    assert_eq!(
        devices_of(&mut driver, 110),
        [0, 100, 0],
        "nobody has asked for it yet"
    );
    driver.world.map.share_reads(0.25).unwrap();
    assert_eq!(devices_of(&mut driver, 110), [0, 75, 25]);
    assert_eq!(
        devices_of(&mut driver, 10),
        [100, 0, 0],
        "extent 0 is not among them"
    );
    // A write goes to both copies, and the places of extents do not change.
    let mut parts = vec![];
    let submitted = driver.world.map.submit(write(110, 10), &mut parts).unwrap();
    let Submission::Issued(Some(ticket)) = submitted else {
        panic!("{submitted:?}");
    };
    assert_eq!(
        parts.iter().map(|p| p.mirror).collect::<Vec<_>>(),
        [true, false]
    );
    driver.world.map.complete(ticket);
    assert_eq!(driver.world.map.location(1).unwrap().device, DeviceId(1));
    assert!(driver.world.map.is_mirrored(110, 10) && !driver.world.map.is_mirrored(10, 10));
    driver.give_up(Why::Cancelled);
    assert_eq!(devices_of(&mut driver, 110), [0, 100, 0]);
    assert_eq!(driver.ended, [Some(Why::Cancelled)]);
}
