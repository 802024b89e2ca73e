//! Numbers of variable length: seven bits a byte, the low ones first, the top bit set on all bytes but the last (LEB128).

use crate::failure::Failure;

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends the difference of a number to the one before it, so that small steps either way are short.
pub(crate) fn put_step(out: &mut Vec<u8>, n: u64, before: u64) {
    let step = n.wrapping_sub(before) as i64;
    put(out, ((step << 1) ^ (step >> 63)) as u64);
}

/// Reads them back.
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// The next number.
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

    /// The next number, of which the difference to `before` is there.
    pub(crate) fn take_step(&mut self, before: u64) -> Result<u64, Failure> {
        let folded = self.take()?;
        let step = (folded >> 1) as i64 ^ -((folded & 1) as i64);
        Ok(before.wrapping_add(step as u64))
    }

    /// The next number, of rows that take a byte each or more.
    pub(crate) fn take_count(&mut self) -> Result<usize, Failure> {
        let count = self.take()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.left.len() => Ok(count),
            _ => Err(ends()),
        }
    }

    /// There is nothing more.
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

/// An id: a number below 2^32.
pub(crate) fn id(n: u64) -> Result<u32, Failure> {
    u32::try_from(n).map_err(|_| Failure::Damaged(format!("{n} is not a valid id")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(n: u64, before: u64, small in 0u64..300) {
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
    fn steps_of_up_to_63_take_a_byte() {
        for (n, before) in [(163, 100), (100, 163), (0, 0)] {
            let mut out = Vec::new();
            put_step(&mut out, n, before);
            assert_eq!(out.len(), 1);
        }
    }

    #[test]
    fn what_is_cut_off_or_endless_is_refused() {
        assert!(Reader::new(&[]).take().is_err());
        assert!(Reader::new(&[0x80]).take().is_err());
        assert!(Reader::new(&[0xff; 11]).take().is_err());
        assert!(Reader::new(&[5, 1]).take_count().is_err());
        assert!(Reader::new(&[1]).finish().is_err());
    }
}
