//! The agent as its driver and its server see it, under a virtual clock.

use tautline_wire::{CloseCode, Control, DialCode, DialReq, encode_control};

use super::*;
use crate::core::testing::{End, LIVENESS, converse, effects, key, start, welcome};
use crate::limits::{
    CONNECT_ATTEMPT_DELAY, DIAL_ANSWER_RESERVE, GREETING_TIMEOUT, LINK_CONNECT_TIMEOUT, REDIAL_DELAY_MAX,
    REDIAL_DELAY_MIN, TARGET_CONNECT_TIMEOUT,
};

mod drain;
mod silence;
mod token;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

struct World {
    now: Instant,
    agent: Agent,
    /// The server's end of the link, if there is one.
    server: Option<(Key, End)>,
    effects: Vec<Effect>,
    /// Look-ups that were cancelled.
    left: Vec<JobId>,
    next: u32,
}

impl World {
    fn new(server_host: &str) -> Self {
        Self::with(server_host, false)
    }

    fn with(server_host: &str, shows_token: bool) -> Self {
        let now = start();
        let config = AgentConfig {
            agent_id: "a".to_owned(),
            identifiers: String::new(),
            server_host: server_host.to_owned(),
            server_port: 8091,
            liveness: LIVENESS,
            redial_base: SECOND,
            redial_cap: 10 * SECOND,
            drain_timeout: 30 * SECOND,
            shows_token,
            max_tunnels: 3,
            seed: 1,
        };
        let mut world = Self {
            now,
            agent: Agent::new(config, now),
            server: None,
            effects: Vec::new(),
            left: Vec::new(),
            next: 1,
        };
        world.pass(Duration::ZERO);
        world
    }

    /// An agent with a link.
    fn up() -> Self {
        let mut world = Self::new("10.0.0.1");
        world.welcome();
        world
    }

    fn run(&mut self) {
        if let Some((conn, server)) = &mut self.server {
            converse(&mut self.agent, self.now, *conn, server);
        }
        for effect in effects(&mut self.agent) {
            match effect {
                Effect::CancelJob { job } => self.left.push(job),
                effect => self.effects.push(effect),
            }
        }
        self.agent.check_invariants();
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.agent.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.agent.handle_timeout(self.now);
            self.run();
        }
        self.now = until;
    }

    /// Takes what the agent asked of the world since the last look.
    fn take(&mut self) -> Vec<Effect> {
        self.run();
        std::mem::take(&mut self.effects)
    }

    fn fresh(&mut self) -> Key {
        self.next += 1;
        key(self.next)
    }

    /// The one look-up that was asked for.
    fn look_up(&mut self) -> (JobId, String) {
        let effects = self.take();
        let [Effect::Resolve { job, host, .. }] = &effects[..] else { panic!("{effects:?}") };
        (*job, host.clone())
    }

    /// The one connect that was asked for.
    fn connect(&mut self) -> (JobId, String) {
        let effects = self.take();
        let [Effect::Connect { job, to, .. }] = &effects[..] else { panic!("{effects:?}") };
        (*job, to.to_string())
    }

    fn resolved(&mut self, job: JobId, result: Result<&[&str], DialCode>) {
        let result = result.map(|all| all.iter().map(|text| text.parse().unwrap()).collect());
        self.agent.on_resolved(self.now, job, result.map_err(|code| Failure::new(code, "why")));
        self.run();
    }

    fn connected(&mut self, job: JobId) -> Key {
        let conn = self.fresh();
        self.agent.on_connected(self.now, job, Ok(conn));
        self.run();
        conn
    }

    fn refused(&mut self, job: JobId) {
        self.agent.on_connected(self.now, job, Err(Failure::new(DialCode::Refused, "refused")));
        self.run();
    }

    /// The server takes the connect that is asked for now, and the agent.
    fn welcome(&mut self) -> String {
        let (job, to) = self.connect();
        let conn = self.connected(job);
        let mut server = End::server(self.now);
        converse(&mut self.agent, self.now, conn, &mut server);
        let events = server.take_events();
        let [LinkEvent::Hello(hello)] = &events[..] else { panic!("{events:?}") };
        server.link.welcome(hello, welcome());
        self.server = Some((conn, server));
        assert!(matches!(self.take()[..], [Effect::StartLink { .. }]));
        assert!(self.agent.is_ready());
        to
    }

    fn lose(&mut self, refused: bool) {
        let conn = self.agent.uplink.conn().unwrap();
        self.server = None;
        self.agent.on_lost(self.now, conn, Lost { text: "reset".to_owned(), refused });
        self.run();
    }

    /// How long the agent rests before it tries again; goes there.
    fn rest(&mut self) -> Duration {
        let Uplink::Waiting { until } = self.agent.uplink else { panic!("{:?}", self.agent.uplink) };
        let rest = until - self.now;
        self.pass(rest);
        rest
    }

    fn dial(&mut self, id: u64, target: &str) -> StreamKey {
        let (_, End { link, budget, .. }) = self.server.as_mut().unwrap();
        let stream = link.open(self.now, budget, id, key(1), target, 8 * SECOND).unwrap();
        self.run();
        stream
    }

    fn told(&mut self) -> Vec<LinkEvent> {
        self.run();
        self.server.as_mut().unwrap().1.take_events()
    }

    /// The failure that the server was told.
    fn failure(&mut self) -> DialCode {
        let events = self.told();
        let [LinkEvent::DialFailed { failure, .. }] = &events[..] else { panic!("{events:?}") };
        failure.code
    }

    fn close(&mut self, stream: StreamKey) {
        self.server.as_mut().unwrap().1.close(stream, CloseCode::Cancelled);
        self.run();
    }

    fn assert_no_targets(&self) {
        let agent = &self.agent;
        assert_eq!((agent.dials.len(), agent.dial_of.len(), agent.endpoints.len()), (0, 0, 0));
        assert_eq!(agent.budget.used(), 0);
    }

    /// The process ends, with two signals since tunnels may live; nothing may stay.
    fn end(mut self) {
        self.agent.on_terminate(self.now);
        self.agent.on_terminate(self.now);
        self.assert_no_targets();
        assert!(self.agent.is_finished());
        assert_eq!((self.agent.links.len(), self.agent.jobs.len()), (0, 0));
        assert_eq!(self.agent.timers.len(), 0);
    }
}

