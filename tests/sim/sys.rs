//! [`SimSys`]: the simulated kernel as one process sees it through `Sys`.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tautline::net::sys::{Class, Job, JobResult, ListenAddr, Peer, Ready, Signal, Sock, Sys, Task, TcpInfo};

use crate::kernel::{Kernel, NodeId};

pub(crate) struct SimSys {
    kernel: Rc<RefCell<Kernel>>,
    node: NodeId,
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl SimSys {
    pub(crate) const fn new(kernel: Rc<RefCell<Kernel>>, node: NodeId) -> Self {
        Self { kernel, node }
    }

    pub(crate) const fn node(&self) -> NodeId {
        self.node
    }

    /// A call that may change what the program wants next; one that was only told to wait does not (the
    /// kernel counts it if that armed an edge). Nothing works for a process that has ended.
    fn act<T>(&self, call: impl FnOnce(&mut Kernel, NodeId) -> Result<T, i32>) -> io::Result<T> {
        let mut kernel = self.kernel.borrow_mut();
        if !kernel.processes[self.node.0].alive {
            return Err(error(libc::EBADF));
        }
        let result = call(&mut kernel, self.node);
        if !matches!(result, Err(libc::EAGAIN)) {
            kernel.processes[self.node.0].activity += 1;
        }
        result.map_err(error)
    }

    /// A call that only asks.
    fn ask<T>(&self, call: impl FnOnce(&Kernel, NodeId) -> Result<T, i32>) -> io::Result<T> {
        call(&self.kernel.borrow(), self.node).map_err(error)
    }

    /// Connects to a Unix socket of this host, as a client does; `Sys` has no such call.
    ///
    /// # Errors
    /// `NotFound`, `ConnectionRefused`, or `WouldBlock` when the backlog is full.
    pub(crate) fn connect_unix(&self, path: &Path) -> io::Result<Sock> {
        self.act(|kernel, node| kernel.unix_connect(node, path)).map(Sock)
    }
}

impl Sys for SimSys {
    fn now(&mut self) -> Instant {
        self.kernel.borrow().instant()
    }

    fn unix_time(&mut self) -> Duration {
        let kernel = self.kernel.borrow();
        kernel.wall + kernel.now
    }

    fn random(&mut self) -> u64 {
        let mut kernel = self.kernel.borrow_mut();
        let process = &mut kernel.processes[self.node.0];
        process.activity += 1;
        process.rng.next()
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, until: Option<Instant>) -> io::Result<()> {
        let mut kernel = self.kernel.borrow_mut();
        let until = until.map(|until| kernel.offset(until));
        let process = &mut kernel.processes[self.node.0];
        process.until = until;
        process.activity = 0;
        kernel.collect(self.node, ready);
        Ok(())
    }

    fn next_job(&mut self) -> Option<(u64, JobResult)> {
        let mut kernel = self.kernel.borrow_mut();
        let process = &mut kernel.processes[self.node.0];
        let job = process.jobs_done.pop_front();
        process.activity += u64::from(job.is_some());
        job
    }

    fn next_signal(&mut self) -> Option<Signal> {
        let mut kernel = self.kernel.borrow_mut();
        let process = &mut kernel.processes[self.node.0];
        let signal = process.signals.pop_front();
        process.activity += u64::from(signal.is_some());
        signal
    }

    fn listen(&mut self, at: &ListenAddr) -> io::Result<Sock> {
        self.act(|kernel, node| kernel.listen(node, at)).map(Sock)
    }

    fn local_addr(&mut self, sock: Sock) -> io::Result<SocketAddr> {
        self.ask(|kernel, node| kernel.local_addr(node, sock.0))
    }

    fn accept(&mut self, listener: Sock) -> io::Result<(Sock, Peer)> {
        self.act(|kernel, node| kernel.accept(node, listener.0)).map(|(number, peer)| (Sock(number), peer))
    }

    fn connect(&mut self, to: SocketAddr) -> io::Result<Sock> {
        self.act(|kernel, node| kernel.tcp_connect(node, to)).map(Sock)
    }

    fn connected(&mut self, sock: Sock) -> io::Result<()> {
        self.act(|kernel, node| kernel.connected(node, sock.0))
    }

    fn register(&mut self, sock: Sock, token: u64) -> io::Result<()> {
        self.act(|kernel, node| kernel.register(node, sock.0, token))
    }

    fn configure(&mut self, sock: Sock, class: Class) -> io::Result<()> {
        self.act(|kernel, node| kernel.configure(node, sock.0, class))
    }

    fn read(&mut self, sock: Sock, into: &mut [u8]) -> io::Result<usize> {
        self.act(|kernel, node| kernel.read(node, sock.0, into))
    }

    fn write(&mut self, sock: Sock, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.act(|kernel, node| kernel.write(node, sock.0, from))
    }

    fn shutdown_write(&mut self, sock: Sock) -> io::Result<()> {
        self.act(|kernel, node| kernel.shutdown_write(node, sock.0))
    }

    fn unsent(&mut self, sock: Sock) -> io::Result<usize> {
        self.ask(|kernel, node| kernel.unsent(node, sock.0))
    }

    fn tcp_info(&mut self, sock: Sock) -> io::Result<TcpInfo> {
        self.ask(|kernel, node| kernel.tcp_info(node, sock.0))
    }

    fn close(&mut self, sock: Sock) {
        // A program that was killed drops its sockets once more; the kernel has closed them already.
        let _gone = self.act(|kernel, node| {
            kernel.close(node, sock.0, false);
            Ok(())
        });
    }

    fn abort(&mut self, sock: Sock) {
        let _gone = self.act(|kernel, node| {
            kernel.close(node, sock.0, true);
            Ok(())
        });
    }

    fn submit(&mut self, job: Job, id: u64) -> io::Result<()> {
        self.act(|kernel, node| kernel.submit(node, job, id))
    }

    fn run(&mut self, _: Task, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn cancel(&mut self, id: u64) {
        // As with close: a program that was killed has nothing left to cancel.
        let _gone = self.act(|kernel, node| {
            kernel.cancel(node, id);
            Ok(())
        });
    }
}
