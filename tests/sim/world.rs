//! [`World`]: runs the nodes, the network and the script in virtual time, one step after another.
//!
//! A node's turn calls `poll` once and `poll` never waits: it reports what is ready and notes `until`. A node
//! that was told of nothing and called nothing is parked until its `until` or an event; any other is run
//! again, since the `until` it gave may be out of date. So each wait shows as one empty turn, which a real
//! poller may produce too.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use tautline::net::sys::Sock;

use crate::edges::any;
use crate::kernel::{Host, HostId, Kernel, NodeId, Process};
use crate::marks::Marks;
use crate::quirks::Quirks;
use crate::rng::Rng;
use crate::sys::SimSys;

/// A program: one turn of its loop. `Break` ends the process.
pub(crate) trait Node {
    fn turn(&mut self) -> ControlFlow<()>;
}

impl<F: FnMut() -> ControlFlow<()>> Node for F {
    fn turn(&mut self) -> ControlFlow<()> {
        self()
    }
}

type Action = Box<dyn FnOnce(&mut World)>;

pub(crate) struct World {
    kernel: Rc<RefCell<Kernel>>,
    drivers: BTreeMap<NodeId, Box<dyn Node>>,
    actions: BTreeMap<(Duration, u64), Action>,
    actions_count: u64,
    /// Whose turn it is among equals.
    order: Rng,
}

/// A node that does not sleep and does nothing, so many times in a row, spins.
const IDLE_TURNS_MAX: u32 = 1000;
/// What a turn costs, and each call in it.
const TURN_COST: Duration = Duration::from_micros(2);
const CALL_COST: Duration = Duration::from_nanos(500);

/// A socket that has something to read while its owner, told so, sleeps without having read it dry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stall {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) sock: Sock,
    pub(crate) token: u64,
}

impl World {
    /// A world whose kernels are as weak as the seed wants.
    pub(crate) fn new(seed: u64) -> Self {
        let quirks = Quirks::draw(&mut Rng::new(seed));
        Self::with_quirks(seed, quirks)
    }

    pub(crate) fn with_quirks(seed: u64, quirks: Quirks) -> Self {
        let mut rng = Rng::new(seed ^ 0x0057_6f72_6c64);
        let order = rng.split();
        let kernel = Kernel::new(seed, quirks, rng);
        kernel.trace.say(Duration::ZERO, || format!("seed {seed}: {:?}", kernel.quirks));
        Self {
            kernel: Rc::new(RefCell::new(kernel)),
            drivers: BTreeMap::new(),
            actions: BTreeMap::new(),
            actions_count: 0,
            order,
        }
    }

