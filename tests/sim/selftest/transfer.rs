//! Every byte once and in order, over every kind of kernel and path, with both echo and one-way targets.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tautline::net::sys::ListenAddr;

use super::pair::{CLIENT_IP, SERVER_IP, address};
use crate::actors::client::{Client, ClientPlan, ClientReport, Ending, Frontend, Outcome};
use crate::actors::session::{End, Pace};
use crate::actors::target::{Behaviour, Target, TargetReport};
use crate::kernel::{HostId, NodeId};
use crate::marks::Marks;
use crate::net::Path;
use crate::pattern::Direction;
use crate::quirks::Quirks;
use crate::rng::Rng;
use crate::seeds::sweep;
use crate::world::World;

type Reports = (Rc<RefCell<ClientReport>>, Rc<RefCell<TargetReport>>);

struct Run {
    world: World,
    rng: Rng,
    hosts: [HostId; 2],
}

impl Run {
    fn new(seed: u64) -> Self {
        // An aborted accept resets its client: another test's subject.
        let quirks = Quirks { accept_abort_chance: 0, ..Quirks::draw(&mut Rng::new(seed)) };
        let mut world = World::with_quirks(seed, quirks);
        let mut rng = Rng::new(seed ^ 0x7261_6e64);
        let client = world.host("client", &[IpAddr::from(CLIENT_IP)]);
        let server = world.host("server", &[IpAddr::from(SERVER_IP)]);
        world.set_path(client, server, &Path::draw(&mut rng));
        Self { world, rng, hosts: [client, server] }
    }

    /// A target and a client that speaks to it directly; on odd numbers over a Unix socket.
    fn pair(&mut self, tunnel: u64, behaviour: Behaviour, ending: Ending) -> (Reports, NodeId) {
        let upload = self.rng.between(0, 30_000);
        let at = address(SERVER_IP, tunnel as u16);
        let path = PathBuf::from(format!("/run/{tunnel}"));
        let (listen, frontend, host) = if tunnel % 2 == 1 {
            (ListenAddr::Unix(path.clone()), Frontend::Unix(path), self.hosts[0])
        } else {
            (ListenAddr::Tcp(at), Frontend::Tcp(at), self.hosts[1])
        };
        let (node, target) = Target::spawn_at(&mut self.world, host, &listen, tunnel, behaviour);
        let slow = Pace::Slow { bytes: 700, pause: Duration::from_micros(300) };
        let plan = ClientPlan {
            frontend,
            target: None,
            tunnel,
            upload,
            early: 0,
            expects: if behaviour == Behaviour::Echo { Direction::Up } else { Direction::Down },
            pace: self.rng.pick(&[Pace::Full, slow]),
            ending,
        };
        let (_, client) = Client::spawn(&mut self.world, self.hosts[0], plan);
        ((client, target), node)
    }
}

/// Half-closing clients against targets that read to the end: both directions must be whole.
fn run(seed: u64) -> Marks {
    let mut run = Run::new(seed);
    let slow = Behaviour::SlowSink { bytes: 500, pause: Duration::from_micros(200) };
    let all = [
        (Behaviour::Echo, None),
        (Behaviour::Sink, Some(0)),
        (slow, Some(0)),
        (Behaviour::Flood { bytes: 20_000 }, Some(20_000)),
        (Behaviour::Banner { bytes: 3000 }, Some(3000)),
    ];
    let mut pairs = Vec::new();
    for (index, (behaviour, sends)) in all.into_iter().enumerate() {
        for tunnel in [1000 + 2 * index as u64, 1001 + 2 * index as u64] {
            let (reports, node) = run.pair(tunnel, behaviour, Ending::HalfClose);
            pairs.push((reports, node, sends));
        }
    }
    // What only delays must cost no byte: a partition shorter than TCP's patience, a pause, a loss.
    let [client, server] = run.hosts;
    let at = run.rng.duration(Duration::from_millis(100));
    match run.rng.below(3) {
        0 => run.world.after(at, move |world| {
            world.partition(client, server);
            world.after(Duration::from_secs(20), move |world| world.heal(client, server));
        }),
        1 => run.world.after(at, move |world| {
            world.cut_one_way(server, client);
            world.after(Duration::from_secs(5), move |world| world.heal(client, server));
        }),
        _ => {
            let node = pairs[0].1;
            run.world.after(at, move |world| world.pause(node, Duration::from_secs(3)));
        }
    }
    let done = run.world.run_until(Duration::from_secs(3000), |_| {
        let closed = |report: &TargetReport| report.connections.iter().all(|seen| seen.closed);
        pairs.iter().all(|((client, target), ..)| {
            client.borrow().outcome != Outcome::Running && closed(&target.borrow())
        })
    });
    assert!(done, "not done: {:?}", run.world.stalls());
    for ((client, target), _, sends) in &pairs {
        let (client, target) = (client.borrow(), target.borrow());
        assert_eq!(client.outcome, Outcome::Ended(End::Eof));
        assert_eq!(client.mismatch, None);
        let [seen] = &target.connections[..] else { panic!("one connection") };
        assert_eq!((seen.received, seen.mismatch, seen.end), (client.sent, None, End::Eof));
        assert_eq!(client.received, sends.unwrap_or(client.sent));
        assert_eq!(seen.sent, client.received);
        assert!(seen.closed);
    }
    assert!(run.world.run_to_rest(Duration::from_secs(200)));
    assert_eq!(run.world.stalls(), []);
    for (_, node, _) in &pairs {
        assert_eq!(run.world.open_sockets(*node), 1, "the listener");
    }
    run.world.run_for(Duration::from_secs(200));
    assert_eq!(run.world.connections(), 0, "the kernels forgot every connection");
    run.world.marks()
}

#[test]
fn every_byte_arrives_once_and_in_order() {
    if let Some(marks) = sweep(40, run) {
        assert_eq!(marks.missing(&["short read", "short write", "retransmission", "zero window"]), [""; 0]);
    }
}
