//! Size of an exchange between a full tier and the rest: extents that come up, and extents that go down for them.
//!
//! Pure counting, in extents of one size. `arrange::extents` chooses the extents and the devices.

/// Wanted exchange and its limits. The numbers are wide: sums and differences cannot overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Number of extents that should come.
    pub(super) up: i128,
    /// Number of extents that should leave and have a target.
    pub(super) down: i128,
    /// Number of extents for which the tier has room now; negative if it holds too many.
    pub(super) room: i128,
    /// Largest number of extents moved in all.
    pub(super) budget: i128,
}

/// Limit that prevents a part of the wanted exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// None: all wanted extents come.
    None,
    /// The budget.
    Budget,
    /// Room on the tier.
    Room,
}

/// Possible exchange: numbers of the hottest extents that come and of the coldest that leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Swap {
    pub(super) up: i128,
    pub(super) down: i128,
    pub(super) limit: Limit,
}

impl Exchange {
    /// Maximizes the number of extents that come. As many leave as these need, plus those above the tier's room, plus,
    /// within the budget, those that would leave even if all came.
    pub(super) fn solve(&self) -> Swap {
        let Self {
            up,
            down,
            room,
            budget,
        } = *self;
        let forced = (-room).clamp(0, down.min(budget));
        // `comes` extents come, and max(forced, comes − room) leave, both within the budget.
        let by_room = down + room;
        let by_budget = (budget - forced).min((budget + room).div_euclid(2));
        let comes = up.min(by_room).min(by_budget).max(0);
        let needed = match comes {
            0 => forced,
            _ => forced.max(comes - room),
        };
        let for_others = forced.max((up - room).min(down));
        let extra = (down - for_others).clamp(0, budget - comes - needed);
        let limit = match comes {
            _ if comes == up => Limit::None,
            _ if by_room <= by_budget => Limit::Room,
            _ => Limit::Budget,
        };
        Swap {
            up: comes,
            down: needed + extra,
            limit,
        }
    }
}

/// Limits an exchange to a number of moves. `up` are the groups that come, most valuable first; `down` are the groups that
/// leave; each with its number of extents. Returns the number of moved extents of each group.
pub(super) fn within_moves(
    up: &[u64],
    down: &[u64],
    room: i128,
    moves: usize,
) -> (Vec<u64>, Vec<u64>) {
    if up.len() + down.len() <= moves {
        return (up.to_vec(), down.to_vec());
    }
    let (mut come, mut go) = (vec![0; up.len()], vec![0; down.len()]);
    // Large groups make room with the fewest moves.
    let mut largest: Vec<usize> = (0..down.len()).collect();
    largest.sort_by_key(|g| (std::cmp::Reverse(down[*g]), *g));
    let mut largest = largest.into_iter();
    let (mut room, mut moves, mut last) = (room, moves, None);
    let mut make_room = |room: &mut i128, moves: &mut usize, need: i128, spare: usize| {
        while *room < need && *moves > spare {
            let Some(g) = largest.next() else { return };
            go[g] = down[g];
            *room += i128::from(down[g]);
            *moves -= 1;
            last = Some(g);
        }
    };
    make_room(&mut room, &mut moves, 0, 0);
    for (g, extents) in up.iter().enumerate() {
        make_room(&mut room, &mut moves, i128::from(*extents), 1);
        if moves == 0 {
            break;
        }
        let fits = i128::from(*extents).min(room).max(0) as u64;
        if fits > 0 {
            come[g] = fits;
            room -= i128::from(fits);
            moves -= 1;
        }
    }
    // The last group that makes room leaves only as far as its room is used.
    if let Some(g) = last {
        let spare = i128::from(go[g]).min(room.max(0));
        go[g] -= spare as u64;
    }
    (come, go)
}

/// Fills the devices with most room down to one level. Rooms decrease from one device to the next; returns the share of
/// each.
pub(super) fn evenly(rooms: &[u64], extents: u64) -> Vec<u64> {
    let mut left = extents;
    let mut shares = vec![0; rooms.len()];
    for (last, room) in rooms.iter().enumerate() {
        // All devices up to this one are at one level; fill them to the level of the next.
        let next = rooms.get(last + 1).copied().unwrap_or(0);
        let step = (room - next).min(left.div_ceil(last as u64 + 1));
        for share in &mut shares[..=last] {
            let take = step.min(left);
            *share += take;
            left -= take;
        }
    }
    shares
}

