//! The server as its driver and its peers see it, under a virtual clock.

use std::collections::{BTreeMap, HashSet};

use tautline_wire::DialCode;

use super::*;
use crate::core::mux::LinkEvent;
use crate::core::testing::{End, LIVENESS, converse, effects, key, start};
use crate::limits::{
    ANSWER_GRACE, DIAL_TIMEOUT, DIAL_WAIT, GREETING_COST, GREETING_PATIENCE, GREETING_TIMEOUT,
    HEDGE_DELAY_MIN, STRIKE_TIME, TARGET_CONNECT_TIMEOUT, WINDOW_INITIAL,
};

mod drain;
mod tokens;

const DRAIN_LIMIT: Duration = Duration::from_secs(15);
const MS: Duration = Duration::from_millis(1);

struct World {
    start: Instant,
    now: Instant,
    server: Server,
    agents: BTreeMap<Key, End>,
    /// Agents behind a cut cable.
    cut: HashSet<Key>,
    effects: Vec<Effect>,
    next: u32,
}

impl World {
    fn new() -> Self {
        let config = ServerConfig {
            server_id: "server".to_owned(),
            server_count: 1,
            liveness: LIVENESS,
            dial_timeout: DIAL_TIMEOUT,
            dial_wait: DIAL_WAIT,
            drain_timeout: DRAIN_LIMIT,
            max_tunnels: 3,
            greetings_max: 100,
            reviews_tokens: false,
            seed: 1,
        };
        let start = start();
        let (agents, cut) = (BTreeMap::new(), HashSet::new());
        Self { start, now: start, server: Server::new(config), agents, cut, effects: Vec::new(), next: 1 }
    }

    /// A server with the agents "a", "b", ...
    fn with_agents<const N: usize>() -> (Self, [Key; N]) {
        let mut world = Self::new();
        let mut ids = ["a", "b", "c"].into_iter();
        let agents = std::array::from_fn(|_| world.agent(ids.next().unwrap()));
        (world, agents)
    }

    fn accept(&mut self, door: Door) -> Key {
        let conn = key(self.next);
        self.next += 1;
        assert!(self.server.on_accept(self.now, door, conn, Some(([10, 0, 0, 1], 1).into())));
        conn
    }

    fn agent(&mut self, id: &str) -> Key {
        let conn = self.accept(Door::Agents);
        self.agents.insert(conn, End::agent(self.now, id));
        self.run();
        assert!(self.agents[&conn].link.is_open());
        conn
    }

    /// Everybody who can talks until all is said.
    fn run(&mut self) {
        for _ in 0..3 {
            for (&conn, agent) in self.agents.iter_mut().filter(|(conn, _)| !self.cut.contains(conn)) {
                converse(&mut self.server, self.now, conn, agent);
            }
        }
        self.effects.extend(effects(&mut self.server));
        self.server.check_invariants();
    }

