//! What is counted with.

use std::time::Duration;

/// Buckets of dials and writes at the server, in seconds (Konnectivity's).
pub(super) const DIAL: &[f64] = &[0.000_001, 0.000_01, 0.000_1, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5];
/// Buckets of dials at the agent, in seconds (Konnectivity's).
pub(super) const AGENT_DIAL: &[f64] = &[0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0];
/// Buckets of a tunnel's life, in seconds (Konnectivity's).
pub(super) const LIFETIME: &[f64] =
    &[1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0];
/// Buckets of round trips, in seconds (the Prometheus default).
pub(super) const ROUND_TRIP: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Buckets of the time until a dead peer is found, in seconds: finest around the default of 10 s.
pub(super) const DETECTION: &[f64] = &[1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 30.0, 60.0];

/// Most buckets of a [`Histogram`], without the last one (`+Inf`).
const BUCKETS_MAX: usize = 12;

/// Only goes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter(u64);

impl Counter {
    /// One more.
    pub const fn inc(&mut self) {
        self.add(1);
    }

    /// `count` more.
    pub const fn add(&mut self, count: u64) {
        self.0 = self.0.saturating_add(count);
    }

    /// The count.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Durations, counted in fixed buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds_seconds: &'static [f64],
    /// One count per bucket, not cumulative; the one after the last bound is `+Inf`.
    counts: [u64; BUCKETS_MAX + 1],
    sum: Duration,
}

impl Histogram {
    /// `bounds_seconds` ascend; those after the twelfth are left out.
    pub(super) const fn new(bounds_seconds: &'static [f64]) -> Self {
        let bounds_seconds = match bounds_seconds.split_at_checked(BUCKETS_MAX) {
            Some((first, _)) => first,
            None => bounds_seconds,
        };
        Self { bounds_seconds, counts: [0; BUCKETS_MAX + 1], sum: Duration::ZERO }
    }

    /// Empty, with bounds for times from PING to PONG.
    #[must_use]
    pub const fn of_round_trips() -> Self {
        Self::new(ROUND_TRIP)
    }

    /// Counts one duration.
    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds_seconds.iter().take_while(|bound| seconds > **bound).count();
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Adds what `other` counted; both have the same bounds.
    pub fn merge(&mut self, other: &Self) {
        debug_assert_eq!(self.bounds_seconds, other.bounds_seconds);
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All durations together.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// Upper bounds with the count of all durations up to there; without `+Inf`, which is [`Histogram::count`].
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        self.bounds_seconds.iter().zip(self.counts).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((*bound, *sum))
        })
    }
}

/// Most sets of label values of a [`LabelledCounter`]; what comes after is counted under `other`.
pub const LABEL_SETS_MAX: usize = 128;

/// One counter for each set of label values that was used. `N` label names, known to who renders it.
#[derive(Clone, Debug)]
pub struct LabelledCounter<const N: usize> {
    /// In the order of the values.
    series: Vec<([&'static str; N], Counter)>,
}

impl<const N: usize> Default for LabelledCounter<N> {
    fn default() -> Self {
        Self { series: Vec::new() }
    }
}

impl<const N: usize> LabelledCounter<N> {
    /// One more of these values.
    pub fn inc(&mut self, values: [&'static str; N]) {
        self.add(values, 1);
    }

    /// `count` more of these values.
    pub fn add(&mut self, values: [&'static str; N], count: u64) {
        let found = match self.position(values) {
            Err(_) if self.series.len() >= LABEL_SETS_MAX => self.position(["other"; N]),
            found => found,
        };
        let at = match found {
            Ok(at) => at,
            Err(at) => {
                let values = if self.series.len() < LABEL_SETS_MAX { values } else { ["other"; N] };
                self.series.insert(at, (values, Counter::default()));
                at
            }
        };
        self.series[at].1.add(count);
    }

    /// The count of these values.
    #[must_use]
    pub fn get(&self, values: [&'static str; N]) -> u64 {
        self.position(values).map_or(0, |at| self.series[at].1.get())
    }

    /// All that was used, in the order of the values.
    pub fn iter(&self) -> impl Iterator<Item = ([&'static str; N], u64)> {
        self.series.iter().map(|(values, counter)| (*values, counter.get()))
    }

    fn position(&self, values: [&'static str; N]) -> Result<usize, usize> {
        self.series.binary_search_by(|(known, _)| known.cmp(&values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_its_bounds_in() {
        let mut histogram = Histogram::new(AGENT_DIAL);
        for millis in [0, 5, 6, 100, 30_000, 30_001, 90_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let counts: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 3, 4, 4, 4, 4, 5]);
        assert_eq!((histogram.count(), histogram.sum()), (7, Duration::from_millis(150_112)));
        histogram.observe(Duration::MAX);
        histogram.observe(Duration::MAX);
        assert_eq!((histogram.count(), histogram.sum()), (9, Duration::MAX));
    }

    #[test]
    fn all_bounds_ascend_and_fit() {
        for bounds in [DIAL, AGENT_DIAL, LIFETIME, ROUND_TRIP, DETECTION] {
            assert!(bounds.is_sorted() && bounds.len() <= BUCKETS_MAX);
            assert_eq!(Histogram::new(bounds).cumulative().count(), bounds.len());
        }
    }

    #[test]
    fn counters_do_not_wrap() {
        let mut counter = Counter::default();
        counter.add(u64::MAX);
        counter.inc();
        assert_eq!(counter.get(), u64::MAX);
    }

    #[test]
    fn label_sets_are_counted_apart_and_bounded() {
        let mut counter = LabelledCounter::default();
        counter.inc(["b", "x"]);
        counter.inc(["a", "y"]);
        counter.add(["b", "x"], 2);
        assert_eq!(counter.iter().collect::<Vec<_>>(), [(["a", "y"], 1), (["b", "x"], 3)]);
        assert_eq!(counter.get(["a", "x"]), 0);
        for number in 0..1000 {
            let name: &'static str = Box::leak(format!("n{number}").into_boxed_str());
            counter.inc([name, "z"]);
        }
        assert_eq!(counter.iter().count(), LABEL_SETS_MAX + 1, "and the one for the others");
        assert_eq!(counter.iter().map(|(_, count)| count).sum::<u64>(), 1004, "nothing is lost");
        assert_eq!(counter.get(["other", "other"]), 1000 - (LABEL_SETS_MAX as u64 - 2));
    }
}
