//! One direction of a connection: what the sender keeps and what the receiver holds.
//!
//! Bytes have sequence numbers from 0; the FIN takes the number after the last byte.

use std::collections::VecDeque;
use std::ops::Range;

/// Appends `range` of `from` to `to`.
fn append(to: &mut VecDeque<u8>, from: &VecDeque<u8>, range: Range<usize>) {
    let (front, back) = from.as_slices();
    let split = front.len();
    to.extend(&front[range.start.min(split)..range.end.min(split)]);
    to.extend(&back[range.start.max(split) - split..range.end.max(split) - split]);
}

/// Moves up to `into.len()` bytes out of `from`.
pub(crate) fn take(from: &mut VecDeque<u8>, into: &mut [u8]) -> usize {
    let len = into.len().min(from.len());
    let (front, back) = from.as_slices();
    let split = len.min(front.len());
    into[..split].copy_from_slice(&front[..split]);
    into[split..len].copy_from_slice(&back[..len - split]);
    from.drain(..len);
    len
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) sequence: u64,
    pub(crate) len: usize,
    pub(crate) fin: bool,
}

/// The send buffer of a TCP socket.
#[derive(Default)]
pub(crate) struct SendQueue {
    /// Bytes not yet acknowledged; the first has the number `base`.
    pub(crate) bytes: VecDeque<u8>,
    pub(crate) base: u64,
    /// The next number to transmit.
    pub(crate) next: u64,
    pub(crate) capacity: usize,
    /// The peer takes numbers below this.
    pub(crate) window_edge: u64,
    pub(crate) fin_wanted: bool,
    pub(crate) fin_acked: bool,
}

impl SendQueue {
    fn data_end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// True while the peer owes us an acknowledgement.
    pub(crate) fn outstanding(&self) -> bool {
        !self.bytes.is_empty() || (self.fin_wanted && !self.fin_acked)
    }

    /// True if the peer's window is what keeps bytes back.
    pub(crate) fn window_closed(&self) -> bool {
        !self.bytes.is_empty() && self.window_edge <= self.base
    }

    /// The next segment of at most `max` bytes, if the window allows one.
    pub(crate) fn next_segment(&mut self, max: usize) -> Option<Segment> {
        let data_end = self.data_end();
        let sequence = self.next;
        let allowed = data_end.min(self.window_edge);
        let len = if sequence < allowed { (allowed - sequence).min(max as u64) } else { 0 };
        let fin = self.fin_wanted && !self.fin_acked && sequence + len == data_end;
        if len == 0 && !fin {
            return None;
        }
        self.next = sequence + len + u64::from(fin);
        Some(Segment { sequence, len: len as usize, fin })
    }

    /// Takes note of an acknowledgement; false if it told nothing new.
    pub(crate) fn acknowledge(&mut self, ack: u64) -> bool {
        let data_end = self.data_end();
        let freed = ack.min(data_end).saturating_sub(self.base);
        self.bytes.drain(..freed as usize);
        self.base += freed;
        let fin = self.fin_wanted && !self.fin_acked && ack == data_end + 1;
        self.fin_acked |= fin;
        self.next = self.next.max(self.base + u64::from(self.fin_acked));
        freed > 0 || fin
    }

    /// What a reset or a timeout does: nothing will be sent again.
    pub(crate) fn purge(&mut self) {
        self.base = self.data_end();
        self.bytes.clear();
        self.next = self.base;
    }
}

/// The receive buffer of a socket of either kind.
#[derive(Default)]
pub(crate) struct ReceiveQueue {
    pub(crate) bytes: VecDeque<u8>,
    pub(crate) capacity: usize,
    /// The next number that is expected.
    pub(crate) next: u64,
    pub(crate) fin: bool,
    /// The window edge that the sender was told last.
    pub(crate) advertised: u64,
}

impl ReceiveQueue {
    pub(crate) fn window_edge(&self) -> u64 {
        self.next + self.capacity.saturating_sub(self.bytes.len()) as u64
    }

    /// Takes what is new of a segment. The bytes still lie in the sender's buffer: it frees them only when
    /// they were acknowledged. Returns how many bytes were new and if the FIN was.
    pub(crate) fn accept(&mut self, segment: Segment, sender: &SendQueue) -> (usize, bool) {
        let end = segment.sequence + segment.len as u64;
        if segment.sequence > self.next || end < self.next || self.fin {
            return (0, false);
        }
        let room = self.capacity.saturating_sub(self.bytes.len()) as u64;
        let wanted = (end - self.next).min(room);
        // A sender that gave up may have thrown its buffer away.
        let Some(start) = self.next.checked_sub(sender.base).map(|start| start as usize) else {
            return (0, false);
        };
        let stop = (start + wanted as usize).min(sender.bytes.len());
        let taken = stop.saturating_sub(start);
        if taken > 0 {
            append(&mut self.bytes, &sender.bytes, start..stop);
            self.next += taken as u64;
        }
        let fin = segment.fin && self.next == end;
        if fin {
            self.fin = true;
            self.next += 1;
        }
        (taken, fin)
    }
}

#[test]
fn a_segment_that_comes_twice_or_after_a_gap_adds_nothing() {
    let mut sender = SendQueue { capacity: 100, window_edge: 100, ..SendQueue::default() };
    let mut receiver = ReceiveQueue { capacity: 100, ..ReceiveQueue::default() };
    sender.bytes.extend(0..10);
    sender.fin_wanted = true;
    let first = sender.next_segment(4).unwrap();
    let second = sender.next_segment(100).unwrap();
    assert_eq!(second, Segment { sequence: 4, len: 6, fin: true });
    assert_eq!(sender.next_segment(100), None);
    assert_eq!(receiver.accept(second, &sender), (0, false));
    assert_eq!(receiver.accept(first, &sender), (4, false));
    assert_eq!(receiver.accept(first, &sender), (0, false));
    assert!(sender.acknowledge(4) && !sender.acknowledge(4));
    assert_eq!(receiver.accept(second, &sender), (6, true));
    assert!(sender.acknowledge(11) && !sender.outstanding());
    let mut bytes = [0; 20];
    assert_eq!(take(&mut receiver.bytes, &mut bytes), 10);
    assert!(bytes[..10].iter().copied().eq(0..10));
}
