//! Listeners, and the file of a Unix one.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::sys::stat::{Mode, umask};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::limits::LISTEN_BACKLOG;

/// sun_path holds 108 bytes; the last is a NUL.
const UNIX_PATH_LEN_MAX: usize = 107;
/// 0777 less this is 0770: the owner and its group.
const UNIX_UMASK: Mode = Mode::S_IRWXO;

/// A TCP listener; dual stack for `[::]`, and IPv4 alone where the kernel has no IPv6.
///
/// # Errors
/// As socket(2), bind(2) and listen(2), with the address in the text.
pub(super) fn tcp(at: SocketAddr) -> io::Result<Socket> {
    let listener = match bind_tcp(at) {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) && at.ip().is_unspecified() => {
            bind_tcp((Ipv4Addr::UNSPECIFIED, at.port()).into())
        }
        result => result,
    };
    listener.map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => ": another process listens there; stop it or choose another port",
            ErrorKind::AddrNotAvailable => ": no interface of this host has the address",
            ErrorKind::PermissionDenied => ": ports below 1024 need CAP_NET_BIND_SERVICE",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot listen on {at}: {error}{advice}"))
    })
}

fn bind_tcp(at: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM.nonblocking().cloexec(), None)?;
    // A restart must not wait for connections of the process before it (TIME_WAIT).
    socket.set_reuse_address(true)?;
    if at.is_ipv6() && at.ip().is_unspecified() {
        socket.set_only_v6(false)?; // the default is an administrator's choice (bindv6only)
    }
    socket.bind(&at.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket)
}

/// The file of a Unix listener. Dropping it removes the file, unless it is another's by now.
///
/// Device and inode name it for sure only while the listener is open, which keeps the inode from being used
/// again: drop this before the socket.
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("msg=\"cannot remove the socket file\" path={:?} error=\"{error}\"", self.path);
        }
    }
}

/// A Unix listener with mode 0770 from its first moment.
///
/// # Errors
/// `InvalidInput`: the path cannot be one; `AddrInUse`: a live server has it; `AlreadyExists`: something else
/// than a socket is there; else as the system calls, with the path in the text.
pub(super) fn unix(path: &Path) -> io::Result<(Socket, SocketFile)> {
    let address = unix_address(path)?;
    remove_leftover(path, &address)?;
    let failed = |error: io::Error| {
        let advice = match error.kind() {
            ErrorKind::NotFound => ": its folder does not exist",
            ErrorKind::AddrInUse => ": another process made it at this moment",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot listen on {}: {error}{advice}", path.display()))
    };
    let socket = unix_socket().map_err(failed)?;
    let bound = bind_with_umask(&socket, &address);
    bound.map_err(failed)?;
    let made = fs::symlink_metadata(path).map_err(failed)?;
    let file = SocketFile { path: path.to_owned(), device: made.dev(), inode: made.ino() };
    socket.listen(LISTEN_BACKLOG).map_err(failed)?;
    Ok((socket, file))
}

/// The umask belongs to the whole process: one user at a time, and no other thread of it creates files.
fn bind_with_umask(socket: &Socket, address: &SockAddr) -> io::Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = umask(UNIX_UMASK);
    let bound = socket.bind(address);
    umask(before);
    bound
}

fn unix_socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)
}

fn unix_address(path: &Path) -> io::Result<SockAddr> {
    let bytes = path.as_os_str().as_bytes();
    // An empty path, or one that starts with a NUL, would name no file but an abstract address.
    let fault = if bytes.is_empty() {
        "it is empty".to_owned()
    } else if bytes.contains(&0) {
        "it contains a NUL byte".to_owned()
    } else if bytes.len() > UNIX_PATH_LEN_MAX {
        format!("it has {} bytes, a socket path has at most {UNIX_PATH_LEN_MAX}", bytes.len())
    } else {
        return SockAddr::unix(path);
    };
    Err(io::Error::new(ErrorKind::InvalidInput, format!("cannot listen on {path:?}: {fault}")))
}

/// Removes a socket file that nobody listens on.
fn remove_leftover(path: &Path, address: &SockAddr) -> io::Result<()> {
    let refused = |kind: ErrorKind, why: String| {
        Err(io::Error::new(kind, format!("cannot listen on {}: {why}", path.display())))
    };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        // Other faults of the path show again, and better, when it is bound.
        Err(_) => return Ok(()),
    };
    if !found.file_type().is_socket() {
        return refused(
            ErrorKind::AlreadyExists,
            "something that is not a socket is there; move it away or choose another path".to_owned(),
        );
    }
    match unix_socket()?.connect(address) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => remove_if_same(path, &found),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // Its backlog is full (EAGAIN), or it is not a stream socket (EPROTOTYPE): somebody is there.
        Ok(()) => refused(ErrorKind::AddrInUse, LIVE.to_owned()),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EPROTOTYPE)) => {
            refused(ErrorKind::AddrInUse, LIVE.to_owned())
        }
        Err(error) => refused(error.kind(), format!("cannot tell whether a server is there: {error}")),
    }
}

const LIVE: &str = "a live server holds it; stop that one or choose another path";

/// Removes what was found refusing, but not what another starting process put there since. A moment stays
/// between look and removal; two servers on one path are a mistake anyway.
fn remove_if_same(path: &Path, found: &Metadata) -> io::Result<()> {
    let key = |metadata: &Metadata| (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec());
    if fs::symlink_metadata(path).is_ok_and(|now| key(&now) == key(found)) {
        fs::remove_file(path).map_err(|error| {
            let text = format!("cannot remove the leftover {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        })?;
    }
    Ok(())
}
