//! Repositories that try to run something. Each trap is shown to work when git is run plainly, so that a
//! missing marker means that docket did not step into it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::support::{House, Recorded, git, put, set_mode};
use crate::{
    process::{TrustedSpec, git_spec, run_trusted},
    workspace::{
        ChangeView, Contents, DirtyTree, PinOptions, Signature, Source, build_result, diff_manifests, pin,
    },
};

/// A program that leaves a marker named after the trap, and hands its input on.
fn trap(house: &House, name: &str) -> String {
    let script = house.at(&format!("trap-{name}"));
    let marker = house.at(&format!("marker-{name}"));
    put(house.folder.path(), &script, format!("#!/bin/sh\ntouch '{}'\nexec cat\n", marker.display()));
    set_mode(&script, 0o755);
    script.display().to_string()
}

fn markers(house: &House) -> Vec<String> {
    let names = fs::read_dir(house.folder.path()).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name.starts_with("marker-"));
    names.sort();
    names
}

/// git as a person would run it: with the repository's own configuration in force.
async fn plain_git(dir: &Path, args: &[&str]) {
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
    // Whether it succeeds does not matter here, only what it ran.
    let _outcome = run_trusted(TrustedSpec { env, ..spec }).await.unwrap();
}

/// A source whose configuration, hooks and attributes all lead into traps.
async fn set_traps(house: &House) {
    let source = house.source();
    put(&source, ".gitattributes", "*.up filter=up\n*.tc diff=tc\n");
    put(&source, "a.up", "original\n");
    put(&source, "b.tc", "original\n");
    house.commit_source().await;
    for (key, name) in [
        ("core.fsmonitor", "fsmonitor"),
        ("filter.up.clean", "clean"),
        ("filter.up.smudge", "smudge"),
        ("diff.tc.textconv", "textconv"),
        ("diff.external", "external"),
        ("core.sshCommand", "ssh"),
    ] {
        git(&source, &["config", key, &trap(house, name)]).await;
    }
    for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-commit"] {
        let path = source.join(".git/hooks").join(hook);
        put(&source, &path, fs::read(PathBuf::from(trap(house, hook))).unwrap());
        set_mode(&path, 0o755);
    }
}

#[tokio::test]
async fn nothing_that_a_repository_defines_is_run() {
    let mut house = House::new();
    set_traps(&house).await;
    let source = house.source();
    put(&source, "a.up", "dirty\n");
    put(&source, "b.tc", "dirty\n");

    let refused = pin(&Source::Local(source.clone()), &house.pin_options(), &mut house.blobs).await;
    assert!(refused.is_err());
    let options = PinOptions { dirty: DirtyTree::Include, ..house.pin_options() };
    let pinned = pin(&Source::Local(source.clone()), &options, &mut house.blobs).await.unwrap();
    let mut workspace = house.workspace("a", &pinned).await;
    assert_eq!(fs::read(house.at("a").join("a.up")).unwrap(), b"dirty\n");
    put(&house.at("a"), "a.up", "changed\n");
    put(&house.at("a"), "b.tc", "changed\n");
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let scratch = house.at("scratch");
    let result =
        build_result(workspace.base_objects(), &recorded.overlay, &house.blobs, &scratch).await.unwrap();
    result.patch().await.unwrap();
    let signature = Signature { name: "d".to_owned(), email: "d@localhost".to_owned(), at_seconds: 1 };
    result.deliver_branch(&source, "done", "m", &signature).await.unwrap();
    let contents = Contents::new(workspace.base_objects(), &house.blobs);
    let diffs = diff_manifests(workspace.base_manifest(), &workspace.manifest(), &contents).await.unwrap();
    assert!(diffs.iter().all(|diff| matches!(diff.change, ChangeView::Text(_))));
    assert_eq!(markers(&house), [""; 0], "docket ran what the repository says");

    // The control: the same repository, git run plainly.
    plain_git(&source, &["status"]).await;
    plain_git(&source, &["diff"]).await;
    plain_git(&source, &["diff", "--no-ext-diff"]).await;
    plain_git(&source, &["add", "-A"]).await;
    plain_git(&source, &["commit", "-m", "two"]).await;
    plain_git(&source, &["checkout", "-f", "HEAD~1"]).await;
    plain_git(&source, &["branch", "another"]).await;
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
    assert_eq!(markers(&house), expected.map(|name| format!("marker-{name}")));
}

#[tokio::test]
async fn a_workspace_whose_git_folder_became_hostile_is_captured_and_restored_without_running_it() {
    let mut house = House::new();
    put(&house.source(), "a", "1\n");
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("a", &pinned).await;
    let dir = house.at("a");
    let script = trap(&house, "model");
    git(&dir, &["config", "core.fsmonitor", &script]).await;
    git(&dir, &["config", "core.hooksPath", ".git/hooks"]).await;
    put(&dir, ".git/hooks/post-index-change", fs::read(&script).unwrap());
    set_mode(&dir.join(".git/hooks/post-index-change"), 0o755);
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let mut fresh = house.workspace("b", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    build_result(fresh.base_objects(), &recorded.overlay, &house.blobs, &house.at("scratch")).await.unwrap();
    assert_eq!(markers(&house), [""; 0]);
    plain_git(&house.at("b"), &["status"]).await;
    assert_eq!(markers(&house), ["marker-model"], "the trap is real, and only the sandbox may step into it");
}

#[tokio::test]
async fn a_partial_clone_does_not_fetch_with_the_program_its_configuration_names() {
    let mut house = House::new();
    put(&house.source(), "a", "1\n");
    house.commit_source().await;
    let source = house.source();
    let blob = git(&source, &["rev-parse", "HEAD:a"]).await;
    let commit = git(&source, &["rev-parse", "HEAD"]).await;
    for (key, value) in [
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", &format!("file://{}", source.display())),
        // A trap that speaks no protocol and ends: the plain git of the control must not wait for it.
        ("remote.origin.uploadpack", &format!("{} < /dev/null; false", trap(&house, "uploadpack"))),
    ] {
        git(&source, &["config", key, value]).await;
    }
    for object in [&blob, &commit] {
        let (folder, name) = object.trim().split_at(2);
        fs::remove_file(source.join(".git/objects").join(folder).join(name)).unwrap();
        let error = pin(&Source::Local(source.clone()), &house.pin_options(), &mut house.blobs).await;
        assert!(error.is_err(), "an object is missing");
    }
    assert_eq!(markers(&house), [""; 0]);
    plain_git(&source, &["cat-file", "-p", blob.trim()]).await;
    assert_eq!(markers(&house), ["marker-uploadpack"]);
}
