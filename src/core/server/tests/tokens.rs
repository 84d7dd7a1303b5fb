//! Agents that are known by a token.

use super::*;
use tautline_wire::Hello;

use crate::core::testing::hello;

fn world() -> World {
    let mut world = World::new();
    world.server.config.reviews_tokens = true;
    world
}

/// Somebody who says HELLO with this token, and the review that was asked for.
fn come(world: &mut World, token: Option<&str>) -> (Key, Option<JobId>) {
    let conn = world.accept(Door::Agents);
    let hello = Hello { token: token.map(str::to_owned), ..hello("a") };
    world.agents.insert(conn, End::agent_saying(world.now, hello));
    world.run();
    let review = world.effects.iter().find_map(|effect| match effect {
        Effect::Review { job, token: shown } => {
            assert_eq!(Some(shown.expose()), token);
            Some(*job)
        }
        _ => None,
    });
    world.effects.retain(|effect| !matches!(effect, Effect::Review { .. }));
    (conn, review)
}

fn judge(world: &mut World, job: JobId, verdict: Verdict) {
    world.server.on_reviewed(world.now, job, verdict);
    world.run();
}

fn reviews(world: &World) -> [u64; 4] {
    ["accepted", "denied", "unavailable", "missing"]
        .map(|label| world.server.metrics.token_reviews.get([label]))
}

#[test]
fn an_agent_is_taken_once_its_token_is_accepted_and_not_before() {
    let mut world = world();
    let frontend = world.connect();
    let (conn, job) = come(&mut world, Some("eyJ"));
    assert!(!world.agents[&conn].link.is_open());
    assert_eq!((world.dial_at(conn), world.server.backends.agents()), (None, 0));
    assert!(world.server.backends.get(conn).unwrap().is_stranger());
    judge(&mut world, job.unwrap(), Verdict::Accepted);
    assert!(world.agents[&conn].link.is_open());
    let stream = world.dial_at(conn).expect("the dial waited for it");
    world.succeed(conn, stream);
    assert_eq!(world.bridge(frontend), Some(conn));
    judge(&mut world, job.unwrap(), Verdict::Denied("late".to_owned()));
    assert_eq!(world.last_words(conn), None, "one verdict counts");
    assert_eq!(reviews(&world), [1, 0, 0, 0]);
    world.end();
}

#[test]
fn who_shows_no_token_or_a_wrong_one_is_told_so_and_who_cannot_be_judged_comes_again() {
    let mut world = world();
    let (conn, job) = come(&mut world, None);
    assert_eq!((job, world.last_words(conn)), (None, Some(GoAwayCode::Unauthenticated)));
    for (verdict, code) in [
        (Verdict::Denied("expired".to_owned()), GoAwayCode::Unauthenticated),
        (Verdict::Unavailable("403".to_owned()), GoAwayCode::TryAgain),
    ] {
        let (conn, job) = come(&mut world, Some("eyJ"));
        judge(&mut world, job.unwrap(), verdict);
        assert_eq!(world.last_words(conn), Some(code));
        assert!(world.server.backends.get(conn).is_none());
    }
    let (conn, _) = come(&mut world, Some("eyJ"));
    world.pass(GREETING_TIMEOUT);
    assert_eq!(
        world.last_words(conn),
        Some(GoAwayCode::TryAgain),
        "an API that is silent holds nobody for ever"
    );
    assert_eq!(reviews(&world), [0, 1, 2, 1]);
    world.end();
}

#[test]
fn an_agent_that_left_leaves_no_review() {
    let mut world = world();
    let (conn, job) = come(&mut world, Some("eyJ"));
    world.lose(conn);
    assert!(
        world
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::CancelJob { job: left } if Some(*left) == job))
    );
    assert!(world.server.reviews.is_empty());
    judge(&mut world, job.unwrap(), Verdict::Accepted);
    assert_eq!(world.server.backends.len(), 0);
    world.end();
}
