//! Log lines that a peer can cause are limited: a scanner must not fill a disk, and the next line tells how
//! many were left out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Addresses that have their own allowance at one time.
const ADDRESSES_MAX: usize = 256;

/// What an allowance is for: a kind of line, perhaps from one address.
type Subject = (&'static str, Option<IpAddr>);

#[derive(Debug)]
struct Allowance {
    since: Instant,
    passed: u32,
    suppressed: u64,
}

/// At most so many lines of a kind in an interval. Kinds are names in the code, so their number is bounded;
/// addresses are bounded by a table: when it is full of fresh ones, further addresses share the
/// allowance of the kind.
#[derive(Debug)]
pub struct LogLimit {
    lines_max: u32,
    interval: Duration,
    allowances: BTreeMap<Subject, Allowance>,
    addresses: usize,
    /// A full table is searched for old entries at most once an interval: a flood must not cost a search a line.
    next_sweep: Option<Instant>,
}

impl LogLimit {
    /// Passes `lines_max` lines of each kind (and address) in each `interval`.
    #[must_use]
    pub const fn new(lines_max: u32, interval: Duration) -> Self {
        Self { lines_max, interval, allowances: BTreeMap::new(), addresses: 0, next_sweep: None }
    }

    /// Whether a line may be written: `Some(n)` = yes, and `n` lines like it were left out since the last one.
    pub fn pass(&mut self, now: Instant, kind: &'static str, address: Option<IpAddr>) -> Option<u64> {
        let subject = self.subject(now, kind, address);
        let fresh = Allowance { since: now, passed: 0, suppressed: 0 };
        let allowance = self.allowances.entry(subject).or_insert(fresh);
        if now.saturating_duration_since(allowance.since) >= self.interval {
            allowance.since = now;
            allowance.passed = 0;
        }
        if allowance.passed >= self.lines_max {
            allowance.suppressed = allowance.suppressed.saturating_add(1);
            return None;
        }
        allowance.passed += 1;
        Some(std::mem::take(&mut allowance.suppressed))
    }

    /// The allowance to use: the address's own one, if it has one or there is room.
    fn subject(&mut self, now: Instant, kind: &'static str, address: Option<IpAddr>) -> Subject {
        let subject = (kind, address);
        if address.is_none() || self.allowances.contains_key(&subject) {
            return subject;
        }
        if self.addresses >= ADDRESSES_MAX {
            self.sweep(now);
        }
        if self.addresses >= ADDRESSES_MAX {
            return (kind, None);
        }
        self.addresses += 1;
        subject
    }

    /// Forgets addresses whose interval is over. What they left out is told by the next line of the kind.
    fn sweep(&mut self, now: Instant) {
        if self.next_sweep.is_some_and(|next| now < next) {
            return;
        }
        self.next_sweep = now.checked_add(self.interval);
        let interval = self.interval;
        let mut left_out: BTreeMap<&'static str, u64> = BTreeMap::new();
        self.allowances.retain(|(kind, address), allowance| {
            let keep = address.is_none() || now.saturating_duration_since(allowance.since) < interval;
            if !keep && allowance.suppressed > 0 {
                *left_out.entry(kind).or_default() += allowance.suppressed;
            }
            keep
        });
        self.addresses = self.allowances.keys().filter(|(_, address)| address.is_some()).count();
        for (kind, count) in left_out {
            let fresh = Allowance { since: now, passed: 0, suppressed: 0 };
            self.allowances.entry((kind, None)).or_insert(fresh).suppressed += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[expect(clippy::disallowed_methods, reason = "any instant serves as the origin")]
    fn origin() -> Instant {
        Instant::now()
    }

    fn address(number: u32) -> Option<IpAddr> {
        Some(Ipv4Addr::from_bits(number).into())
    }

    #[test]
    fn passes_some_and_tells_the_rest() {
        let start = origin();
        let mut limit = LogLimit::new(2, MINUTE);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(limit.pass(at(0), "refused", None), Some(0));
        assert_eq!(limit.pass(at(1), "refused", None), Some(0));
        assert_eq!(limit.pass(at(2), "refused", None), None);
        assert_eq!(limit.pass(at(59), "refused", None), None);
        assert_eq!(limit.pass(at(59), "other kind", None), Some(0));
        assert_eq!(limit.pass(at(60), "refused", None), Some(2));
        assert_eq!(limit.pass(at(61), "refused", None), Some(0), "told once");
        assert_eq!(limit.pass(at(62), "refused", None), None);
        assert_eq!(limit.pass(at(10), "refused", None), None, "an earlier instant is no new interval");
    }

    #[test]
    fn addresses_have_their_own_allowance_until_the_table_is_full() {
        let start = origin();
        let mut limit = LogLimit::new(1, MINUTE);
        for number in 0..ADDRESSES_MAX as u32 {
            assert_eq!(limit.pass(start, "scan", address(number)), Some(0), "{number}");
            assert_eq!(limit.pass(start, "scan", address(number)), None);
        }
        // One of 10 000 further addresses gets through, all together.
        let passed =
            (1000..11_000).filter(|number| limit.pass(start, "scan", address(*number)).is_some()).count();
        assert_eq!(passed, 1);
        assert_eq!(limit.allowances.len(), ADDRESSES_MAX + 1);
        assert_eq!(limit.pass(start, "scan", None), None, "they used the kind's own one");
    }

    #[test]
    fn old_addresses_make_room_and_what_they_left_out_is_told() {
        let start = origin();
        let mut limit = LogLimit::new(1, MINUTE);
        for number in 0..ADDRESSES_MAX as u32 {
            limit.pass(start, "scan", address(number));
            limit.pass(start, "scan", address(number));
        }
        let later = start + MINUTE;
        assert_eq!(limit.pass(later, "scan", address(5000)), Some(0));
        assert_eq!(limit.pass(later, "scan", None), Some(ADDRESSES_MAX as u64));
        assert_eq!(limit.addresses, 1);
        assert_eq!(limit.allowances.len(), 2);
    }
}
