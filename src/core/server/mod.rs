//! The server: frontends ask for targets, agents' links reach them. Pure; see [`crate::core::role`].
//!
//! A frontend is `ReadingHead -> Dialing -> Tunnel` or ends with an answer on the way; its connection is the
//! driver's. What it holds (attempts, a stream) is given back on every path out of the table.

mod backend;
mod dial;
mod links;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tautline_wire::{CloseCode, DialFailure, GoAway, GoAwayCode};

use self::backend::{Backend, Backends, Room};
use self::dial::{Dial, Outcome};
use super::connect::Failure;
use super::drain::Drain;
use super::http::admin::respond;
use super::http::head::{Head, HeadReader};
use super::http::target::Target;
use super::http::{self, Method, Status, answer, dial_status};
use super::ids::{JobId, StreamKey};
use super::metrics::{ClosedBy, DialFailureReason, ServerMetrics};
use super::mux::{Link, LinkError, LivenessConfig, Origin, StreamEnd, WindowBudget};
use super::note::{Level, Note, Quoted, Seconds, name_of};
use super::ratelimit::LogLimit;
use super::role::{AdminStep, Door, Effect, HeadStep, Lost, Manner, ProcessReport, Role};
use super::timers::{TimerQueue, TimerSlot};
use crate::key::{Key, KeyMap};
use crate::limits::{HEAD_PATIENCE, HEAD_TIMEOUT, LOG_INTERVAL, LOG_LINES_PER_KIND, PENDING_DIALS_MAX};
use crate::token::{Secret, Verdict};

/// What a server needs to know.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// `--server-id`.
    pub server_id: String,
    /// `--server-count`, passed on to agents.
    pub server_count: u32,
    /// How links are judged.
    pub liveness: LivenessConfig,
    /// `--backend-dial-timeout`.
    pub dial_timeout: Duration,
    /// `--dial-wait`.
    pub dial_wait: Duration,
    /// `--graceful-shutdown-timeout`: how long tunnels may go on after SIGTERM; zero ends at once.
    pub drain_timeout: Duration,
    /// Frontends at once; more get 503.
    pub max_tunnels: usize,
    /// Links that have not said HELLO yet; one more evicts the oldest.
    pub greetings_max: usize,
    /// Agents must show a token, and it is judged.
    pub reviews_tokens: bool,
    /// Spreads choices; unknown to peers.
    pub seed: u64,
}

enum State {
    ReadingHead { reader: HeadReader, deadline: Instant },
    Dialing(Box<Dial>),
    Tunnel { stream: StreamKey, since: Instant },
}

