//! Credit: arithmetic only.
//!
//! The receiver of a direction grants credit; the sender spends it. For each receive window
//! `credit + queued + consumed == size`, where `queued` waits in the socket's leftover buffer.

use std::time::{Duration, Instant};

use crate::limits::{SLOW_GRANT_AFTER, WINDOW_GUARANTEED, WINDOW_INITIAL, WINDOW_MAX};

/// The largest credit that a peer may build up, in bytes (PROTOCOL.md).
pub const CREDIT_MAX: u32 = i32::MAX as u32;

/// What we may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWindow {
    credit: u32,
}

impl SendWindow {
    /// Starts with the window that the peer announced.
    #[must_use]
    pub const fn new(credit: u32) -> Self {
        Self { credit }
    }

    /// Bytes that may be sent now.
    #[must_use]
    pub const fn available(self) -> u32 {
        self.credit
    }

    /// Spends `bytes`, which were available.
    pub fn spend(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.credit);
        self.credit = self.credit.saturating_sub(bytes);
    }

    /// Adds what the peer granted; false if that is more than a peer may grant.
    #[must_use]
    pub fn add(&mut self, credit: u32) -> bool {
        match self.credit.checked_add(credit) {
            Some(sum) if sum <= CREDIT_MAX => {
                self.credit = sum;
                true
            }
            _ => false,
        }
    }
}

/// What the peer may send, and what it sent that is not consumed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvWindow {
    size: u32,
    credit: u32,
    consumed: u32,
    /// When the window was opened or granted last.
    last_grant: Instant,
    /// It was granted before: the time between grants tells how fast the reader is.
    granted: bool,
}

impl RecvWindow {
    /// The window that every stream starts with. Reserved even if the pool is short: it was announced.
    #[must_use]
    pub fn new(budget: &mut WindowBudget, now: Instant) -> Self {
        budget.used += u64::from(WINDOW_INITIAL);
        Self { size: WINDOW_INITIAL, credit: WINDOW_INITIAL, consumed: 0, last_grant: now, granted: false }
    }

    /// Books received bytes; false if they go beyond the credit.
    #[must_use]
    pub fn receive(&mut self, bytes: u32) -> bool {
        match self.credit.checked_sub(bytes) {
            Some(rest) => {
                self.credit = rest;
                true
            }
            None => false,
        }
    }

    /// Received bytes that the local socket has not taken yet.
    #[must_use]
    pub const fn queued(&self) -> u32 {
        self.size.saturating_sub(self.credit).saturating_sub(self.consumed)
    }

    /// Books bytes that the local socket took.
    pub fn consume(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.queued());
        self.consumed += bytes.min(self.queued());
    }

    /// True if it is worth a frame to return credit: more than half of the window was consumed, or something was
    /// and the sender did not hear of it for a while. It takes credit for the sign that the reader still reads.
    #[must_use]
    pub fn grant_due(&self, now: Instant) -> bool {
        self.consumed > self.size / 2
            || (self.consumed > 0 && now.saturating_duration_since(self.last_grant) >= SLOW_GRANT_AFTER)
    }

    /// Credit to return now. The window doubles while the reader takes it within two round trips (then the
    /// window, not the reader, is the limit), and shrinks towards the guarantee while the pool is short.
    pub fn grant(&mut self, now: Instant, rtt: Duration, budget: &mut WindowBudget) -> u32 {
        let quick = self.granted && now.saturating_duration_since(self.last_grant) < rtt * 2;
        (self.last_grant, self.granted) = (now, true);
        let mut credit = std::mem::take(&mut self.consumed);
        if budget.used > budget.total {
            let less = (self.size - WINDOW_GUARANTEED.min(self.size)).min(credit / 2);
            self.size -= less;
            credit -= less;
            budget.used = budget.used.saturating_sub(u64::from(less));
        } else if quick && self.size < WINDOW_MAX {
            let more = self.size.min(WINDOW_MAX - self.size);
            if budget.used + u64::from(more) <= budget.total {
                budget.used += u64::from(more);
                self.size += more;
                credit += more;
            }
        }
        self.credit += credit;
        credit
    }

    /// Gives the window back to the pool; the stream is gone.
    pub fn release(self, budget: &mut WindowBudget) {
        debug_assert!(budget.used >= u64::from(self.size));
        budget.used = budget.used.saturating_sub(u64::from(self.size));
    }
}

/// All receive windows of the process together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBudget {
    used: u64,
    total: u64,
}

