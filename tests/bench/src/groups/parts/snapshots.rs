//! Snapshots of a large repository: pinned, restored, and captured after a file tool and after a command.
//!
//! The cost of a walk is a multiple of a bare parallel stat walk of the same tree (`read_dir` and the
//! metadata of every entry, on as many threads), alternating with it; the cost of creating the tree is a
//! multiple of `git checkout-index` on the same file system.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use docket_schema::content::WorkspacePath;
use docket_worker::{
    process::run_git,
    workspace::{
        BaseSource, DirtyTreePolicy, MemoryBlobs, PinOptions, Workspace, WorkspaceOptions, materialize,
        pin_base,
    },
};
use nix::sys::resource::{UsageWho, getrusage};

use crate::report::{BenchReport, EffortLevel, Samples};

/// Files per folder: between those of kernels and those of web applications.
const FILES_PER_FOLDER: usize = 20;
/// git checks out one in this many files of the source.
const CHECKOUT_EVERY: usize = 5;
/// The maximum number of threads, the same as in docket's walk.
const THREADS_MAX: usize = 4;

pub(crate) async fn measure(
    folder: &Path,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let files = effort.tree_files();
    let source = folder.join("source");
    make_source(&source, files).await?;
    let started = Instant::now();
    let mut blobs = MemoryBlobs::default();
    let scratch = folder.join("scratch");
    fs::create_dir_all(&scratch)?;
    let options = PinOptions { rev: Some("main".to_owned()), dirty: DirtyTreePolicy::Refuse, scratch };
    let pinned = pin_base(&BaseSource::Local(source.clone()), &options, &mut blobs).await?;
    let pin_ms = to_ms(started.elapsed());

    let checkout_ms = check_out(&source, &folder.join("checkout"), files).await?;
    let started = Instant::now();
    let options = WorkspaceOptions::new(folder.join("cache"));
    let mut workspace = materialize(&folder.join("workspace"), &pinned.base, &blobs, &options).await?;
    let materialize_ms = to_ms(started.elapsed());

    let started = Instant::now();
    let first = workspace.snapshot_walk()?;
    let first_ms = to_ms(started.elapsed());
    ensure!(first.is_empty(), "a fresh workspace differs from its base");
    report.set("snapshot_tree_files", files as f64);
    report.set("first_snapshot_files_read", first.files_read as f64);
    report.set("first_snapshot_ms", first_ms);
    report.set("pin_ms", pin_ms);
    report.set("materialize_ms", materialize_ms);
    report.set("materialize_ratio", materialize_ms / checkout_ms);
    time_changes(&mut workspace, files, effort, report)
}

/// Changes one file repeatedly.
fn time_changes(
    workspace: &mut Workspace,
    files: usize,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let root = workspace.path().to_owned();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let (mut named, mut bare, mut walked, mut ratios) =
        (Samples::default(), Samples::default(), Samples::default(), Samples::default());
    let (mut bare_cpu, mut walked_cpu) = (Duration::ZERO, Duration::ZERO);
    for round in 0..effort.snapshots_per_kind() {
        let path = file_path(round * 997 % files);
        let (time, cpu, seen) = time_work(|| stat_walk(&root, threads))?;
        let seen = seen.context("the bare walk failed")?;
        ensure!(seen > files, "the bare walk saw {seen} entries");
        bare_cpu += cpu;
        write_file(&root, &path, round, "command")?;
        let (walk_time, cpu, delta) = time_work(|| workspace.snapshot_walk())?;
        ensure!(delta?.changes.len() == 1, "one file was changed by a command");
        walked_cpu += cpu;
        bare.push_ms(time);
        walked.push_ms(walk_time);
        ratios.push(walk_time.as_secs_f64() / time.as_secs_f64());

        write_file(&root, &path, round, "tool")?;
        let name = [WorkspacePath::new(path).context("a plain path")?];
        let (time, _, delta) = time_work(|| workspace.snapshot_paths(&name))?;
        ensure!(delta?.changes.len() == 1, "one file was changed by a file tool");
        named.push_ms(time);
    }
    report.set_percentile("snapshot_file_tool_ms_p50", &named, 50);
    report.set_percentile("snapshot_walk_ratio", &ratios, 50);
    report.set("snapshot_walk_cpu_ratio", walked_cpu.as_secs_f64() / bare_cpu.as_secs_f64());
    report.set_percentile("snapshot_walk_ms_p50", &walked, 50);
    report.set_percentile("bare_stat_walk_ms_p50", &bare, 50);
    Ok(())
}

/// Returns the wall time of `work` and the processor time of this process.
fn time_work<T>(work: impl FnOnce() -> T) -> anyhow::Result<(Duration, Duration, T)> {
    let before = cpu_time()?;
    let started = Instant::now();
    let done = work();
    let took = started.elapsed();
    Ok((took, cpu_time()?.saturating_sub(before), done))
}

