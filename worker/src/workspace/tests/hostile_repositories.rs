//! Repositories that try to run something. Each trap is shown to work when git is run normally, so that a
//! missing marker proves that docket did not trigger it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::support::{RecordedRun, WorkspaceFixture, git, set_mode, write_file};
use crate::{
    process::{TrustedSpec, git_spec, run_trusted},
    workspace::{
        BaseSource, ChangeView, CommitSignature, ContentReader, DirtyTreePolicy, PinOptions, build_result,
        diff_manifests, pin_base,
    },
};

/// Creates a program that leaves a marker named after the trap and passes its input on.
fn write_trap(house: &WorkspaceFixture, name: &str) -> String {
    let script = house.path_to(&format!("trap-{name}"));
    let marker = house.path_to(&format!("marker-{name}"));
    write_file(house.folder.path(), &script, format!("#!/bin/sh\ntouch '{}'\nexec cat\n", marker.display()));
    set_mode(&script, 0o755);
    script.display().to_string()
}

fn marker_files(house: &WorkspaceFixture) -> Vec<String> {
    let names = fs::read_dir(house.folder.path()).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name.starts_with("marker-"));
    names.sort();
    names
}

/// Runs git as a person would: with the repository's own configuration in force.
async fn git_with_repo_config(dir: &Path, args: &[&str]) {
    let spec = git_spec(args, dir, &[], Vec::new()).unwrap();
    let env: Vec<(OsString, OsString)> = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", "/nonexistent"),
        ("GIT_CONFIG_COUNT", "2"),
        ("GIT_CONFIG_KEY_0", "user.name"),
        ("GIT_CONFIG_VALUE_0", "t"),
        ("GIT_CONFIG_KEY_1", "user.email"),
        ("GIT_CONFIG_VALUE_1", "t@example.org"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into();
    // Only what it ran matters here, not whether it succeeded.
    let _outcome = run_trusted(TrustedSpec { env, ..spec }).await.unwrap();
}

/// Creates a source whose configuration, hooks and attributes all lead to traps.
async fn set_traps(house: &WorkspaceFixture) {
    let source = house.source_repo();
    write_file(&source, ".gitattributes", "*.up filter=up\n*.tc diff=tc\n");
    write_file(&source, "a.up", "original\n");
    write_file(&source, "b.tc", "original\n");
    house.commit_source().await;
    for (key, name) in [
        ("core.fsmonitor", "fsmonitor"),
        ("filter.up.clean", "clean"),
        ("filter.up.smudge", "smudge"),
        ("diff.tc.textconv", "textconv"),
        ("diff.external", "external"),
        ("core.sshCommand", "ssh"),
    ] {
        git(&source, &["config", key, &write_trap(house, name)]).await;
    }
    for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-commit"] {
        let path = source.join(".git/hooks").join(hook);
        write_file(&source, &path, fs::read(PathBuf::from(write_trap(house, hook))).unwrap());
        set_mode(&path, 0o755);
    }
}

