//! The agent: keeps a link to its server, connects targets that the server asks for. Pure; see
//! [`crate::core::role`].

mod report;
mod server_link;
mod target;
mod targets;
#[cfg(test)]
mod tests;
mod uplink;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tautline_wire::{GoAway, GoAwayCode};

use self::target::TargetDial;
use self::uplink::{Backoff, Uplink};
use super::connect::Failure;
use super::drain::Drain;
use super::http::{self, admin::respond};
use super::ids::{JobId, StreamKey};
use super::metrics::AgentMetrics;
use super::mux::{Link, LinkError, LinkEvent, LinkStats, LivenessConfig, WindowBudget};
use super::note::{Level, Note, Quoted, Seconds, name_of};
use super::ratelimit::LogLimit;
use super::rng::Rng;
use super::role::{AdminStep, Door, Effect, HeadStep, Lost, Manner, ProcessReport, Role};
use super::timers::{TimerQueue, TimerSlot};
use crate::key::{Key, KeyMap, Slots};
use crate::limits::{LOG_INTERVAL, LOG_LINES_PER_KIND, WINDOW_POOL_AGENT};
use crate::token::{Secret, Verdict};

/// What an agent needs to know.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// `--agent-id`.
    pub agent_id: String,
    /// `--agent-identifiers`, as given.
    pub identifiers: String,
    /// `--proxy-server-host`, a name or an address without brackets.
    pub server_host: String,
    /// `--proxy-server-port`.
    pub server_port: u16,
    /// How links are judged.
    pub liveness: LivenessConfig,
    /// `--sync-interval`: pause after the first refusal.
    pub redial_base: Duration,
    /// `--sync-interval-cap`.
    pub redial_cap: Duration,
    /// `--drain-timeout`: how long tunnels may go on after SIGTERM; zero ends at once.
    pub drain_timeout: Duration,
    /// It shows a token to its server.
    pub shows_token: bool,
    /// Targets at once, those being dialled included.
    pub max_tunnels: usize,
    /// Spreads choices; unknown to peers.
    pub seed: u64,
}

struct ServerLink {
    link: Link,
    timer: TimerSlot,
    /// Empty before WELCOME.
    server_id: String,
    address: SocketAddr,
    connected_at: Instant,
    /// Silent for `--dead-after`: kept in case it recovers, while another link is tried.
    doubted: bool,
}

