//! Choice of the map at a start: each rule by example. Two copies never continue alone on both sides of a partition.

use array::{
    Candidate, CopyId, DeviceStamp, JoinError, MapChoiceError, MapState, Members, Membership,
    Stamp, Superblock, SuperblockInfo, choose, choose_anyway, devices_needed, joins,
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

fn seen(device: u16, generation: u64) -> SuperblockInfo {
    SuperblockInfo {
        device: DeviceId(device),
        stamp: stamp(generation),
        closed_at: None,
        lost_power: false,
    }
}

fn all(generation: u64) -> Vec<SuperblockInfo> {
    (0..3).map(|d| seen(d, generation)).collect()
}

#[test]
fn copy_with_more_commits_is_chosen() {
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
fn copy_older_than_a_device_stamp_is_stale() {
    let error = choose(&[first(3, BOTH, 99)], &[seen(0, 3), seen(1, 4)]).unwrap_err();
    let expected = MapChoiceError::Stale {
        copy: CopyId::First,
        generation: 3,
        device: 1,
        found: 4,
    };
    assert_eq!(error, expected);
    // Within one generation the nonce decides.
    let other = SuperblockInfo {
        stamp: Stamp {
            generation: 3,
            nonce: 1,
        },
        ..seen(1, 3)
    };
    let error = choose(&[first(3, Members::FIRST, 99)], &[other]).unwrap_err();
    assert!(matches!(error, MapChoiceError::Stale { .. }), "{error}");
    // A stamp that the copy proposed itself does not make it stale.
    let mut proposing = first(3, BOTH, 99);
    proposing.state.pending = Some(Membership {
        stamp: stamp(5),
        members: Members::FIRST,
    });
    proposing.state.earlier = vec![stamp(4)];
    assert!(choose(&[proposing.clone()], &[seen(0, 4), seen(1, 5), seen(2, 3)]).is_ok());
    let error = choose(&[proposing], &[seen(0, 6), seen(1, 5)]).unwrap_err();
    assert!(
        matches!(error, MapChoiceError::Stale { found: 6, .. }),
        "{error}"
    );
}

#[test]
fn unconfirmed_generation_has_no_precedence() {
    // The first copy proposed 9 without stamping a device; the second continued alone with 5.
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
fn single_copy_needs_device_stamps_as_witnesses() {
    let there = |n: u16| -> Vec<SuperblockInfo> { (0..n).map(|d| seen(d, 4)).collect() };
    for (alone, needed) in [(first(4, BOTH, 9), 2), (second(4, BOTH, 9), 2)] {
        for n in 0..=3 {
            let chosen = choose(std::slice::from_ref(&alone), &there(n));
            assert_eq!(chosen.is_ok(), usize::from(n) >= needed, "{n}: {chosen:?}");
        }
    }
    // A copy whose membership had no other member needs no witnesses.
    assert!(choose(&[first(4, Members::FIRST, 9)], &[]).is_ok());
    assert!(choose(&[second(4, SECOND, 9)], &[]).is_ok());
    // A device that the map does not know is no witness.
    let stranger = [seen(0, 4), seen(7, 4)];
    assert!(choose(&[first(4, BOTH, 9)], &stranger).is_err());
}

#[test]
fn two_copies_cannot_both_start_alone() {
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
fn copy_excluded_from_the_membership_is_refused() {
    let error = choose(&[second(4, Members::FIRST, 9)], &all(4)).unwrap_err();
    let expected = MapChoiceError::NoMember {
        copy: CopyId::Second,
        generation: 4,
    };
    assert_eq!(error, expected);
    // A copy that was to become a member has all commits of the first one.
    let mut joining = second(4, Members::FIRST, 9);
    joining.state.pending = Some(Membership {
        stamp: stamp(5),
        members: BOTH,
    });
    assert!(choose(&[joining], &all(5)).is_ok());
}

#[test]
fn backup_is_accepted_only_without_later_commits() {
    let backup = first(4, Members::NONE, 30);
    let closed = |commits: u64| -> Vec<SuperblockInfo> {
        let at = |s: SuperblockInfo| SuperblockInfo {
            closed_at: Some(commits),
            lost_power: false,
            ..s
        };
        all(4).into_iter().map(at).collect()
    };
    assert!(choose(std::slice::from_ref(&backup), &closed(30)).is_ok());
    for devices in [closed(31), all(4), vec![]] {
        let error = choose(std::slice::from_ref(&backup), &devices).unwrap_err();
        assert!(matches!(error, MapChoiceError::OldBackup { .. }), "{error}");
    }
    let error = choose(std::slice::from_ref(&backup), &all(5)).unwrap_err();
    assert!(matches!(error, MapChoiceError::Stale { .. }), "{error}");
    // An operator may continue with it, at a generation above all that were seen.
    let choice = choose_anyway(&[backup], &all(5)).unwrap();
    assert_eq!(
        (choice.next_generation, choice.other_is_current),
        (6, false)
    );
    assert_eq!(choose(&[], &all(5)), Err(MapChoiceError::None));
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
fn device_is_accepted_by_its_stamp() {
    let state = state(4, Members::FIRST, 9);
    let found = |generation| superblock(generation, false, 1);
    assert_eq!(
        joins(&state, Some(&expected(4, None)), &found(4), 1),
        Ok(())
    );
    let older = joins(&state, Some(&expected(4, None)), &found(3), 1);
    assert!(
        matches!(older, Err(JoinError::Generation { .. })),
        "{older:?}"
    );
    let text = older.unwrap_err().to_string();
    assert!(
        text.contains("generation 3, but the map expects 4"),
        "{text}"
    );
    // Device that was never stamped, as in an array from before memberships.
    let never = Superblock {
        stamp: Stamp::NONE,
        ..found(0)
    };
    assert_eq!(joins(&state, None, &never, 1), Ok(()));
    assert!(joins(&state, None, &found(4), 1).is_err());
}

#[test]
fn absent_device_must_have_been_flushed() {
    let state = state(6, Members::FIRST, 9);
    let known = expected(4, None);
    assert_eq!(
        joins(&state, Some(&known), &superblock(4, false, 1), 1),
        Err(JoinError::Unflushed)
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
    // Stamping the device failed when the others were confirmed. It may carry the stamp, but missed the later changes.
    let left = expected(4, Some(6));
    assert_eq!(
        joins(&state, Some(&left), &superblock(6, false, 1), 1),
        Err(JoinError::Unflushed)
    );
    // An unfinished proposal: both stamps are of the previous membership.
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
