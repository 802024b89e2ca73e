//! Random arrays that nobody has developed on: their numbers follow from the hash of the commit that is judged.

use algo::{Rng, mix};

/// Arrays that a comparison on fresh ones has at least.
pub const FRESH_MIN: usize = 40;
/// Numbers of fresh arrays begin here: smaller ones are for development.
const FIRST: u64 = 1_000_000;
/// Count of numbers to draw from.
const NUMBERS: u64 = 1_000_000_000;

/// The text of a commit is not a full hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("commit {0:?} is no full hash: 40 or 64 hexadecimal digits are needed")]
pub struct NoHash(String);

/// Returns `count` different numbers of random arrays for [`crate::generate`], a function of the commit's hash.
///
/// # Errors
/// Where the text is no full hash: an abbreviation would draw other arrays.
pub fn fresh_numbers(commit: &str, count: usize) -> Result<Vec<u64>, NoHash> {
    let digits = commit.bytes().all(|b| b.is_ascii_hexdigit());
    if !digits || ![40, 64].contains(&commit.len()) {
        return Err(NoHash(commit.into()));
    }
    let digits = commit.to_ascii_lowercase();
    let seed = digits.bytes().fold(0, |seed, b| mix(seed, u64::from(b)));
    let mut rng = Rng::new(seed, 0xF7E5);
    let mut numbers = Vec::with_capacity(count);
    while numbers.len() < count {
        let number = FIRST + rng.below(NUMBERS);
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "9bb2e4d3c51968b1c45e87c7b2b94e23a0fd1426";

    #[test]
    fn numbers_follow_from_the_hash_alone() {
        let numbers = fresh_numbers(HASH, 60).unwrap();
        assert_eq!(numbers[..40], fresh_numbers(HASH, 40).unwrap());
        assert_eq!(numbers, fresh_numbers(&HASH.to_uppercase(), 60).unwrap());
        assert!(numbers.iter().all(|n| *n >= FIRST));
        let other = HASH.replace('9', "8");
        let shared = fresh_numbers(&other, 60).unwrap();
        assert!(shared.iter().all(|n| !numbers.contains(n)));
    }

    #[test]
    fn abbreviated_hash_is_refused() {
        for text in ["", "9bb2e4d3", "words", &HASH.replace('9', "g")] {
            assert_eq!(fresh_numbers(text, 40), Err(NoHash(text.into())));
        }
    }
}
