//! One connected socket with what hangs on it: latches, TLS, leftovers of both directions.
//!
//! Whoever stops reading or writing before `WouldBlock` finds the latch (or [`Transport::has_input`]) still set, and
//! comes back.

use std::io::{self, IoSlice};
use std::ops::ControlFlow;

use super::outbuf::OutBuf;
use super::readiness::Readiness;
use super::sys::{Sock, Sys};
use super::tls::{Tls, TlsError};

/// A socket, in clear or under TLS.
#[derive(Debug)]
pub struct Transport {
    /// The socket.
    pub sock: Sock,
    /// Remembered edges.
    pub io: Readiness,
    tls: Option<Box<Tls>>,
    /// Received, not opened yet: part of a record.
    cipher: Vec<u8>,
    /// Opened, not taken yet.
    plain: Vec<u8>,
    /// To be sent.
    out: OutBuf,
    /// Bytes of payload that wait in `out`.
    payload_pending: usize,
}

/// What a read came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Bytes came (handshake bytes count).
    Progress,
    /// Nothing there.
    Blocked,
    /// The peer ended its direction.
    Eof,
}

/// Why a connection is broken.
#[derive(Debug)]
pub enum TransportError {
    /// The socket.
    Io(io::Error),
    /// TLS. An alert may wait in the output.
    Tls(TlsError),
    /// The peer's FIN came without close_notify: somebody may have cut the stream.
    Truncated,
}

