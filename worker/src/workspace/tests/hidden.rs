//! Repositories hidden in a tree, with git itself as the judge: it runs what they configure, unless they are left out.

use std::{fs, os::unix::fs::symlink, path::Path};

use docket_schema::content::WorkPath;

use super::support::{House, Recorded, git_anyhow, path, put, set_mode, shell};
use crate::workspace::{BeyondGit, Signature, build_result, compare_trees, tree_of};

/// A program that leaves `mark`.
fn trap(house: &House, mark: &str) -> String {
    let program = house.at(&format!("trap-{mark}"));
    put(
        &house.at(""),
        format!("trap-{mark}"),
        format!("#!/bin/sh\n: > '{}'\ncat\n", house.at(mark).display()),
    );
    set_mode(&program, 0o755);
    program.to_string_lossy().into_owned()
}

/// What a run could leave to have `program` run by git in one of the folders it names.
struct Hidden {
    name: &'static str,
    /// Where a person runs git.
    folder: &'static str,
    make: fn(&Path, &str),
    /// What must not be delivered.
    held: &'static [&'static str],
}

fn config(program: &str) -> String {
    format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {program}\n\teditor = {program}\n"
    )
}

const HIDDEN: [Hidden; 6] = [
    Hidden {
        name: "bare",
        folder: "b",
        make: |dir, program| {
            put(dir, "b/HEAD", "ref: refs/heads/x\n");
            put(dir, "b/objects/keep", "");
            put(dir, "b/refs/keep", "");
            put(dir, "b/config", config(program));
        },
        held: &["b/HEAD", "b/config", "b/objects/keep", "b/refs/keep"],
    },
    Hidden {
        name: "commondir",
        folder: "wt/m",
        make: |dir, program| {
            put(dir, "wt/m/HEAD", "ref: refs/heads/x\n");
            put(dir, "wt/m/commondir", "../../c\n");
            put(dir, "c/objects/keep", "");
            put(dir, "c/refs/keep", "");
            put(dir, "c/config", config(program));
        },
        held: &["c/config", "wt/m/HEAD", "wt/m/commondir"],
    },
    Hidden {
        name: "commondir-of-links",
        folder: "wt/m",
        make: |dir, program| {
            put(dir, "wt/m/HEAD", "ref: refs/heads/x\n");
            put(dir, "wt/m/commondir", "../../c\n");
            put(dir, "c/store/keep", "");
            symlink("store", dir.join("c/objects")).unwrap();
            symlink("store", dir.join("c/refs")).unwrap();
            put(dir, "c/config", config(program));
        },
        held: &["c/config", "wt/m/HEAD", "wt/m/commondir"],
    },
    Hidden {
        name: "executables-for-stores",
        folder: "b",
        make: |dir, program| {
            symlink("refs/heads/x", dir.join("b-head")).unwrap();
            fs::create_dir(dir.join("b")).unwrap();
            fs::rename(dir.join("b-head"), dir.join("b/HEAD")).unwrap();
            for name in ["b/objects", "b/refs"] {
                put(dir, name, "");
                set_mode(&dir.join(name), 0o755);
            }
            put(dir, "b/config", config(program));
        },
        held: &["b/HEAD", "b/config", "b/objects", "b/refs"],
    },
    Hidden {
        name: "below",
        folder: "b/deep/er",
        make: |dir, program| {
            put(dir, "b/HEAD", "ref: refs/heads/x\n");
            put(dir, "b/objects/keep", "");
            put(dir, "b/refs/keep", "");
            put(dir, "b/config", config(program));
            put(dir, "b/deep/er/x", "");
        },
        held: &["b/HEAD", "b/config", "b/objects/keep", "b/refs/keep"],
    },
    Hidden {
        name: "root",
        folder: "src",
        make: |dir, program| {
            put(dir, "HEAD", "ref: refs/heads/x\n");
            put(dir, "objects/keep", "");
            put(dir, "refs/keep", "");
            put(dir, "config", config(program));
            put(dir, "src/x", "");
        },
        held: &["HEAD", "config", "objects/keep", "refs/keep"],
    },
];