fn is_close(effect: &Effect, of: Key, how: Manner) -> bool {
    matches!(effect, Effect::Close { conn, manner } if *conn == of && *manner == how)
}

/// A tunnel, as the agent's connection and the server's stream.
fn tunnel(world: &mut World) -> (Key, StreamKey) {
    let stream = world.dial(1, "10.0.0.9:80");
    let (job, _) = world.connect();
    let target = world.connected(job);
    assert_eq!(world.told(), [LinkEvent::Opened { owner: key(1), stream }]);
    world.take();
    (target, stream)
}

fn cancelled(effects: &[Effect]) -> Vec<JobId> {
    let jobs = effects.iter().filter_map(|effect| match effect {
        Effect::CancelConnect { job } => Some(*job),
        _ => None,
    });
    jobs.collect()
}

const REDIAL: std::ops::RangeInclusive<Duration> = REDIAL_DELAY_MIN..=REDIAL_DELAY_MAX;

#[test]
fn a_server_that_is_not_reached_is_tried_again_soon_for_ever() {
    let mut world = World::new("10.0.0.1");
    for round in 0..40 {
        let (job, to) = world.connect();
        assert_eq!(to, "10.0.0.1:8091");
        if round % 2 == 0 {
            world.refused(job);
        } else {
            world.pass(LINK_CONNECT_TIMEOUT - MS);
            assert!(world.take().is_empty());
            world.pass(MS);
            assert_eq!(cancelled(&world.take()), [job]);
        }
        let rest = world.rest();
        assert!(REDIAL.contains(&rest), "{rest:?}");
    }
    assert_eq!(world.agent.jobs.len(), 1);
}

