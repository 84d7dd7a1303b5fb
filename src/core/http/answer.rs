//! Answers, byte exact. Every answer but the 200 of a tunnel ends its connection.

use std::fmt;

use tautline_wire::TEXT_LEN_MAX;

use crate::core::http::Method;

/// `Content-Type` of plain answers.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// Every status that is ever sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Status {
    /// A probe's or scraper's request was fine.
    Ok = 200,
    /// The head or the target is malformed.
    BadRequest = 400,
    /// No such admin page.
    NotFound = 404,
    /// Not CONNECT.
    MethodNotAllowed = 405,
    /// The head did not come in time.
    RequestTimeout = 408,
    /// The head is over a limit.
    HeadTooLarge = 431,
    /// The server is not ready.
    InternalServerError = 500,
    /// The target cannot be reached.
    BadGateway = 502,
    /// No agent, or no room.
    ServiceUnavailable = 503,
    /// The dial took too long.
    GatewayTimeout = 504,
}

impl Status {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The reason phrase.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::BadRequest => "Bad Request",
            Self::NotFound => "Not Found",
            Self::MethodNotAllowed => "Method Not Allowed",
            Self::RequestTimeout => "Request Timeout",
            Self::HeadTooLarge => "Request Header Fields Too Large",
            Self::InternalServerError => "Internal Server Error",
            Self::BadGateway => "Bad Gateway",
            Self::ServiceUnavailable => "Service Unavailable",
            Self::GatewayTimeout => "Gateway Timeout",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code(), self.reason())
    }
}

/// The answer that opens a tunnel. No target byte may follow in the same segment: kube-apiserver refuses that.
#[must_use]
pub const fn established() -> &'static [u8] {
    b"HTTP/1.1 200 Connection Established\r\n\r\n"
}

/// The answer to a CONNECT that failed, `text` being its body. An empty text becomes the status (`400 Bad
/// Request`). The text may come from an agent or quote a client: control characters become spaces, and at
/// most [`TEXT_LEN_MAX`] bytes are sent.
#[must_use]
pub fn error(status: Status, text: &str) -> Vec<u8> {
    let body = if text.is_empty() { status.to_string() } else { sanitised(text) };
    page(status, TEXT, "", &body, Method::Connect)
}

/// The answer to a method other than CONNECT on the frontend's port.
#[must_use]
pub fn method_not_allowed() -> Vec<u8> {
    let body = "this proxy only supports CONNECT passthrough\n";
    page(Status::MethodNotAllowed, TEXT, "Allow: CONNECT\r\n", body, Method::Other)
}

/// A whole answer that ends the connection. `fields` are further header lines, each with its line end. HEAD
/// gets the head only.
pub(super) fn page(status: Status, content_type: &str, fields: &str, body: &str, method: Method) -> Vec<u8> {
    let len = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{fields}Connection: close\r\n\
         Content-Length: {len}\r\n\r\n"
    );
    if method != Method::Head {
        answer.push_str(body);
    }
    answer.into_bytes()
}

fn sanitised(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .scan(0, |len, char| {
            *len += char.len_utf8();
            (*len <= TEXT_LEN_MAX).then_some(char)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn byte_exact() {
        assert_eq!(text(established()), "HTTP/1.1 200 Connection Established\r\n\r\n");
        assert_eq!(
            text(&error(Status::BadGateway, "connection refused")),
            "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\
             Content-Length: 18\r\n\r\nconnection refused"
        );
        assert_eq!(
            text(&method_not_allowed()),
            "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\nAllow: CONNECT\r\n\
             Connection: close\r\nContent-Length: 45\r\n\r\nthis proxy only supports CONNECT passthrough\n"
        );
        assert!(text(&error(Status::BadRequest, "")).ends_with("Content-Length: 15\r\n\r\n400 Bad Request"));
    }

    #[test]
    fn first_lines() {
        for (status, line) in [
            (Status::BadRequest, "HTTP/1.1 400 Bad Request\r\n"),
            (Status::RequestTimeout, "HTTP/1.1 408 Request Timeout\r\n"),
            (Status::HeadTooLarge, "HTTP/1.1 431 Request Header Fields Too Large\r\n"),
            (Status::InternalServerError, "HTTP/1.1 500 Internal Server Error\r\n"),
            (Status::ServiceUnavailable, "HTTP/1.1 503 Service Unavailable\r\n"),
            (Status::GatewayTimeout, "HTTP/1.1 504 Gateway Timeout\r\n"),
        ] {
            assert!(text(&error(status, "x")).starts_with(line), "{status}");
        }
    }

    #[test]
    fn a_text_cannot_write_header_lines_or_terminal_codes() {
        let answer = error(Status::BadGateway, "no\r\n\r\nHTTP/1.1 200 OK\x1b[2J\u{9b}x\u{7f}");
        assert!(text(&answer).ends_with("\r\n\r\nno    HTTP/1.1 200 OK [2J x "), "{}", text(&answer));
    }

    proptest! {
        #[test]
        fn length_is_true_and_bounded(body in "(?s).{1,1200}") {
            let answer = error(Status::BadGateway, &body);
            let (head, sent) = text(&answer).split_once("\r\n\r\n").unwrap();
            let length = format!("Content-Length: {}", sent.len());
            prop_assert!(head.ends_with(&length));
            prop_assert!(!sent.is_empty() && sent.len() <= TEXT_LEN_MAX);
            prop_assert!(sent.chars().all(|char| !char.is_control()));
            prop_assert!(body.len() > TEXT_LEN_MAX || sent.chars().count() == body.chars().count());
        }
    }
}