impl std::fmt::Display for TransportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Truncated => f.write_str("the connection ended without close_notify"),
        }
    }
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Transport {
    /// A connected socket in clear.
    #[must_use]
    pub fn new(sock: Sock) -> Self {
        Self {
            sock,
            io: Readiness::default(),
            tls: None,
            cipher: Vec::new(),
            plain: Vec::new(),
            out: OutBuf::default(),
            payload_pending: 0,
        }
    }

    /// Puts TLS on it, before the first byte.
    ///
    /// # Errors
    /// As [`Tls::start`].
    pub fn start_tls(&mut self, mut tls: Tls) -> Result<(), TlsError> {
        tls.start(self.out.tail())?;
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// True while TLS is not set up yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// True if it is under TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The TLS state.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_deref()
    }

    /// True if a read may make progress.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.io.readable || !self.plain.is_empty()
    }

    /// Bytes that wait for the socket.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.out.len()
    }

    /// Puts bytes back in front of what will be read: they belong to the next reader.
    pub fn unread(&mut self, bytes: &[u8]) {
        self.plain.splice(0..0, bytes.iter().copied());
    }

    /// Reads once, with the loop's buffers, of which nothing is kept. In clear the bytes are at the front of
    /// `scratch`, as many as the count says; under TLS they are in `opened`, and the count is its length.
    ///
    /// # Errors
    /// The connection is broken; nothing more can be read.
    pub fn fill<S: Sys>(
        &mut self,
        sys: &mut S,
        scratch: &mut [u8],
        opened: &mut Vec<u8>,
    ) -> Result<(Fill, usize), TransportError> {
        opened.clear();
        if self.tls.is_none() {
            return self.read_clear(sys, scratch);
        }
        if self.tls.as_ref().is_some_and(|tls| tls.peer_closed()) {
            return Ok((Fill::Eof, 0));
        }
        let kept = self.cipher.len();
        match self.read_clear(sys, &mut scratch[kept..])? {
            (Fill::Progress, n) => {
                scratch[..kept].copy_from_slice(&self.cipher);
                self.cipher = Vec::new();
                self.open(&mut scratch[..kept + n], opened)?;
                Ok((Fill::Progress, opened.len()))
            }
            (Fill::Eof, _) => Err(TransportError::Truncated),
            blocked => Ok(blocked),
        }
    }

    /// Reads plaintext into `into`; the count is 0 unless the result is [`Fill::Progress`], and may be 0 then too (a
    /// part of a record). `scratch` bounds what one call reads ahead.
    ///
    /// # Errors
    /// As [`Transport::fill`].
    pub fn read<S: Sys>(
        &mut self,
        sys: &mut S,
        scratch: &mut [u8],
        into: &mut [u8],
    ) -> Result<(Fill, usize), TransportError> {
        if !self.plain.is_empty() {
            let n = self.plain.len().min(into.len());
            into[..n].copy_from_slice(&self.plain[..n]);
            self.plain.drain(..n);
            if self.plain.is_empty() {
                self.plain = Vec::new();
            }
            return Ok((Fill::Progress, n));
        }
        if self.tls.is_none() {
            return self.read_clear(sys, into);
        }
        let mut opened = Vec::new();
        let (fill, n) = self.fill(sys, scratch, &mut opened)?;
        let taken = n.min(into.len());
        into[..taken].copy_from_slice(&opened[..taken]);
        self.plain.extend_from_slice(&opened[taken..]);
        Ok((fill, taken))
    }

    fn read_clear<S: Sys>(&mut self, sys: &mut S, into: &mut [u8]) -> Result<(Fill, usize), TransportError> {
        if !self.io.readable {
            return Ok((Fill::Blocked, 0));
        }
        match sys.read(self.sock, into) {
            Ok(0) => Ok((Fill::Eof, 0)),
            Ok(n) => Ok((Fill::Progress, n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.io.readable = false;
                Ok((Fill::Blocked, 0))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the records in `input`; keeps the part of a record behind them.
    fn open(&mut self, input: &mut [u8], opened: &mut Vec<u8>) -> Result<(), TransportError> {
        let Some(tls) = self.tls.as_mut() else { return Ok(()) };
        let received = tls
            .receive(input, self.out.tail(), |chunk| {
                opened.extend_from_slice(chunk);
                ControlFlow::Continue(())
            })
            .map_err(TransportError::Tls)?;
        self.cipher.extend_from_slice(&input[received.consumed..]);
        Ok(())
    }

    /// Sends bytes that are not payload of a stream.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send<S: Sys>(&mut self, sys: &mut S, bytes: &[u8]) -> Result<(), TransportError> {
        debug_assert_eq!(self.payload_pending, 0, "payload comes last");
        self.append(bytes)?;
        self.flush(sys)?;
        Ok(())
    }

    /// Sends payload. Returns how many bytes of payload the socket took, earlier ones included.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send_payload<S: Sys>(&mut self, sys: &mut S, bytes: &[u8]) -> Result<usize, TransportError> {
        let mut rest = bytes;
        if self.tls.is_none() && self.out.is_empty() {
            let taken = self.write(sys, rest)?;
            rest = &rest[taken..];
            if rest.is_empty() {
                return Ok(bytes.len());
            }
        }
        self.append(rest)?;
        self.payload_pending += rest.len();
        Ok(bytes.len() - rest.len() + self.flush(sys)?)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        match self.tls.as_mut() {
            None => self.out.push(bytes),
            Some(tls) => tls.seal(bytes, self.out.tail()).map_err(TransportError::Tls)?,
        }
        Ok(())
    }

    fn write<S: Sys>(&mut self, sys: &mut S, bytes: &[u8]) -> Result<usize, TransportError> {
        let mut taken = 0;
        while self.io.writable && taken < bytes.len() {
            match sys.write(self.sock, &[IoSlice::new(&bytes[taken..])]) {
                Ok(0) => self.io.writable = false,
                Ok(n) => taken += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.io.writable = false,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(taken)
    }

    /// Sends what waits, as far as the socket takes it. Returns how many bytes of payload it took.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush<S: Sys>(&mut self, sys: &mut S) -> Result<usize, TransportError> {
        if !self.out.is_empty() {
            let out = std::mem::take(&mut self.out);
            let taken = self.write(sys, out.as_slice());
            self.out = out;
            self.out.advance(taken?);
        }
        Ok(self.account())
    }

    /// Payload that left `out`. In clear it stands at its end; a record counts when all records are gone.
    fn account(&mut self) -> usize {
        let left = match (self.out.is_empty(), self.tls.is_some()) {
            (true, _) => 0,
            (false, true) => self.payload_pending,
            (false, false) => self.payload_pending.min(self.out.len()),
        };
        std::mem::replace(&mut self.payload_pending, left) - left
    }

    /// Drops what waits for a socket that takes nothing any more. Returns how much payload it was.
    pub fn drop_output(&mut self) -> usize {
        self.out.clear();
        self.account()
    }

    /// Ends our direction: close_notify under TLS, and FIN. Only when nothing waits.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn finish<S: Sys>(&mut self, sys: &mut S) -> Result<(), TransportError> {
        debug_assert!(self.out.is_empty());
        sys.shutdown_write(self.sock)?;
        Ok(())
    }

    /// Queues close_notify, once, behind everything else. Nothing in clear.
    pub fn close_notify(&mut self) {
        if let Some(tls) = self.tls.as_mut()
            && !tls.is_handshaking()
        {
            // A failure here means that the connection is broken already; the socket tells.
            let _broken = tls.close_notify(self.out.tail());
        }
    }
}
