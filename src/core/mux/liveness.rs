//! Is the peer of a link alive? Pure: `now` in, a verdict and a deadline out.
//!
//! ```text
//!            a PING unanswered for the suspect limit          silence for dead_after
//!   Alive ───────────────────────────────────────▶ Suspect ───────────────────────▶ Dead
//!     ▲                 any byte received             │
//!     └───────────────────────────────────────────────┘
//! ```
//! Evidence of life is any received byte. Who has a reason to wait longer for the dead may ([`Liveness::be_patient`]). Time in which our own process stood still does not count
//! ([`Liveness::forgive`]), and the caller reads its sockets before it asks for a verdict.

use std::time::{Duration, Instant};

use crate::limits::HEDGE_DELAY_MIN;

/// The flags behind the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivenessConfig {
    /// A PING goes out when nothing was received, or nothing sent, for this long. `None`: the kernel judges alone.
    pub ping_interval: Option<Duration>,
    /// A PING unanswered for this long makes the peer suspect (more on a slow path).
    pub ping_timeout: Duration,
    /// Silence of this length is death.
    pub dead_after: Duration,
}

/// What is believed of the peer. Dead is not a state but an error: the link ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Heard of lately.
    Alive,
    /// A PING is unanswered; not picked for dials while others are alive.
    Suspect {
        /// Since when.
        since: Instant,
    },
}

/// What a timeout found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing new.
    Unchanged,
    /// The peer became suspect now.
    Suspect,
    /// The peer was silent for `dead_after`.
    Dead {
        /// How long nothing was received.
        silence: Duration,
    },
}

/// Round-trip time, smoothed (RFC 6298).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
}

impl Rtt {
    /// Takes a sample in.
    pub fn sample(&mut self, rtt: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
    }

    /// The smoothed value; zero before the first sample.
    #[must_use]
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// Smoothed + 4 x variation: what an answer rarely exceeds.
    #[must_use]
    pub fn bound(&self) -> Duration {
        self.smoothed() + self.variation * 4
    }
}

#[derive(Debug, Clone, Copy)]
struct Ping {
    payload: u64,
    sent_at: Instant,
}

/// The machine of one link.
#[derive(Debug)]
pub struct Liveness {
    config: LivenessConfig,
    health: Health,
    last_received: Instant,
    last_sent: Instant,
    /// The newest PING, until its PONG comes.
    ping: Option<Ping>,
    /// When the oldest PING since the last evidence went out.
    waiting_since: Option<Instant>,
    next_payload: u64,
    /// A PING is to be written.
    ping_due: bool,
    /// Silence of this many times `dead_after` is death.
    patience: u32,
    /// Scales the interval to 0.8-1.0, so that links made together do not ping together.
    jitter_per_mille: u32,
    rtt: Rtt,
    /// Retransmission timeout of the kernel: an answer may need one.
    rto: Duration,
}

impl Liveness {
    /// A peer that was just heard of. `seed` spreads the pings.
    #[must_use]
    pub fn new(config: LivenessConfig, now: Instant, seed: u64) -> Self {
        Self {
            config,
            health: Health::Alive,
            last_received: now,
            last_sent: now,
            ping: None,
            waiting_since: None,
            next_payload: seed,
            ping_due: false,
            patience: 1,
            jitter_per_mille: 800 + (seed % 201) as u32,
            rtt: Rtt::default(),
            rto: Duration::ZERO,
        }
    }

    /// What is believed now.
    #[must_use]
    pub const fn health(&self) -> Health {
        self.health
    }

    /// When the last byte came.
    #[must_use]
    pub const fn last_received(&self) -> Instant {
        self.last_received
    }

    /// The measured round-trip time.
    #[must_use]
    pub const fn rtt(&self) -> Rtt {
        self.rtt
    }

    /// The kernel's view: the first estimate of the round trip, and the retransmission timeout.
    pub fn set_kernel_times(&mut self, rtt: Duration, rto: Duration) {
        if self.rtt.smoothed.is_none() {
            self.rtt.sample(rtt);
        }
        self.rto = rto;
    }

    /// Books received bytes. Returns how long the suspicion lasted if there was one: it was false.
    pub fn on_received(&mut self, now: Instant) -> Option<Duration> {
        self.last_received = now;
        self.waiting_since = None;
        self.patience = 1;
        match std::mem::replace(&mut self.health, Health::Alive) {
            Health::Alive => None,
            Health::Suspect { since } => Some(now.saturating_duration_since(since)),
        }
    }

