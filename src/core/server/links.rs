//! Agents' links: greeting, events, health, loss.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tautline_wire::{GoAway, GoAwayCode, Hello, Welcome};

use super::backend::{BackendState, Proof};
use super::{Frontend, Server, State, TimerOwner, peer_name};
use crate::core::ids::JobId;
use crate::core::metrics::ClosedBy;
use crate::core::mux::LinkEvent;
use crate::core::note::{Level, Quoted, Seconds, name_of};
use crate::core::role::{Effect, Manner, Role};
use crate::core::timers::TimerQueue;
use crate::key::Key;
use crate::limits::WINDOW_INITIAL;
use crate::token::{Secret, Verdict};

impl Server {
    pub(super) fn on_hello(&mut self, now: Instant, conn: Key, mut hello: Hello) {
        let version = tautline_wire::VERSION;
        if hello.version_min > version || hello.version_max < version {
            let text = format!(
                "this server speaks version {version} of the protocol, the agent {} to {}",
                hello.version_min, hello.version_max
            );
            return self.dismiss(now, conn, GoAwayCode::Version, &text);
        }
        let token = hello.token.take();
        if !self.config.reviews_tokens {
            return self.take_in(now, conn, &hello);
        }
        let Some(token) = token else {
            let text = "no token: this server wants one (--service-account-token-path of the agent)";
            self.metrics.token_reviews.inc(["missing"]);
            return self.dismiss(now, conn, GoAwayCode::Unauthenticated, text);
        };
        let Some(backend) = self.backends.get_mut(conn) else { return };
        let BackendState::Greeting { deadline } = backend.state else { return };
        self.next_review += 1;
        let job = JobId(self.next_review);
        backend.state = BackendState::Reviewing { deadline, job, hello: Box::new(hello) };
        self.reviews.insert(job, conn);
        self.effects.push_back(Effect::Review { job, token: Secret::new(token) });
    }

    pub(super) fn on_verdict(&mut self, now: Instant, job: JobId, verdict: Verdict) {
        let Some(conn) = self.reviews.remove(&job) else { return };
        let (label, code, text) = match verdict {
            Verdict::Accepted => {
                self.metrics.token_reviews.inc(["accepted"]);
                let Some(backend) = self.backends.get_mut(conn) else { return };
                // Its place is taken by `Ready` in a moment.
                let greeting = BackendState::Greeting { deadline: now };
                if let BackendState::Reviewing { hello, .. } = std::mem::replace(&mut backend.state, greeting)
                {
                    self.take_in(now, conn, &hello);
                }
                return;
            }
            Verdict::Denied(text) => ("denied", GoAwayCode::Unauthenticated, text),
            Verdict::Unavailable(text) => ("unavailable", GoAwayCode::TryAgain, text),
        };
        self.metrics.token_reviews.inc([label]);
        self.dismiss(now, conn, code, &text);
    }

    fn take_in(&mut self, now: Instant, conn: Key, hello: &Hello) {
        let version = tautline_wire::VERSION;
        let welcome = Welcome {
            version,
            features: 0,
            server_id: self.config.server_id.clone(),
            server_count: self.config.server_count,
            window: WINDOW_INITIAL,
            data_len_max: tautline_wire::DATA_LEN_MAX as u32,
        };
        let Some(backend) = self.backends.get_mut(conn) else { return };
        backend.link.welcome(hello, welcome);
        if self.drain.is_some() {
            backend.link.drain();
        }
        let (peer, from) = (peer_name(backend), backend.from);
        let older = self.backends.set_ready(conn, &hello.agent_id);
        self.metrics.common.links_up.inc();
        self.effects.push_back(Effect::Transmit { link: conn });
        self.note(Level::Info, format!("msg=\"link up\" agent={} peer={peer}", Quoted(&hello.agent_id)));
        for old in older {
            self.ask_for_proof(now, old, from);
        }
        for conn in std::mem::take(&mut self.waiting) {
            if let Some(Frontend { state: State::Dialing(dial), .. }) = self.frontends.get_mut(conn) {
                dial.listed = false;
                self.advance_dial(now, conn);
            }
        }
    }

    /// A newer link of the same agent id came: this one answers a PING in time or goes.
    pub(super) fn ask_for_proof(&mut self, now: Instant, conn: Key, newer: Option<SocketAddr>) {
        let Some(backend) = self.backends.get_mut(conn) else { return };
        backend.link.probe(now);
        let until = now + backend.link.liveness().suspect_limit();
        backend.prove = Some(Proof { asked_at: now, until, newer });
        self.effects.push_back(Effect::Transmit { link: conn });
        self.retime_backend(conn);
    }

    pub(super) fn judge_proof(&mut self, now: Instant, conn: Key) {
        let Some(backend) = self.backends.get_mut(conn) else { return };
        let Some(proof) = backend.prove.take_if(|proof| now >= proof.until) else { return };
        let agent = backend.agent_id.clone();
        let peer = peer_name(backend);
        if backend.link.liveness().last_received() <= proof.asked_at {
            let text = "replaced: a new link of the same agent came, and this one does not answer";
            return self.dismiss(now, conn, GoAwayCode::Duplicate, text);
        }
        self.note_limited(
            now,
            "duplicate_agent",
            Level::Warn,
            format!(
                "msg=\"two live links with one agent id; give each agent its own --agent-id\" agent={} older_peer={peer} newer_peer={}",
                Quoted(&agent),
                name_of(proof.newer)
            ),
        );
    }

    /// Tells the peer why, then closes.
    pub(super) fn dismiss(&mut self, now: Instant, conn: Key, code: GoAwayCode, text: &str) {
        self.drop_backend(now, conn, code.name(), text);
        let last_words = Some(GoAway { code, text: text.to_owned() });
        self.effects.push_back(Effect::EndLink { link: conn, last_words, manner: Manner::Flush });
    }