#[test]
fn only_refusals_make_the_agent_slower_and_a_welcome_forgives_them() {
    let mut world = World::new("10.0.0.1");
    let refuse = |world: &mut World, refused| {
        let (job, _) = world.connect();
        world.connected(job);
        world.take();
        world.lose(refused);
        world.rest()
    };
    assert!((SECOND..=2 * SECOND).contains(&refuse(&mut world, true)));
    for _ in 0..10 {
        refuse(&mut world, true);
        assert!(REDIAL.contains(&refuse(&mut world, false)));
    }
    assert!((10 * SECOND..=20 * SECOND).contains(&refuse(&mut world, true)));
    world.welcome();
    world.lose(false);
    assert!(REDIAL.contains(&world.rest()));
    assert!((SECOND..=2 * SECOND).contains(&refuse(&mut world, true)));
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_left_after_the_greeting_timeout() {
    let mut world = World::new("10.0.0.1");
    let (job, _) = world.connect();
    let conn = world.connected(job);
    world.pass(GREETING_TIMEOUT - MS);
    assert!(matches!(world.take()[..], [Effect::StartLink { .. }]));
    world.pass(MS);
    assert!(matches!(&world.take()[..], [effect] if is_close(effect, conn, Manner::Abort)));
    assert!(REDIAL.contains(&world.rest()), "no answer is no refusal");
    assert_eq!(world.agent.links.len(), 0);
    let (job, _) = world.connect();
    world.refused(job);
    world.end();
}

#[test]
fn the_name_is_looked_up_at_each_try_and_the_last_good_address_stands_in() {
    let mut world = World::new("server.test");
    let (job, host) = world.look_up();
    assert_eq!(host, "server.test");
    world.resolved(job, Err(DialCode::ResolverFailed));
    assert!(REDIAL.contains(&world.rest()), "no address is known yet");
    let (job, _) = world.look_up();
    world.resolved(job, Ok(&["10.0.0.1:8091", "10.0.0.2:8091"]));
    let (first, to) = world.connect();
    assert_eq!(to, "10.0.0.1:8091");
    world.refused(first);
    assert_eq!(world.welcome(), "10.0.0.2:8091");

    world.lose(false);
    world.rest();
    let (job, _) = world.look_up();
    world.resolved(job, Err(DialCode::NameNotFound));
    assert_eq!(world.welcome(), "10.0.0.2:8091", "it was good");

    world.lose(false);
    world.rest();
    let (late, _) = world.look_up();
    world.pass(LINK_CONNECT_TIMEOUT);
    assert_eq!(world.welcome(), "10.0.0.2:8091", "a resolver that says nothing is not awaited for ever");
    world.resolved(late, Ok(&["10.0.0.3:8091"]));
    assert!(world.take().is_empty() && world.agent.is_ready());
    assert_eq!(world.left, [late], "its thread is for others now; those that were answered are over");
    world.end();
}

#[test]
fn the_addresses_of_the_server_race_and_the_loser_is_cancelled() {
    let mut world = World::new("server.test");
    let (job, _) = world.look_up();
    world.resolved(job, Ok(&["10.0.0.1:1", "10.0.0.2:1"]));
    let (first, _) = world.connect();
    world.pass(CONNECT_ATTEMPT_DELAY);
    let (second, _) = world.connect();
    world.connected(second);
    assert_eq!(cancelled(&world.take()), [first]);
    let late = world.connected(first);
    assert!(matches!(&world.take()[..], [effect] if is_close(effect, late, Manner::Abort)));
    assert_eq!(world.agent.links.len(), 1);
    world.end();
}

#[test]
fn a_name_is_resolved_its_addresses_race_and_the_server_is_answered() {
    let mut world = World::up();
    let there = world.dial(1, "target.test:80");
    let (job, host) = world.look_up();
    assert_eq!(host, "target.test");
    world.resolved(job, Ok(&["[::1]:80", "10.0.0.9:80"]));
    let (first, to) = world.connect();
    assert_eq!(to, "[::1]:80");
    world.pass(CONNECT_ATTEMPT_DELAY);
    let (second, to) = world.connect();
    assert_eq!(to, "10.0.0.9:80");
    assert_eq!(world.told(), []);
    let target = world.connected(second);
    let effects = world.take();
    assert_eq!(cancelled(&effects), [first]);
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Bridge { conn, answer: None, .. } if *conn == target))
    );
    assert_eq!(world.told(), [LinkEvent::Opened { owner: key(1), stream: there }]);
    assert_eq!((world.agent.endpoints.len(), world.agent.jobs.len()), (1, 0));
    world.close(there);
    assert!(is_close(&world.take()[0], target, Manner::FlushThenReset));
    world.assert_no_targets();
    world.end();
}