/// Fills one device after the other; returns the share of each.
pub(super) fn in_turn(rooms: &[u64], extents: u64) -> Vec<u64> {
    let mut left = extents;
    let take = |room: &u64| {
        let share = left.min(*room);
        left -= share;
        share
    };
    rooms.iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries all exchanges.
    fn oracle(x: &Exchange) -> (i128, i128) {
        let forced = (-x.room).max(0).min(x.down).min(x.budget);
        // Beyond the need, only extents that would leave even if all came.
        let for_others = forced.max((x.up - x.room).min(x.down));
        let mut best = (0, forced);
        for up in 0..=x.up {
            for down in forced..=x.down {
                let needed = forced.max(up - x.room);
                let fits = up == 0 || up - down <= x.room;
                let extra = down - needed;
                if fits && up + down <= x.budget && extra <= (x.down - for_others).max(0) {
                    best = best.max((up, down));
                }
            }
        }
        best
    }

    #[test]
    fn exchange_size_is_the_maximum_within_all_limits() {
        let mut cases = 0;
        for up in 0..7 {
            for down in 0..7 {
                for room in -4..5 {
                    for budget in 0..13 {
                        let x = Exchange {
                            up,
                            down,
                            room,
                            budget,
                        };
                        let done = x.solve();
                        assert_eq!((done.up, done.down), oracle(&x), "{x:?}");
                        assert!(done.up + done.down <= budget);
                        assert_eq!(done.limit == Limit::None, done.up == up, "{x:?}");
                        cases += 1;
                    }
                }
            }
        }
        assert_eq!(cases, 7 * 7 * 9 * 13);
    }

    #[test]
    fn exchange_without_a_limit_is_complete() {
        let x = Exchange {
            up: 5,
            down: 8,
            room: 0,
            budget: i128::from(u64::MAX),
        };
        let done = Swap {
            up: 5,
            down: 8,
            limit: Limit::None,
        };
        assert_eq!(x.solve(), done);
    }

    #[test]
    fn limited_moves_go_to_the_most_valuable_extents() {
        // Enough moves for all.
        assert_eq!(within_moves(&[3, 2], &[5], 0, 3), (vec![3, 2], vec![5]));
        // Two moves: the largest group makes room for the most valuable one, and leaves only as far as needed.
        let (come, go) = within_moves(&[3, 2], &[1, 5], 0, 2);
        assert_eq!((come, go), (vec![3, 0], vec![0, 3]));
        // Room enough: nothing has to go.
        assert_eq!(within_moves(&[3, 2], &[4], 5, 2), (vec![3, 2], vec![0]));
        // The tier already holds too many extents.
        assert_eq!(within_moves(&[3], &[1, 2], -2, 1), (vec![0], vec![0, 2]));
        for moves in 0..6 {
            for room in -3..4 {
                let (up, down) = ([4, 1, 2], [2, 3, 1]);
                let (come, go) = within_moves(&up, &down, room, moves);
                let used = come.iter().chain(&go).filter(|n| **n > 0).count();
                assert!(used <= moves);
                let (c, g): (u64, u64) = (come.iter().sum(), go.iter().sum());
                assert!(
                    c == 0 || i128::from(c) - i128::from(g) <= room,
                    "{moves} {room} {come:?} {go:?}"
                );
            }
        }
    }

    #[test]
    fn devices_are_filled_evenly_or_in_turn() {
        assert_eq!(evenly(&[10, 4, 4], 6), [6, 0, 0]);
        assert_eq!(evenly(&[10, 4, 4], 12), [8, 2, 2]);
        assert_eq!(evenly(&[10, 4, 4], 8), [7, 1, 0]);
        assert_eq!(evenly(&[10, 4, 4], 99), [10, 4, 4]);
        assert_eq!(in_turn(&[10, 4, 4], 12), [10, 2, 0]);
        assert_eq!(in_turn(&[10, 4, 4], 99), [10, 4, 4]);
        assert_eq!(evenly(&[], 3), Vec::<u64>::new());
    }
}
