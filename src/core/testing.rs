//! Shared by the unit tests of core: a point in time to count from, and the world around links in memory.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use tautline_wire::{DATA_LEN_MAX, Hello, Welcome};

use super::ids::StreamKey;
use super::mux::{
    DataSink, DataSource, Link, LinkConfig, LinkError, LinkEvent, LivenessConfig, Pulled, Side, TransmitBuf,
    WindowBudget,
};
use super::role::{Effect, Role};
use crate::key::Key;
use crate::limits::WINDOW_INITIAL;

/// The instant at which a test begins. Tests only add to it.
#[expect(clippy::disallowed_methods, reason = "a base for a virtual clock; nothing depends on its value")]
pub(crate) fn start() -> Instant {
    Instant::now()
}

/// The defaults of the flags.
pub(crate) const LIVENESS: LivenessConfig = LivenessConfig {
    ping_interval: Some(Duration::from_secs(2)),
    ping_timeout: Duration::from_secs(1),
    dead_after: Duration::from_secs(10),
};

/// A key that no table of the test hands out twice.
pub(crate) fn key(number: u32) -> Key {
    Key::from_bits(1 << 32 | u64::from(number))
}

pub(crate) fn hello(agent_id: &str) -> Hello {
    Hello {
        version_min: 1,
        version_max: 1,
        features: 0,
        agent_id: agent_id.to_owned(),
        identifiers: String::new(),
        token: None,
        ping_interval_ms: 2000,
        window: WINDOW_INITIAL,
        data_len_max: DATA_LEN_MAX as u32,
    }
}

pub(crate) fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: 0,
        server_id: "server".to_owned(),
        server_count: 1,
        window: WINDOW_INITIAL,
        data_len_max: DATA_LEN_MAX as u32,
    }
}

/// The sockets behind the streams of one end, by owner.
#[derive(Default)]
pub(crate) struct Sockets {
    /// What each one was given, and has taken or will take.
    pub(crate) received: HashMap<Key, Vec<u8>>,
    /// Those that were told the end.
    pub(crate) finished: HashSet<Key>,
    /// Those that take nothing at once.
    pub(crate) stuck: HashSet<Key>,
    /// What each one has to send.
    pub(crate) unsent: HashMap<Key, VecDeque<u8>>,
    /// What comes behind it, once.
    pub(crate) then: HashMap<Key, Pulled>,
}

impl DataSink for Sockets {
    fn deliver(&mut self, owner: Key, bytes: &[u8], fin: bool) -> usize {
        assert!(!self.finished.contains(&owner), "nothing comes after FIN");
        self.received.entry(owner).or_default().extend_from_slice(bytes);
        if fin {
            self.finished.insert(owner);
        }
        if self.stuck.contains(&owner) { 0 } else { bytes.len() }
    }
}

impl DataSource for Sockets {
    fn pull(&mut self, owner: Key, into: &mut [u8]) -> Pulled {
        assert!(!into.is_empty());
        let unsent = self.unsent.entry(owner).or_default();
        let n = into.len().min(unsent.len());
        if n == 0 {
            return self.then.remove(&owner).unwrap_or(Pulled::Blocked);
        }
        for (byte, from) in into.iter_mut().zip(unsent.drain(..n)) {
            *byte = from;
        }
        Pulled::Bytes(n)
    }
}

/// A link without a role, and all around it.
pub(crate) struct End {
    pub(crate) link: Link,
    pub(crate) budget: WindowBudget,
    pub(crate) sockets: Sockets,
    pub(crate) events: Vec<LinkEvent>,
}

impl End {
    fn new(link: Link) -> Self {
        let (sockets, events) = (Sockets::default(), Vec::new());
        Self { link, budget: WindowBudget::new(1 << 28), sockets, events }
    }

    pub(crate) fn server(now: Instant) -> Self {
        Self::new(Link::accept(LinkConfig { side: Side::Server, liveness: LIVENESS, seed: 200 }, now))
    }

    pub(crate) fn agent(now: Instant, agent_id: &str) -> Self {
        Self::agent_saying(now, hello(agent_id))
    }

    pub(crate) fn agent_saying(now: Instant, hello: Hello) -> Self {
        let config = LinkConfig { side: Side::Agent, liveness: LIVENESS, seed: 200 };
        Self::new(Link::connect(config, now, hello))
    }

    /// Everything that it wants to send, or what fits in `room` once.
    pub(crate) fn send(&mut self, now: Instant, room: usize) -> Vec<u8> {
        let mut out = TransmitBuf::new(room);
        self.link.poll_transmit(now, &mut self.budget, &mut self.sockets, &mut out);
        self.fetch_events();
        out.filled().to_vec()
    }

    pub(crate) fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), LinkError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = self.link.handle_bytes(now, rest, &mut self.budget, &mut self.sockets)?;
            rest = &rest[n..];
            self.fetch_events();
        }
        Ok(())
    }

    fn fetch_events(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.link.poll_event()));
    }

    pub(crate) fn take_events(&mut self) -> Vec<LinkEvent> {
        self.fetch_events();
        std::mem::take(&mut self.events)
    }

    /// Gives the socket `owner` of `stream` something to send, and what comes behind it.
    pub(crate) fn write(&mut self, stream: StreamKey, owner: Key, bytes: &[u8], then: Option<Pulled>) {
        self.sockets.unsent.entry(owner).or_default().extend(bytes);
        if let Some(then) = then {
            self.sockets.then.insert(owner, then);
        }
        self.link.source_ready(stream);
    }

    pub(crate) fn close(&mut self, stream: StreamKey, code: tautline_wire::CloseCode) {
        self.link.close(stream, &mut self.budget, code);
    }

    /// The streams that it was asked to dial since the last look, with their targets.
    pub(crate) fn dials(&mut self) -> Vec<(StreamKey, String)> {
        let dials = self.take_events().into_iter().filter_map(|event| match event {
            LinkEvent::DialRequested { stream, target, .. } => Some((stream, target)),
            _ => None,
        });
        dials.collect()
    }
}

/// Carries bytes between a role's link and its peer until both are silent, as the driver does.
pub(crate) fn converse<R: Role>(role: &mut R, now: Instant, conn: Key, peer: &mut End) {
    let mut sockets = Sockets::default();
    loop {
        let to_role = peer.send(now, 1 << 16);
        let mut rest = &to_role[..];
        while !rest.is_empty() {
            let Some((link, budget)) = role.link(conn) else { return };
            match link.handle_bytes(now, rest, budget, &mut sockets) {
                Ok(n) => rest = &rest[n..],
                Err(error) => return role.on_link_error(now, conn, error),
            }
            role.on_link_activity(now, conn);
        }
        let Some((link, budget)) = role.link(conn) else { return };
        let mut out = TransmitBuf::new(1 << 16);
        link.poll_transmit(now, budget, &mut sockets, &mut out);
        role.on_link_activity(now, conn);
        peer.receive(now, out.filled()).unwrap();
        if to_role.is_empty() && out.filled().is_empty() {
            return;
        }
    }
}

/// All that a role asks of the world, without its log.
pub(crate) fn effects<R: Role>(role: &mut R) -> Vec<Effect> {
    std::iter::from_fn(|| role.poll_effect())
        .filter(|effect| !matches!(effect, Effect::Note(_) | Effect::Transmit { .. }))
        .collect()
}
