//! Renames, creates and removes paths below the workspace's handle. No link is followed, nothing existing is
//! replaced, and protected paths, as well as folders that contain them, are not touched.

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

/// Most names in a folder that one call may move or remove; beyond that a command states the intent more clearly.
pub(super) const FOLDER_NAMES_MAX: usize = 2000;

/// Metadata of a path; of the link itself if it is one.
pub(super) fn metadata_no_follow(root: &Dir, path: &WorkspacePath) -> Result<Metadata, FileError> {
    let (dir, name) = open_writable_parent(root, path, ParentFolders::MustExist)?;
    dir.symlink_metadata(&name).map_err(|error| FileError::from_io(path, error))
}

/// Metadata for read-only callers, which may also inspect git's own folder.
pub(super) fn metadata_allow_git(root: &Dir, path: &WorkspacePath) -> Result<Metadata, FileError> {
    let (dir, name) = open_parent(root, path, ParentFolders::MustExist)?;
    dir.symlink_metadata(&name).map_err(|error| FileError::from_io(path, error))
}

/// The names below a folder.
#[derive(Debug, Default)]
pub(super) struct FolderNames {
    /// Number of names, folders included.
    pub(super) name_count: usize,
    /// All names except folders.
    pub(super) files: Vec<WorkspacePath>,
}

/// Lists the names below a folder.
///
/// # Errors
/// For the model: the folder contains a protected path or too many names.
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

/// Applies the rules for a single file to each file in a folder: the policy allows it, configuration files stay where
/// they are, and files that were read are unchanged (E9). Returns the files that were read, with their hashes.
///
/// `whole` is the call for the folder, `one` builds the arguments of the equivalent call for a file in it, `how` and
/// `act` word the refusal.
///
/// # Errors
/// Returns the refusal for the model.
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
            // It is no longer a regular file, and is treated as what it is now.
            Err(_) => {}
        }
    }
    Ok(read)
}

/// Refuses to remove a configuration file from its place: a file created there afterwards would replace it as a
/// whole.
///
/// # Errors
/// Returns the refusal for the model.
pub(super) fn refuse_config_file(path: &WorkspacePath, how: &str) -> Result<(), String> {
    if !is_config_file(path) {
        return Ok(());
    }
    Err(format!(
        "`{path}` configures the project and is not {how}: change the lines in question; where the task wants it gone, \
         use a command"
    ))
}

/// Renames `from` to the unused name `to` and creates its parent folders.
pub(super) fn rename_path(root: &Dir, from: &WorkspacePath, to: &WorkspacePath) -> Result<(), FileError> {
    let (from_dir, from_name) = open_writable_parent(root, from, ParentFolders::MustExist)?;
    let (to_dir, to_name) = open_writable_parent(root, to, ParentFolders::Create)?;
    // Never replaces an entry that appeared in the meantime.
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

/// Removes a folder and its contents.
pub(super) fn remove_folder(root: &Dir, path: &WorkspacePath) -> Result<(), FileError> {
    let (dir, name) = open_writable_parent(root, path, ParentFolders::MustExist)?;
    dir.remove_dir_all(&name).map_err(|error| FileError::from_io(path, error))
}

/// Creates a folder and its parents.
pub(super) fn make_folder(root: &Dir, path: &WorkspacePath) -> Result<(), FileError> {
    // Creates the parents of a name inside it, and thereby the folder.
    let below = WorkspacePath::new(format!("{path}/x")).ok_or_else(|| PathError(path.to_string()))?;
    open_writable_parent(root, &below, ParentFolders::Create).map(drop)
}