impl WindowBudget {
    /// A pool of `total` bytes.
    #[must_use]
    pub const fn new(total: u64) -> Self {
        Self { used: 0, total }
    }

    /// Bytes reserved by the streams that live. May exceed the total by initial windows only.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::start;
    use proptest::prelude::*;

    #[test]
    fn a_quick_reader_over_a_long_path_gets_a_larger_window() {
        let now = start();
        let mut budget = WindowBudget::new(1 << 30);
        let mut window = RecvWindow::new(&mut budget, start());
        let rtt = Duration::from_millis(100);
        let mut granted = Vec::new();
        for round in 0..10 {
            let bytes = window.credit;
            assert!(window.receive(bytes));
            window.consume(bytes);
            granted.push(window.grant(now + rtt * round, rtt, &mut budget));
        }
        assert_eq!(granted[0], WINDOW_INITIAL, "the first grant has no history");
        assert_eq!(window.size, WINDOW_MAX);
        window.release(&mut budget);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_reader_that_is_the_limit_keeps_its_window() {
        let now = start();
        let mut budget = WindowBudget::new(1 << 30);
        let mut window = RecvWindow::new(&mut budget, now);
        for round in 0..10 {
            assert!(window.receive(40_000));
            window.consume(40_000);
            window.grant(now + Duration::from_secs(round), Duration::from_millis(100), &mut budget);
        }
        assert_eq!(window.size, WINDOW_INITIAL);
    }

    #[test]
    fn a_slow_reader_is_heard_of_long_before_it_consumed_half_a_window() {
        let now = start();
        let mut budget = WindowBudget::new(1 << 30);
        let mut window = RecvWindow::new(&mut budget, now);
        assert!(window.receive(WINDOW_INITIAL));
        assert!(!window.grant_due(now + SLOW_GRANT_AFTER), "it took nothing");
        window.consume(1);
        assert!(!window.grant_due(now + SLOW_GRANT_AFTER - Duration::from_millis(1)));
        let due = now + SLOW_GRANT_AFTER;
        assert!(window.grant_due(due));
        assert_eq!(window.grant(due, Duration::from_millis(10), &mut budget), 1);
        window.consume(1);
        assert!(!window.grant_due(due) && window.grant_due(due + SLOW_GRANT_AFTER));
        window.release(&mut budget);
    }

    #[test]
    fn a_short_pool_shrinks_windows_to_the_guarantee() {
        let now = start();
        let mut budget = WindowBudget::new(u64::from(WINDOW_INITIAL));
        let mut window = RecvWindow::new(&mut budget, start());
        let other = RecvWindow::new(&mut budget, start());
        for _ in 0..20 {
            let bytes = window.credit;
            assert!(window.receive(bytes));
            window.consume(bytes);
            assert!(window.grant(now, Duration::from_secs(1), &mut budget) > 0);
        }
        assert_eq!(window.size, WINDOW_GUARANTEED);
        other.release(&mut budget);
        window.release(&mut budget);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn credit_has_a_ceiling() {
        let mut window = SendWindow::new(10);
        assert!(window.add(CREDIT_MAX - 10));
        assert!(!window.add(1));
        assert!(!SendWindow::new(1).add(u32::MAX));
    }

    proptest! {
        /// Whatever is received, consumed and granted: nothing of the window is lost or made up.
        #[test]
        fn the_window_adds_up(steps in prop::collection::vec((0u32..200_000, 0u32..200_000, any::<bool>()), 1..60)) {
            let mut budget = WindowBudget::new(512 * 1024);
            let mut window = RecvWindow::new(&mut budget, start());
            let mut peer = SendWindow::new(WINDOW_INITIAL);
            let mut queued = 0;
            let mut now = start();
            for (send, take, grant) in steps {
                now += Duration::from_millis(1);
                let send = send.min(peer.available());
                peer.spend(send);
                prop_assert!(window.receive(send));
                queued += send;
                let take = take.min(queued);
                window.consume(take);
                queued -= take;
                if grant {
                    let credit = window.grant(now, Duration::from_millis(10), &mut budget);
                    prop_assert!(peer.add(credit));
                }
                prop_assert_eq!(window.queued(), queued);
                prop_assert_eq!(window.credit, peer.available());
                prop_assert_eq!(budget.used(), u64::from(window.size));
                prop_assert!(window.size >= WINDOW_GUARANTEED && window.size <= WINDOW_MAX);
            }
        }
    }
}
