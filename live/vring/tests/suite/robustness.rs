//! For any memory content, the device does not panic, hang or exceed its limits. The inputs are random bytes, and valid
//! memory with bounded, seeded damage. The fuzz target calls the same function.

use proptest::prelude::*;
use testkit::damage::Damage;
use vring::fuzzing;

/// Memory of a guest that has submitted 16 requests of all types, each with three descriptors in an indirect table.
fn good() -> Vec<u8> {
    let mut memory = vec![0; 0x3000];
    let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
    let kinds = [0u32, 1, 4, 8, 11, 13];
    for n in 0..16usize {
        let table = 0x1000 + 64 * n;
        let header = 0x1800 + 64 * n;
        let describe = |address: usize, length: u32, flags: u16, next: u16| {
            let address = (address as u64).to_le_bytes();
            let rest = [flags.to_le_bytes(), next.to_le_bytes()].concat();
            [&address[..], &length.to_le_bytes(), &rest].concat()
        };
        put(16 * n, &describe(table, 48, 4, 0));
        put(table, &describe(header, 16, 1, 1));
        let kind = kinds[n % kinds.len()];
        let (flags, length) = match kind {
            0 => (3, 512),
            1 => (1, 512),
            8 => (3, 20),
            11 | 13 => (1, 16),
            _ => (1, 0),
        };
        put(table + 16, &describe(header + 16, length, flags, 2));
        put(table + 32, &describe(header + 40, 1, 2, 0));
        put(header, &kind.to_le_bytes());
        put(header + 24, &1u32.to_le_bytes());
        put(0x100 + 4 + 2 * n, &(n as u16).to_le_bytes());
    }
    put(0x102, &16u16.to_le_bytes());
    memory
}

#[test]
fn damaged_memory_does_not_panic() {
    let good = good();
    for seed in 0..20_000 {
        let mut damage = Damage(seed);
        let mut bytes = good.clone();
        for _ in 0..damage.below(6) {
            let at = damage.below(0x2000);
            match damage.below(3) {
                0 => bytes[at] = damage.number() as u8,
                1 => bytes[at] ^= 1 << damage.below(8),
                _ => bytes[at..at + 2].fill(0xff),
            }
        }
        // Most cases have no inflight buffer, because its content would be the same bytes.
        let choices = [
            damage.below(16) as u8 & if seed % 4 == 0 { 0xf } else { 0xb },
            if seed % 8 == 7 {
                damage.number() as u8
            } else {
                0
            },
            damage.number() as u8,
            damage.number() as u8,
        ];
        fuzzing::queue(&[&choices[..], &bytes].concat());
    }
}

proptest! {
    #[test]
    fn random_memory_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        fuzzing::queue(&bytes);
    }
}
