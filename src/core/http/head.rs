//! Request heads, in any split.
//!
//! Garbage must not hold a slot until the head timeout, and a head that comes byte by byte must not cost a
//! parse per byte. So [`HeadReader`] looks at each byte once; `httparse` runs at most twice: when the request
//! line is there, and when the whole head is.

use crate::core::http::Status;
use crate::limits::{HEAD_FIELDS_MAX, HEAD_LEN_MAX};

/// How far a head is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// More bytes are needed.
    Partial,
    /// The head is there.
    Complete {
        /// Its bytes; what follows them belongs to the tunnel.
        len: usize,
        /// What it asks for.
        request: Request,
    },
    /// It can never become a request: 400, or 431 when it is over a limit of [`crate::limits`].
    Bad(Status),
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The request target as it was sent: `host:port` with CONNECT, else mostly a path.
    pub target: String,
    /// The version.
    pub version: Version,
    /// The client does not want to keep the connection.
    pub close: bool,
    /// The head announces a body (`Transfer-Encoding`, or a `Content-Length` other than 0). Nobody here reads one.
    pub has_body: bool,
}

/// Methods that make a difference here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `CONNECT`.
    Connect,
    /// `GET`.
    Get,
    /// `HEAD`: as `GET`, answered without a body.
    Head,
    /// Any other token.
    Other,
}

/// The versions that are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `HTTP/1.0`.
    Http10,
    /// `HTTP/1.1`.
    Http11,
}

/// Where the next byte of a head stands.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// Before the request line: empty lines are skipped (RFC 9112 section 2.2).
    #[default]
    Before,
    Method,
    RequestLine,
    FieldStart,
    Field,
}

/// What a byte leads to.
enum Step {
    To(Place),
    RequestLineEnd,
    HeadEnd,
    Refuse,
}

/// Finds the end of one head in a buffer that grows. Each byte is looked at once.
#[derive(Debug, Default)]
pub struct HeadReader {
    seen: usize,
    place: Place,
}

impl HeadReader {
    /// Goes on with `bytes`: all bytes of the connection so far, those of earlier calls included. After
    /// anything but [`Head::Partial`] the reader is used up.
    pub fn advance(&mut self, bytes: &[u8]) -> Head {
        let limit = bytes.len().min(HEAD_LEN_MAX);
        while self.seen < limit {
            let byte = bytes[self.seen];
            self.seen += 1;
            match self.place.step(byte) {
                Step::To(place) => self.place = place,
                Step::RequestLineEnd => {
                    self.place = Place::FieldStart;
                    let so_far = parse_whole(&bytes[..self.seen]);
                    if so_far != Head::Partial {
                        return so_far;
                    }
                }
                Step::HeadEnd => {
                    return match parse_whole(&bytes[..self.seen]) {
                        Head::Partial => Head::Bad(Status::BadRequest),
                        other => other,
                    };
                }
                Step::Refuse => return Head::Bad(Status::BadRequest),
            }
        }
        if bytes.len() < HEAD_LEN_MAX { Head::Partial } else { Head::Bad(Status::HeadTooLarge) }
    }
}

impl Place {
    fn step(self, byte: u8) -> Step {
        match (self, byte) {
            (Self::Before, b'\r' | b'\n') => Step::To(Self::Before),
            (Self::Before | Self::Method, _) if is_token(byte) => Step::To(Self::Method),
            (Self::Method, b' ') => Step::To(Self::RequestLine),
            (Self::Before | Self::Method, _) => Step::Refuse,
            (Self::RequestLine, b'\n') => Step::RequestLineEnd,
            (Self::FieldStart, b'\n') => Step::HeadEnd,
            (Self::Field, b'\n') => Step::To(Self::FieldStart),
            // A control character is never part of a head: no need to wait for its end.
            (_, 0..=8 | 11..=12 | 14..=31 | 127) => Step::Refuse,
            (Self::RequestLine, _) => Step::To(Self::RequestLine),
            (Self::FieldStart, b'\r') => Step::To(Self::FieldStart),
            (Self::FieldStart | Self::Field, _) => Step::To(Self::Field),
        }
    }
}

/// Parses a head at the start of `bytes`. For a head that comes in pieces use [`HeadReader`].
#[must_use]
pub fn parse(bytes: &[u8]) -> Head {
    HeadReader::default().advance(bytes)
}

