//! SIGTERM, seen by an agent.

use super::*;
use crate::limits::{DRAIN_LINGER, DRAIN_LOOK};

const LIMIT: Duration = Duration::from_secs(30);

fn terminate(world: &mut World) {
    world.agent.on_terminate(world.now);
    world.run();
}

fn finished_links(world: &mut World) -> usize {
    let ended = |effect: &Effect| matches!(effect, Effect::EndLink { last_words: Some(words), manner: Manner::Flush, .. } if words.code == GoAwayCode::Shutdown);
    world.take().iter().filter(|effect| ended(effect)).count()
}

#[test]
fn an_idle_agent_says_so_at_once_lingers_and_ends() {
    let mut world = World::up();
    terminate(&mut world);
    assert_eq!(world.told(), [LinkEvent::Drain]);
    assert!(!world.agent.is_ready() && !world.agent.is_finished());
    world.pass(DRAIN_LINGER - MS);
    assert!(!world.agent.is_finished(), "a dial may be on its way");
    world.pass(MS);
    assert!(world.agent.is_finished());
    assert_eq!(finished_links(&mut world), 1);
    world.end();
}

#[test]
fn a_tunnel_lives_on_and_a_late_dial_is_served() {
    let mut world = World::up();
    let (_, first) = tunnel(&mut world);
    terminate(&mut world);
    assert_eq!(world.told(), [LinkEvent::Drain]);
    world.pass(LIMIT / 2);
    let second = world.dial(2, "10.0.0.9:80");
    let (job, _) = world.connect();
    world.connected(job);
    assert_eq!(world.told(), [LinkEvent::Opened { owner: key(1), stream: second }]);
    world.close(first);
    world.close(second);
    world.pass(DRAIN_LINGER - DRAIN_LOOK);
    assert!(!world.agent.is_finished());
    world.pass(2 * DRAIN_LOOK);
    assert!(world.agent.is_finished());
    world.end();
}

#[test]
fn the_limit_and_the_second_signal_cut_what_is_left() {
    for second_signal in [false, true] {
        let mut world = World::up();
        let (target, _) = tunnel(&mut world);
        terminate(&mut world);
        world.pass(LIMIT - MS);
        assert!(!world.agent.is_finished());
        if second_signal {
            terminate(&mut world);
        } else {
            world.pass(MS);
        }
        assert!(world.agent.is_finished());
        assert!(world.take().iter().any(|effect| is_close(effect, target, Manner::Abort)));
        world.end();
    }
}

#[test]
fn without_a_link_or_without_patience_it_ends_at_once() {
    let mut world = World::new("10.0.0.1");
    terminate(&mut world);
    assert!(world.agent.is_finished());

    let mut world = World::up();
    world.agent.config.drain_timeout = Duration::ZERO;
    terminate(&mut world);
    assert!(world.agent.is_finished());
    assert_eq!(finished_links(&mut world), 1);
}

#[test]
fn an_agent_that_loses_its_server_while_it_drains_does_not_dial_it_anew() {
    let mut world = World::up();
    let (target, _) = tunnel(&mut world);
    terminate(&mut world);
    world.lose(false);
    world.pass(DRAIN_LOOK);
    let effects = world.take();
    assert!(matches!(&effects[..], [effect] if is_close(effect, target, Manner::Abort)), "{effects:?}");
    assert!(world.agent.is_finished());
}
