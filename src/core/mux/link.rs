//! One link, either side. Bytes and `now` in; events, bytes and a deadline out.
//!
//! Pull, do not push: the link is asked for bytes when its transport has room, and then takes payload from one
//! stream after another, straight from the source. Each call that may make events is followed by draining
//! [`Link::poll_event`].

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use tautline_wire::{
    Close, CloseCode, Control, DATA_LEN_MAX, Decoder, DialFailure, DialReq, DialRsp, FrameType, HEADER_LEN,
    Hello, Item, Limits, MAGIC, Welcome, Window, encode_control, encode_data_header,
};

use super::event::{DataSink, DataSource, LinkError, LinkEvent, LinkStats, Pulled, StreamEnd};
use super::flow::{RecvWindow, WindowBudget};
use super::liveness::{Health, Liveness, LivenessConfig, Verdict};
use super::stream::{Origin, Stream, StreamState};
use super::table::Streams;
use super::transmit::TransmitBuf;
use crate::core::ids::StreamKey;
use crate::core::metrics::Direction;
use crate::key::Key;
use crate::limits::{
    CONTROL_BACKLOG_MAX, HALF_CLOSED_IDLE_TIMEOUT, LINGER_TIMEOUT, STREAM_QUANTUM, SWEEP_PAUSE_MIN,
};

/// Which end of the link this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Accepts the link, opens streams.
    Server,
    /// Dials the link, serves streams.
    Agent,
}

/// What a link needs to know.
#[derive(Debug, Clone, Copy)]
pub struct LinkConfig {
    /// Which end.
    pub side: Side,
    /// When to ping, and when to judge.
    pub liveness: LivenessConfig,
    /// Spreads pings; any number.
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Server: HELLO was not there yet, or is being judged. Agent: WELCOME was not there yet.
    Greeting { heard: bool },
    /// Streams may be opened.
    Open,
}

/// One link.
pub struct Link {
    side: Side,
    phase: Phase,
    decoder: Decoder,
    streams: Streams,
    liveness: Liveness,
    events: VecDeque<LinkEvent>,
    /// Control frames, encoded, in order.
    control: Vec<u8>,
    pong_due: Option<u64>,
    /// What the peer announced for each new stream.
    peer_window: u32,
    peer_data_len_max: u32,
    /// When streams are looked through for those that nothing moves any more.
    next_sweep: Instant,
    stats: LinkStats,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("side", &self.side)
            .field("phase", &self.phase)
            .field("streams", &self.streams.len())
            .field("liveness", &self.liveness)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// The server's end: waits for the magic and HELLO.
    #[must_use]
    pub fn accept(config: LinkConfig, now: Instant) -> Self {
        debug_assert_eq!(config.side, Side::Server);
        let limits = Limits { data_len_max: 0, control_len_max: tautline_wire::HELLO_LEN_MAX as u32 };
        Self::new(config, now, Decoder::after_magic(limits))
    }

    /// The agent's end: introduces itself.
    #[must_use]
    pub fn connect(config: LinkConfig, now: Instant, hello: Hello) -> Self {
        debug_assert_eq!(config.side, Side::Agent);
        let limits = Limits { data_len_max: 0, control_len_max: tautline_wire::CONTROL_LEN_MAX as u32 };
        let mut link = Self::new(config, now, Decoder::new(limits));
        link.control.extend_from_slice(&MAGIC);
        link.queue(&Control::Hello(hello));
        link
    }

    fn new(config: LinkConfig, now: Instant, decoder: Decoder) -> Self {
        Self {
            side: config.side,
            phase: Phase::Greeting { heard: false },
            decoder,
            streams: Streams::default(),
            liveness: Liveness::new(config.liveness, now, config.seed),
            events: VecDeque::new(),
            control: Vec::new(),
            pong_due: None,
            peer_window: 0,
            peer_data_len_max: 0,
            next_sweep: now + HALF_CLOSED_IDLE_TIMEOUT / 4,
            stats: LinkStats::default(),
        }
    }

