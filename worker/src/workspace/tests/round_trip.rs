//! Pin → materialize → change → snapshot → restore elsewhere, with every odd thing a folder can hold.

use std::{fs, os::unix::fs::symlink};

use docket_schema::snapshot::{EntryKind, LeftOutWhy};

use super::support::{House, Recorded, git, odd, path, plain, put, set_mode};
use crate::workspace::{
    DirtyTree, MemoryBlobs, PinError, PinNote, PinOptions, Pinned, Source, materialize, pin,
};

/// A source with all that git itself can hold.
fn odd_source(house: &House) {
    let source = house.source();
    put(&source, "src/main.rs", "fn main() {}\n");
    put(&source, "crlf.txt", "one\r\ntwo\r\n");
    put(&source, ".gitattributes", "*.txt text eol=lf\n*.bin filter=upper\n");
    put(&source, "data.bin", b"\x00\xff\x00abc");
    put(&source, "empty", "");
    put(&source, "naïve ünïcode/日本.txt", "x\n");
    put(&source, odd(b"caf\xe9/\xff\xfe"), "latin\n");
    put(&source, "new\nline \"quoted\"", "y\n");
    put(&source, "run.sh", "#!/bin/sh\n");
    set_mode(&source.join("run.sh"), 0o755);
    put(&source, ".gitignore", "*.log\n/target/\nkept.log/\n");
    put(&source, "forced.log", "tracked though ignored\n");
    put(&source, "target/forced", "tracked in an ignored folder\n");
    symlink("src/main.rs", source.join("link")).unwrap();
    symlink("/etc/passwd", source.join("absolute")).unwrap();
    symlink("nowhere", source.join("dangling")).unwrap();
    symlink("src", source.join("folder-link")).unwrap();
}

#[tokio::test]
async fn a_materialized_base_is_the_commit_to_the_byte_and_git_finds_it_clean() {
    let mut house = House::new();
    odd_source(&house);
    house.commit_source().await;
    let pinned = house.pin().await;
    assert_eq!(pinned.notes, []);
    assert_eq!(pinned.base.git.as_ref().unwrap().branch.as_deref(), Some("trunk"));
    let workspace = house.workspace("a", &pinned).await;
    assert_eq!(plain(&house.at("a")).len(), plain(&house.source()).len());
    let mut expected = plain(&house.source());
    // The commit holds what git made of the file: eol conversion is part of `git add`, not of docket.
    expected.insert(b"crlf.txt".to_vec(), ("file 644".to_owned(), b"one\ntwo\n".to_vec()));
    assert_eq!(plain(&house.at("a")), expected);
    assert_eq!(workspace.manifest(), *workspace.base_manifest());
    assert_eq!(git(&house.at("a"), &["status", "--porcelain", "-b"]).await, "## trunk\n");
    git(&house.at("a"), &["fsck", "--strict"]).await;
    // Twice the same: nothing in a base depends on when or where it was made.
    assert_eq!(house.pin().await.base, pinned.base);
}

