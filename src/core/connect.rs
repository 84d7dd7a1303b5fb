//! One connect over several addresses (RFC 8305): families in turn, the next address after a delay or a
//! failure, the first success wins, one deadline for all.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use tautline_wire::DialCode;

use super::ids::JobId;
use crate::limits::{CONNECT_ADDRESSES_MAX, CONNECT_ATTEMPT_DELAY};

/// Why a look-up or connect failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind, as it goes over the wire.
    pub code: DialCode,
    /// For people.
    pub text: String,
}

impl Failure {
    /// A failure with a text.
    #[must_use]
    pub fn new(code: DialCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a race wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Start a connect to this address and tell [`Race::started`].
    Connect(SocketAddr),
    /// Nothing before [`Race::poll_timeout`] or an answer.
    Wait,
    /// All failed, or the time is over. Cancel what still runs ([`Race::running`]).
    Failed(Failure),
}

/// One connect over several addresses.
#[derive(Debug)]
pub struct Race {
    waiting: VecDeque<SocketAddr>,
    running: Vec<(JobId, SocketAddr)>,
    next_at: Instant,
    deadline: Instant,
    failure: Option<Failure>,
}

impl Race {
    /// A race to `addresses`, in resolver order, with one `deadline`.
    #[must_use]
    pub fn new(now: Instant, addresses: Vec<SocketAddr>, deadline: Instant) -> Self {
        Self { waiting: interleave(addresses), running: Vec::new(), next_at: now, deadline, failure: None }
    }

    /// What to do now. Ask again until it says [`Step::Wait`] or [`Step::Failed`].
    pub fn step(&mut self, now: Instant) -> Step {
        if now >= self.deadline {
            return Step::Failed(self.failure.clone().unwrap_or_else(|| {
                Failure::new(DialCode::TimedOut, format!("no answer from {}", self.names()))
            }));
        }
        if now >= self.next_at || self.running.is_empty() {
            if let Some(address) = self.waiting.pop_front() {
                self.next_at = now + CONNECT_ATTEMPT_DELAY;
                return Step::Connect(address);
            }
            if self.running.is_empty() {
                return Step::Failed(
                    self.failure
                        .take()
                        .unwrap_or_else(|| Failure::new(DialCode::NameNotFound, "the name has no address")),
                );
            }
        }
        Step::Wait
    }

    /// A connect to `address` was started as `job`.
    pub fn started(&mut self, job: JobId, address: SocketAddr) {
        self.running.push((job, address));
    }

    /// A connect failed. The first failure is what is reported: it is of the preferred address.
    pub fn failed(&mut self, job: JobId, failure: Failure) {
        self.running.retain(|(running, _)| *running != job);
        self.failure.get_or_insert(failure);
    }

    /// A connect succeeded. Cancel the others ([`Race::running`]).
    pub fn succeeded(&mut self, job: JobId) -> Option<SocketAddr> {
        let index = self.running.iter().position(|(running, _)| *running == job)?;
        Some(self.running.swap_remove(index).1)
    }

    /// The connects that still run.
    pub fn running(&self) -> impl Iterator<Item = JobId> + '_ {
        self.running.iter().map(|(job, _)| *job)
    }

    /// When [`Race::step`] wants to be called, if no answer comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        if self.waiting.is_empty() { self.deadline } else { self.deadline.min(self.next_at) }
    }

    fn names(&self) -> String {
        let all: Vec<String> = self.running.iter().map(|(_, address)| address.to_string()).collect();
        all.join(", ")
    }
}

/// RFC 8305 section 4: the families take turns, the resolver's first one first.
fn interleave(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let mut order = VecDeque::new();
    while order.len() < CONNECT_ADDRESSES_MAX {
        match (first.pop_front(), second.pop_front()) {
            (None, None) => break,
            (a, b) => order.extend(a.into_iter().chain(b)),
        }
    }
    order.truncate(CONNECT_ADDRESSES_MAX);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::start;
    use std::time::Duration;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn race(now: Instant, texts: &[&str]) -> Race {
        Race::new(now, texts.iter().map(|text| address(text)).collect(), now + Duration::from_secs(5))
    }

    #[test]
    fn families_take_turns_and_the_next_one_starts_after_the_delay() {
        let t = start();
        let mut race = race(t, &["[::1]:1", "[::2]:1", "1.1.1.1:1"]);
        assert_eq!(race.step(t), Step::Connect(address("[::1]:1")));
        race.started(JobId(1), address("[::1]:1"));
        assert_eq!(race.step(t), Step::Wait);
        assert_eq!(race.poll_timeout(), t + CONNECT_ATTEMPT_DELAY);
        let t2 = t + CONNECT_ATTEMPT_DELAY;
        assert_eq!(race.step(t2), Step::Connect(address("1.1.1.1:1")));
        race.started(JobId(2), address("1.1.1.1:1"));
        assert_eq!(race.succeeded(JobId(2)), Some(address("1.1.1.1:1")));
        assert_eq!(race.running().collect::<Vec<_>>(), [JobId(1)]);
    }

    #[test]
    fn a_failure_starts_the_next_one_at_once_and_the_first_is_reported() {
        let t = start();
        let mut race = race(t, &["1.1.1.1:1", "1.1.1.2:1"]);
        for job in [1, 2] {
            let Step::Connect(to) = race.step(t) else { panic!() };
            race.started(JobId(job), to);
            race.failed(JobId(job), Failure::new(DialCode::Refused, format!("{to} refused")));
        }
        assert_eq!(race.step(t), Step::Failed(Failure::new(DialCode::Refused, "1.1.1.1:1 refused")));
    }

    #[test]
    fn one_deadline_for_all_addresses() {
        let t = start();
        let mut race = race(t, &["1.1.1.1:1"]);
        let Step::Connect(to) = race.step(t) else { panic!() };
        race.started(JobId(1), to);
        let Step::Failed(failure) = race.step(t + Duration::from_secs(5)) else { panic!() };
        assert_eq!(failure.code, DialCode::TimedOut);
        assert!(failure.text.contains("1.1.1.1:1"));
    }

    #[test]
    fn no_address_at_all_is_a_failure() {
        let t = start();
        assert!(matches!(race(t, &[]).step(t), Step::Failed(_)));
    }
}
