//! The resolver: scripted answers, right, wrong, slow, or none.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tautline::net::sys::JobResult;

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Addresses(Vec<IpAddr>),
    /// `NotFound` is NXDOMAIN.
    Fails(io::ErrorKind),
    Never,
}

#[derive(Default)]
pub(crate) struct Resolver {
    names: BTreeMap<String, (Duration, Answer)>,
}

impl Resolver {
    pub(crate) fn set(&mut self, name: &str, after: Duration, answer: Answer) {
        self.names.insert(name.to_owned(), (after, answer));
    }

    /// When the answer comes and what it is; `None` for never. A literal is itself; an unknown name does
    /// not exist.
    pub(crate) fn resolve(&self, host: &str, port: u16) -> Option<(Duration, JobResult)> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Some((Duration::ZERO, JobResult::Resolved(Ok(vec![SocketAddr::new(ip, port)]))));
        }
        let unknown = (Duration::from_millis(1), Answer::Fails(io::ErrorKind::NotFound));
        let (after, answer) = self.names.get(host).unwrap_or(&unknown);
        let result = match answer {
            Answer::Addresses(ips) => Ok(ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect()),
            Answer::Fails(kind) => Err(io::Error::from(*kind)),
            Answer::Never => return None,
        };
        Some((*after, JobResult::Resolved(result)))
    }
}
