//! A bound on what the workspace holds, while a command runs.
//!
//! Few file systems can be told a quota for a folder. So the free space of the workspace's file system is looked at a
//! few times a second, which costs microseconds, and only when much of it has gone is the workspace measured. A
//! command can thus go beyond its bound by what it writes within one look, and never by more than [`RESERVE_PERCENT`]
//! leaves the host.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::{dir::Type, sys::statvfs::statvfs};

use docket_schema::tool::Exceeded;

use super::{
    limits::Limits,
    tree::{self, Go, Met, Visitor, Walked},
};

/// How often the file system is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Measured at least once when so much has gone, or an eighth of the bound if that is less.
const STEP_BYTES: u64 = 64 * 1024 * 1024;
const STEP_FILES: u64 = 10_000;

/// What a command must have written for a file system that is nearly full to be its fault.
const NOTICED_BYTES: u64 = 1024 * 1024;

/// Of its file system what commands must leave free, in percent, and never more than this.
const RESERVE_PERCENT: u64 = 2;
const RESERVE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Measured at least so often, for others may free what a command takes.
const AT_LEAST_EVERY: Duration = Duration::from_secs(15);
/// The same where the file system counts no files.
const AT_LEAST_EVERY_UNCOUNTED: Duration = Duration::from_secs(3);

/// What a workspace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// On disk, in bytes.
    pub(super) bytes: u64,
    /// Files and folders.
    pub(super) files: u64,
}

/// What is known of a workspace from the commands before: many that each write little are seen as one that writes much.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The file system when the workspace was measured last.
    seen: Option<Free>,
    last: Option<Usage>,
}

impl Known {
    /// The next command's growth is counted from its own beginning.
    pub(super) fn forget(&mut self) {
        self.seen = None;
    }
}

/// Looks at one workspace during one command.
pub(super) struct Watch {
    workspace: PathBuf,
    limits: Limits,
    known: Arc<Mutex<Known>>,
    /// The file system when the command began.
    begun: Free,
    measured_at: Instant,
    /// Space of files without a name, which only processes hold.
    unnamed: Box<dyn Fn() -> u64 + Send>,
}

#[derive(Clone, Copy, Debug)]
struct Free {
    bytes: u64,
    files: u64,
    whole_bytes: u64,
    counts_files: bool,
}

impl Watch {
    /// From here on. `unnamed` tells the space of files that commands opened and removed.
    pub(super) fn begin(
        workspace: PathBuf,
        limits: Limits,
        known: Arc<Mutex<Known>>,
        unnamed: impl Fn() -> u64 + Send + 'static,
    ) -> io::Result<Self> {
        let begun = free(&workspace)?;
        known.lock().unwrap_or_else(PoisonError::into_inner).seen.get_or_insert(begun);
        let unnamed = Box::new(unnamed);
        Ok(Self { workspace, limits, known, begun, measured_at: Instant::now(), unnamed })
    }

    /// Whether the workspace is over its bound and this command made it larger. Cheap as long as little is written.
    pub(super) fn look(&mut self) -> io::Result<Option<Exceeded>> {
        let now = free(&self.workspace)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = |before: u64, after: u64, step: u64, bound: u64| {
            before.saturating_sub(after) >= step.min(bound / 8).max(1)
        };
        let seen = *known.seen.get_or_insert(now);
        let grows = gone(seen.bytes, now.bytes, STEP_BYTES, self.limits.disk_bytes)
            || gone(seen.files, now.files, STEP_FILES, self.limits.disk_files);
        let wrote = gone(self.begun.bytes, now.bytes, NOTICED_BYTES, self.limits.disk_bytes);
        let starves = wrote && now.bytes < (now.whole_bytes / 100 * RESERVE_PERCENT).min(RESERVE_BYTES_MAX);
        let every = if now.counts_files { AT_LEAST_EVERY } else { AT_LEAST_EVERY_UNCOUNTED };
        if !grows && !starves && self.measured_at.elapsed() < every {
            return Ok(None);
        }
        let (usage, walked) = measure(&self.workspace)?;
        let usage = Usage { bytes: usage.bytes + (self.unnamed)(), ..usage };
        let before = known.last.replace(usage);
        known.seen = Some(now);
        self.measured_at = Instant::now();
        let over = usage.bytes > self.limits.disk_bytes || usage.files > self.limits.disk_files;
        // One that only makes room in a workspace that is too full goes on.
        let grew = grows || before.is_some_and(|old| usage.bytes > old.bytes || usage.files > old.files);
        Ok((starves || grew && (over || walked == Walked::InPart)).then_some(Exceeded::Disk))
    }
}

