//! The agents' links as the server sees them: who is there, who is picked, who must prove itself.
//!
//! ```text
//!            HELLO   (token accepted)              DRAIN
//!  Greeting ───────▶ [Reviewing ───▶] Ready ───────────▶ Draining
//!     │ refused, late   │               │ lost, GOAWAY      │
//!     └─────────────────┴────────────▶ gone ◀──────────────┘
//! ```
//! Tables are keyed by link, never by agent id: one agent may have two links, and its id may be claimed twice.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tautline_wire::Hello;

use crate::core::ids::{JobId, StreamKey};
use crate::core::mux::{Health, Link, LinkConfig, LinkStats, LivenessConfig, Side, WindowBudget};
use crate::core::rng::Rng;
use crate::core::timers::TimerSlot;
use crate::key::{Key, KeyMap};
use crate::limits::{
    GREETING_COST, GREETING_PATIENCE, GREETING_TIMEOUT, HEDGE_DELAY_MIN, STRIKE_TIME, WINDOW_POOL_SERVER,
};

/// How far a link is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BackendState {
    /// TLS and HELLO must be through by the deadline.
    Greeting {
        /// Then the link is closed.
        deadline: Instant,
    },
    /// The token of its HELLO is being judged; not longer than the same deadline.
    Reviewing {
        /// Then the agent is asked to come again.
        deadline: Instant,
        /// The review.
        job: JobId,
        /// Its token was taken out.
        hello: Box<Hello>,
    },
    /// Takes dials.
    Ready,
    /// Takes dials only if nobody else is there.
    Draining,
}

/// One agent's link.
pub(super) struct Backend {
    pub(super) link: Link,
    pub(super) state: BackendState,
    pub(super) from: Option<SocketAddr>,
    /// Empty before HELLO.
    pub(super) agent_id: String,
    pub(super) accepted_at: Instant,
    pub(super) timer: TimerSlot,
    /// A newer link of the same agent id is preferred.
    pub(super) superseded: bool,
    /// It spoke but did not answer a dial: until then others are asked first.
    pub(super) struck_until: Option<Instant>,
    /// Asked for a sign of life because a newer link of its agent id came.
    pub(super) prove: Option<Proof>,
}

/// A question to an old link: are you still there?
#[derive(Debug, Clone, Copy)]
pub(super) struct Proof {
    pub(super) asked_at: Instant,
    pub(super) until: Instant,
    /// Where the newer link comes from.
    pub(super) newer: Option<SocketAddr>,
}

impl Backend {
    /// It has not shown yet that it is an agent.
    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.state, BackendState::Greeting { .. } | BackendState::Reviewing { .. })
    }

    /// Smaller is better. Alive beats suspect, and a draining agent that lives beats one that may be dead.
    fn rank(&self, now: Instant) -> Option<u8> {
        let draining = match self.state {
            BackendState::Ready => false,
            BackendState::Draining => true,
            BackendState::Greeting { .. } | BackendState::Reviewing { .. } => return None,
        };
        let suspect = matches!(self.link.health(), Health::Suspect { .. });
        let struck = self.struck_until.is_some_and(|until| now < until);
        let faults = [suspect, struck, draining, self.superseded];
        Some(faults.iter().fold(0, |rank, &fault| rank * 2 + u8::from(fault)))
    }

    /// When the server wants to look at it.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let state = match self.state {
            BackendState::Greeting { deadline } | BackendState::Reviewing { deadline, .. } => Some(deadline),
            _ => self.prove.map(|proof| proof.until),
        };
        [state, self.link.poll_timeout().map(|(at, _)| at)].into_iter().flatten().min()
    }
}

/// A dial that went out over a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opened {
    pub(super) stream: StreamKey,
    /// When the link had last spoken.
    pub(super) heard: Instant,
    /// It was asked for a sign of life too.
    pub(super) probed: bool,
    /// How long to wait for that.
    pub(super) hedge_delay: Duration,
}

/// Room for one more stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// This link goes: it had its time.
    Of(Key),
    /// Not now.
    None,
}

/// All links, and what it takes to ask one of them.
pub(super) struct Backends {
    table: KeyMap<Backend>,
    /// Links that may be picked, in no order.
    candidates: Vec<Key>,
    by_agent: HashMap<String, Vec<Key>>,
    /// Links that have not said HELLO, by address, the oldest first.
    greetings: HashMap<Option<IpAddr>, VecDeque<Key>>,
    unauthenticated: usize,
    greetings_max: usize,
    /// What passed over links that are gone.
    past: LinkStats,
    pub(super) budget: WindowBudget,
    rng: Rng,
    next_stream: u64,
    liveness: LivenessConfig,
}

