//! How weak the simulated kernel is: everything here is allowed by what `Sys` promises.

use std::time::Duration;

use crate::rng::Rng;

/// Chances are per mille, sizes in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Quirks {
    /// An event is delivered later than its cause, by up to `late_max`.
    pub(crate) late_chance: u32,
    pub(crate) late_max: Duration,
    /// A poll reports a socket to which nothing happened.
    pub(crate) spurious_chance: u32,
    /// New bytes on a socket that was not read dry raise an edge (Linux does it; nobody may count on it).
    pub(crate) extra_edge_chance: u32,
    /// A true hint that nobody may count on is left out.
    pub(crate) missing_hint_chance: u32,
    /// Readable and writable come in two events instead of one.
    pub(crate) split_chance: u32,
    /// At most so many events a poll.
    pub(crate) events_per_poll: usize,
    pub(crate) short_read_chance: u32,
    pub(crate) short_write_chance: u32,
    /// `WouldBlock` although there is room; an edge follows.
    pub(crate) refused_write_chance: u32,
    /// accept(2) reports ECONNABORTED for a connection that was fine.
    pub(crate) accept_abort_chance: u32,
    pub(crate) buffer_min: usize,
    pub(crate) buffer_max: usize,
    /// Largest TCP segment.
    pub(crate) segment_max: usize,
    /// Lowest free descriptor, as Unix does it; else numbers are never used twice.
    pub(crate) reuse_numbers: bool,
}

impl Quirks {
    /// A kernel that does its best: for tests of one rule.
    pub(crate) const fn none() -> Self {
        Self {
            late_chance: 0,
            late_max: Duration::ZERO,
            spurious_chance: 0,
            extra_edge_chance: 0,
            missing_hint_chance: 0,
            split_chance: 0,
            events_per_poll: 1024,
            short_read_chance: 0,
            short_write_chance: 0,
            refused_write_chance: 0,
            accept_abort_chance: 0,
            buffer_min: 64 * 1024,
            buffer_max: 64 * 1024,
            segment_max: 16 * 1024,
            reuse_numbers: true,
        }
    }

    /// Swarm: the seed first draws which quirks exist at all, then how likely they are.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut chance = |max: u64| if rng.chance(600) { rng.between(1, max) as u32 } else { 0 };
        let mut quirks = Self {
            late_chance: chance(300),
            spurious_chance: chance(200),
            extra_edge_chance: chance(1000),
            missing_hint_chance: chance(1000),
            split_chance: chance(500),
            short_read_chance: chance(700),
            short_write_chance: chance(700),
            refused_write_chance: chance(200),
            accept_abort_chance: chance(100),
            ..Self::none()
        };
        quirks.late_max = Duration::from_micros(rng.pick(&[50, 1_000, 20_000]));
        quirks.events_per_poll = rng.pick(&[1, 2, 8, 1024]);
        quirks.buffer_min = rng.pick(&[512, 2048, 16 * 1024]);
        quirks.buffer_max = quirks.buffer_min * rng.pick(&[1, 4, 16]);
        quirks.segment_max = rng.pick(&[100, 536, 1448, 16 * 1024]);
        quirks.reuse_numbers = rng.chance(700);
        quirks
    }
}