    /// Server: takes the agent that said `hello`.
    pub fn welcome(&mut self, hello: &Hello, welcome: Welcome) {
        debug_assert_eq!(self.phase, Phase::Greeting { heard: true });
        self.peer_window = hello.window;
        self.peer_data_len_max = hello.data_len_max;
        self.queue(&Control::Welcome(welcome));
        self.open_for_streams();
    }

    /// Tells the peer that it should send no new dials this way.
    pub fn drain(&mut self) {
        self.queue(&Control::Drain);
    }

    /// Server: asks the agent for a target. `None` when the link takes no streams (yet, or any more).
    pub fn open(
        &mut self,
        now: Instant,
        budget: &mut WindowBudget,
        id: u64,
        owner: Key,
        target: &str,
        time_left: Duration,
    ) -> Option<StreamKey> {
        if self.phase != Phase::Open || self.side != Side::Server {
            return None;
        }
        let stream = Stream::dialing(id, owner, self.peer_window, RecvWindow::new(budget, now), now);
        let key = self.streams.insert(stream)?;
        let time_left_ms = u32::try_from(time_left.as_millis()).unwrap_or(u32::MAX);
        self.queue(&Control::DialReq(DialReq { stream: id, time_left_ms, target: target.to_owned() }));
        Some(key)
    }

    /// Agent: the target of `stream` is connected, `owner` is its connection. False if the stream is gone.
    #[must_use]
    pub fn dial_succeeded(&mut self, stream: StreamKey, owner: Key) -> bool {
        let Some(entry) = self.streams.get_mut(stream) else { return false };
        entry.owner = owner;
        entry.open();
        self.queue(&Control::DialRsp(DialRsp { stream: stream.id, result: Ok(()) }));
        true
    }

    /// Agent: the target of `stream` cannot be connected.
    pub fn dial_failed(&mut self, stream: StreamKey, budget: &mut WindowBudget, failure: DialFailure) {
        if let Some(entry) = self.streams.remove(stream) {
            entry.recv_window.release(budget);
            self.queue(&Control::DialRsp(DialRsp { stream: stream.id, result: Err(failure) }));
        }
    }

    /// Ends a stream from this side, without an event: both directions, at once. No effect if it is gone.
    pub fn close(&mut self, stream: StreamKey, budget: &mut WindowBudget, code: CloseCode) {
        let Some(entry) = self.streams.remove(stream) else { return };
        entry.recv_window.release(budget);
        let close = Close { stream: stream.id, code };
        let dialing = entry.state == StreamState::Dialing;
        self.queue(&if dialing { Control::DialCls(close) } else { Control::CloseReq(close) });
    }

    /// As [`Link::close`], for a socket that is gone: the role learns of it by an event.
    pub fn end_here(&mut self, stream: StreamKey, budget: &mut WindowBudget, code: CloseCode) {
        if self.streams.get(stream).is_some() {
            self.end(stream, StreamEnd::ClosedHere(code), budget);
            self.queue(&Control::CloseReq(Close { stream: stream.id, code }));
        }
    }

    /// The socket of `stream` may have bytes, or its end.
    pub fn source_ready(&mut self, stream: StreamKey) {
        if let Some(entry) = self.streams.get_mut(stream) {
            entry.source_ready = true;
            self.streams.schedule(stream);
        }
    }

    /// The peer of the socket of `stream` is gone, and will take nothing more; what it left to read still goes to
    /// the other end. It is given up when none of it moves for [`LINGER_TIMEOUT`].
    pub fn source_gone(&mut self, stream: StreamKey, now: Instant) {
        if let Some(entry) = self.streams.get_mut(stream)
            && entry.orphaned.is_none()
        {
            entry.orphaned = Some(now);
            self.next_sweep = self.next_sweep.min(now + LINGER_TIMEOUT);
        }
    }

    /// True if nothing may be pulled for `stream`: the other end's socket takes nothing.
    #[must_use]
    pub fn is_stalled(&self, stream: StreamKey) -> bool {
        self.streams.get(stream).is_some_and(|entry| entry.send_window.available() == 0)
    }

