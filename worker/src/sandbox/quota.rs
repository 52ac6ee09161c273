//! A bound on what the workspace holds, while a command runs.
//!
//! Few file systems can be told a quota for a folder. So the free space of the workspace's file system is looked at a
//! few times a second, which costs microseconds, and only when much of it has gone is the workspace measured. A
//! command can thus go beyond its bound by what it writes within one look, and never by more than [`RESERVE_PERCENT`]
//! leaves the host.

use std::{
    io,
    path::PathBuf,
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

/// Of its file system what commands must leave free, in percent.
const RESERVE_PERCENT: u64 = 2;

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

/// Looks at one workspace during one command.
pub(super) struct Watch {
    workspace: PathBuf,
    limits: Limits,
    seen: Free,
    /// What the workspace held when it was measured last in this command.
    last: Option<Usage>,
    measured_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Free {
    bytes: u64,
    files: u64,
    whole_bytes: u64,
    counts_files: bool,
}

impl Watch {
    pub(super) fn begin(workspace: PathBuf, limits: Limits) -> io::Result<Self> {
        let seen = free(&workspace)?;
        Ok(Self { workspace, limits, seen, last: None, measured_at: Instant::now() })
    }

    /// Whether the workspace is over its bound and this command made it larger. Cheap as long as little is written.
    pub(super) fn look(&mut self) -> io::Result<Option<Exceeded>> {
        let now = free(&self.workspace)?;
        let gone = |before: u64, after: u64, step: u64, bound: u64| {
            before.saturating_sub(after) >= step.min(bound / 8).max(1)
        };
        let grows = gone(self.seen.bytes, now.bytes, STEP_BYTES, self.limits.disk_bytes)
            || gone(self.seen.files, now.files, STEP_FILES, self.limits.disk_files);
        let every = if now.counts_files { AT_LEAST_EVERY } else { AT_LEAST_EVERY_UNCOUNTED };
        if !grows && self.measured_at.elapsed() < every {
            return Ok(None);
        }
        let (usage, walked) = measure(&self.workspace)?;
        let before = self.last.replace(usage);
        (self.seen, self.measured_at) = (now, Instant::now());
        let over = usage.bytes > self.limits.disk_bytes || usage.files > self.limits.disk_files;
        // One that only makes room in a workspace that is too full goes on.
        let grew = grows || before.is_some_and(|old| usage.bytes > old.bytes || usage.files > old.files);
        let starves = now.bytes < now.whole_bytes / 100 * RESERVE_PERCENT;
        Ok((grew && (over || starves || walked == Walked::TooDeep)).then_some(Exceeded::Disk))
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

    #[test]
    fn what_nests_without_end_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let deep: PathBuf = (0..tree::DEPTH_MAX + 5).map(|_| "d").collect();
        fs::create_dir_all(dir.path().join(deep)).unwrap();
        assert_eq!(measure(dir.path()).unwrap().1, Walked::TooDeep);
    }

    #[test]
    fn growth_beyond_the_bound_is_seen_and_what_was_there_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let limits =
            Limits { disk_bytes: 8 << 20, disk_files: 1000, ..crate::sandbox::limits_of_this_host() };
        let mut watch = Watch::begin(dir.path().to_owned(), limits).unwrap();
        fs::write(dir.path().join("small"), vec![1; 1 << 20]).unwrap();
        assert_eq!(watch.look().unwrap(), None);
        fs::write(dir.path().join("large"), vec![1; 9 << 20]).unwrap();
        assert_eq!(watch.look().unwrap(), Some(Exceeded::Disk));
        assert_eq!(watch.look().unwrap(), None, "nothing was written since");
        let mut watch =
            Watch::begin(dir.path().to_owned(), Limits { disk_bytes: 1 << 30, ..limits }).unwrap();
        for n in 0..1100 {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        assert_eq!(watch.look().unwrap(), Some(Exceeded::Disk), "too many files");
    }
}
