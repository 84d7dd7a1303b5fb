//! One CONNECT from its head to its answer: attempts on links, hedging, failover, one deadline.

use std::time::{Duration, Instant};

use tautline_wire::{CloseCode, DialCode, DialFailure};

use super::backend::{Backend, Backends, Opened};
use crate::core::ids::StreamKey;
use crate::core::role::Effect;
use crate::key::Key;
use crate::limits::{
    ANSWER_GRACE, DIAL_ANSWER_RESERVE, DIAL_ATTEMPTS_MAX, DIAL_LOOK_PAUSE_MAX, HEDGE_DELAY_MIN,
    TARGET_CONNECT_TIMEOUT,
};

/// One link that was asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) link: Key,
    pub(super) stream: StreamKey,
    /// When the link had last spoken, as the last look (or the dial) saw it.
    known: Instant,
    /// It was asked for a sign of life since.
    probed: bool,
    /// Then it is looked at again.
    look_at: Instant,
    /// How long after that look the next one comes.
    pause: Duration,
    silence: Silence,
    /// Then an agent that speaks, but not of this dial, has failed.
    answer_by: Instant,
}

/// What a look at an attempt found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    /// The link spoke, or was not looked at yet.
    Heard,
    /// It did not, though asked: the dial must go elsewhere too.
    Owed,
    /// And so it did.
    Hedged,
}

impl Attempt {
    /// Looks whether the link spoke. An agent may fall silent at any time, so looks go on, less and less often, and
    /// each one asks for a sign of life that the next one wants to see. True if it asked.
    fn look(&mut self, now: Instant, backend: &mut Backend) -> bool {
        let heard = backend.link.liveness().last_received();
        let spoke = heard > self.known;
        if spoke {
            self.silence = Silence::Heard;
        }
        if now < self.look_at {
            return false;
        }
        self.look_at = now + self.pause;
        if spoke || !self.probed {
            if spoke {
                self.pause = (self.pause * 2).min(DIAL_LOOK_PAUSE_MAX);
            }
            (self.known, self.probed) = (heard, true);
            backend.link.probe(now);
            return true;
        }
        if self.silence == Silence::Heard {
            self.silence = Silence::Owed;
        }
        false
    }
}

/// Why an attempt failed.
#[derive(Debug)]
struct Failed {
    failure: DialFailure,
    /// It is about the agent: another one may do better.
    try_elsewhere: bool,
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
    /// The failure that is told if nobody succeeds.
    failure: Option<Failed>,
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
        while let Some(link) = backends.pick(now, &self.tried) {
            self.tried.push(link);
            let left = self.deadline.saturating_duration_since(now);
            let Some(Opened { stream, heard, probed, hedge_delay: pause }) =
                backends.open(now, link, conn, &self.target, left)
            else {
                continue;
            };
            self.attempts.push(Attempt {
                link,
                stream,
                known: heard,
                probed,
                look_at: now + pause,
                pause,
                silence: Silence::Heard,
                answer_by: now + connect_limit(left) + ANSWER_GRACE,
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
        self.give_up_on_mute(now, backends, effects);
        if !self.attempts.is_empty() {
            return Outcome::Pending;
        }
        if let Some(failed) = self.failure.take_if(|failed| !failed.try_elsewhere) {
            return Outcome::Failed(failed.failure);
        }
        if self.tried.len() < DIAL_ATTEMPTS_MAX && self.ask(now, conn, backends, effects) {
            return Outcome::Pending;
        }
        if let Some(failed) = self.failure.take() {
            return Outcome::Failed(failed.failure);
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
            if let Some(backend) = backends.get_mut(attempt.link)
                && attempt.look(now, backend)
            {
                effects.extend([Effect::Transmit { link: attempt.link }]);
            }
        }
        if self.hedge_owed() && self.tried.len() < DIAL_ATTEMPTS_MAX && self.ask(now, conn, backends, effects)
        {
            for attempt in &mut self.attempts {
                if attempt.silence == Silence::Owed {
                    attempt.silence = Silence::Hedged;
                }
            }
        }
    }

    /// Those that are asked are silent, and there was nobody else to ask.
    fn hedge_owed(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.silence == Silence::Owed)
    }

    /// An agent that answers PINGs but not the dial, not even with "timed out", is not well: its attempt is over, and
    /// it is avoided for a while.
    fn give_up_on_mute(&mut self, now: Instant, backends: &mut Backends, effects: &mut impl Extend<Effect>) {
        let mute = |attempt: &mut Attempt| {
            if now < attempt.answer_by || attempt.silence == Silence::Heard {
                return now >= attempt.answer_by;
            }
            // Whether it is dead is for its link to say.
            attempt.answer_by = attempt.look_at.max(now + HEDGE_DELAY_MIN);
            false
        };
        for Attempt { link, stream, .. } in self.attempts.extract_if(.., mute) {
            if let Some((mux, budget)) = backends.link(link) {
                mux.close(stream, budget, CloseCode::Cancelled);
                effects.extend([Effect::Transmit { link }]);
            }
            backends.strike(now, link);
            let text = format!("an agent did not answer the dial of {}", self.target);
            let failure = DialFailure { code: DialCode::TimedOut, text };
            self.failure.get_or_insert(Failed { failure, try_elsewhere: true });
        }
    }

    /// When [`Dial::advance`] wants to be called.
    pub(super) fn poll_timeout(&self) -> Instant {
        let attempts = self.attempts.iter().map(|attempt| attempt.look_at.min(attempt.answer_by));
        self.wait_until.into_iter().chain(attempts).fold(self.deadline, Instant::min)
    }

    /// True if nobody is being asked, or nobody who speaks: a new link is welcome.
    pub(super) fn waits_for_agent(&self) -> bool {
        self.attempts.is_empty() || self.hedge_owed()
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
            let try_elsewhere = worth_another_agent(failure.code);
            // The first one counts, but what is said of the target counts more than an agent's own trouble.
            if self.failure.as_ref().is_none_or(|before| before.try_elsewhere && !try_elsewhere) {
                self.failure = Some(Failed { failure, try_elsewhere });
            }
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

/// How long an agent tries, of the time that is left to the dial.
fn connect_limit(left: Duration) -> Duration {
    TARGET_CONNECT_TIMEOUT.min(left.saturating_sub(DIAL_ANSWER_RESERVE))
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
