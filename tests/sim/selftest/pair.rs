//! Two processes on two hosts (or one, for Unix sockets) and a connection between them, called by hand.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tautline::net::sys::{Hints, ListenAddr, Ready, Sock, Sys};

use crate::kernel::HostId;
use crate::quirks::Quirks;
use crate::sys::SimSys;
use crate::world::World;

pub(crate) const CLIENT_IP: [u8; 4] = [10, 0, 0, 1];
pub(crate) const SERVER_IP: [u8; 4] = [10, 0, 0, 2];

/// One end of the connection.
pub(crate) struct Side {
    pub(crate) sys: SimSys,
    pub(crate) sock: Sock,
}

impl Side {
    pub(crate) fn read(&mut self) -> io::Result<usize> {
        self.sys.read(self.sock, &mut [0; 100_000])
    }

    pub(crate) fn write(&mut self, len: usize) -> io::Result<usize> {
        self.sys.write(self.sock, &[IoSlice::new(&vec![b'x'; len])])
    }

    /// The events of this side since the last call, added up.
    pub(crate) fn events(&mut self) -> Hints {
        let mut ready: Vec<Ready> = Vec::new();
        self.sys.poll(&mut ready, None).unwrap();
        let mut all = Hints::default();
        for Ready { token, hints } in ready {
            if token == u64::from(self.sock.0) {
                all.readable |= hints.readable;
                all.writable |= hints.writable;
                all.read_closed |= hints.read_closed;
                all.hup |= hints.hup;
                all.error |= hints.error;
            }
        }
        all
    }

    pub(crate) fn register(&mut self) {
        self.sys.register(self.sock, u64::from(self.sock.0)).unwrap();
    }
}

pub(crate) struct Pair {
    pub(crate) world: World,
    pub(crate) hosts: [HostId; 2],
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) listener: Sock,
}

pub(crate) fn address(ip: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::from((ip, port))
}

/// A world of two hosts with a kernel at its best.
pub(crate) fn two_hosts() -> (World, [HostId; 2]) {
    let mut world = World::with_quirks(1, Quirks::none());
    let client = world.host("client", &[IpAddr::from(CLIENT_IP)]);
    let server = world.host("server", &[IpAddr::from(SERVER_IP)]);
    (world, [client, server])
}

impl Pair {
    /// A TCP connection over the default path, both ends registered and their first events taken.
    pub(crate) fn tcp() -> Self {
        let (mut world, hosts) = two_hosts();
        let mut server = world.process(hosts[1], "server");
        let at = address(SERVER_IP, 80);
        let listener = server.listen(&ListenAddr::Tcp(at)).unwrap();
        let mut client = world.process(hosts[0], "client");
        let sock = client.connect(at).unwrap();
        world.run_for(Duration::from_millis(2));
        client.connected(sock).unwrap();
        Self::accepted(world, hosts, Side { sys: client, sock }, server, listener)
    }

    pub(crate) fn unix() -> Self {
        let (mut world, hosts) = two_hosts();
        let mut server = world.process(hosts[0], "server");
        let listener = server.listen(&ListenAddr::Unix("/run/s".into())).unwrap();
        let client = world.process(hosts[0], "client");
        let sock = client.connect_unix("/run/s".as_ref()).unwrap();
        Self::accepted(world, hosts, Side { sys: client, sock }, server, listener)
    }

    fn accepted(world: World, hosts: [HostId; 2], client: Side, mut server: SimSys, listener: Sock) -> Self {
        let (sock, _) = server.accept(listener).unwrap();
        let server = Side { sys: server, sock };
        let mut pair = Self { world, hosts, client, server, listener };
        for side in [&mut pair.client, &mut pair.server] {
            side.register();
            let first = side.events();
            assert_eq!(first, Hints { writable: true, ..Hints::default() });
            assert_eq!(side.read().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        pair
    }

    /// Long enough for everything on the default path, too short for any timer.
    pub(crate) fn pass(&mut self) {
        self.world.run_for(Duration::from_millis(5));
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.world.run_for(Duration::from_secs(seconds));
    }
}

/// The kind of what failed, or how much was done.
pub(crate) fn outcome(result: io::Result<usize>) -> Result<usize, io::ErrorKind> {
    result.map_err(|error| error.kind())
}
