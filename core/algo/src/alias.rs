//! Random draws by weight in constant time: the alias method.

use crate::random::unit;

/// Table of numbers `0..n`, each drawn with a probability in proportion to its weight.
///
/// Vose's construction (A linear algorithm for generating random numbers with a given distribution, 1991): n columns of
/// equal height, each shared by at most two numbers. Building takes O(n); a rebuild reuses the memory. Not for weights
/// that change one by one: any change requires a rebuild.
#[derive(Debug, Clone, Default)]
pub struct AliasTable {
    /// For each column: the share of its own number, and the number that has the rest.
    columns: Vec<(f64, u32)>,
    small: Vec<u32>,
    large: Vec<u32>,
}

impl AliasTable {
    /// Builds the table. No weight may be negative, and at least one must be above zero.
    ///
    /// # Panics
    /// If the weights are invalid.
    pub fn build(&mut self, weights: &[f64]) {
        let total: f64 = weights.iter().sum();
        assert!(
            total > 0.0 && weights.iter().all(|w| *w >= 0.0),
            "weights are not negative, and not all zero"
        );
        let scale = weights.len() as f64 / total;
        self.columns.clear();
        self.small.clear();
        self.large.clear();
        for (i, weight) in weights.iter().enumerate() {
            let height = weight * scale;
            self.columns.push((height, i as u32));
            let side = if height < 1.0 {
                &mut self.small
            } else {
                &mut self.large
            };
            side.push(i as u32);
        }
        while let (Some(low), Some(high)) = (self.small.pop(), self.large.last().copied()) {
            let own = self.columns[low as usize].0;
            self.columns[low as usize].1 = high;
            let rest = &mut self.columns[high as usize].0;
            *rest -= 1.0 - own;
            if *rest < 1.0 {
                self.large.pop();
                self.small.push(high);
            }
        }
        // The remaining columns are full except for rounding.
        for i in self.small.drain(..).chain(self.large.drain(..)) {
            self.columns[i as usize] = (1.0, i);
        }
    }

    /// Returns the number for 64 random bits.
    #[inline]
    pub fn draw(&self, bits: u64) -> u32 {
        let scaled = u128::from(bits) * self.columns.len() as u128;
        let column = (scaled >> 64) as usize;
        // The low half of the product is uniform within the column.
        let (own, other) = self.columns[column];
        if unit(scaled as u64) < own {
            column as u32
        } else {
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// The table's exact probabilities equal the weights.
    #[test]
    fn columns_add_up_to_the_weights() {
        let mut rng = Rng::new(1, 2);
        let mut table = AliasTable::default();
        for n in 1..60 {
            let weights: Vec<f64> = (0..n)
                .map(|i| if i % 3 == 0 { 0.0 } else { rng.exponential() })
                .chain([0.5])
                .collect();
            table.build(&weights);
            let mut got = vec![0.0; weights.len()];
            for (i, (own, other)) in table.columns.iter().enumerate() {
                got[i] += own;
                got[*other as usize] += 1.0 - own;
            }
            let scale = weights.iter().sum::<f64>() / weights.len() as f64;
            for (w, g) in weights.iter().zip(&got) {
                assert!((w - g * scale).abs() < 1e-12, "{weights:?} {got:?}");
            }
        }
    }

    #[test]
    fn draws_are_proportional_to_the_weights() {
        let weights = [1.0, 0.0, 5.0, 2.0, 2.0];
        let mut table = AliasTable::default();
        table.build(&[3.0; 9]); // no trace of the earlier weights may remain
        table.build(&weights);
        let mut counts = [0_u32; 5];
        let mut rng = Rng::new(3, 4);
        for _ in 0..100_000 {
            counts[table.draw(rng.next_u64()) as usize] += 1;
        }
        for (weight, count) in weights.iter().zip(counts) {
            let expected = weight / 10.0 * 100_000.0;
            assert!((f64::from(count) - expected).abs() < 600.0, "{counts:?}");
        }
        assert_eq!(counts[1], 0);
    }
}