    /// The socket of `stream` took `bytes` that were waiting.
    pub fn consumed(&mut self, now: Instant, stream: StreamKey, bytes: usize) {
        if let Some(entry) = self.streams.get_mut(stream) {
            entry.recv_window.consume(u32::try_from(bytes).unwrap_or(u32::MAX));
            self.streams.list_grant(now, stream);
        }
    }

    /// Asks the peer for a sign of life, unless an answer is awaited already.
    pub fn probe(&mut self, now: Instant) {
        self.liveness.probe(now);
    }

    /// Takes received bytes; returns how many it took. Fewer than all when an event is to be fetched first.
    ///
    /// # Errors
    /// The peer broke the protocol; the link must end.
    pub fn handle_bytes<S: DataSink>(
        &mut self,
        now: Instant,
        bytes: &[u8],
        budget: &mut WindowBudget,
        sink: &mut S,
    ) -> Result<usize, LinkError> {
        if let Some(lasted) = self.liveness.on_received(now) {
            self.events.push_back(LinkEvent::HealthChanged { false_after: Some(lasted) });
        }
        let mut rest = bytes;
        while self.events.is_empty() {
            let Some(item) = self.decoder.next(&mut rest).map_err(LinkError::Decode)? else { break };
            match item {
                Item::Data { stream, chunk, fin } => self.on_data(now, stream, (chunk, fin), budget, sink),
                Item::Control(frame) => self.on_control(now, frame, budget)?,
            }
        }
        if self.control.len() > CONTROL_BACKLOG_MAX {
            return Err(LinkError::ControlBacklog);
        }
        self.check_invariants();
        Ok(bytes.len() - rest.len())
    }

    /// Takes one piece of payload.
    fn on_data<S: DataSink>(
        &mut self,
        now: Instant,
        id: u64,
        (chunk, fin): (&[u8], bool),
        budget: &mut WindowBudget,
        sink: &mut S,
    ) {
        self.stats.frames.count(Direction::Received, FrameType::Data);
        let Some(key) = self.streams.find(id) else {
            self.stats.frames_ignored += 1;
            return;
        };
        let Some(stream) = self.streams.get_mut(key) else { return };
        let len = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        if !stream.may_receive() || !stream.recv_window.receive(len) {
            return self.fail_stream(key, budget);
        }
        let taken = sink.deliver(stream.owner, chunk, fin);
        stream.recv_window.consume(u32::try_from(taken).unwrap_or(u32::MAX));
        stream.last_active = now;
        self.stats.bytes_received += u64::from(len);
        if !fin {
            self.streams.list_grant(now, key);
        } else if let Some(first) = stream.finish(Origin::There) {
            self.end(key, StreamEnd::Finished { first }, budget);
        }
    }

    fn on_control(
        &mut self,
        now: Instant,
        frame: Control,
        budget: &mut WindowBudget,
    ) -> Result<(), LinkError> {
        self.stats.frames.count(Direction::Received, frame.frame_type());
        if let Phase::Greeting { heard } = self.phase {
            return self.on_greeting(frame, heard);
        }
        match frame {
            Control::Hello(_) => return Err(LinkError::PeerMisbehaved("a second HELLO")),
            Control::Welcome(_) => return Err(LinkError::PeerMisbehaved("a second WELCOME")),
            Control::Ping(payload) => self.pong_due = Some(payload),
            Control::Pong(payload) => {
                if let Some(rtt) = self.liveness.on_pong(now, payload) {
                    self.stats.round_trips.observe(rtt);
                }
            }
            Control::Window(window) => self.on_window(window, budget),
            Control::DialReq(dial) => self.on_dial_req(now, dial, budget)?,
            Control::DialRsp(answer) => self.on_dial_rsp(answer, budget)?,
            Control::CloseReq(close) => {
                if self.end_by_peer(close, budget) {
                    self.queue(&Control::CloseRsp(close));
                }
            }
            Control::DialCls(close) => {
                self.end_by_peer(close, budget);
            }
            // We forgot the stream when we sent CLOSE_REQ; there is nothing left to do.
            Control::CloseRsp(_) => {}
            Control::Drain => self.events.push_back(LinkEvent::Drain),
            Control::GoAway(frame) => self.events.push_back(LinkEvent::GoAway(frame)),
        }
        Ok(())
    }

