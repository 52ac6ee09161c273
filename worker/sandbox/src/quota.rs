//! Limits the disk usage of the workspace while a command runs.
//!
//! Few file systems support a quota for a folder. So the free space of the workspace's file system is checked
//! several times a second, which costs microseconds, and the workspace is measured only when much of it is
//! gone. A command can thus exceed its limit by what it writes between two checks, and never by more than
//! [`RESERVE_PERCENT`] leaves to the host.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::{dir::Type, sys::statvfs::statvfs};

use docket_schema::tool::ExceededResource;

use super::{
    limits::Limits,
    safe_walk::{self, WalkAction, WalkCoverage, WalkEntry, WalkVisitor},
};

/// Interval between checks of the file system.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The workspace is measured when this much free space is gone, or an eighth of the limit if that
/// is less.
const GROWTH_STEP_BYTES: u64 = 64 * 1024 * 1024;
const GROWTH_STEP_FILES: u64 = 10_000;

/// Minimum size a command must have written to be blamed for a nearly full file system.
const SIGNIFICANT_BYTES: u64 = 1024 * 1024;

/// Share of the file system, in percent, that commands must leave free, up to the limit below.
const RESERVE_PERCENT: u64 = 2;
const RESERVE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Maximum time between measurements, because other processes may free what a command takes.
const MEASURE_INTERVAL: Duration = Duration::from_secs(15);
/// The same for a file system that does not count files.
const MEASURE_INTERVAL_UNCOUNTED: Duration = Duration::from_secs(3);

/// Disk usage of a workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DiskUsage {
    /// Size on disk, in bytes.
    pub(super) bytes: u64,
    /// Number of files and folders.
    pub(super) files: u64,
}

/// Usage carried over from earlier commands, so that many commands that each write little are treated like
/// one that writes much.
#[derive(Debug, Default)]
pub(super) struct UsageHistory {
    /// Free space when the workspace was last measured.
    measured_free: Option<FreeSpace>,
    last_usage: Option<DiskUsage>,
}

impl UsageHistory {
    /// Counts the next command's growth from its own start.
    pub(super) fn reset_baseline(&mut self) {
        self.measured_free = None;
    }
}

/// Watches one workspace during one command.
pub(super) struct DiskWatch {
    workspace: PathBuf,
    limits: Limits,
    history: Arc<Mutex<UsageHistory>>,
    /// Free space when the command began.
    initial_free: FreeSpace,
    measured_at: Instant,
    /// Returns the space of deleted files that processes still hold open.
    deleted_file_bytes: Box<dyn Fn() -> u64 + Send>,
}

#[derive(Clone, Copy, Debug)]
struct FreeSpace {
    bytes: u64,
    files: u64,
    total_bytes: u64,
    counts_files: bool,
}

impl DiskWatch {
    /// Starts watching. `unnamed` returns the space of files that commands opened and removed.
    pub(super) fn begin(
        workspace: PathBuf,
        limits: Limits,
        known: Arc<Mutex<UsageHistory>>,
        unnamed: impl Fn() -> u64 + Send + 'static,
    ) -> io::Result<Self> {
        let begun = read_free_space(&workspace)?;
        known.lock().unwrap_or_else(PoisonError::into_inner).measured_free.get_or_insert(begun);
        let unnamed = Box::new(unnamed);
        Ok(Self {
            workspace,
            limits,
            history: known,
            initial_free: begun,
            measured_at: Instant::now(),
            deleted_file_bytes: unnamed,
        })
    }

    /// Checks whether the workspace is over its limit and this command made it larger. Cheap as long as
    /// little is written.
    pub(super) fn check_usage(&mut self) -> io::Result<Option<ExceededResource>> {
        let now = read_free_space(&self.workspace)?;
        let mut known = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = |before: u64, after: u64, step: u64, bound: u64| {
            before.saturating_sub(after) >= step.min(bound / 8).max(1)
        };
        let seen = *known.measured_free.get_or_insert(now);
        let grows = gone(seen.bytes, now.bytes, GROWTH_STEP_BYTES, self.limits.disk_bytes)
            || gone(seen.files, now.files, GROWTH_STEP_FILES, self.limits.disk_files);
        let wrote = gone(self.initial_free.bytes, now.bytes, SIGNIFICANT_BYTES, self.limits.disk_bytes);
        let starves = wrote && now.bytes < (now.total_bytes / 100 * RESERVE_PERCENT).min(RESERVE_BYTES_MAX);
        let every = if now.counts_files { MEASURE_INTERVAL } else { MEASURE_INTERVAL_UNCOUNTED };
        if !grows && !starves && self.measured_at.elapsed() < every {
            return Ok(None);
        }
        let (usage, walked) = measure_usage(&self.workspace)?;
        let usage = DiskUsage { bytes: usage.bytes + (self.deleted_file_bytes)(), ..usage };
        let before = known.last_usage.replace(usage);
        known.measured_free = Some(now);
        self.measured_at = Instant::now();
        let over = usage.bytes > self.limits.disk_bytes || usage.files > self.limits.disk_files;
        // A command that only frees space in a workspace over its limit may continue.
        let grew = grows || before.is_some_and(|old| usage.bytes > old.bytes || usage.files > old.files);
        Ok((starves || grew && (over || walked == WalkCoverage::Partial)).then_some(ExceededResource::Disk))
    }
}