    /// Lets time pass, with all timers on the way.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.server.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.server.handle_timeout(self.now);
            self.run();
        }
        self.now = until;
    }

    fn head(&mut self, head: &str) -> (Key, HeadStep) {
        let conn = self.accept(Door::Frontends);
        let step = self.server.on_head(self.now, conn, head.as_bytes());
        self.run();
        (conn, step)
    }

    fn connect(&mut self) -> Key {
        let head = "CONNECT host:1 HTTP/1.1\r\nHost: host:1\r\n\r\n";
        let (conn, step) = self.head(head);
        assert_eq!(step, HeadStep::Took(head.len()));
        conn
    }

    /// The dial that `agent` was asked for, if it was.
    fn dial_at(&mut self, agent: Key) -> Option<StreamKey> {
        let mut dials = self.agents.get_mut(&agent).unwrap().dials();
        assert!(dials.len() <= 1);
        dials.pop().map(|(stream, target)| {
            assert_eq!(target, "host:1");
            stream
        })
    }

    /// The one agent of two that was asked, its dial, and the other.
    fn asked(&mut self, [a, b]: [Key; 2]) -> (Key, StreamKey, Key) {
        match (self.dial_at(a), self.dial_at(b)) {
            (Some(stream), None) => (a, stream, b),
            (None, Some(stream)) => (b, stream, a),
            other => panic!("{other:?}"),
        }
    }

    fn succeed(&mut self, agent: Key, stream: StreamKey) {
        assert!(self.agents.get_mut(&agent).unwrap().link.dial_succeeded(stream, key(1000)));
        self.run();
    }

    fn fail(&mut self, agent: Key, stream: StreamKey, code: DialCode) {
        let End { link, budget, .. } = self.agents.get_mut(&agent).unwrap();
        link.dial_failed(stream, budget, DialFailure { code, text: "why".to_owned() });
        self.run();
    }

    fn lose(&mut self, conn: Key) {
        self.agents.remove(&conn);
        self.server.on_lost(self.now, conn, Lost { text: "reset".to_owned(), refused: false });
        self.run();
    }

    /// What the frontend was answered, once at most.
    fn status(&mut self, conn: Key) -> Option<u16> {
        let answers = self.effects.iter().filter_map(|effect| match effect {
            Effect::Answer { conn: to, bytes } if *to == conn => {
                Some(std::str::from_utf8(&bytes[9..12]).unwrap().parse().unwrap())
            }
            _ => None,
        });
        let all: Vec<u16> = answers.collect();
        assert!(all.len() <= 1, "one answer: {all:?}");
        all.first().copied()
    }

    /// The link that a frontend's tunnel goes over.
    fn bridge(&self, conn: Key) -> Option<Key> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Bridge { conn: of, link, answer: Some(_), .. } if *of == conn => Some(*link),
            _ => None,
        })
    }

    fn closed(&self, conn: Key) -> Option<Manner> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Close { conn: of, manner } if *of == conn => Some(*manner),
            _ => None,
        })
    }

    fn last_words(&self, conn: Key) -> Option<GoAwayCode> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::EndLink { link, last_words: Some(words), .. } if *link == conn => Some(words.code),
            _ => None,
        })
    }

    /// Everybody goes; nothing may stay.
    fn end(mut self) {
        assert_eq!(self.server.frontends.len(), self.server.tunnels, "only tunnels are left");
        for conn in self.server.backends.keys() {
            self.lose(conn);
        }
        assert_eq!((self.server.frontends.len(), self.server.pending_dials, self.server.tunnels), (0, 0, 0));
        assert_eq!((self.server.backends.len(), self.server.backends.agents()), (0, 0));
        assert_eq!(self.server.backends.unauthenticated(), 0);
        assert_eq!((self.server.timers.len(), self.server.backends.budget.used()), (0, 0));
        assert!(self.server.poll_timeout().is_none());
    }
}

#[test]
fn without_an_agent_the_answer_is_503_after_the_wait() {
    let mut world = World::new();
    let frontend = world.connect();
    world.pass(DIAL_WAIT - MS);
    assert_eq!(world.status(frontend), None);
    world.pass(MS);
    assert_eq!(world.status(frontend), Some(503));
    world.end();
}

#[test]
fn an_agent_that_comes_within_the_wait_is_asked() {
    let mut world = World::new();
    let frontend = world.connect();
    world.pass(DIAL_WAIT - MS);
    let agent = world.agent("a");
    let stream = world.dial_at(agent).expect("a dial");
    world.pass(2 * MS);
    world.succeed(agent, stream);
    assert_eq!((world.bridge(frontend), world.status(frontend)), (Some(agent), None));
    world.end();
}

#[test]
fn a_target_that_refuses_is_502_without_a_second_attempt() {
    let (mut world, agents) = World::with_agents::<2>();
    let frontend = world.connect();
    let (agent, stream, other) = world.asked(agents);
    world.fail(agent, stream, DialCode::Refused);
    assert_eq!(world.status(frontend), Some(502));
    world.pass(DIAL_TIMEOUT);
    assert_eq!((world.dial_at(agent), world.dial_at(other)), (None, None));
    world.end();
}

