//! SIGTERM, seen by a server.

use super::*;
use crate::limits::DRAIN_LINGER;

fn terminate(world: &mut World) {
    world.server.on_terminate(world.now);
    world.run();
}

fn open(world: &mut World, agent: Key) -> (Key, StreamKey) {
    let frontend = world.connect();
    let stream = world.dial_at(agent).expect("a dial");
    world.succeed(agent, stream);
    assert_eq!(world.bridge(frontend), Some(agent));
    (frontend, stream)
}

#[test]
fn a_server_says_so_at_once_and_ends_a_moment_after_the_last_tunnel() {
    let (mut world, [agent]) = World::with_agents::<1>();
    let (first, stream) = open(&mut world, agent);
    assert!(world.server.is_ready());
    terminate(&mut world);
    assert!(!world.server.is_ready());
    let drains = |world: &mut World, agent: Key| {
        world.agents.get_mut(&agent).unwrap().take_events().contains(&LinkEvent::Drain)
    };
    assert!(drains(&mut world, agent));
    world.pass(DRAIN_LIMIT / 2);
    world.effects.retain(|effect| !matches!(effect, Effect::Bridge { .. }));
    let (second, other) = open(&mut world, agent);
    let late = world.agent("b");
    assert!(drains(&mut world, late), "who comes later is told too");
    for (frontend, stream) in [(first, stream), (second, other)] {
        world.agents.get_mut(&agent).unwrap().close(stream, CloseCode::Normal);
        world.run();
        assert_eq!(world.closed(frontend), Some(Manner::Flush));
    }
    world.pass(DRAIN_LINGER / 2);
    assert!(!world.server.is_finished());
    world.pass(DRAIN_LINGER);
    assert!(world.server.is_finished());
    assert_eq!(world.last_words(agent), Some(GoAwayCode::Shutdown));
    world.end();
}

#[test]
fn the_limit_and_the_second_signal_cut_what_is_left() {
    for second_signal in [false, true] {
        let (mut world, [agent]) = World::with_agents::<1>();
        let (frontend, _) = open(&mut world, agent);
        terminate(&mut world);
        world.pass(DRAIN_LIMIT - MS);
        assert!(!world.server.is_finished());
        assert_eq!(world.closed(frontend), None);
        if second_signal {
            terminate(&mut world);
        } else {
            world.pass(MS);
        }
        assert!(world.server.is_finished());
        assert_eq!(world.closed(frontend), Some(Manner::Abort));
        world.end();
    }
}

#[test]
fn without_patience_it_ends_at_once() {
    let (mut world, [agent]) = World::with_agents::<1>();
    world.server.config.drain_timeout = Duration::ZERO;
    terminate(&mut world);
    assert!(world.server.is_finished());
    assert_eq!(world.last_words(agent), Some(GoAwayCode::Shutdown));
    world.end();
}
