//! `docket checkout`: writes a run's workspace, as it was after a turn, into a folder.
//!
//! The folder is built under a temporary name next to its destination and moved into place once its
//! tree hash is verified, so a partial folder is never visible.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use docket_schema::snapshot::OmittedPath;
use docket_worker::workspace::{CheckoutReport, RestoreTarget, WorkspaceOptions, checkout};

use crate::{
    connect::{coordinator::Coordinator, resolve},
    context::CliContext,
    history::{
        blobs::RemoteBlobs,
        recorded_run::{RecordedRun, RunAtTurn},
    },
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// Maximum number of names listed of existing or missing files.
const NAMED_MAX: usize = 5;

/// Command-line arguments of `docket checkout`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Restores every file byte for byte: untracked files, modes, links, empty folders, and what the
model did with git (commits, stashes, branches). Your umask applies to the modes. The folder does
not depend on docket afterwards. Its tree hash is compared with the recorded one before it is
moved into place. Files that git ignores were never recorded. A file with several names (hard
links) is restored as separate files with the same content.

Examples:
  docket checkout 3f9c01ab /tmp/look
  docket checkout 3f9c01ab --turn 4 /tmp/look --force
  cd /tmp/look && git log --oneline && git status"
)]
pub(crate) struct CheckoutArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Folder to create; it must be empty or not exist
    dir: PathBuf,
    /// State after turn N [default: the last turn]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    /// Replace the folder and everything in it
    #[arg(long)]
    force: bool,
}

/// Creates the folder.
pub(crate) async fn run_checkout(cx: CliContext, args: CheckoutArgs) -> CliResult {
    let place = CheckoutTarget::inspect(&cx, &args.dir, args.force)?;
    let access = Coordinator::connect_for_reading(&cx, &args.id).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let past = RecordedRun::open(&cx, &access.client, run).await?;
    place.check_source_repository(&past)?;
    let after = past.at_turn(args.turn)?;
    after.note_if_open();
    let made = build_checkout(&cx, &access, &past, &after, &place).await?;
    access.close().await?;
    print_checkout(&cx, &past, &after, &place, &made);
    Ok(ExitKind::Ok)
}

async fn build_checkout(
    cx: &CliContext,
    access: &Coordinator,
    past: &RecordedRun,
    after: &RunAtTurn,
    place: &CheckoutTarget,
) -> CliResult<CheckoutReport> {
    let state = &after.state;
    let left_out: Vec<OmittedPath> =
        state.left_out.iter().map(|(path, why)| OmittedPath { path: path.clone(), why: *why }).collect();
    let target = RestoreTarget {
        overlay: &state.overlay,
        git_overlay: &state.git_overlay,
        left_out: &left_out,
        tree: after.tree_hash(past.base()),
    };
    let (making, permissions) = place.create_staging_dir()?;
    let options = WorkspaceOptions::new(cx.home.ensure_folder("cache")?);
    let made = checkout(making.path(), past.base(), &target, &RemoteBlobs(&access.client), &options).await;
    let made = made.fail_with(ExitKind::Failed, || {
        format!("cannot check out turn {} of run {}", after.turn, past.run.short())
    })?;
    fs::set_permissions(making.path(), permissions)
        .fail_with(ExitKind::Failed, || format!("cannot set the mode of {}", making.path().display()))?;
    place.move_into_place(making)?;
    Ok(made)
}

fn print_checkout(
    cx: &CliContext,
    past: &RecordedRun,
    after: &RunAtTurn,
    place: &CheckoutTarget,
    made: &CheckoutReport,
) {
    if cx.is_json() {
        display::print_json(&serde_json::json!({
            "run": past.run, "turn": after.turn, "ended": after.ended, "dir": place.dir, "tree": made.tree,
            "files": made.files, "missing": made.missing, "obeyed_by_git": made.obeyed_by_git,
        }));
        return;
    }
    let dir = display::sanitize_line(&place.dir.to_string_lossy()).into_owned();
    let short = past.run.short();
    display::print_line(&format!(
        "checked out run {short} after turn {} to {dir}: {} files, tree {}",
        after.turn, made.files, made.tree
    ));
    if !made.missing.is_empty() {
        let names = quote_names(made.missing.iter().map(|left| left.path.to_string()));
        display::print_note(&format!("not restored because they were never recorded: {names}"));
    }
    if !made.obeyed_by_git.is_empty() {
        let names = quote_names(made.obeyed_by_git.iter().map(ToString::to_string));
        display::print_note(&format!(
            "the run wrote {names}, which git will use when you run it there; review these files first"
        ));
    }
}

fn quote_names(names: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = names.map(|name| format!("`{}`", display::sanitize_line(&name))).collect();
    match all.len().checked_sub(NAMED_MAX) {
        Some(more @ 1..) => format!("{} and {more} more", all[..NAMED_MAX].join(", ")),
        Some(0) | None => all.join(", "),
    }
}

/// The destination folder.
struct CheckoutTarget {
    dir: PathBuf,
    /// Current state of the destination.
    state: TargetState,
}

enum TargetState {
    Missing,
    Empty,
    /// It exists and is replaced because --force was given.
    Replaced,
}

