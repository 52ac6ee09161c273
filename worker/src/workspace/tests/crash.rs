//! Workspaces left dirty by a crash, damaged blobs and caches, and two concurrent processes.

use std::{fs, os::unix::fs::symlink};

use docket_schema::{ids::TreeHash, snapshot::PathChange};

use super::support::{RecordedRun, WorkspaceFixture, git, path, read_plain_tree, set_mode, write_file};
use crate::workspace::{
    BlobError, ContentsError, MaterializeError, MemoryBlobs, RestoreError, Workspace, ensure_cached_base,
    materialize,
};

async fn fixture_with_one_turn() -> (WorkspaceFixture, crate::workspace::PinnedBase, Workspace, RecordedRun) {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "src/a", "a\n");
    write_file(&house.source_repo(), "src/deep/b", "b\n");
    write_file(&house.source_repo(), ".gitignore", "*.o\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    write_file(&house.path_to("a"), "made", "m\n");
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    (house, pinned, workspace, recorded)
}

#[tokio::test]
async fn dirty_workspace_is_restored() {
    let (house, pinned, workspace, recorded) = fixture_with_one_turn().await;
    drop(workspace);
    let dir = house.path_to("a");
    let expected = read_plain_tree(&dir);
    let outside = house.path_to("outside");
    write_file(&house.folder.path().join("outside"), "precious", "must stay");

    fs::remove_dir_all(dir.join("src/deep")).unwrap();
    symlink(&outside, dir.join("src/deep")).unwrap();
    fs::remove_file(dir.join("made")).unwrap();
    write_file(&dir, "made/into/a/folder", "x");
    write_file(&dir, "half-written", "x");
    write_file(&dir, "src/a.o", "ignored: may stay");
    write_file(&dir, "pkg/only.o", "ignored, but its folder is not recorded");
    set_mode(&dir.join("src/a"), 0o000);
    fs::hard_link(outside.join("precious"), dir.join("second-name")).unwrap();
    write_file(&dir, "locked/x", "x");
    set_mode(&dir.join("locked"), 0o500);
    set_mode(&dir.join("src"), 0o555);
    nix::unistd::mkfifo(&dir.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    write_file(&dir, ".git/index.lock", "");
    write_file(&dir, ".git/objects/info/alternates", "/elsewhere\n");
    fs::remove_file(dir.join(".git/HEAD")).unwrap();

    let options = house.workspace_options();
    let mut again = Workspace::open(&dir, &pinned.base, &house.blobs, &options).await.unwrap();
    recorded.restore_into(&mut again, &house.blobs).await.unwrap();
    let mut found = read_plain_tree(&dir);
    assert_eq!(found.remove(&b"src/a.o"[..]).unwrap().1, b"ignored: may stay");
    assert_eq!(found, expected);
    assert_eq!(fs::read(outside.join("precious")).unwrap(), b"must stay");
    assert_eq!(git(&dir, &["status", "--porcelain"]).await, "?? made\n");
    assert!(again.snapshot_walk().unwrap().is_empty());
}

#[tokio::test]
async fn tree_hash_mismatch_names_a_path() {
    let (house, _, mut workspace, mut recorded) = fixture_with_one_turn().await;
    let right = recorded.tree.unwrap();
    recorded.tree = Some(TreeHash([7; 32]));
    let error = recorded.restore_into(&mut workspace, &house.blobs).await.unwrap_err();
    let RestoreError::TreeMismatch { expected, found, .. } = &error else { panic!("{error}") };
    assert_eq!((*expected, *found), (TreeHash([7; 32]), right));
    assert!(error.to_string().contains("docket verify"));
}

#[tokio::test]
async fn a_missing_or_damaged_blob_is_named() {
    let (mut house, pinned, mut workspace, recorded) = fixture_with_one_turn().await;
    fs::remove_file(house.path_to("a").join("made")).unwrap();
    let lost = MemoryBlobs::default();
    let error = recorded.restore_into(&mut workspace, &lost).await.unwrap_err();
    assert!(matches!(error, RestoreError::Contents(ContentsError::Blob(BlobError::Missing(_)))), "{error}");

    let part = pinned.base.git.as_ref().unwrap().pack[0];
    crate::workspace::BlobSink::put(&mut house.blobs, part, b"other bytes".to_vec()).await.unwrap();
    let mut options = house.workspace_options();
    options.cache_dir = house.path_to("another-cache");
    let result = materialize(&house.path_to("b"), &pinned.base, &house.blobs, &options).await;
    let error = result.err().expect("refused");
    assert!(
        matches!(error, MaterializeError::Blob(BlobError::Damaged(hash)) if hash == part.hash),
        "{error}"
    );
}

#[tokio::test]
async fn damaged_cache_is_rebuilt() {
    let (house, pinned, _, _) = fixture_with_one_turn().await;
    let cached = ensure_cached_base(&pinned.base, &house.blobs, &house.path_to("cache")).await.unwrap();
    let packs = cached.objects_folder().unwrap().join("pack");
    for file in fs::read_dir(packs).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|ext| ext == "pack") {
            fs::write(file, b"not a pack").unwrap();
        }
    }
    house.materialize_workspace("b", &pinned).await;
    assert_eq!(fs::read(house.path_to("b").join("src/a")).unwrap(), b"a\n");
    let left = fs::read_dir(house.path_to("cache")).unwrap().count();
    assert_eq!(left, 1, "the damaged one is gone");
}

