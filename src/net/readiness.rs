//! Remembered edges: epoll tells each change once.

use super::sys::Hints;

/// What is known about one socket. A latch is cleared only by the call that found `WouldBlock`, or for good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A read may make progress.
    pub readable: bool,
    /// A write may make progress.
    pub writable: bool,
    /// The peer will send no more; bytes may still wait.
    pub read_closed: bool,
    /// Both directions are gone.
    pub hup: bool,
    /// The socket has an error to tell.
    pub error: bool,
}

impl Readiness {
    /// Adds what an event says. An end or an error is found by reading, so it makes the socket readable.
    pub fn latch(&mut self, hints: Hints) {
        self.readable |= hints.readable || hints.read_closed || hints.hup || hints.error;
        self.writable |= hints.writable || hints.hup || hints.error;
        self.read_closed |= hints.read_closed || hints.hup;
        self.hup |= hints.hup;
        self.error |= hints.error;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_makes_readable_and_latches_add_up() {
        let mut io = Readiness::default();
        io.latch(Hints { writable: true, ..Hints::default() });
        assert!(io.writable && !io.readable);
        io.latch(Hints { read_closed: true, ..Hints::default() });
        assert!(io.readable && io.read_closed && !io.hup && io.writable);
        io.latch(Hints { hup: true, ..Hints::default() });
        assert!(io.hup);
    }
}