#[test]
fn a_dial_that_fails_is_answered_with_its_reason() {
    let mut world = World::up();
    world.dial(1, "10.0.0.9:80");
    let (job, _) = world.connect();
    world.refused(job);
    assert_eq!(world.failure(), DialCode::Refused);

    world.dial(2, "target.test:80");
    let (job, _) = world.look_up();
    world.resolved(job, Err(DialCode::NameNotFound));
    assert_eq!(world.failure(), DialCode::NameNotFound);

    world.dial(3, "no target");
    assert_eq!(world.failure(), DialCode::BadTarget);

    world.dial(4, "10.0.0.9:80");
    let (job, _) = world.connect();
    world.dial(5, "target.test:80");
    let (late, _) = world.look_up();
    world.pass(TARGET_CONNECT_TIMEOUT);
    let events = world.told();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(
        |event| matches!(event, LinkEvent::DialFailed { failure, .. } if failure.code == DialCode::TimedOut)
    ));
    assert_eq!(cancelled(&world.take()), [job]);
    assert_eq!(world.left, [late]);
    world.resolved(late, Ok(&["10.0.0.9:80"]));
    assert!(world.take().is_empty(), "the look-up came too late");
    world.assert_no_targets();
    world.end();
}

#[test]
fn the_time_of_the_server_bounds_the_dial() {
    let mut world = World::up();
    let mut bytes = Vec::new();
    let dial = DialReq { stream: 1, time_left_ms: 1000, target: "10.0.0.9:80".to_owned() };
    encode_control(&Control::DialReq(dial), &mut bytes);
    let conn = world.agent.uplink.conn().unwrap();
    let (link, budget) = world.agent.link(conn).unwrap();
    link.handle_bytes(world.now, &bytes, budget, &mut crate::core::testing::Sockets::default()).unwrap();
    world.agent.on_link_activity(world.now, conn);
    let (job, _) = world.connect();
    world.pass(SECOND - DIAL_ANSWER_RESERVE - MS);
    assert!(world.take().is_empty());
    world.pass(MS);
    assert_eq!(cancelled(&world.take()), [job]);
    world.end();
}

#[test]
fn one_target_too_many_is_refused() {
    let mut world = World::up();
    for id in 1..=3 {
        world.dial(id, "10.0.0.9:80");
    }
    let (job, _) = match &world.take()[..] {
        [Effect::Connect { job, to, .. }, _, _] => (*job, *to),
        other => panic!("{other:?}"),
    };
    world.connected(job);
    world.told();
    world.dial(4, "10.0.0.9:80");
    assert_eq!(world.failure(), DialCode::TooManyTunnels);
    world.end();
}

#[test]
fn a_cancel_stops_the_look_up_or_the_connects() {
    let mut world = World::up();
    let there = world.dial(1, "target.test:80");
    let (look_up, _) = world.look_up();
    world.close(there);
    assert!(world.agent.jobs.is_empty());
    assert_eq!(world.left, [look_up]);
    world.resolved(look_up, Ok(&["10.0.0.9:80"]));
    assert!(world.take().is_empty(), "nobody wants the answer");

    let there = world.dial(2, "10.0.0.9:80");
    let (connect, _) = world.connect();
    world.close(there);
    assert_eq!(cancelled(&world.take()), [connect]);
    let late = world.connected(connect);
    assert!(is_close(&world.take()[0], late, Manner::Abort));
    assert_eq!(world.told(), []);
    world.assert_no_targets();
    world.end();
}

#[test]
fn a_lost_link_cancels_its_dials_and_resets_its_targets() {
    let mut world = World::up();
    world.dial(1, "10.0.0.9:80");
    let (job, _) = world.connect();
    let target = world.connected(job);
    world.dial(2, "10.0.0.9:80");
    world.take();
    world.dial(3, "target.test:80");
    let (look_up, _) = world.look_up();
    let connect = *world.agent.jobs.keys().find(|job| **job != look_up).unwrap();
    world.lose(false);
    let effects = world.take();
    assert_eq!(cancelled(&effects), [connect]);
    assert_eq!(world.left, [look_up]);
    assert!(effects.iter().any(|effect| is_close(effect, target, Manner::Abort)));
    world.assert_no_targets();
    assert!(REDIAL.contains(&world.rest()));
    world.welcome();
    world.end();
}
