//! Repositories hidden in a tree, judged by git itself: it runs what they configure unless they are left out.

use std::{fs, os::unix::fs::symlink, path::Path};

use docket_schema::content::WorkspacePath;

use super::support::{
    RecordedRun, WorkspaceFixture, git_allow_failure, path, run_script, set_mode, write_file,
};
use crate::workspace::{CommitSignature, PatchOmission, build_result, compare_trees, tree_with_overlay};

/// Creates a program that leaves `mark`.
fn write_trap(house: &WorkspaceFixture, mark: &str) -> String {
    let program = house.path_to(&format!("trap-{mark}"));
    write_file(
        &house.path_to(""),
        format!("trap-{mark}"),
        format!("#!/bin/sh\n: > '{}'\ncat\n", house.path_to(mark).display()),
    );
    set_mode(&program, 0o755);
    program.to_string_lossy().into_owned()
}

/// Files that a run could leave to make git run `program` in one of the listed folders.
struct HiddenRepoCase {
    name: &'static str,
    /// The folder in which a person runs git.
    folder: &'static str,
    make: fn(&Path, &str),
    /// Paths that must not be delivered.
    held: &'static [&'static str],
}

fn trap_config(program: &str) -> String {
    format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {program}\n\teditor = {program}\n"
    )
}

const HIDDEN_REPO_CASES: [HiddenRepoCase; 6] = [
    HiddenRepoCase {
        name: "bare",
        folder: "b",
        make: |dir, program| {
            write_file(dir, "b/HEAD", "ref: refs/heads/x\n");
            write_file(dir, "b/objects/keep", "");
            write_file(dir, "b/refs/keep", "");
            write_file(dir, "b/config", trap_config(program));
        },
        held: &["b/HEAD", "b/config", "b/objects/keep", "b/refs/keep"],
    },
    HiddenRepoCase {
        name: "commondir",
        folder: "wt/m",
        make: |dir, program| {
            write_file(dir, "wt/m/HEAD", "ref: refs/heads/x\n");
            write_file(dir, "wt/m/commondir", "../../c\n");
            write_file(dir, "c/objects/keep", "");
            write_file(dir, "c/refs/keep", "");
            write_file(dir, "c/config", trap_config(program));
        },
        held: &["c/config", "wt/m/HEAD", "wt/m/commondir"],
    },
    HiddenRepoCase {
        name: "commondir-of-links",
        folder: "wt/m",
        make: |dir, program| {
            write_file(dir, "wt/m/HEAD", "ref: refs/heads/x\n");
            write_file(dir, "wt/m/commondir", "../../c\n");
            write_file(dir, "c/store/keep", "");
            symlink("store", dir.join("c/objects")).unwrap();
            symlink("store", dir.join("c/refs")).unwrap();
            write_file(dir, "c/config", trap_config(program));
        },
        held: &["c/config", "wt/m/HEAD", "wt/m/commondir"],
    },
    HiddenRepoCase {
        name: "executables-for-stores",
        folder: "b",
        make: |dir, program| {
            symlink("refs/heads/x", dir.join("b-head")).unwrap();
            fs::create_dir(dir.join("b")).unwrap();
            fs::rename(dir.join("b-head"), dir.join("b/HEAD")).unwrap();
            for name in ["b/objects", "b/refs"] {
                write_file(dir, name, "");
                set_mode(&dir.join(name), 0o755);
            }
            write_file(dir, "b/config", trap_config(program));
        },
        held: &["b/HEAD", "b/config", "b/objects", "b/refs"],
    },
    HiddenRepoCase {
        name: "below",
        folder: "b/deep/er",
        make: |dir, program| {
            write_file(dir, "b/HEAD", "ref: refs/heads/x\n");
            write_file(dir, "b/objects/keep", "");
            write_file(dir, "b/refs/keep", "");
            write_file(dir, "b/config", trap_config(program));
            write_file(dir, "b/deep/er/x", "");
        },
        held: &["b/HEAD", "b/config", "b/objects/keep", "b/refs/keep"],
    },
    HiddenRepoCase {
        name: "root",
        folder: "src",
        make: |dir, program| {
            write_file(dir, "HEAD", "ref: refs/heads/x\n");
            write_file(dir, "objects/keep", "");
            write_file(dir, "refs/keep", "");
            write_file(dir, "config", trap_config(program));
            write_file(dir, "src/x", "");
        },
        held: &["HEAD", "config", "objects/keep", "refs/keep"],
    },
];