    fn on_greeting(&mut self, frame: Control, heard: bool) -> Result<(), LinkError> {
        match (self.side, frame) {
            (Side::Server, Control::Hello(hello)) if !heard => {
                self.phase = Phase::Greeting { heard: true };
                self.events.push_back(LinkEvent::Hello(hello));
            }
            (Side::Agent, Control::Welcome(welcome)) => {
                self.peer_window = welcome.window;
                self.peer_data_len_max = welcome.data_len_max;
                self.open_for_streams();
                self.events.push_back(LinkEvent::Welcome(welcome));
            }
            (_, Control::GoAway(frame)) => self.events.push_back(LinkEvent::GoAway(frame)),
            (Side::Server, _) => return Err(LinkError::PeerMisbehaved("a frame before WELCOME")),
            (Side::Agent, _) => return Err(LinkError::PeerMisbehaved("the first frame is not WELCOME")),
        }
        Ok(())
    }

    fn open_for_streams(&mut self) {
        self.phase = Phase::Open;
        self.peer_data_len_max = self.peer_data_len_max.clamp(1, DATA_LEN_MAX as u32);
        self.decoder.set_limits(Limits {
            data_len_max: DATA_LEN_MAX as u32,
            control_len_max: tautline_wire::CONTROL_LEN_MAX as u32,
        });
    }

    fn on_window(&mut self, window: Window, budget: &mut WindowBudget) {
        let Some(key) = self.streams.find(window.stream) else {
            self.stats.frames_ignored += 1;
            return;
        };
        let Some(stream) = self.streams.get_mut(key) else { return };
        if stream.send_window.add(window.credit) {
            self.streams.schedule(key);
        } else {
            self.fail_stream(key, budget);
        }
    }

    fn on_dial_req(
        &mut self,
        now: Instant,
        dial: DialReq,
        budget: &mut WindowBudget,
    ) -> Result<(), LinkError> {
        if self.side != Side::Agent {
            return Err(LinkError::PeerMisbehaved("DIAL_REQ from an agent"));
        }
        let window = RecvWindow::new(budget, now);
        let stream = Stream::dialing(dial.stream, Key::default(), self.peer_window, window, now);
        let Some(key) = self.streams.insert(stream) else {
            window.release(budget);
            return Err(LinkError::PeerMisbehaved("DIAL_REQ for a stream that exists"));
        };
        self.events.push_back(LinkEvent::DialRequested {
            stream: key,
            target: dial.target,
            time_left: Duration::from_millis(u64::from(dial.time_left_ms)),
        });
        Ok(())
    }

    fn on_dial_rsp(&mut self, answer: DialRsp, budget: &mut WindowBudget) -> Result<(), LinkError> {
        if self.side != Side::Server {
            return Err(LinkError::PeerMisbehaved("DIAL_RSP from a server"));
        }
        let Some(key) = self.streams.find(answer.stream) else {
            // Our DIAL_CLS is on its way; the agent closes the target's connection when it comes.
            self.stats.frames_ignored += 1;
            return Ok(());
        };
        let Some(stream) = self.streams.get_mut(key) else { return Ok(()) };
        if stream.state != StreamState::Dialing {
            return Err(LinkError::PeerMisbehaved("a second DIAL_RSP"));
        }
        let owner = stream.owner;
        match answer.result {
            Ok(()) => {
                stream.open();
                self.events.push_back(LinkEvent::Opened { owner, stream: key });
            }
            Err(failure) => {
                self.forget(key, budget);
                self.events.push_back(LinkEvent::DialFailed { owner, stream: key, failure });
            }
        }
        Ok(())
    }

    /// Ends a stream as the peer says; false if it was gone.
    fn end_by_peer(&mut self, close: Close, budget: &mut WindowBudget) -> bool {
        let Some(key) = self.streams.find(close.stream) else {
            self.stats.frames_ignored += 1;
            return false;
        };
        self.end(key, StreamEnd::ClosedThere(close.code), budget);
        true
    }