struct Endpoint {
    link: Key,
    stream: StreamKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TimerOwner {
    Uplink,
    Drain,
    Link(Key),
    Dial(Key),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobOwner {
    Token,
    Uplink,
    Dial(Key),
}

/// The agent.
pub struct Agent {
    config: AgentConfig,
    uplink: Uplink,
    uplink_timer: TimerSlot,
    backoff: Backoff,
    /// Where the server was found last: used when its name cannot be resolved.
    last_good: Vec<SocketAddr>,
    /// Read for the attempt that is under way.
    token: Option<Secret>,
    links: KeyMap<ServerLink>,
    past: LinkStats,
    dials: Slots<TargetDial>,
    /// Dials by link and wire id, for the peer's CLOSE.
    dial_of: HashMap<(Key, u64), Key>,
    endpoints: KeyMap<Endpoint>,
    jobs: HashMap<JobId, JobOwner>,
    next_job: u64,
    budget: WindowBudget,
    timers: TimerQueue<TimerOwner>,
    effects: VecDeque<Effect>,
    rng: Rng,
    metrics: AgentMetrics,
    limit: LogLimit,
    /// SIGTERM came.
    drain: Option<Drain>,
    drain_timer: TimerSlot,
    finished: bool,
}

impl Agent {
    /// An agent that will dial its server at once.
    #[must_use]
    pub fn new(config: AgentConfig, now: Instant) -> Self {
        let mut agent = Self {
            backoff: Backoff::new(config.redial_base, config.redial_cap),
            rng: Rng::new(config.seed),
            config,
            uplink: Uplink::Waiting { until: now },
            uplink_timer: TimerSlot::default(),
            last_good: Vec::new(),
            token: None,
            links: KeyMap::default(),
            past: LinkStats::default(),
            dials: Slots::default(),
            dial_of: HashMap::new(),
            endpoints: KeyMap::default(),
            jobs: HashMap::new(),
            next_job: 1,
            budget: WindowBudget::new(WINDOW_POOL_AGENT),
            timers: TimerQueue::default(),
            effects: VecDeque::new(),
            metrics: AgentMetrics::default(),
            limit: LogLimit::new(LOG_LINES_PER_KIND, LOG_INTERVAL),
            drain: None,
            drain_timer: TimerSlot::default(),
            finished: false,
        };
        agent.set_uplink(Uplink::Waiting { until: now });
        agent
    }

    fn note(&mut self, level: Level, text: String) {
        self.effects.push_back(Effect::Note(Note { level, text }));
    }

    fn note_limited(&mut self, now: Instant, kind: &'static str, level: Level, text: String) {
        if let Some(suppressed) = self.limit.pass(now, kind, None) {
            let text = if suppressed > 0 { format!("{text} suppressed={suppressed}") } else { text };
            self.note(level, text);
        } else {
            self.metrics.common.log_lines_suppressed.inc();
        }
    }

    fn new_job(&mut self, owner: JobOwner) -> JobId {
        let job = JobId(self.next_job);
        self.next_job += 1;
        self.jobs.insert(job, owner);
        job
    }

    fn server_name(&self) -> String {
        if self.config.server_host.contains(':') {
            format!("[{}]:{}", self.config.server_host, self.config.server_port)
        } else {
            format!("{}:{}", self.config.server_host, self.config.server_port)
        }
    }

    fn on_link_event(&mut self, now: Instant, conn: Key, event: LinkEvent) {
        match event {
            LinkEvent::Welcome(welcome) => self.on_welcome(now, conn, welcome),
            LinkEvent::DialRequested { stream, target, time_left } => {
                self.begin_dial(now, conn, stream, target, time_left);
            }
            LinkEvent::Ended { owner, stream, end } => self.on_ended(conn, owner, stream, end),
            LinkEvent::Drain => self.note(Level::Info, "msg=\"the server drains\"".to_owned()),
            LinkEvent::GoAway(GoAway { code, text }) => {
                self.effects.push_back(Effect::Close { conn, manner: Manner::Flush });
                self.drop_link(now, conn, code.name(), &text, code != GoAwayCode::Shutdown);
            }
            LinkEvent::HealthChanged { false_after } => self.on_health_changed(now, conn, false_after),
            LinkEvent::Hello(_) | LinkEvent::Opened { .. } | LinkEvent::DialFailed { .. } => {
                debug_assert!(false, "a server's event");
            }
        }
    }

    fn on_health_changed(&mut self, now: Instant, conn: Key, false_after: Option<Duration>) {
        let Some(entry) = self.links.get(conn) else { return };
        let live = entry.link.liveness();
        let (server, rtt) = (Quoted(&entry.server_id), Seconds(live.rtt().smoothed()));
        let (level, line) = match false_after {
            None => {
                self.metrics.common.suspicions.inc();
                let silence = Seconds(now.saturating_duration_since(live.last_received()));
                let limit = Seconds(live.suspect_limit());
                let line = format!(
                    "msg=\"server suspect\" server={server} reason=\"no answer to PING for {limit}\" silence={silence} rtt={rtt}"
                );
                (Level::Warn, line)
            }
            Some(lasted) => {
                self.metrics.common.false_suspicions.inc();
                (
                    Level::Info,
                    format!("msg=\"server alive again\" server={server} after={} rtt={rtt}", Seconds(lasted)),
                )
            }
        };
        self.note_limited(now, "health", level, line);
        if false_after.is_some() {
            self.trust_again(now, conn);
        }
    }

    fn retime_link(&mut self, conn: Key) {
        if let Some(entry) = self.links.get_mut(conn) {
            let at = entry.link.poll_timeout().map(|(at, _)| at);
            self.timers.set_lazily(TimerOwner::Link(conn), &mut entry.timer, at);
        }
    }

    fn on_link_timeout(&mut self, now: Instant, conn: Key) {
        let Some(entry) = self.links.get_mut(conn) else { return };
        TimerQueue::<TimerOwner>::fired(&mut entry.timer);
        if let Err(error) = entry.link.handle_timeout(now, &mut self.budget) {
            return self.on_link_error(now, conn, error);
        }
        self.on_link_activity(now, conn);
        self.effects.push_back(Effect::Transmit { link: conn });
    }

    /// Tells the server, and lives on until nothing is alive or the limit is reached.
    fn begin_drain(&mut self, now: Instant) {
        let links: Vec<Key> =
            self.links.iter().filter(|(_, entry)| entry.link.is_open()).map(|(conn, _)| conn).collect();
        let tunnels = self.endpoints.len();
        for &conn in &links {
            if let Some(entry) = self.links.get_mut(conn) {
                entry.link.drain();
                self.effects.push_back(Effect::Transmit { link: conn });
            }
        }
        let limit = Seconds(self.config.drain_timeout);
        self.note(
            Level::Info,
            format!("msg=\"agent drains\" links={} tunnels={tunnels} limit={limit}", links.len()),
        );
        self.end_attempt(now, "the agent drains");
        self.drain = Some(Drain::new(now, self.config.drain_timeout));
        self.look_at_drain(now);
    }

    fn look_at_drain(&mut self, now: Instant) {
        let busy = !self.endpoints.is_empty() || !self.dials.is_empty();
        let linked = self.links.iter().any(|(_, entry)| entry.link.is_open());
        let Some(drain) = &mut self.drain else { return };
        if drain.look(now, busy).is_some() || !linked {
            return self.finish(now);
        }
        let at = drain.next_look(now);
        self.timers.set(TimerOwner::Drain, &mut self.drain_timer, Some(at));
    }

    /// Says goodbye on each link, and ends.
    fn finish(&mut self, now: Instant) {
        let (links, tunnels) = (self.links.len(), self.endpoints.len());
        self.note(Level::Info, format!("msg=\"agent ends\" links={links} tunnels={tunnels}"));
        self.timers.set(TimerOwner::Drain, &mut self.drain_timer, None);
        let conns: Vec<Key> = self.links.iter().map(|(conn, _)| conn).collect();
        for conn in conns {
            let text = "the agent ends";
            self.drop_link(now, conn, GoAwayCode::Shutdown.name(), text, false);
            let last_words = Some(GoAway { code: GoAwayCode::Shutdown, text: text.to_owned() });
            self.effects.push_back(Effect::EndLink { link: conn, last_words, manner: Manner::Flush });
        }
        self.end_attempt(now, "the agent ends");
        self.finished = true;
    }

    fn check_invariants(&self) {
        debug_assert_eq!(self.dials.len(), self.dial_of.len(), "each dial is known by its stream");
    }
}

impl Role for Agent {
    fn link(&mut self, conn: Key) -> Option<(&mut Link, &mut WindowBudget)> {
        Some((&mut self.links.get_mut(conn)?.link, &mut self.budget))
    }

    fn is_full(&self, _: Instant, _: Door) -> bool {
        false
    }

    fn on_accept(&mut self, _: Instant, _: Door, _: Key, _: Option<SocketAddr>) -> bool {
        debug_assert!(false, "an agent listens for nobody");
        false
    }

    fn on_head(&mut self, _: Instant, _: Key, _: &[u8]) -> HeadStep {
        debug_assert!(false, "an agent has no frontends");
        HeadStep::Answered
    }

    fn on_link_activity(&mut self, now: Instant, conn: Key) {
        while let Some(event) = self.links.get_mut(conn).and_then(|entry| entry.link.poll_event()) {
            self.on_link_event(now, conn, event);
        }
        self.retime_link(conn);
    }

    fn on_link_error(&mut self, now: Instant, conn: Key, error: LinkError) {
        if let LinkError::PeerSilent { silence } = error
            && self.doubt(now, conn, silence)
        {
            return self.metrics.common.detection.observe(silence);
        }
        let (last_words, manner) = (Some(error.go_away()), Manner::after(&error));
        self.drop_link(now, conn, error.label(), &error.to_string(), true);
        self.effects.push_back(Effect::EndLink { link: conn, last_words, manner });
    }

    fn on_lost(&mut self, now: Instant, conn: Key, lost: Lost) {
        self.drop_link(now, conn, "connection_lost", &lost.text, lost.refused);
    }

    fn on_resolved(&mut self, now: Instant, job: JobId, result: Result<Vec<SocketAddr>, Failure>) {
        match self.jobs.remove(&job) {
            Some(JobOwner::Uplink) => self.server_resolved(now, result),
            Some(JobOwner::Dial(key)) => self.target_resolved(now, key, result),
            Some(JobOwner::Token) | None => {}
        }
    }

    fn on_token(&mut self, now: Instant, job: JobId, result: Result<Secret, String>) {
        if self.jobs.remove(&job) == Some(JobOwner::Token) {
            self.token_read(now, result);
        }
    }

    fn on_reviewed(&mut self, _: Instant, _: JobId, _: Verdict) {
        debug_assert!(false, "an agent judges no tokens");
    }

    fn on_connected(&mut self, now: Instant, job: JobId, result: Result<Key, Failure>) {
        match (self.jobs.remove(&job), result) {
            (Some(JobOwner::Uplink), result) => self.server_connected(now, job, result),
            (Some(JobOwner::Dial(key)), result) => self.target_connected(now, key, job, result),
            (Some(JobOwner::Token) | None, Ok(conn)) => {
                self.effects.push_back(Effect::Close { conn, manner: Manner::Abort })
            }
            (Some(JobOwner::Token) | None, Err(_)) => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(owner) = self.timers.pop_due(now) {
            match owner {
                TimerOwner::Uplink => {
                    TimerQueue::<TimerOwner>::fired(&mut self.uplink_timer);
                    self.advance_uplink(now);
                }
                TimerOwner::Drain => {
                    TimerQueue::<TimerOwner>::fired(&mut self.drain_timer);
                    self.look_at_drain(now);
                }
                TimerOwner::Link(conn) => self.on_link_timeout(now, conn),
                TimerOwner::Dial(key) => {
                    if let Some(dial) = self.dials.get_mut(key) {
                        TimerQueue::<TimerOwner>::fired(&mut dial.timer);
                        self.advance_dial(now, key);
                    }
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
        let conns: Vec<Key> = self.links.iter().map(|(conn, _)| conn).collect();
        for conn in conns {
            if let Some(entry) = self.links.get_mut(conn) {
                entry.link.forgive(pause);
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
        self.drain.is_none() && matches!(self.uplink, Uplink::Up { .. })
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
        respond(head, http::Role::Agent, self.is_ready(), metrics, status)
    }
}
