//! Socket options by what a socket is for.

use std::io;
use std::time::Duration;

use socket2::{Socket, TcpKeepalive};

use crate::net::ffi;
use crate::net::sys::{Class, KernelLiveness};

/// Unsent bytes that a link's kernel takes: a PING behind them leaves soon even on a slow path.
const NOTSENT_LOWAT_BYTES: u32 = 32 * 1024;
/// A healed link speaks within this, however long it was cut.
const RTO_MAX_MS: u32 = 1000;
/// Keepalive of a tunnel's sockets: a vanished host is noticed after 60 s, a NAT entry is kept.
const TUNNEL_KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const TUNNEL_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const TUNNEL_KEEPALIVE_COUNT: u32 = 3;

/// Sets the options of `class` on a TCP socket.
///
/// # Errors
/// The first option that the kernel refused, by name.
pub(super) fn apply(socket: &Socket, class: Class) -> io::Result<()> {
    named("TCP_NODELAY", socket.set_tcp_nodelay(true))?;
    match class {
        Class::Link(liveness) => link(socket, liveness),
        Class::Tunnel => {
            keepalive(socket, TUNNEL_KEEPALIVE_IDLE, TUNNEL_KEEPALIVE_INTERVAL, TUNNEL_KEEPALIVE_COUNT)
        }
        Class::Http => Ok(()),
    }
}

fn link(socket: &Socket, liveness: KernelLiveness) -> io::Result<()> {
    keepalive(socket, liveness.keepalive_idle, liveness.keepalive_interval, liveness.keepalive_count)?;
    named("TCP_USER_TIMEOUT", socket.set_tcp_user_timeout(Some(liveness.user_timeout)))?;
    named("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(NOTSENT_LOWAT_BYTES))?;
    match ffi::set_tcp_rto_max(socket, RTO_MAX_MS) {
        // Before Linux 6.15. Linear timeouts of a thin stream come close: no doubling for the first six.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            named("TCP_THIN_LINEAR_TIMEOUTS", socket.set_tcp_thin_linear_timeouts(true))
        }
        result => named("TCP_RTO_MAX_MS", result),
    }
}

fn keepalive(socket: &Socket, idle: Duration, interval: Duration, count: u32) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(count);
    named("TCP_KEEPIDLE, TCP_KEEPINTVL or TCP_KEEPCNT", socket.set_tcp_keepalive(&keepalive))
}

fn named(option: &str, result: io::Result<()>) -> io::Result<()> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{option}: {error}")))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connected() -> (Socket, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (TcpStream::connect(listener.local_addr().unwrap()).unwrap().into(), listener)
    }

    #[test]
    fn each_class_gets_its_options() {
        let seconds = Duration::from_secs;
        let (socket, _listener) = connected();
        apply(&socket, Class::Http).unwrap();
        assert!(socket.tcp_nodelay().unwrap());
        assert!(!socket.keepalive().unwrap());

        let (socket, _listener) = connected();
        apply(&socket, Class::Tunnel).unwrap();
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), seconds(30));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), seconds(10));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);

        let (socket, _listener) = connected();
        let liveness = KernelLiveness {
            keepalive_idle: seconds(3),
            keepalive_interval: seconds(1),
            keepalive_count: 7,
            user_timeout: seconds(20),
        };
        apply(&socket, Class::Link(liveness)).unwrap();
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), seconds(3));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), seconds(1));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 7);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(seconds(20)));
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), NOTSENT_LOWAT_BYTES);
        // One of the two bounds the retransmission interval, by the kernel's age.
        let has_rto_max = ffi::set_tcp_rto_max(&socket, RTO_MAX_MS).is_ok();
        assert_ne!(has_rto_max, socket.tcp_thin_linear_timeouts().unwrap());
    }

    #[test]
    fn a_refused_option_is_named() {
        let (socket, _listener) = connected();
        let error = keepalive(&socket, Duration::ZERO, Duration::ZERO, 0).unwrap_err();
        assert!(error.to_string().starts_with("TCP_KEEPIDLE"), "{error}");
    }
}
