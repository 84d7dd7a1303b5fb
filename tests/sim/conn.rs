//! A connection: two ends, each with its state, buffers and timers. `tcp` and `uds` move them.

use std::net::SocketAddr;
use std::time::Duration;

use tautline::key::Key;
use tautline::net::sys::{Class, Hints};

use crate::kernel::HostId;
use crate::pipe::{ReceiveQueue, SendQueue};

pub(crate) const RTO_MIN: Duration = Duration::from_millis(200);
const RTO_MAX: Duration = Duration::from_secs(120);
/// What Class::Link asks for by TCP_RTO_MAX_MS.
const RTO_MAX_LINK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Tcp,
    Unix,
}

/// SynSent -> Open (the client) and Absent -> SynReceived -> Open (the server); each may become Dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The SYN has not arrived.
    Absent,
    SynSent,
    SynReceived,
    /// Established; each direction ends by its own FIN.
    Open,
    /// Closed with both FINs through: late repetitions are still acknowledged.
    TimeWait,
    /// Reset, timed out, failed, or never there: answers with RST. On a Unix socket: the peer closed.
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Socket(Key),
    /// Waits in the accept queue of this listener.
    Queued(Key),
    /// Closed by its process, or not yet anybody's.
    Nobody,
}

/// The kernel's own timers of a TCP end, and the options that shape them.
pub(crate) struct Timers {
    pub(crate) smoothed_rtt: Option<Duration>,
    pub(crate) rtt_variation: Duration,
    /// A number in flight and when it was sent, for the next round-trip sample.
    pub(crate) sample: Option<(u64, Duration)>,
    /// Doublings of the retransmission timeout.
    pub(crate) backoff: u32,
    /// Repetitions since the peer was heard.
    pub(crate) retries: u32,
    pub(crate) retransmit_at: Option<Duration>,
    /// Since when the oldest outstanding byte made no progress.
    pub(crate) stalled_since: Duration,
    pub(crate) last_heard: Duration,
    pub(crate) probes: u32,
    pub(crate) last_probe: Duration,
    /// The process closed and waits for the peer's FIN since then.
    pub(crate) orphan_since: Option<Duration>,
    /// When the kernel looks at this end next, if a tick is on its way.
    pub(crate) tick_at: Option<Duration>,
    pub(crate) keepalive: Option<(Duration, Duration, u32)>,
    pub(crate) user_timeout: Option<Duration>,
    rto_max: Duration,
}

impl Timers {
    fn new(now: Duration) -> Self {
        Self {
            smoothed_rtt: None,
            rtt_variation: Duration::ZERO,
            sample: None,
            backoff: 0,
            retries: 0,
            retransmit_at: None,
            stalled_since: now,
            last_heard: now,
            probes: 0,
            last_probe: now,
            orphan_since: None,
            tick_at: None,
            keepalive: None,
            user_timeout: None,
            rto_max: RTO_MAX,
        }
    }

    /// Retransmission timeout without backoff.
    pub(crate) fn rto(&self) -> Duration {
        match self.smoothed_rtt {
            Some(rtt) => (rtt + self.rtt_variation * 4).clamp(RTO_MIN, self.rto_max.max(RTO_MIN)),
            None => Duration::from_secs(1),
        }
    }

    /// Retransmission timeout as it stands.
    pub(crate) fn rto_backed_off(&self) -> Duration {
        self.rto().saturating_mul(1 << self.backoff.min(16)).min(self.rto_max)
    }

    pub(crate) const fn repeated(&mut self) {
        self.backoff += 1;
        self.retries += 1;
    }

    /// The handshake is done.
    pub(crate) fn established(&mut self, now: Duration) {
        if let Some((_, sent)) = self.sample.take() {
            self.on_sample(now.saturating_sub(sent));
        }
        self.retransmit_at = None;
        self.backoff = 0;
    }

