//! The helper pool: name look-ups block, so they never run on the loop.
//!
//! Threads start when there is work for them and end after a quiet time. A look-up cannot be interrupted: one that
//! hangs holds its thread. So a name is looked up once at a time, whoever asks for it; a look-up that nobody
//! waits for any more never starts; and the one that our own link needs has a thread of its own. Everything that
//! was accepted and not yet fetched is counted together, so the queue, the running jobs and the results have one
//! bound.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::Waker;

use super::sys::{Job, JobResult};
use super::{ffi, signal};
use crate::limits::{RESOLVER_QUEUE_MAX, RESOLVER_THREADS};

/// Jobs accepted and not yet fetched, in all stages.
const OUTSTANDING_MAX: usize = RESOLVER_QUEUE_MAX + RESOLVER_THREADS;
/// The resolver's own code needs up to 100 KiB or so; untouched pages cost nothing.
const STACK_BYTES: usize = 512 * 1024;
/// A thread without work ends after this.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

type Resolve = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The loop's end of the pool.
pub(super) struct Pool {
    shared: Arc<Shared>,
    results: Receiver<(u64, JobResult)>,
    outstanding: usize,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    results: Sender<(u64, JobResult)>,
    waker: Arc<Waker>,
    resolve: Resolve,
}

/// One name being looked up, or about to be, and all who wait for it.
struct LookUp {
    host: String,
    /// For our own link: goes first, and may have a thread beyond the usual number.
    urgent: bool,
    waiters: Vec<Waiter>,
}

struct Waiter {
    id: u64,
    port: u16,
}

#[derive(Default)]
struct State {
    queue: VecDeque<LookUp>,
    running: Vec<LookUp>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl State {
    /// The look-up of a name that is under way. An urgent one joins only one that has a thread.
    fn same(&mut self, host: &str, urgent: bool) -> Option<&mut LookUp> {
        let queued = self.queue.iter_mut().filter(|look_up| look_up.urgent || !urgent);
        self.running.iter_mut().chain(queued).find(|look_up| look_up.host == host)
    }

    /// Takes one who waits out; a look-up for nobody leaves the queue.
    fn forget(&mut self, id: u64) -> bool {
        let Some((look_up, at)) = self
            .queue
            .iter_mut()
            .chain(&mut self.running)
            .find_map(|look_up| look_up.waiters.iter().position(|w| w.id == id).map(|at| (look_up, at)))
        else {
            return false;
        };
        look_up.waiters.swap_remove(at);
        if look_up.waiters.is_empty() {
            self.queue.retain(|look_up| !look_up.waiters.is_empty());
        }
        true
    }

    /// True if a thread may take the first of the queue: of [`RESOLVER_THREADS`] + 1 one is kept for urgent ones.
    fn has_work(&self) -> bool {
        let usual = || self.running.iter().filter(|look_up| !look_up.urgent).count();
        self.queue.front().is_some_and(|first| first.urgent || usual() < RESOLVER_THREADS)
    }

    /// Takes the next look-up into work.
    fn take(&mut self) -> Option<String> {
        let look_up = if self.has_work() { self.queue.pop_front()? } else { return None };
        let host = look_up.host.clone();
        self.running.push(look_up);
        Some(host)
    }
}

impl Pool {
    /// A pool without threads yet. `waker` is rung after each result.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self::with_resolver(waker, ffi::resolve)
    }

    fn with_resolver(waker: Arc<Waker>, resolve: Resolve) -> Self {
        let (sender, results) = mpsc::channel();
        let shared =
            Shared { state: Mutex::default(), work: Condvar::new(), results: sender, waker, resolve };
        Self { shared: Arc::new(shared), results, outstanding: 0 }
    }

    /// Queues a job.
    ///
    /// # Errors
    /// `WouldBlock` when [`OUTSTANDING_MAX`] jobs are under way; the system's error when not even one thread
    /// could be started.
    pub(super) fn submit(&mut self, job: Job, id: u64) -> io::Result<()> {
        if self.outstanding >= OUTSTANDING_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Job::Resolve { host, port, urgent } = job;
        let waiter = Waiter { id, port };
        let mut state = self.shared.lock();
        if let Some(look_up) = state.same(&host, urgent) {
            look_up.waiters.push(waiter);
            self.outstanding += 1;
            return Ok(());
        }
        let look_up = LookUp { host, urgent, waiters: vec![waiter] };
        if urgent {
            state.queue.push_front(look_up);
        } else {
            state.queue.push_back(look_up);
        }
        // An idle thread may be on its way to a job that is still queued: it counts for that one only.
        let threads_max = RESOLVER_THREADS + usize::from(urgent);
        if state.idle < state.queue.len() && state.threads < threads_max {
            let shared = Arc::clone(&self.shared);
            match signal::spawn("resolver", STACK_BYTES, move || shared.run()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    state.queue.clear(); // without a thread nothing else was in it
                    return Err(error);
                }
                Err(_) => {} // those that run will get to it
            }
        }
        drop(state);
        self.shared.work.notify_one();
        self.outstanding += 1;
        Ok(())
    }

    /// Nobody waits for a job any more. Its result may be on its way already; then it comes.
    pub(super) fn cancel(&mut self, id: u64) {
        if self.shared.lock().forget(id) {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
    }

    /// The next result, if one is there.
    pub(super) fn next(&mut self) -> Option<(u64, JobResult)> {
        let result = self.results.try_recv().ok()?;
        self.outstanding = self.outstanding.saturating_sub(1);
        Some(result)
    }
}

