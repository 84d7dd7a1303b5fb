//! Which seeds a test runs: `TAUTLINE_SIM_SEED=n` replays one, `TAUTLINE_SIM_SEEDS=n` sets the number.

use crate::marks::Marks;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// Says how to replay when the test panics inside.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with TAUTLINE_SIM_SEED={} (add TAUTLINE_SIM_TRACE=1 for every event)", self.0);
        }
    }
}

/// Runs one simulation a seed and returns the marks of all of them; `None` when one seed is replayed, since
/// one run cannot meet everything.
pub(crate) fn sweep(default_count: u64, mut run: impl FnMut(u64) -> Marks) -> Option<Marks> {
    if let Some(seed) = number("TAUTLINE_SIM_SEED") {
        let _replay = Replay(seed);
        run(seed);
        return None;
    }
    let count = number("TAUTLINE_SIM_SEEDS").unwrap_or(default_count);
    let mut marks = Marks::default();
    for seed in 0..count {
        let _replay = Replay(seed);
        marks.merge(&run(seed));
    }
    (count >= default_count).then_some(marks)
}