impl Backends {
    pub(super) fn new(liveness: LivenessConfig, greetings_max: usize, seed: u64) -> Self {
        Self {
            table: KeyMap::default(),
            candidates: Vec::new(),
            by_agent: HashMap::new(),
            greetings: HashMap::new(),
            unauthenticated: 0,
            greetings_max,
            past: LinkStats::default(),
            budget: WindowBudget::new(WINDOW_POOL_SERVER),
            rng: Rng::new(seed),
            next_stream: 1,
            liveness,
        }
    }

    /// Whether one more stranger finds room. The address that has most gives, so that a crowd behind one address
    /// shuts out itself only.
    pub(super) fn room(&self, now: Instant) -> Room {
        if self.unauthenticated < self.greetings_max {
            return Room::Free;
        }
        let longest = self.greetings.values().max_by_key(|links| links.len());
        let Some((oldest, backend)) = longest
            .and_then(|links| links.front())
            .and_then(|&oldest| Some((oldest, self.table.get(oldest)?)))
        else {
            return Room::None;
        };
        let sharing = u32::try_from(self.unauthenticated).unwrap_or(u32::MAX);
        let patience = GREETING_PATIENCE + GREETING_COST.saturating_mul(sharing);
        if now.saturating_duration_since(backend.accepted_at) < patience {
            Room::None
        } else {
            Room::Of(oldest)
        }
    }

    pub(super) fn accept(&mut self, now: Instant, conn: Key, from: Option<SocketAddr>) {
        let config = LinkConfig { side: Side::Server, liveness: self.liveness, seed: self.rng.next_u64() };
        let backend = Backend {
            link: Link::accept(config, now),
            state: BackendState::Greeting { deadline: now + GREETING_TIMEOUT },
            from,
            agent_id: String::new(),
            accepted_at: now,
            timer: TimerSlot::default(),
            superseded: false,
            struck_until: None,
            prove: None,
        };
        self.unauthenticated += 1;
        self.greetings.entry(from.map(|from| from.ip())).or_default().push_back(conn);
        self.table.insert(conn, backend);
    }

    fn greeting_over(&mut self, conn: Key, from: Option<SocketAddr>) {
        self.unauthenticated -= 1;
        let from = from.map(|from| from.ip());
        if let Some(same) = self.greetings.get_mut(&from) {
            same.retain(|&key| key != conn);
            if same.is_empty() {
                self.greetings.remove(&from);
            }
        }
    }

    /// Takes an agent in. Returns older links of the same id, which must prove themselves.
    pub(super) fn set_ready(&mut self, conn: Key, agent_id: &str) -> Vec<Key> {
        let Some(backend) = self.table.get_mut(conn) else { return Vec::new() };
        backend.state = BackendState::Ready;
        agent_id.clone_into(&mut backend.agent_id);
        let from = backend.from;
        self.greeting_over(conn, from);
        self.candidates.push(conn);
        let same = self.by_agent.entry(agent_id.to_owned()).or_default();
        let older = same.clone();
        same.push(conn);
        for &old in &older {
            if let Some(backend) = self.table.get_mut(old) {
                backend.superseded = true;
            }
        }
        older
    }

    pub(super) fn set_draining(&mut self, conn: Key) -> bool {
        match self.table.get_mut(conn) {
            Some(backend) if backend.state == BackendState::Ready => {
                backend.state = BackendState::Draining;
                true
            }
            _ => false,
        }
    }

    fn unlist(&mut self, conn: Key) {
        if let Some(index) = self.candidates.iter().position(|&key| key == conn) {
            self.candidates.swap_remove(index);
        }
        let Some(agent_id) = self.table.get(conn).map(|backend| backend.agent_id.as_str()) else { return };
        let Some(same) = self.by_agent.get_mut(agent_id) else { return };
        same.retain(|&key| key != conn);
        match same.last() {
            None => {
                let agent_id = agent_id.to_owned();
                self.by_agent.remove(&agent_id);
            }
            Some(&newest) => {
                if let Some(backend) = self.table.get_mut(newest) {
                    backend.superseded = false;
                }
            }
        }
    }

