//! Folders made into repositories: the sample projects of `docket demo`, the fixtures of a suite.
//!
//! Who commits and when is the same each time, so that one tree gives one commit on any machine.

use crate::history::blobs;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use docket_schema::snapshot::Base;
use docket_worker::{
    client::Client,
    process::run_git,
    workspace::{DirtyTree, PinOptions, Source, pin},
};

use crate::{
    context::Context,
    output::fail::{Exit, FailWith as _, Failure, Outcome},
};

/// Entries of a fixture at most: it is copied, and read by people.
const ENTRIES_MAX: usize = 100_000;

/// Makes a repository of a folder that is none, with all that is in it and that it does not ignore.
pub(crate) async fn commit_all(folder: &Path) -> Outcome<()> {
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["add", "-A"],
        &["commit", "-q", "--allow-empty", "-m", "The project as it is"],
    ] {
        git(folder, args).await?;
    }
    Ok(())
}

async fn git(folder: &Path, args: &[&str]) -> Outcome<()> {
    let person = ["AUTHOR", "COMMITTER"].into_iter().flat_map(|role| {
        [("NAME", "docket"), ("EMAIL", "docket@localhost"), ("DATE", "1700000000 +0000")]
            .map(|(what, value)| (OsString::from(format!("GIT_{role}_{what}")), OsString::from(value)))
    });
    let env: Vec<(OsString, OsString)> = person.collect();
    let failed = || format!("cannot make a repository of {}", folder.display());
    let output = run_git(args, folder, &env, Vec::new()).await.fail_with(Exit::Failed, failed)?;
    if output.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Failure::new(Exit::Failed, format!("{}: git {}: {said}", failed(), args.join(" "))))
}

/// Copies a folder's tree, modes and links included, into a new folder. A `.git` in it is left where it is.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Outcome<()> {
    let failed = || format!("cannot copy {}", from.display());
    let mut folders = vec![PathBuf::new()];
    let mut entries = 0;
    while let Some(folder) = folders.pop() {
        fs::create_dir_all(to.join(&folder)).fail_with(Exit::Failed, failed)?;
        for entry in fs::read_dir(from.join(&folder)).fail_with(Exit::Failed, failed)? {
            let entry = entry.fail_with(Exit::Failed, failed)?;
            entries += 1;
            if entries > ENTRIES_MAX {
                let message = format!("{} has more than {ENTRIES_MAX} entries", from.display());
                return Err(Failure::new(Exit::Failed, message));
            }
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().fail_with(Exit::Failed, failed)?;
            if entry.file_name() == ".git" {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(entry.path()).fail_with(Exit::Failed, failed)?;
                symlink(target, to.join(path)).fail_with(Exit::Failed, failed)?;
            } else if kind.is_file() {
                fs::copy(entry.path(), to.join(path)).fail_with(Exit::Failed, failed)?;
            }
        }
    }
    Ok(())
}

/// Pins a repository's commit, or its head, and stores what that takes.
pub(crate) async fn pinned(
    cx: &Context,
    client: &Client,
    source: Source,
    rev: Option<String>,
) -> Outcome<Base> {
    let mut upload = blobs::Upload::new(client);
    let options = PinOptions { rev, dirty: DirtyTree::Refuse, scratch: cx.home.folder("scratch")? };
    let pinned = pin(&source, &options, &mut upload).await.fail_as(Exit::Failed)?;
    upload.flush().await.fail_with(Exit::Failed, || "the repository could not be stored".to_owned())?;
    Ok(pinned.base)
}
