//! Submodules with real git: filled where their commits are on this machine, and never lost in a result.

use std::fs;

use super::support::{House, Recorded, git, path, put};
use crate::workspace::{BeyondGit, PinNote, Signature, build_result, compare_trees, tree_of};

/// A source with `vendor/lib`, a submodule that has one of its own in `inner`.
async fn with_submodules() -> House {
    let house = House::new();
    for (name, file) in [("inner", "deep.txt"), ("lib", "lib.txt")] {
        let dir = house.at(name);
        put(&dir, file, format!("{name}\n"));
        git(&dir, &["init", "-q", "-b", "trunk", "."]).await;
        git(&dir, &["add", "-A"]).await;
        git(&dir, &["commit", "-q", "-m", name]).await;
    }
    let allow = ["-c", "protocol.file.allow=always"];
    let inner = house.at("inner").to_string_lossy().into_owned();
    git(&house.at("lib"), &[&allow[..], &["submodule", "add", "-q", &inner, "inner"]].concat()).await;
    git(&house.at("lib"), &["commit", "-q", "-m", "with inner"]).await;
    put(&house.source(), "main.txt", "main\n");
    house.commit_source().await;
    let lib = house.at("lib").to_string_lossy().into_owned();
    git(&house.source(), &[&allow[..], &["submodule", "add", "-q", &lib, "vendor/lib"]].concat()).await;
    git(&house.source(), &[&allow[..], &["submodule", "update", "-q", "--init", "--recursive"]].concat())
        .await;
    git(&house.source(), &["commit", "-q", "-m", "with lib"]).await;
    house
}

async fn gitlink(house: &House, commit: &str) -> String {
    git(&house.source(), &["ls-tree", "-r", commit, "vendor"]).await
}

/// Everything that a run does below a submodule, and one honest change.
fn meddle(house: &House, name: &str) {
    let dir = house.at(name);
    put(&dir, "vendor/lib/new.py", "x = 1\n");
    put(&dir, "vendor/lib/inner/new.py", "y = 1\n");
    put(&dir, "honest", "h\n");
}

async fn keeps_its_gitlink(house: &mut House, name: &str) {
    let pinned = house.pin().await;
    let mut workspace = house.workspace(name, &pinned).await;
    meddle(house, name);
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let base = workspace.base_objects();
    let result = build_result(base, &recorded.overlay, &house.blobs, &house.at("scratch")).await.unwrap();
    let skipped = [path("vendor/lib/inner/new.py"), path("vendor/lib/new.py")];
    assert_eq!(result.skipped(), skipped, "{name}");
    let signature = Signature { name: "t".into(), email: "t@example.org".into(), at_seconds: 1 };
    result.deliver_branch(&house.source(), name, "Work", &signature).await.unwrap();
    let before = gitlink(house, "trunk").await;
    assert!(before.starts_with("160000 commit"), "{before}");
    assert_eq!(gitlink(house, name).await, before);
    assert_eq!(git(&house.source(), &["show", &format!("{name}:honest")]).await, "h\n");

    let new = tree_of(base.manifest(), &recorded.overlay);
    let diff = compare_trees(base, base.manifest(), &new, &house.blobs, &house.at("scratch")).await.unwrap();
    let named = diff.beyond_git().iter().filter(|(_, why)| *why == BeyondGit::Submodule);
    assert!(named.count() >= 2, "{:?}", diff.beyond_git());
    let patch = String::from_utf8_lossy(&diff.patch().await.unwrap()).into_owned();
    assert!(patch.contains("b/honest") && !patch.contains("vendor"), "{patch}");

    // On another machine, from the log alone.
    let other = format!("{name}-elsewhere");
    let mut fresh = house.workspace(&other, &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(super::support::plain(&house.at(&other)), super::support::plain(&house.at(name)));
}

#[tokio::test]
async fn submodules_are_filled_at_their_recorded_commits() {
    let mut house = with_submodules().await;
    // What is checked out there now is another commit, with changes of its own.
    let module = house.source().join("vendor/lib");
    put(&module, "lib.txt", "later\n");
    git(&module, &["commit", "-q", "-a", "-m", "later"]).await;
    put(&module, "lib.txt", "uncommitted\n");
    let pinned = house.pin().await;
    let filled = ["vendor/lib", "vendor/lib/inner"].map(|module| PinNote::FilledSubmodule(path(module)));
    assert_eq!(pinned.notes, filled);
    let workspace = house.workspace("a", &pinned).await;
    let read = |name: &str| fs::read_to_string(house.at("a").join(name)).unwrap();
    assert_eq!(
        (read("vendor/lib/lib.txt"), read("vendor/lib/inner/deep.txt")),
        ("lib\n".into(), "inner\n".into())
    );
    assert_eq!(git(&house.at("a"), &["status", "--porcelain"]).await, "");
    let base = workspace.base_objects();
    assert_eq!(base.submodule_of(&path("vendor/lib/inner/deep.txt")), Some(path("vendor/lib")));
    assert_eq!(base.submodule_of(&path("vendor/library")), None);
    assert!(base.is_filled(&path("vendor/lib/inner")) && base.has_submodules());
    keeps_its_gitlink(&mut house, "made").await;
}

#[tokio::test]
async fn submodule_that_is_not_checked_out_is_filled_from_the_folder_that_git_keeps() {
    let mut house = with_submodules().await;
    git(&house.source(), &["submodule", "deinit", "-q", "-f", "vendor/lib"]).await;
    let pinned = house.pin().await;
    assert!(pinned.notes.contains(&PinNote::FilledSubmodule(path("vendor/lib"))), "{:?}", pinned.notes);
    house.workspace("a", &pinned).await;
    assert_eq!(fs::read_to_string(house.at("a/vendor/lib/lib.txt")).unwrap(), "lib\n");
    keeps_its_gitlink(&mut house, "made").await;
}

#[tokio::test]
async fn submodule_that_is_not_on_this_machine_stays_an_empty_folder_and_a_submodule() {
    let mut house = with_submodules().await;
    git(&house.source(), &["submodule", "deinit", "-q", "-f", "vendor/lib"]).await;
    fs::remove_dir_all(house.source().join(".git/modules")).unwrap();
    let pinned = house.pin().await;
    assert_eq!(pinned.notes, [PinNote::Submodule(path("vendor/lib"))]);
    house.workspace("a", &pinned).await;
    assert_eq!(fs::read_dir(house.at("a/vendor/lib")).unwrap().count(), 0);
    keeps_its_gitlink(&mut house, "made").await;
}

/// A folder in the place of a submodule is a stranger's word for where its objects are.
#[tokio::test]
async fn submodule_is_not_filled_from_a_repository_that_does_not_know_it() {
    let mut house = with_submodules().await;
    git(&house.source(), &["submodule", "deinit", "-q", "-f", "vendor/lib"]).await;
    fs::remove_dir_all(house.source().join(".git/modules")).unwrap();
    let elsewhere = house.at("lib").join(".git");
    put(&house.source(), "vendor/lib/.git", format!("gitdir: {}\n", elsewhere.display()));
    let pinned = house.pin().await;
    assert_eq!(pinned.notes, [PinNote::Submodule(path("vendor/lib"))]);
}
