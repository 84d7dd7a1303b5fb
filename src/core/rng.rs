//! Random numbers for choices and jitter. **Not for secrets**: whoever sees a few outputs knows the rest.
//!
//! One seed gives one sequence, which the simulation needs. xoshiro256++ (Blackman and Vigna), seeded by
//! splitmix64 as its authors advise.

use std::time::Duration;

/// A small seeded generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of this seed. Any seed is good, 0 too.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut split = seed;
        let state = std::array::from_fn(|_| {
            split = split.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = split;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Self { state }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`; 0 if `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A duration from `low` to `high`, both possible; `low` if the two are in the wrong order. Steps of 1 ns.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = u64::try_from(high.saturating_sub(low).as_nanos()).unwrap_or(u64::MAX);
        low.saturating_add(Duration::from_nanos(self.below(span.saturating_add(1))))
    }

    /// `base` and up to `fraction` of it more. A fraction outside 0 to 1 is the nearer end, NaN is 0.
    pub fn jitter(&mut self, base: Duration, fraction: f64) -> Duration {
        let extra = base.as_secs_f64() * fraction.clamp(0.0, 1.0);
        // Fails with NaN, and by rounding up with the longest durations.
        let extra = Duration::try_from_secs_f64(extra).unwrap_or(Duration::ZERO);
        self.between(base, base.saturating_add(extra))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference implementation's recurrence, worked out by hand for the state 1, 2, 3, 4.
    #[test]
    fn is_xoshiro256_plus_plus() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        assert_eq!(rng.next_u64(), (5 << 23) + 1);
        assert_eq!(rng.state, [7, 0, 262_146, 6 << 45]);
        assert_eq!(rng.next_u64(), (7 << 23) + (6 << 4) + 7);
    }

    #[test]
    fn is_seeded_by_splitmix64() {
        // First output of splitmix64 for seed 0, well known.
        assert_eq!(Rng::new(0).state[0], 0xe220_a839_7b1d_cdaf);
        let mut first = Rng::new(7);
        let mut second = Rng::new(7);
        assert!((0..100).all(|_| first.next_u64() == second.next_u64()));
        assert_ne!(Rng::new(7).next_u64(), Rng::new(8).next_u64());
    }

    #[test]
    fn below_is_fair_and_bounded() {
        let mut rng = Rng::new(1);
        let mut counts = [0u32; 7];
        for _ in 0..7_000 {
            counts[rng.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!((rng.below(0), rng.below(1)), (0, 0));
        assert!((0..100).any(|_| rng.below(u64::MAX) > u64::MAX / 2));
    }

    #[test]
    fn between_includes_both_ends() {
        let mut rng = Rng::new(2);
        let (low, high) = (Duration::from_nanos(5), Duration::from_nanos(7));
        let drawn: std::collections::BTreeSet<Duration> = (0..100).map(|_| rng.between(low, high)).collect();
        assert_eq!(drawn.into_iter().map(|one| one.as_nanos()).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(rng.between(high, low), high);
        assert!(rng.between(Duration::ZERO, Duration::MAX) <= Duration::MAX);
        assert_eq!(rng.between(Duration::MAX, Duration::MAX), Duration::MAX);
    }

    #[test]
    fn jitter_only_adds_and_takes_any_fraction() {
        let mut rng = Rng::new(3);
        let base = Duration::from_secs(10);
        let drawn: Vec<Duration> = (0..1000).map(|_| rng.jitter(base, 0.1)).collect();
        assert!(drawn.iter().all(|one| (base..=Duration::from_secs(11)).contains(one)));
        assert!(drawn.iter().any(|one| one.as_millis() < 10_050));
        assert!(drawn.iter().any(|one| one.as_millis() > 10_950));
        for fraction in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(rng.jitter(base, fraction), base, "{fraction}");
        }
        assert!(rng.jitter(base, f64::INFINITY) <= base * 2);
        assert_eq!(rng.jitter(Duration::MAX, 1.0), Duration::MAX);
    }
}
