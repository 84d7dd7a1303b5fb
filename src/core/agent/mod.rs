//! The agent: keeps a link to its server, connects targets that the server asks for. Pure; see
//! [`crate::core::role`].

mod report;
mod target;
#[cfg(test)]
mod tests;
mod uplink;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tautline_wire::{CloseCode, DialCode, DialFailure, GoAway, GoAwayCode, Hello, Welcome};

use self::target::{Progress, TargetDial};
use self::uplink::{Backoff, Uplink};
use super::connect::{Failure, Race, Step};
use super::http::head::Head;
use super::http::target::{Host, Target};
use super::http::{Answer, Route, answer};
use super::ids::{JobId, StreamKey};
use super::metrics::AgentMetrics;
use super::mux::{
    Link, LinkConfig, LinkError, LinkEvent, LinkStats, LivenessConfig, Side, StreamEnd, WindowBudget,
};
use super::note::{Level, Note, Quoted, Seconds};
use super::ratelimit::LogLimit;
use super::rng::Rng;
use super::role::{AdminStep, Door, Effect, HeadStep, Lost, Manner, ProcessReport, Role};
use super::timers::{TimerQueue, TimerSlot};
use crate::key::{Key, KeyMap, Slots};
use crate::limits::{
    DIAL_ANSWER_RESERVE, GREETING_TIMEOUT, LINK_CONNECT_TIMEOUT, LOG_INTERVAL, LOG_LINES_PER_KIND,
    TARGET_CONNECT_TIMEOUT, WINDOW_INITIAL, WINDOW_POOL_AGENT,
};

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
}

