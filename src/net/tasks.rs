//! Helper threads for work that blocks and has an end of its own: files, requests to an API.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::Waker;

use super::signal;
use super::sys::{JobResult, Task};
use crate::limits::{TASK_QUEUE_MAX, TASK_THREADS};

/// TLS and JSON on the stack; untouched pages cost nothing.
const STACK_BYTES: usize = 1024 * 1024;
/// A thread without work ends after this.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The loop's end.
pub(super) struct Tasks {
    shared: Arc<Shared>,
    results: Receiver<(u64, JobResult)>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    results: Sender<(u64, JobResult)>,
    waker: Arc<Waker>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(u64, Task)>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Tasks {
    /// No threads yet. `waker` is rung after each result.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        let (sender, results) = mpsc::channel();
        let shared = Shared { state: Mutex::default(), work: Condvar::new(), results: sender, waker };
        Self { shared: Arc::new(shared), results }
    }

    /// Queues a task.
    ///
    /// # Errors
    /// `WouldBlock` when [`TASK_QUEUE_MAX`] wait; the system's error when not even one thread could be started.
    pub(super) fn submit(&mut self, id: u64, task: Task) -> io::Result<()> {
        let mut state = self.shared.lock();
        if state.queue.len() >= TASK_QUEUE_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.queue.push_back((id, task));
        if state.idle < state.queue.len() && state.threads < TASK_THREADS {
            let shared = Arc::clone(&self.shared);
            match signal::spawn("tasks", STACK_BYTES, move || shared.run()) {
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
        Ok(())
    }

    /// Nobody waits for a task any more: if it has not begun, it never does.
    pub(super) fn cancel(&mut self, id: u64) {
        self.shared.lock().queue.retain(|(queued, _)| *queued != id);
    }

    /// The next result, if one is there.
    pub(super) fn next(&mut self) -> Option<(u64, JobResult)> {
        self.results.try_recv().ok()
    }
}

impl Drop for Tasks {
    /// Threads are not waited for: one may be in a request.
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
        while let Some((id, task)) = self.next_task() {
            if self.results.send((id, task())).is_err() {
                return; // the loop is gone; so is whoever asked
            }
            if let Err(error) = self.waker.wake() {
                log::error!("msg=\"a helper cannot wake the loop\" error=\"{error}\"");
            }
        }
    }

    /// Waits for work; `None` ends the thread.
    fn next_task(&self) -> Option<(u64, Task)> {
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
        let next = state.queue.pop_front();
        if next.is_none() {
            state.threads -= 1;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use mio::{Events, Poll, Token};

    use super::*;

    fn done() -> JobResult {
        JobResult::Reviewed(crate::token::Verdict::Accepted)
    }

    #[test]
    fn tasks_run_in_order_the_queue_is_bounded_and_a_cancelled_one_never_starts() {
        let mut poll = Poll::new().unwrap();
        let mut tasks = Tasks::new(Arc::new(Waker::new(poll.registry(), Token(7)).unwrap()));
        let gate = Arc::new(Barrier::new(TASK_THREADS + 1));
        for id in 0..TASK_THREADS as u64 {
            let gate = Arc::clone(&gate);
            let blocked = move || {
                gate.wait();
                done()
            };
            tasks.submit(id, Box::new(blocked)).unwrap();
        }
        while !tasks.shared.lock().queue.is_empty() {
            std::thread::yield_now();
        }
        for id in 0..TASK_QUEUE_MAX as u64 {
            tasks.submit(100 + id, Box::new(done)).unwrap();
        }
        assert_eq!(tasks.submit(1, Box::new(done)).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        (100..100 + TASK_QUEUE_MAX as u64 - 2).for_each(|id| tasks.cancel(id));
        gate.wait();
        let mut ids = Vec::new();
        let mut events = Events::with_capacity(8);
        while ids.len() < TASK_THREADS + 2 {
            poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
            ids.extend(std::iter::from_fn(|| tasks.next()).map(|(id, _)| id));
        }
        ids.sort_unstable();
        let last = 100 + TASK_QUEUE_MAX as u64;
        assert_eq!(ids, [0, 1, 2, 3, last - 2, last - 1]);
        assert!(tasks.shared.lock().threads <= TASK_THREADS);
    }
}
