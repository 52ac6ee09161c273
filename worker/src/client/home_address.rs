//! Resolves the address of a home's coordinator: the process that currently serves the home.
//!
//! Several processes may share a home, and the one that serves it may end while the others continue: the next
//! one serves at another port. A client of a home therefore has no fixed address. Each new connection reads
//! the home's lock file, in which the owner announces its address. Invariant: an address is used only while a
//! process holds the lock. A dead owner's address may now belong to an unrelated process, which must not
//! receive a token.

use std::{
    fs::File,
    io::{self, Read as _},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// The URL of requests to a home. It has no port because the announced address includes it.
pub(super) const HOME_URL: &str = "http://localhost/";

/// Longest announcement that is read, in bytes.
const ANNOUNCEMENT_BYTES_MAX: u64 = 64 * 1024;

/// Returns the address of the coordinator that holds this lock file, for
/// [`CoordinatorClient::new`](super::CoordinatorClient::new). It stays valid when another process takes the
/// lock and announces itself there.
///
/// Returns `None` for a path that is not absolute.
pub fn home_address(lock_file: &Path) -> Option<String> {
    Url::from_file_path(lock_file).ok().map(String::from)
}

/// Returns the lock file that was passed to [`home_address`].
pub(super) fn lock_file_from_url(address: &Url) -> Option<PathBuf> {
    (address.scheme() == "file").then(|| address.to_file_path().ok()).flatten()
}

/// Resolves every name to the address announced by the owner of a lock file.
#[derive(Debug)]
pub(super) struct HomeResolver {
    lock_file: PathBuf,
}

impl HomeResolver {
    pub(super) const fn new(lock_file: PathBuf) -> Self {
        Self { lock_file }
    }
}

impl Resolve for HomeResolver {
    fn resolve(&self, _: Name) -> Resolving {
        // Two short system calls and a small read: not worth a thread.
        let found = read_announced_address(&self.lock_file);
        Box::pin(async move { Ok(Box::new(std::iter::once(found?)) as Addrs) })
    }
}

/// Returns the address of the process that holds the lock.
fn read_announced_address(lock_file: &Path) -> io::Result<SocketAddr> {
    let file = File::open(lock_file)?;
    if !is_locked(&file)? {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "no process serves this home"));
    }
    let mut text = String::new();
    file.take(ANNOUNCEMENT_BYTES_MAX).read_to_string(&mut text)?;
    let announced: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let url = announced["address"].as_str().and_then(|address| Url::parse(address).ok());
    let address = url.and_then(|url| url.socket_addrs(|| None).ok()?.into_iter().next());
    address.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotConnected, "the process that owns this home does not serve it yet")
    })
}

fn is_locked(file: &File) -> io::Result<bool> {
    let mut lock = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).expect("lock kinds are 0, 1 and 2"),
        l_whence: i16::try_from(libc::SEEK_SET).expect("0"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}
