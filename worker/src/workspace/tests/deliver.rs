//! Patches that `git apply` accepts, branches that are created once, and differences for people.

use std::{fs, os::unix::fs::symlink};

use super::support::{
    RecordedRun, WorkspaceFixture, git, git_with_stdin, path, read_plain_tree, set_mode, write_file,
};
use crate::workspace::{
    BaseSource, ChangeView, CommitSignature, ContentReader, DeliverError, PinOptions, PinnedBase, Workspace,
    apply_changes, build_result, diff_manifests, pin_base,
};

async fn fixture_with_changes() -> (WorkspaceFixture, PinnedBase, Workspace, RecordedRun) {
    let mut house = WorkspaceFixture::new();
    let source = house.source_repo();
    write_file(&source, "src/a.rs", "one\ntwo\nthree\n");
    write_file(&source, "gone", "x\n");
    write_file(&source, "file-to-folder", "x\n");
    write_file(&source, "folder-to-file/x", "x\n");
    write_file(&source, "data", b"\x00\x01");
    write_file(&source, "tool", "t\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    let dir = house.path_to("a");
    write_file(&dir, "src/a.rs", "one\nTWO\nthree\n");
    fs::remove_file(dir.join("gone")).unwrap();
    fs::remove_file(dir.join("file-to-folder")).unwrap();
    write_file(&dir, "file-to-folder/inside", "no newline at the end");
    fs::remove_dir_all(dir.join("folder-to-file")).unwrap();
    write_file(&dir, "folder-to-file", "crlf\r\n");
    write_file(&dir, "data", b"\x00\x02\xff");
    set_mode(&dir.join("tool"), 0o755);
    symlink("src", dir.join("link")).unwrap();
    write_file(&dir, "ünï", "u\n");
    fs::create_dir(dir.join("hollow")).unwrap();
    write_file(&dir, "nested/.git/HEAD", "ref: x\n");
    write_file(&dir, "nested/file", "n\n");
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    (house, pinned, workspace, recorded)
}

fn signature() -> CommitSignature {
    CommitSignature {
        name: "docket".to_owned(),
        email: "docket@localhost".to_owned(),
        at_seconds: 1_700_000_100,
    }
}

#[tokio::test]
async fn patch_applies_to_a_clean_checkout_and_gives_the_same_tree() {
    let (house, _, workspace, recorded) = fixture_with_changes().await;
    let scratch = house.path_to("scratch");
    let result =
        build_result(workspace.base_objects(), &recorded.overlay, &house.blobs, &scratch).await.unwrap();
    assert_eq!(result.skipped_paths(), [path("nested/.git/HEAD")]);
    let patch = result.to_patch().await.unwrap();
    let clean = house.path_to("clean");
    git(house.folder.path(), &["clone", "-q", "source", "clean"]).await;
    git_with_stdin(&clean, &["apply", "--check", "--index", "-"], &patch).await;
    git_with_stdin(&clean, &["apply", "--index", "-"], &patch).await;
    let mut expected = read_plain_tree(&house.path_to("a"));
    for not_of_git in [&b"hollow"[..], b"nested/.git", b"nested/.git/HEAD"] {
        expected.remove(not_of_git);
    }
    assert_eq!(read_plain_tree(&clean), expected);
}

#[tokio::test]
async fn branch_is_created_once_and_never_moved() {
    let (house, pinned, workspace, recorded) = fixture_with_changes().await;
    let scratch = house.path_to("scratch");
    let result =
        build_result(workspace.base_objects(), &recorded.overlay, &house.blobs, &scratch).await.unwrap();
    let source = house.source_repo();
    let before = git(&source, &["status", "--porcelain", "-b"]).await;
    let commit = result.deliver_new_branch(&source, "docket/x", "Do it\n", &signature()).await.unwrap();
    let again = result.deliver_new_branch(&source, "docket/x", "Do it\n", &signature()).await.unwrap();
    assert_eq!(again, commit);
    assert_eq!(git(&source, &["rev-parse", "docket/x"]).await.trim(), commit);
    assert_eq!(git(&source, &["rev-parse", "docket/x^"]).await.trim(), pinned.base.git.unwrap().commit);
    assert_eq!(git(&source, &["status", "--porcelain", "-b"]).await, before, "the checkout is unchanged");
    git(&source, &["fsck", "--strict"]).await;

    let other = result.deliver_new_branch(&source, "docket/x", "Something else\n", &signature()).await;
    assert!(matches!(other, Err(DeliverError::BranchTaken { at, .. }) if at == commit));
    let other = result.deliver_new_branch(&source, "trunk", "Do it\n", &signature()).await;
    assert!(matches!(other, Err(DeliverError::BranchTaken { .. })));
    for bad in ["", "a..b", "-x", "a b", "x.lock"] {
        let refused = result.deliver_new_branch(&source, bad, "m", &signature()).await;
        assert!(matches!(refused, Err(DeliverError::BranchName(_))), "{bad}");
    }
}

#[tokio::test]
async fn a_base_of_uncommitted_changes_is_delivered_with_its_commit() {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "a", "1\n");
    house.commit_source().await;
    write_file(&house.source_repo(), "a", "2\n");
    let options = PinOptions { dirty: crate::workspace::DirtyTreePolicy::Include, ..house.pin_options() };
    let pinned = pin_base(&BaseSource::Local(house.source_repo()), &options, &mut house.blobs).await.unwrap();
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    write_file(&house.path_to("a"), "a", "3\n");
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let result =
        build_result(workspace.base_objects(), &recorded.overlay, &house.blobs, &house.path_to("scratch"))
            .await;
    let result = result.unwrap();
    result.deliver_new_branch(&house.source_repo(), "done", "Three\n", &signature()).await.unwrap();
    let log = git(&house.source_repo(), &["log", "--format=%s", "done"]).await;
    assert_eq!(log, "Three\nUncommitted changes at submit\none\n");
    assert_eq!(git(&house.source_repo(), &["show", "done:a"]).await, "3\n");
}

#[tokio::test]
async fn text_differences_are_shown_and_binary_is_reported() {
    let (house, _, workspace, recorded) = fixture_with_changes().await;
    let changes: Vec<_> = recorded
        .overlay
        .iter()
        .map(|(path, entry)| docket_schema::snapshot::PathChange { path: path.clone(), entry: *entry })
        .collect();
    let base = workspace.base_manifest();
    let now = apply_changes(base, &changes);
    assert_eq!(now, workspace.manifest());
    let contents = ContentReader::new(workspace.base_objects(), &house.blobs);
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
