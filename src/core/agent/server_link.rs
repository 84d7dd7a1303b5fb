//! The link to the server: attempts, greeting, loss.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tautline_wire::{DialCode, GoAwayCode, Hello, Welcome};

use super::uplink::{Backoff, Uplink};
use super::{Agent, JobOwner, ServerLink, TimerOwner};
use crate::core::connect::{Failure, Race, Step};
use crate::core::ids::JobId;
use crate::core::mux::{Link, LinkConfig, Side};
use crate::core::note::{Level, Quoted, Seconds};
use crate::core::role::{Effect, Manner};
use crate::core::timers::TimerSlot;
use crate::key::Key;
use crate::limits::{GREETING_TIMEOUT, LINK_CONNECT_TIMEOUT, SERVER_PATIENCE, WINDOW_INITIAL};
use crate::token::Secret;

impl Agent {
    pub(super) fn set_uplink(&mut self, uplink: Uplink) {
        self.uplink = uplink;
        self.timers.set(TimerOwner::Uplink, &mut self.uplink_timer, self.uplink.poll_timeout());
    }

    /// Goes on with the attempt, or begins one.
    pub(super) fn advance_uplink(&mut self, now: Instant) {
        match &mut self.uplink {
            // Who drains opens no new link.
            Uplink::Waiting { until } if now >= *until && self.drain.is_none() => self.begin_attempt(now),
            Uplink::ReadingToken { deadline, .. } if now >= *deadline => {
                self.token_read(now, Err("the token file was not read within 10 s".to_owned()));
            }
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

    pub(super) fn begin_attempt(&mut self, now: Instant) {
        if !self.config.shows_token {
            return self.look_up_server(now);
        }
        let job = self.new_job(JobOwner::Token);
        self.set_uplink(Uplink::ReadingToken { job, deadline: now + GREETING_TIMEOUT });
        self.effects.push_back(Effect::ReadToken { job });
    }

    pub(super) fn token_read(&mut self, now: Instant, result: Result<Secret, String>) {
        let Uplink::ReadingToken { job, .. } = self.uplink else { return };
        if self.jobs.remove(&job).is_some() {
            self.effects.push_back(Effect::CancelJob { job });
        }
        match result {
            Ok(token) => {
                self.token = Some(token);
                self.look_up_server(now);
            }
            Err(text) => self.attempt_failed(now, &text, false),
        }
    }

    fn look_up_server(&mut self, now: Instant) {
        if let Ok(ip) = self.config.server_host.parse::<IpAddr>() {
            return self.connect_server(now, vec![SocketAddr::new(ip, self.config.server_port)]);
        }
        let job = self.new_job(JobOwner::Uplink);
        let patience = if self.last_good.is_empty() { GREETING_TIMEOUT } else { LINK_CONNECT_TIMEOUT };
        self.set_uplink(Uplink::Resolving { job, deadline: now + patience });
        let (host, port) = (self.config.server_host.clone(), self.config.server_port);
        self.effects.push_back(Effect::Resolve { job, host, port, link: true });
    }

    pub(super) fn server_resolved(&mut self, now: Instant, result: Result<Vec<SocketAddr>, Failure>) {
        if let Uplink::Resolving { job, .. } = self.uplink
            && self.jobs.remove(&job).is_some()
        {
            self.effects.push_back(Effect::CancelJob { job });
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

    pub(super) fn connect_server(&mut self, now: Instant, addresses: Vec<SocketAddr>) {
        self.set_uplink(Uplink::Connecting(Race::new(now, addresses, now + LINK_CONNECT_TIMEOUT)));
        self.advance_race(now);
    }

    pub(super) fn advance_race(&mut self, now: Instant) {
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

    pub(super) fn cancel_connect(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.effects.push_back(Effect::CancelConnect { job });
    }

    pub(super) fn server_connected(&mut self, now: Instant, job: JobId, result: Result<Key, Failure>) {
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

    pub(super) fn start_link(&mut self, now: Instant, conn: Key, to: SocketAddr) {
        let hello = Hello {
            version_min: tautline_wire::VERSION,
            version_max: tautline_wire::VERSION,
            features: 0,
            agent_id: self.config.agent_id.clone(),
            identifiers: self.config.identifiers.clone(),
            token: self.token.take().map(|token| token.expose().to_owned()),
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
        let entry = ServerLink {
            link,
            timer,
            server_id: String::new(),
            address: to,
            connected_at: now,
            doubted: false,
        };
        self.links.insert(conn, entry);
        self.set_uplink(Uplink::Greeting { conn, to, deadline: now + GREETING_TIMEOUT });
        self.effects.push_back(Effect::StartLink { conn });
        self.effects.push_back(Effect::Transmit { link: conn });
    }

    pub(super) fn on_welcome(&mut self, now: Instant, conn: Key, welcome: Welcome) {
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
        let old: Vec<Key> =
            self.links.iter().filter(|(_, entry)| entry.doubted).map(|(conn, _)| conn).collect();
        for old in old {
            self.drop_link(now, old, "replaced", "silent, and a new link is up", false);
            self.effects.push_back(Effect::EndLink { link: old, last_words: None, manner: Manner::Abort });
        }
    }

    /// The server of this link was silent too long: tries another link, but keeps this one for a while. False if it was
    /// kept long enough, or is no link yet.
    pub(super) fn doubt(&mut self, now: Instant, conn: Key, silence: Duration) -> bool {
        let Some(entry) = self.links.get_mut(conn) else { return false };
        if std::mem::replace(&mut entry.doubted, true) {
            return false;
        }
        entry.link.be_patient(now, SERVER_PATIENCE);
        let line = format!(
            "msg=\"server silent, trying another link\" server={} address={} silence={} streams={}",
            Quoted(&entry.server_id),
            entry.address,
            Seconds(silence),
            entry.link.streams()
        );
        self.note(Level::Warn, line);
        self.retime_link(conn);
        let delay = Backoff::after_silence(&mut self.rng);
        self.set_uplink(Uplink::Waiting { until: now + delay });
        true
    }

    /// A doubted link spoke: it is the link again, and the attempt to replace it ends.
    pub(super) fn trust_again(&mut self, now: Instant, conn: Key) {
        let Some(entry) = self.links.get_mut(conn) else { return };
        if !std::mem::take(&mut entry.doubted) {
            return;
        }
        self.end_attempt(now, "the old link is alive");
        self.set_uplink(Uplink::Up { conn });
    }

    /// Gives the attempt up that is under way, if one is, and makes none.
    pub(super) fn end_attempt(&mut self, now: Instant, why: &str) {
        match std::mem::replace(&mut self.uplink, Uplink::Waiting { until: now }) {
            up @ Uplink::Up { .. } => self.uplink = up,
            Uplink::Waiting { .. } => {}
            Uplink::ReadingToken { job, .. } | Uplink::Resolving { job, .. } => {
                self.jobs.remove(&job);
                self.effects.push_back(Effect::CancelJob { job });
            }
            Uplink::Connecting(race) => {
                for job in race.running() {
                    self.cancel_connect(job);
                }
            }
            Uplink::Greeting { conn, .. } => {
                self.drop_link(now, conn, "cancelled", why, false);
                self.effects.push_back(Effect::Close { conn, manner: Manner::Abort });
            }
        }
        self.timers.set(TimerOwner::Uplink, &mut self.uplink_timer, None);
    }

    /// The attempt came to nothing, or the link is gone.
    pub(super) fn attempt_failed(&mut self, now: Instant, text: &str, refused: bool) {
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
    pub(super) fn drop_link(
        &mut self,
        now: Instant,
        conn: Key,
        label: &'static str,
        text: &str,
        refused: bool,
    ) {
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
            let planned = label == GoAwayCode::Shutdown.name();
            self.note(if planned { Level::Info } else { Level::Warn }, line);
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
}