    /// Books written bytes.
    pub fn on_sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    /// Books the answer to a PING. Returns the round trip if it was the newest one's.
    pub fn on_pong(&mut self, now: Instant, payload: u64) -> Option<Duration> {
        let ping = self.ping.take_if(|ping| ping.payload == payload)?;
        let rtt = now.saturating_duration_since(ping.sent_at);
        self.rtt.sample(rtt);
        Some(rtt)
    }

    /// After a verdict of death: waits on, as for a suspect, until the silence is `patience` times as long.
    pub fn be_patient(&mut self, now: Instant, patience: u32) {
        self.patience = patience;
        if self.health == Health::Alive {
            self.health = Health::Suspect { since: now };
        }
    }

    fn dead_after(&self) -> Duration {
        self.config.dead_after.saturating_mul(self.patience)
    }

    /// Asks for a PING at once, unless one is under way since the last evidence.
    pub fn probe(&mut self, now: Instant) {
        if self.config.ping_interval.is_some() && self.waiting_since.is_none() {
            self.queue_ping(now);
        }
    }

    /// The payload of a PING that is to be written now.
    pub fn take_ping(&mut self, now: Instant) -> Option<u64> {
        if !std::mem::take(&mut self.ping_due) {
            return None;
        }
        let payload = self.next_payload;
        self.next_payload = self.next_payload.wrapping_add(1);
        self.ping = Some(Ping { payload, sent_at: now });
        Some(payload)
    }

    /// True if [`Liveness::take_ping`] has one.
    #[must_use]
    pub const fn ping_due(&self) -> bool {
        self.ping_due
    }

    /// How long a PING may stay unanswered before the peer is suspect.
    #[must_use]
    pub fn suspect_limit(&self) -> Duration {
        self.config.ping_timeout.max(self.rtt.bound() + self.rto)
    }

    /// How long a dial waits for evidence before it is also tried elsewhere.
    #[must_use]
    pub fn hedge_delay(&self) -> Duration {
        self.rtt.bound().clamp(HEDGE_DELAY_MIN, self.config.ping_timeout.max(HEDGE_DELAY_MIN))
    }

    /// Takes time in which this process stood still off every silence.
    pub fn forgive(&mut self, pause: Duration) {
        self.last_received += pause;
        self.last_sent += pause;
        if let Some(since) = &mut self.waiting_since {
            *since += pause;
        }
        if let Health::Suspect { since } = &mut self.health {
            *since += pause;
        }
    }

    /// Judges. Call it when [`Liveness::poll_timeout`] is due and the socket was read in this turn.
    pub fn handle_timeout(&mut self, now: Instant) -> Verdict {
        if self.config.ping_interval.is_none() {
            return Verdict::Unchanged;
        }
        let silence = now.saturating_duration_since(self.last_received);
        if silence >= self.dead_after() {
            return Verdict::Dead { silence };
        }
        if now >= self.ping_at() {
            self.queue_ping(now);
        }
        match (self.health, self.waiting_since) {
            (Health::Alive, Some(since)) if now >= since + self.suspect_limit() => {
                self.health = Health::Suspect { since: now };
                self.queue_ping(now);
                Verdict::Suspect
            }
            _ => Verdict::Unchanged,
        }
    }

    /// When [`Liveness::handle_timeout`] wants to be called, and what for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.config.ping_interval?;
        let dead = (self.last_received + self.dead_after(), "dead");
        let ping = (self.ping_at(), "ping");
        let suspect = match (self.health, self.waiting_since) {
            (Health::Alive, Some(since)) => Some((since + self.suspect_limit(), "suspect")),
            _ => None,
        };
        [Some(dead), Some(ping), suspect].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// A PING that could not be written yet counts from when it was due: a blocked send path must not hide death.
    fn queue_ping(&mut self, now: Instant) {
        self.ping_due = true;
        self.waiting_since.get_or_insert(now);
        self.last_sent = self.last_sent.max(now);
    }

