//! Random arrays that were not used in development: their numbers follow from the hash of the judged commit.

use algo::{Rng, mix};

use crate::DecisionsError;

/// Smallest number of arrays in a comparison on fresh arrays.
pub const FRESH_MIN: usize = 40;
/// First number of fresh arrays: smaller numbers are for development.
const FIRST: u64 = 1_000_000;
/// Count of numbers to draw from.
const NUMBERS: u64 = 1_000_000_000;

/// Returns `count` different numbers of random arrays for [`crate::generate`], a function of the commit's hash.
///
/// # Errors
/// [`DecisionsError::NoHash`] if the text is no full hash: an abbreviation would draw other arrays.
pub fn fresh_numbers(commit: &str, count: usize) -> Result<Vec<u64>, DecisionsError> {
    let digits = commit.bytes().all(|b| b.is_ascii_hexdigit());
    if !digits || ![40, 64].contains(&commit.len()) {
        return Err(DecisionsError::NoHash(commit.into()));
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
    fn numbers_follow_from_the_hash() {
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
            let why = fresh_numbers(text, 40).unwrap_err();
            assert!(
                matches!(&why, DecisionsError::NoHash(t) if t == text),
                "{why}"
            );
        }
    }
}
