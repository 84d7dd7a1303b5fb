//! Bytes that a socket did not take yet. Owns memory only while there are some.

/// A queue of bytes: appended at the end, taken from the front. Whoever appends bounds it (a stream's window, one
/// transmit buffer, one answer).
#[derive(Debug, Default)]
pub struct OutBuf {
    bytes: Vec<u8>,
    start: usize,
}

impl OutBuf {
    /// What waits.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Number of bytes that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// True if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        // Taken bytes in front are given up before the buffer would grow over them.
        if self.start > 0 && self.bytes.len() + bytes.len() > self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The buffer itself, for a writer that appends.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Removes `n` bytes from the front; gives the memory back with the last one.
    pub fn advance(&mut self, n: usize) {
        self.start += n.min(self.len());
        if self.start == self.bytes.len() {
            self.clear();
        }
    }

    /// Drops all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_their_order_and_the_memory_goes_with_the_last() {
        let mut buf = OutBuf::default();
        let mut model = std::collections::VecDeque::new();
        let mut next = 0u8;
        for round in 0..2000usize {
            let push = (round * 7) % 23;
            let bytes: Vec<u8> = (0..push)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect();
            buf.push(&bytes);
            model.extend(bytes);
            let take = ((round * 5) % 29).min(buf.len());
            assert_eq!(buf.as_slice()[..take], model.drain(..take).collect::<Vec<_>>());
            buf.advance(take);
            assert_eq!(buf.len(), model.len());
            assert!(buf.bytes.capacity() < 4096, "the taken front is given up");
        }
        let rest = buf.len();
        buf.advance(rest);
        assert_eq!(buf.bytes.capacity(), 0);
    }
}