    /// Takes a link out of every table; gives its streams' owners.
    pub(super) fn remove(&mut self, conn: Key) -> Option<(Backend, Vec<(StreamKey, Key)>)> {
        match self.table.get(conn)?.state {
            BackendState::Greeting { .. } | BackendState::Reviewing { .. } => {
                let from = self.table.get(conn)?.from;
                self.greeting_over(conn, from);
            }
            BackendState::Ready | BackendState::Draining => self.unlist(conn),
        }
        let mut backend = self.table.remove(conn)?;
        self.past.add(backend.link.stats());
        let owners = backend.link.abandon(&mut self.budget);
        Some((backend, owners))
    }

    /// The best link for a dial, not one of `exclude`: the better of two random ones if both are first class, else
    /// the best of all.
    pub(super) fn pick(&mut self, now: Instant, exclude: &[Key]) -> Option<Key> {
        let n = self.candidates.len();
        if n == 0 {
            return None;
        }
        let start = self.rng.below(n as u64) as usize;
        let second = self.rng.below(n as u64) as usize;
        let load = |key: Key| self.table.get(key).map_or(usize::MAX, |backend| backend.link.streams());
        let first_class = |key: Key| {
            !exclude.contains(&key)
                && self.table.get(key).and_then(|backend| backend.rank(now)).is_some_and(|rank| rank == 0)
        };
        let (a, b) = (self.candidates[start], self.candidates[second]);
        if first_class(a) && first_class(b) {
            return Some(if load(b) < load(a) { b } else { a });
        }
        let order = self.candidates[start..].iter().chain(&self.candidates[..start]);
        order
            .filter(|key| !exclude.contains(key))
            .filter_map(|&key| Some((self.table.get(key)?.rank(now)?, key)))
            .min_by_key(|&(rank, key)| (rank, load(key)))
            .map(|(_, key)| key)
    }

    /// An agent speaks but did not answer a dial: others are preferred for a while.
    pub(super) fn strike(&mut self, now: Instant, conn: Key) {
        if let Some(backend) = self.table.get_mut(conn) {
            backend.struck_until = Some(now + STRIKE_TIME);
        }
    }

    /// Sends a dial over a link, with a PING if it was silent for a moment.
    pub(super) fn open(
        &mut self,
        now: Instant,
        conn: Key,
        owner: Key,
        target: &str,
        time_left: Duration,
    ) -> Option<Opened> {
        let backend = self.table.get_mut(conn)?;
        let id = self.next_stream;
        let stream = backend.link.open(now, &mut self.budget, id, owner, target, time_left)?;
        self.next_stream += 1;
        let heard = backend.link.liveness().last_received();
        let probed = now.saturating_duration_since(heard) >= HEDGE_DELAY_MIN;
        if probed {
            backend.link.probe(now);
        }
        Some(Opened { stream, heard, probed, hedge_delay: backend.link.liveness().hedge_delay() })
    }

    pub(super) fn get(&self, conn: Key) -> Option<&Backend> {
        self.table.get(conn)
    }

    pub(super) fn get_mut(&mut self, conn: Key) -> Option<&mut Backend> {
        self.table.get_mut(conn)
    }

    pub(super) fn link(&mut self, conn: Key) -> Option<(&mut Link, &mut WindowBudget)> {
        Some((&mut self.table.get_mut(conn)?.link, &mut self.budget))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Backend)> {
        self.table.iter()
    }

    /// All keys, for a walk in which links change.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.table.iter().map(|(key, _)| key).collect()
    }

    /// Links of any state.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Distinct agents that can be asked.
    pub(super) fn agents(&self) -> usize {
        self.by_agent.len()
    }

    pub(super) fn unauthenticated(&self) -> usize {
        self.unauthenticated
    }

    /// What passed over all links, past and present.
    pub(super) fn stats(&self) -> LinkStats {
        let mut sum = self.past.clone();
        for (_, backend) in self.table.iter() {
            sum.add(backend.link.stats());
        }
        sum
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_invariants(&self) {
        let listed = self.table.iter().filter(|(_, b)| !b.is_stranger()).count();
        assert_eq!(listed, self.candidates.len(), "candidates are the links that may be picked");
        let greeting = self.table.iter().filter(|(_, b)| b.is_stranger()).count();
        assert_eq!(greeting, self.unauthenticated, "each greeting link is counted once");
        let listed: usize = self.greetings.values().map(VecDeque::len).sum();
        assert_eq!(greeting, listed, "and listed once");
    }
}
