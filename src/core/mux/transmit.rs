//! Where a link writes its next bytes: one scratch buffer a loop, filled and sent at once.

use tautline_wire::HEADER_LEN;

/// A fixed buffer with a fill mark. Payload is read straight behind a reserved header.
#[derive(Debug)]
pub struct TransmitBuf {
    bytes: Box<[u8]>,
    len: usize,
}

impl TransmitBuf {
    /// A buffer of `capacity` bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity].into_boxed_slice(), len: 0 }
    }

    /// What is filled.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Free bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.bytes.len() - self.len
    }

    /// Moves as much of `from` in as fits.
    pub(super) fn append(&mut self, from: &mut Vec<u8>) {
        let n = from.len().min(self.room());
        self.bytes[self.len..self.len + n].copy_from_slice(&from[..n]);
        self.len += n;
        from.drain(..n);
    }

    /// The place for a payload of at most `max` bytes behind a header, or less if there is less room.
    pub(super) fn payload(&mut self, max: usize) -> &mut [u8] {
        let start = (self.len + HEADER_LEN).min(self.bytes.len());
        let end = (start + max).min(self.bytes.len());
        &mut self.bytes[start..end]
    }

    /// Puts the header before the payload of `length` bytes that was just written.
    pub(super) fn commit(&mut self, header: [u8; HEADER_LEN], length: usize) {
        self.bytes[self.len..self.len + HEADER_LEN].copy_from_slice(&header);
        self.len += HEADER_LEN + length;
    }
}
