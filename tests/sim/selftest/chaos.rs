//! Any actors, any faults: what is received is a prefix of what was sent, a clean end means all of it, and
//! the kernels forget everything in the end.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tautline::net::sys::{Job, Sys};

use super::pair::address;
use crate::actors::client::{Client, ClientPlan, ClientReport, Ending, Frontend, Outcome};
use crate::actors::session::{End, Pace};
use crate::actors::target::{Behaviour, Target, TargetReport};
use crate::kernel::{HostId, NodeId};
use crate::marks::{KERNEL_MARKS, Marks};
use crate::net::Path;
use crate::pattern::Direction;
use crate::rng::Rng;
use crate::seeds::sweep;
use crate::world::World;

pub(crate) struct Outcomes {
    pub(crate) hash: u64,
    pub(crate) events: u64,
    marks: Marks,
}

struct Tunnel {
    behaviour: Behaviour,
    client: Rc<RefCell<ClientReport>>,
    target: Rc<RefCell<TargetReport>>,
}

const PLANNED: Duration = Duration::from_secs(30);

fn behaviour(rng: &mut Rng) -> Behaviour {
    let bytes = rng.between(0, 20_000);
    rng.pick(&[
        Behaviour::Echo,
        Behaviour::Sink,
        Behaviour::SlowSink { bytes: 300, pause: Duration::from_millis(1) },
        Behaviour::Hole,
        Behaviour::Flood { bytes },
        Behaviour::Banner { bytes },
        Behaviour::Closer { bytes },
        Behaviour::Resetter { after: bytes },
    ])
}

fn ending(rng: &mut Rng) -> Ending {
    let bytes = rng.between(0, 20_000);
    let time = rng.duration(PLANNED);
    rng.pick(&[
        Ending::HalfClose,
        Ending::HalfClose,
        Ending::CloseWhenSent,
        Ending::CloseWhenReceived(bytes),
        Ending::AbortWhenReceived(bytes),
        Ending::CloseAfter(time),
        Ending::Stay,
    ])
}

fn fault(world: &mut World, rng: &mut Rng, hosts: &[HostId; 3], targets: &[NodeId]) {
    let (a, b) = (hosts[0], rng.pick(&hosts[1..]));
    let node = rng.pick(targets);
    match rng.below(8) {
        0 => world.partition(a, b),
        1 => world.cut_one_way(b, a),
        2 => world.heal(a, b),
        3 => world.forget_flows(a, b),
        4 => world.reset_connections(a, b),
        5 if world.alive(node) => world.pause(node, Duration::from_secs(4)),
        6 => world.kill(node),
        _ => world.vanish(hosts[2]),
    }
}

pub(crate) fn run(seed: u64) -> Outcomes {
    let mut world = World::new(seed);
    let mut rng = Rng::new(seed ^ 0x6368_616f);
    let hosts = [1, 2, 3].map(|last| world.host("host", &[IpAddr::from([10, 0, 0, last])]));
    world.set_path(hosts[0], hosts[1], &Path::draw(&mut rng));
    world.set_path(hosts[0], hosts[2], &Path::draw(&mut rng));
    if rng.chance(300) {
        world.set_backlog(1);
    }
    let (mut targets, mut tunnels) = (Vec::new(), Vec::new());
    for number in 0..rng.between(1, 8) {
        let (port, which) = (2000 + number as u16, rng.between(2, 3) as u8);
        let at = address([10, 0, 0, which], port);
        let behaviour = behaviour(&mut rng);
        let (node, target) = Target::spawn(&mut world, hosts[usize::from(which) - 1], at, behaviour);
        targets.push(node);
        if rng.chance(400) {
            world.limit_descriptors(node, 2);
        }
        for _ in 0..rng.between(1, 3) {
            let plan = ClientPlan {
                frontend: Frontend::Tcp(at),
                target: None,
                tunnel: u64::from(port),
                upload: rng.between(0, 30_000),
                early: 0,
                expects: if behaviour == Behaviour::Echo { Direction::Up } else { Direction::Down },
                pace: rng.pick(&[Pace::Full, Pace::Full, Pace::Stop { after: 1000 }]),
                ending: ending(&mut rng),
            };
            let (_, client) = Client::spawn(&mut world, hosts[0], plan);
            tunnels.push(Tunnel { behaviour, client, target: Rc::clone(&target) });
        }
    }
    lookups(&mut world, hosts[0]);
    for _ in 0..rng.below(8) {
        let (at, mut rng, targets) = (rng.duration(PLANNED), rng.split(), targets.clone());
        world.after(at, move |world| fault(world, &mut rng, &hosts, &targets));
    }
    world.run_for(PLANNED);
    world.heal_all();
    // Longer than any retransmission and keepalive.
    world.run_for(Duration::from_secs(4000));
    world.stalls();
    for tunnel in &tunnels {
        check(tunnel);
    }
    for node in targets {
        world.kill(node);
    }
    world.run_for(Duration::from_secs(4000));
    Outcomes { hash: world.trace_hash(), events: world.events(), marks: world.marks() }
}

/// A process whose second lookup finds the pool full until the first one is left.
fn lookups(world: &mut World, host: HostId) {
    let mut sys = world.process(host, "resolver's user");
    world.limit_jobs(sys.node(), 1);
    let job = || Job::Resolve { host: "10.0.0.9".into(), port: 1, urgent: false };
    sys.submit(job(), 1).unwrap();
    sys.submit(job(), 2).unwrap_err();
    sys.cancel(1);
    sys.submit(job(), 3).unwrap();
}

fn check(tunnel: &Tunnel) {
    let (client, target) = (tunnel.client.borrow(), tunnel.target.borrow());
    assert_eq!(client.mismatch, None);
    for seen in &target.connections {
        assert_eq!(seen.mismatch, None);
    }
    let clean = client.outcome == Outcome::Ended(End::Eof);
    match tunnel.behaviour {
        Behaviour::Flood { bytes } | Behaviour::Banner { bytes } | Behaviour::Closer { bytes } => {
            assert!(client.received <= bytes);
            // A killed process closes its sockets: its kernel ends cleanly what it had been given.
            let killed = target.connections.iter().any(|seen| !seen.closed);
            assert!(!clean || killed || client.received == bytes, "a cut looks like a clean end");
        }
        _ => assert!(client.received <= client.sent),
    }
}

#[test]
fn faults_of_every_kind_keep_the_invariants() {
    if let Some(marks) = sweep(60, |seed| run(seed).marks) {
        assert_eq!(marks.missing(KERNEL_MARKS), [""; 0]);
    }
}