#[test]
fn a_failure_of_the_agent_is_tried_once_on_the_other() {
    for second_fails in [false, true] {
        let (mut world, agents) = World::with_agents::<2>();
        let frontend = world.connect();
        let (agent, stream, other) = world.asked(agents);
        world.fail(agent, stream, DialCode::ResolverFailed);
        assert_eq!((world.status(frontend), world.dial_at(agent)), (None, None));
        let stream = world.dial_at(other).expect("a second attempt");
        if second_fails {
            world.fail(other, stream, DialCode::ResolverFailed);
            assert_eq!((world.dial_at(agent), world.dial_at(other)), (None, None));
            assert_eq!(world.status(frontend), Some(502));
        } else {
            world.succeed(other, stream);
            assert_eq!(world.bridge(frontend), Some(other));
        }
        world.end();
    }
}

#[test]
fn an_agent_that_is_lost_while_it_dials_is_replaced() {
    let (mut world, agents) = World::with_agents::<2>();
    let frontend = world.connect();
    let (agent, _, other) = world.asked(agents);
    world.lose(agent);
    let stream = world.dial_at(other).expect("a second attempt");
    world.lose(other);
    assert_eq!(world.status(frontend), None, "an agent may come yet");
    let third = world.agent("a");
    assert_ne!(world.dial_at(third).expect("a third attempt").id, stream.id);
    world.lose(third);
    world.pass(DIAL_WAIT);
    assert_eq!(world.status(frontend), Some(502));
    world.end();
}

#[test]
fn an_agent_that_is_lost_resets_its_tunnels_and_no_others() {
    let (mut world, agents) = World::with_agents::<2>();
    let first = world.connect();
    let (agent, stream, other) = world.asked(agents);
    world.succeed(agent, stream);
    world.lose(agent);
    assert_eq!(world.closed(first), Some(Manner::Abort));
    let second = world.connect();
    let stream = world.dial_at(other).unwrap();
    world.succeed(other, stream);
    assert_eq!((world.bridge(second), world.closed(second)), (Some(other), None));
    world.end();
}

#[test]
fn the_end_of_a_stream_closes_its_frontend() {
    for (code, manner) in [(CloseCode::Normal, Manner::Flush), (CloseCode::Reset, Manner::FlushThenReset)] {
        let (mut world, [agent]) = World::with_agents::<1>();
        let frontend = world.connect();
        let stream = world.dial_at(agent).unwrap();
        world.succeed(agent, stream);
        world.agents.get_mut(&agent).unwrap().close(stream, code);
        world.run();
        assert_eq!(world.closed(frontend), Some(manner));
        assert_eq!(world.server.backends.budget.used(), 0);
        world.end();
    }
}

/// A dial that was asked of a silent agent and then of the other one.
fn hedged() -> (World, Key, [(Key, StreamKey); 2]) {
    let (mut world, agents) = World::with_agents::<2>();
    world.pass(Duration::from_secs(1)); // so a PING goes with the dial
    world.cut.extend(agents);
    let frontend = world.connect();
    world.pass(HEDGE_DELAY_MIN - MS);
    let asked = |world: &World| agents.map(|agent| world.server.backends.get(agent).unwrap().link.streams());
    assert_eq!(asked(&world).iter().sum::<usize>(), 1);
    world.pass(MS);
    assert_eq!(asked(&world), [1, 1]);
    world.cut.clear();
    world.run();
    let both = agents.map(|agent| (agent, world.dial_at(agent).expect("a dial")));
    (world, frontend, both)
}

#[test]
fn a_silent_agent_is_hedged_and_the_first_success_wins() {
    for winner in [0, 1] {
        let (mut world, frontend, asked) = hedged();
        let ((agent, stream), (loser, lost)) = (asked[winner], asked[1 - winner]);
        world.succeed(agent, stream);
        assert_eq!(world.bridge(frontend), Some(agent));
        let events = world.agents.get_mut(&loser).unwrap().take_events();
        let end = StreamEnd::ClosedThere(CloseCode::Cancelled);
        assert_eq!(events, [LinkEvent::Ended { owner: Key::default(), stream: lost, end }]);
        assert_eq!(world.server.backends.budget.used(), u64::from(WINDOW_INITIAL));
        world.end();
    }
}

