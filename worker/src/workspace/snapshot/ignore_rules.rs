//! Decides which paths a snapshot leaves out: those matched by the base commit's ignore rules, and tool
//! caches.
//!
//! A model must not be able to hide files from the snapshot by rewriting `.gitignore`, and a resumed run must
//! decide as the first one did, so the rules are read once, from the base. Used by the walk.

use std::{collections::HashMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

/// Folders for data that tools can regenerate: not part of anyone's work, and never in a patch. A base can
/// override this (`!.pytest_cache/`).
const CACHE_FOLDERS: [&str; 6] =
    ["__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".hypothesis", VENV_FOLDER];

/// The folder of the Python environment that a model's tools create.
pub(crate) const VENV_FOLDER: &str = ".docket-venv";

/// The `.gitignore` files of a base commit.
#[derive(Debug, Default)]
pub(crate) struct IgnoreRules {
    /// By folder; the root is the empty name.
    folders: HashMap<Box<[u8]>, Gitignore>,
}

impl IgnoreRules {
    /// Adds the `.gitignore` of `folder`. Invalid patterns are skipped, as in git.
    pub(crate) fn add_gitignore(&mut self, folder: &[u8], text: &[u8]) {
        let mut builder = GitignoreBuilder::new("");
        for line in text.split(|b| *b == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = String::from_utf8_lossy(line);
            // A pattern that does not parse matches nothing, as in git.
            let _unparsed = builder.add_line(None, &line);
        }
        if let Ok(rules) = builder.build()
            && !rules.is_empty()
        {
            self.folders.insert(folder.into(), rules);
        }
    }

    /// Whether the rules match `path` itself (not one of its parents; the walk does not enter those).
    pub(crate) fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        let mut folder = parent_folder(path);
        let is_cache = || {
            is_folder
                && CACHE_FOLDERS
                    .iter()
                    .any(|name| path.rsplit(|b| *b == b'/').next() == Some(name.as_bytes()))
        };
        if self.folders.is_empty() {
            return is_cache();
        }
        loop {
            if let Some(rules) = self.folders.get(folder) {
                let inside = if folder.is_empty() { path } else { &path[folder.len() + 1..] };
                match rules.matched(Path::new(OsStr::from_bytes(inside)), is_folder) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            if folder.is_empty() {
                return is_cache();
            }
            folder = parent_folder(folder);
        }
    }
}

/// Returns the folder of a path; empty for paths in the root.
pub(crate) fn parent_folder(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(&[], |slash| &path[..slash])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deepest_matching_gitignore_wins() {
        let mut rules = IgnoreRules::default();
        rules.add_gitignore(b"", b"*.log\n/target\nbuild/\n# comment\n[broken\n");
        rules.add_gitignore(b"keep", b"!*.log\n/only-here\r\n");
        rules.add_gitignore(b"wanted", b"!.ruff_cache/\n");
        let cases: &[(&[u8], bool, bool)] = &[
            (b"a.log", false, true),
            (b"deep/down/a.log", false, true),
            (b"keep/a.log", false, false),
            (b"keep/sub/a.log", false, false),
            (b"target", true, true),
            (b"sub/target", true, false),
            (b"sub/build", true, true),
            (b"sub/build", false, false),
            (b"keep/only-here", false, true),
            (b"only-here", false, false),
            (b"caf\xe9.log", false, true),
            (b"__pycache__", true, true),
            (b"keep/.pytest_cache", true, true),
            (b"__pycache__", false, false),
            (b"wanted/.ruff_cache", true, false),
        ];
        for (path, is_folder, expected) in cases {
            assert_eq!(rules.matches(path, *is_folder), *expected, "{}", String::from_utf8_lossy(path));
        }
    }
}
