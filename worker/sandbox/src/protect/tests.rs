//! Tests which paths are protected, and that they are restored after a call.

use std::{fs, os::unix::fs::symlink};

use super::*;

fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

#[test]
fn names_are_protected_where_git_or_docket_reads_them() {
    let dir = workspace(&[
        (".git/config", "a"),
        (".git/hooks/post-commit", "b"),
        (".git/refs/heads/config", "a branch"),
        (".git/modules/lib/deep/config", "c"),
        (".git/modules/lib/deep/HEAD", ""),
        (".git/modules/lib/deep/refs/x", ""),
        (".git/modules/lib/deep/objects/config", "an object"),
        ("sub/.git/config", "d"),
        ("sub/docket.toml", "e"),
        ("sub/.docket/x", "f"),
        ("hooks/x", "plain"),
        ("config", "plain"),
        ("docket.toml.md", "plain"),
    ]);
    let seen = ProtectedPaths::scan(dir.path()).unwrap();
    let tops: Vec<&str> = seen.roots.iter().map(|top| top.to_str().unwrap()).collect();
    let want = [
        ".git/config",
        ".git/hooks",
        ".git/modules/lib/deep/config",
        "sub/.docket",
        "sub/.git/config",
        "sub/docket.toml",
    ];
    assert_eq!(tops, want);
    assert_eq!(seen.read_only_paths().len(), want.len());
    assert_eq!(seen.restore(dir.path()).unwrap(), Vec::<String>::new());
}

#[test]
fn added_entries_are_removed_and_lost_or_changed_ones_restored() {
    let dir = workspace(&[(".git/config", "[core]\n"), ("sub/docket.toml", "old"), ("src/a", "")]);
    let at = |path: &str| dir.path().join(path);
    let before = ProtectedPaths::scan(dir.path()).unwrap();
    fs::create_dir_all(at(".git/hooks")).unwrap();
    fs::write(at(".git/hooks/pre-commit"), "evil").unwrap();
    fs::create_dir_all(at("new/deep/.git/hooks")).unwrap();
    fs::write(at("new/deep/.git/config"), "evil").unwrap();
    fs::write(at("new/deep/.git/HEAD"), "kept").unwrap();
    fs::write(at("docket.toml"), "evil").unwrap();
    fs::write(at("sub/docket.toml"), "evil").unwrap();
    fs::remove_file(at(".git/config")).unwrap();
    fs::create_dir(at(".git/config")).unwrap();
    fs::write(at(".git/config/x"), "evil").unwrap();
    symlink("src", at("src/.git")).unwrap();
    let told = before.restore(dir.path()).unwrap();
    assert_eq!(ProtectedPaths::scan(dir.path()).unwrap(), before);
    assert_eq!(fs::read(at(".git/config")).unwrap(), b"[core]\n");
    assert_eq!(fs::read(at("sub/docket.toml")).unwrap(), b"old");
    assert!(at("new/deep/.git/HEAD").exists() && !at("docket.toml").exists());
    assert!(told.contains(&".git/hooks/pre-commit".to_owned()), "{told:?}");
}

#[test]
fn folder_rename_and_repository_removal_are_allowed() {
    let dir =
        workspace(&[("sub/docket.toml", "own"), ("sub/a", "a"), (".git/config", "c"), (".git/HEAD", "")]);
    let before = ProtectedPaths::scan(dir.path()).unwrap();
    fs::rename(dir.path().join("sub"), dir.path().join("moved")).unwrap();
    fs::remove_dir_all(dir.path().join(".git")).unwrap();
    assert_eq!(before.restore(dir.path()).unwrap(), Vec::<String>::new());
    assert_eq!(fs::read(dir.path().join("moved/docket.toml")).unwrap(), b"own");
    // A move to the root is different: docket reads that file.
    fs::rename(dir.path().join("moved/docket.toml"), dir.path().join("docket.toml")).unwrap();
    before.restore(dir.path()).unwrap();
    assert!(!dir.path().join("docket.toml").exists());
}

#[test]
fn links_out_of_the_workspace_are_not_followed() {
    let outside = workspace(&[("hooks/keep", "outside"), ("config", "outside")]);
    let dir = workspace(&[(".git/config", "own"), (".git/hooks/x", "own")]);
    let before = ProtectedPaths::scan(dir.path()).unwrap();
    fs::remove_dir_all(dir.path().join(".git")).unwrap();
    symlink(outside.path(), dir.path().join(".git")).unwrap();
    before.restore(dir.path()).unwrap();
    assert!(fs::symlink_metadata(dir.path().join(".git")).is_err(), "the link is gone");
    assert_eq!(fs::read(outside.path().join("config")).unwrap(), b"outside");
    assert_eq!(fs::read(outside.path().join("hooks/keep")).unwrap(), b"outside");
}

