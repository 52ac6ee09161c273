//! Patches that `git apply` takes, branches that are made once, and differences for people.

use std::{fs, os::unix::fs::symlink};

use super::support::{House, Recorded, git, git_with, path, plain, put, set_mode};
use crate::workspace::{
    ChangeView, Contents, DeliverError, PinOptions, Pinned, Signature, Source, Workspace, build_result,
    diff_manifests, pin, tree_at,
};

async fn changed_house() -> (House, Pinned, Workspace, Recorded) {
    let mut house = House::new();
    let source = house.source();
    put(&source, "src/a.rs", "one\ntwo\nthree\n");
    put(&source, "gone", "x\n");
    put(&source, "file-to-folder", "x\n");
    put(&source, "folder-to-file/x", "x\n");
    put(&source, "data", b"\x00\x01");
    put(&source, "tool", "t\n");
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("a", &pinned).await;
    let dir = house.at("a");
    put(&dir, "src/a.rs", "one\nTWO\nthree\n");
    fs::remove_file(dir.join("gone")).unwrap();
    fs::remove_file(dir.join("file-to-folder")).unwrap();
    put(&dir, "file-to-folder/inside", "no newline at the end");
    fs::remove_dir_all(dir.join("folder-to-file")).unwrap();
    put(&dir, "folder-to-file", "crlf\r\n");
    put(&dir, "data", b"\x00\x02\xff");
    set_mode(&dir.join("tool"), 0o755);
    symlink("src", dir.join("link")).unwrap();
    put(&dir, "ünï", "u\n");
    fs::create_dir(dir.join("hollow")).unwrap();
    put(&dir, "nested/.git/HEAD", "ref: x\n");
    put(&dir, "nested/file", "n\n");
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    (house, pinned, workspace, recorded)
}

fn signature() -> Signature {
    Signature { name: "docket".to_owned(), email: "docket@localhost".to_owned(), at_seconds: 1_700_000_100 }
}

#[tokio::test]
async fn the_patch_applies_to_a_clean_checkout_and_gives_the_same_tree() {
    let (house, _, workspace, recorded) = changed_house().await;
    let scratch = house.at("scratch");
    let result =
        build_result(workspace.base_objects(), &recorded.overlay, &house.blobs, &scratch).await.unwrap();
    assert_eq!(result.skipped(), [path("nested/.git/HEAD")]);
    let patch = result.patch().await.unwrap();
    let clean = house.at("clean");
    git(house.folder.path(), &["clone", "-q", "source", "clean"]).await;
    git_with(&clean, &["apply", "--check", "--index", "-"], &patch).await;
    git_with(&clean, &["apply", "--index", "-"], &patch).await;
    let mut expected = plain(&house.at("a"));
    for not_of_git in [&b"hollow"[..], b"nested/.git", b"nested/.git/HEAD"] {
        expected.remove(not_of_git);
    }
    assert_eq!(plain(&clean), expected);
}

#[tokio::test]
async fn a_branch_is_made_once_and_never_moved() {
    let (house, pinned, workspace, recorded) = changed_house().await;
    let scratch = house.at("scratch");
    let result =
        build_result(workspace.base_objects(), &recorded.overlay, &house.blobs, &scratch).await.unwrap();
    let source = house.source();
    let before = git(&source, &["status", "--porcelain", "-b"]).await;
    let commit = result.deliver_branch(&source, "docket/x", "Do it\n", &signature()).await.unwrap();
    let again = result.deliver_branch(&source, "docket/x", "Do it\n", &signature()).await.unwrap();
    assert_eq!(again, commit);
    assert_eq!(git(&source, &["rev-parse", "docket/x"]).await.trim(), commit);
    assert_eq!(git(&source, &["rev-parse", "docket/x^"]).await.trim(), pinned.base.git.unwrap().commit);
    assert_eq!(git(&source, &["status", "--porcelain", "-b"]).await, before, "what is checked out stays");
    git(&source, &["fsck", "--strict"]).await;

    let other = result.deliver_branch(&source, "docket/x", "Something else\n", &signature()).await;
    assert!(matches!(other, Err(DeliverError::BranchTaken { at, .. }) if at == commit));
    let other = result.deliver_branch(&source, "trunk", "Do it\n", &signature()).await;
    assert!(matches!(other, Err(DeliverError::BranchTaken { .. })));
    for bad in ["", "a..b", "-x", "a b", "x.lock"] {
        let refused = result.deliver_branch(&source, bad, "m", &signature()).await;
        assert!(matches!(refused, Err(DeliverError::BranchName(_))), "{bad}");
    }
}

#[tokio::test]
async fn a_base_of_uncommitted_changes_is_delivered_with_its_commit() {
    let mut house = House::new();
    put(&house.source(), "a", "1\n");
    house.commit_source().await;
    put(&house.source(), "a", "2\n");
    let options = PinOptions { dirty: crate::workspace::DirtyTree::Include, ..house.pin_options() };
    let pinned = pin(&Source::Local(house.source()), &options, &mut house.blobs).await.unwrap();
    let mut workspace = house.workspace("a", &pinned).await;
    put(&house.at("a"), "a", "3\n");
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let result =
        build_result(workspace.base_objects(), &recorded.overlay, &house.blobs, &house.at("scratch")).await;
    let result = result.unwrap();
    result.deliver_branch(&house.source(), "done", "Three\n", &signature()).await.unwrap();
    let log = git(&house.source(), &["log", "--format=%s", "done"]).await;
    assert_eq!(log, "Three\nUncommitted changes at submit\none\n");
    assert_eq!(git(&house.source(), &["show", "done:a"]).await, "3\n");
}

#[tokio::test]
async fn differences_are_shown_as_text_and_binary_is_told() {
    let (house, _, workspace, recorded) = changed_house().await;
    let changes: Vec<_> = recorded
        .overlay
        .iter()
        .map(|(path, entry)| docket_schema::snapshot::PathChange { path: path.clone(), entry: *entry })
        .collect();
    let base = workspace.base_manifest();
    let now = tree_at(base, &changes);
    assert_eq!(now, workspace.manifest());
    let contents = Contents::new(workspace.base_objects(), &house.blobs);
    let diffs = diff_manifests(base, &now, &contents).await.unwrap();
    let of = |name: &str| diffs.iter().find(|diff| diff.path == path(name)).map(|diff| diff.change.clone());
    let text = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n";
    assert_eq!(of("src/a.rs"), Some(ChangeView::Text(text.to_owned())));
    assert_eq!(of("data"), Some(ChangeView::Binary));
    assert_eq!(of("tool"), Some(ChangeView::ModeOnly));
    assert_eq!(of("hollow"), Some(ChangeView::ModeOnly));
    let Some(ChangeView::Text(new)) = of("file-to-folder/inside") else { panic!("text") };
    assert!(new.starts_with("--- /dev/null\n+++ b/file-to-folder/inside\n"), "{new}");
    assert!(new.contains("\\ No newline at end of file"), "{new}");
}
