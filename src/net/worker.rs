//! The helper pool: name look-ups block, so they never run on the loop.
//!
//! Threads start when there is work for them and end after a quiet time. A look-up that hangs holds one
//! thread, no more. Everything that was accepted and not yet fetched is counted together, so the queue, the
//! running jobs and the results have one bound.

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
    waker: Waker,
    resolve: Resolve,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(u64, Job)>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    /// A pool without threads yet. `waker` is rung after each result.
    pub(super) fn new(waker: Waker) -> Self {
        Self::with_resolver(waker, ffi::resolve)
    }

    fn with_resolver(waker: Waker, resolve: Resolve) -> Self {
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
        let mut state = self.shared.lock();
        state.queue.push_back((id, job));
        // An idle thread may be on its way to a job that is still queued: it counts for that one only.
        if state.idle < state.queue.len() && state.threads < RESOLVER_THREADS {
            let shared = Arc::clone(&self.shared);
            match signal::spawn("resolver", STACK_BYTES, move || shared.run()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    state.queue.pop_back();
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
        while let Some((id, job)) = self.next_job() {
            let result = match job {
                Job::Resolve { host, port } => JobResult::Resolved((self.resolve)(&host, port)),
            };
            if self.results.send((id, result)).is_err() {
                return; // the pool is gone; so is whoever asked
            }
            if let Err(error) = self.waker.wake() {
                log::error!("msg=\"resolver cannot wake the loop\" error=\"{error}\"");
            }
        }
    }

    /// Waits for work; `None` ends the thread.
    fn next_job(&self) -> Option<(u64, Job)> {
        let mut state = self.lock();
        if state.queue.is_empty() && !state.closed {
            state.idle += 1;
            let wait = |state: &mut State| state.queue.is_empty() && !state.closed;
            state = self
                .work
                .wait_timeout_while(state, IDLE_TIMEOUT, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            state.idle -= 1;
        }
        let job = state.queue.pop_front();
        if job.is_none() {
            state.threads -= 1;
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::sync::{Barrier, LazyLock, OnceLock};

    use mio::{Events, Poll, Token};

    use super::*;

    fn poll_and_pool(resolve: Resolve) -> (Poll, Pool) {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(7)).unwrap();
        (poll, Pool::with_resolver(waker, resolve))
    }

    fn job(host: &str) -> Job {
        Job::Resolve { host: host.to_owned(), port: 1 }
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

    #[test]
    fn stuck_look_ups_hold_one_thread_each_and_the_queue_is_bounded() {
        static GATE: OnceLock<Barrier> = OnceLock::new();
        fn stuck(host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            if host == "stuck" {
                GATE.get().unwrap().wait();
            }
            Ok(Vec::new())
        }
        GATE.set(Barrier::new(RESOLVER_THREADS)).unwrap();
        let (mut poll, mut pool) = poll_and_pool(stuck);
        for id in 0..RESOLVER_THREADS as u64 - 1 {
            pool.submit(job("stuck"), id).unwrap();
        }
        // All threads but one hang; the rest of the work goes through the last.
        for id in 100..200 {
            pool.submit(job("fine"), id).unwrap();
        }
        assert_eq!(collect(&mut poll, &mut pool, 100), (100..200).collect::<Vec<_>>());
        assert!(pool.shared.lock().threads <= RESOLVER_THREADS);

        let room = OUTSTANDING_MAX - (RESOLVER_THREADS - 1);
        pool.submit(job("stuck"), 300).unwrap(); // opens the gate
        for id in 1..room as u64 {
            pool.submit(job("fine"), 300 + id).unwrap();
        }
        // Results that nobody fetched count as well.
        assert_eq!(pool.submit(job("fine"), 0).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(collect(&mut poll, &mut pool, OUTSTANDING_MAX).len(), OUTSTANDING_MAX);
        assert!(pool.next().is_none());
        pool.submit(job("fine"), 0).unwrap();
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
