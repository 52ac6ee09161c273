//! Recognizes what git takes for a repository, whatever the folder is called.
//!
//! Running git in a folder means obeying the repository that git finds there: its configuration names
//! programs (a pager, a file system monitor, filters), and its hooks are programs. Git looks for `.git`
//! first, and then checks whether the folder itself is a repository: it requires `HEAD` there and `objects`
//! and `refs` in the folder that `commondir` names, or else in the same folder. It only requires that those
//! two can be entered or executed, so links and files count as well. Pure; shared by the sandbox, the file
//! tools and the delivery, which must agree.

/// A name with a meaning to git in a repository's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitName {
    Head,
    Commondir,
    Objects,
    Refs,
    Config,
    ConfigWorktree,
    Hooks,
}

const GIT_NAMES: [(GitName, &str); 7] = [
    (GitName::Head, "head"),
    (GitName::Commondir, "commondir"),
    (GitName::Objects, "objects"),
    (GitName::Refs, "refs"),
    (GitName::Config, "config"),
    (GitName::ConfigWorktree, "config.worktree"),
    (GitName::Hooks, "hooks"),
];

impl GitName {
    /// Returns the name for which some file system takes `name`.
    pub fn from_file_name(name: &[u8]) -> Option<Self> {
        GIT_NAMES.iter().find(|(_, spelling)| is_equivalent_name(name, spelling)).map(|(name, _)| *name)
    }
}

/// The kind of an entry. A folder called `config` is an ordinary part of a program; a file is what git reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitEntryKind {
    Folder,
    Other,
}

/// The [`GitName`]s that a folder contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepositoryShape {
    has_head: bool,
    has_commondir: bool,
    has_objects: bool,
    has_refs: bool,
    has_config_or_hooks: bool,
}

impl RepositoryShape {
    /// Adds a name that the folder contains.
    pub const fn add_entry(&mut self, name: GitName, entry: GitEntryKind) {
        match (name, entry) {
            (GitName::Head, GitEntryKind::Other) => self.has_head = true,
            (GitName::Commondir, GitEntryKind::Other) => self.has_commondir = true,
            (GitName::Head | GitName::Commondir, GitEntryKind::Folder) => {}
            (GitName::Objects, GitEntryKind::Folder | GitEntryKind::Other) => self.has_objects = true,
            (GitName::Refs, GitEntryKind::Folder | GitEntryKind::Other) => self.has_refs = true,
            (
                GitName::Config | GitName::ConfigWorktree | GitName::Hooks,
                GitEntryKind::Folder | GitEntryKind::Other,
            ) => self.has_config_or_hooks = true,
        }
    }

    const fn has_object_stores(self) -> bool {
        self.has_objects && self.has_refs
    }

    /// Returns whether this is a self-contained repository.
    pub(crate) const fn is_repository(self) -> bool {
        self.has_head && self.has_object_stores()
    }

    /// Returns whether this is a repository whose configuration, hooks and objects are elsewhere.
    const fn is_linked(self) -> bool {
        self.has_head && self.has_commondir
    }

    /// Returns whether git obeys an entry of this name in this folder.
    pub const fn obeys(self, name: GitName, entry: GitEntryKind) -> bool {
        match name {
            GitName::Head => self.is_linked(),
            GitName::Commondir | GitName::ConfigWorktree | GitName::Hooks => {
                self.is_repository() || self.is_linked()
            }
            GitName::Config => {
                let is_repository = self.is_repository() || self.is_linked();
                // The folder that another folder's `commondir` names.
                is_repository || (self.has_object_stores() && matches!(entry, GitEntryKind::Other))
            }
            GitName::Objects | GitName::Refs => false,
        }
    }

    /// Returns whether git, run in this folder, obeys its contents or those of the folder that it
    /// names.
    pub const fn can_run_programs(self) -> bool {
        self.is_linked() || (self.is_repository() && self.has_config_or_hooks)
    }
}

