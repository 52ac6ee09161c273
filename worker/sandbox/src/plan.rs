//! What docket tells a sandbox's init and what the init answers, both as length-prefixed JSON over one
//! socket. Written and read by the same binary, so it has no versions.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::config::SecretEnv;

/// Larger than any plan with its bytes for stdin; guards against reading garbage as a length.
pub(super) const FRAME_BYTES_MAX: usize = 32 * 1024 * 1024;

/// uid and gid of the command inside.
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

/// One thing in the root inside, in the order in which it is laid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MountEntry {
    /// A tree or file of the host, readable.
    ReadOnly { source: PathBuf, target: PathBuf },
    /// A tree of the host, writable.
    Writable { source: PathBuf, target: PathBuf },
    /// An empty folder of its own with a size.
    Tmpfs { target: PathBuf, bytes: u64, inodes: u64 },
    /// A device node of the host.
    Device { path: PathBuf },
    /// A file made up for the inside.
    File { target: PathBuf, text: String },
    /// A symbolic link.
    Link { target: PathBuf, points_to: PathBuf },
    /// Nothing is to be read there: a file of what was laid before that holds a credential.
    Empty { target: PathBuf },
}

/// The part of a sandbox that is the same for all its commands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SandboxPlan {
    pub(super) backend: SandboxBackend,
    /// Absolute path of bubblewrap, with that backend.
    pub(super) bubblewrap: Option<PathBuf>,
    pub(super) entries: Vec<MountEntry>,
    /// The workspace as commands see it.
    pub(super) workspace: PathBuf,
    /// The host's uid and gid that commands get, when docket is root.
    pub(super) drop_to: Option<(u32, u32)>,
    pub(super) landlock: bool,
    /// Processes and threads of a call.
    pub(super) processes: u64,
    pub(super) env: Vec<(OsString, OsString)>,
}

impl SandboxPlan {
    /// Mounted trees and whether they can be written: what Landlock allows is exactly what the plan lays.
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

/// The part that is one command's own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CommandPlan {
    pub(super) argv: Vec<OsString>,
    /// Relative to the workspace, no `..`.
    pub(super) cwd: PathBuf,
    /// Below the workspace, made read-only where they still exist and are no links.
    pub(super) protected: Vec<PathBuf>,
    /// Below the workspace, folders that cannot be renamed or removed: laid over themselves.
    pub(super) pinned: Vec<PathBuf>,
    /// Below the workspace, sockets and FIFOs of others: an empty file is laid over each.
    pub(super) covered: Vec<PathBuf>,
    /// What the command reads.
    pub(super) stdin: StdinSource,
    /// Standard output is a terminal of the call's own: it becomes the command's input as well, and the
    /// one that controls its session.
    pub(super) terminal: bool,
    /// It has a way out: what is reached without it, as `NO_PROXY` has it.
    pub(super) no_proxy: Option<String>,
    /// Variables of its own, over those of the plan.
    pub(super) env: SecretEnv,
}

/// What a command reads on its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StdinSource {
    /// Nothing.
    Empty,
    /// The bytes of the frame that follows.
    Frame,
    /// A pipe whose other end is handed to docket.
    Open,
}

/// The init's one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum InitReport {
    Exit(i32),
    Signal(i32),
    /// The working folder is missing, no folder, or outside.
    BadCwd,
    /// `execve` failed.
    ExecFailed {
        errno: i32,
    },
    /// A wall could not be built.
    SetupFailed {
        step: String,
        errno: i32,
    },
}

/// Puts a length before the bytes.
pub(super) fn write_frame(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads what [`write_frame`] wrote.
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