#[tokio::test]
async fn nothing_that_a_repository_defines_is_run() {
    let mut house = WorkspaceFixture::new();
    set_traps(&house).await;
    let source = house.source_repo();
    write_file(&source, "a.up", "dirty\n");
    write_file(&source, "b.tc", "dirty\n");

    let refused = pin_base(&BaseSource::Local(source.clone()), &house.pin_options(), &mut house.blobs).await;
    assert!(refused.is_err());
    let options = PinOptions { dirty: DirtyTreePolicy::Include, ..house.pin_options() };
    let pinned = pin_base(&BaseSource::Local(source.clone()), &options, &mut house.blobs).await.unwrap();
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    assert_eq!(fs::read(house.path_to("a").join("a.up")).unwrap(), b"dirty\n");
    write_file(&house.path_to("a"), "a.up", "changed\n");
    write_file(&house.path_to("a"), "b.tc", "changed\n");
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let scratch = house.path_to("scratch");
    let result =
        build_result(workspace.base_objects(), &recorded.overlay, &house.blobs, &scratch).await.unwrap();
    result.to_patch().await.unwrap();
    let signature = CommitSignature { name: "d".to_owned(), email: "d@localhost".to_owned(), at_seconds: 1 };
    result.deliver_new_branch(&source, "done", "m", &signature).await.unwrap();
    let contents = ContentReader::new(workspace.base_objects(), &house.blobs);
    let diffs = diff_manifests(workspace.base_manifest(), &workspace.manifest(), &contents).await.unwrap();
    assert!(diffs.iter().all(|diff| matches!(diff.change, ChangeView::Text(_))));
    assert_eq!(marker_files(&house), [""; 0], "docket ran what the repository says");

    // The control: the same repository with a normal git.
    git_with_repo_config(&source, &["status"]).await;
    git_with_repo_config(&source, &["diff"]).await;
    git_with_repo_config(&source, &["diff", "--no-ext-diff"]).await;
    git_with_repo_config(&source, &["add", "-A"]).await;
    git_with_repo_config(&source, &["commit", "-m", "two"]).await;
    git_with_repo_config(&source, &["checkout", "-f", "HEAD~1"]).await;
    git_with_repo_config(&source, &["branch", "another"]).await;
    let expected = [
        "clean",
        "external",
        "fsmonitor",
        "post-checkout",
        "post-index-change",
        "pre-commit",
        "reference-transaction",
        "smudge",
        "textconv",
    ];
    assert_eq!(marker_files(&house), expected.map(|name| format!("marker-{name}")));
}

#[tokio::test]
async fn hostile_git_folder_is_captured_and_restored_without_running_it() {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "a", "1\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("a", &pinned).await;
    let dir = house.path_to("a");
    let script = write_trap(&house, "model");
    git(&dir, &["config", "core.fsmonitor", &script]).await;
    git(&dir, &["config", "core.hooksPath", ".git/hooks"]).await;
    write_file(&dir, ".git/hooks/post-index-change", fs::read(&script).unwrap());
    set_mode(&dir.join(".git/hooks/post-index-change"), 0o755);
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let mut fresh = house.materialize_workspace("b", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    build_result(fresh.base_objects(), &recorded.overlay, &house.blobs, &house.path_to("scratch"))
        .await
        .unwrap();
    assert_eq!(marker_files(&house), [""; 0]);
    git_with_repo_config(&house.path_to("b"), &["status"]).await;
    assert_eq!(
        marker_files(&house),
        ["marker-model"],
        "the trap is real, and only the sandbox may step into it"
    );
}

#[tokio::test]
async fn partial_clone_does_not_fetch_with_its_configured_program() {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "a", "1\n");
    house.commit_source().await;
    let source = house.source_repo();
    let blob = git(&source, &["rev-parse", "HEAD:a"]).await;
    let commit = git(&source, &["rev-parse", "HEAD"]).await;
    for (key, value) in [
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", &format!("file://{}", source.display())),
        // A trap that ends without using the protocol: the control's git must not wait for it.
        ("remote.origin.uploadpack", &format!("{} < /dev/null; false", write_trap(&house, "uploadpack"))),
    ] {
        git(&source, &["config", key, value]).await;
    }
    for object in [&blob, &commit] {
        let (folder, name) = object.trim().split_at(2);
        fs::remove_file(source.join(".git/objects").join(folder).join(name)).unwrap();
        let error =
            pin_base(&BaseSource::Local(source.clone()), &house.pin_options(), &mut house.blobs).await;
        assert!(error.is_err(), "an object is missing");
    }
    assert_eq!(marker_files(&house), [""; 0]);
    git_with_repo_config(&source, &["cat-file", "-p", blob.trim()]).await;
    assert_eq!(marker_files(&house), ["marker-uploadpack"]);
}