impl CheckoutTarget {
    fn inspect(cx: &CliContext, dir: &Path, force: bool) -> CliResult<Self> {
        let shown = display::sanitize_line(&dir.to_string_lossy()).into_owned();
        let refuse = |message: String| Err(CliError::new(ExitKind::Refused, message));
        let dir = std::path::absolute(dir)?;
        // Moving into place renames an entry of the parent, so the path must end with a name.
        if dir.parent().is_some() && dir.file_name().is_none() {
            let message = format!("{shown} ends with `..`; specify the folder by its real path");
            return Err(CliError::new(ExitKind::Usage, message));
        }
        let there = match fs::symlink_metadata(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => TargetState::Missing,
            Err(error) => {
                return Err(error).fail_with(ExitKind::Failed, || format!("cannot access {shown}"));
            }
            Ok(meta) if !meta.is_dir() => {
                return refuse(format!("{shown} exists and is not a folder; choose another"));
            }
            Ok(_) => {
                let names = fs::read_dir(&dir).and_then(|all| {
                    all.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                        .collect::<io::Result<Vec<String>>>()
                });
                let mut names = names.fail_with(ExitKind::Failed, || format!("cannot list {shown}"))?;
                names.sort();
                match (names.is_empty(), force) {
                    (true, _) => TargetState::Empty,
                    (false, true) => TargetState::Replaced,
                    (false, false) => {
                        let names = quote_names(names.into_iter());
                        return refuse(format!(
                            "{shown} is not empty, it contains {names}; use --force to replace everything in it"
                        ));
                    }
                }
            }
        };
        if matches!(there, TargetState::Replaced)
            && let Some(why) = protected_reason(cx, &dir)
        {
            return refuse(format!(
                "{shown} {why} and is never replaced, even with --force; choose another folder"
            ));
        }
        Ok(Self { dir, state: there })
    }

    /// Refuses to replace the repository of the run's task.
    fn check_source_repository(&self, past: &RecordedRun) -> CliResult<()> {
        let source = past.base().git.as_ref().map(|git| PathBuf::from(&git.source));
        match self.state {
            TargetState::Replaced if source.is_some_and(|source| contains_path(&self.dir, &source)) => {
                let dir = display::sanitize_line(&self.dir.to_string_lossy()).into_owned();
                let message =
                    format!("{dir} contains the repository that the task came from; choose another folder");
                Err(CliError::new(ExitKind::Refused, message))
            }
            TargetState::Missing | TargetState::Empty | TargetState::Replaced => Ok(()),
        }
    }

    /// Creates a private staging folder next to the destination; returns it with the final permissions.
    fn create_staging_dir(&self) -> CliResult<(tempfile::TempDir, fs::Permissions)> {
        let parent = self.dir.parent().unwrap_or(Path::new("/"));
        let failed = || format!("cannot create a folder in {}; check its permissions", parent.display());
        fs::create_dir_all(parent).fail_with(ExitKind::Failed, failed)?;
        // Like any new folder, subject to the caller's umask.
        let usual = fs::Permissions::from_mode(0o777);
        let made = tempfile::Builder::new().prefix(".docket-checkout-").permissions(usual).tempdir_in(parent);
        let made = made.fail_with(ExitKind::Failed, failed)?;
        let permissions =
            fs::symlink_metadata(made.path()).fail_with(ExitKind::Failed, failed)?.permissions();
        let closed = fs::Permissions::from_mode(0o700);
        fs::set_permissions(made.path(), closed).fail_with(ExitKind::Failed, failed)?;
        Ok((made, permissions))
    }

    /// Moves the staging folder into place.
    fn move_into_place(&self, made: tempfile::TempDir) -> CliResult<()> {
        let failed =
            || format!("cannot move the folder to {}; choose one that does not exist", self.dir.display());
        let old = match self.state {
            TargetState::Missing | TargetState::Empty => None,
            TargetState::Replaced => {
                let parent = self.dir.parent().unwrap_or(Path::new("/"));
                let grave = tempfile::Builder::new().prefix(".docket-replaced-").tempdir_in(parent);
                let grave = grave.fail_with(ExitKind::Failed, failed)?;
                fs::rename(&self.dir, grave.path().join("old")).fail_with(ExitKind::Failed, failed)?;
                Some(grave)
            }
        };
        if let Err(error) = fs::rename(made.path(), &self.dir) {
            if let Some(grave) = &old {
                // If the old folder cannot be moved back either, its guard must not delete it.
                if fs::rename(grave.path().join("old"), &self.dir).is_err() {
                    let kept = old.map(tempfile::TempDir::keep).unwrap_or_default();
                    let message = format!(
                        "cannot move the folder into place; its old contents are in {}",
                        kept.display()
                    );
                    return Err(error).fail_with(ExitKind::Failed, || message);
                }
            }
            return Err(error).fail_with(ExitKind::Failed, failed);
        }
        // The folder was renamed, so there is nothing left for the guard to remove.
        let _moved = made.keep();
        Ok(())
    }
}

/// Returns why a folder must never be replaced, if it contains more than the user can have meant.
fn protected_reason(cx: &CliContext, dir: &Path) -> Option<&'static str> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let here = std::env::current_dir().ok();
    if dir.parent().is_none() {
        Some("is the root of the file system")
    } else if home.is_some_and(|home| contains_path(dir, &home)) {
        Some("contains your home folder")
    } else if contains_path(dir, cx.home.path()) {
        Some("contains docket's home")
    } else {
        here.is_some_and(|here| contains_path(dir, &here)).then_some("contains the current folder")
    }
}

/// Whether `inner` is `dir` or lies inside it, with links resolved.
fn contains_path(dir: &Path, inner: &Path) -> bool {
    match (fs::canonicalize(dir), fs::canonicalize(inner)) {
        (Ok(dir), Ok(inner)) => inner.starts_with(dir),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}
