//! The system calls that no safe crate offers. The only `unsafe` of the project; every function here is safe
//! to call with any argument.
#![expect(unsafe_code, reason = "five libc calls without a safe wrapper; each block says why it holds")]

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// TCP_RTO_MAX_MS of Linux 6.15; libc does not name it.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Addresses taken from one answer: a hostile zone could return thousands.
const ADDRESSES_MAX: usize = 256;

/// SIOCOUTQ: what a socket wrote and its peer has not taken. Bytes on TCP; on a Unix socket the memory of the
/// buffers, which falls to 0 when the peer has read everything (and may be 1 for a moment before).
///
/// # Errors
/// As ioctl(2).
pub fn unsent(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed, hence open; TIOCOUTQ (= SIOCOUTQ) writes one int to a valid place.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// TCP_INFO. Fields that the kernel does not know yet are 0.
///
/// # Errors
/// As getsockopt(2).
pub fn tcp_info(socket: impl AsFd) -> io::Result<libc::tcp_info> {
    // SAFETY: tcp_info consists of integers; all zero is a valid value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed; the kernel writes at most `len` bytes to `info`, which is that long.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

/// Bounds the interval between retransmissions.
///
/// # Errors
/// As setsockopt(2); ENOPROTOOPT before Linux 6.15.
pub fn set_tcp_rto_max(socket: impl AsFd, milliseconds: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(milliseconds).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is borrowed; the kernel reads one int from a valid place.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The unit of times in /proc/self/stat.
#[must_use]
pub fn clock_ticks_per_second() -> u64 {
    // SAFETY: sysconf has no memory arguments.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// Looks a host name up with the system's resolver; blocks. `std` offers the same but hides the error number,
/// and "no such name" must be told from "no answer".
///
/// # Errors
/// `NotFound`: there is no such name, or no address under it. `InvalidInput`: a NUL in the name. Else the
/// resolver failed.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let name = CString::new(host)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "host name with a NUL byte"))?;
    // SAFETY: addrinfo consists of integers and pointers; all zero (null) is a valid value.
    let mut hints: libc::addrinfo = unsafe { mem::zeroed() };
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list: *mut libc::addrinfo = ptr::null_mut();
    // SAFETY: `name` ends with a NUL, a null service is allowed, `hints` and `list` are valid places.
    let code = unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &raw const hints, &raw mut list) };
    if code != 0 {
        let system = io::Error::last_os_error();
        return Err(if code == libc::EAI_SYSTEM { system } else { lookup_error(code) });
    }
    let mut addresses = Vec::new();
    let mut next = list;
    while !next.is_null() && addresses.len() < ADDRESSES_MAX {
        // SAFETY: getaddrinfo succeeded; each node stays valid until freeaddrinfo below.
        let node = unsafe { &*next };
        addresses.extend(node_address(node, port));
        next = node.ai_next;
    }
    if !list.is_null() {
        // SAFETY: `list` came from getaddrinfo and is freed once; no reference into it is left.
        unsafe { libc::freeaddrinfo(list) };
    }
    if addresses.is_empty() { Err(lookup_error(libc::EAI_NONAME)) } else { Ok(addresses) }
}

/// The address of one node of getaddrinfo's list; `None` for a family other than IPv4 and IPv6.
fn node_address(node: &libc::addrinfo, port: u16) -> Option<SocketAddr> {
    let len = usize::try_from(node.ai_addrlen).ok().filter(|_| !node.ai_addr.is_null())?;
    if node.ai_family == libc::AF_INET && len >= size_of::<libc::sockaddr_in>() {
        // SAFETY: the resolver says that ai_addr holds an IPv4 address of at least this length.
        let address = unsafe { node.ai_addr.cast::<libc::sockaddr_in>().read_unaligned() };
        let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
        return Some(SocketAddrV4::new(ip, port).into());
    }
    if node.ai_family == libc::AF_INET6 && len >= size_of::<libc::sockaddr_in6>() {
        // SAFETY: the resolver says that ai_addr holds an IPv6 address of at least this length.
        let address = unsafe { node.ai_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
        let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
        return Some(SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into());
    }
    None
}

/// The error of a getaddrinfo code, with the resolver's own words.
fn lookup_error(code: libc::c_int) -> io::Error {
    // SAFETY: gai_strerror returns a static text, or null.
    let text = unsafe {
        let text = libc::gai_strerror(code);
        if text.is_null() { c"unknown resolver error" } else { CStr::from_ptr(text) }
    };
    let kind = match code {
        libc::EAI_NONAME | libc::EAI_NODATA => io::ErrorKind::NotFound,
        libc::EAI_MEMORY => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_such_name_is_told_from_no_answer() {
        assert_eq!(lookup_error(libc::EAI_NONAME).kind(), io::ErrorKind::NotFound);
        assert_eq!(lookup_error(libc::EAI_NODATA).kind(), io::ErrorKind::NotFound);
        assert_eq!(lookup_error(libc::EAI_AGAIN).kind(), io::ErrorKind::Other);
        assert_eq!(lookup_error(libc::EAI_FAIL).kind(), io::ErrorKind::Other);
        assert!(!lookup_error(libc::EAI_AGAIN).to_string().is_empty());
    }

    #[test]
    fn literals_resolve_without_a_server() {
        assert_eq!(resolve("127.0.0.1", 80).unwrap(), ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(resolve("fe80::1%1", 443).unwrap(), ["[fe80::1%1]:443".parse().unwrap()]);
        assert_eq!(resolve("a\0b", 80).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_is_not_a_tcp_socket() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(tcp_info(&file).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
        assert!(set_tcp_rto_max(&file, 1000).is_err());
    }
}
