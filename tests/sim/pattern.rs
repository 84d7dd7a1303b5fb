//! Payload as a function of (tunnel, direction, offset): loss, reorder and cross-talk show at once.

use crate::rng::mix;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// Client to target.
    Up,
    /// Target to client.
    Down,
}

fn word(tunnel: u64, direction: Direction, index: u64) -> [u8; 8] {
    let start = mix(tunnel.wrapping_mul(2).wrapping_add(u64::from(direction == Direction::Down)));
    mix(start ^ index).to_le_bytes()
}

/// Fills `into` with the bytes from `offset` on.
pub(crate) fn fill(into: &mut [u8], tunnel: u64, direction: Direction, offset: u64) {
    let mut position = offset;
    let mut rest = into;
    while !rest.is_empty() {
        let word = word(tunnel, direction, position / 8);
        let from = &word[(position % 8) as usize..];
        let len = from.len().min(rest.len());
        let (head, tail) = rest.split_at_mut(len);
        head.copy_from_slice(&from[..len]);
        rest = tail;
        position += len as u64;
    }
}

/// Compares what arrives with what must arrive.
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    tunnel: u64,
    direction: Direction,
    received: u64,
    mismatch: Option<u64>,
}

impl Checker {
    pub(crate) const fn new(tunnel: u64, direction: Direction) -> Self {
        Self { tunnel, direction, received: 0, mismatch: None }
    }

    pub(crate) fn check(&mut self, bytes: &[u8]) {
        let mut expected = vec![0; bytes.len()];
        fill(&mut expected, self.tunnel, self.direction, self.received);
        if self.mismatch.is_none() && bytes != expected {
            let at = bytes.iter().zip(&expected).position(|(is, wanted)| is != wanted);
            self.mismatch = at.map(|at| self.received + at as u64);
        }
        self.received += bytes.len() as u64;
    }

    pub(crate) const fn received(&self) -> u64 {
        self.received
    }

    /// Offset of the first wrong byte.
    pub(crate) const fn mismatch(&self) -> Option<u64> {
        self.mismatch
    }
}

#[test]
fn a_wrong_byte_is_found_at_its_offset() {
    let mut bytes = [0; 100];
    fill(&mut bytes, 7, Direction::Up, 0);
    let mut checker = Checker::new(7, Direction::Up);
    checker.check(&bytes[..13]);
    checker.check(&bytes[13..50]);
    assert_eq!((checker.received(), checker.mismatch()), (50, None));
    bytes[60] ^= 1;
    checker.check(&bytes[50..]);
    assert_eq!((checker.received(), checker.mismatch()), (100, Some(60)));

    let mut other = Checker::new(7, Direction::Down);
    other.check(&bytes);
    assert!(other.mismatch().is_some());
}
