//! The messages between docket and a sandbox's init, as length-prefixed JSON over one socket. The same
//! binary writes and reads them, so they are not versioned.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::config::SecretEnv;

/// Larger than any plan with its stdin bytes; guards against reading garbage as a length.
pub(super) const FRAME_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Uid and gid of the command inside.
pub(super) const INNER_ID: u32 = 1000;

/// The private home inside.
pub(super) const INNER_HOME: &str = "/home/docket";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SandboxBackend {
    Bubblewrap,
    Namespaces,
    None,
}

impl SandboxBackend {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bubblewrap",
            Self::Namespaces => "namespaces",
            Self::None => "none",
        }
    }
}

/// One entry of the root inside, in mount order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MountEntry {
    /// A tree or file of the host, read-only.
    ReadOnly { source: PathBuf, target: PathBuf },
    /// A tree of the host, writable.
    Writable { source: PathBuf, target: PathBuf },
    /// A separate empty folder with a size limit.
    Tmpfs { target: PathBuf, bytes: u64, inodes: u64 },
    /// A device node of the host.
    Device { path: PathBuf },
    /// A file generated for the inside.
    File { target: PathBuf, text: String },
    /// A symbolic link.
    Link { target: PathBuf, points_to: PathBuf },
    /// Hides a file of an earlier entry that holds a credential: it reads as empty.
    Empty { target: PathBuf },
}

/// The part of a sandbox that is the same for all its commands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SandboxPlan {
    pub(super) backend: SandboxBackend,
    /// Absolute path of bubblewrap, for that backend.
    pub(super) bubblewrap: Option<PathBuf>,
    pub(super) entries: Vec<MountEntry>,
    /// The workspace as commands see it.
    pub(super) workspace: PathBuf,
    /// The host uid and gid of commands when docket is root.
    pub(super) drop_to: Option<(u32, u32)>,
    pub(super) landlock: bool,
    /// Limit on processes and threads of a call.
    pub(super) processes: u64,
    pub(super) env: Vec<(OsString, OsString)>,
}

impl SandboxPlan {
    /// Returns the mounted trees and whether they are writable. Landlock allows exactly these.
    pub(super) fn mount_paths(&self) -> impl Iterator<Item = (&PathBuf, MountAccess)> {
        self.entries.iter().filter_map(|entry| match entry {
            MountEntry::ReadOnly { target, .. } | MountEntry::File { target, .. } => {
                Some((target, MountAccess::Read))
            }
            MountEntry::Writable { target, .. } | MountEntry::Tmpfs { target, .. } => {
                Some((target, MountAccess::Write))
            }
            MountEntry::Device { path } => Some((path, MountAccess::Device)),
            MountEntry::Link { .. } | MountEntry::Empty { .. } => None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountAccess {
    Read,
    Write,
    Device,
}

/// The part that belongs to one command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CommandPlan {
    pub(super) argv: Vec<OsString>,
    /// Relative to the workspace, without `..`.
    pub(super) cwd: PathBuf,
    /// Paths in the workspace that are made read-only if they still exist and are not links.
    pub(super) protected: Vec<PathBuf>,
    /// Folders in the workspace that cannot be renamed or removed: each is bind-mounted onto
    /// itself.
    pub(super) pinned: Vec<PathBuf>,
    /// Sockets and FIFOs in the workspace that belong to other processes: each is covered with an
    /// empty file.
    pub(super) covered: Vec<PathBuf>,
    /// The command's standard input.
    pub(super) stdin: StdinSource,
    /// Standard output is a terminal of the call: it also becomes the command's input and the
    /// controlling terminal of its session.
    pub(super) terminal: bool,
    /// Set if the call has network access: hosts reached without the proxy, in `NO_PROXY` format.
    pub(super) no_proxy: Option<String>,
    /// Variables of this command, which override those of the plan.
    pub(super) env: SecretEnv,
}

/// Source of a command's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StdinSource {
    Empty,
    /// The bytes of the next frame.
    Frame,
    /// A pipe whose other end is passed to docket.
    Open,
}

/// The single report of the init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum InitReport {
    Exit(i32),
    Signal(i32),
    /// The working folder is missing, not a folder, or outside the workspace.
    BadCwd,
    /// `execve` failed.
    ExecFailed {
        errno: i32,
    },
    /// A layer could not be built.
    SetupFailed {
        step: String,
        errno: i32,
    },
}

/// Writes the length, then the bytes.
pub(super) fn write_frame(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads a frame written by [`write_frame`].
pub(super) fn read_frame(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads a frame of JSON.
pub(super) fn read_json_frame<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<T> {
    Ok(serde_json::from_slice(&read_frame(input)?)?)
}
