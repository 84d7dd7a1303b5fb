//! What must be gone at the end: a directory, and the wish to be interrupted politely.

use std::fs::{self, DirBuilder};
use std::hash::BuildHasher;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

/// Directories of this name that are tried before giving up.
const NAME_ATTEMPTS: u32 = 16;
/// Room for a socket's file name within the 107 bytes of a Unix socket path.
const DIRECTORY_LEN_MAX: usize = 80;

/// A directory for this process alone; removed with all that is in it when dropped.
#[derive(Debug)]
pub(in crate::cli) struct Room(PathBuf);

impl Room {
    /// Makes one below TMPDIR, or below /tmp where that is too long for a socket's path.
    pub(in crate::cli) fn make() -> io::Result<Self> {
        let mut parent = std::env::temp_dir();
        if parent.as_os_str().len() > DIRECTORY_LEN_MAX - "/tautline-demo-0123456789abcdef".len() {
            parent = PathBuf::from("/tmp");
        }
        for _ in 0..NAME_ATTEMPTS {
            let random = std::hash::RandomState::new().hash_one(0_u8);
            let path = parent.join(format!("tautline-demo-{random:016x}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    pub(in crate::cli) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Nobody is left to tell, and a second try would end no better.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether Ctrl-C (or SIGTERM, SIGHUP) asked for the end.
#[derive(Clone, Debug)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes these signals from their default action. Call it before other threads start: they must inherit
    /// the mask. Children inherit it too; server and agents read the same signals from their loop.
    pub(super) fn watch() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGHUP);
        signals.thread_block()?;
        let interrupt = Self::never();
        let flag = Arc::clone(&interrupt.0);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if signals.wait().is_ok() {
                flag.store(true, Ordering::Relaxed);
            }
        })?;
        Ok(interrupt)
    }

    fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    pub(super) fn happened(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_private_and_goes_with_what_is_in_it() {
        use std::os::unix::fs::PermissionsExt;
        let room = Room::make().unwrap();
        let path = room.path().to_path_buf();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        fs::create_dir(path.join("a")).unwrap();
        fs::write(path.join("a/b"), b"c").unwrap();
        drop(room);
        assert!(!path.exists());
    }
}
