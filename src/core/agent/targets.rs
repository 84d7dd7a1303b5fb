//! Targets: dialled when the server asks, bridged when connected.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tautline_wire::{CloseCode, DialCode, DialFailure};

use super::target::{Progress, TargetDial};
use super::{Agent, Endpoint, JobOwner, TimerOwner};
use crate::core::connect::{Failure, Race, Step};
use crate::core::http::target::{Host, Target};
use crate::core::ids::{JobId, StreamKey};
use crate::core::mux::StreamEnd;
use crate::core::note::{Level, Quoted};
use crate::core::role::{Effect, Manner};
use crate::core::timers::TimerSlot;
use crate::key::Key;
use crate::limits::{DIAL_ANSWER_RESERVE, TARGET_CONNECT_TIMEOUT};

impl Agent {
    pub(super) fn begin_dial(
        &mut self,
        now: Instant,
        link: Key,
        stream: StreamKey,
        text: String,
        time_left: Duration,
    ) {
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
            self.effects.push_back(Effect::Resolve { job, host, port: target.port, link: false });
        }
        self.advance_dial(now, key);
    }

    pub(super) fn advance_dial(&mut self, now: Instant, key: Key) {
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

    pub(super) fn retime_dial(&mut self, key: Key) {
        if let Some(dial) = self.dials.get_mut(key) {
            let at = dial.poll_timeout();
            self.timers.set(TimerOwner::Dial(key), &mut dial.timer, Some(at));
        }
    }

    /// Takes a dial out and cancels what runs for it.
    pub(super) fn take_dial(&mut self, key: Key) -> Option<TargetDial> {
        let mut dial = self.dials.remove(key)?;
        self.dial_of.remove(&(dial.link, dial.stream.id));
        self.timers.set(TimerOwner::Dial(key), &mut dial.timer, None);
        match &dial.progress {
            Progress::Resolving { job } => {
                if self.jobs.remove(job).is_some() {
                    self.effects.push_back(Effect::CancelJob { job: *job });
                }
            }
            Progress::Connecting(race) => {
                for job in race.running().collect::<Vec<_>>() {
                    self.cancel_connect(job);
                }
            }
        }
        Some(dial)
    }

    pub(super) fn cancel_dial(&mut self, link: Key, stream: StreamKey) {
        if let Some(&key) = self.dial_of.get(&(link, stream.id)) {
            self.take_dial(key);
        }
    }

    /// Tells the server that a target cannot be had.
    pub(super) fn answer_dial(
        &mut self,
        now: Instant,
        link: Key,
        stream: StreamKey,
        target: &str,
        failure: Failure,
    ) {
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

    pub(super) fn target_resolved(
        &mut self,
        now: Instant,
        key: Key,
        result: Result<Vec<SocketAddr>, Failure>,
    ) {
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

    pub(super) fn target_connected(
        &mut self,
        now: Instant,
        key: Key,
        job: JobId,
        result: Result<Key, Failure>,
    ) {
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

    pub(super) fn open_endpoint(&mut self, now: Instant, conn: Key, dial: &TargetDial) {
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

    pub(super) fn on_ended(&mut self, link: Key, owner: Key, stream: StreamKey, end: StreamEnd) {
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