struct Frontend {
    state: State,
    timer: TimerSlot,
    /// Nobody knows who is on a Unix socket.
    from: Option<SocketAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TimerOwner {
    Drain,
    Frontend(Key),
    Backend(Key),
}

/// The server.
pub struct Server {
    config: ServerConfig,
    backends: Backends,
    frontends: KeyMap<Frontend>,
    pending_dials: usize,
    tunnels: usize,
    /// Frontends in the order in which they came, from the first one on that owes its head: those of the last
    /// [`HEAD_TIMEOUT`] at most.
    reading: VecDeque<Key>,
    /// Frontends whose dial waits for an agent, and maybe some that do not any more.
    waiting: Vec<Key>,
    /// Links whose token is being judged: at most as many as strangers may be.
    reviews: HashMap<JobId, Key>,
    next_review: u64,
    timers: TimerQueue<TimerOwner>,
    effects: VecDeque<Effect>,
    metrics: ServerMetrics,
    limit: LogLimit,
    /// SIGTERM came.
    drain: Option<Drain>,
    drain_timer: TimerSlot,
    finished: bool,
}

impl Server {
    /// A server with empty tables.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self {
            backends: Backends::new(config.liveness, config.greetings_max, config.seed),
            config,
            frontends: KeyMap::default(),
            pending_dials: 0,
            tunnels: 0,
            reading: VecDeque::new(),
            waiting: Vec::new(),
            reviews: HashMap::new(),
            next_review: 0,
            timers: TimerQueue::default(),
            effects: VecDeque::new(),
            metrics: ServerMetrics::default(),
            limit: LogLimit::new(LOG_LINES_PER_KIND, LOG_INTERVAL),
            drain: None,
            drain_timer: TimerSlot::default(),
            finished: false,
        }
    }

    fn note(&mut self, level: Level, text: String) {
        self.effects.push_back(Effect::Note(Note { level, text }));
    }

    /// A line that a peer can cause: a few a second, then a count.
    fn note_limited(&mut self, now: Instant, kind: &'static str, level: Level, text: String) {
        if let Some(suppressed) = self.limit.pass(now, kind, None) {
            let text = if suppressed > 0 { format!("{text} suppressed={suppressed}") } else { text };
            self.note(level, text);
        } else {
            self.metrics.common.log_lines_suppressed.inc();
        }
    }

    fn begin_dial(&mut self, now: Instant, conn: Key, target: &Target) {
        if self.pending_dials >= PENDING_DIALS_MAX {
            self.metrics.common.limits_hit.inc(["pending_dials"]);
            return self.refuse(now, conn, Status::ServiceUnavailable, "too many dials are pending");
        }
        let dial = Dial::new(now, target.to_string(), self.config.dial_timeout);
        if let Some(frontend) = self.frontends.get_mut(conn) {
            frontend.state = State::Dialing(Box::new(dial));
            self.pending_dials += 1;
            self.advance_dial(now, conn);
        }
    }

    /// Lets a dial go on, and answers it if it is over.
    fn advance_dial(&mut self, now: Instant, conn: Key) {
        let Some(frontend) = self.frontends.get_mut(conn) else { return };
        let State::Dialing(dial) = &mut frontend.state else { return };
        let asked = dial.asked();
        let outcome = dial.advance(now, conn, self.config.dial_wait, &mut self.backends, &mut self.effects);
        let more = dial.asked().saturating_sub(asked.max(1)) as u64;
        if more > 0 {
            self.metrics.dial_failovers.add([dial.failover_reason()], more);
        }
        let target = dial.target.clone();
        let (reason, status, text) = match outcome {
            Outcome::Pending => {
                let at = dial.poll_timeout();
                self.timers.set(TimerOwner::Frontend(conn), &mut frontend.timer, Some(at));
                if dial.waits_for_agent() && !std::mem::replace(&mut dial.listed, true) {
                    self.list_waiting(conn);
                }
                return;
            }
            Outcome::TimedOut => (
                DialFailureReason::BackendDialTimeout,
                Status::GatewayTimeout,
                format!("no answer from an agent for {target}"),
            ),
            Outcome::NoAgent => (
                DialFailureReason::NoAgent,
                Status::ServiceUnavailable,
                "no agent is connected; see the log of the agents and the port of --agent-port".to_owned(),
            ),
            Outcome::AgentLost => (
                DialFailureReason::BackendClose,
                Status::BadGateway,
                format!("the agent was lost while it dialled {target}"),
            ),
            Outcome::Failed(DialFailure { code, text }) => {
                self.metrics.common.dial_errors.inc([dial_status::label(code)]);
                (DialFailureReason::ErrorResponse, dial_status::status(code), text)
            }
        };
        self.metrics.dial_failed(reason);
        let reason = reason.label();
        self.note_limited(
            now,
            reason,
            Level::Warn,
            format!("msg=\"dial failed\" target={} reason={reason} error={}", Quoted(&target), Quoted(&text)),
        );
        self.answer(conn, answer::error(status, &text));
    }

    /// Dials leave the list only when an agent comes; those that ended before are swept out now and then.
    fn list_waiting(&mut self, conn: Key) {
        if self.waiting.len() > 2 * self.pending_dials + 64 {
            let frontends = &self.frontends;
            self.waiting.retain(|&conn| frontends.get(conn).is_some());
        }
        self.waiting.push(conn);
    }

    fn refuse(&mut self, now: Instant, conn: Key, status: Status, text: &str) {
        let client = self.client_name(conn);
        self.note_limited(
            now,
            status.reason(),
            Level::Info,
            format!(
                "msg=\"request refused\" client={client} status={} error={}",
                status.code(),
                Quoted(text)
            ),
        );
        self.answer(conn, answer::error(status, text));
    }

    /// One frontend more than may be: whoever is silent goes first, else the newcomer.
    fn make_room(&mut self, now: Instant, newcomer: Key) {
        match self.longest_silent(now) {
            Some(silent) => {
                self.refuse(now, silent, Status::RequestTimeout, "silent, and others need the room");
            }
            None => {
                let text = "too many tunnels (--max-tunnels, and the limit of open files)";
                self.refuse(now, newcomer, Status::ServiceUnavailable, text);
            }
        }
    }

    fn list_reading(&mut self, conn: Key) {
        while let Some(&oldest) = self.reading.front()
            && self.reading_until(oldest).is_none()
        {
            self.reading.pop_front();
        }
        self.reading.push_back(conn);
    }

    fn reading_until(&self, conn: Key) -> Option<Instant> {
        match self.frontends.get(conn)?.state {
            State::ReadingHead { deadline, .. } => Some(deadline),
            _ => None,
        }
    }

    /// The frontend that owes its head for the longest time, if that is more than a moment.
    fn longest_silent(&self, now: Instant) -> Option<Key> {
        let oldest = *self.reading.front()?;
        let since = self.reading_until(oldest)? - HEAD_TIMEOUT;
        (now.saturating_duration_since(since) >= HEAD_PATIENCE).then_some(oldest)
    }

    fn client_name(&self, conn: Key) -> String {
        name_of(self.frontends.get(conn).and_then(|frontend| frontend.from))
    }

    /// The last words to a frontend; it leaves the table.
    fn answer(&mut self, conn: Key, bytes: Vec<u8>) {
        self.forget_frontend(conn, None);
        self.effects.push_back(Effect::Answer { conn, bytes: bytes.into() });
    }

    /// Takes a frontend out, and takes back what it asked of links, but for `winner`.
    fn forget_frontend(&mut self, conn: Key, winner: Option<StreamKey>) -> Option<State> {
        let Frontend { state, mut timer, .. } = self.frontends.remove(conn)?;
        self.timers.set(TimerOwner::Frontend(conn), &mut timer, None);
        match &state {
            State::ReadingHead { .. } => {}
            State::Dialing(dial) => {
                self.pending_dials -= 1;
                dial.cancel(winner, &mut self.backends, &mut self.effects);
            }
            State::Tunnel { .. } => self.tunnels -= 1,
        }
        Some(state)
    }

    fn on_opened(&mut self, now: Instant, link: Key, conn: Key, stream: StreamKey) {
        let wanted = self
            .frontends
            .get(conn)
            .is_some_and(|frontend| matches!(&frontend.state, State::Dialing(dial) if dial.asks(stream)));
        if !wanted {
            if let Some((mux, budget)) = self.backends.link(link) {
                mux.close(stream, budget, CloseCode::Cancelled);
                self.effects.push_back(Effect::Transmit { link });
            }
            return;
        }
        let from = self.frontends.get(conn).and_then(|frontend| frontend.from);
        let Some(State::Dialing(dial)) = self.forget_frontend(conn, Some(stream)) else { return };
        self.metrics.dial_duration.observe(now.saturating_duration_since(dial.started));
        let state = State::Tunnel { stream, since: now };
        self.frontends.insert(conn, Frontend { state, timer: TimerSlot::default(), from });
        self.tunnels += 1;
        self.effects.push_back(Effect::Bridge { conn, link, stream, answer: Some(answer::established()) });
    }

    /// An attempt of a dial came to nothing.
    fn attempt_over(
        &mut self,
        now: Instant,
        link: Key,
        conn: Key,
        stream: StreamKey,
        failure: Option<DialFailure>,
    ) {
        let Some(frontend) = self.frontends.get_mut(conn) else { return };
        let State::Dialing(dial) = &mut frontend.state else { return };
        if dial.attempt_over(link, stream, failure) {
            self.advance_dial(now, conn);
        }
    }

    /// A stream ended under a frontend: of a dial, or of a tunnel.
    fn on_ended(&mut self, now: Instant, link: Key, conn: Key, stream: StreamKey, end: StreamEnd) {
        let Some(frontend) = self.frontends.get(conn) else { return };
        match &frontend.state {
            State::Tunnel { stream: mine, .. } if *mine == stream => {
                let (by, reason, manner) = account(end);
                self.end_tunnel(now, conn, by, reason, manner);
            }
            State::Dialing(dial) if dial.asks(stream) => self.attempt_over(now, link, conn, stream, None),
            _ => {}
        }
    }

    fn end_tunnel(&mut self, now: Instant, conn: Key, by: ClosedBy, reason: &'static str, manner: Manner) {
        let Some(State::Tunnel { since, .. }) = self.forget_frontend(conn, None) else { return };
        self.metrics.common.tunnel_closed(by, reason);
        self.metrics.connection_duration.observe(now.saturating_duration_since(since));
        self.effects.push_back(Effect::Close { conn, manner });
    }

    fn on_frontend_timeout(&mut self, now: Instant, conn: Key) {
        let Some(frontend) = self.frontends.get_mut(conn) else { return };
        TimerQueue::<TimerOwner>::fired(&mut frontend.timer);
        match &frontend.state {
            State::ReadingHead { deadline, .. } if now >= *deadline => {
                self.refuse(
                    now,
                    conn,
                    Status::RequestTimeout,
                    "the request head was not complete within 10 s",
                );
            }
            State::ReadingHead { .. } | State::Tunnel { .. } => {}
            State::Dialing(_) => self.advance_dial(now, conn),
        }
    }

    /// Tells the agents, and lives on, for new dials too, until nothing is alive or the limit is reached.
    fn begin_drain(&mut self, now: Instant) {
        for conn in self.backends.keys() {
            if let Some(backend) = self.backends.get_mut(conn)
                && backend.link.is_open()
            {
                backend.link.drain();
                self.effects.push_back(Effect::Transmit { link: conn });
            }
        }
        let limit = Seconds(self.config.drain_timeout);
        let (links, tunnels) = (self.backends.len(), self.tunnels);
        self.note(
            Level::Info,
            format!("msg=\"server drains\" links={links} tunnels={tunnels} limit={limit}"),
        );
        self.drain = Some(Drain::new(now, self.config.drain_timeout));
        self.look_at_drain(now);
    }

    fn look_at_drain(&mut self, now: Instant) {
        let busy = self.tunnels + self.pending_dials > 0;
        let Some(drain) = &mut self.drain else { return };
        if drain.look(now, busy).is_some() {
            return self.finish(now);
        }
        let at = drain.next_look(now);
        self.timers.set(TimerOwner::Drain, &mut self.drain_timer, Some(at));
    }

    /// Says goodbye on each link, and ends.
    fn finish(&mut self, now: Instant) {
        self.note(
            Level::Info,
            format!("msg=\"server ends\" links={} tunnels={}", self.backends.len(), self.tunnels),
        );
        self.timers.set(TimerOwner::Drain, &mut self.drain_timer, None);
        for conn in self.backends.keys() {
            self.dismiss(now, conn, GoAwayCode::Shutdown, "the server ends");
        }
        self.finished = true;
    }

    /// What must hold between calls.
    fn check_invariants(&self) {
        #[cfg(debug_assertions)]
        {
            self.backends.check_invariants();
            let count =
                |which: fn(&State) -> bool| self.frontends.iter().filter(|(_, f)| which(&f.state)).count();
            assert_eq!(count(|state| matches!(state, State::Dialing(_))), self.pending_dials);
            assert_eq!(count(|state| matches!(state, State::Tunnel { .. })), self.tunnels);
        }
    }
}