    /// Takes a link out: its dials go elsewhere, its tunnels are reset.
    pub(super) fn drop_backend(&mut self, now: Instant, conn: Key, label: &'static str, text: &str) {
        let Some((mut backend, owners)) = self.backends.remove(conn) else { return };
        self.timers.set(TimerOwner::Backend(conn), &mut backend.timer, None);
        let peer = peer_name(&backend);
        let greeting = backend.is_stranger();
        if let BackendState::Reviewing { job, .. } = backend.state
            && self.reviews.remove(&job).is_some()
        {
            self.effects.push_back(Effect::CancelJob { job });
        }
        let up_for = Seconds(now.saturating_duration_since(backend.accepted_at));
        self.metrics.common.links_down.inc([label]);
        if greeting {
            self.note_limited(
                now,
                "agent_refused",
                Level::Warn,
                format!("msg=\"agent not taken\" peer={peer} reason={label} error={}", Quoted(text)),
            );
        } else {
            let agent = Quoted(&backend.agent_id);
            let streams = owners.len();
            let text = Quoted(text);
            let line = format!(
                "msg=\"link down\" agent={agent} peer={peer} reason={label} error={text} up_for={up_for} streams={streams}"
            );
            let planned = label == GoAwayCode::Shutdown.name();
            self.note(if planned { Level::Info } else { Level::Warn }, line);
        }
        for (stream, owner) in owners {
            match self.frontends.get(owner).map(|frontend| &frontend.state) {
                Some(State::Tunnel { stream: mine, .. }) if *mine == stream => {
                    self.end_tunnel(now, owner, ClosedBy::AgentLost, label, Manner::Abort);
                }
                Some(State::Dialing(_)) => self.attempt_over(now, conn, owner, stream, None),
                _ => {}
            }
        }
    }

    pub(super) fn on_link_event(&mut self, now: Instant, conn: Key, event: LinkEvent) {
        match event {
            LinkEvent::Hello(hello) => self.on_hello(now, conn, hello),
            LinkEvent::Opened { owner, stream } => self.on_opened(now, conn, owner, stream),
            LinkEvent::DialFailed { owner, stream, failure } => {
                self.attempt_over(now, conn, owner, stream, Some(failure));
            }
            LinkEvent::Ended { owner, stream, end } => self.on_ended(now, conn, owner, stream, end),
            LinkEvent::Drain => {
                if self.backends.set_draining(conn)
                    && let Some(backend) = self.backends.get(conn)
                {
                    let line = format!("msg=\"agent drains\" agent={}", Quoted(&backend.agent_id));
                    self.note(Level::Info, line);
                }
            }
            LinkEvent::GoAway(frame) => {
                self.drop_backend(now, conn, frame.code.name(), &frame.text);
                self.effects.push_back(Effect::Close { conn, manner: Manner::Flush });
            }
            LinkEvent::HealthChanged { false_after } => self.on_health_changed(now, conn, false_after),
            LinkEvent::Welcome(_) | LinkEvent::DialRequested { .. } => {
                debug_assert!(false, "an agent's event")
            }
        }
    }

    pub(super) fn on_health_changed(&mut self, now: Instant, conn: Key, false_after: Option<Duration>) {
        let Some(backend) = self.backends.get(conn) else { return };
        let agent = Quoted(&backend.agent_id);
        let live = backend.link.liveness();
        let rtt = Seconds(live.rtt().smoothed());
        let (level, line) = match false_after {
            None => {
                let silence = Seconds(now.saturating_duration_since(live.last_received()));
                self.metrics.common.suspicions.inc();
                let peer = peer_name(backend);
                let why = format!("no answer to PING for {}", Seconds(live.suspect_limit()));
                (
                    Level::Warn,
                    format!(
                        "msg=\"agent suspect\" agent={agent} peer={peer} reason=\"{why}\" silence={silence} rtt={rtt}"
                    ),
                )
            }
            Some(lasted) => {
                self.metrics.common.false_suspicions.inc();
                (
                    Level::Info,
                    format!("msg=\"agent alive again\" agent={agent} after={} rtt={rtt}", Seconds(lasted)),
                )
            }
        };
        self.note_limited(now, "health", level, line);
    }

    /// Looks at a link's deadline again.
    pub(super) fn retime_backend(&mut self, conn: Key) {
        if let Some(backend) = self.backends.get_mut(conn) {
            let at = backend.poll_timeout();
            self.timers.set_lazily(TimerOwner::Backend(conn), &mut backend.timer, at);
        }
    }

    pub(super) fn on_backend_timeout(&mut self, now: Instant, conn: Key) {
        let Some(backend) = self.backends.get_mut(conn) else { return };
        TimerQueue::<TimerOwner>::fired(&mut backend.timer);
        match backend.state {
            BackendState::Greeting { deadline } if now >= deadline => {
                return self.dismiss(now, conn, GoAwayCode::HelloTimeout, "no HELLO within 10 s");
            }
            BackendState::Reviewing { deadline, .. } if now >= deadline => {
                self.metrics.token_reviews.inc(["unavailable"]);
                return self.dismiss(now, conn, GoAwayCode::TryAgain, "the token was not judged in time");
            }
            _ => {}
        }
        let verdict = self.backends.link(conn).map(|(link, budget)| link.handle_timeout(now, budget));
        if let Some(Err(error)) = verdict {
            return self.on_link_error(now, conn, error);
        }
        self.judge_proof(now, conn);
        self.on_link_activity(now, conn);
        self.effects.push_back(Effect::Transmit { link: conn });
    }
}
