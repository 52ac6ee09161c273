//! Pin → materialize → change → snapshot → restore elsewhere, with every unusual content that a folder can
//! have.

use std::{fs, os::unix::fs::symlink};

use docket_schema::snapshot::{EntryKind, OmissionReason};

use super::support::{
    RecordedRun, WorkspaceFixture, git, path, path_from_bytes, read_plain_tree, set_mode, write_file,
};
use crate::workspace::{
    BaseSource, DirtyTreePolicy, MemoryBlobs, PinError, PinNote, PinOptions, PinnedBase, materialize,
    pin_base,
};

/// A source with everything that git itself can store.
fn fill_unusual_source(house: &WorkspaceFixture) {
    let source = house.source_repo();
    write_file(&source, "src/main.rs", "fn main() {}\n");
    write_file(&source, "crlf.txt", "one\r\ntwo\r\n");
    write_file(&source, ".gitattributes", "*.txt text eol=lf\n*.bin filter=upper\n");
    write_file(&source, "data.bin", b"\x00\xff\x00abc");
    write_file(&source, "empty", "");
    write_file(&source, "naïve ünïcode/日本.txt", "x\n");
    write_file(&source, path_from_bytes(b"caf\xe9/\xff\xfe"), "latin\n");
    write_file(&source, "new\nline \"quoted\"", "y\n");
    write_file(&source, "run.sh", "#!/bin/sh\n");
    set_mode(&source.join("run.sh"), 0o755);
    write_file(&source, ".gitignore", "*.log\n/target/\nkept.log/\n");
    write_file(&source, "forced.log", "tracked though ignored\n");
    write_file(&source, "target/forced", "tracked in an ignored folder\n");
    symlink("src/main.rs", source.join("link")).unwrap();
    symlink("/etc/passwd", source.join("absolute")).unwrap();
    symlink("nowhere", source.join("dangling")).unwrap();
    symlink("src", source.join("folder-link")).unwrap();
}

#[tokio::test]
async fn materialized_base_equals_the_commit_and_git_finds_it_clean() {
    let mut house = WorkspaceFixture::new();
    fill_unusual_source(&house);
    house.commit_source().await;
    let pinned = house.pin_source().await;
    assert_eq!(pinned.notes, []);
    assert_eq!(pinned.base.git.as_ref().unwrap().branch.as_deref(), Some("trunk"));
    let workspace = house.materialize_workspace("a", &pinned).await;
    assert_eq!(read_plain_tree(&house.path_to("a")).len(), read_plain_tree(&house.source_repo()).len());
    let mut expected = read_plain_tree(&house.source_repo());
    // The commit has the content after git's conversion: eol conversion is part of `git add`, not of docket.
    expected.insert(b"crlf.txt".to_vec(), ("file 644".to_owned(), b"one\ntwo\n".to_vec()));
    assert_eq!(read_plain_tree(&house.path_to("a")), expected);
    assert_eq!(workspace.manifest(), *workspace.base_manifest());
    assert_eq!(git(&house.path_to("a"), &["status", "--porcelain", "-b"]).await, "## trunk\n");
    git(&house.path_to("a"), &["fsck", "--strict"]).await;
    // Pinning twice gives the same base, independent of time and place.
    assert_eq!(house.pin_source().await.base, pinned.base);
}