/// Who ended a tunnel and why, for the metric, and how the frontend's connection follows.
fn account(end: StreamEnd) -> (ClosedBy, &'static str, Manner) {
    match end {
        StreamEnd::Finished { first: Origin::Here } => (ClosedBy::Client, "finished", Manner::Flush),
        StreamEnd::Finished { first: Origin::There } => (ClosedBy::Target, "finished", Manner::Flush),
        StreamEnd::ClosedHere(code @ CloseCode::Protocol) => (ClosedBy::Agent, code.name(), Manner::Abort),
        StreamEnd::ClosedHere(code @ CloseCode::TimedOut) => (ClosedBy::Server, code.name(), Manner::Abort),
        StreamEnd::ClosedHere(code) => (ClosedBy::Client, code.name(), Manner::Abort),
        StreamEnd::ClosedThere(code @ CloseCode::Normal) => (ClosedBy::Target, code.name(), Manner::Flush),
        StreamEnd::ClosedThere(code @ CloseCode::Reset) => {
            (ClosedBy::Target, code.name(), Manner::FlushThenReset)
        }
        StreamEnd::ClosedThere(code) => (ClosedBy::Agent, code.name(), Manner::FlushThenReset),
    }
}

fn peer_name(backend: &Backend) -> String {
    name_of(backend.from)
}