#[tokio::test]
async fn concurrent_processes_share_one_cache() {
    let (house, pinned, _, _) = fixture_with_one_turn().await;
    let mut options = house.workspace_options();
    options.cache_dir = house.path_to("fresh-cache");
    let (b, c) = (house.path_to("b"), house.path_to("c"));
    let (one, two) = tokio::join!(
        materialize(&b, &pinned.base, &house.blobs, &options),
        materialize(&c, &pinned.base, &house.blobs, &options),
    );
    assert_eq!(one.unwrap().manifest(), two.unwrap().manifest());
    assert_eq!(fs::read_dir(house.path_to("fresh-cache")).unwrap().count(), 1);
    let again = materialize(&b, &pinned.base, &house.blobs, &options).await;
    assert!(matches!(again.err(), Some(MaterializeError::NotEmpty(_))));
}

#[tokio::test]
async fn a_base_with_dangerous_paths_or_a_wrong_hash_is_refused() {
    let (mut house, pinned, _, _) = fixture_with_one_turn().await;
    let mut manifest = docket_schema::snapshot::Manifest::default();
    let cached = ensure_cached_base(&pinned.base, &house.blobs, &house.path_to("cache")).await.unwrap();
    let entry = *cached.manifest().entries.values().next().unwrap();
    let change = PathChange { path: path("sub/.GIT/hooks/x"), entry: Some(entry) };
    manifest.apply_changes([&change]);
    let encoded = manifest.encode();
    let mut base = pinned.base.clone();
    base.manifest = docket_schema::content::BlobRef::for_bytes(&encoded);
    crate::workspace::BlobSink::put(&mut house.blobs, base.manifest, encoded).await.unwrap();
    let refused = |result: Result<_, MaterializeError>| match result {
        Err(MaterializeError::DamagedBase(text)) => text,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("accepted"),
    };
    let cache = house.path_to("cache");
    assert!(refused(ensure_cached_base(&base, &house.blobs, &cache).await).contains("tree hash"));
    base.tree = manifest.tree_hash();
    assert!(refused(ensure_cached_base(&base, &house.blobs, &cache).await).contains("git folder"));
}

#[tokio::test]
async fn files_get_the_configured_owner() {
    use std::{io::Write, os::unix::fs::MetadataExt};
    let (house, pinned, _, recorded) = fixture_with_one_turn().await;
    if !nix::unistd::geteuid().is_root() {
        let told =
            std::io::stderr().write_all(b"not root here: only root can give files away; nothing checked\n");
        told.unwrap();
        return;
    }
    let mut options = house.workspace_options();
    options.owner = Some(crate::workspace::FileOwner { uid: 12_345, gid: 23_456 });
    let dir = house.path_to("b");
    let mut workspace = materialize(&dir, &pinned.base, &house.blobs, &options).await.unwrap();
    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    for name in ["", "src", "src/a", "made", ".git", ".git/HEAD", ".git/objects/info/alternates"] {
        let meta = fs::symlink_metadata(dir.join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (12_345, 23_456), "{name}");
    }
}