#[test]
fn the_loser_of_a_hedge_that_succeeds_too_is_closed() {
    let (mut world, frontend, [(agent, stream), (loser, lost)]) = hedged();
    assert!(world.agents.get_mut(&loser).unwrap().link.dial_succeeded(lost, key(1000)));
    world.succeed(agent, stream);
    let winner = world.bridge(frontend).unwrap();
    assert_eq!(world.agents.values().map(|agent| agent.link.streams()).sum::<usize>(), 1);
    assert_eq!(world.agents[&winner].link.streams(), 1);
    world.end();
}

#[test]
fn a_dial_at_a_silent_agent_goes_to_the_next_agent_that_comes() {
    let (mut world, [silent]) = World::with_agents::<1>();
    world.cut.insert(silent);
    let frontend = world.connect();
    world.pass(Duration::from_secs(1));
    let fresh = world.agent("b");
    let stream = world.dial_at(fresh).expect("a hedge");
    world.succeed(fresh, stream);
    assert_eq!(world.bridge(frontend), Some(fresh));
    world.end();
}

#[test]
fn a_dial_at_an_agent_that_spoke_late_does_not_go_to_the_next_one() {
    let (mut world, [slow]) = World::with_agents::<1>();
    world.cut.insert(slow);
    let frontend = world.connect();
    world.pass(Duration::from_secs(1));
    let now = world.now;
    world.agents.get_mut(&slow).unwrap().link.probe(now);
    world.cut.clear();
    world.run();
    let stream = world.dial_at(slow).unwrap();
    let fresh = world.agent("b");
    assert_eq!(world.dial_at(fresh), None);
    world.succeed(slow, stream);
    assert_eq!(world.bridge(frontend), Some(slow));
    world.end();
}

#[test]
fn an_agent_that_speaks_is_not_hedged() {
    let (mut world, agents) = World::with_agents::<2>();
    world.pass(Duration::from_secs(1));
    world.connect();
    let (agent, stream, other) = world.asked(agents);
    world.pass(MS);
    let now = world.now;
    world.agents.get_mut(&agent).unwrap().link.probe(now);
    world.run();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.dial_at(other), None);
    world.succeed(agent, stream);
    world.end();
}

#[test]
fn a_frontend_that_goes_while_it_dials_is_cancelled_at_the_agent() {
    let (mut world, [agent]) = World::with_agents::<1>();
    let frontend = world.connect();
    assert!(world.dial_at(agent).is_some());
    world.server.on_lost(world.now, frontend, Lost { text: "eof".to_owned(), refused: false });
    world.run();
    assert_eq!(world.agents[&agent].link.streams(), 0);
    assert_eq!((world.status(frontend), world.closed(frontend)), (None, None));
    world.end();
}

#[test]
fn an_agent_that_falls_silent_after_it_spoke_is_hedged_too() {
    // Heard lately, so no PING goes with the dial; or heard of in the middle of it.
    for spoke_until in [Duration::ZERO, Duration::from_millis(1500)] {
        let (mut world, agents) = World::with_agents::<2>();
        world.connect();
        let (agent, stream, other) = world.asked(agents);
        world.pass(spoke_until);
        assert_eq!(world.dial_at(other), None);
        world.cut.insert(agent);
        world.pass(Duration::from_millis(if spoke_until.is_zero() { 200 } else { 2000 }));
        let hedge = world.dial_at(other).expect("a hedge");
        world.cut.clear();
        world.run();
        world.pass(Duration::from_secs(1));
        world.succeed(agent, stream);
        let events = world.agents.get_mut(&other).unwrap().take_events();
        let end = StreamEnd::ClosedThere(CloseCode::Cancelled);
        assert!(events.contains(&LinkEvent::Ended { owner: Key::default(), stream: hedge, end }));
        world.end();
    }
}

#[test]
fn an_agent_that_speaks_but_does_not_answer_the_dial_is_left_and_avoided() {
    let (mut world, agents) = World::with_agents::<2>();
    let frontend = world.connect();
    let (mute, _, other) = world.asked(agents);
    world.pass(TARGET_CONNECT_TIMEOUT + ANSWER_GRACE - MS);
    assert_eq!(world.dial_at(other), None);
    world.pass(MS);
    assert_eq!(world.agents[&mute].link.streams(), 0);
    let stream = world.dial_at(other).expect("another try");
    world.succeed(other, stream);
    assert_eq!(world.bridge(frontend), Some(other));
    for _ in 0..2 {
        world.connect();
        let stream = world.dial_at(other).expect("the better one");
        world.succeed(other, stream);
    }
    world.pass(STRIKE_TIME);
    world.end();
}