#[tokio::test]
async fn every_unusual_change_is_recorded_and_restored() {
    let mut house = WorkspaceFixture::new();
    fill_unusual_source(&house);
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    let dir = house.path_to("a");
    let nothing = workspace.snapshot_walk().unwrap();
    assert!(nothing.is_empty(), "{nothing:?}");

    write_file(&dir, "new/deep/file", "1");
    fs::create_dir(dir.join("hollow")).unwrap();
    write_file(&dir, path_from_bytes(b"\xf0\x28"), b"\x80\x81");
    fs::remove_file(dir.join("crlf.txt")).unwrap();
    write_file(&dir, "crlf.txt/now-a-folder", "2");
    fs::remove_dir_all(dir.join("src")).unwrap();
    write_file(&dir, "src", "now a file");
    set_mode(&dir.join("empty"), 0o600);
    set_mode(&dir.join("data.bin"), 0o711);
    fs::remove_file(dir.join("link")).unwrap();
    symlink("elsewhere", dir.join("link")).unwrap();
    fs::remove_file(dir.join("naïve ünïcode/日本.txt")).unwrap();
    fs::create_dir(dir.join("private")).unwrap();
    write_file(&dir, "private/key", "k");
    set_mode(&dir.join("private"), 0o700);
    write_file(&dir, "nested/.git/config", "[core]\n");
    write_file(&dir, "nested/a", "a");
    write_file(&dir, "noise.log", "ignored");
    write_file(&dir, "target/built", "ignored");
    write_file(&dir, "forced.log", "captured, for the base has it");
    write_file(&dir, "target/forced", "captured too");
    nix::unistd::mkfifo(&dir.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();

    let delta = workspace.snapshot_walk().unwrap();
    let left: Vec<_> = delta.left_out.iter().map(|l| (l.path.to_string(), l.why)).collect();
    assert_eq!(
        left,
        [
            ("noise.log".to_owned(), OmissionReason::Ignored),
            ("pipe".to_owned(), OmissionReason::NotAFile),
            ("target/built".to_owned(), OmissionReason::Ignored),
        ]
    );
    let sorted: Vec<_> = delta.changes.iter().map(|change| change.path.clone()).collect();
    assert!(sorted.is_sorted());
    let folder = delta.changes.iter().find(|change| change.path == path("naïve ünïcode")).unwrap();
    assert_eq!(folder.entry.unwrap().kind, EntryKind::Dir, "an emptied folder stays");
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(delta, &mut house.blobs);
    assert!(workspace.snapshot_walk().unwrap().is_empty());

    let mut expected = read_plain_tree(&dir);
    for left_out in [&b"noise.log"[..], b"target/built", b"pipe"] {
        expected.remove(left_out);
    }
    let mut fresh = house.materialize_workspace("b", &pinned).await;
    let restored = recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(read_plain_tree(&house.path_to("b")), expected);
    assert_eq!(restored.missing.len(), 3);
    assert_eq!(fresh.manifest(), workspace.manifest());
    assert!(fresh.snapshot_walk().unwrap().is_empty(), "what was restored is what was recorded");
    // Back to the base.
    RecordedRun::default().restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(fresh.manifest(), *fresh.base_manifest());
}

#[tokio::test]
async fn captured_path_stays_captured_when_ignored_later() {
    let mut house = WorkspaceFixture::new();
    fill_unusual_source(&house);
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    let dir = house.path_to("a");
    fs::remove_file(dir.join("forced.log")).unwrap();
    fs::remove_dir_all(dir.join("target")).unwrap();
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    write_file(&dir, ".gitignore", "*\n");
    write_file(&dir, "hidden?", "no");
    write_file(&dir, "forced.log", "again");
    write_file(&dir, "target/forced", "again");
    write_file(&dir, "target/other", "never captured");
    let mut resumed = house.materialize_workspace("b", &pinned).await;
    recorded.restore_into(&mut resumed, &house.blobs).await.unwrap();
    for (workspace, dir) in [(&mut workspace, dir), (&mut resumed, house.path_to("b"))] {
        for name in [".gitignore", "hidden?", "forced.log", "target/forced", "target/other"] {
            write_file(&dir, name, "again");
        }
        let delta = workspace.snapshot_walk().unwrap();
        let changed: Vec<_> = delta.changes.iter().map(|change| change.path.to_string()).collect();
        assert_eq!(changed, [".gitignore", "forced.log", "hidden?", "target/forced"]);
        assert_eq!(delta.left_out.iter().map(|l| l.path.to_string()).collect::<Vec<_>>(), ["target/other"]);
    }
}

#[tokio::test]
async fn snapshot_of_touched_paths_equals_a_full_walk() {
    let mut house = WorkspaceFixture::new();
    fill_unusual_source(&house);
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut quick = house.materialize_workspace("a", &pinned).await;
    let mut slow = house.materialize_workspace("b", &pinned).await;
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
    for dir in [house.path_to("a"), house.path_to("b")] {
        write_file(&dir, "new/deep/file", "1");
        write_file(&dir, "noise.log", "1");
        write_file(&dir, "target/x", "1");
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

    // Through a link: the changed file has another name, which only a walk finds.
    fs::remove_file(house.path_to("a").join("dangling")).unwrap();
    write_file(&house.path_to("a"), "real/file", "1");
    symlink("real", house.path_to("a").join("dangling")).unwrap();
    let delta = quick.snapshot_paths(&[path("dangling/file")]).unwrap();
    assert_eq!(delta.changes.len(), 2);
    assert_eq!(delta.tree, quick.manifest().tree_hash());
}

#[tokio::test]
async fn file_over_the_size_limit_is_left_out_unless_in_the_base() {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "large", vec![b'x'; 5000]);
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut options = house.workspace_options();
    options.file_bytes_max = 1000;
    let dir = house.path_to("a");
    let mut workspace = materialize(&dir, &pinned.base, &house.blobs, &options).await.unwrap();
    write_file(&dir, "large", vec![b'x'; 5000]);
    assert!(workspace.snapshot_walk().unwrap().changes.is_empty(), "touched, not changed");
    write_file(&dir, "grown", vec![b'y'; 1000]);
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    write_file(&dir, "grown", vec![b'y'; 1001]);
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!(delta.changes.len(), 1);
    assert_eq!(delta.changes[0].entry, None);
    assert_eq!(delta.left_out[0].why, OmissionReason::TooLarge);
    recorded.apply_delta(delta, &mut house.blobs);
    // On the original machine the file is kept; a restore to the previous turn brings the small one back.
    let kept = recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    assert_eq!(kept.missing, []);
    assert_eq!(fs::read(dir.join("grown")).unwrap().len(), 1001);
}

#[tokio::test]
async fn commits_and_stashes_of_the_model_are_restored_intact() {
    let mut house = WorkspaceFixture::new();
    fill_unusual_source(&house);
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    let dir = house.path_to("a");
    write_file(&dir, "work", "committed\n");
    git(&dir, &["add", "work"]).await;
    git(&dir, &["commit", "-q", "-m", "mine"]).await;
    write_file(&dir, "work", "stashed\n");
    git(&dir, &["stash", "push", "-q"]).await;
    git(&dir, &["switch", "-q", "-c", "feature/x"]).await;
    write_file(&dir, ".git/index.lock", "a git that was killed");
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    assert!(recorded.git_overlay.keys().all(|p| !p.as_bytes().ends_with(b".lock")));
    assert!(recorded.git_overlay.keys().all(|p| !p.as_bytes().ends_with(b"alternates")));

    let mut fresh = house.materialize_workspace("b", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    for dir in [house.path_to("a"), house.path_to("b")] {
        git(&dir, &["fsck", "--strict"]).await;
        assert_eq!(git(&dir, &["status", "--porcelain", "-b"]).await, "## feature/x\n");
        assert_eq!(git(&dir, &["log", "--format=%s"]).await, "mine\none\n");
        git(&dir, &["stash", "pop", "-q"]).await;
        assert_eq!(fs::read(dir.join("work")).unwrap(), b"stashed\n");
    }
}

#[tokio::test]
async fn removed_or_replaced_git_folder_is_recorded_and_restored() {
    let mut house = WorkspaceFixture::new();
    fill_unusual_source(&house);
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    fs::remove_dir_all(house.path_to("a").join(".git")).unwrap();
    let mut gone = RecordedRun::default();
    gone.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    write_file(&house.path_to("a"), ".git", "gitdir: /elsewhere\n");
    let mut file = gone.clone();
    file.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let mut fresh = house.materialize_workspace("b", &pinned).await;
    gone.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert!(!house.path_to("b").join(".git").exists());
    file.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert!(house.path_to("b").join(".git").is_file());
    RecordedRun::default().restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(git(&house.path_to("b"), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn dirty_tree_is_refused_with_a_remedy_or_becomes_the_base() {
    let mut house = WorkspaceFixture::new();
    fill_unusual_source(&house);
    house.commit_source().await;
    write_file(&house.source_repo(), "src/main.rs", "fn main() { dirty() }\n");
    write_file(&house.source_repo(), "untracked", "u");
    write_file(&house.source_repo(), "noise.log", "ignored, so no dirt");
    let before = read_plain_tree(&house.source_repo().join(".git"));
    let source = BaseSource::Local(house.source_repo());
    let error = pin_base(&source, &house.pin_options(), &mut MemoryBlobs::default()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("2 uncommitted") && text.contains("--include-dirty"), "{text}");

    let options = PinOptions { dirty: DirtyTreePolicy::Include, ..house.pin_options() };
    let pinned = pin_base(&source, &options, &mut house.blobs).await.unwrap();
    assert_eq!(pinned.notes, [PinNote::DirtyIncluded(2)]);
    house.materialize_workspace("a", &pinned).await;
    assert_eq!(fs::read(house.path_to("a").join("untracked")).unwrap(), b"u");
    assert_eq!(git(&house.path_to("a"), &["status", "--porcelain"]).await, "");
    assert_eq!(
        read_plain_tree(&house.source_repo().join(".git")),
        before,
        "the source repository is never written"
    );

    let named = PinOptions { rev: Some("trunk".to_owned()), ..house.pin_options() };
    let clean = pin_base(&source, &named, &mut house.blobs).await.unwrap();
    assert_ne!(clean.base.tree, pinned.base.tree);
    let both = PinOptions { rev: Some("trunk".to_owned()), ..options };
    assert!(matches!(pin_base(&source, &both, &mut house.blobs).await, Err(PinError::DirtyWithRevision)));
}

#[tokio::test]
async fn pin_errors_suggest_a_remedy() {
    let mut house = WorkspaceFixture::new();
    let source = BaseSource::Local(house.source_repo());
    let error = pin_base(&source, &house.pin_options(), &mut house.blobs).await.unwrap_err();
    assert!(matches!(error, PinError::NoRepository { .. }) && error.to_string().contains("git init"));
    git(&house.source_repo(), &["init", "-q", "."]).await;
    let error = pin_base(&source, &house.pin_options(), &mut house.blobs).await.unwrap_err();
    assert!(
        matches!(error, PinError::UnknownCommit { .. }) && error.to_string().contains("commit first"),
        "{error}"
    );
    let missing = BaseSource::Local(house.path_to("not-there"));
    let error = pin_base(&missing, &house.pin_options(), &mut house.blobs).await.unwrap_err();
    assert!(matches!(error, PinError::SourceFolder { .. }));
}

#[tokio::test]
async fn empty_source_gives_an_empty_workspace_where_git_init_works() {
    let mut house = WorkspaceFixture::new();
    let pinned = pin_base(&BaseSource::Empty, &house.pin_options(), &mut house.blobs).await.unwrap();
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    assert_eq!(workspace.borrowed_objects(), None);
    write_file(&house.path_to("a"), "file", "1");
    git(&house.path_to("a"), &["init", "-q", "."]).await;
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let mut fresh = house.materialize_workspace("b", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(git(&house.path_to("b"), &["status", "--porcelain"]).await, "?? file\n");
}

#[tokio::test]
async fn submodules_and_lfs_pointers_are_reported() {
    let mut house = WorkspaceFixture::new();
    write_file(
        &house.source_repo(),
        "big.psd",
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    );
    house.commit_source().await;
    let link = "160000 0123456789012345678901234567890123456789\tvendor/lib\n";
    super::support::git_with_stdin(&house.source_repo(), &["update-index", "--index-info"], link.as_bytes())
        .await;
    git(&house.source_repo(), &["commit", "-q", "-m", "submodule"]).await;
    let pinned = house.pin_source().await;
    assert_eq!(
        pinned.notes,
        [PinNote::EmptySubmodule(path("vendor/lib")), PinNote::LfsPointer(path("big.psd")),]
    );
    house.materialize_workspace("a", &pinned).await;
    assert!(house.path_to("a").join("vendor/lib").is_dir());
    assert_eq!(git(&house.path_to("a"), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn writes_in_the_tick_of_a_snapshot_are_not_missed() {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "file", "0000");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    for nth in 1..400 {
        // Same size, same inode, and mostly the same timestamp as in the last snapshot.
        write_file(&house.path_to("a"), "file", format!("{nth:04}"));
        assert_eq!(workspace.snapshot_walk().unwrap().changes.len(), 1, "write {nth}");
    }
}

#[tokio::test]
async fn too_large_file_in_the_git_folder_is_reported() {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "a", "1");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut options = house.workspace_options();
    options.file_bytes_max = 1000;
    let mut workspace = materialize(&house.path_to("a"), &pinned.base, &house.blobs, &options).await.unwrap();
    write_file(&house.path_to("a"), ".git/large", vec![1; 2000]);
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!(delta.left_out[0].path, path(".git/large"));
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(delta, &mut house.blobs);
    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    assert!(house.path_to("a").join(".git/large").exists());
}

#[tokio::test]
async fn pinning_the_next_commit_stores_only_differences() {
    let mut house = WorkspaceFixture::new();
    let source = house.source_repo();
    // Incompressible bytes, so that the pack has the same size.
    let mut noise = vec![0; 6 * 1024 * 1024];
    blake3::Hasher::new().update(b"noise").finalize_xof().fill(&mut noise);
    write_file(&source, "large.bin", &noise);
    for n in 0..200 {
        write_file(&source, format!("src/{n}.txt"), format!("file {n}\n").repeat(20));
    }
    house.commit_source().await;
    let first = house.pin_source().await;
    let packs = |pinned: &PinnedBase| pinned.base.git.as_ref().unwrap().pack.clone();
    assert!(packs(&first).len() > 6, "{}", packs(&first).len());
    for n in 0..3 {
        write_file(&source, format!("src/{n}.txt"), "changed\n");
        git(&source, &["commit", "-q", "-a", "-m", "next"]).await;
        let next = house.pin_source().await;
        let new = packs(&next).into_iter().filter(|part| !packs(&first).contains(part));
        let bytes: u64 = new.map(|part| part.bytes).sum();
        assert!(bytes > 0 && bytes < noise.len() as u64 / 3, "{bytes} bytes of the pack are new");
        house.materialize_workspace(&format!("w{n}"), &next).await;
        assert_eq!(read_plain_tree(&house.path_to(&format!("w{n}"))), read_plain_tree(&source));
    }
}

/// The run loop may run these on any thread.
#[test]
fn workspace_futures_are_send() {
    fn check<T: Send>(_: &T) {}
    let mut house = WorkspaceFixture::new();
    let (source, options) = (BaseSource::Empty, house.pin_options());
    check(&pin_base(&source, &options, &mut house.blobs));
    let base: docket_schema::snapshot::WorkspaceBase = serde_json::from_value(serde_json::json!({
        "manifest": { "hash": "0".repeat(64), "bytes": 0 }, "tree": "0".repeat(64),
    }))
    .unwrap();
    let (dir, options) = (house.path_to("a"), house.workspace_options());
    check(&materialize(&dir, &base, &house.blobs, &options));
}