/// Returns whether a file system takes `name` for `spelling`, which must be lower case: one that folds case,
/// HFS+ (ignores invisible characters) or NTFS (ignores trailing characters).
pub fn is_equivalent_name(name: &[u8], spelling: &str) -> bool {
    trim_ntfs_name(name).eq_ignore_ascii_case(spelling.as_bytes())
        || (!name.is_ascii() && is_equivalent_on_hfs(name, spelling))
}

/// Normalizes a name so that names equivalent on some file system compare equal: removes what HFS+ or NTFS
/// ignores, and folds case.
pub fn fold_file_name(name: &[u8]) -> Vec<u8> {
    let name = trim_ntfs_name(name);
    let Ok(text) = std::str::from_utf8(name) else { return name.to_ascii_lowercase() };
    // Via upper case, which unifies more letters than lower case does.
    let seen = text.chars().filter(|c| !is_ignored_by_hfs(*c));
    seen.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect::<String>().into_bytes()
}

/// Returns whether HFS+ ignores a character in names.
const fn is_ignored_by_hfs(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

fn is_equivalent_on_hfs(name: &[u8], spelling: &str) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    name.chars().filter(|c| !is_ignored_by_hfs(*c)).map(|c| c.to_ascii_lowercase()).eq(spelling.chars())
}

/// Returns the part of a name that NTFS keeps: a colon starts the name of a stream of the same file, a
/// backslash ends a folder's name, and trailing spaces and dots are dropped.
pub fn trim_ntfs_name(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|b| matches!(b, b':' | b'\\')).unwrap_or(name.len());
    let seen = name[..end].iter().rposition(|b| !matches!(b, b' ' | b'.')).map_or(0, |last| last + 1);
    &name[..seen]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(names: &str) -> RepositoryShape {
        let mut shape = RepositoryShape::default();
        for name in names.split_whitespace() {
            let entry = if name.ends_with('/') { GitEntryKind::Folder } else { GitEntryKind::Other };
            if let Some(name) = GitName::from_file_name(name.trim_end_matches('/').as_bytes()) {
                shape.add_entry(name, entry);
            }
        }
        shape
    }

    #[test]
    fn folder_can_run_programs_where_git_reads_its_config_or_hooks() {
        for (names, armed) in [
            ("HEAD objects/ refs/ config", true),
            ("head OBJECTS refs Config", true),
            ("HEAD objects/ refs/ hooks/", true),
            ("HEAD objects/ refs/ config.worktree", true),
            ("HEAD commondir", true),
            ("Head CommonDir a b", true),
            ("objects/ refs/ config", false),
            ("HEAD objects/ refs/", false),
            ("objects/ refs/ config/", false),
            ("objects/ refs/ hooks/", false),
            ("HEAD config hooks/", false),
            ("HEAD/ commondir", false),
            ("HEAD", false),
            ("commondir", false),
            ("config", false),
            ("", false),
        ] {
            assert_eq!(shape(names).can_run_programs(), armed, "{names}");
        }
    }

    #[test]
    fn commondir_target_keeps_its_config_protected() {
        let stores = shape("objects/ refs/");
        assert!(stores.obeys(GitName::Config, GitEntryKind::Other));
        assert!(!stores.obeys(GitName::Config, GitEntryKind::Folder), "an ordinary part of a program");
        assert!(!shape("objects/").obeys(GitName::Config, GitEntryKind::Other));
        assert!(shape("HEAD commondir").obeys(GitName::Head, GitEntryKind::Other));
        assert!(
            !shape("HEAD objects/ refs/").obeys(GitName::Head, GitEntryKind::Other),
            "git itself writes it"
        );
    }

    #[test]
    fn file_names_are_recognized_in_other_file_system_spellings() {
        for name in ["HEAD", "head", "HEAD.", "Head ", "HEAD::$DATA", "HE\u{200c}AD"] {
            assert_eq!(GitName::from_file_name(name.as_bytes()), Some(GitName::Head), "{name:?}");
        }
        for name in ["HEADS", "AHEAD", "HEAD.md", "", "\u{200c}"] {
            assert_eq!(GitName::from_file_name(name.as_bytes()), None, "{name:?}");
        }
    }
}