    /// The kernel, for the parts of the simulator. No node runs while it is borrowed.
    pub(crate) fn kernel(&self) -> RefMut<'_, Kernel> {
        self.kernel.borrow_mut()
    }

    // ----- hosts and processes

    pub(crate) fn host(&mut self, name: &str, addresses: &[IpAddr]) -> HostId {
        let mut kernel = self.kernel();
        let id = HostId(kernel.hosts.len());
        kernel.trace.say(kernel.now, || format!("host {} is {name} {addresses:?}", id.0));
        kernel.hosts.push(Host {
            up: true,
            addresses: addresses.to_vec(),
            files: BTreeMap::new(),
            listeners: BTreeMap::new(),
            next_port: 32_768,
        });
        id
    }

    /// A process without a program: whoever holds the handle makes its calls.
    pub(crate) fn process(&mut self, host: HostId, name: &str) -> SimSys {
        let mut kernel = self.kernel();
        let node = NodeId(kernel.processes.len());
        kernel.trace.say(kernel.now, || format!("process {} is {name} on host {}", node.0, host.0));
        let (rng, quirks) = (kernel.rng.split(), kernel.quirks.clone());
        let now = kernel.now;
        kernel.processes.push(Process {
            name: name.to_owned(),
            host,
            alive: true,
            frozen: false,
            driven: false,
            descriptors: BTreeMap::new(),
            descriptor_limit: usize::MAX,
            last_descriptor: 0,
            quirks,
            rng,
            pending: Vec::new(),
            signals: VecDeque::new(),
            jobs_done: VecDeque::new(),
            jobs: BTreeSet::new(),
            jobs_max: 1024,
            until: None,
            activity: 0,
            resting: false,
            idle_turns: 0,
            wake_at: None,
            busy_until: now,
        });
        drop(kernel);
        SimSys::new(Rc::clone(&self.kernel), node)
    }

    /// Starts a program; its first turn comes at once.
    pub(crate) fn spawn(
        &mut self,
        host: HostId,
        name: &str,
        program: impl FnOnce(SimSys) -> Box<dyn Node>,
    ) -> NodeId {
        let sys = self.process(host, name);
        let node = sys.node();
        self.drivers.insert(node, program(sys));
        let mut kernel = self.kernel();
        kernel.processes[node.0].driven = true;
        let now = kernel.now;
        kernel.wake(node, now);
        drop(kernel);
        node
    }

    /// Takes the program of a process that ended.
    pub(crate) fn drop_driver(&mut self, node: NodeId) {
        drop(self.drivers.remove(&node));
    }

    // ----- time

    /// Virtual time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.kernel.borrow().now
    }

    /// Has `action` happen `after` from now.
    pub(crate) fn after(&mut self, after: Duration, action: impl FnOnce(&mut Self) + 'static) {
        self.actions_count += 1;
        self.actions.insert((self.now() + after, self.actions_count), Box::new(action));
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let limit = self.now() + time;
        while self.step(limit) {}
    }

    /// Runs until `done`, at most for `time`; true if it was done.
    pub(crate) fn run_until(&mut self, time: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let limit = self.now() + time;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(limit) {
                return done(self);
            }
        }
    }

    /// Runs until nothing is on its way and every node only waits for a timer or for ever; at most for `time`.
    pub(crate) fn run_to_rest(&mut self, time: Duration) -> bool {
        self.run_until(time, Self::at_rest)
    }

    pub(crate) fn at_rest(&self) -> bool {
        let kernel = self.kernel.borrow();
        let resting = |process: &Process| {
            !process.alive
                || process.frozen
                || !process.driven
                || (process.resting && process.pending.is_empty())
        };
        self.actions.is_empty() && kernel.in_flight == 0 && kernel.processes.iter().all(resting)
    }

    /// One action, event or turn; false (and the time is `limit`) if there is none until then.
    pub(crate) fn step(&mut self, limit: Duration) -> bool {
        let mut kernel = self.kernel.borrow_mut();
        let action = self.actions.first_key_value().map(|(at, _)| at.0);
        let event = kernel.next_event_at();
        let wake = kernel.wakes.first().map(|(at, _)| *at);
        let Some(next) = [action, event, wake].into_iter().flatten().min().filter(|next| *next <= limit)
        else {
            kernel.now = kernel.now.max(limit);
            return false;
        };
        let now = kernel.now.max(next);
        kernel.now = now;
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        if due(action) {
            drop(kernel);
            if let Some((_, action)) = self.actions.pop_first() {
                action(self);
            }
        } else if due(event) && !(due(wake) && self.order.chance(300)) {
            kernel.handle_event();
        } else {
            let count = kernel.wakes.iter().take(16).take_while(|(at, _)| *at <= now).count();
            let nth = self.order.below(count as u64) as usize;
            let node = kernel.wakes.iter().nth(nth).map(|(_, node)| *node);
            drop(kernel);
            if let Some(node) = node {
                self.run_turn(node);
            }
        }
        true
    }

    fn run_turn(&mut self, node: NodeId) {
        self.kernel().sleep(node);
        let Some(mut driver) = self.drivers.remove(&node) else { return };
        let flow = driver.turn();
        let mut kernel = self.kernel.borrow_mut();
        if flow.is_break() {
            kernel.note("exit", [node.0 as u64, 0, 0]);
            kernel.exit(node);
            drop(kernel);
            drop(driver);
            return;
        }
        self.drivers.insert(node, driver);
        let now = kernel.now;
        let next_due = kernel.next_due_at(node);
        let process = &mut kernel.processes[node.0];
        let calls = u32::try_from(process.activity).unwrap_or(u32::MAX);
        process.busy_until = now + TURN_COST + CALL_COST * calls;
        let unfetched = !process.signals.is_empty() || !process.jobs_done.is_empty();
        let restless = unfetched || process.until.is_some_and(|until| until <= now);
        process.resting = calls == 0 && !restless;
        process.idle_turns = if calls == 0 && restless { process.idle_turns + 1 } else { 0 };
        assert!(process.idle_turns < IDLE_TURNS_MAX, "{} spins at {now:?}", process.name);
        let until = process.until;
        let again = if process.resting { until } else { Some(now) };
        for at in [again, next_due].into_iter().flatten() {
            kernel.wake(node, at);
        }
    }

    // ----- what a test looks at

    pub(crate) fn trace_hash(&self) -> u64 {
        self.kernel.borrow().trace.hash()
    }

    pub(crate) fn events(&self) -> u64 {
        self.kernel.borrow().trace.events()
    }

    pub(crate) fn marks(&self) -> Marks {
        self.kernel.borrow().marks.clone()
    }

    pub(crate) fn open_sockets(&self, node: NodeId) -> usize {
        self.kernel.borrow().processes[node.0].descriptors.len()
    }

    /// Connections that some kernel still knows.
    pub(crate) fn connections(&self) -> usize {
        self.kernel.borrow().conns.len()
    }

    pub(crate) fn alive(&self, node: NodeId) -> bool {
        self.kernel.borrow().processes[node.0].alive
    }

    /// Work that nodes were told of and left. At rest this is a fault, unless the node holds back on purpose
    /// (no credit, a slow reader).
    ///
    /// # Panics
    /// If the simulated kernel itself owes somebody an edge.
    pub(crate) fn stalls(&self) -> Vec<Stall> {
        let kernel = self.kernel.borrow();
        let mut stalls = Vec::new();
        for (_, socket) in kernel.sockets.iter() {
            let process = &kernel.processes[socket.process.0];
            let (Some(token), edges) = (socket.token, &socket.edges) else { continue };
            if process.frozen || any(edges.due) {
                continue;
            }
            let state = kernel.hints(socket);
            let owes_read = state.readable && edges.read_armed && !edges.read_ended;
            let owes_write = state.writable && edges.write_armed;
            assert!(!owes_read && !owes_write, "an edge of {} {token} is lost", process.name);
            if state.readable && !edges.read_ended {
                let (node, sock) = (socket.process, Sock(socket.descriptor));
                stalls.push(Stall { node, name: process.name.clone(), sock, token });
            }
        }
        stalls
    }
}
