//! Names changed, made and removed beneath the workspace's handle: no link is followed, nothing that stands in the way
//! is replaced, and what is protected is not touched, nor a folder that holds it.

use cap_std::fs::{Dir, Metadata};
use docket_schema::{content::WorkspacePath, ids::BlobHash, message::ToolUse};
use nix::{
    errno::Errno,
    fcntl::{RenameFlags, renameat2},
};
use serde_json::Value;

use crate::calls::PathError;
use crate::{
    project::config_files::is_config_file,
    tools::{
        context::tool_context::ToolContext,
        file_access::files::{
            FileError, ParentFolders, is_protected, load_file, open_parent, open_writable_parent, os_path,
        },
    },
};

/// Names of a folder that one call moves or removes at most: beyond it a command says more plainly what is meant.
pub(super) const FOLDER_NAMES_MAX: usize = 2000;

/// What stands under a path; the link itself, where it is one.
pub(super) fn metadata_no_follow(root: &Dir, path: &WorkspacePath) -> Result<Metadata, FileError> {
    let (dir, name) = open_writable_parent(root, path, ParentFolders::MustExist)?;
    dir.symlink_metadata(&name).map_err(|error| FileError::from_io(path, error))
}

/// The same for whoever changes nothing: git's own folder may be looked at.
pub(super) fn metadata_allow_git(root: &Dir, path: &WorkspacePath) -> Result<Metadata, FileError> {
    let (dir, name) = open_parent(root, path, ParentFolders::MustExist)?;
    dir.symlink_metadata(&name).map_err(|error| FileError::from_io(path, error))
}

/// What lies below a folder.
#[derive(Debug, Default)]
pub(super) struct FolderNames {
    /// How many names in all.
    pub(super) name_count: usize,
    /// All of them but the folders.
    pub(super) files: Vec<WorkspacePath>,
}

/// The names below a folder.
///
/// # Errors
/// For the model: it holds what is protected, or too much.
pub(super) fn list_folder_names(root: &Dir, folder: &WorkspacePath) -> Result<FolderNames, String> {
    let mut left = vec![folder.clone()];
    let mut found = FolderNames::default();
    while let Some(at) = left.pop() {
        let fail = |error| FileError::from_io(&at, error).to_string();
        for entry in root.read_dir(os_path(&at)).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = std::os::unix::ffi::OsStringExt::into_vec(entry.file_name());
            let Some(path) = WorkspacePath::new([at.as_bytes(), b"/", &name].concat()) else {
                return Err(format!("`{at}` holds a name that is no path of a workspace"));
            };
            if is_protected(&path) {
                return Err(format!("`{folder}` holds {}", FileError::Protected(path)));
            }
            found.name_count += 1;
            if found.name_count > FOLDER_NAMES_MAX {
                return Err(format!("`{folder}` holds more than {FOLDER_NAMES_MAX} names: use a command"));
            }
            let list = if entry.file_type().map_err(fail)?.is_dir() { &mut left } else { &mut found.files };
            list.push(path);
        }
    }
    found.files.sort();
    Ok(found)
}

/// What holds for one file holds for each that goes with its folder: policy speaks of it, a configuration stays where it is
/// read, and what was read is still what it was (E9). Answers the files that were read, with their hashes.
///
/// # Errors
/// The refusal, for the model. `whole` is the call for the folder, `one` what it comes to for a file in it, `done` what is
/// done with it.
pub(super) fn check_folder_files(
    context: ToolContext<'_>,
    below: &FolderNames,
    whole: &ToolUse,
    one: impl Fn(&WorkspacePath) -> Value,
    (how, act): (&str, &str),
) -> Result<Vec<(WorkspacePath, BlobHash)>, String> {
    if context.settings.visibility.is_legacy() {
        return Ok(Vec::new());
    }
    let calls: Vec<ToolUse> =
        below.files.iter().map(|path| ToolUse { args: one(path), ..whole.clone() }).collect();
    if let Some((call, rule)) = context.settings.visibility.first_barred_call(whole, &calls) {
        let nth = calls.iter().position(|other| std::ptr::eq(other, call)).unwrap_or_default();
        return Err(format!(
            "the folder holds `{}`, of which the policy's rule `{rule}` speaks: {act} its files one by one",
            below.files[nth]
        ));
    }
    let mut read = Vec::new();
    for path in &below.files {
        refuse_config_file(path, how)?;
        let Some(seen) = context.read_set.get(path) else { continue };
        match load_file(context.root, path) {
            Ok(now) if now.hash == *seen => read.push((path.clone(), now.hash)),
            Ok(_) => {
                return Err(format!(
                    "`{path}` changed on disk since it was read: read it again, then {act} its folder"
                ));
            }
            // It is no file any more, and goes as what it is.
            Err(_) => {}
        }
    }
    Ok(read)
}

/// Refuses to take a configuration from where it is read: what is made in its place would replace it whole.
///
/// # Errors
/// The refusal, for the model.
pub(super) fn refuse_config_file(path: &WorkspacePath, how: &str) -> Result<(), String> {
    if !is_config_file(path) {
        return Ok(());
    }
    Err(format!(
        "`{path}` configures the project and is not {how}: change the lines in question; where the task wants it gone, \
         use a command"
    ))
}

/// Gives what stands at `from` the name `to`, which nothing has; makes the folders above it.
pub(super) fn rename_path(root: &Dir, from: &WorkspacePath, to: &WorkspacePath) -> Result<(), FileError> {
    let (from_dir, from_name) = open_writable_parent(root, from, ParentFolders::MustExist)?;
    let (to_dir, to_name) = open_writable_parent(root, to, ParentFolders::Create)?;
    // Never over what appeared in the meantime.
    let flags = RenameFlags::RENAME_NOREPLACE;
    renameat2(&from_dir, from_name.as_os_str(), &to_dir, to_name.as_os_str(), flags).map_err(|errno| {
        match errno {
            Errno::EEXIST => FileError::Exists(to.clone()),
            errno => FileError::from_io(from, errno.into()),
        }
    })
}

/// Removes a file or a link.
pub(super) fn remove_file(root: &Dir, path: &WorkspacePath) -> Result<(), FileError> {
    let (dir, name) = open_writable_parent(root, path, ParentFolders::MustExist)?;
    dir.remove_file(&name).map_err(|error| FileError::from_io(path, error))
}

/// Removes a folder and what it holds.
pub(super) fn remove_folder(root: &Dir, path: &WorkspacePath) -> Result<(), FileError> {
    let (dir, name) = open_writable_parent(root, path, ParentFolders::MustExist)?;
    dir.remove_dir_all(&name).map_err(|error| FileError::from_io(path, error))
}

/// Makes a folder, and those above it.
pub(super) fn make_folder(root: &Dir, path: &WorkspacePath) -> Result<(), FileError> {
    // The folders above a name in it.
    let below = WorkspacePath::new(format!("{path}/x")).ok_or_else(|| PathError(path.to_string()))?;
    open_writable_parent(root, &below, ParentFolders::Create).map(drop)
}