#[tokio::test]
async fn every_odd_change_is_recorded_and_restored() {
    let mut house = House::new();
    odd_source(&house);
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("a", &pinned).await;
    let dir = house.at("a");
    let nothing = workspace.snapshot_walk().unwrap();
    assert!(nothing.is_empty(), "{nothing:?}");

    put(&dir, "new/deep/file", "1");
    fs::create_dir(dir.join("hollow")).unwrap();
    put(&dir, odd(b"\xf0\x28"), b"\x80\x81");
    fs::remove_file(dir.join("crlf.txt")).unwrap();
    put(&dir, "crlf.txt/now-a-folder", "2");
    fs::remove_dir_all(dir.join("src")).unwrap();
    put(&dir, "src", "now a file");
    set_mode(&dir.join("empty"), 0o600);
    set_mode(&dir.join("data.bin"), 0o711);
    fs::remove_file(dir.join("link")).unwrap();
    symlink("elsewhere", dir.join("link")).unwrap();
    fs::remove_file(dir.join("naïve ünïcode/日本.txt")).unwrap();
    fs::create_dir(dir.join("private")).unwrap();
    put(&dir, "private/key", "k");
    set_mode(&dir.join("private"), 0o700);
    put(&dir, "nested/.git/config", "[core]\n");
    put(&dir, "nested/a", "a");
    put(&dir, "noise.log", "ignored");
    put(&dir, "target/built", "ignored");
    put(&dir, "forced.log", "captured, for the base has it");
    put(&dir, "target/forced", "captured too");
    nix::unistd::mkfifo(&dir.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();

    let delta = workspace.snapshot_walk().unwrap();
    let left: Vec<_> = delta.left_out.iter().map(|l| (l.path.to_string(), l.why)).collect();
    assert_eq!(
        left,
        [
            ("noise.log".to_owned(), LeftOutWhy::Ignored),
            ("pipe".to_owned(), LeftOutWhy::NotAFile),
            ("target/built".to_owned(), LeftOutWhy::Ignored),
        ]
    );
    let sorted: Vec<_> = delta.changes.iter().map(|change| change.path.clone()).collect();
    assert!(sorted.is_sorted());
    let folder = delta.changes.iter().find(|change| change.path == path("naïve ünïcode")).unwrap();
    assert_eq!(folder.entry.unwrap().kind, EntryKind::Dir, "an emptied folder stays");
    let mut recorded = Recorded::default();
    recorded.take(delta, &mut house.blobs);
    assert!(workspace.snapshot_walk().unwrap().is_empty());

    let mut expected = plain(&dir);
    for left_out in [&b"noise.log"[..], b"target/built", b"pipe"] {
        expected.remove(left_out);
    }
    let mut fresh = house.workspace("b", &pinned).await;
    let restored = recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(plain(&house.at("b")), expected);
    assert_eq!(restored.missing.len(), 3);
    assert_eq!(fresh.manifest(), workspace.manifest());
    assert!(fresh.snapshot_walk().unwrap().is_empty(), "what was restored is what was recorded");
    // Back to the base, where it all started.
    Recorded::default().restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(fresh.manifest(), *fresh.base_manifest());
}

#[tokio::test]
async fn a_captured_path_stays_captured_though_ignored_and_rules_of_the_model_hide_nothing() {
    let mut house = House::new();
    odd_source(&house);
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("a", &pinned).await;
    let dir = house.at("a");
    fs::remove_file(dir.join("forced.log")).unwrap();
    fs::remove_dir_all(dir.join("target")).unwrap();
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    put(&dir, ".gitignore", "*\n");
    put(&dir, "hidden?", "no");
    put(&dir, "forced.log", "again");
    put(&dir, "target/forced", "again");
    put(&dir, "target/other", "never captured");
    let mut resumed = house.workspace("b", &pinned).await;
    recorded.restore_into(&mut resumed, &house.blobs).await.unwrap();
    for (workspace, dir) in [(&mut workspace, dir), (&mut resumed, house.at("b"))] {
        for name in [".gitignore", "hidden?", "forced.log", "target/forced", "target/other"] {
            put(&dir, name, "again");
        }
        let delta = workspace.snapshot_walk().unwrap();
        let changed: Vec<_> = delta.changes.iter().map(|change| change.path.to_string()).collect();
        assert_eq!(changed, [".gitignore", "forced.log", "hidden?", "target/forced"]);
        assert_eq!(delta.left_out.iter().map(|l| l.path.to_string()).collect::<Vec<_>>(), ["target/other"]);
    }
}

#[tokio::test]
async fn after_file_tools_no_walk_is_needed_and_the_answer_is_the_same() {
    let mut house = House::new();
    odd_source(&house);
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut quick = house.workspace("a", &pinned).await;
    let mut slow = house.workspace("b", &pinned).await;
    let named: [&[u8]; 9] = [
        b"src/main.rs",
        b"new/deep/file",
        b"link",
        b"run.sh",
        b"noise.log",
        b"empty",
        b"target/x",
        b"gone/never-there",
        "naïve ünïcode/日本.txt".as_bytes(),
    ];
    for dir in [house.at("a"), house.at("b")] {
        put(&dir, "new/deep/file", "1");
        put(&dir, "noise.log", "1");
        put(&dir, "target/x", "1");
        fs::remove_dir_all(dir.join("src")).unwrap();
        fs::remove_file(dir.join("link")).unwrap();
        symlink("run.sh", dir.join("link")).unwrap();
        set_mode(&dir.join("run.sh"), 0o700);
        fs::remove_file(dir.join("naïve ünïcode/日本.txt")).unwrap();
    }
    let paths: Vec<_> = named.iter().map(|name| path(*name)).collect();
    let (quick_delta, slow_delta) = (quick.snapshot_paths(&paths).unwrap(), slow.snapshot_walk().unwrap());
    assert_eq!(quick_delta.changes, slow_delta.changes);
    assert_eq!(quick_delta.tree, slow_delta.tree);
    assert_eq!(quick_delta.left_out, slow_delta.left_out);
    assert!(quick.snapshot_walk().unwrap().is_empty());

    // Through a link: the file that changed has another name, which only a walk finds.
    fs::remove_file(house.at("a").join("dangling")).unwrap();
    put(&house.at("a"), "real/file", "1");
    symlink("real", house.at("a").join("dangling")).unwrap();
    let delta = quick.snapshot_paths(&[path("dangling/file")]).unwrap();
    assert_eq!(delta.changes.len(), 2);
    assert_eq!(delta.tree, quick.manifest().tree_hash());
}

#[tokio::test]
async fn a_file_over_the_cap_is_left_out_unless_it_is_the_base_own() {
    let mut house = House::new();
    put(&house.source(), "large", vec![b'x'; 5000]);
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut options = house.options();
    options.file_bytes_max = 1000;
    let dir = house.at("a");
    let mut workspace = materialize(&dir, &pinned.base, &house.blobs, &options).await.unwrap();
    put(&dir, "large", vec![b'x'; 5000]);
    assert!(workspace.snapshot_walk().unwrap().changes.is_empty(), "touched, not changed");
    put(&dir, "grown", vec![b'y'; 1000]);
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    put(&dir, "grown", vec![b'y'; 1001]);
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!(delta.changes.len(), 1);
    assert_eq!(delta.changes[0].entry, None);
    assert_eq!(delta.left_out[0].why, LeftOutWhy::TooLarge);
    recorded.take(delta, &mut house.blobs);
    // On the machine where it stands it stays; a restore to the turn before brings the small one back.
    let kept = recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    assert_eq!(kept.missing, []);
    assert_eq!(fs::read(dir.join("grown")).unwrap().len(), 1001);
}

#[tokio::test]
async fn commits_and_stashes_of_the_model_are_restored_and_sound() {
    let mut house = House::new();
    odd_source(&house);
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("a", &pinned).await;
    let dir = house.at("a");
    put(&dir, "work", "committed\n");
    git(&dir, &["add", "work"]).await;
    git(&dir, &["commit", "-q", "-m", "mine"]).await;
    put(&dir, "work", "stashed\n");
    git(&dir, &["stash", "push", "-q"]).await;
    git(&dir, &["switch", "-q", "-c", "feature/x"]).await;
    put(&dir, ".git/index.lock", "a git that was killed");
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    assert!(recorded.git_overlay.keys().all(|p| !p.as_bytes().ends_with(b".lock")));
    assert!(recorded.git_overlay.keys().all(|p| !p.as_bytes().ends_with(b"alternates")));

    let mut fresh = house.workspace("b", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    for dir in [house.at("a"), house.at("b")] {
        git(&dir, &["fsck", "--strict"]).await;
        assert_eq!(git(&dir, &["status", "--porcelain", "-b"]).await, "## feature/x\n");
        assert_eq!(git(&dir, &["log", "--format=%s"]).await, "mine\none\n");
        git(&dir, &["stash", "pop", "-q"]).await;
        assert_eq!(fs::read(dir.join("work")).unwrap(), b"stashed\n");
    }
}

#[tokio::test]
async fn a_model_that_removes_or_replaces_its_git_folder_is_taken_at_its_word() {
    let mut house = House::new();
    odd_source(&house);
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("a", &pinned).await;
    fs::remove_dir_all(house.at("a").join(".git")).unwrap();
    let mut gone = Recorded::default();
    gone.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    put(&house.at("a"), ".git", "gitdir: /elsewhere\n");
    let mut file = gone.clone();
    file.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let mut fresh = house.workspace("b", &pinned).await;
    gone.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert!(!house.at("b").join(".git").exists());
    file.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert!(house.at("b").join(".git").is_file());
    Recorded::default().restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(git(&house.at("b"), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn a_dirty_tree_is_refused_with_its_remedy_or_becomes_the_base() {
    let mut house = House::new();
    odd_source(&house);
    house.commit_source().await;
    put(&house.source(), "src/main.rs", "fn main() { dirty() }\n");
    put(&house.source(), "untracked", "u");
    put(&house.source(), "noise.log", "ignored, so no dirt");
    let before = plain(&house.source().join(".git"));
    let source = Source::Local(house.source());
    let error = pin(&source, &house.pin_options(), &mut MemoryBlobs::default()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("2 uncommitted") && text.contains("--include-dirty"), "{text}");

    let options = PinOptions { dirty: DirtyTree::Include, ..house.pin_options() };
    let pinned = pin(&source, &options, &mut house.blobs).await.unwrap();
    assert_eq!(pinned.notes, [PinNote::DirtyIncluded(2)]);
    house.workspace("a", &pinned).await;
    assert_eq!(fs::read(house.at("a").join("untracked")).unwrap(), b"u");
    assert_eq!(git(&house.at("a"), &["status", "--porcelain"]).await, "");
    assert_eq!(plain(&house.source().join(".git")), before, "the source repository is never written");

    let named = PinOptions { rev: Some("trunk".to_owned()), ..house.pin_options() };
    let clean = pin(&source, &named, &mut house.blobs).await.unwrap();
    assert_ne!(clean.base.tree, pinned.base.tree);
    let both = PinOptions { rev: Some("trunk".to_owned()), ..options };
    assert!(matches!(pin(&source, &both, &mut house.blobs).await, Err(PinError::DirtyOfOther)));
}

#[tokio::test]
async fn what_cannot_be_pinned_says_what_to_do() {
    let mut house = House::new();
    let source = Source::Local(house.source());
    let error = pin(&source, &house.pin_options(), &mut house.blobs).await.unwrap_err();
    assert!(matches!(error, PinError::NoRepository { .. }) && error.to_string().contains("git init"));
    git(&house.source(), &["init", "-q", "."]).await;
    let error = pin(&source, &house.pin_options(), &mut house.blobs).await.unwrap_err();
    assert!(
        matches!(error, PinError::NoCommit { .. }) && error.to_string().contains("commit first"),
        "{error}"
    );
    let missing = Source::Local(house.at("not-there"));
    let error = pin(&missing, &house.pin_options(), &mut house.blobs).await.unwrap_err();
    assert!(matches!(error, PinError::SourceFolder { .. }));
}

#[tokio::test]
async fn an_empty_source_is_an_empty_workspace_in_which_git_may_be_started() {
    let mut house = House::new();
    let pinned = pin(&Source::Empty, &house.pin_options(), &mut house.blobs).await.unwrap();
    let mut workspace = house.workspace("a", &pinned).await;
    assert_eq!(workspace.borrowed_objects(), None);
    put(&house.at("a"), "file", "1");
    git(&house.at("a"), &["init", "-q", "."]).await;
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let mut fresh = house.workspace("b", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(git(&house.at("b"), &["status", "--porcelain"]).await, "?? file\n");
}

#[tokio::test]
async fn submodules_and_lfs_pointers_are_told() {
    let mut house = House::new();
    put(&house.source(), "big.psd", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    house.commit_source().await;
    let link = "160000 0123456789012345678901234567890123456789\tvendor/lib\n";
    super::support::git_with(&house.source(), &["update-index", "--index-info"], link.as_bytes()).await;
    git(&house.source(), &["commit", "-q", "-m", "submodule"]).await;
    let pinned = house.pin().await;
    assert_eq!(pinned.notes, [PinNote::Submodule(path("vendor/lib")), PinNote::LfsPointer(path("big.psd")),]);
    house.workspace("a", &pinned).await;
    assert!(house.at("a").join("vendor/lib").is_dir());
    assert_eq!(git(&house.at("a"), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn writes_in_the_tick_of_a_snapshot_are_not_missed() {
    let mut house = House::new();
    put(&house.source(), "file", "0000");
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("a", &pinned).await;
    for nth in 1..400 {
        // Same size, same inode, and mostly the same time stamp as what the last snapshot saw.
        put(&house.at("a"), "file", format!("{nth:04}"));
        assert_eq!(workspace.snapshot_walk().unwrap().changes.len(), 1, "write {nth}");
    }
}

#[tokio::test]
async fn a_git_folder_that_holds_too_large_a_file_says_so() {
    let mut house = House::new();
    put(&house.source(), "a", "1");
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut options = house.options();
    options.file_bytes_max = 1000;
    let mut workspace = materialize(&house.at("a"), &pinned.base, &house.blobs, &options).await.unwrap();
    put(&house.at("a"), ".git/large", vec![1; 2000]);
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!(delta.left_out[0].path, path(".git/large"));
    let mut recorded = Recorded::default();
    recorded.take(delta, &mut house.blobs);
    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    assert!(house.at("a").join(".git/large").exists());
}

#[tokio::test]
async fn the_pin_of_the_next_commit_stores_what_differs_and_not_the_repository_again() {
    let mut house = House::new();
    let source = house.source();
    // Bytes that do not compress, so that the pack is as large as they are.
    let mut noise = vec![0; 6 * 1024 * 1024];
    blake3::Hasher::new().update(b"noise").finalize_xof().fill(&mut noise);
    put(&source, "large.bin", &noise);
    for n in 0..200 {
        put(&source, format!("src/{n}.txt"), format!("file {n}\n").repeat(20));
    }
    house.commit_source().await;
    let first = house.pin().await;
    let packs = |pinned: &Pinned| pinned.base.git.as_ref().unwrap().pack.clone();
    assert!(packs(&first).len() > 6, "{}", packs(&first).len());
    for n in 0..3 {
        put(&source, format!("src/{n}.txt"), "changed\n");
        git(&source, &["commit", "-q", "-a", "-m", "next"]).await;
        let next = house.pin().await;
        let new = packs(&next).into_iter().filter(|part| !packs(&first).contains(part));
        let bytes: u64 = new.map(|part| part.bytes).sum();
        assert!(bytes > 0 && bytes < noise.len() as u64 / 3, "{bytes} bytes of the pack are new");
        house.workspace(&format!("w{n}"), &next).await;
        assert_eq!(plain(&house.at(&format!("w{n}"))), plain(&source));
    }
}

/// The driver may run these on any thread.
#[test]
fn the_futures_are_send() {
    fn check<T: Send>(_: &T) {}
    let mut house = House::new();
    let (source, options) = (Source::Empty, house.pin_options());
    check(&pin(&source, &options, &mut house.blobs));
    let base: docket_schema::snapshot::Base = serde_json::from_value(serde_json::json!({
        "manifest": { "hash": "0".repeat(64), "bytes": 0 }, "tree": "0".repeat(64),
    }))
    .unwrap();
    let (dir, options) = (house.at("a"), house.options());
    check(&materialize(&dir, &base, &house.blobs, &options));
}