impl Role for Server {
    fn link(&mut self, conn: Key) -> Option<(&mut Link, &mut WindowBudget)> {
        self.backends.link(conn)
    }

    fn is_full(&self, now: Instant, door: Door) -> bool {
        door == Door::Agents && self.backends.room(now) == Room::None
    }

    fn on_accept(&mut self, now: Instant, door: Door, conn: Key, from: Option<SocketAddr>) -> bool {
        match door {
            Door::Agents => {
                if let Room::Of(oldest) = self.backends.room(now) {
                    self.metrics.common.limits_hit.inc(["unauthenticated_links"]);
                    let text = "too many links have not said HELLO: this one was the oldest";
                    self.drop_backend(now, oldest, GoAwayCode::TooMany.name(), text);
                    self.effects.push_back(Effect::Close { conn: oldest, manner: Manner::Abort });
                }
                self.metrics.links_accepted.inc();
                self.backends.accept(now, conn, from);
                self.retime_backend(conn);
                true
            }
            Door::Frontends => {
                let deadline = now + HEAD_TIMEOUT;
                let mut timer = TimerSlot::default();
                self.timers.set(TimerOwner::Frontend(conn), &mut timer, Some(deadline));
                let state = State::ReadingHead { reader: HeadReader::default(), deadline };
                self.frontends.insert(conn, Frontend { state, timer, from });
                self.list_reading(conn);
                if self.frontends.len() > self.config.max_tunnels {
                    self.metrics.common.limits_hit.inc(["max_tunnels"]);
                    self.make_room(now, conn);
                }
                true
            }
        }
    }