impl Drop for Pool {
    /// Threads are not waited for: one may be in a look-up that takes minutes.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.queue.clear();
        drop(state);
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(host) = self.next_host() {
            let result = (self.resolve)(&host, 0);
            if !self.answer(&host, result) {
                return; // the pool is gone; so is whoever asked
            }
        }
    }

    /// Waits for work; `None` ends the thread.
    fn next_host(&self) -> Option<String> {
        let mut state = self.lock();
        if !state.has_work() && !state.closed {
            state.idle += 1;
            let wait = |state: &mut State| !state.has_work() && !state.closed;
            state = self
                .work
                .wait_timeout_while(state, IDLE_TIMEOUT, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            state.idle -= 1;
        }
        let host = state.take();
        if host.is_none() {
            state.threads -= 1;
        }
        host
    }

    /// Tells all who wait for `host`. False if the pool is gone.
    fn answer(&self, host: &str, result: io::Result<Vec<SocketAddr>>) -> bool {
        let mut state = self.lock();
        let Some(at) = state.running.iter().position(|look_up| look_up.host == host) else { return true };
        let look_up = state.running.swap_remove(at);
        drop(state);
        for Waiter { id, port } in look_up.waiters {
            if self.results.send((id, JobResult::Resolved(with_port(&result, port)))).is_err() {
                return false;
            }
        }
        if let Err(error) = self.waker.wake() {
            log::error!("msg=\"resolver cannot wake the loop\" error=\"{error}\"");
        }
        true
    }
}