    /// The peer broke a rule of one stream: that stream ends, at both ends.
    fn fail_stream(&mut self, key: StreamKey, budget: &mut WindowBudget) {
        self.end(key, StreamEnd::ClosedHere(CloseCode::Protocol), budget);
        self.queue(&Control::CloseReq(Close { stream: key.id, code: CloseCode::Protocol }));
    }

    /// Removes a stream and tells the role.
    fn end(&mut self, key: StreamKey, end: StreamEnd, budget: &mut WindowBudget) {
        if let Some(owner) = self.forget(key, budget) {
            self.events.push_back(LinkEvent::Ended { owner, stream: key, end });
        }
    }

    fn forget(&mut self, key: StreamKey, budget: &mut WindowBudget) -> Option<Key> {
        let stream = self.streams.remove(key)?;
        stream.recv_window.release(budget);
        Some(stream.owner)
    }

    /// The next thing that the role must know.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// True if [`Link::poll_transmit`] would write something.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        !self.control.is_empty()
            || self.pong_due.is_some()
            || (self.phase == Phase::Open
                && (self.liveness.ping_due()
                    || self.streams.any_grants()
                    || self.streams.anything_scheduled()))
    }

    /// Fills `out`: control frames first, then payload, one stream after the other. Call it while there is room
    /// in the transport; [`Link::wants_transmit`] tells whether something is left.
    pub fn poll_transmit<S: DataSource>(
        &mut self,
        now: Instant,
        budget: &mut WindowBudget,
        source: &mut S,
        out: &mut TransmitBuf,
    ) {
        let before = out.room();
        self.queue_link_frames(now, budget);
        out.append(&mut self.control);
        if self.control.is_empty() {
            if self.control.capacity() > 4096 {
                self.control = Vec::new();
            }
            if self.phase == Phase::Open {
                self.pull_payload(now, budget, source, out);
            }
        }
        if out.room() < before {
            self.liveness.on_sent(now);
        }
        self.check_invariants();
    }

    fn queue_link_frames(&mut self, now: Instant, budget: &mut WindowBudget) {
        if let Some(payload) = self.pong_due.take() {
            self.queue(&Control::Pong(payload));
        }
        if self.phase != Phase::Open {
            return;
        }
        if let Some(payload) = self.liveness.take_ping(now) {
            self.queue(&Control::Ping(payload));
        }
        let rtt = self.liveness.rtt().smoothed();
        while let Some(key) = self.streams.next_grant() {
            let Some(stream) = self.streams.get_mut(key) else { continue };
            let credit = stream.recv_window.grant(now, rtt, budget);
            if credit > 0 {
                self.queue(&Control::Window(Window { stream: key.id, credit }));
            }
        }
    }

    fn pull_payload<S: DataSource>(
        &mut self,
        now: Instant,
        budget: &mut WindowBudget,
        source: &mut S,
        out: &mut TransmitBuf,
    ) {
        while out.room() > HEADER_LEN {
            let Some(key) = self.streams.next_scheduled() else { return };
            let Some(stream) = self.streams.get_mut(key) else { continue };
            let max = stream.send_window.available().min(self.peer_data_len_max).min(STREAM_QUANTUM) as usize;
            match source.pull(stream.owner, out.payload(max)) {
                Pulled::Bytes(n) => {
                    debug_assert!(n > 0 && n <= max);
                    stream.send_window.spend(n as u32);
                    stream.last_active = now;
                    stream.orphaned = stream.orphaned.map(|_| now);
                    out.commit(encode_data_header(key.id, n as u32, false), n);
                    self.stats.frames.count(Direction::Sent, FrameType::Data);
                    self.stats.bytes_sent += n as u64;
                    self.streams.schedule(key);
                }
                Pulled::Blocked => stream.source_ready = false,
                Pulled::Fin => {
                    out.commit(encode_data_header(key.id, 0, true), 0);
                    self.stats.frames.count(Direction::Sent, FrameType::Data);
                    stream.last_active = now;
                    if let Some(first) = stream.finish(Origin::Here) {
                        self.end(key, StreamEnd::Finished { first }, budget);
                    }
                }
                Pulled::Closed(code) => {
                    self.end(key, StreamEnd::ClosedHere(code), budget);
                    self.queue(&Control::CloseReq(Close { stream: key.id, code }));
                }
            }
        }
    }

    /// Call it when [`Link::poll_timeout`] is due, after the socket was read.
    ///
    /// # Errors
    /// The peer is dead; the link must end.
    pub fn handle_timeout(&mut self, now: Instant, budget: &mut WindowBudget) -> Result<(), LinkError> {
        if now >= self.next_sweep {
            self.sweep_idle(now, budget);
        }
        if self.phase != Phase::Open {
            return Ok(());
        }
        match self.liveness.handle_timeout(now) {
            Verdict::Unchanged => {}
            Verdict::Suspect => self.events.push_back(LinkEvent::HealthChanged { false_after: None }),
            Verdict::Dead { silence } => return Err(LinkError::PeerSilent { silence }),
        }
        Ok(())
    }

    /// Goes on after [`LinkError::PeerSilent`] until the silence is `patience` times `dead_after`. A byte makes the peer
    /// alive again ([`LinkEvent::HealthChanged`]), as patient as before.
    pub fn be_patient(&mut self, now: Instant, patience: u32) {
        self.liveness.be_patient(now, patience);
    }

    /// A half-closed stream may wait long for its other half, but not for ever (a peer may have vanished); one
    /// whose socket is gone waits as long as a closing socket.
    fn sweep_idle(&mut self, now: Instant, budget: &mut WindowBudget) {
        self.next_sweep = now + HALF_CLOSED_IDLE_TIMEOUT / 4;
        let mut idle = Vec::new();
        for (key, stream) in self.streams.iter() {
            match stream.idle_deadline() {
                Some(at) if at <= now => idle.push(key),
                Some(at) => self.next_sweep = self.next_sweep.min(at.max(now + SWEEP_PAUSE_MIN)),
                None => {}
            }
        }
        for key in idle {
            self.end(key, StreamEnd::ClosedHere(CloseCode::TimedOut), budget);
            self.queue(&Control::CloseReq(Close { stream: key.id, code: CloseCode::TimedOut }));
        }
    }

    /// When [`Link::handle_timeout`] wants to be called, and what for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let sweep = (self.streams.len() > 0).then_some((self.next_sweep, "idle streams"));
        let liveness = if self.phase == Phase::Open { self.liveness.poll_timeout() } else { None };
        [sweep, liveness].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// The link is lost: gives the owners of all its streams, and the windows back. Streams whose end was not
    /// fetched yet are among them: nobody else will tell their owners.
    pub fn abandon(&mut self, budget: &mut WindowBudget) -> Vec<(StreamKey, Key)> {
        let mut owners: Vec<(StreamKey, Key)> = self
            .events
            .drain(..)
            .filter_map(|event| match event {
                LinkEvent::Ended { owner, stream, .. } | LinkEvent::DialFailed { owner, stream, .. } => {
                    Some((stream, owner))
                }
                _ => None,
            })
            .collect();
        for (key, stream) in self.streams.drain() {
            stream.recv_window.release(budget);
            owners.push((key, stream.owner));
        }
        owners
    }

    /// True once HELLO and WELCOME passed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Streams in the table, those whose dial is pending included.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// What is believed of the peer.
    #[must_use]
    pub fn health(&self) -> Health {
        self.liveness.health()
    }

    /// The machine behind it.
    #[must_use]
    pub fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// The kernel's measurements.
    pub fn set_kernel_times(&mut self, rtt: Duration, rto: Duration) {
        self.liveness.set_kernel_times(rtt, rto);
    }

    /// Takes a pause of our own process off every silence.
    pub fn forgive(&mut self, pause: Duration) {
        self.liveness.forgive(pause);
    }

    /// What passed.
    #[must_use]
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    fn queue(&mut self, frame: &Control) {
        self.stats.frames.count(Direction::Sent, frame.frame_type());
        encode_control(frame, &mut self.control);
    }

    #[inline]
    fn check_invariants(&self) {
        #[cfg(debug_assertions)]
        self.streams.check_invariants();
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