fn read_free_space(workspace: &std::path::Path) -> io::Result<FreeSpace> {
    let stat = statvfs(workspace)?;
    let unit: u64 = stat.fragment_size();
    Ok(FreeSpace {
        bytes: stat.blocks_available() * unit,
        files: stat.files_available(),
        total_bytes: stat.blocks() * unit,
        counts_files: stat.files() > 0,
    })
}

/// Measures a workspace. A file with several names counts once in bytes, and once per name as a
/// file.
pub(super) fn measure_usage(workspace: &std::path::Path) -> io::Result<(DiskUsage, WalkCoverage)> {
    let mut usage = DiskUsage::default();
    let walked = safe_walk::walk(safe_walk::open_root(workspace)?, &mut usage)?;
    Ok((usage, walked))
}

impl WalkVisitor for DiskUsage {
    fn visit_entry(&mut self, met: &WalkEntry<'_>) -> WalkAction {
        const STAT_BLOCK: u64 = 512;
        self.files += 1;
        if let Ok(stat) = met.stat() {
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * STAT_BLOCK;
            let names = to_u64(stat.st_nlink).max(1);
            self.bytes += bytes / if met.kind == Type::Directory { 1 } else { names };
        }
        WalkAction::Descend
    }
}

/// The type differs between architectures.
fn to_u64(number: impl Into<u64>) -> u64 {
    number.into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn link_targets_are_not_measured() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(dir.path().join("a/b/file"), dir.path().join("a/again")).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let (usage, walked) = measure_usage(dir.path()).unwrap();
        assert_eq!((usage.files, walked), (5, WalkCoverage::Complete));
        assert!((100_000..200_000).contains(&usage.bytes), "{usage:?}");
    }

    fn begin_watch(workspace: &std::path::Path, limits: Limits) -> DiskWatch {
        DiskWatch::begin(workspace.to_owned(), limits, Arc::default(), || 0).unwrap()
    }

    #[test]
    fn small_writes_of_many_commands_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { disk_bytes: 16 << 20, ..crate::limits_of_this_host() };
        let known: Arc<Mutex<UsageHistory>> = Arc::default();
        let mut ended = None;
        for n in 0..40 {
            let mut watch =
                DiskWatch::begin(dir.path().to_owned(), limits, Arc::clone(&known), || 0).unwrap();
            fs::write(dir.path().join(n.to_string()), vec![1; 1 << 20]).unwrap();
            ended = ended.or(watch.check_usage().unwrap());
        }
        assert_eq!(ended, Some(ExceededResource::Disk));
    }

    #[test]
    fn endless_nesting_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let mut at =
            nix::dir::Dir::open(dir.path(), nix::fcntl::OFlag::O_DIRECTORY, nix::sys::stat::Mode::empty())
                .unwrap();
        for _ in 0..safe_walk::DEPTH_MAX + 5 {
            nix::sys::stat::mkdirat(&at, "d", nix::sys::stat::Mode::S_IRWXU).unwrap();
            at = safe_walk::open_folder(std::os::fd::AsFd::as_fd(&at), c"d").unwrap();
        }
        let (usage, walked) = measure_usage(dir.path()).unwrap();
        assert_eq!((usage.files, walked), (safe_walk::DEPTH_MAX as u64, WalkCoverage::Partial));
        // Too long for a path: removed from the top by moving the levels below up.
        let top = dir.path();
        for n in 0..safe_walk::DEPTH_MAX {
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
    fn growth_beyond_the_limit_is_detected_but_existing_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { disk_bytes: 8 << 20, disk_files: 1000, ..crate::limits_of_this_host() };
        let mut watch = begin_watch(dir.path(), limits);
        fs::write(dir.path().join("small"), vec![1; 1 << 20]).unwrap();
        assert_eq!(watch.check_usage().unwrap(), None);
        fs::write(dir.path().join("large"), vec![1; 9 << 20]).unwrap();
        assert_eq!(watch.check_usage().unwrap(), Some(ExceededResource::Disk));
        assert_eq!(watch.check_usage().unwrap(), None, "nothing was written since");
        let mut watch = begin_watch(dir.path(), Limits { disk_bytes: 1 << 30, ..limits });
        for n in 0..1100 {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        assert_eq!(watch.check_usage().unwrap(), Some(ExceededResource::Disk), "too many files");
    }
}
