//! Ignore files for the tools' walks, read through the workspace's handle.
//!
//! The `ignore` crate would open them by path and block on them: a `.gitignore` that is a named pipe would block a
//! tool forever, and one that is a link would let a model probe the contents of a file outside, pattern by pattern.
//! Invariants: regular files only, no links out of the workspace, a bounded part of each file.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use nix::fcntl::OFlag;

/// Most bytes read per ignore file: far more than any real one has, and quick to compile.
const IGNORE_FILE_BYTES_MAX: u64 = 256 * 1024;

/// In order of precedence: the first file with a rule for a path decides.
const IGNORE_FILE_NAMES: [&str; 4] = [".rgignore", ".ignore", ".gitignore", ".git/info/exclude"];

/// The ignore rules of one walk.
pub(crate) struct IgnoreFiles {
    root: Dir,
    /// By path from the root, which is the empty path.
    folders: Mutex<HashMap<Box<[u8]>, Arc<FolderRules>>>,
}

/// A folder's own rules and those above it.
struct FolderRules {
    rules: [Option<Gitignore>; IGNORE_FILE_NAMES.len()],
    path: Box<[u8]>,
    parent: Option<Arc<FolderRules>>,
}

impl IgnoreFiles {
    pub(crate) fn new(root: &Dir) -> io::Result<Self> {
        Ok(Self { root: root.try_clone()?, folders: Mutex::default() })
    }

    /// Matches `path` itself; a walk does not enter an ignored folder.
    pub(crate) fn match_path(&self, path: &[u8], is_dir: bool) -> Match<()> {
        let folder = self.folder_rules(parent_path(path));
        for weight in 0..IGNORE_FILE_NAMES.len() {
            let mut at = Some(&folder);
            while let Some(folder) = at {
                let inside = path.strip_prefix(&*folder.path).unwrap_or(path);
                let inside = Path::new(OsStr::from_bytes(inside.strip_prefix(b"/").unwrap_or(inside)));
                match folder.rules[weight].as_ref().map(|rules| rules.matched(inside, is_dir)) {
                    Some(Match::Ignore(_)) => return Match::Ignore(()),
                    Some(Match::Whitelist(_)) => return Match::Whitelist(()),
                    Some(Match::None) | None => at = folder.parent.as_ref(),
                }
            }
        }
        Match::None
    }

    fn folder_rules(&self, path: &[u8]) -> Arc<FolderRules> {
        // No update is left half done under this lock.
        let known = self.folders.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some(known) = known {
            return known;
        }
        let above = (!path.is_empty()).then(|| self.folder_rules(parent_path(path)));
        let rules = IGNORE_FILE_NAMES.map(|name| self.read_rules(path, name));
        let made = match above {
            // A folder without rules of its own uses those above it.
            Some(above) if rules.iter().all(Option::is_none) => above,
            above => Arc::new(FolderRules { rules, path: path.into(), parent: above }),
        };
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        folders.entry(path.into()).or_insert(made).clone()
    }

    fn read_rules(&self, folder: &[u8], name: &str) -> Option<Gitignore> {
        let path = Path::new(OsStr::from_bytes(folder)).join(name);
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlag::O_NONBLOCK.bits() | OFlag::O_NOCTTY.bits());
        let file = self.root.open_with(path, &options).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut text = Vec::new();
        file.take(IGNORE_FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        let mut builder = GitignoreBuilder::new("");
        for line in text.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
            // A line that is not a valid pattern matches nothing.
            let _unparsed = builder.add_line(None, &line);
        }
        builder.build().ok().filter(|rules| !rules.is_empty())
    }
}

fn parent_path(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(&[], |slash| &path[..slash])
}
