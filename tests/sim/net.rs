//! Paths between hosts: delay, jitter, bandwidth, loss, cuts; and what a connect meets at an address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::kernel::HostId;
use crate::rng::Rng;

/// One direction between two hosts.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    pub(crate) bytes_per_second: Option<u64>,
    /// Per mille of packets that vanish; TCP sends again, so order is kept and the flow stalls.
    pub(crate) loss: u32,
    /// Larger packets vanish (a hole in path MTU discovery).
    pub(crate) packet_max: Option<usize>,
    /// A partition: everything vanishes.
    pub(crate) cut: bool,
    /// The last byte that was put on it leaves then.
    pub(crate) busy_until: Duration,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(200),
            jitter: Duration::from_micros(50),
            bytes_per_second: None,
            loss: 0,
            packet_max: None,
            cut: false,
            busy_until: Duration::ZERO,
        }
    }
}

impl Path {
    pub(crate) fn with_delay(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// A path that the seed picks, from a rack to a modem.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let delay = Duration::from_micros(rng.pick(&[50, 1_000, 20_000, 150_000]));
        Self {
            delay,
            jitter: rng.duration(delay / 2),
            bytes_per_second: rng.pick(&[None, None, Some(1_000_000), Some(64_000)]),
            loss: rng.pick(&[0, 0, 10, 50]),
            ..Self::default()
        }
    }

    /// When a packet of `len` bytes arrives; `None` if it does not.
    fn carry(&mut self, len: usize, now: Duration, rng: &mut Rng) -> Option<Duration> {
        if self.cut || rng.chance(self.loss) || self.packet_max.is_some_and(|max| len > max) {
            return None;
        }
        let mut departs = now;
        if let Some(rate) = self.bytes_per_second {
            let takes = Duration::from_nanos(len as u64 * 1_000_000_000 / rate.max(1));
            departs = self.busy_until.max(now) + takes;
            self.busy_until = departs;
        }
        Some(departs + self.delay + rng.duration(self.jitter))
    }
}

/// What a connect to an address meets instead of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Obstacle {
    /// SYNs vanish: ETIMEDOUT after about two minutes.
    BlackHole,
    /// connect(2) fails at once with this errno.
    Refused(i32),
    /// The connect fails later with this errno.
    FailsLate(Duration, i32),
}

#[derive(Default)]
pub(crate) struct Net {
    paths: BTreeMap<(HostId, HostId), Path>,
    pub(crate) obstacles: BTreeMap<SocketAddr, Obstacle>,
}

impl Net {
    /// The path from one host to another.
    pub(crate) fn path(&mut self, from: HostId, to: HostId) -> &mut Path {
        self.paths.entry((from, to)).or_default()
    }

    pub(crate) fn paths(&mut self) -> impl Iterator<Item = &mut Path> {
        self.paths.values_mut()
    }

    /// When a packet arrives; `None` if it is lost. The loopback of a host never fails.
    pub(crate) fn carry(
        &mut self,
        (from, to): (HostId, HostId),
        len: usize,
        now: Duration,
        rng: &mut Rng,
    ) -> Option<Duration> {
        if from == to {
            return Some(now + Duration::from_micros(rng.between(5, 30)));
        }
        self.path(from, to).carry(len, now, rng)
    }
}