    fn on_head(&mut self, now: Instant, conn: Key, bytes: &[u8]) -> HeadStep {
        let Some(Frontend { state: State::ReadingHead { reader, .. }, .. }) = self.frontends.get_mut(conn)
        else {
            return HeadStep::Answered;
        };
        match reader.advance(bytes) {
            Head::Partial => HeadStep::More,
            Head::Bad(status) => {
                let what = http::head::looks_like(bytes).unwrap_or("not an HTTP CONNECT request");
                self.refuse(now, conn, status, what);
                HeadStep::Answered
            }
            Head::Complete { request, .. } if request.method != Method::Connect => {
                let client = self.client_name(conn);
                let target = Quoted(&request.target);
                let line = format!("msg=\"request refused\" client={client} status=405 target={target}");
                self.note_limited(now, "method", Level::Info, line);
                self.answer(conn, answer::method_not_allowed());
                HeadStep::Answered
            }
            Head::Complete { len, request } => match Target::parse(&request.target) {
                Ok(target) => {
                    self.begin_dial(now, conn, &target);
                    HeadStep::Took(len)
                }
                Err(error) => {
                    self.refuse(now, conn, Status::BadRequest, &format!("{error}: {}", request.target));
                    HeadStep::Answered
                }
            },
        }
    }

    fn on_link_activity(&mut self, now: Instant, conn: Key) {
        while let Some(event) = self.backends.get_mut(conn).and_then(|backend| backend.link.poll_event()) {
            self.on_link_event(now, conn, event);
        }
        self.retime_backend(conn);
    }

