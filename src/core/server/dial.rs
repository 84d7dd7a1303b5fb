//! One CONNECT from its head to its answer: attempts on links, hedging, failover, one deadline.

use std::time::{Duration, Instant};

use tautline_wire::{CloseCode, DialCode, DialFailure};

use super::backend::Backends;
use crate::core::ids::StreamKey;
use crate::core::role::Effect;
use crate::key::Key;
use crate::limits::DIAL_ATTEMPTS_MAX;

/// One link that was asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) link: Key,
    pub(super) stream: StreamKey,
    sent_at: Instant,
    /// Then the dial goes elsewhere too, unless the link spoke meanwhile.
    hedge_at: Option<Instant>,
}

/// A dial that is not answered yet.
#[derive(Debug)]
pub(super) struct Dial {
    /// `host:port`, normalised.
    pub(super) target: String,
    pub(super) started: Instant,
    /// Then the answer is 504.
    pub(super) deadline: Instant,
    /// While nobody can be asked: then the answer is 503.
    wait_until: Option<Instant>,
    /// It stands in the server's list of dials that wait for an agent.
    pub(super) listed: bool,
    attempts: Vec<Attempt>,
    /// Links that were asked, or lost while asked.
    tried: Vec<Key>,
    /// Those that are asked are silent, and there was nobody else to ask.
    hedge_owed: bool,
    /// The first failure that came back.
    failure: Option<DialFailure>,
}

/// What a dial needs next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing: an attempt runs, or an agent is awaited.
    Pending,
    /// The time is over.
    TimedOut,
    /// Nobody could be asked.
    NoAgent,
    /// Every link that was asked is gone.
    AgentLost,
    /// The agent said no.
    Failed(DialFailure),
}

impl Dial {
    pub(super) fn new(now: Instant, target: String, timeout: Duration) -> Self {
        Self {
            target,
            started: now,
            deadline: now + timeout,
            wait_until: None,
            listed: false,
            attempts: Vec::new(),
            tried: Vec::new(),
            hedge_owed: false,
            failure: None,
        }
    }

    /// Asks one more link, one that was not asked yet. False if there is none.
    fn ask(
        &mut self,
        now: Instant,
        conn: Key,
        backends: &mut Backends,
        effects: &mut impl Extend<Effect>,
    ) -> bool {
        while let Some(link) = backends.pick(&self.tried) {
            self.tried.push(link);
            let left = self.deadline.saturating_duration_since(now);
            let Some(stream) = backends.open(now, link, conn, &self.target, left) else { continue };
            let hedge_delay = backends.get(link).map(|backend| backend.link.liveness().hedge_delay());
            self.attempts.push(Attempt {
                link,
                stream,
                sent_at: now,
                hedge_at: hedge_delay.map(|delay| now + delay),
            });
            effects.extend([Effect::Transmit { link }]);
            self.wait_until = None;
            return true;
        }
        false
    }

    /// Goes on after anything changed: asks somebody if nobody is being asked.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        conn: Key,
        wait: Duration,
        backends: &mut Backends,
        effects: &mut impl Extend<Effect>,
    ) -> Outcome {
        if now >= self.deadline {
            return Outcome::TimedOut;
        }
        self.hedge(now, conn, backends, effects);
        if !self.attempts.is_empty() {
            return Outcome::Pending;
        }
        if let Some(failure) = self.failure.take_if(|failure| !worth_another_agent(failure.code)) {
            return Outcome::Failed(failure);
        }
        if self.tried.len() < DIAL_ATTEMPTS_MAX && self.ask(now, conn, backends, effects) {
            return Outcome::Pending;
        }
        if let Some(failure) = self.failure.take() {
            return Outcome::Failed(failure);
        }
        let wait_until = *self.wait_until.get_or_insert(now + wait);
        match (now >= wait_until, self.tried.is_empty()) {
            (false, _) => Outcome::Pending,
            (true, true) => Outcome::NoAgent,
            (true, false) => Outcome::AgentLost,
        }
    }

    /// No sign of life since the dial went out: it also goes to the next candidate, now or when one comes.
    fn hedge(&mut self, now: Instant, conn: Key, backends: &mut Backends, effects: &mut impl Extend<Effect>) {
        for attempt in &mut self.attempts {
            let heard = backends.get(attempt.link).map(|backend| backend.link.liveness().last_received());
            if heard.is_some_and(|heard| heard > attempt.sent_at) {
                attempt.hedge_at = None;
                self.hedge_owed = false;
            } else if attempt.hedge_at.take_if(|at| now >= *at).is_some() {
                self.hedge_owed = true;
            }
        }
        self.hedge_owed &= !self.attempts.is_empty();
        if self.hedge_owed && self.tried.len() < DIAL_ATTEMPTS_MAX {
            self.hedge_owed = !self.ask(now, conn, backends, effects);
        }
    }

    /// When [`Dial::advance`] wants to be called.
    pub(super) fn poll_timeout(&self) -> Instant {
        let hedge = self.attempts.iter().filter_map(|attempt| attempt.hedge_at).min();
        [self.wait_until, hedge].into_iter().flatten().fold(self.deadline, Instant::min)
    }

    /// True if nobody is being asked, or nobody who speaks: a new link is welcome.
    pub(super) fn waits_for_agent(&self) -> bool {
        self.attempts.is_empty() || self.hedge_owed
    }

    /// Books that a link is gone or said no. False if it was not being asked.
    pub(super) fn attempt_over(
        &mut self,
        link: Key,
        stream: StreamKey,
        failure: Option<DialFailure>,
    ) -> bool {
        let before = self.attempts.len();
        self.attempts.retain(|attempt| attempt.link != link || attempt.stream != stream);
        if let Some(failure) = failure {
            self.failure.get_or_insert(failure);
        }
        self.attempts.len() < before
    }

    /// Takes back what was asked of links, all but `winner`.
    pub(super) fn cancel(
        &self,
        winner: Option<StreamKey>,
        backends: &mut Backends,
        effects: &mut impl Extend<Effect>,
    ) {
        for attempt in self.attempts.iter().filter(|attempt| Some(attempt.stream) != winner) {
            if let Some((link, budget)) = backends.link(attempt.link) {
                link.close(attempt.stream, budget, CloseCode::Cancelled);
                effects.extend([Effect::Transmit { link: attempt.link }]);
            }
        }
    }

    /// True if the dial is being asked of this stream.
    pub(super) fn asks(&self, stream: StreamKey) -> bool {
        self.attempts.iter().any(|attempt| attempt.stream == stream)
    }

    /// Why more than one link was asked, for the metric.
    pub(super) fn failover_reason(&self) -> &'static str {
        match (self.attempts.len() > 1, &self.failure) {
            (true, _) => "hedge",
            (false, Some(_)) => "error",
            (false, None) => "link_lost",
        }
    }

    /// How many links were asked.
    pub(super) fn asked(&self) -> usize {
        self.tried.len()
    }
}

/// True if the failure is about the agent rather than the target.
fn worth_another_agent(code: DialCode) -> bool {
    match code {
        DialCode::ResolverFailed
        | DialCode::NetworkUnreachable
        | DialCode::HostUnreachable
        | DialCode::OutOfDescriptors
        | DialCode::AddressNotAvailable
        | DialCode::TooManyTunnels
        | DialCode::ShuttingDown => true,
        DialCode::Other
        | DialCode::Refused
        | DialCode::TimedOut
        | DialCode::NameNotFound
        | DialCode::Reset
        | DialCode::BadTarget
        | DialCode::Forbidden => false,
    }
}
