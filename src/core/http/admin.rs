//! Pages of the health and admin ports. One request a connection.
//!
//! Both ports of both roles serve the same pages. (Konnectivity's agent redirects `/metrics` from its admin
//! port to its health port; here both simply answer.)

use crate::core::http::answer::{TEXT, error, page};
use crate::core::http::head::{Head, looks_like, parse};
use crate::core::http::{Method, Status};
use crate::core::role::AdminStep;

/// `Content-Type` of `/metrics`.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/healthz`: the process turns its loop.
    Health,
    /// `/readyz`, or its old name `/ready`.
    Ready {
        /// `?verbose` was asked for.
        verbose: bool,
    },
    /// `/metrics`.
    Metrics,
    /// `/status`: tables and sizes for people.
    Status,
    /// Anything else, `/debug/pprof/` included.
    NotFound,
}

impl Route {
    /// The page that a request target names. Any method will do, as with Konnectivity.
    #[must_use]
    pub fn of(target: &str) -> Self {
        let path = path_of(target);
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        match path {
            "/healthz" => Self::Health,
            "/readyz" | "/ready" => {
                let verbose = query.split('&').any(|item| item == "verbose" || item.starts_with("verbose="));
                Self::Ready { verbose }
            }
            "/metrics" => Self::Metrics,
            "/status" => Self::Status,
            _ => Self::NotFound,
        }
    }
}

/// Servers must take `http://host/path` too (RFC 9112 section 3.2.2).
fn path_of(target: &str) -> &str {
    match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    }
}

/// Which program answers: the two say "not ready" differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server beside the control plane.
    Server,
    /// The agent on a node.
    Agent,
}

/// An answer of the health or admin port, before it is bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: Status,
    content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    const fn text(status: Status, body: String) -> Self {
        Self { status, content_type: TEXT, body }
    }

    /// `/healthz`.
    #[must_use]
    pub fn healthy() -> Self {
        Self::text(Status::Ok, "ok".to_owned())
    }

    /// `/readyz`. Only the agent knows `?verbose`; an agent that is not ready is always verbose.
    #[must_use]
    pub fn readiness(role: Role, ready: bool, verbose: bool) -> Self {
        let (status, body) = match (role, ready) {
            (Role::Agent, true) if verbose => {
                (Status::Ok, "[+]ping ok\n[+]server-connected ok\ncheck passed\n")
            }
            (_, true) => (Status::Ok, "ok"),
            (Role::Server, false) => (Status::InternalServerError, "no connection to any proxy agent"),
            (Role::Agent, false) => {
                (Status::ServiceUnavailable, "[+]ping ok\n[-]server-connected failed: no servers connected\n")
            }
        };
        Self::text(status, body.to_owned())
    }

    /// `/metrics`, given the text of [`crate::core::metrics`].
    #[must_use]
    pub const fn metrics(body: String) -> Self {
        Self { status: Status::Ok, content_type: METRICS, body }
    }

    /// `/status`.
    #[must_use]
    pub const fn json(body: String) -> Self {
        Self { status: Status::Ok, content_type: "application/json", body }
    }

    /// Any other page.
    #[must_use]
    pub fn not_found() -> Self {
        Self::text(Status::NotFound, "404 page not found\n".to_owned())
    }

    /// The bytes to send before the connection is closed. HEAD gets no body.
    #[must_use]
    pub fn to_bytes(&self, method: Method) -> Vec<u8> {
        page(self.status, self.content_type, "", &self.body, method)
    }
}

