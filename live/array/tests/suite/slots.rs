//! Comparison of the allocator with a naive oracle.

use std::collections::BTreeMap;

use array::{DeviceKind, DeviceRecord, Slots, SlotsError, UsedSlot};
use proptest::prelude::*;
use units::{DeviceId, VolumeId};
use volume::Location;

use crate::support::world::device;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Taken,
    Dirty,
    Cleaning,
    Clean,
    New,
}

/// One state per slot, searched from the front, and the owners of each slot.
struct Oracle(BTreeMap<DeviceId, Vec<State>>, BTreeMap<Location, u32>);

impl Oracle {
    fn take(&mut self, device: DeviceId, order: &[State]) -> Option<(u32, Option<u32>)> {
        let slots = self.0.get_mut(&device)?;
        let found = order
            .iter()
            .find_map(|state| slots.iter().position(|s| s == state))?;
        let before = std::mem::replace(&mut slots[found], State::Taken);
        let mark = (before == State::New).then_some(found as u32 + 1);
        let slot = found as u32;
        self.1.insert(Location { device, slot }, 1);
        Some((found as u32, mark))
    }

    fn of(&self, device: DeviceId, states: &[State]) -> Vec<u32> {
        let slots = self.0.get(&device).into_iter().flatten().enumerate();
        slots
            .filter(|(_, s)| states.contains(s))
            .map(|(n, _)| n as u32)
            .collect()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Clean(u16),
    Any(u16),
    GiveBack(u16, usize),
    Share(u16, usize),
    ToClean(u16, usize),
    Cleaned(u16, usize),
    NotCleaned(u16, usize),
    Add(u16),
}

fn record(id: u16, slots: u32, high_water: u32, kind: DeviceKind) -> DeviceRecord {
    DeviceRecord {
        slots,
        high_water,
        kind,
        ..device(id, 0)
    }
}

fn records() -> impl Strategy<Value = Vec<DeviceRecord>> {
    let kind = prop::sample::select(vec![DeviceKind::File, DeviceKind::Block, DeviceKind::Nbd]);
    let one = (1..150u32, 0.0..=1.0, kind);
    prop::collection::vec(one, 1..4).prop_map(|all| {
        let of = |(id, (slots, share, kind)): (usize, (u32, f64, DeviceKind))| {
            let mark = (f64::from(slots) * share) as u32;
            record(
                id as u16,
                slots,
                if kind == DeviceKind::File {
                    mark
                } else {
                    slots
                },
                kind,
            )
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..9u8, 0..5u16, 0..200usize).prop_map(|(what, d, n)| match what {
        0 | 1 => Step::Clean(d),
        2 | 3 => Step::Any(d),
        4 => Step::GiveBack(d, n),
        5 => Step::ToClean(d, n % 9),
        6 => Step::Cleaned(d, n),
        8 => Step::Share(d, n),
        _ if n % 8 == 0 => Step::Add(d),
        _ => Step::NotCleaned(d, n),
    });
    prop::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn slots_match_a_list_of_states_as_oracle(
        records in records(),
        used in prop::collection::btree_map((0..3u16, 0..150u32), 1..4u32, 0..100),
        steps in steps(),
    ) {
        let mut oracle = Oracle(BTreeMap::new(), BTreeMap::new());
        for r in &records {
            let state = |n| if n < r.high_water { State::Dirty } else { State::New };
            oracle.0.insert(r.id, (0..r.slots).map(state).collect());
        }
        let mut places = vec![];
        for (n, ((d, slot), owners)) in (0..).zip(used) {
            let device = DeviceId(d);
            if oracle.of(device, &[State::Dirty]).contains(&slot) {
                oracle.0.get_mut(&device).unwrap()[slot as usize] = State::Taken;
                let at = Location { device, slot };
                oracle.1.insert(at, owners);
                // Families and extents that are not all equal.
                places.extend((0..owners).map(|_| by(at, n % 7, n)));
            }
        }
        places.sort_by_key(|used| used.at.slot % 13);
        let mut slots = Slots::new(&records, places.into_iter()).unwrap();
        for step in steps {
            match step {
                Step::Clean(d) => {
                    let got = slots.take_clean(DeviceId(d)).map(|t| (t.slot, t.high_water));
                    prop_assert_eq!(got, oracle.take(DeviceId(d), &[State::Clean, State::New]));
                }
                Step::Any(d) => {
                    let got = slots.take_any(DeviceId(d)).map(|t| (t.slot, t.high_water));
                    let order = [State::Dirty, State::Clean, State::New];
                    prop_assert_eq!(got, oracle.take(DeviceId(d), &order));
                }
                Step::GiveBack(d, n) => {
                    let device = DeviceId(d);
                    let taken = oracle.of(device, &[State::Taken]);
                    if let Some(slot) = taken.get(n % taken.len().max(1)) {
                        let at = Location { device, slot: *slot };
                        slots.give_back(at);
                        let owners = oracle.1.get_mut(&at).unwrap();
                        *owners -= 1;
                        if *owners == 0 {
                            oracle.1.remove(&at);
                            oracle.0.get_mut(&device).unwrap()[*slot as usize] = State::Dirty;
                        }
                    }
                }
                Step::Share(d, n) => {
                    let device = DeviceId(d);
                    let taken = oracle.of(device, &[State::Taken]);
                    if let Some(slot) = taken.get(n % taken.len().max(1)) {
                        let at = Location { device, slot: *slot };
                        slots.share(at);
                        *oracle.1.get_mut(&at).unwrap() += 1;
                    }
                }
                Step::ToClean(d, most) => {
                    let got = slots.to_clean(DeviceId(d), most);
                    let mut want = oracle.of(DeviceId(d), &[State::Dirty]);
                    want.truncate(most);
                    for slot in &want {
                        oracle.0.get_mut(&DeviceId(d)).unwrap()[*slot as usize] = State::Cleaning;
                    }
                    prop_assert_eq!(got, want);
                }
                Step::Cleaned(d, n) | Step::NotCleaned(d, n) => {
                    let mut cleaning = oracle.of(DeviceId(d), &[State::Cleaning]);
                    if cleaning.is_empty() {
                        continue;
                    }
                    cleaning.truncate(1 + n % 9);
                    let state = match step {
                        Step::Cleaned(..) => {
                            slots.cleaned(DeviceId(d), &cleaning);
                            State::Clean
                        }
                        _ => {
                            slots.not_cleaned(DeviceId(d), &cleaning);
                            State::Dirty
                        }
                    };
                    for slot in cleaning {
                        oracle.0.get_mut(&DeviceId(d)).unwrap()[slot as usize] = state;
                    }
                }
                Step::Add(d) => {
                    oracle.0.entry(DeviceId(d)).or_insert_with(|| {
                        slots.add_device(&record(d, 70, 0, DeviceKind::File));
                        vec![State::New; 70]
                    });
                }
            }
            for d in (0..5).map(DeviceId) {
                let clean = oracle.of(d, &[State::Clean, State::New]).len();
                prop_assert_eq!(slots.clean_left(d), clean);
                let total = oracle.0.get(&d).map_or(0, Vec::len);
                let taken = oracle.of(d, &[State::Taken]).len();
                prop_assert_eq!(slots.free(d) as usize, total - taken);
                prop_assert_eq!(slots.total(d) as usize, total);
                for slot in 0..total as u32 + 1 {
                    let at = Location { device: d, slot };
                    let owners = oracle.1.get(&at).copied().unwrap_or(0);
                    prop_assert_eq!(slots.owners(at), owners);
                }
            }
        }
    }
}

fn at(device: u16, slot: u32) -> Location {
    Location {
        device: DeviceId(device),
        slot,
    }
}

fn by(at: Location, family: u32, extent: u32) -> UsedSlot {
    let family = VolumeId(family);
    UsedSlot { at, family, extent }
}

#[test]
fn invalid_slot_locations_are_errors() {
    let devices = [
        record(0, 10, 5, DeviceKind::File),
        record(1, 10, 10, DeviceKind::Block),
    ];
    let new = |used: &[Location]| {
        let used = (0..).zip(used).map(|(n, at)| by(*at, 1, n));
        Slots::new(&devices, used).unwrap_err()
    };
    assert_eq!(
        new(&[at(7, 1)]),
        SlotsError::NoDevice { device: 7, slot: 1 }
    );
    let outside = SlotsError::Outside {
        device: 1,
        slot: 10,
        slots: 10,
    };
    assert_eq!(new(&[at(1, 10)]), outside);
    let above = SlotsError::AboveHighWater {
        device: 0,
        slot: 5,
        high_water: 5,
    };
    assert_eq!(new(&[at(0, 5)]), above);
    assert_eq!(
        new(&[at(1, 3), at(1, 3)]),
        SlotsError::Twice { device: 1, slot: 3 }
    );
    // Only the same extent of volumes of one family may share a slot.
    let of = |used: &[UsedSlot]| Slots::new(&devices, used.iter().copied());
    let slots = of(&[by(at(1, 3), 5, 2), by(at(1, 4), 5, 3), by(at(1, 3), 5, 2)]).unwrap();
    assert_eq!((slots.owners(at(1, 3)), slots.owners(at(1, 4))), (2, 1));
    for other in [by(at(1, 3), 5, 3), by(at(1, 3), 6, 2)] {
        let error = of(&[by(at(1, 3), 5, 2), by(at(1, 3), 5, 2), other]).unwrap_err();
        assert_eq!(error, SlotsError::Twice { device: 1, slot: 3 });
    }
    let twice = [devices[0].clone(), devices[0].clone()];
    let error = Slots::new(&twice, std::iter::empty()).unwrap_err();
    assert_eq!(error.to_string(), "device 0 exists twice");
}

#[test]
fn slot_misuse_panics() {
    let devices = [record(0, 10, 10, DeviceKind::Block)];
    type Misuse = fn(&mut Slots);
    let cases: [(&str, Misuse); 9] = [
        ("is not taken", |s| s.give_back(at(0, 3))),
        ("is not taken", |s| s.give_back(at(0, 10))),
        ("there is no device", |s| s.give_back(at(1, 0))),
        ("is shared, but is not taken", |s| s.share(at(0, 3))),
        ("is shared, but is not taken", |s| s.share(at(0, 10))),
        ("is given back, but is not taken", |s| {
            let slot = s.take_any(DeviceId(0)).unwrap().slot;
            s.share(at(0, slot));
            (0..3).for_each(|_| s.give_back(at(0, slot)));
        }),
        ("was not being cleaned", |s| s.cleaned(DeviceId(0), &[3])),
        ("was not being cleaned", |s| s.cleaned(DeviceId(0), &[99])),
        ("there twice", |s| {
            s.add_device(&record(0, 1, 0, DeviceKind::File))
        }),
    ];
    for (text, case) in cases {
        let mut slots = Slots::new(&devices, std::iter::empty()).unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&mut slots)));
        let panic = caught.unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn sixteen_million_slots_are_supported() {
    const SLOTS: u32 = 16 << 20;
    let devices = [record(0, SLOTS, SLOTS, DeviceKind::Block)];
    let used = (0..SLOTS).filter(|s| s % 1000 != 0);
    let used = used.map(|s| by(at(0, s), 0, s));
    let mut slots = Slots::new(&devices, used).unwrap();
    assert_eq!(slots.free(DeviceId(0)), SLOTS.div_ceil(1000));
    for i in 0..SLOTS.div_ceil(1000) {
        let taken = slots.take_any(DeviceId(0)).unwrap();
        assert_eq!((taken.slot, taken.high_water), (i * 1000, None));
    }
    assert_eq!(slots.take_any(DeviceId(0)), None);
    assert_eq!(slots.take_clean(DeviceId(0)), None);
}