/// One look-up serves dials to several ports.
fn with_port(result: &io::Result<Vec<SocketAddr>>, port: u16) -> io::Result<Vec<SocketAddr>> {
    match result {
        Ok(addresses) => {
            let mut addresses = addresses.clone();
            addresses.iter_mut().for_each(|address| address.set_port(port));
            Ok(addresses)
        }
        Err(error) => Err(match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(error.kind(), error.to_string()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::sync_channel;
    use std::sync::{Barrier, LazyLock, OnceLock};

    use mio::{Events, Poll, Token};

    use super::*;

    fn poll_and_pool(resolve: Resolve) -> (Poll, Pool) {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), Token(7)).unwrap());
        (poll, Pool::with_resolver(waker, resolve))
    }

    fn job(host: &str) -> Job {
        Job::Resolve { host: host.to_owned(), port: 1, urgent: false }
    }

    fn urgent(host: &str) -> Job {
        Job::Resolve { host: host.to_owned(), port: 2, urgent: true }
    }

    fn collect(poll: &mut Poll, pool: &mut Pool, count: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut events = Events::with_capacity(8);
        while ids.len() < count {
            ids.extend(std::iter::from_fn(|| pool.next()).map(|(id, _)| id));
            if ids.len() < count {
                poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
                assert!(!events.is_empty(), "no result in 20 s: {ids:?}");
            }
        }
        ids
    }

    /// Waits until as many look-ups are in work.
    fn until_running(pool: &Pool, count: usize) {
        while pool.shared.lock().running.len() != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn stuck_names_hold_one_thread_each_and_the_queue_is_bounded() {
        static GATE: OnceLock<Barrier> = OnceLock::new();
        fn stuck(host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            if host.starts_with("stuck") {
                GATE.get().unwrap().wait();
            }
            Ok(Vec::new())
        }
        GATE.set(Barrier::new(RESOLVER_THREADS)).unwrap();
        let (mut poll, mut pool) = poll_and_pool(stuck);
        for id in 0..RESOLVER_THREADS as u64 - 1 {
            pool.submit(job(&format!("stuck{id}")), id).unwrap();
        }
        // All threads but one hang; the rest of the work goes through the last.
        for id in 100..200 {
            pool.submit(job(&format!("fine{id}")), id).unwrap();
        }
        assert_eq!(collect(&mut poll, &mut pool, 100), (100..200).collect::<Vec<_>>());
        assert!(pool.shared.lock().threads <= RESOLVER_THREADS);

        let room = OUTSTANDING_MAX - (RESOLVER_THREADS - 1);
        pool.submit(job("stuck!"), 300).unwrap(); // opens the gate
        for id in 1..room as u64 {
            pool.submit(job(&format!("fine{id}")), 300 + id).unwrap();
        }
        // Results that nobody fetched count as well.
        assert_eq!(pool.submit(job("fine"), 0).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(collect(&mut poll, &mut pool, OUTSTANDING_MAX).len(), OUTSTANDING_MAX);
        assert!(pool.next().is_none());
        pool.submit(job("fine"), 0).unwrap();
    }

    #[test]
    fn one_name_is_looked_up_once_for_all_who_ask_and_each_gets_its_port() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        static GATE: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));
        let (mut poll, mut pool) = poll_and_pool(|_, _| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            GATE.wait();
            Ok(vec!["10.0.0.1:0".parse().unwrap()])
        });
        pool.submit(job("name"), 1).unwrap();
        until_running(&pool, 1);
        for id in 2..50 {
            pool.submit(if id % 2 == 0 { urgent("name") } else { job("name") }, id).unwrap();
        }
        GATE.wait();
        let mut ports = [0, 0];
        let mut events = Events::with_capacity(8);
        while ports.iter().sum::<u64>() < 49 {
            poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
            while let Some((id, result)) = pool.next() {
                let JobResult::Resolved(addresses) = result else { unreachable!() };
                let port = addresses.unwrap()[0].port();
                assert_eq!(port, if id % 2 == 0 { 2 } else { 1 });
                ports[usize::from(port) - 1] += 1;
            }
        }
        assert_eq!((ports, CALLS.load(Ordering::Relaxed)), ([25, 24], 1));
    }

    #[test]
    fn a_look_up_that_nobody_waits_for_never_starts_and_an_urgent_one_has_a_thread() {
        static GATE: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(RESOLVER_THREADS + 1));
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let (mut poll, mut pool) = poll_and_pool(|host, _| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            if host.starts_with("stuck") {
                GATE.wait();
            }
            Ok(Vec::new())
        });
        let threads = RESOLVER_THREADS as u64;
        for id in 0..threads {
            pool.submit(job(&format!("stuck{id}")), id).unwrap();
        }
        until_running(&pool, RESOLVER_THREADS);
        for id in 100..400 {
            pool.submit(job(&format!("left{id}")), id).unwrap();
        }
        for round in 0..3 {
            pool.submit(urgent("server"), 1000 + round).unwrap();
            assert_eq!(collect(&mut poll, &mut pool, 1), [1000 + round]);
        }
        (100..400).chain(0..threads).for_each(|id| pool.cancel(id));
        assert_eq!(pool.outstanding, 0);
        GATE.wait();
        until_running(&pool, 0);
        pool.submit(job("fine"), 7).unwrap();
        assert_eq!(collect(&mut poll, &mut pool, 1), [7], "results of cancelled jobs do not come");
        assert_eq!(CALLS.load(Ordering::Relaxed), RESOLVER_THREADS + 3 + 1);
    }

    #[test]
    fn one_job_starts_one_thread_and_an_idle_thread_is_used_again() {
        let (mut poll, mut pool) = poll_and_pool(|_, _| Ok(Vec::new()));
        for id in 0..20 {
            pool.submit(job("fine"), id).unwrap();
            collect(&mut poll, &mut pool, 1);
            let idle = || pool.shared.lock().idle == 1;
            while !idle() {
                std::thread::yield_now();
            }
        }
        assert_eq!(pool.shared.lock().threads, 1);
    }

    #[test]
    fn a_dropped_pool_does_not_wait_for_its_threads() {
        static NEVER: LazyLock<(mpsc::SyncSender<()>, Mutex<Receiver<()>>)> = LazyLock::new(|| {
            let (sender, receiver) = sync_channel(0);
            (sender, Mutex::new(receiver))
        });
        let (_poll, mut pool) = poll_and_pool(|_, _| {
            let _ = NEVER.1.lock().unwrap().recv();
            Ok(Vec::new())
        });
        pool.submit(job("stuck"), 1).unwrap();
        while !pool.shared.lock().queue.is_empty() {
            std::thread::yield_now();
        }
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        NEVER.0.send(()).unwrap(); // arrives although the pool is gone: the thread was left alone
        while shared.upgrade().is_some() {
            std::thread::yield_now();
        }
    }
}