fn free(workspace: &std::path::Path) -> io::Result<Free> {
    let stat = statvfs(workspace)?;
    let unit: u64 = stat.fragment_size();
    Ok(Free {
        bytes: stat.blocks_available() * unit,
        files: stat.files_available(),
        whole_bytes: stat.blocks() * unit,
        counts_files: stat.files() > 0,
    })
}

/// Measures a workspace. A file with several names counts once in bytes, and each name as a file.
pub(super) fn measure(workspace: &std::path::Path) -> io::Result<(Usage, Walked)> {
    let mut usage = Usage::default();
    let walked = tree::walk(tree::open_root(workspace)?, &mut usage)?;
    Ok((usage, walked))
}

impl Visitor for Usage {
    fn meet(&mut self, met: &Met<'_>) -> Go {
        const STAT_BLOCK: u64 = 512;
        self.files += 1;
        if let Ok(stat) = met.stat() {
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * STAT_BLOCK;
            let names = wide(stat.st_nlink).max(1);
            self.bytes += bytes / if met.kind == Type::Directory { 1 } else { names };
        }
        Go::Into
    }
}

/// The type differs between architectures.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_workspace_is_measured_without_its_links_targets() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(dir.path().join("a/b/file"), dir.path().join("a/again")).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let (usage, walked) = measure(dir.path()).unwrap();
        assert_eq!((usage.files, walked), (5, Walked::Whole));
        assert!((100_000..200_000).contains(&usage.bytes), "{usage:?}");
    }

    fn begin(workspace: &std::path::Path, limits: Limits) -> Watch {
        Watch::begin(workspace.to_owned(), limits, Arc::default(), || 0).unwrap()
    }

    #[test]
    fn many_commands_that_each_write_little_are_seen_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { disk_bytes: 16 << 20, ..crate::limits_of_this_host() };
        let known: Arc<Mutex<Known>> = Arc::default();
        let mut ended = None;
        for n in 0..40 {
            let mut watch = Watch::begin(dir.path().to_owned(), limits, Arc::clone(&known), || 0).unwrap();
            fs::write(dir.path().join(n.to_string()), vec![1; 1 << 20]).unwrap();
            ended = ended.or(watch.look().unwrap());
        }
        assert_eq!(ended, Some(Exceeded::Disk));
    }

    #[test]
    fn what_nests_without_end_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut at =
            nix::dir::Dir::open(dir.path(), nix::fcntl::OFlag::O_DIRECTORY, nix::sys::stat::Mode::empty())
                .unwrap();
        for _ in 0..tree::DEPTH_MAX + 5 {
            nix::sys::stat::mkdirat(&at, "d", nix::sys::stat::Mode::S_IRWXU).unwrap();
            at = tree::open_folder(std::os::fd::AsFd::as_fd(&at), c"d").unwrap();
        }
        let (usage, walked) = measure(dir.path()).unwrap();
        assert_eq!((usage.files, walked), (tree::DEPTH_MAX as u64, Walked::InPart));
        // Too long for a path: taken away from the top by moving what is below up.
        let top = dir.path();
        for n in 0..tree::DEPTH_MAX {
            let next = top.join("d/d");
            if !next.exists() {
                break;
            }
            fs::rename(next, top.join(format!("up{n}"))).unwrap();
            fs::remove_dir(top.join("d")).unwrap();
            fs::rename(top.join(format!("up{n}")), top.join("d")).unwrap();
        }
    }

    #[test]
    fn growth_beyond_the_bound_is_seen_and_what_was_there_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { disk_bytes: 8 << 20, disk_files: 1000, ..crate::limits_of_this_host() };
        let mut watch = begin(dir.path(), limits);
        fs::write(dir.path().join("small"), vec![1; 1 << 20]).unwrap();
        assert_eq!(watch.look().unwrap(), None);
        fs::write(dir.path().join("large"), vec![1; 9 << 20]).unwrap();
        assert_eq!(watch.look().unwrap(), Some(Exceeded::Disk));
        assert_eq!(watch.look().unwrap(), None, "nothing was written since");
        let mut watch = begin(dir.path(), Limits { disk_bytes: 1 << 30, ..limits });
        for n in 0..1100 {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        assert_eq!(watch.look().unwrap(), Some(Exceeded::Disk), "too many files");
    }
}
