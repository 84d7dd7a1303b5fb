//! The shipped driver and both roles on the simulated kernel: server, agents, clients, targets.

mod rig;

use std::net::SocketAddr;
use std::time::Duration;

use self::rig::{Rig, Security, address};
use tautline::limits::{LINGER_TIMEOUT, VANISHED_AFTER, VANISHED_LOOK};

use crate::actors::client::{ClientPlan, Ending, Frontend, Outcome};
use crate::actors::session::{End, Pace};
use crate::actors::target::Behaviour;
use crate::net::Path;
use crate::pattern::Direction;
use crate::rng::Rng;
use crate::seeds::sweep;

const SECOND: Duration = Duration::from_secs(1);
/// `--dead-after` of the rig.
const DEAD_AFTER: Duration = Duration::from_secs(10);

fn echo_plan(tunnel: SocketAddr, upload: u64) -> ClientPlan {
    ClientPlan {
        frontend: Frontend::Unix(rig::FRONT.into()),
        target: Some(tunnel.to_string()),
        tunnel: u64::from(tunnel.port()),
        upload,
        early: 0,
        expects: Direction::Up,
        pace: Pace::Full,
        ending: Ending::HalfClose,
    }
}

/// Dials through two agents: every byte once and in order, the 200 first and alone, FIN kept; then all is empty.
fn bytes_are_exact(seed: u64, security: Security) -> crate::marks::Marks {
    let mut rng = Rng::new(seed);
    let mut rig = Rig::new(seed, security);
    let (first, second) = (rig.agent("a1"), rig.agent("a2"));
    let path = Path::draw(&mut rng);
    rig.set_path(first.host, &path);
    assert!(rig.wait_for(60 * SECOND, |status| status.contains("\"links\": 2")), "seed {seed}: two links");
    let mut clients = Vec::new();
    for n in 0..4u16 {
        let target = SocketAddr::new(address("10.0.0.9"), 7000 + n);
        let behaviour = match n {
            0 => Behaviour::Banner { bytes: 5000 },
            _ => Behaviour::Echo,
        };
        rig.target(target, behaviour);
        let mut plan = echo_plan(target, 1 + rng.below(300_000));
        plan.early = rng.below(2000) as usize;
        if n == 0 {
            plan.expects = Direction::Down;
        }
        clients.push((rig.client(plan.clone()), plan));
    }
    let done = rig.world.run_until(300 * SECOND, |_| {
        clients.iter().all(|(report, _)| report.borrow().outcome != Outcome::Running)
    });
    for (report, plan) in &clients {
        let report = report.borrow();
        assert!(done, "seed {seed}: {report:?}");
        assert_eq!(report.status, Some(200), "seed {seed}: {report:?}");
        assert_eq!((report.bytes_with_head, report.mismatch), (0, None), "seed {seed}: {report:?}");
        assert_eq!(report.outcome, Outcome::Ended(End::Eof), "seed {seed}: {report:?}");
        let expected = if plan.expects == Direction::Down { 5000 } else { plan.upload };
        assert_eq!((report.sent, report.received), (plan.upload, expected), "seed {seed}: {report:?}");
    }
    rig.assert_empty(seed);
    let _second = second;
    rig.world.marks()
}

#[test]
fn bytes_are_exact_in_clear() {
    sweep(40, |seed| bytes_are_exact(seed, Security::Clear));
}

#[test]
fn bytes_are_exact_under_tls() {
    sweep(10, |seed| bytes_are_exact(seed, Security::MutualTls));
}

#[test]
fn an_agent_that_vanishes_costs_no_dial_and_leaves_the_table_in_time() {
    sweep(20, |seed| {
        let mut rig = Rig::new(seed, Security::Clear);
        let (lost, _kept) = (rig.agent("lost"), rig.agent("kept"));
        assert!(rig.wait_for(60 * SECOND, |status| status.contains("\"links\": 2")), "seed {seed}");
        let target = SocketAddr::new(address("10.0.0.9"), 7000);
        rig.target(target, Behaviour::Echo);
        rig.world.vanish(lost.host);
        let vanished = rig.world.now();
        let mut reports = Vec::new();
        while rig.world.now() < vanished + 12 * SECOND {
            reports.push(rig.client(echo_plan(target, 100)));
            rig.world.run_for(SECOND / 2);
            if rig.world.now() > vanished + DEAD_AFTER + SECOND {
                assert!(rig.status().contains("\"links\": 1"), "seed {seed}: {}", rig.status());
            }
        }
        rig.world.run_for(10 * SECOND);
        for report in reports {
            let report = report.borrow();
            assert_eq!((report.status, report.received), (Some(200), 100), "seed {seed}: {report:?}");
            assert!(report.answered_after.is_some_and(|after| after < 2 * SECOND), "seed {seed}: {report:?}");
        }
        rig.world.marks()
    });
}

#[test]
fn a_frozen_agent_that_thaws_in_time_is_not_thrown_away() {
    sweep(20, |seed| {
        let mut rig = Rig::new(seed, Security::Clear);
        let agent = rig.agent("a1");
        assert!(rig.wait_for(60 * SECOND, |status| status.contains("\"links\": 1")), "seed {seed}");
        rig.world.freeze(agent.node);
        rig.world.run_for(5 * SECOND);
        assert!(rig.status().contains("suspect"), "seed {seed}: {}", rig.status());
        rig.world.thaw(agent.node);
        rig.world.run_for(2 * SECOND);
        assert!(rig.status().contains("\"state\": \"alive\""), "seed {seed}: {}", rig.status());
        assert!(rig.status().contains("\"links\": 1"), "seed {seed}: {}", rig.status());
        rig.world.marks()
    });
}

