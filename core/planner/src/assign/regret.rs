//! Placement of items one by one, beginning with the one that loses most if it does not get its best tier.

use std::collections::BinaryHeap;

use units::TierId;

use super::{FORBIDDEN, Problem, Shares, add, fits, overload_cost, steps};

/// Number of times that all regrets are recomputed during a placement. In between, the regret of an item is recomputed only
/// when it is next in line. It can be too low until then, because its second-best tier may have filled.
const REFRESHES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    regret: i64,
    score: i64,
    /// Reversed, so the lower number wins between two equal claims.
    item: std::cmp::Reverse<u32>,
    tier: std::cmp::Reverse<u16>,
}

/// Number of attempts. Items for which an attempt had no room are placed first in the next.
const ATTEMPTS: usize = 12;

/// Scores of places and prices of overload.
struct Values<'a> {
    scores: &'a [i64],
    overload: &'a [Shares],
}

/// Returns a tier for every item by these values (scores, or scores minus prices) and this price of overload. An item
/// without room is placed first in the next attempt. Returns `None` if the last attempt leaves an item without room.
pub(super) fn place(problem: &Problem, values: &[i64], overload: &[Shares]) -> Option<Vec<TierId>> {
    let values = Values {
        scores: values,
        overload,
    };
    let mut first: Vec<usize> = Vec::new();
    for _ in 0..ATTEMPTS {
        match attempt(problem, &values, &first) {
            Ok(tiers) => return Some(tiers),
            Err(item) if first.contains(&item) => return None,
            Err(item) => first.push(item),
        }
    }
    None
}

/// Makes one attempt.
///
/// # Errors
/// Returns the item for which no room was left.
fn attempt(problem: &Problem, values: &Values<'_>, first: &[usize]) -> Result<Vec<TierId>, usize> {
    let mut left = problem.capacity.clone();
    let mut placed: Vec<Option<TierId>> = vec![None; problem.len()];
    let mut open = problem.len();
    for item in first {
        let tier = TierId(claim(problem, values, &left, *item).ok_or(*item)?.tier.0);
        add(&mut left[tier.index()], &problem.uses(*item, tier), -1.0);
        placed[*item] = Some(tier);
        open -= 1;
    }
    let every = (problem.len() / REFRESHES).max(1);
    while open > 0 {
        let mut claims: BinaryHeap<Claim> = BinaryHeap::with_capacity(open);
        for (item, tier) in placed.iter().enumerate() {
            if tier.is_none() {
                claims.push(claim(problem, values, &left, item).ok_or(item)?);
            }
        }
        let mut done = 0;
        while done < every {
            let Some(top) = claims.pop() else { break };
            let item = top.item.0 as usize;
            let now = claim(problem, values, &left, item).ok_or(item)?;
            if now != top && claims.peek().is_some_and(|next| *next > now) {
                claims.push(now);
                continue;
            }
            let tier = TierId(now.tier.0);
            add(&mut left[tier.index()], &problem.uses(item, tier), -1.0);
            placed[item] = Some(tier);
            done += 1;
            open -= 1;
        }
    }
    Ok(placed.into_iter().flatten().collect())
}

/// Returns the best tier with room for an item, and the loss on its second-best tier; `None` if no tier has room.
fn claim(problem: &Problem, values: &Values<'_>, left: &[Shares], item: usize) -> Option<Claim> {
    let home = problem.home[item];
    let mut best: Option<(i64, TierId)> = None;
    let mut second = FORBIDDEN;
    for (t, left) in left.iter().enumerate() {
        let tier = TierId::from_index(t);
        let (uses, overload) = (problem.uses(item, tier), &values.overload[t]);
        if problem.score(item, tier).is_none() || !fits(overload, left, &uses) {
            continue;
        }
        let mut after = *left;
        add(&mut after, &uses, -1.0);
        let more = overload_cost(overload, &after) - overload_cost(overload, left);
        let charged = if more == 0.0 { 0 } else { steps(more) };
        let value = values.scores[item * problem.tiers + t] - charged;
        match best {
            // The present tier wins a tie: a move needs a reason.
            Some((most, _)) if value < most || (value == most && Some(tier) != home) => {
                second = second.max(value);
            }
            _ => {
                second = best.map_or(second, |b| b.0.max(second));
                best = Some((value, tier));
            }
        }
    }
    let (score, tier) = best?;
    Some(Claim {
        regret: score - second,
        score,
        item: std::cmp::Reverse(item as u32),
        tier: std::cmp::Reverse(tier.0),
    })
}
