//! Submodules with real git: filled if their commits are on this machine, and never lost in a result.

use std::fs;

use super::support::{RecordedRun, WorkspaceFixture, git, path, write_file};
use crate::workspace::{
    CommitSignature, PatchOmission, PinNote, build_result, compare_trees, tree_with_overlay,
};

/// A source with `vendor/lib`, a submodule with its own submodule in `inner`.
async fn with_submodules() -> WorkspaceFixture {
    let house = WorkspaceFixture::new();
    for (name, file) in [("inner", "deep.txt"), ("lib", "lib.txt")] {
        let dir = house.path_to(name);
        write_file(&dir, file, format!("{name}\n"));
        git(&dir, &["init", "-q", "-b", "trunk", "."]).await;
        git(&dir, &["add", "-A"]).await;
        git(&dir, &["commit", "-q", "-m", name]).await;
    }
    let allow = ["-c", "protocol.file.allow=always"];
    let inner = house.path_to("inner").to_string_lossy().into_owned();
    git(&house.path_to("lib"), &[&allow[..], &["submodule", "add", "-q", &inner, "inner"]].concat()).await;
    git(&house.path_to("lib"), &["commit", "-q", "-m", "with inner"]).await;
    write_file(&house.source_repo(), "main.txt", "main\n");
    house.commit_source().await;
    let lib = house.path_to("lib").to_string_lossy().into_owned();
    git(&house.source_repo(), &[&allow[..], &["submodule", "add", "-q", &lib, "vendor/lib"]].concat()).await;
    git(
        &house.source_repo(),
        &[&allow[..], &["submodule", "update", "-q", "--init", "--recursive"]].concat(),
    )
    .await;
    git(&house.source_repo(), &["commit", "-q", "-m", "with lib"]).await;
    house
}

async fn read_gitlink(house: &WorkspaceFixture, commit: &str) -> String {
    git(&house.source_repo(), &["ls-tree", "-r", commit, "vendor"]).await
}

/// Makes every kind of change below a submodule, and one legitimate change.
fn change_submodule_files(house: &WorkspaceFixture, name: &str) {
    let dir = house.path_to(name);
    write_file(&dir, "vendor/lib/new.py", "x = 1\n");
    write_file(&dir, "vendor/lib/inner/new.py", "y = 1\n");
    write_file(&dir, "honest", "h\n");
}