    pub(crate) fn on_sample(&mut self, rtt: Duration) {
        match self.smoothed_rtt {
            None => {
                self.smoothed_rtt = Some(rtt);
                self.rtt_variation = rtt / 2;
            }
            Some(smoothed) => {
                self.rtt_variation = (self.rtt_variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed_rtt = Some((smoothed * 7 + rtt) / 8);
            }
        }
    }

    pub(crate) fn configure(&mut self, class: Class) {
        match class {
            Class::Link(liveness) => {
                self.keepalive =
                    Some((liveness.keepalive_idle, liveness.keepalive_interval, liveness.keepalive_count));
                self.user_timeout = Some(liveness.user_timeout);
                self.rto_max = RTO_MAX_LINK;
            }
            Class::Tunnel => {
                self.keepalive = Some((Duration::from_secs(30), Duration::from_secs(10), 3));
            }
            Class::Http => {}
        }
    }
}

pub(crate) struct End {
    pub(crate) host: HostId,
    /// Unspecified on a Unix socket.
    pub(crate) address: SocketAddr,
    pub(crate) phase: Phase,
    pub(crate) owner: Owner,
    pub(crate) send: SendQueue,
    pub(crate) receive: ReceiveQueue,
    /// What the next call reports (SO_ERROR).
    pub(crate) error: Option<i32>,
    pub(crate) timers: Timers,
}

impl End {
    pub(crate) fn new(host: HostId, address: SocketAddr, phase: Phase, now: Duration) -> Self {
        Self {
            host,
            address,
            phase,
            owner: Owner::Nobody,
            send: SendQueue::default(),
            receive: ReceiveQueue::default(),
            error: None,
            timers: Timers::new(now),
        }
    }

    /// Nobody will ask for this end again.
    pub(crate) fn gone(&self) -> bool {
        self.owner == Owner::Nobody && matches!(self.phase, Phase::Dead | Phase::TimeWait | Phase::Absent)
    }

    /// When the kernel must look at this end, whatever arrives.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let timers = &self.timers;
        match self.phase {
            Phase::SynSent | Phase::SynReceived => timers.retransmit_at,
            Phase::Open if self.send.outstanding() => {
                let limit = timers.user_timeout.map(|timeout| timers.stalled_since + timeout);
                [timers.retransmit_at, limit].into_iter().flatten().min()
            }
            Phase::Open => {
                let orphan = timers.orphan_since.map(|since| since + Duration::from_secs(60));
                let keepalive = timers.keepalive.map(|(idle, interval, _)| {
                    if timers.probes == 0 { timers.last_heard + idle } else { timers.last_probe + interval }
                });
                orphan.or(keepalive)
            }
            Phase::Absent | Phase::TimeWait | Phase::Dead => None,
        }
    }
}

pub(crate) struct Conn {
    pub(crate) transport: Transport,
    pub(crate) ends: [End; 2],
    /// A middlebox lost the flow: every packet vanishes.
    pub(crate) forgotten: bool,
    /// The path of each direction keeps order: nothing arrives before this.
    pub(crate) arrival: [Duration; 2],
}

impl Conn {
    /// Bytes that `side` wrote and the other has not taken: its kernel on TCP, its process on Unix.
    pub(crate) fn untaken(&self, side: usize) -> usize {
        match self.transport {
            Transport::Tcp => self.ends[side].send.bytes.len(),
            Transport::Unix => self.ends[1 - side].receive.bytes.len(),
        }
    }

    /// How many bytes a write of `side` can take now.
    pub(crate) fn room(&self, side: usize) -> usize {
        self.ends[side].send.capacity.saturating_sub(self.untaken(side))
    }

    /// What epoll would report for `side`, every flag.
    pub(crate) fn hints(&self, side: usize) -> Hints {
        let end = &self.ends[side];
        if end.phase == Phase::SynSent {
            return Hints::default();
        }
        let dead = end.phase == Phase::Dead;
        let shut_both = end.send.fin_wanted && end.receive.fin;
        // As Linux: a socket is writable again only when a good part of its buffer is free.
        let free_enough = match self.transport {
            Transport::Tcp => self.room(side) * 3 >= end.send.capacity,
            Transport::Unix => self.untaken(side) * 4 <= end.send.capacity,
        };
        Hints {
            readable: !end.receive.bytes.is_empty() || end.receive.fin || dead,
            writable: free_enough || end.send.fin_wanted || dead,
            read_closed: end.receive.fin || dead,
            hup: dead || shut_both,
            error: end.error.is_some(),
        }
    }
}
