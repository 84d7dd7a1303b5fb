//! Frames by type and direction: counted on every frame, so by index and not by name.

use tautline_wire::FrameType;

use super::text::{Kind, Text};

/// Which way a frame went, as this process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the peer.
    Received,
    /// To the peer.
    Sent,
}

/// Each type at its [`index`].
const TYPES: [FrameType; 14] = [
    FrameType::DialReq,
    FrameType::DialRsp,
    FrameType::CloseReq,
    FrameType::CloseRsp,
    FrameType::Data,
    FrameType::DialCls,
    FrameType::Drain,
    FrameType::Hello,
    FrameType::Welcome,
    FrameType::Ping,
    FrameType::Pong,
    FrameType::Window,
    FrameType::Ack,
    FrameType::GoAway,
];
/// The first so many are Konnectivity's.
const KONNECTIVITY_TYPES: usize = 7;

/// Counts frames.
#[derive(Clone, Debug, Default)]
pub struct FrameCounters {
    received: [u64; TYPES.len()],
    sent: [u64; TYPES.len()],
}

impl FrameCounters {
    /// Counts one frame.
    pub fn count(&mut self, direction: Direction, kind: FrameType) {
        let counts = match direction {
            Direction::Received => &mut self.received,
            Direction::Sent => &mut self.sent,
        };
        counts[index(kind)] += 1;
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        let pairs = self.received.iter_mut().zip(other.received).chain(self.sent.iter_mut().zip(other.sent));
        for (sum, count) in pairs {
            *sum += count;
        }
    }

    /// How many frames of a type went that way.
    #[must_use]
    pub const fn get(&self, direction: Direction, kind: FrameType) -> u64 {
        match direction {
            Direction::Received => self.received[index(kind)],
            Direction::Sent => self.sent[index(kind)],
        }
    }

    /// All types, in our words.
    pub(super) fn render(&self, text: &mut Text) {
        const NAME: &str = "tautline_frames_total";
        const HELP: &str = "Frames on links, by direction and type.";
        self.render_as(text, (NAME, HELP), ["direction", "type"], ["received", "sent"], TYPES.len());
    }

    /// Konnectivity's types in its words; `segments` name received and sent.
    pub(super) fn render_packets(&self, text: &mut Text, name: &str, segments: [&str; 2]) {
        const HELP: &str = "Packets on links, by segment and type.";
        self.render_as(text, (name, HELP), ["segment", "packet_type"], segments, KONNECTIVITY_TYPES);
    }

    fn render_as(
        &self,
        text: &mut Text,
        (name, help): (&str, &str),
        labels: [&'static str; 2],
        directions: [&str; 2],
        types: usize,
    ) {
        let mut is_first = true;
        for (direction, counts) in directions.into_iter().zip([&self.received, &self.sent]) {
            for (kind, count) in TYPES.into_iter().zip(counts).take(types).filter(|(_, count)| **count > 0) {
                if std::mem::take(&mut is_first) {
                    text.family(name, Kind::Counter, help);
                }
                text.sample(name, &[(labels[0], direction), (labels[1], frame_name(kind))], count);
            }
        }
    }
}

const fn index(kind: FrameType) -> usize {
    match kind {
        FrameType::DialReq => 0,
        FrameType::DialRsp => 1,
        FrameType::CloseReq => 2,
        FrameType::CloseRsp => 3,
        FrameType::Data => 4,
        FrameType::DialCls => 5,
        FrameType::Drain => 6,
        FrameType::Hello => 7,
        FrameType::Welcome => 8,
        FrameType::Ping => 9,
        FrameType::Pong => 10,
        FrameType::Window => 11,
        FrameType::Ack => 12,
        FrameType::GoAway => 13,
    }
}

/// The name of a type in labels and in PROTOCOL.md.
#[must_use]
pub const fn frame_name(kind: FrameType) -> &'static str {
    match kind {
        FrameType::DialReq => "DIAL_REQ",
        FrameType::DialRsp => "DIAL_RSP",
        FrameType::CloseReq => "CLOSE_REQ",
        FrameType::CloseRsp => "CLOSE_RSP",
        FrameType::Data => "DATA",
        FrameType::DialCls => "DIAL_CLS",
        FrameType::Drain => "DRAIN",
        FrameType::Hello => "HELLO",
        FrameType::Welcome => "WELCOME",
        FrameType::Ping => "PING",
        FrameType::Pong => "PONG",
        FrameType::Window => "WINDOW",
        FrameType::Ack => "ACK",
        FrameType::GoAway => "GOAWAY",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_place() {
        for (at, kind) in TYPES.into_iter().enumerate() {
            assert_eq!(index(kind), at);
            assert_eq!((kind as u8) < KONNECTIVITY_TYPES as u8, at < KONNECTIVITY_TYPES);
            let mut frames = FrameCounters::default();
            frames.count(Direction::Sent, kind);
            assert_eq!((frames.get(Direction::Sent, kind), frames.get(Direction::Received, kind)), (1, 0));
        }
    }
}