async fn assert_gitlink_is_kept(house: &mut WorkspaceFixture, name: &str) {
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace(name, &pinned).await;
    change_submodule_files(house, name);
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let base = workspace.base_objects();
    let result =
        build_result(base, &recorded.overlay, &house.blobs, &house.path_to("scratch")).await.unwrap();
    let skipped = [path("vendor/lib/inner/new.py"), path("vendor/lib/new.py")];
    assert_eq!(result.skipped_paths(), skipped, "{name}");
    let signature = CommitSignature { name: "t".into(), email: "t@example.org".into(), at_seconds: 1 };
    result.deliver_new_branch(&house.source_repo(), name, "Work", &signature).await.unwrap();
    let before = read_gitlink(house, "trunk").await;
    assert!(before.starts_with("160000 commit"), "{before}");
    assert_eq!(read_gitlink(house, name).await, before);
    assert_eq!(git(&house.source_repo(), &["show", &format!("{name}:honest")]).await, "h\n");

    let new = tree_with_overlay(base.manifest(), &recorded.overlay);
    let diff =
        compare_trees(base, base.manifest(), &new, &house.blobs, &house.path_to("scratch")).await.unwrap();
    let named = diff.patch_omissions().iter().filter(|(_, why)| *why == PatchOmission::Submodule);
    assert!(named.count() >= 2, "{:?}", diff.patch_omissions());
    let patch = String::from_utf8_lossy(&diff.to_patch().await.unwrap()).into_owned();
    assert!(patch.contains("b/honest") && !patch.contains("vendor"), "{patch}");

    // On another machine, from the log alone.
    let other = format!("{name}-elsewhere");
    let mut fresh = house.materialize_workspace(&other, &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(
        super::support::read_plain_tree(&house.path_to(&other)),
        super::support::read_plain_tree(&house.path_to(name))
    );
}

#[tokio::test]
async fn submodules_are_filled_at_their_recorded_commits() {
    let mut house = with_submodules().await;
    // A different commit is checked out there now, with local changes.
    let module = house.source_repo().join("vendor/lib");
    write_file(&module, "lib.txt", "later\n");
    git(&module, &["commit", "-q", "-a", "-m", "later"]).await;
    write_file(&module, "lib.txt", "uncommitted\n");
    let pinned = house.pin_source().await;
    let filled = ["vendor/lib", "vendor/lib/inner"].map(|module| PinNote::FilledSubmodule(path(module)));
    assert_eq!(pinned.notes, filled);
    let workspace = house.materialize_workspace("a", &pinned).await;
    let read = |name: &str| fs::read_to_string(house.path_to("a").join(name)).unwrap();
    assert_eq!(
        (read("vendor/lib/lib.txt"), read("vendor/lib/inner/deep.txt")),
        ("lib\n".into(), "inner\n".into())
    );
    assert_eq!(git(&house.path_to("a"), &["status", "--porcelain"]).await, "");
    let base = workspace.base_objects();
    assert_eq!(base.containing_submodule(&path("vendor/lib/inner/deep.txt")), Some(path("vendor/lib")));
    assert_eq!(base.containing_submodule(&path("vendor/library")), None);
    assert!(base.is_filled_submodule(&path("vendor/lib/inner")) && base.has_submodules());
    assert_gitlink_is_kept(&mut house, "made").await;
}

#[tokio::test]
async fn submodule_without_checkout_is_filled_from_git_modules() {
    let mut house = with_submodules().await;
    git(&house.source_repo(), &["submodule", "deinit", "-q", "-f", "vendor/lib"]).await;
    let pinned = house.pin_source().await;
    assert!(pinned.notes.contains(&PinNote::FilledSubmodule(path("vendor/lib"))), "{:?}", pinned.notes);
    house.materialize_workspace("a", &pinned).await;
    assert_eq!(fs::read_to_string(house.path_to("a/vendor/lib/lib.txt")).unwrap(), "lib\n");
    assert_gitlink_is_kept(&mut house, "made").await;
}

#[tokio::test]
async fn submodule_missing_on_this_machine_stays_an_empty_submodule_folder() {
    let mut house = with_submodules().await;
    git(&house.source_repo(), &["submodule", "deinit", "-q", "-f", "vendor/lib"]).await;
    fs::remove_dir_all(house.source_repo().join(".git/modules")).unwrap();
    let pinned = house.pin_source().await;
    assert_eq!(pinned.notes, [PinNote::EmptySubmodule(path("vendor/lib"))]);
    house.materialize_workspace("a", &pinned).await;
    assert_eq!(fs::read_dir(house.path_to("a/vendor/lib")).unwrap().count(), 0);
    assert_gitlink_is_kept(&mut house, "made").await;
}

/// A folder in place of a submodule is untrusted information about the location of its objects.
#[tokio::test]
async fn submodule_is_not_filled_from_an_unrelated_repository() {
    let mut house = with_submodules().await;
    git(&house.source_repo(), &["submodule", "deinit", "-q", "-f", "vendor/lib"]).await;
    fs::remove_dir_all(house.source_repo().join(".git/modules")).unwrap();
    let elsewhere = house.path_to("lib").join(".git");
    write_file(&house.source_repo(), "vendor/lib/.git", format!("gitdir: {}\n", elsewhere.display()));
    let pinned = house.pin_source().await;
    assert_eq!(pinned.notes, [PinNote::EmptySubmodule(path("vendor/lib"))]);
}