/// Restores, and asserts which paths under `.git`-like names remain.
fn assert_restored(dir: &tempfile::TempDir, before: &ProtectedPaths, gone: &[&str], kept: &[&str]) {
    before.restore(dir.path()).unwrap();
    for path in gone {
        assert!(fs::symlink_metadata(dir.path().join(path)).is_err(), "{path} is still there");
    }
    for path in kept {
        assert!(fs::symlink_metadata(dir.path().join(path)).is_ok(), "{path} is gone");
    }
}

fn write_files(dir: &tempfile::TempDir, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[test]
fn git_redirections_are_removed() {
    let dir =
        workspace(&[(".git/HEAD", ""), (".git/config", "own"), (".git/objects/x", ""), (".git/refs/x", "")]);
    let before = ProtectedPaths::scan(dir.path()).unwrap();
    write_files(
        &dir,
        &[
            (".git/commondir", "c"),
            (".git/c/hooks/post-commit", "evil"),
            ("sub/.git", "gitdir: ../s"),
            ("tricky/.git", "gitdir: x/.git/modules/../../s"),
            ("other/.git", "gitdir: /workspace/.git/worktrees/other\n"),
            (".git/worktrees/other/commondir", "../..\n"),
            (".git/worktrees/other/HEAD", ""),
            (".git/worktrees/evil/commondir", "../../../s\n"),
            ("bare/HEAD", "x"),
            ("bare/objects/x", ""),
            ("bare/refs/x", ""),
            ("bare/config", "evil"),
            ("bare/hooks/update", "evil"),
            (".git/modules/logs/config", "evil"),
            (".git/modules/logs/HEAD", ""),
            (".git/modules/a/objects/hooks/x", "evil"),
            ("HEAD", ""),
            ("objects/x", ""),
            ("refs/x", ""),
            ("config", "evil"),
            ("src/deep/docket.toml", "evil"),
        ],
    );
    let gone = [
        ".git/commondir",
        "sub/.git",
        "tricky/.git",
        ".git/worktrees/evil/commondir",
        "bare/config",
        "bare/hooks",
        ".git/modules/logs/config",
        ".git/modules/a/objects/hooks",
        "config",
        "src/deep/docket.toml",
    ];
    let kept = ["other/.git", ".git/worktrees/other/commondir", "bare/HEAD", "HEAD", ".git/config"];
    assert_restored(&dir, &before, &gone, &kept);
}

#[test]
fn new_repository_behind_commondir_is_dismantled() {
    for (made, gone, kept) in [
        (
            &[("wt/m/HEAD", "ref: refs/heads/x"), ("wt/m/commondir", "../c"), ("c/config", "evil")][..],
            &["wt/m/HEAD", "wt/m/commondir"][..],
            &["c/config"][..],
        ),
        (
            &[("c/objects/x", ""), ("c/refs/x", ""), ("c/config", "evil"), ("c/hooks/x", "later")],
            &["c/config"],
            &["c/objects/x", "c/refs/x", "c/hooks/x"],
        ),
        (&[("w/head", ""), ("w/CommonDir", "..")], &["w/head", "w/CommonDir"], &["w"]),
        (&[(".git/objects/e/HEAD", ""), (".git/objects/e/commondir", "c")], &[".git/objects/e/HEAD"], &[]),
        (&[(".git/x/e/HEAD", ""), (".git/x/e/commondir", "c")], &[".git/x/e/commondir"], &[]),
        (
            &[
                ("own/commondir", "c"),
                ("other/HEAD", "x"),
                ("c2/config/x", ""),
                ("c2/objects/x", ""),
                ("c2/refs/x", ""),
            ],
            &["own/commondir", "other/HEAD"],
            &["own/HEAD", "other/commondir", "c2/config/x"],
        ),
    ] {
        let dir = workspace(&[
            (".git/HEAD", ""),
            (".git/config", "own"),
            ("own/HEAD", "the project's"),
            ("other/commondir", "the project's"),
        ]);
        let before = ProtectedPaths::scan(dir.path()).unwrap();
        write_files(&dir, made);
        assert_restored(&dir, &before, gone, kept);
        assert_eq!(fs::read(dir.path().join("own/HEAD")).unwrap(), b"the project's");
        assert_eq!(fs::read(dir.path().join("other/commondir")).unwrap(), b"the project's");
    }
}

#[test]
fn links_and_executables_count_as_repository_stores() {
    let dir = workspace(&[("x/y", "")]);
    let before = ProtectedPaths::scan(dir.path()).unwrap();
    write_files(
        &dir,
        &[("b/HEAD", ""), ("b/config", "evil"), ("b/hooks/update", "evil"), ("b/refs", "executable")],
    );
    symlink("../x", dir.path().join("b/objects")).unwrap();
    assert_restored(&dir, &before, &["b/config", "b/hooks"], &["b/HEAD", "b/refs", "b/objects"]);
}

#[test]
fn copy_is_not_treated_as_move() {
    let dir = workspace(&[("lax/docket.toml", "lax"), ("other/x", "")]);
    let before = ProtectedPaths::scan(dir.path()).unwrap();
    fs::copy(dir.path().join("lax/docket.toml"), dir.path().join("other/docket.toml")).unwrap();
    assert_restored(&dir, &before, &["other/docket.toml"], &["lax/docket.toml"]);
}

#[test]
fn deeply_nested_entries_are_protected() {
    let dir = workspace(&[("x", "")]);
    let before = ProtectedPaths::scan(dir.path()).unwrap();
    let deep: PathBuf = (0..600).map(|_| "d").collect();
    fs::create_dir_all(dir.path().join(&deep).join(".git/hooks")).unwrap();
    fs::write(dir.path().join(&deep).join(".git/hooks/x"), "evil").unwrap();
    let inside: PathBuf = [PathBuf::from(".docket"), (0..400).map(|_| "e").collect()].iter().collect();
    fs::create_dir_all(dir.path().join(&inside)).unwrap();
    let hooks = deep.join(".git/hooks");
    assert_restored(&dir, &before, &[hooks.to_str().unwrap(), ".docket"], &[deep.to_str().unwrap()]);
}

#[test]
fn own_git_config_is_saved_regardless_of_other_files() {
    let large = "x".repeat(1024 * 1024);
    let mut files: Vec<(String, &str)> = (0..40).map(|n| (format!(".docket/{n}"), large.as_str())).collect();
    files.extend((0..150).map(|n| (format!(".a{n}/docket.toml"), "a")));
    files.push((".git/config".to_owned(), "own"));
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let dir = workspace(&files);
    let before = ProtectedPaths::scan(dir.path()).unwrap();
    assert!(before.read_only_paths().contains(&PathBuf::from(".git/config")));
    fs::write(dir.path().join(".git/config"), "evil").unwrap();
    before.restore(dir.path()).unwrap();
    assert_eq!(fs::read(dir.path().join(".git/config")).unwrap(), b"own");
    // An entry that was not saved is not removed as if it could be restored.
    let large = |(path, held): (&PathBuf, &SavedEntry)| {
        matches!(held, SavedEntry::Large { .. }).then(|| path.clone())
    };
    let path = before.entries.iter().find_map(large).unwrap();
    fs::write(dir.path().join(&path), "evil").unwrap();
    assert!(before.restore(dir.path()).unwrap_err().to_string().contains(path.to_str().unwrap()));
    assert!(dir.path().join(&path).exists());
}

/// Runs as a user other than root: a folder without permissions still belongs to docket.
#[test]
fn unreadable_folder_hides_nothing() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    const USER: u32 = 12_345;
    let dir = workspace(&[("x", "")]);
    let act = move || {
        if nix::unistd::geteuid().is_root() {
            chown(dir.path(), Some(USER), Some(USER)).unwrap();
            // Applies to this thread alone.
            nix::unistd::setfsuid(USER.into());
        }
        let before = ProtectedPaths::scan(dir.path()).unwrap();
        let close = |path: &str, mode| {
            fs::set_permissions(dir.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        write_files(&dir, &[("z/.git/hooks/x", "evil"), ("z/docket.toml", "evil"), (".docket/x", "evil")]);
        close("z/.git/hooks", 0o555);
        close("z/.git", 0o300);
        close("z", 0o000);
        close(".docket", 0o555);
        assert!(fs::read_dir(dir.path().join("z")).is_err(), "control");
        before.restore(dir.path()).unwrap();
        assert_restored(&dir, &before, &["z/.git/hooks", "z/docket.toml", ".docket"], &["z/.git"]);
    };
    std::thread::spawn(act).join().unwrap();
}

#[test]
fn concurrent_commands_share_one_baseline() {
    let dir = workspace(&[("x", "")]);
    let first = WorkspaceBaseline::begin(dir.path()).unwrap();
    write_files(&dir, &[(".git/hooks/pre-commit", "evil")]);
    let second = WorkspaceBaseline::begin(dir.path()).unwrap();
    assert_eq!(first.restore().unwrap(), Vec::<String>::new(), "a command is still in it");
    let told = second.restore().unwrap();
    assert!(told.contains(&".git/hooks/pre-commit".to_owned()), "{told:?}");
    assert!(!dir.path().join(".git/hooks").exists());
}
