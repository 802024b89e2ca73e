//! What a start may believe: every rule by example, and no two copies that go on alone on both sides of a divide.

use array::{
    Candidate, CopyId, DeviceStamp, MapState, Members, Membership, NotChosen, NotJoined, Seen,
    Stamp, Superblock, choose, choose_anyway, devices_needed, joins,
};
use units::{Bytes, DeviceId};

const BOTH: Members = Members {
    first: true,
    second: true,
};
const SECOND: Members = Members {
    first: false,
    second: true,
};

fn stamp(generation: u64) -> Stamp {
    Stamp {
        generation,
        nonce: generation * 7,
    }
}

fn state(generation: u64, members: Members, commits: u64) -> MapState {
    MapState {
        commits,
        confirmed: Membership {
            stamp: stamp(generation),
            members,
        },
        ..MapState::default()
    }
}

fn copy(copy: CopyId, state: MapState) -> Candidate {
    Candidate {
        copy,
        state,
        devices: (0..3).map(DeviceId).collect(),
        rolled_back: false,
    }
}

fn first(generation: u64, members: Members, commits: u64) -> Candidate {
    copy(CopyId::First, state(generation, members, commits))
}

fn second(generation: u64, members: Members, commits: u64) -> Candidate {
    copy(CopyId::Second, state(generation, members, commits))
}

fn seen(device: u16, generation: u64) -> Seen {
    Seen {
        device: DeviceId(device),
        stamp: stamp(generation),
        closed_at: None,
        lost_power: false,
    }
}

fn all(generation: u64) -> Vec<Seen> {
    (0..3).map(|d| seen(d, generation)).collect()
}

#[test]
fn of_two_copies_the_one_with_more_is_the_map() {
    let choice = choose(&[first(4, BOTH, 10), second(4, BOTH, 11)], &all(4)).unwrap();
    assert_eq!(
        (choice.copy, choice.other_is_current),
        (CopyId::Second, false)
    );
    assert_eq!(choice.next_generation, 5);
    let choice = choose(&[first(4, BOTH, 11), second(4, BOTH, 11)], &all(4)).unwrap();
    assert_eq!(
        (choice.copy, choice.other_is_current),
        (CopyId::First, true)
    );
    // A higher generation outranks any number of commits.
    let choice = choose(&[first(3, BOTH, 99), second(4, SECOND, 5)], &[seen(0, 4)]).unwrap();
    assert_eq!(choice.copy, CopyId::Second);
}

#[test]
fn a_copy_that_a_device_has_outrun_is_stale() {
    let error = choose(&[first(3, BOTH, 99)], &[seen(0, 3), seen(1, 4)]).unwrap_err();
    let expected = NotChosen::Stale {
        copy: CopyId::First,
        generation: 3,
        device: 1,
        found: 4,
    };
    assert_eq!(error, expected);
    // Of one generation it is the nonce that tells.
    let other = Seen {
        stamp: Stamp {
            generation: 3,
            nonce: 1,
        },
        ..seen(1, 3)
    };
    let error = choose(&[first(3, Members::FIRST, 99)], &[other]).unwrap_err();
    assert!(matches!(error, NotChosen::Stale { .. }), "{error}");
    // What it has proposed itself is no news to it.
    let mut proposing = first(3, BOTH, 99);
    proposing.state.pending = Some(Membership {
        stamp: stamp(5),
        members: Members::FIRST,
    });
    proposing.state.earlier = vec![stamp(4)];
    assert!(choose(&[proposing.clone()], &[seen(0, 4), seen(1, 5), seen(2, 3)]).is_ok());
    let error = choose(&[proposing], &[seen(0, 6), seen(1, 5)]).unwrap_err();
    assert!(
        matches!(error, NotChosen::Stale { found: 6, .. }),
        "{error}"
    );
}

#[test]
fn an_unconfirmed_generation_outranks_nothing() {
    // The first one has proposed 9 and told nobody; the second went on alone with 5.
    let mut ahead = first(4, BOTH, 50);
    ahead.state.pending = Some(Membership {
        stamp: stamp(9),
        members: Members::FIRST,
    });
    let choice = choose(&[ahead, second(5, SECOND, 20)], &all(4)).unwrap();
    assert_eq!(choice.copy, CopyId::Second);
    assert_eq!(choice.next_generation, 10);
}

#[test]
fn a_copy_that_is_alone_needs_witnesses() {
    let there = |n: u16| -> Vec<Seen> { (0..n).map(|d| seen(d, 4)).collect() };
    for (alone, needed) in [(first(4, BOTH, 9), 2), (second(4, BOTH, 9), 2)] {
        for n in 0..=3 {
            let chosen = choose(std::slice::from_ref(&alone), &there(n));
            assert_eq!(chosen.is_ok(), usize::from(n) >= needed, "{n}: {chosen:?}");
        }
    }
    // One whose membership knew of no other needs none.
    assert!(choose(&[first(4, Members::FIRST, 9)], &[]).is_ok());
    assert!(choose(&[second(4, SECOND, 9)], &[]).is_ok());
    // A device that the map does not know is no witness.
    let stranger = [seen(0, 4), seen(7, 4)];
    assert!(choose(&[first(4, BOTH, 9)], &stranger).is_err());
}