fn cpu_time() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = |time: nix::sys::time::TimeVal| {
        u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or_default()
    };
    Ok(Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time())))
}

fn to_ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Three levels of folders, like a source tree.
fn file_path(file: usize) -> String {
    let folder = file / FILES_PER_FOLDER;
    format!("area_{:02}/part_{:02}/unit_{:04}/file_{file:05}.rs", folder / 250, folder / 25 % 10, folder)
}

fn write_file(root: &Path, path: &str, round: usize, by: &str) -> io::Result<()> {
    fs::write(root.join(path), format!("// Changed by a {by} in round {round}.\n"))
}

/// Creates a repository with one commit, without a work tree.
async fn make_source(source: &Path, files: usize) -> anyhow::Result<()> {
    fs::create_dir_all(source)?;
    git_with_stdin(&["init", "-q", "-b", "main", "."], source, Vec::new()).await?;
    let mut stream = String::new();
    for file in 0..files {
        let text = format!("// File {file}.\n{}", "fn unit() -> u32 { 7 }\n".repeat(10 + file % 50));
        write!(stream, "blob\nmark :{}\ndata {}\n{text}\n", file + 1, text.len())?;
    }
    stream.push_str(
        "commit refs/heads/main\ncommitter bench <bench@localhost> 1700000000 +0000\ndata 3\none\n",
    );
    for file in 0..files {
        writeln!(stream, "M 100644 :{} {}", file + 1, file_path(file))?;
    }
    git_with_stdin(&["fast-import", "--quiet", "--depth=0"], source, stream.into_bytes()).await
}

/// Extrapolates git's time to write the same files from one in [`CHECKOUT_EVERY`] of them: whole folders,
/// since all files are alike. Writing all of them would mean 50,000 more files to create and remove.
async fn check_out(source: &Path, to: &Path, files: usize) -> anyhow::Result<f64> {
    git_with_stdin(&["read-tree", "main"], source, Vec::new()).await?;
    let written = files / CHECKOUT_EVERY;
    let mut paths = String::new();
    for file in 0..written {
        writeln!(paths, "{}", file_path(file))?;
    }
    let started = Instant::now();
    let prefix = format!("--prefix={}/", to.to_str().context("a folder whose name is text")?);
    git_with_stdin(&["checkout-index", "-q", &prefix, "--stdin"], source, paths.into_bytes()).await?;
    // Kept until the end: ext4 is slow to create files where as many were just removed.
    Ok(to_ms(started.elapsed()) * files as f64 / written as f64)
}

async fn git_with_stdin(args: &[&str], folder: &Path, stdin: Vec<u8>) -> anyhow::Result<()> {
    let output = run_git(args, folder, &[], stdin).await?;
    ensure!(output.is_success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[derive(Default)]
struct WalkQueue {
    pending: Vec<PathBuf>,
    running: usize,
    seen: usize,
    failed: Option<io::Error>,
}

/// Reads the metadata of every entry below `root`; returns the number of entries.
fn stat_walk(root: &Path, threads: usize) -> io::Result<usize> {
    let state = Mutex::new(WalkQueue { pending: vec![root.to_owned()], ..WalkQueue::default() });
    let news = Condvar::new();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| run_stat_worker(&state, &news));
        }
    });
    let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.failed.map_or(Ok(state.seen), Err)
}

fn run_stat_worker(state: &Mutex<WalkQueue>, news: &Condvar) {
    let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(folder) = now.pending.pop() {
            now.running += 1;
            drop(now);
            let mut below = Vec::new();
            let seen = stat_folder(&folder, &mut below);
            now = state.lock().unwrap_or_else(PoisonError::into_inner);
            now.running -= 1;
            now.pending.append(&mut below);
            match seen {
                Ok(seen) => now.seen += seen,
                Err(error) => now.failed = Some(error),
            }
            if now.pending.len() > 1 || (now.running == 0 && now.pending.is_empty()) {
                news.notify_all();
            }
        } else if now.running == 0 {
            return;
        } else {
            now = news.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn stat_folder(folder: &Path, below: &mut Vec<PathBuf>) -> io::Result<usize> {
    let mut seen = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Through the handle of the folder, and without following links.
        if entry.metadata()?.is_dir() {
            below.push(entry.path());
        }
        seen += 1;
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_walk_counts_every_entry_once() {
        let folder = tempfile::tempdir().expect("a folder");
        for file in 0..130 {
            let path = folder.path().join(file_path(file));
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, "x").expect("written");
        }
        let folders = 7 + 1 + 1;
        for threads in [1, 3] {
            assert_eq!(stat_walk(folder.path(), threads).expect("reads"), 130 + folders);
        }
    }
}
