//! Seeded pseudo-random numbers (the SplitMix64 sequence): small, fast, the same on every machine.

use std::time::Duration;

#[derive(Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        // Small seeds differ in few bits; the multiplication spreads them.
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x7461_7574_6c69_6e65)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..n`; 0 when `n` is 0.
    pub(crate) const fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// A number in `low..=high`.
    pub(crate) const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `per_mille` of 1000 draws. Impossible and certain outcomes draw nothing.
    pub(crate) const fn chance(&mut self, per_mille: u32) -> bool {
        per_mille >= 1000 || (per_mille > 0 && self.below(1000) < per_mille as u64)
    }

    /// A duration in `0..=max`.
    pub(crate) fn duration(&mut self, max: Duration) -> Duration {
        Duration::from_nanos(self.between(0, u64::try_from(max.as_nanos()).unwrap_or(u64::MAX - 1)))
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// An independent generator.
    pub(crate) const fn split(&mut self) -> Self {
        Self(self.next())
    }
}

/// Spreads the bits of `z` (the finalizer of SplitMix64).
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