#[test]
fn an_only_agent_that_does_not_answer_the_dial_is_504() {
    let (mut world, [agent]) = World::with_agents::<1>();
    let frontend = world.connect();
    assert!(world.dial_at(agent).is_some());
    world.pass(TARGET_CONNECT_TIMEOUT + ANSWER_GRACE);
    assert_eq!((world.status(frontend), world.agents[&agent].link.streams()), (Some(504), 0));
    world.end();
}

#[test]
fn a_dial_that_takes_too_long_is_504_and_is_cancelled() {
    let (mut world, [agent]) = World::with_agents::<1>();
    let frontend = world.connect();
    assert!(world.dial_at(agent).is_some());
    world.cut.insert(agent);
    world.pass(DIAL_TIMEOUT - MS);
    assert_eq!(world.status(frontend), None);
    world.pass(MS);
    world.cut.clear();
    world.run();
    assert_eq!((world.status(frontend), world.agents[&agent].link.streams()), (Some(504), 0));
    world.end();
}

#[test]
fn heads_that_are_no_connect_are_answered() {
    let mut world = World::new();
    for (head, status) in [
        ("CONNECT host HTTP/1.1\r\n\r\n", 400),
        ("CONNECT host:0 HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    ] {
        let (conn, step) = world.head(head);
        assert_eq!((step, world.status(conn)), (HeadStep::Answered, Some(status)), "{head}");
    }
    let (slow, step) = world.head("CONNECT host:1 HT");
    assert_eq!(step, HeadStep::More);
    world.pass(HEAD_TIMEOUT - MS);
    assert_eq!(world.status(slow), None);
    world.pass(MS);
    assert_eq!(world.status(slow), Some(408));
    world.end();
}

#[test]
fn strangers_wait_outside_until_the_oldest_had_its_time_then_the_fullest_address_gives() {
    let mut world = World::new();
    let full = |world: &World| world.server.is_full(world.now, Door::Agents);
    let silent: Vec<Key> = (0..64).map(|_| world.accept(Door::Agents)).collect();
    for number in 0..36 {
        let conn = key(5000 + number);
        world.server.on_accept(world.now, Door::Agents, conn, Some(([10, 0, 1, number as u8], 1).into()));
    }
    assert!(full(&world) && !world.server.is_full(world.now, Door::Frontends));
    world.pass(GREETING_PATIENCE + 100 * GREETING_COST - MS);
    assert!(full(&world), "a hundred that came at once are not thrown out for one more");
    world.pass(MS);
    assert!(!full(&world));
    world.agent("honest");
    assert_eq!((world.closed(silent[0]), world.closed(silent[1])), (Some(Manner::Abort), None));
    assert!(!full(&world), "who said HELLO is no stranger");
    let held = world.accept(Door::Agents);
    world.accept(Door::Agents);
    world.run();
    assert_eq!((world.closed(silent[1]), world.closed(held)), (Some(Manner::Abort), None));
    assert_eq!(world.server.backends.unauthenticated(), 100);
    assert_eq!(world.server.metrics.common.limits_hit.get(["unauthenticated_links"]), 2);
    world.pass(GREETING_TIMEOUT);
    world.end();
}

#[test]
fn a_client_that_owes_its_head_makes_room_for_one_that_has_something_to_say() {
    let (mut world, [_agent]) = World::with_agents();
    let silent: Vec<Key> = (0..3).map(|_| world.accept(Door::Frontends)).collect();
    let (soon, _) = world.head("CONNECT host:1 HTTP/1.1\r\n\r\n");
    assert_eq!(world.status(soon), Some(503), "nobody was silent for long");
    world.pass(HEAD_PATIENCE);
    let conn = world.connect();
    assert_eq!(world.status(silent[0]), Some(408));
    assert_eq!((world.status(silent[1]), world.status(conn)), (None, None));
    world.pass(HEAD_TIMEOUT);
    world.end();
}

#[test]
fn one_frontend_too_many_is_503() {
    let mut world = World::new();
    let many: Vec<Key> = (0..4).map(|_| world.accept(Door::Frontends)).collect();
    world.run();
    let statuses: Vec<_> = many.iter().map(|&conn| world.status(conn)).collect();
    assert_eq!(statuses, [None, None, None, Some(503)]);
    world.pass(HEAD_TIMEOUT);
    world.end();
}

#[test]
fn an_old_link_that_is_silent_goes_when_a_new_one_of_its_agent_comes() {
    let (mut world, [old]) = World::with_agents::<1>();
    world.pass(Duration::from_secs(1));
    world.cut.insert(old);
    let new = world.agent("a");
    assert_eq!((world.server.backends.len(), world.server.backends.agents()), (2, 1));
    for _ in 0..2 {
        world.connect();
        let stream = world.dial_at(new).expect("the new link is preferred");
        world.succeed(new, stream);
    }
    world.pass(LIVENESS.ping_timeout - MS);
    assert_eq!(world.last_words(old), None);
    world.pass(MS);
    assert_eq!(world.last_words(old), Some(GoAwayCode::Duplicate));
    assert_eq!(world.server.backends.len(), 1);
    world.end();
}

#[test]
fn an_old_link_that_answers_stays_beside_a_new_one_of_its_agent() {
    let (mut world, [old]) = World::with_agents::<1>();
    world.pass(Duration::from_secs(1));
    let conn = world.accept(Door::Agents);
    world.agents.insert(conn, End::agent(world.now, "a"));
    world.cut.insert(old);
    world.run();
    world.now += 50 * MS;
    world.cut.clear();
    world.run();
    world.pass(Duration::from_secs(20));
    assert_eq!((world.last_words(old), world.server.backends.len()), (None, 2));
    world.lose(conn);
    let frontend = world.connect();
    let stream = world.dial_at(old).expect("the old link is good again");
    world.succeed(old, stream);
    assert_eq!(world.bridge(frontend), Some(old));
    world.end();
}

#[test]
fn a_link_that_is_silent_for_ten_seconds_ends_with_its_tunnels() {
    let (mut world, [agent]) = World::with_agents::<1>();
    let frontend = world.connect();
    let stream = world.dial_at(agent).unwrap();
    world.succeed(agent, stream);
    world.cut.insert(agent);
    world.pass(LIVENESS.dead_after - MS);
    assert_eq!(world.closed(frontend), None);
    world.pass(MS);
    assert_eq!(
        (world.closed(frontend), world.last_words(agent)),
        (Some(Manner::Abort), Some(GoAwayCode::Other))
    );
    assert!(!world.server.is_ready());
    world.end();
}

#[test]
fn a_stranger_without_hello_is_sent_away() {
    let mut world = World::new();
    let stranger = world.accept(Door::Agents);
    world.pass(crate::limits::GREETING_TIMEOUT);
    assert_eq!(world.last_words(stranger), Some(GoAwayCode::HelloTimeout));
    assert_eq!(world.now - world.start, crate::limits::GREETING_TIMEOUT);
    world.end();
}

#[test]
fn a_draining_agent_is_asked_only_if_nobody_else_is_there() {
    let (mut world, [a, b]) = World::with_agents::<2>();
    world.agents.get_mut(&a).unwrap().link.drain();
    world.run();
    world.connect();
    let stream = world.dial_at(b).expect("b does not drain");
    world.succeed(b, stream);
    world.lose(b);
    world.connect();
    let stream = world.dial_at(a).expect("a is all there is");
    world.succeed(a, stream);
    world.end();
}

#[test]
fn a_process_out_of_descriptors_says_so_a_few_times() {
    let mut world = World::new();
    for _ in 0..100 {
        world.server.on_accept_failed(world.now, "too many open files");
    }
    let lines = std::iter::from_fn(|| world.server.poll_effect())
        .filter(|effect| matches!(effect, Effect::Note(note) if note.text.contains("cannot accept")))
        .count();
    assert_eq!(lines, crate::limits::LOG_LINES_PER_KIND as usize);
    assert_eq!(world.server.metrics.common.log_lines_suppressed.get(), 100 - lines as u64);
    world.end();
}
