//! A server that falls silent: another link is tried, and the old one is kept in case it only stood still.

use super::*;
use crate::limits::SERVER_PATIENCE;

/// An agent with a tunnel whose server has just been silent for ten seconds: the old link, its end, the target.
fn doubting() -> (World, (Key, End), Key) {
    let mut world = World::up();
    let target = tunnel(&mut world).0;
    let old = world.server.take().unwrap();
    world.pass(LIVENESS.dead_after - MS);
    assert!(world.take().is_empty() && world.agent.is_ready());
    world.pass(MS);
    assert!(world.take().is_empty() && !world.agent.is_ready());
    (world, old, target)
}

/// The old server speaks.
fn wake(world: &mut World, old: (Key, End)) {
    world.server = Some(old);
    world.server.as_mut().unwrap().1.link.probe(world.now);
    world.run();
    assert!(world.agent.is_ready());
    assert_eq!(world.agent.links.len(), 1);
}

#[test]
fn a_new_link_takes_the_place_of_a_silent_one() {
    let (mut world, (old, _), target) = doubting();
    assert!(REDIAL.contains(&world.rest()));
    let (job, _) = world.connect();
    let conn = world.connected(job);
    world.take();
    let mut server = End::server(world.now);
    converse(&mut world.agent, world.now, conn, &mut server);
    let events = server.take_events();
    let [LinkEvent::Hello(hello)] = &events[..] else { panic!("{events:?}") };
    server.link.welcome(hello, welcome());
    world.server = Some((conn, server));
    let effects = world.take();
    assert!(effects.iter().any(|effect| is_close(effect, target, Manner::Abort)));
    let ended = |effect: &Effect| matches!(effect, Effect::EndLink { link, last_words: None, manner: Manner::Abort } if *link == old);
    assert!(effects.iter().any(ended), "{effects:?}");
    assert!(world.agent.is_ready());
    world.assert_no_targets();
    world.end();
}

#[test]
fn a_server_that_only_stood_still_keeps_its_link_and_tunnels_wherever_the_attempt_was() {
    // Waiting, connecting, greeting; a look-up is cancelled alike.
    for stage in 0..3 {
        let (mut world, old, _) = doubting();
        let mut attempt = None;
        if stage > 0 {
            world.rest();
            let (job, _) = world.connect();
            if stage == 2 {
                attempt = Some(world.connected(job));
                world.take();
            }
            wake(&mut world, old);
            let effects = world.take();
            match attempt {
                None => assert_eq!(cancelled(&effects), [job]),
                Some(conn) => assert!(effects.iter().any(|effect| is_close(effect, conn, Manner::Abort))),
            }
        } else {
            wake(&mut world, old);
        }
        world.pass(LIVENESS.dead_after / 2);
        assert!(world.take().is_empty(), "no other attempt");
        assert_eq!(world.agent.endpoints.len(), 1, "the tunnel lives");
        world.end();
    }
    let mut world = World::new("server.test");
    let (job, _) = world.look_up();
    world.resolved(job, Ok(&["10.0.0.1:8091"]));
    world.welcome();
    let old = world.server.take().unwrap();
    world.pass(LIVENESS.dead_after);
    world.rest();
    let (job, _) = world.look_up();
    wake(&mut world, old);
    assert_eq!(world.left, [job]);
    world.end();
}

#[test]
fn a_silence_three_times_as_long_ends_the_link_and_so_does_the_next_one_after_a_word() {
    let (mut world, (old, mut end), target) = doubting();
    let ended = |world: &mut World| {
        let effects = world.take();
        effects.iter().any(|effect| matches!(effect, Effect::EndLink { link, .. } if *link == old))
            && effects.iter().any(|effect| is_close(effect, target, Manner::Abort))
    };
    world.pass(LIVENESS.dead_after * (SERVER_PATIENCE - 1) - MS);
    assert!(!ended(&mut world));
    // A word just in time; after it the patience is as at first.
    end.link.probe(world.now);
    wake(&mut world, (old, end));
    world.server = None;
    world.take();
    world.pass(LIVENESS.dead_after);
    assert!(!world.agent.is_ready());
    world.pass(LIVENESS.dead_after * (SERVER_PATIENCE - 1) - MS);
    assert!(!ended(&mut world));
    world.pass(MS);
    assert!(ended(&mut world));
    world.assert_no_targets();
    world.end();
}