    fn on_link_error(&mut self, now: Instant, conn: Key, error: LinkError) {
        if let LinkError::PeerSilent { silence } = error {
            self.metrics.common.detection.observe(silence);
        }
        let label = error.label();
        let GoAway { text, .. } = error.go_away();
        self.drop_backend(now, conn, label, &text);
        let (last_words, manner) = (Some(error.go_away()), Manner::after(&error));
        self.effects.push_back(Effect::EndLink { link: conn, last_words, manner });
    }

    fn on_lost(&mut self, now: Instant, conn: Key, lost: Lost) {
        if self.backends.get(conn).is_some() {
            return self.drop_backend(now, conn, "connection_lost", &lost.text);
        }
        let client = self.client_name(conn);
        if let Some(State::Dialing(_)) = self.forget_frontend(conn, None) {
            self.metrics.dial_failed(DialFailureReason::FrontendClose);
        }
        if lost.refused {
            let line =
                format!("msg=\"client not taken\" client={client} reason=tls error={}", Quoted(&lost.text));
            self.note_limited(now, "client_refused", Level::Warn, line);
        }
    }

    fn on_resolved(&mut self, _: Instant, _: JobId, _: Result<Vec<SocketAddr>, Failure>) {
        debug_assert!(false, "a server resolves nothing");
    }

    fn on_token(&mut self, _: Instant, _: JobId, _: Result<Secret, String>) {
        debug_assert!(false, "a server shows no token");
    }

    fn on_reviewed(&mut self, now: Instant, job: JobId, verdict: Verdict) {
        self.on_verdict(now, job, verdict);
    }

    fn on_connected(&mut self, _: Instant, _: JobId, _: Result<Key, Failure>) {
        debug_assert!(false, "a server connects to nobody");
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(owner) = self.timers.pop_due(now) {
            match owner {
                TimerOwner::Frontend(conn) => self.on_frontend_timeout(now, conn),
                TimerOwner::Backend(conn) => self.on_backend_timeout(now, conn),
                TimerOwner::Drain => {
                    TimerQueue::<TimerOwner>::fired(&mut self.drain_timer);
                    self.look_at_drain(now);
                }
            }
        }
        self.check_invariants();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn forgive(&mut self, pause: Duration) {
        for conn in self.backends.keys() {
            if let Some(backend) = self.backends.get_mut(conn) {
                backend.link.forgive(pause);
            }
        }
    }

    fn on_terminate(&mut self, now: Instant) {
        if self.drain.is_some() || self.config.drain_timeout.is_zero() {
            self.finish(now);
        } else {
            self.begin_drain(now);
        }
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn is_ready(&self) -> bool {
        self.drain.is_none() && self.backends.agents() > 0
    }

    fn on_turn(&mut self, lag: Duration) {
        self.metrics.common.loop_lag.observe(lag);
    }

    fn on_accept_failed(&mut self, now: Instant, error: &str) {
        self.metrics.common.limits_hit.inc(["accept"]);
        let text = format!(
            "msg=\"cannot accept; connections wait (raise the limit of open files, ulimit -n?)\" error={}",
            Quoted(error)
        );
        self.note_limited(now, "cannot accept", Level::Error, text);
    }

    fn on_probe_evicted(&mut self) {
        self.metrics.common.limits_hit.inc(["probes"]);
    }

    fn on_probe_refused(&mut self, now: Instant, from: Option<SocketAddr>, text: &str) {
        let line = format!("msg=\"probe refused\" client={} error={}", name_of(from), Quoted(text));
        self.note_limited(now, "probe_refused", Level::Info, line);
    }

    fn on_closing_evicted(&mut self) {
        self.metrics.common.limits_hit.inc(["closing"]);
    }

    fn on_budget_exhausted(&mut self) {
        self.metrics.common.budgets_exhausted.inc();
    }

    fn admin(&self, now: Instant, head: &[u8], process: &dyn Fn() -> ProcessReport) -> AdminStep {
        let metrics = || self.render_metrics(&process());
        let status = || self.render_status(now, &process());
        respond(head, http::Role::Server, self.is_ready(), metrics, status)
    }
}
