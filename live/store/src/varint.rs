//! Numbers of variable length (LEB128): seven bits per byte, low ones first, with the top bit set on all bytes except the
//! last.

use crate::failure::Failure;

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends the difference to the previous number. Small steps in both directions are short.
pub(crate) fn put_step(out: &mut Vec<u8>, n: u64, before: u64) {
    let step = n.wrapping_sub(before) as i64;
    put(out, ((step << 1) ^ (step >> 63)) as u64);
}

/// Reader of such numbers.
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Returns the next number.
    pub(crate) fn take(&mut self) -> Result<u64, Failure> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, left) = self.left.split_first().ok_or_else(ends)?;
            self.left = left;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(Failure::Damaged("a number is not terminated".to_string()))
    }

    /// Returns the next number, which is stored as its difference to `before`.
    pub(crate) fn take_step(&mut self, before: u64) -> Result<u64, Failure> {
        let folded = self.take()?;
        let step = (folded >> 1) as i64 ^ -((folded & 1) as i64);
        Ok(before.wrapping_add(step as u64))
    }

    /// Returns the next number as a count of rows of at least one byte each.
    pub(crate) fn take_count(&mut self) -> Result<usize, Failure> {
        let count = self.take()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.left.len() => Ok(count),
            _ => Err(ends()),
        }
    }

    /// Checks that all bytes were read.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self.left.len() {
            0 => Ok(()),
            n => Err(Failure::Damaged(format!("a window has {n} extra bytes"))),
        }
    }
}

fn ends() -> Failure {
    Failure::Damaged("a window is truncated".to_string())
}

/// Returns an id, a number below 2^32.
pub(crate) fn id(n: u64) -> Result<u32, Failure> {
    u32::try_from(n).map_err(|_| Failure::Damaged(format!("{n} is not a valid id")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_round_trip(n: u64, before: u64, small in 0u64..300) {
            let mut out = Vec::new();
            put(&mut out, n);
            put(&mut out, small);
            put_step(&mut out, n, before);
            put_step(&mut out, before, n);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.take().unwrap(), n);
            prop_assert_eq!(reader.take().unwrap(), small);
            prop_assert_eq!(reader.take_step(before).unwrap(), n);
            prop_assert_eq!(reader.take_step(n).unwrap(), before);
            prop_assert!(reader.finish().is_ok());
        }
    }

    #[test]
    fn differences_up_to_63_take_one_byte() {
        for (n, before) in [(163, 100), (100, 163), (0, 0)] {
            let mut out = Vec::new();
            put_step(&mut out, n, before);
            assert_eq!(out.len(), 1);
        }
    }

    #[test]
    fn truncated_or_endless_numbers_are_refused() {
        assert!(Reader::new(&[]).take().is_err());
        assert!(Reader::new(&[0x80]).take().is_err());
        assert!(Reader::new(&[0xff; 11]).take().is_err());
        assert!(Reader::new(&[5, 1]).take_count().is_err());
        assert!(Reader::new(&[1]).finish().is_err());
    }
}
