//! The kernel's errors in the words of core and the wire.

use std::io;

use tautline_wire::DialCode;

use crate::core::connect::Failure;

/// Why a name could not be looked up.
pub(super) fn resolve_failure(error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => DialCode::NameNotFound,
        io::ErrorKind::TimedOut => DialCode::TimedOut,
        _ => DialCode::ResolverFailed,
    };
    Failure::new(code, format!("name resolution failed: {error}"))
}

/// Why a connect failed.
pub(super) fn connect_failure(error: &io::Error, to: std::net::SocketAddr) -> Failure {
    let code = match (error.raw_os_error(), error.kind()) {
        (Some(libc::EMFILE | libc::ENFILE), _) => DialCode::OutOfDescriptors,
        (Some(libc::ENETUNREACH | libc::ENETDOWN), _) => DialCode::NetworkUnreachable,
        (Some(libc::EHOSTUNREACH | libc::EHOSTDOWN), _) => DialCode::HostUnreachable,
        (_, io::ErrorKind::ConnectionRefused) => DialCode::Refused,
        (_, io::ErrorKind::TimedOut) => DialCode::TimedOut,
        (_, io::ErrorKind::NetworkUnreachable) => DialCode::NetworkUnreachable,
        (_, io::ErrorKind::HostUnreachable) => DialCode::HostUnreachable,
        (_, io::ErrorKind::AddrNotAvailable) => DialCode::AddressNotAvailable,
        (_, io::ErrorKind::ConnectionReset) => DialCode::Reset,
        (_, io::ErrorKind::PermissionDenied) => DialCode::Forbidden,
        _ => DialCode::Other,
    };
    Failure::new(code, format!("connect to {to}: {error}"))
}