#[test]
fn a_killed_agent_ends_its_tunnels_and_the_next_dial_works() {
    sweep(20, |seed| {
        let mut rig = Rig::new(seed, Security::Clear);
        let first = rig.agent("a1");
        assert!(rig.wait_for(60 * SECOND, |status| status.contains("\"links\": 1")), "seed {seed}");
        let target = SocketAddr::new(address("10.0.0.9"), 7000);
        rig.target(target, Behaviour::Hole);
        let open = rig.client(ClientPlan { ending: Ending::Stay, ..echo_plan(target, 10) });
        rig.world.run_for(SECOND);
        assert_eq!(open.borrow().status, Some(200), "seed {seed}");
        rig.agent("a2");
        assert!(rig.wait_for(60 * SECOND, |status| status.contains("\"links\": 2")), "seed {seed}");
        rig.world.kill(first.node);
        rig.world.run_for(SECOND);
        assert!(matches!(open.borrow().outcome, Outcome::Ended(_)), "seed {seed}: {:?}", open.borrow());
        let echo = SocketAddr::new(address("10.0.0.9"), 7001);
        rig.target(echo, Behaviour::Echo);
        let next = rig.client(echo_plan(echo, 1000));
        rig.world.run_for(5 * SECOND);
        assert_eq!((next.borrow().status, next.borrow().received), (Some(200), 1000), "seed {seed}");
        rig.assert_empty(seed);
        rig.world.marks()
    });
}

/// B119: the client is killed while its target takes nothing, so that no read finds its end.
#[test]
fn a_client_that_left_behind_back_pressure_is_given_up() {
    sweep(20, |seed| {
        let mut rig = Rig::new(seed, Security::Clear);
        rig.agent("a1");
        assert!(rig.wait_for(60 * SECOND, |status| status.contains("\"links\": 1")), "seed {seed}");
        let target = SocketAddr::new(address("10.0.0.9"), 7000);
        rig.target(target, Behaviour::Hole);
        let killed = rig
            .client(ClientPlan { ending: Ending::CloseAfter(5 * SECOND), ..echo_plan(target, 50_000_000) });
        rig.world.run_for(6 * SECOND);
        assert_eq!(killed.borrow().outcome, Outcome::Left, "seed {seed}");
        assert!(rig.status().contains("\"tunnels\": 1,"), "seed {seed}: its bytes may still be wanted");
        rig.world.run_for(LINGER_TIMEOUT);
        rig.assert_empty(seed);
        rig.world.marks()
    });
}

/// The same, but the target does read, only slowly: every byte arrives.
#[test]
fn a_slow_target_gets_every_byte_of_a_client_that_left() {
    sweep(20, |seed| {
        let mut rig = Rig::new(seed, Security::Clear);
        rig.agent("a1");
        assert!(rig.wait_for(60 * SECOND, |status| status.contains("\"links\": 1")), "seed {seed}");
        let target = SocketAddr::new(address("10.0.0.9"), 7000);
        let seen = rig.target(target, Behaviour::SlowSink { bytes: 4_000, pause: SECOND / 4 });
        rig.client(ClientPlan { ending: Ending::CloseWhenSent, ..echo_plan(target, 2_000_000) });
        let done =
            rig.world.run_until(1000 * SECOND, |_| seen.borrow().connections.iter().any(|seen| seen.closed));
        let seen = seen.borrow();
        assert!(done, "seed {seed}: {seen:?}");
        assert_eq!((seen.connections[0].received, seen.connections[0].mismatch), (2_000_000, None), "{seed}");
        rig.assert_empty(seed);
        rig.world.marks()
    });
}

/// A target's host vanishes with bytes on the way to it: while they wait, the kernel sends no keepalive. One that is
/// only slow, or stops reading for long, keeps its tunnel.
#[test]
fn a_target_that_vanished_ends_its_tunnel_and_one_that_stopped_reading_does_not() {
    sweep(20, |seed| {
        let mut rig = Rig::new(seed, Security::Clear);
        rig.agent("a1");
        assert!(rig.wait_for(60 * SECOND, |status| status.contains("\"links\": 1")), "seed {seed}");
        let (stopped, gone) =
            (SocketAddr::new(address("10.0.0.9"), 7000), SocketAddr::new(address("10.0.0.8"), 7000));
        rig.target(stopped, Behaviour::Hole);
        let slow = Behaviour::SlowSink { bytes: 4_000, pause: SECOND / 4 };
        let lost = rig.target_on_a_host_of_its_own(gone, slow);
        let upload = |target| echo_plan(target, 2_000_000);
        let (stays, ends) = (rig.client(upload(stopped)), rig.client(upload(gone)));
        rig.world.run_for(2 * SECOND);
        rig.world.vanish(lost);
        rig.world.run_for(VANISHED_AFTER - SECOND);
        assert_eq!(ends.borrow().outcome, Outcome::Running, "seed {seed}");
        rig.world.run_for(SECOND + VANISHED_LOOK);
        assert!(matches!(ends.borrow().outcome, Outcome::Ended(_)), "seed {seed}: {:?}", ends.borrow());
        rig.world.run_for(3 * VANISHED_AFTER);
        assert_eq!(stays.borrow().outcome, Outcome::Running, "seed {seed}");
        rig.world.marks()
    });
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| {
        let mut rig = Rig::new(seed, Security::Clear);
        rig.agent("a1");
        let target = SocketAddr::new(address("10.0.0.9"), 7000);
        rig.target(target, Behaviour::Echo);
        rig.client(echo_plan(target, 50_000));
        rig.world.run_for(30 * SECOND);
        (rig.world.trace_hash(), rig.world.events())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}