    fn ping_at(&self) -> Instant {
        let interval = self.config.ping_interval.unwrap_or(self.config.dead_after);
        match self.waiting_since {
            // Unanswered: again at the usual pace while alive, faster once suspect.
            Some(_) => {
                let pace = match self.health {
                    Health::Alive => interval,
                    Health::Suspect { .. } => interval.min(self.config.ping_timeout) / 2,
                };
                self.last_sent + pace
            }
            None => self.last_received.min(self.last_sent) + interval * self.jitter_per_mille / 1000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::start;

    const CONFIG: LivenessConfig = LivenessConfig {
        ping_interval: Some(Duration::from_secs(2)),
        ping_timeout: Duration::from_secs(1),
        dead_after: Duration::from_secs(10),
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Runs the machine on its own deadlines until `until`; PINGs are answered by `answer`.
    fn run(
        live: &mut Liveness,
        from: Instant,
        until: Instant,
        mut answer: impl FnMut(&mut Liveness, Instant, u64),
    ) -> Vec<(Duration, Verdict)> {
        let mut seen = Vec::new();
        let mut now = from;
        loop {
            let (at, _) = live.poll_timeout().unwrap();
            assert!(at > now || at >= from, "a deadline in the past spins the loop");
            now = at.max(now);
            if now > until {
                return seen;
            }
            match live.handle_timeout(now) {
                Verdict::Unchanged => {}
                verdict => seen.push((now - from, verdict)),
            }
            if matches!(seen.last(), Some((_, Verdict::Dead { .. }))) {
                return seen;
            }
            if let Some(payload) = live.take_ping(now) {
                answer(live, now, payload);
            }
        }
    }

    #[test]
    fn a_silent_peer_is_suspect_after_three_seconds_and_dead_after_ten() {
        let t = start();
        let mut live = Liveness::new(CONFIG, t, 200);
        let seen = run(&mut live, t, t + ms(20_000), |_, _, _| {});
        assert_eq!(seen, [(ms(3000), Verdict::Suspect), (ms(10_000), Verdict::Dead { silence: ms(10_000) })]);
    }

    #[test]
    fn a_peer_that_answers_is_never_suspect_and_its_rtt_is_known() {
        let t = start();
        let mut live = Liveness::new(CONFIG, t, 200);
        let mut pings = 0;
        let seen = run(&mut live, t, t + ms(60_000), |live, now, payload| {
            pings += 1;
            live.on_received(now + ms(80));
            live.on_pong(now + ms(80), payload);
        });
        assert_eq!(seen, []);
        assert!((25..=32).contains(&pings), "one ping each 2 s, not {pings} in 60 s");
        assert_eq!(live.rtt().smoothed(), ms(80));
        assert!(live.hedge_delay() >= ms(100));
    }

    #[test]
    fn one_lost_ping_is_not_a_verdict_on_a_slow_path() {
        let t = start();
        let mut live = Liveness::new(CONFIG, t, 200);
        live.set_kernel_times(ms(600), ms(1400));
        assert!(live.suspect_limit() >= ms(3000));
        let mut first = true;
        let seen = run(&mut live, t, t + ms(30_000), |live, now, payload| {
            if !std::mem::take(&mut first) {
                live.on_received(now + ms(600));
                live.on_pong(now + ms(600), payload);
            }
        });
        assert_eq!(seen, []);
    }

    #[test]
    fn any_byte_ends_a_suspicion() {
        let t = start();
        let mut live = Liveness::new(CONFIG, t, 200);
        run(&mut live, t, t + ms(3500), |_, _, _| {});
        assert!(matches!(live.health(), Health::Suspect { .. }));
        assert_eq!(live.on_received(t + ms(4000)), Some(ms(1000)));
        assert_eq!(live.health(), Health::Alive);
    }

    #[test]
    fn one_way_bulk_still_pings_so_that_the_sender_of_nothing_is_heard() {
        let t = start();
        let mut live = Liveness::new(CONFIG, t, 200);
        let mut now = t;
        let mut pinged = false;
        for _ in 0..40 {
            now += ms(100);
            live.on_received(now);
            if live.poll_timeout().unwrap().0 <= now {
                live.handle_timeout(now);
            }
            pinged |= live.take_ping(now).is_some();
        }
        assert!(pinged, "received much, sent nothing: the peer must hear of us");
    }

    #[test]
    fn time_in_which_we_stood_still_is_not_silence() {
        let t = start();
        let mut live = Liveness::new(CONFIG, t, 200);
        live.forgive(ms(30_000));
        assert_eq!(live.handle_timeout(t + ms(31_000)), Verdict::Unchanged);
        assert!(!matches!(live.handle_timeout(t + ms(39_999)), Verdict::Dead { .. }));
        assert!(matches!(live.handle_timeout(t + ms(40_000)), Verdict::Dead { .. }));
    }

    #[test]
    fn without_pings_nothing_is_due() {
        let t = start();
        let mut live = Liveness::new(LivenessConfig { ping_interval: None, ..CONFIG }, t, 1);
        assert_eq!(live.poll_timeout(), None);
        live.probe(t);
        assert_eq!(live.take_ping(t), None);
        assert_eq!(live.handle_timeout(t + ms(100_000)), Verdict::Unchanged);
    }
}
