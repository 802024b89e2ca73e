//! Places items one after the other, first the one that loses most if it does not get its best tier.

use std::collections::BinaryHeap;

use units::TierId;

use super::{FORBIDDEN, Problem, Shares, add, fits, overload_cost, steps};

/// How often in the course of a placement all regrets are computed anew. Between two times an item's regret is only
/// looked at again when it comes up: it can be too low by then, since its second-best tier may have filled.
const REFRESHES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    regret: i64,
    score: i64,
    /// Reversed, so that of two like claims the lower number comes first.
    item: std::cmp::Reverse<u32>,
    tier: std::cmp::Reverse<u16>,
}

/// How many items for which no room was left are put first in another attempt.
const ATTEMPTS: usize = 12;

/// What placing is worth.
struct Values<'a> {
    scores: &'a [i64],
    overload: &'a [Shares],
}

/// A tier for every item by these values (scores, or scores less prices) and this price of overload. An item that is left over without room is put
/// first in the next attempt; `None` if one is left over in the last.
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

/// One attempt; the item for which no room was left.
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

/// The best tier with room for an item, and what the second best is worth less; `None` if there is room nowhere.
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
            // Of two like tiers the one where it is: a move needs a reason.
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
