//! One ordered set of deadlines. O(log n) to set, O(1) to read the next.

use std::collections::BTreeSet;
use std::time::Instant;

/// Deadlines of many owners, at most one each. The owner keeps the slot that says which one is set.
#[derive(Debug)]
pub struct TimerQueue<K: Ord + Copy> {
    set: BTreeSet<(Instant, K)>,
}

/// What an owner remembers: the deadline that stands in the queue for it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TimerSlot(Option<Instant>);

impl TimerSlot {
    /// The deadline, if one is set.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.0
    }
}

impl<K: Ord + Copy> Default for TimerQueue<K> {
    fn default() -> Self {
        Self { set: BTreeSet::new() }
    }
}

impl<K: Ord + Copy> TimerQueue<K> {
    /// Sets, moves or (with `None`) clears the deadline of `owner`.
    pub fn set(&mut self, owner: K, slot: &mut TimerSlot, at: Option<Instant>) {
        if slot.0 == at {
            return;
        }
        if let Some(old) = slot.0 {
            self.set.remove(&(old, owner));
        }
        if let Some(at) = at {
            self.set.insert((at, owner));
        }
        slot.0 = at;
    }

    /// As [`TimerQueue::set`], but leaves an earlier deadline standing: it fires, and its owner looks again.
    /// For deadlines that every received byte moves.
    pub fn set_lazily(&mut self, owner: K, slot: &mut TimerSlot, at: Option<Instant>) {
        match (slot.0, at) {
            (Some(old), Some(at)) if old <= at => {}
            _ => self.set(owner, slot, at),
        }
    }

    /// Takes the owner of the earliest deadline that is due. The owner must clear its slot ([`TimerQueue::fired`]).
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        let &(at, owner) = self.set.first()?;
        (at <= now).then(|| {
            self.set.pop_first();
            owner
        })
    }

    /// Clears the slot of an owner that [`TimerQueue::pop_due`] gave.
    pub fn fired(slot: &mut TimerSlot) {
        slot.0 = None;
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Number of deadlines set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// True if none is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::start;
    use std::time::Duration;

    #[test]
    fn deadlines_fire_in_order_and_once() {
        let t = start();
        let at = |ms| t + Duration::from_millis(ms);
        let mut queue = TimerQueue::default();
        let (mut a, mut b) = (TimerSlot::default(), TimerSlot::default());
        queue.set(1, &mut a, Some(at(20)));
        queue.set(2, &mut b, Some(at(10)));
        queue.set(1, &mut a, Some(at(5)));
        assert_eq!((queue.len(), queue.next()), (2, Some(at(5))));
        assert_eq!(queue.pop_due(at(4)), None);
        assert_eq!(queue.pop_due(at(10)), Some(1));
        TimerQueue::<u32>::fired(&mut a);
        assert_eq!(queue.pop_due(at(10)), Some(2));
        TimerQueue::<u32>::fired(&mut b);
        assert!(queue.is_empty());
        queue.set(1, &mut a, Some(at(30)));
        queue.set(1, &mut a, None);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_lazy_deadline_only_moves_forward_by_firing() {
        let t = start();
        let mut queue = TimerQueue::default();
        let mut slot = TimerSlot::default();
        queue.set_lazily(1, &mut slot, Some(t));
        queue.set_lazily(1, &mut slot, Some(t + Duration::from_secs(1)));
        assert_eq!(queue.next(), Some(t));
        queue.set_lazily(1, &mut slot, None);
        assert!(queue.is_empty());
    }
}
