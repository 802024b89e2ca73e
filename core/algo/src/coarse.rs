//! Non-negative numbers in 16 bits: the upper half of single precision, with an error of 0.4 %.
//!
//! For histories of counts, which are numerous and need no higher precision.

/// Encodes the nearest number that 16 bits can hold; ties to even.
#[inline]
pub fn encode(value: f32) -> u16 {
    debug_assert!((0.0..1e38).contains(&value));
    let bits = value.to_bits();
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// Decodes a number.
#[inline]
pub fn decode(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_within_four_per_mille() {
        assert_eq!(decode(encode(0.0)), 0.0);
        for i in 0..100_000u32 {
            let value = libm::exp(f64::from(i) / 2000.0 - 20.0) as f32;
            let error = (decode(encode(value)) / value - 1.0).abs();
            assert!(error <= 1.0 / 256.0, "{value}: {error}");
        }
        for small in 0..=256u16 {
            assert_eq!(
                decode(encode(f32::from(small))),
                f32::from(small),
                "small counts are exact"
            );
        }
        for code in 0..0x7E00 {
            assert_eq!(encode(decode(code)), code);
        }
    }
}