struct Endpoint {
    link: Key,
    stream: StreamKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TimerOwner {
    Uplink,
    Link(Key),
    Dial(Key),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobOwner {
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

    // ---- the link to the server ----

    fn set_uplink(&mut self, uplink: Uplink) {
        self.uplink = uplink;
        self.timers.set(TimerOwner::Uplink, &mut self.uplink_timer, self.uplink.poll_timeout());
    }

    /// Goes on with the attempt, or begins one.
    fn advance_uplink(&mut self, now: Instant) {
        match &mut self.uplink {
            Uplink::Waiting { until } if now >= *until => self.begin_attempt(now),
            Uplink::Resolving { deadline, .. } if now >= *deadline => {
                self.server_resolved(
                    now,
                    Err(Failure::new(DialCode::ResolverFailed, "the resolver did not answer")),
                );
            }
            Uplink::Connecting(_) => self.advance_race(now),
            Uplink::Greeting { conn, deadline, .. } if now >= *deadline => {
                let conn = *conn;
                self.effects.push_back(Effect::Close { conn, manner: Manner::Abort });
                // No answer is no refusal.
                self.drop_link(now, conn, "greeting_timeout", "no TLS and WELCOME within 10 s", false);
            }
            _ => {}
        }
    }

    fn begin_attempt(&mut self, now: Instant) {
        if let Ok(ip) = self.config.server_host.parse::<IpAddr>() {
            return self.connect_server(now, vec![SocketAddr::new(ip, self.config.server_port)]);
        }
        let job = self.new_job(JobOwner::Uplink);
        let patience = if self.last_good.is_empty() { GREETING_TIMEOUT } else { LINK_CONNECT_TIMEOUT };
        self.set_uplink(Uplink::Resolving { job, deadline: now + patience });
        let (host, port) = (self.config.server_host.clone(), self.config.server_port);
        self.effects.push_back(Effect::Resolve { job, host, port });
    }

    fn server_resolved(&mut self, now: Instant, result: Result<Vec<SocketAddr>, Failure>) {
        if let Uplink::Resolving { job, .. } = self.uplink {
            self.jobs.remove(&job);
        }
        match result {
            Ok(addresses) => self.connect_server(now, addresses),
            Err(failure) if self.last_good.is_empty() => {
                self.attempt_failed(now, &format!("{}: {failure}", self.config.server_host), false);
            }
            Err(failure) => {
                let line = format!(
                    "msg=\"server name not resolved, trying its last good address\" host={} error={}",
                    Quoted(&self.config.server_host),
                    Quoted(&failure.text)
                );
                self.note_limited(now, "server_name", Level::Warn, line);
                self.connect_server(now, self.last_good.clone());
            }
        }
    }

    fn connect_server(&mut self, now: Instant, addresses: Vec<SocketAddr>) {
        self.set_uplink(Uplink::Connecting(Race::new(now, addresses, now + LINK_CONNECT_TIMEOUT)));
        self.advance_race(now);
    }

    fn advance_race(&mut self, now: Instant) {
        while let Uplink::Connecting(race) = &mut self.uplink {
            match race.step(now) {
                Step::Connect(to) => {
                    let job = self.new_job(JobOwner::Uplink);
                    if let Uplink::Connecting(race) = &mut self.uplink {
                        race.started(job, to);
                    }
                    self.effects.push_back(Effect::Connect { job, to, link: true });
                }
                Step::Wait => {
                    let at = Some(race.poll_timeout());
                    self.timers.set(TimerOwner::Uplink, &mut self.uplink_timer, at);
                    return;
                }
                Step::Failed(failure) => {
                    for job in race.running().collect::<Vec<_>>() {
                        self.cancel_connect(job);
                    }
                    return self.attempt_failed(now, &failure.text, false);
                }
            }
        }
    }

    fn cancel_connect(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.effects.push_back(Effect::CancelConnect { job });
    }

    fn server_connected(&mut self, now: Instant, job: JobId, result: Result<Key, Failure>) {
        let Uplink::Connecting(race) = &mut self.uplink else {
            if let Ok(conn) = result {
                self.effects.push_back(Effect::Close { conn, manner: Manner::Abort });
            }
            return;
        };
        match result {
            Err(failure) => {
                race.failed(job, failure);
                self.advance_race(now);
            }
            Ok(conn) => {
                let Some(to) = race.succeeded(job) else { return };
                for job in race.running().collect::<Vec<_>>() {
                    self.cancel_connect(job);
                }
                self.start_link(now, conn, to);
            }
        }
    }

    fn start_link(&mut self, now: Instant, conn: Key, to: SocketAddr) {
        let hello = Hello {
            version_min: tautline_wire::VERSION,
            version_max: tautline_wire::VERSION,
            features: 0,
            agent_id: self.config.agent_id.clone(),
            identifiers: self.config.identifiers.clone(),
            token: None,
            ping_interval_ms: self
                .config
                .liveness
                .ping_interval
                .map_or(0, |interval| u32::try_from(interval.as_millis()).unwrap_or(u32::MAX)),
            window: WINDOW_INITIAL,
            data_len_max: tautline_wire::DATA_LEN_MAX as u32,
        };
        let config =
            LinkConfig { side: Side::Agent, liveness: self.config.liveness, seed: self.rng.next_u64() };
        let link = Link::connect(config, now, hello);
        let timer = TimerSlot::default();
        let entry = ServerLink { link, timer, server_id: String::new(), address: to, connected_at: now };
        self.links.insert(conn, entry);
        self.set_uplink(Uplink::Greeting { conn, to, deadline: now + GREETING_TIMEOUT });
        self.effects.push_back(Effect::StartLink { conn });
        self.effects.push_back(Effect::Transmit { link: conn });
    }

    fn on_welcome(&mut self, now: Instant, conn: Key, welcome: Welcome) {
        let Uplink::Greeting { to, .. } = self.uplink else { return };
        self.last_good = vec![to];
        self.backoff.reset();
        self.set_uplink(Uplink::Up { conn });
        self.metrics.common.links_up.inc();
        let line = format!(
            "msg=\"link up\" agent={} server={} address={to} after={}",
            Quoted(&self.config.agent_id),
            Quoted(&welcome.server_id),
            Seconds(
                now.saturating_duration_since(self.links.get(conn).map_or(now, |link| link.connected_at))
            )
        );
        if let Some(link) = self.links.get_mut(conn) {
            link.server_id = welcome.server_id;
        }
        self.note(Level::Info, line);
    }

    /// The attempt came to nothing, or the link is gone.
    fn attempt_failed(&mut self, now: Instant, text: &str, refused: bool) {
        let delay = if refused {
            self.backoff.after_refusal(&mut self.rng)
        } else {
            Backoff::after_silence(&mut self.rng)
        };
        self.metrics.server_connection_failures.inc(["to_server"]);
        let line = format!(
            "msg=\"no link to the server\" server={} error={} next_try_in={}",
            Quoted(&self.server_name()),
            Quoted(text),
            Seconds(delay)
        );
        self.note_limited(now, if refused { "link_refused" } else { "link_failed" }, Level::Warn, line);
        self.set_uplink(Uplink::Waiting { until: now + delay });
    }

    /// Takes a link out: its dials are given up, its targets are reset.
    fn drop_link(&mut self, now: Instant, conn: Key, label: &'static str, text: &str, refused: bool) {
        let Some(mut entry) = self.links.remove(conn) else { return };
        self.timers.set(TimerOwner::Link(conn), &mut entry.timer, None);
        self.past.add(entry.link.stats());
        let was_up = entry.link.is_open();
        let owners = entry.link.abandon(&mut self.budget);
        if was_up {
            self.metrics.common.links_down.inc([label]);
            let line = format!(
                "msg=\"link down\" agent={} server={} address={} reason={label} error={} up_for={} streams={}",
                Quoted(&self.config.agent_id),
                Quoted(&entry.server_id),
                entry.address,
                Quoted(text),
                Seconds(now.saturating_duration_since(entry.connected_at)),
                owners.len()
            );
            self.note(Level::Warn, line);
        }
        for (stream, owner) in owners {
            if owner == Key::default() {
                self.cancel_dial(conn, stream);
            } else if self.endpoints.remove(owner).is_some() {
                self.effects.push_back(Effect::Close { conn: owner, manner: Manner::Abort });
            }
        }
        if self.uplink.conn() == Some(conn) {
            if was_up {
                let delay = Backoff::after_silence(&mut self.rng);
                self.set_uplink(Uplink::Waiting { until: now + delay });
            } else {
                self.attempt_failed(now, text, refused);
            }
        }
    }

    // ---- targets ----

    fn begin_dial(&mut self, now: Instant, link: Key, stream: StreamKey, text: String, time_left: Duration) {
        if self.dials.len() + self.endpoints.len() >= self.config.max_tunnels {
            self.metrics.common.limits_hit.inc(["max_tunnels"]);
            let failure = Failure::new(DialCode::TooManyTunnels, "the agent has as many tunnels as it may");
            return self.answer_dial(now, link, stream, &text, failure);
        }
        let target = match Target::parse(&text) {
            Ok(target) => target,
            Err(error) => {
                let failure = Failure::new(DialCode::BadTarget, error.to_string());
                return self.answer_dial(now, link, stream, &text, failure);
            }
        };
        let deadline = now + TARGET_CONNECT_TIMEOUT.min(time_left.saturating_sub(DIAL_ANSWER_RESERVE));
        let progress = match &target.host {
            Host::Ip(ip, None) => {
                Progress::Connecting(Race::new(now, vec![SocketAddr::new(*ip, target.port)], deadline))
            }
            // The resolver knows the numbers of interfaces.
            Host::Ip(_, Some(_)) | Host::Name(_) => Progress::Resolving { job: JobId(0) },
        };
        let resolving = matches!(progress, Progress::Resolving { .. });
        let timer = TimerSlot::default();
        let dial = TargetDial { link, stream, target: text, started: now, deadline, progress, timer };
        let key = self.dials.insert(dial);
        self.dial_of.insert((link, stream.id), key);
        if resolving {
            let job = self.new_job(JobOwner::Dial(key));
            if let Some(dial) = self.dials.get_mut(key) {
                dial.progress = Progress::Resolving { job };
            }
            let host = target.host.to_string();
            self.effects.push_back(Effect::Resolve { job, host, port: target.port });
        }
        self.advance_dial(now, key);
    }

    fn advance_dial(&mut self, now: Instant, key: Key) {
        while let Some(dial) = self.dials.get_mut(key) {
            let failure = match &mut dial.progress {
                Progress::Resolving { .. } if now >= dial.deadline => dial.look_up_timed_out(),
                Progress::Resolving { .. } => return self.retime_dial(key),
                Progress::Connecting(race) => match race.step(now) {
                    Step::Wait => return self.retime_dial(key),
                    Step::Failed(failure) => failure,
                    Step::Connect(to) => {
                        let job = self.new_job(JobOwner::Dial(key));
                        if let Some(TargetDial { progress: Progress::Connecting(race), .. }) =
                            self.dials.get_mut(key)
                        {
                            race.started(job, to);
                        }
                        self.effects.push_back(Effect::Connect { job, to, link: false });
                        continue;
                    }
                },
            };
            if let Some(dial) = self.take_dial(key) {
                self.answer_dial(now, dial.link, dial.stream, &dial.target, failure);
            }
            return;
        }
    }

    fn retime_dial(&mut self, key: Key) {
        if let Some(dial) = self.dials.get_mut(key) {
            let at = dial.poll_timeout();
            self.timers.set(TimerOwner::Dial(key), &mut dial.timer, Some(at));
        }
    }

    /// Takes a dial out and cancels what runs for it.
    fn take_dial(&mut self, key: Key) -> Option<TargetDial> {
        let mut dial = self.dials.remove(key)?;
        self.dial_of.remove(&(dial.link, dial.stream.id));
        self.timers.set(TimerOwner::Dial(key), &mut dial.timer, None);
        match &dial.progress {
            Progress::Resolving { job } => {
                self.jobs.remove(job);
            }
            Progress::Connecting(race) => {
                for job in race.running().collect::<Vec<_>>() {
                    self.cancel_connect(job);
                }
            }
        }
        Some(dial)
    }

    fn cancel_dial(&mut self, link: Key, stream: StreamKey) {
        if let Some(&key) = self.dial_of.get(&(link, stream.id)) {
            self.take_dial(key);
        }
    }

    /// Tells the server that a target cannot be had.
    fn answer_dial(&mut self, now: Instant, link: Key, stream: StreamKey, target: &str, failure: Failure) {
        self.metrics.dial_failed(failure.code);
        let line =
            format!("msg=\"target not connected\" target={} error={}", Quoted(target), Quoted(&failure.text));
        self.note_limited(now, failure.code.name(), Level::Info, line);
        if let Some(entry) = self.links.get_mut(link) {
            let Failure { code, text } = failure;
            entry.link.dial_failed(stream, &mut self.budget, DialFailure { code, text });
            self.effects.push_back(Effect::Transmit { link });
        }
    }

    fn target_resolved(&mut self, now: Instant, key: Key, result: Result<Vec<SocketAddr>, Failure>) {
        let Some(dial) = self.dials.get_mut(key) else { return };
        match result {
            Ok(addresses) => {
                dial.resolved(now, addresses);
                self.advance_dial(now, key);
            }
            Err(failure) => {
                if let Some(dial) = self.take_dial(key) {
                    self.answer_dial(now, dial.link, dial.stream, &dial.target, failure);
                }
            }
        }
    }

    fn target_connected(&mut self, now: Instant, key: Key, job: JobId, result: Result<Key, Failure>) {
        let race = match self.dials.get_mut(key) {
            Some(TargetDial { progress: Progress::Connecting(race), .. }) => race,
            _ => {
                if let Ok(conn) = result {
                    self.effects.push_back(Effect::Close { conn, manner: Manner::Abort });
                }
                return;
            }
        };
        match result {
            Err(failure) => {
                race.failed(job, failure);
                self.advance_dial(now, key);
            }
            Ok(conn) => {
                race.succeeded(job);
                let Some(dial) = self.take_dial(key) else { return };
                self.open_endpoint(now, conn, &dial);
            }
        }
    }

    fn open_endpoint(&mut self, now: Instant, conn: Key, dial: &TargetDial) {
        let TargetDial { link, stream, started, .. } = *dial;
        let wanted = self.links.get_mut(link).is_some_and(|entry| entry.link.dial_succeeded(stream, conn));
        if !wanted {
            self.effects.push_back(Effect::Close { conn, manner: Manner::Abort });
            return;
        }
        self.metrics.dial_duration.observe(now.saturating_duration_since(started));
        self.endpoints.insert(conn, Endpoint { link, stream });
        self.effects.push_back(Effect::Bridge { conn, link, stream, answer: None });
        self.effects.push_back(Effect::Transmit { link });
    }

    fn on_ended(&mut self, link: Key, owner: Key, stream: StreamKey, end: StreamEnd) {
        if owner == Key::default() {
            return self.cancel_dial(link, stream);
        }
        let ours = self
            .endpoints
            .get(owner)
            .is_some_and(|endpoint| endpoint.link == link && endpoint.stream == stream);
        if ours {
            self.endpoints.remove(owner);
            self.effects.push_back(Effect::Close { conn: owner, manner: manner(end) });
        }
    }

    // ---- events and time ----

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

    fn check_invariants(&self) {
        debug_assert_eq!(self.dials.len(), self.dial_of.len(), "each dial is known by its stream");
    }
}

/// How a target's connection follows the end of its stream.
fn manner(end: StreamEnd) -> Manner {
    match end {
        StreamEnd::Finished { .. } | StreamEnd::ClosedThere(CloseCode::Normal | CloseCode::Shutdown) => {
            Manner::Flush
        }
        StreamEnd::ClosedThere(_) => Manner::FlushThenReset,
        StreamEnd::ClosedHere(_) => Manner::Abort,
    }
}

impl Role for Agent {
    fn link(&mut self, conn: Key) -> Option<(&mut Link, &mut WindowBudget)> {
        Some((&mut self.links.get_mut(conn)?.link, &mut self.budget))
    }

    fn on_accept(&mut self, _: Instant, _: Door, _: Key, _: Option<IpAddr>) -> bool {
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
        let last_words = Some(error.go_away());
        self.drop_link(now, conn, error.label(), &error.to_string(), true);
        self.effects.push_back(Effect::EndLink { link: conn, last_words });
    }

    fn on_lost(&mut self, now: Instant, conn: Key, lost: Lost) {
        self.drop_link(now, conn, "connection_lost", &lost.text, lost.refused);
    }

    fn on_resolved(&mut self, now: Instant, job: JobId, result: Result<Vec<SocketAddr>, Failure>) {
        match self.jobs.remove(&job) {
            Some(JobOwner::Uplink) => self.server_resolved(now, result),
            Some(JobOwner::Dial(key)) => self.target_resolved(now, key, result),
            None => {}
        }
    }

    fn on_connected(&mut self, now: Instant, job: JobId, result: Result<Key, Failure>) {
        match (self.jobs.remove(&job), result) {
            (Some(JobOwner::Uplink), result) => self.server_connected(now, job, result),
            (Some(JobOwner::Dial(key)), result) => self.target_connected(now, key, job, result),
            (None, Ok(conn)) => self.effects.push_back(Effect::Close { conn, manner: Manner::Abort }),
            (None, Err(_)) => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(owner) = self.timers.pop_due(now) {
            match owner {
                TimerOwner::Uplink => {
                    TimerQueue::<TimerOwner>::fired(&mut self.uplink_timer);
                    self.advance_uplink(now);
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
        let conns: Vec<Key> = self.links.iter().map(|(conn, _)| conn).collect();
        for conn in conns {
            let text = "the agent ends";
            self.drop_link(now, conn, GoAwayCode::Shutdown.name(), text, false);
            let last_words = Some(GoAway { code: GoAwayCode::Shutdown, text: text.to_owned() });
            self.effects.push_back(Effect::EndLink { link: conn, last_words });
        }
        self.finished = true;
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn is_ready(&self) -> bool {
        matches!(self.uplink, Uplink::Up { .. })
    }

    fn on_turn(&mut self, lag: Duration) {
        self.metrics.common.loop_lag.observe(lag);
    }

    fn on_budget_exhausted(&mut self) {
        self.metrics.common.budgets_exhausted.inc();
    }

    fn admin(&self, now: Instant, head: &[u8], process: &dyn Fn() -> ProcessReport) -> AdminStep {
        let request = match super::http::head::parse(head) {
            Head::Partial => return AdminStep::More,
            Head::Bad(status) => return AdminStep::Answer(answer::error(status, "")),
            Head::Complete { request, .. } => request,
        };
        let page = match Route::of(&request.target) {
            Route::Health => Answer::healthy(),
            Route::Ready { verbose } => Answer::readiness(super::http::Role::Agent, self.is_ready(), verbose),
            Route::Metrics => Answer::metrics(self.render_metrics(&process())),
            Route::Status => Answer::json(self.render_status(now, &process())),
            Route::NotFound => Answer::not_found(),
        };
        AdminStep::Answer(page.to_bytes(request.method))
    }
}