/// Whether a program runs when a person uses git in `folder`. Behind a `commondir` git finds no work tree, and obeys the
/// settings that need none.
async fn is_obeyed(house: &House, folder: &Path, mark: &str) -> bool {
    if !folder.is_dir() {
        return false;
    }
    shell(folder, "export TERM=xterm VISUAL=true; git status; git config --edit").await;
    let fired = house.at(mark).exists();
    if fired {
        fs::remove_file(house.at(mark)).unwrap();
    }
    fired
}

#[tokio::test]
async fn repository_hidden_in_a_tree_is_neither_in_the_branch_nor_in_the_patch() {
    for hidden in &HIDDEN {
        let mut house = House::new();
        let source = house.source();
        put(&source, "src/a", "one\n");
        house.commit_source().await;
        let pinned = house.pin().await;
        let mut workspace = house.workspace("run", &pinned).await;
        let program = trap(&house, "fired");
        (hidden.make)(&house.at("run"), &program);
        put(&house.at("run"), "src/b", "honest work\n");
        // The control: git obeys it. At the root the run's own `.git` comes first.
        let plain = house.at("plain");
        fs::create_dir(&plain).unwrap();
        (hidden.make)(&plain, &program);
        assert!(
            is_obeyed(&house, &plain.join(hidden.folder), "fired").await,
            "{}: git ignores it",
            hidden.name
        );

        let mut recorded = Recorded::default();
        recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
        let base = workspace.base_objects();
        let result = build_result(base, &recorded.overlay, &house.blobs, &house.at("scratch")).await.unwrap();
        let held: Vec<WorkPath> = hidden.held.iter().map(|name| path(*name)).collect();
        assert_eq!(result.skipped(), held, "{}", hidden.name);
        let signature = Signature { name: "t".into(), email: "t@example.org".into(), at_seconds: 1 };
        result.deliver_branch(&source, "made", "Work", &signature).await.unwrap();
        let to = house.at("clone");
        git_anyhow(&house.at(""), &["clone", "-q", "-b", "made", "source", "clone"]).await;
        assert_eq!(fs::read_to_string(to.join("src/b")).unwrap(), "honest work\n", "{}", hidden.name);
        assert!(!is_obeyed(&house, &to.join(hidden.folder), "fired").await, "{}: delivered", hidden.name);

        let new = tree_of(base.manifest(), &recorded.overlay);
        let diff =
            compare_trees(base, base.manifest(), &new, &house.blobs, &house.at("scratch")).await.unwrap();
        let of_git = |(_, why): &&(WorkPath, BeyondGit)| *why == BeyondGit::HiddenRepository;
        let named: Vec<_> = diff.beyond_git().iter().filter(of_git).map(|(path, _)| path.clone()).collect();
        assert_eq!(named, held, "{}", hidden.name);
        let patch = String::from_utf8_lossy(&diff.patch().await.unwrap()).into_owned();
        assert!(patch.contains("honest work") && !patch.contains("fsmonitor"), "{}: {patch}", hidden.name);
    }
}

#[tokio::test]
async fn repository_that_the_base_has_is_worked_on_but_for_what_git_obeys() {
    let mut house = House::new();
    let source = house.source();
    for (name, text) in [("HEAD", "ref: refs/heads/x\n"), ("config", "[core]\n\tbare = true\n")] {
        put(&source, format!("fixture.git/{name}"), text);
    }
    put(&source, "fixture.git/objects/keep", "");
    put(&source, "fixture.git/refs/keep", "");
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("run", &pinned).await;
    let dir = house.at("run");
    put(&dir, "fixture.git/objects/more", "an object");
    put(&dir, "fixture.git/HEAD", "ref: refs/heads/y\n");
    put(&dir, "fixture.git/config", "[core]\n\tfsmonitor = evil\n");
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let base = workspace.base_objects();
    let result = build_result(base, &recorded.overlay, &house.blobs, &house.at("scratch")).await.unwrap();
    assert_eq!(result.skipped(), [path("fixture.git/config")]);
}
