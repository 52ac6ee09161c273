//! Names that some file system treats as `.git`.
//!
//! A tree that is harmless here may be checked out on macOS or Windows, and a workspace may be on a
//! case-insensitive file system. git refuses such names as well, so a run that created one could not be
//! delivered at all; code that builds a tree leaves them out. Pure; used for pinning and delivery.

use docket_sandbox::git_repository::{is_equivalent_name, trim_ntfs_name};

/// Whether `name` is `.git` on a case-insensitive file system, on HFS+ (which ignores invisible characters)
/// or on NTFS (which has a short name for it and ignores trailing characters).
pub(crate) fn is_dot_git(name: &[u8]) -> bool {
    is_equivalent_name(name, ".git") || trim_ntfs_name(name).eq_ignore_ascii_case(b"git~1")
}

/// Whether git would refuse a link of this name: as `.gitmodules` its target would be read.
pub(crate) fn is_dot_gitmodules(name: &[u8]) -> bool {
    let short =
        |prefix: &[u8]| name.len() > prefix.len() && name[..prefix.len()].eq_ignore_ascii_case(prefix);
    is_equivalent_name(name, ".gitmodules") || short(b"gitmod~") || short(b"gi7e")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dot_git_spellings_are_recognized() {
        for name in [
            ".git",
            ".GIT",
            ".gIt",
            ".git ",
            ".git.",
            ".git . .",
            ".git::$INDEX_ALLOCATION",
            ".git\\hooks",
            "git~1",
            "GIT~1",
            "git~1 ",
            "git~1:x",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".GI\u{202e}T\u{206f}",
        ] {
            assert!(is_dot_git(name.as_bytes()), "{name:?}");
        }
        for name in [
            "",
            ".",
            "git",
            ".gitignore",
            ".github",
            ".git-x",
            "git~2",
            "x.git",
            ".git\u{301}",
            ":.git",
            "..git",
        ] {
            assert!(!is_dot_git(name.as_bytes()), "{name:?}");
        }
        assert!(!is_dot_git(b".git\xff"));
        for (name, known) in [
            (".gitmodules", true),
            (".GITMODULES ", true),
            (".gitm\u{200d}odules", true),
            ("gitmod~1", true),
            ("GI7EBA~1", true),
            ("gitmodules", false),
            (".gitmodules.txt", false),
            ("gitmod~", false),
        ] {
            assert_eq!(is_dot_gitmodules(name.as_bytes()), known, "{name:?}");
        }
    }
}