/// Whether a program runs when a person uses git in `folder`. With a `commondir` git finds no work tree, but
/// applies the settings that need none.
async fn is_obeyed_by_git(house: &WorkspaceFixture, folder: &Path, mark: &str) -> bool {
    if !folder.is_dir() {
        return false;
    }
    run_script(folder, "export TERM=xterm VISUAL=true; git status; git config --edit").await;
    let fired = house.path_to(mark).exists();
    if fired {
        fs::remove_file(house.path_to(mark)).unwrap();
    }
    fired
}

#[tokio::test]
async fn hidden_repository_is_left_out_of_branch_and_patch() {
    for hidden in &HIDDEN_REPO_CASES {
        let mut house = WorkspaceFixture::new();
        let source = house.source_repo();
        write_file(&source, "src/a", "one\n");
        house.commit_source().await;
        let pinned = house.pin_source().await;
        let mut workspace = house.materialize_workspace("run", &pinned).await;
        let program = write_trap(&house, "fired");
        (hidden.make)(&house.path_to("run"), &program);
        write_file(&house.path_to("run"), "src/b", "honest work\n");
        // The control: git runs it. At the root the run's own `.git` takes precedence.
        let plain = house.path_to("plain");
        fs::create_dir(&plain).unwrap();
        (hidden.make)(&plain, &program);
        assert!(
            is_obeyed_by_git(&house, &plain.join(hidden.folder), "fired").await,
            "{}: git ignores it",
            hidden.name
        );

        let mut recorded = RecordedRun::default();
        recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
        let base = workspace.base_objects();
        let result =
            build_result(base, &recorded.overlay, &house.blobs, &house.path_to("scratch")).await.unwrap();
        let held: Vec<WorkspacePath> = hidden.held.iter().map(|name| path(*name)).collect();
        assert_eq!(result.skipped_paths(), held, "{}", hidden.name);
        let signature = CommitSignature { name: "t".into(), email: "t@example.org".into(), at_seconds: 1 };
        result.deliver_new_branch(&source, "made", "Work", &signature).await.unwrap();
        let to = house.path_to("clone");
        git_allow_failure(&house.path_to(""), &["clone", "-q", "-b", "made", "source", "clone"]).await;
        assert_eq!(fs::read_to_string(to.join("src/b")).unwrap(), "honest work\n", "{}", hidden.name);
        assert!(
            !is_obeyed_by_git(&house, &to.join(hidden.folder), "fired").await,
            "{}: delivered",
            hidden.name
        );

        let new = tree_with_overlay(base.manifest(), &recorded.overlay);
        let diff = compare_trees(base, base.manifest(), &new, &house.blobs, &house.path_to("scratch"))
            .await
            .unwrap();
        let of_git = |(_, why): &&(WorkspacePath, PatchOmission)| *why == PatchOmission::HiddenRepository;
        let named: Vec<_> =
            diff.patch_omissions().iter().filter(of_git).map(|(path, _)| path.clone()).collect();
        assert_eq!(named, held, "{}", hidden.name);
        let patch = String::from_utf8_lossy(&diff.to_patch().await.unwrap()).into_owned();
        assert!(patch.contains("honest work") && !patch.contains("fsmonitor"), "{}: {patch}", hidden.name);
    }
}

#[tokio::test]
async fn repository_in_the_base_can_change_except_files_git_obeys() {
    let mut house = WorkspaceFixture::new();
    let source = house.source_repo();
    for (name, text) in [("HEAD", "ref: refs/heads/x\n"), ("config", "[core]\n\tbare = true\n")] {
        write_file(&source, format!("fixture.git/{name}"), text);
    }
    write_file(&source, "fixture.git/objects/keep", "");
    write_file(&source, "fixture.git/refs/keep", "");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("run", &pinned).await;
    let dir = house.path_to("run");
    write_file(&dir, "fixture.git/objects/more", "an object");
    write_file(&dir, "fixture.git/HEAD", "ref: refs/heads/y\n");
    write_file(&dir, "fixture.git/config", "[core]\n\tfsmonitor = evil\n");
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let base = workspace.base_objects();
    let result =
        build_result(base, &recorded.overlay, &house.blobs, &house.path_to("scratch")).await.unwrap();
    assert_eq!(result.skipped_paths(), [path("fixture.git/config")]);
}
