//! The token that an agent shows.

use super::*;

fn world() -> World {
    let mut world = World::with("10.0.0.1", true);
    world.run();
    world
}

/// The one token that was asked for.
fn asked(world: &mut World) -> JobId {
    let effects = world.take();
    let [Effect::ReadToken { job }] = &effects[..] else { panic!("{effects:?}") };
    *job
}

fn read(world: &mut World, job: JobId, result: Result<&str, &str>) {
    let result = result.map(|text| Secret::new(text.to_owned())).map_err(str::to_owned);
    world.agent.on_token(world.now, job, result);
    world.run();
}

/// What the server hears in the HELLO of the attempt that is under way.
fn shown(world: &mut World) -> Option<String> {
    let (job, _) = world.connect();
    let conn = world.connected(job);
    let mut server = End::server(world.now);
    converse(&mut world.agent, world.now, conn, &mut server);
    let events = server.take_events();
    let [LinkEvent::Hello(hello)] = &events[..] else { panic!("{events:?}") };
    hello.token.clone()
}

#[test]
fn the_token_is_read_anew_at_each_attempt_and_shown() {
    let mut world = world();
    for token in ["one", "two"] {
        let job = asked(&mut world);
        read(&mut world, job, Ok(token));
        assert_eq!(shown(&mut world).as_deref(), Some(token));
        assert!(world.agent.token.is_none(), "it is not kept");
        world.take();
        world.lose(false);
        world.rest();
    }
    world.end();
}

#[test]
fn a_token_that_cannot_be_read_ends_the_attempt_and_one_that_comes_late_is_not_used() {
    let mut world = world();
    let job = asked(&mut world);
    read(&mut world, job, Err("token file is empty"));
    world.rest();
    let late = asked(&mut world);
    world.pass(GREETING_TIMEOUT);
    assert_eq!(world.left, [late]);
    read(&mut world, late, Ok("late"));
    assert!(world.take().is_empty() && world.agent.token.is_none());
    world.end();
}