#[test]
fn whoever_goes_on_alone_is_seen_by_whoever_starts_alone() {
    for all in 0..20 {
        let (first, second) = (
            devices_needed(CopyId::First, all),
            devices_needed(CopyId::Second, all),
        );
        assert!(first + second > all, "of {all} devices one knows of both");
        assert!(all == 0 || first <= all && second <= all);
    }
}

#[test]
fn a_copy_that_was_left_behind_is_none() {
    let error = choose(&[second(4, Members::FIRST, 9)], &all(4)).unwrap_err();
    let expected = NotChosen::NoMember {
        copy: CopyId::Second,
        generation: 4,
    };
    assert_eq!(error, expected);
    // One that was to become a member has what the first one had.
    let mut joining = second(4, Members::FIRST, 9);
    joining.state.pending = Some(Membership {
        stamp: stamp(5),
        members: BOTH,
    });
    assert!(choose(&[joining], &all(5)).is_ok());
}

#[test]
fn a_backup_is_believed_if_nothing_happened_since() {
    let backup = first(4, Members::NONE, 30);
    let closed = |commits: u64| -> Vec<Seen> {
        let at = |s: Seen| Seen {
            closed_at: Some(commits),
            lost_power: false,
            ..s
        };
        all(4).into_iter().map(at).collect()
    };
    assert!(choose(std::slice::from_ref(&backup), &closed(30)).is_ok());
    for devices in [closed(31), all(4), vec![]] {
        let error = choose(std::slice::from_ref(&backup), &devices).unwrap_err();
        assert!(matches!(error, NotChosen::OldBackup { .. }), "{error}");
    }
    let error = choose(std::slice::from_ref(&backup), &all(5)).unwrap_err();
    assert!(matches!(error, NotChosen::Stale { .. }), "{error}");
    // An operator may go on with it all the same, above everything that was seen.
    let choice = choose_anyway(&[backup], &all(5)).unwrap();
    assert_eq!(
        (choice.next_generation, choice.other_is_current),
        (6, false)
    );
    assert_eq!(choose(&[], &all(5)), Err(NotChosen::None));
}

fn superblock(generation: u64, flushed: bool, boot: u128) -> Superblock {
    Superblock {
        array: array::ArrayId([1; 16]),
        device: DeviceId(0),
        extent: Bytes::mib(1),
        slots: 9,
        stamp: stamp(generation),
        flushed,
        boot,
        commits: 0,
    }
}

fn expected(now: u64, was: Option<u64>) -> DeviceStamp {
    DeviceStamp {
        device: DeviceId(0),
        now: stamp(now),
        was: was.map(stamp).into_iter().collect(),
    }
}

#[test]
fn a_device_belongs_by_its_stamp() {
    let state = state(4, Members::FIRST, 9);
    let found = |generation| superblock(generation, false, 1);
    assert_eq!(
        joins(&state, Some(&expected(4, None)), &found(4), 1),
        Ok(())
    );
    let older = joins(&state, Some(&expected(4, None)), &found(3), 1);
    assert!(
        matches!(older, Err(NotJoined::Generation { .. })),
        "{older:?}"
    );
    let text = older.unwrap_err().to_string();
    assert!(
        text.contains("generation 3, but the map expects 4"),
        "{text}"
    );
    // One that was never stamped, as of an array from before.
    let never = Superblock {
        stamp: Stamp::NONE,
        ..found(0)
    };
    assert_eq!(joins(&state, None, &never, 1), Ok(()));
    assert!(joins(&state, None, &found(4), 1).is_err());
}

#[test]
fn a_device_that_was_away_must_have_been_flushed() {
    let state = state(6, Members::FIRST, 9);
    let known = expected(4, None);
    assert_eq!(
        joins(&state, Some(&known), &superblock(4, false, 1), 1),
        Err(NotJoined::Unflushed)
    );
    assert_eq!(
        joins(&state, Some(&known), &superblock(4, true, 1), 1),
        Ok(())
    );
    assert_eq!(
        joins(&state, Some(&known), &superblock(4, false, 1), 2),
        Ok(()),
        "after a reboot"
    );
    // Stamping it failed when the others were confirmed: it may carry the stamp and was not part of what followed.
    let left = expected(4, Some(6));
    assert_eq!(
        joins(&state, Some(&left), &superblock(6, false, 1), 1),
        Err(NotJoined::Unflushed)
    );
    // A proposal that did not come to its end: both are of the one before.
    let mut proposing = state;
    proposing.pending = Some(Membership {
        stamp: stamp(7),
        members: Members::FIRST,
    });
    for carries in [6, 7] {
        let known = expected(7, Some(6));
        assert_eq!(
            joins(&proposing, Some(&known), &superblock(carries, false, 1), 1),
            Ok(())
        );
    }
}
