//! Turns folders into repositories: the sample projects of `docket demo`, the fixtures of a suite.
//!
//! Author and date of the commit are fixed, so a tree gives the same commit on every machine.

use crate::history::blobs;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use docket_schema::snapshot::WorkspaceBase;
use docket_worker::{
    client::CoordinatorClient,
    process::run_git,
    workspace::{BaseSource, DirtyTreePolicy, PinOptions, pin_base},
};

use crate::{
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
};

/// Maximum number of entries: a fixture is copied, and read by people.
const ENTRIES_MAX: usize = 100_000;

/// Creates a repository from a folder and commits everything that is not ignored.
pub(crate) async fn commit_all(folder: &Path) -> CliResult<()> {
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["add", "-A"],
        &["commit", "-q", "--allow-empty", "-m", "The project as it is"],
    ] {
        run_fixture_git(folder, args).await?;
    }
    Ok(())
}

async fn run_fixture_git(folder: &Path, args: &[&str]) -> CliResult<()> {
    let person = ["AUTHOR", "COMMITTER"].into_iter().flat_map(|role| {
        [("NAME", "docket"), ("EMAIL", "docket@localhost"), ("DATE", "1700000000 +0000")]
            .map(|(what, value)| (OsString::from(format!("GIT_{role}_{what}")), OsString::from(value)))
    });
    let env: Vec<(OsString, OsString)> = person.collect();
    let failed = || format!("cannot create a repository in {}", folder.display());
    let output = run_git(args, folder, &env, Vec::new()).await.fail_with(ExitKind::Failed, failed)?;
    if output.is_success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(CliError::new(ExitKind::Failed, format!("{}: git {}: {said}", failed(), args.join(" "))))
}

/// Copies a folder's tree, including modes and links, into a new folder. A `.git` is not copied.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> CliResult<()> {
    let failed = || format!("cannot copy {}", from.display());
    let mut folders = vec![PathBuf::new()];
    let mut entries = 0;
    while let Some(folder) = folders.pop() {
        fs::create_dir_all(to.join(&folder)).fail_with(ExitKind::Failed, failed)?;
        for entry in fs::read_dir(from.join(&folder)).fail_with(ExitKind::Failed, failed)? {
            let entry = entry.fail_with(ExitKind::Failed, failed)?;
            entries += 1;
            if entries > ENTRIES_MAX {
                let message = format!("{} has more than {ENTRIES_MAX} entries", from.display());
                return Err(CliError::new(ExitKind::Failed, message));
            }
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().fail_with(ExitKind::Failed, failed)?;
            if entry.file_name() == ".git" {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(entry.path()).fail_with(ExitKind::Failed, failed)?;
                symlink(target, to.join(path)).fail_with(ExitKind::Failed, failed)?;
            } else if kind.is_file() {
                fs::copy(entry.path(), to.join(path)).fail_with(ExitKind::Failed, failed)?;
            }
        }
    }
    Ok(())
}

/// Pins a repository's commit, or its head, and stores the objects it needs.
pub(crate) async fn pin_fixture(
    cx: &CliContext,
    client: &CoordinatorClient,
    source: BaseSource,
    rev: Option<String>,
) -> CliResult<WorkspaceBase> {
    let mut upload = blobs::BlobUpload::new(client);
    let options =
        PinOptions { rev, dirty: DirtyTreePolicy::Refuse, scratch: cx.home.ensure_folder("scratch")? };
    let pinned = pin_base(&source, &options, &mut upload).await.fail_as(ExitKind::Failed)?;
    upload.flush().await.fail_with(ExitKind::Failed, || "cannot store the repository".to_owned())?;
    Ok(pinned.base)
}
