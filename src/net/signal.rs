//! Process signals as a source of the loop.
//!
//! SIGTERM, SIGINT and SIGHUP are blocked and read from a signalfd, so no handler ever runs and no system
//! call of the loop is interrupted by them. A blocked mask belongs to a thread and is inherited: threads that
//! could exist before [`super::unix::UnixSys`] are started with [`spawn`].

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{self as os, SigSet, SigmaskHow};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::sys::Signal;

/// Whether a [`super::unix::UnixSys`] receives the process's signals. One may; the others leave them alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signals {
    /// SIGTERM, SIGINT and SIGHUP come to this one.
    Process,
    /// It never sees a signal.
    None,
}

/// True while a [`Source`] exists: two readers would take each other's signals.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The signalfd. The signals stay blocked after its end: the process is about to exit, and a second SIGTERM
/// must not cut that short.
pub(super) struct Source {
    descriptor: SignalFd,
}

impl Source {
    /// Blocks the signals in this thread and opens the descriptor.
    ///
    /// # Errors
    /// `AlreadyExists` if another one is in use; else as signalfd(2).
    pub(super) fn install() -> io::Result<Self> {
        if INSTALLED.swap(true, Ordering::AcqRel) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the signals of this process have a receiver already",
            ));
        }
        let set = handled();
        let opened = set
            .thread_block()
            .and_then(|()| SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC));
        match opened {
            Ok(descriptor) => Ok(Self { descriptor }),
            Err(error) => {
                INSTALLED.store(false, Ordering::Release);
                Err(error.into())
            }
        }
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// The next signal; `None` when all were read.
    pub(super) fn next(&self) -> Option<Signal> {
        let signal = self.descriptor.read_signal().ok().flatten()?;
        if signal.ssi_signo == os::SIGHUP as u32 { Some(Signal::Reload) } else { Some(Signal::Terminate) }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        INSTALLED.store(false, Ordering::Release);
    }
}

fn handled() -> SigSet {
    [os::SIGTERM, os::SIGINT, os::SIGHUP].into_iter().collect()
}

/// Starts a helper thread that never receives the process's signals, whenever it is started.
///
/// # Errors
/// As [`Builder::spawn`], or as pthread_sigmask(3).
pub fn spawn<F, T>(name: &str, stack_bytes: usize, run: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // The new thread inherits the mask; setting it inside would leave a moment without.
    let before = handled().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(run);
    before.thread_set_mask()?;
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_thread_blocks_the_signals_and_its_parent_does_not() {
        let before = SigSet::thread_get_mask().unwrap();
        let inside = spawn("masked", 64 * 1024, SigSet::thread_get_mask).unwrap().join().unwrap().unwrap();
        for signal in [os::SIGTERM, os::SIGINT, os::SIGHUP] {
            assert!(inside.contains(signal));
        }
        assert!(!inside.contains(os::SIGSEGV), "a fault must still end the process with its message");
        assert_eq!(before, SigSet::thread_get_mask().unwrap());
    }
}