/// What to do about the bytes of a request head. The pages are made only if they are asked for.
pub fn respond(
    head: &[u8],
    role: Role,
    ready: bool,
    metrics: impl FnOnce() -> String,
    status: impl FnOnce() -> String,
) -> AdminStep {
    let request = match parse(head) {
        Head::Partial => return AdminStep::More,
        Head::Bad(status) => {
            let text = looks_like(head).unwrap_or("not an HTTP request");
            return AdminStep::Refuse { answer: error(status, ""), text };
        }
        Head::Complete { request, .. } => request,
    };
    let page = match Route::of(&request.target) {
        Route::Health => Answer::healthy(),
        Route::Ready { verbose } => Answer::readiness(role, ready, verbose),
        Route::Metrics => Answer::metrics(metrics()),
        Route::Status => Answer::json(status()),
        Route::NotFound => Answer::not_found(),
    };
    AdminStep::Answer(page.to_bytes(request.method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        for (target, route) in [
            ("/healthz", Route::Health),
            ("/healthz?x=1", Route::Health),
            ("/readyz", Route::Ready { verbose: false }),
            ("/ready", Route::Ready { verbose: false }),
            ("/readyz?verbose", Route::Ready { verbose: true }),
            ("/ready?verbose", Route::Ready { verbose: true }),
            ("/readyz?a=b&verbose=1", Route::Ready { verbose: true }),
            ("/readyz?verbosely", Route::Ready { verbose: false }),
            ("/readyz?a=verbose", Route::Ready { verbose: false }),
            ("/metrics", Route::Metrics),
            ("/status", Route::Status),
            ("/debug/pprof/", Route::NotFound),
            ("/debug/pprof/heap?debug=1", Route::NotFound),
            ("/", Route::NotFound),
            ("", Route::NotFound),
            ("*", Route::NotFound),
            ("healthz", Route::NotFound),
            ("/healthz/", Route::NotFound),
            ("//healthz", Route::NotFound),
            ("http://127.0.0.1:8092/healthz", Route::Health),
            ("http://h/readyz?verbose", Route::Ready { verbose: true }),
            ("http://healthz", Route::NotFound),
        ] {
            assert_eq!(Route::of(target), route, "{target:?}");
        }
    }

    fn bytes(answer: &Answer, method: Method) -> String {
        String::from_utf8(answer.to_bytes(method)).unwrap()
    }

    #[test]
    fn pages_are_byte_exact() {
        assert_eq!(
            bytes(&Answer::healthy(), Method::Get),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\
             Content-Length: 2\r\n\r\nok"
        );
        assert_eq!(
            bytes(&Answer::not_found(), Method::Other),
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\
             Content-Length: 19\r\n\r\n404 page not found\n"
        );
        assert_eq!(
            bytes(&Answer::metrics("a 1\n".to_owned()), Method::Get),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close\r\n\
             Content-Length: 4\r\n\r\na 1\n"
        );
        assert_eq!(
            bytes(&Answer::json("links 3\n".to_owned()), Method::Head),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: 8\r\n\r\n"
        );
    }

    #[test]
    fn readiness_of_both_roles() {
        let verbose = "[+]ping ok\n[+]server-connected ok\ncheck passed\n";
        let failed = "[+]ping ok\n[-]server-connected failed: no servers connected\n";
        for (role, ready, asked, status, body) in [
            (Role::Server, true, false, 200, "ok"),
            (Role::Server, true, true, 200, "ok"),
            (Role::Server, false, false, 500, "no connection to any proxy agent"),
            (Role::Server, false, true, 500, "no connection to any proxy agent"),
            (Role::Agent, true, false, 200, "ok"),
            (Role::Agent, true, true, 200, verbose),
            (Role::Agent, false, false, 503, failed),
            (Role::Agent, false, true, 503, failed),
        ] {
            let answer = Answer::readiness(role, ready, asked);
            assert_eq!(
                (answer.status.code(), answer.body.as_str()),
                (status, body),
                "{role:?} {ready} {asked}"
            );
        }
    }

    #[test]
    fn what_does_not_speak_http_is_refused_with_what_it_was() {
        let answer = |head: &[u8]| respond(head, Role::Server, true, || unreachable!(), || unreachable!());
        for (head, what) in [
            (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], "TLS"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"),
            (b"\x80\x00\xff\xfe\r\n\r\n", "not an HTTP request"),
        ] {
            let AdminStep::Refuse { answer, text } = answer(head) else { panic!("{head:?} was taken") };
            assert!(text.contains(what), "{text}");
            assert!(answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
        }
        assert!(matches!(answer(b"GET /healthz HTTP/1.1\r\n"), AdminStep::More));
        assert!(matches!(answer(b"GET /healthz HTTP/1.1\r\n\r\n"), AdminStep::Answer(_)));
    }
}