/// Names what a client speaks instead of HTTP/1.x, for the log line of a refused head.
#[must_use]
pub fn looks_like(bytes: &[u8]) -> Option<&'static str> {
    const OTHERS: [(&[u8], &str); 5] = [
        (b"PRI * HTTP/2", "HTTP/2 (gRPC?)"),
        (b"SSH-", "SSH"),
        (&tautline_wire::MAGIC, "a Tautline agent"),
        (b"PROXY ", "PROXY protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n", "PROXY protocol"),
    ];
    match bytes {
        [0x16] | [0x16, 0x03, ..] => return Some("TLS"),
        // The first byte alone is enough where no text begins so.
        [first] if *first == tautline_wire::MAGIC[0] => return Some("a Tautline agent"),
        _ => {}
    }
    OTHERS.iter().find(|(prefix, _)| bytes.starts_with(prefix)).map(|(_, name)| *name)
}

fn parse_whole(bytes: &[u8]) -> Head {
    let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let len = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Head::Partial,
        Err(httparse::Error::TooManyHeaders) => return Head::Bad(Status::HeadTooLarge),
        Err(_) => return Head::Bad(Status::BadRequest),
    };
    let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
        return Head::Bad(Status::BadRequest);
    };
    let version = if parsed.version == Some(0) { Version::Http10 } else { Version::Http11 };
    let has_body = parsed.headers.iter().any(|field| {
        field.name.eq_ignore_ascii_case("transfer-encoding")
            || (field.name.eq_ignore_ascii_case("content-length") && field.value.trim_ascii() != b"0")
    });
    let request = Request {
        method: method_of(method),
        target: target.to_owned(),
        version,
        close: has_option(parsed.headers, "close")
            || (version == Version::Http10 && !has_option(parsed.headers, "keep-alive")),
        has_body,
    };
    Head::Complete { len, request }
}

fn method_of(name: &str) -> Method {
    match name {
        "CONNECT" => Method::Connect,
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        _ => Method::Other,
    }
}

