//! What a TCP end does when nothing arrives: retransmission, keepalive, giving up.

use std::time::Duration;

use tautline::key::Key;

use crate::conn::{Owner, Phase};
use crate::kernel::{Event, Kernel};
use crate::tcp::Packet;

/// Linux defaults: tcp_syn_retries, tcp_synack_retries, tcp_retries2, tcp_orphan_retries.
const SYN_RETRIES: u32 = 6;
const SYN_ACK_RETRIES: u32 = 5;
const RETRIES: u32 = 15;
const ORPHAN_RETRIES: u32 = 8;

impl Kernel {
    /// A SYN or SYN-ACK went out.
    pub(crate) fn start_retransmission(&mut self, conn: Key, side: usize) {
        let now = self.now;
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let timers = &mut entry.ends[side].timers;
        timers.retransmit_at = Some(now + timers.rto_backed_off());
        // The handshake is the first sample, unless it was repeated.
        timers.sample = (timers.retries == 0).then_some((0, now));
        self.arm(conn, side);
    }

    /// Has the kernel look at this end when its next deadline comes.
    pub(crate) fn arm(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        let Some(at) = end.deadline() else { return };
        if end.timers.tick_at.is_none_or(|before| at < before) {
            end.timers.tick_at = Some(at);
            self.schedule(at, Event::Tick { conn, side });
        }
    }

    pub(crate) fn tick(&mut self, conn: Key, side: usize, at: Duration) {
        let now = self.now;
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let host = entry.ends[side].host;
        let end = &mut entry.ends[side];
        if end.timers.tick_at != Some(at) {
            return; // an earlier one was set since
        }
        end.timers.tick_at = None;
        if end.deadline().is_some_and(|deadline| deadline <= now) && self.hosts[host.0].up {
            self.overdue(conn, side);
        }
        self.arm(conn, side);
        self.reap(conn);
    }

    fn overdue(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        match end.phase {
            Phase::SynSent if end.timers.retries >= SYN_RETRIES => self.give_up(conn, side, libc::ETIMEDOUT),
            Phase::SynReceived if end.timers.retries >= SYN_ACK_RETRIES => end.phase = Phase::Dead,
            Phase::SynSent => {
                end.timers.repeated();
                self.send(conn, side, Packet::Syn);
                self.start_retransmission(conn, side);
            }
            Phase::SynReceived => {
                end.timers.repeated();
                self.send_syn_ack(conn);
                self.start_retransmission(conn, side);
            }
            Phase::Open if end.send.outstanding() => self.retransmit(conn, side),
            Phase::Open if end.timers.orphan_since.is_some() => end.phase = Phase::Dead,
            Phase::Open => self.keep_alive(conn, side),
            Phase::Absent | Phase::TimeWait | Phase::Dead => {}
        }
    }

    fn retransmit(&mut self, conn: Key, side: usize) {
        let (now, segment_max) = (self.now, self.quirks.segment_max);
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        let timers = &mut end.timers;
        let retries = if end.owner == Owner::Nobody { ORPHAN_RETRIES } else { RETRIES };
        let too_long = match timers.user_timeout {
            Some(limit) => now.saturating_sub(timers.stalled_since) >= limit,
            None => timers.retries >= retries,
        };
        if too_long {
            self.marks.hit("retransmission gave up");
            self.give_up(conn, side, libc::ETIMEDOUT);
            return;
        }
        timers.repeated();
        timers.sample = None; // which of the two copies is acknowledged nobody knows
        timers.retransmit_at = Some(now + timers.rto_backed_off());
        end.send.next = end.send.base;
        let packet = match end.send.next_segment(segment_max) {
            Some(segment) => Packet::Data(segment),
            None => Packet::Probe,
        };
        self.marks.hit("retransmission");
        self.send(conn, side, packet);
    }

    fn keep_alive(&mut self, conn: Key, side: usize) {
        let now = self.now;
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let timers = &mut entry.ends[side].timers;
        let Some((_, _, count)) = timers.keepalive else { return };
        // As Linux: with a user timeout the count of probes does not matter.
        let too_long = match timers.user_timeout {
            Some(limit) => timers.probes > 0 && now.saturating_sub(timers.last_heard) >= limit,
            None => timers.probes >= count,
        };
        if too_long {
            self.marks.hit("keepalive gave up");
            self.send(conn, side, Packet::Rst);
            self.give_up(conn, side, libc::ETIMEDOUT);
            return;
        }
        timers.probes += 1;
        timers.last_probe = now;
        self.send(conn, side, Packet::Probe);
    }

    /// Ends an end that still waits for something.
    pub(crate) fn give_up(&mut self, conn: Key, side: usize, errno: i32) {
        let phase = self.conns.get(conn).map(|entry| entry.ends[side].phase);
        if matches!(phase, Some(Phase::SynSent | Phase::Open)) {
            self.die(conn, side, errno);
            self.reap(conn);
        }
    }
}
