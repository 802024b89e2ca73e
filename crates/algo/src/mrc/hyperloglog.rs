//! Counting distinct blocks in little memory.

use crate::mix;

/// HyperLogLog (Flajolet and others, AofA 2007) with linear counting (Whang and others, ACM TODS 1990) while many registers are
/// empty. 2^`precision` bytes; the standard error is 1.04 / √(2^precision), 1.6 % for 12.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HyperLogLog {
    precision: u32,
    registers: Vec<u8>,
}

impl HyperLogLog {
    /// Empty, with 2^precision registers, 4..=16.
    pub fn new(precision: u32) -> Self {
        let precision = precision.clamp(4, 16);
        Self {
            precision,
            registers: vec![0; 1 << precision],
        }
    }

    /// A block that was touched.
    #[inline]
    pub fn add(&mut self, block: u64) {
        let hash = mix(0x4C_4C, block);
        let register = &mut self.registers[(hash >> (64 - self.precision)) as usize];
        // A one behind the rest of the hash: the run of zeroes ends.
        let run = (hash << self.precision | 1).leading_zeros() as u8 + 1;
        *register = (*register).max(run);
    }

    /// Becomes what counts the blocks of both.
    pub fn merge(&mut self, other: &HyperLogLog) {
        debug_assert_eq!(self.precision, other.precision);
        for (register, more) in self.registers.iter_mut().zip(&other.registers) {
            *register = (*register).max(*more);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.registers.fill(0);
    }

    /// Distinct blocks, about.
    pub fn count(&self) -> f64 {
        let m = self.registers.len() as f64;
        let mut by_run = [0u32; 66];
        for run in &self.registers {
            by_run[usize::from(*run)] += 1;
        }
        let empty = f64::from(by_run[0]);
        if empty > 0.0 {
            let linear = m * libm::log(m / empty);
            // Where the two methods meet with the least error, for these numbers of registers.
            if linear <= 2.5 * m {
                return linear;
            }
        }
        let inverse: f64 = by_run
            .iter()
            .enumerate()
            .map(|(run, n)| f64::from(*n) * libm::ldexp(1.0, -(run as i32)))
            .sum();
        let alpha = 0.7213 / (1.0 + 1.079 / m);
        alpha * m * m / inverse
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.registers.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_within_its_error() {
        for (seed, blocks) in [10u64, 1000, 5000, 10_000, 20_000, 300_000]
            .into_iter()
            .enumerate()
        {
            let mut squares = 0.0;
            for part in 0..10u64 {
                let mut log = HyperLogLog::new(12);
                let first = (seed as u64) << 40 | part << 32;
                for block in first..first + blocks {
                    log.add(block);
                    log.add(block);
                }
                squares += (log.count() / blocks as f64 - 1.0).powi(2);
            }
            let error = (squares / 10.0).sqrt();
            assert!(error < 0.03, "{blocks}: {error}");
        }
    }

    #[test]
    fn merging_is_adding() {
        let (mut a, mut b, mut both) = (
            HyperLogLog::new(10),
            HyperLogLog::new(10),
            HyperLogLog::new(10),
        );
        for block in 0..5000u64 {
            if block % 3 == 0 { &mut a } else { &mut b }.add(block);
            both.add(block);
        }
        a.merge(&b);
        assert_eq!(a, both);
        a.clear();
        assert_eq!(a.count(), 0.0);
    }
}