/// True if a `Connection` field lists `option`.
fn has_option(fields: &[httparse::Header<'_>], option: &str) -> bool {
    fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("connection"))
        .flat_map(|field| field.value.split(|byte| *byte == b','))
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(bytes: &[u8]) -> (usize, Request) {
        match parse(bytes) {
            Head::Complete { len, request } => (len, request),
            other => panic!("{other:?} for {:?}", String::from_utf8_lossy(bytes)),
        }
    }

    fn bad(bytes: &[u8]) -> Status {
        match parse(bytes) {
            Head::Bad(status) => status,
            other => panic!("{other:?} for {:?}", String::from_utf8_lossy(bytes)),
        }
    }

    #[test]
    fn the_head_that_kube_apiserver_sends() {
        let head = b"CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(b"\x16\x03early");
        let (len, request) = request(&bytes);
        assert_eq!(len, head.len());
        assert_eq!(
            request,
            Request {
                method: Method::Connect,
                target: "10.0.0.1:10250".to_owned(),
                version: Version::Http11,
                close: false,
                has_body: false,
            }
        );
    }

    #[test]
    fn forms_that_are_accepted() {
        let (_, old) = request(b"CONNECT a:1 HTTP/1.0\r\n\r\n");
        assert_eq!((old.version, old.close), (Version::Http10, true));
        let (_, kept) = request(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        assert!(!kept.close);
        assert_eq!(request(b"CONNECT a:1 HTTP/1.1\r\n\r\n").1.target, "a:1", "no Host");
        assert_eq!(request(b"\r\nHEAD /x HTTP/1.1\n\n").1.method, Method::Head, "bare LF, empty line before");
        assert_eq!(request(b"connect a:1 HTTP/1.1\r\n\r\n").1.method, Method::Other, "methods have a case");
        let (_, closing) = request(b"GET /m?x HTTP/1.1\r\nconnection: foo, CLOSE\r\n\r\n");
        assert_eq!((closing.method, closing.close, closing.target.as_str()), (Method::Get, true, "/m?x"));
    }

    #[test]
    fn a_body_is_announced_by_either_field() {
        for (field, has_body) in [
            ("Content-Length: 0", false),
            ("Content-Length: 5", true),
            ("content-length: nonsense", true),
            ("Transfer-Encoding: chunked", true),
            ("X-Length: 5", false),
        ] {
            let head = format!("CONNECT a:1 HTTP/1.1\r\n{field}\r\n\r\n");
            assert_eq!(request(head.as_bytes()).1.has_body, has_body, "{field}");
        }
    }

    #[test]
    fn malformed_heads_are_400() {
        for head in [
            "CONNECT a:1\r\n\r\n",
            "CONNECT a:1 HTTP/2.0\r\n\r\n",
            "CONNECT a:1 HTTP/1.1 x\r\n\r\n",
            "CONNECT  a:1 HTTP/1.1\r\n\r\n",
            "CONNECT a: 1 HTTP/1.1\r\n\r\n",
            " CONNECT a:1 HTTP/1.1\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nno colon\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost : x\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: x\r\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\r\n",
        ] {
            assert_eq!(bad(head.as_bytes()), Status::BadRequest, "{head:?}");
        }
    }

    /// No blank line is needed to see that these are not requests.
    #[test]
    fn garbage_is_refused_at_once_and_named() {
        let cases: [(&[u8], Option<&str>); 12] = [
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", Some("TLS")),
            (b"\x16", Some("TLS")),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some("HTTP/2 (gRPC?)")),
            (b"PRI * HTTP/2.0\r\n", Some("HTTP/2 (gRPC?)")),
            (b"SSH-2.0-OpenSSH_9.6\r\n", Some("SSH")),
            (&tautline_wire::MAGIC, Some("a Tautline agent")),
            (&tautline_wire::MAGIC[..1], Some("a Tautline agent")),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n", Some("PROXY protocol")),
            (b"\r\n\r\n\0\r\nQUIT\n\x21", Some("PROXY protocol")),
            (b"\0\0\0", None),
            (b"hello\r\n", None),
            (b"CONNECT a\0b:1 HTTP/1.1", None),
        ];
        for (bytes, name) in cases {
            assert_eq!(bad(bytes), Status::BadRequest, "{bytes:?}");
            assert_eq!(looks_like(bytes), name, "{bytes:?}");
        }
        assert_eq!(looks_like(b"CONNECT a:1 HTTP/1.1\r\n"), None);
        assert_eq!(looks_like(b""), None);
    }

    #[test]
    fn too_long_is_431_and_the_limit_itself_passes() {
        let frame = "CONNECT a:1 HTTP/1.1\r\nX: \r\n\r\n".len();
        let head = |len: usize| format!("CONNECT a:1 HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(len - frame));
        assert_eq!(request(head(HEAD_LEN_MAX).as_bytes()).0, HEAD_LEN_MAX);
        assert_eq!(bad(head(HEAD_LEN_MAX + 1).as_bytes()), Status::HeadTooLarge);
        assert_eq!(bad(&vec![b'A'; HEAD_LEN_MAX]), Status::HeadTooLarge);
        assert_eq!(parse(&vec![b'A'; HEAD_LEN_MAX - 1]), Head::Partial);
        assert_eq!(bad(&vec![b'\n'; HEAD_LEN_MAX]), Status::HeadTooLarge, "empty lines are not free");
    }

    #[test]
    fn too_many_fields_are_431_and_the_limit_itself_passes() {
        let head = |fields: usize| format!("CONNECT a:1 HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(fields));
        assert_eq!(request(head(HEAD_FIELDS_MAX).as_bytes()).1.target, "a:1");
        assert_eq!(bad(head(HEAD_FIELDS_MAX + 1).as_bytes()), Status::HeadTooLarge);
    }

    #[test]
    fn a_trickled_head_is_looked_at_once() {
        let head = b"CONNECT [::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n";
        let mut reader = HeadReader::default();
        for len in 1..head.len() {
            assert_eq!(reader.advance(&head[..len]), Head::Partial, "{len}");
            assert_eq!(reader.seen, len, "what was seen is not looked at again");
        }
        assert_eq!(reader.advance(head), parse(head));
        assert!(matches!(parse(head), Head::Complete { len, .. } if len == head.len()));
    }

    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            &b"CONNECT "[..],
            b"GET ",
            b"a:1 ",
            b"/ ",
            b"HTTP/1.1",
            b"HTTP/1.0",
            b"\r\n",
            b"\n",
            b"\r",
            b"Host: x",
            b"X:",
            b" ",
            b":",
            b"\0",
            b"\xff",
            b"Connection: close",
            b"Content-Length: 3",
        ]);
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn the_split_does_not_matter(bytes in pieces(), cuts in prop::collection::vec(0usize..100, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut reader = HeadReader::default();
            let mut last = Head::Partial;
            for cut in cuts {
                if last == Head::Partial {
                    last = reader.advance(&bytes[..cut]);
                }
            }
            prop_assert_eq!(last, parse(&bytes));
        }

        #[test]
        fn agrees_with_a_parse_of_the_whole(bytes in pieces()) {
            match (parse(&bytes), parse_whole(&bytes)) {
                // The reader may refuse what httparse has not reached yet, never the reverse.
                (Head::Bad(_), _) | (Head::Partial, Head::Partial | Head::Bad(_)) => {}
                (reader, whole) => prop_assert_eq!(reader, whole),
            }
        }

        #[test]
        fn never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Head::Complete { len, .. } = parse(&bytes) {
                prop_assert!(len <= bytes.len() && looks_like(&bytes).is_none());
            }
        }
    }
}
