//! Trees that no `git add` would make: made by writing the objects themselves.

use std::{fs, os::unix::fs::symlink};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{TestProgram, acquire_scenario_slot, run_with_input};

use super::fixture::HostileRepository;

/// Mode, name and object.
type RawTreeEntry<'a> = (&'a str, &'a [u8], &'a str);

/// Writes a tree of raw entries as git itself would refuse to; its id.
async fn write_tree(scene: &HostileRepository, entries: &[RawTreeEntry<'_>]) -> Result<String> {
    let mut raw = Vec::new();
    for (mode, name, object) in entries {
        raw.extend_from_slice(mode.as_bytes());
        raw.push(b' ');
        raw.extend_from_slice(name);
        raw.push(0);
        for at in (0..object.len()).step_by(2) {
            raw.push(u8::from_str_radix(&object[at..at + 2], 16)?);
        }
    }
    let args = ["hash-object", "-t", "tree", "--literally", "-w", "--stdin"];
    Ok(run_with_input(TestProgram::Git, &scene.path_in("repo"), &[], &args, &raw)
        .await?
        .into_stdout()?
        .trim()
        .to_owned())
}

async fn write_blob(scene: &HostileRepository, bytes: &[u8]) -> Result<String> {
    let args = ["hash-object", "-w", "--stdin"];
    Ok(run_with_input(TestProgram::Git, &scene.path_in("repo"), &[], &args, bytes)
        .await?
        .into_stdout()?
        .trim()
        .to_owned())
}

async fn write_commit(scene: &HostileRepository, tree: &str) -> Result<String> {
    Ok(scene.git_output("repo", &["commit-tree", "-m", "x", tree]).await?.trim().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_with_escaping_or_git_paths_is_rejected() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HostileRepository::new()?;
    scene.make_repository("repo", &[("a", "1\n")]).await?;
    let file = write_blob(&scene, b"evil\n").await?;
    let inner = write_tree(&scene, &[("100644", b"config", &file)]).await?;
    let target = write_blob(&scene, scene.read_text("outside").as_bytes()).await?;
    let shapes: [(&str, Vec<RawTreeEntry<'_>>); 12] = [
        ("upwards", vec![("40000", b"..", &inner)]),
        ("here", vec![("40000", b".", &inner)]),
        ("a slash", vec![("100644", b"../outside/x", &file)]),
        ("an absolute path", vec![("100644", b"/tmp/x", &file)]),
        ("no name", vec![("100644", b"", &file)]),
        ("a git folder", vec![("40000", b".git", &inner)]),
        ("in capitals", vec![("40000", b".GIT", &inner)]),
        ("its short name", vec![("40000", b"git~1", &inner)]),
        ("with a blank", vec![("40000", b".git ", &inner)]),
        ("with a stream", vec![("40000", b".git::$INDEX_ALLOCATION", &inner)]),
        ("with what is not seen", vec![("40000", ".g\u{200c}it".as_bytes(), &inner)]),
        ("a link and a folder of one name", vec![("120000", b"a", &target), ("40000", b"a", &inner)]),
    ];
    for (name, entries) in shapes {
        let commit = write_commit(&scene, &write_tree(&scene, &entries).await?).await?;
        let done = scene.submit_folder("repo", &["--commit", &commit]).await?;
        scene.assert_outside_unchanged(name)?;
        ensure!(!done.success() && !done.stderr.contains("panicked"), "{name}: {done:?}");
        ensure!(
            scene.run_docket(&["ps", "--json"]).await?.into_stdout()?.is_empty(),
            "{name}: there is a task"
        );
    }
    Ok(())
}

const THROUGH: &str = r#"
[[turns]]
calls = [
  { name = "create_file", args = { path = "out/made", content = "x\n" } },
  { name = "edit_file", args = { path = "secret-link", edits = [{ search = "outside", replace = "changed" }] } },
  { name = "read_file", args = { path = "out/secret" } },
]
[[turns]]
calls = [{ name = "run_command", args = { command = "rm up; ln -s / up; mkdir -p 'git~1' '.git ' sub/.git; echo x > 'git~1/config'; echo x > '.git /config'; echo x > sub/.git/config; ln -s /etc/passwd .gitmodules; echo y > plain; echo z > -rf; echo w > '--output=x'" } }]
[[turns]]
text = "Done."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outside_links_and_odd_names_are_kept_literally() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HostileRepository::new()?;
    fs::create_dir_all(scene.path_in("repo"))?;
    symlink(scene.path_in("outside"), scene.path_in("repo/out"))?;
    symlink(scene.path_in("outside/secret"), scene.path_in("repo/secret-link"))?;
    symlink("../outside", scene.path_in("repo/up"))?;
    let files =
        [("plain", "1\n"), ("-option", "1\n"), ("--upload-pack=x", "1\n"), ("Case", "1\n"), ("case", "2\n")];
    scene.make_repository("repo", &files).await?;
    // A branch whose name looks like an option, and a replacement that nobody asked for.
    scene.git_output("repo", &["symbolic-ref", "HEAD", "refs/heads/--output=x"]).await?;
    scene.git_output("repo", &["commit", "-q", "-m", "again"]).await?;
    let evil = write_blob(&scene, b"replaced\n").await?;
    let plain = scene.git_output("repo", &["rev-parse", "HEAD:plain"]).await?;
    scene.git_output("repo", &["replace", plain.trim(), &evil]).await?;
    ensure!(
        scene.git_output("repo", &["cat-file", "-p", "HEAD:plain"]).await? == "replaced\n",
        "git goes this way"
    );

    let id = scene.play_script("repo", THROUGH, &["--include-dirty", "--branch=out/x"]).await?;
    ensure!(
        scene.run_docket(&["cat", &id, "--turn", "0", "plain"]).await?.into_stdout()? == "1\n",
        "what was committed"
    );
    let patch = scene.run_docket(&["diff", &id]).await?;
    ensure!(patch.success() && patch.stdout.contains("b/-rf"), "{patch:?}");
    let log = scene.run_docket(&["logs", &id, "--json"]).await?.into_stdout()?;
    ensure!(!log.contains("outside-word") && !patch.stdout.contains("outside-word"), "read through a link");
    for (n, args) in [&[][..], &["--force"], &["--turn", "1", "--force"]].iter().enumerate() {
        let to = scene.read_text(&format!("checked-{}", n / 2));
        scene.run_docket(&[&["checkout", &id, &to][..], args].concat()).await?.into_stdout()?;
        scene.assert_outside_unchanged("checkout")?;
        let link = fs::read_link(scene.path_in(&format!("checked-{}", n / 2)).join("out"))?;
        ensure!(link == scene.path_in("outside"), "{link:?}");
    }
    scene.run_docket(&["apply", &id, "--branch", "by-hand"]).await?.into_stdout()?;
    let names = scene.git_output("repo", &["ls-tree", "-r", "--name-only", "by-hand"]).await?;
    for odd in ["git~1", ".git ", "sub/.git", ".gitmodules"] {
        ensure!(!names.contains(odd), "{odd} was delivered: {names}");
    }
    ensure!(names.contains("--output=x") && names.contains("-rf"), "{names}");
    let through = scene.read_text("repo/up");
    let done = scene.run_docket(&["checkout", &id, &through]).await?;
    scene.assert_outside_unchanged("a checkout into a link")?;
    ensure!(!done.success(), "{done:?}");
    let names: Vec<&str> = names.lines().collect();
    names.contains(&"plain").then_some(()).context("what is harmless was delivered")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exponentially_growing_tree_is_rejected() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HostileRepository::new()?;
    scene.make_repository("repo", &[("a", "1\n")]).await?;
    let mut inner = write_tree(&scene, &[("100644", b"f", &write_blob(&scene, b"x").await?)]).await?;
    // Ten folders of ten names each, all of them one object: 10^10 paths in a few hundred bytes.
    for _ in 0..10 {
        let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let entries: Vec<_> = names.iter().map(|name| ("40000", name.as_bytes(), inner.as_str())).collect();
        inner = write_tree(&scene, &entries).await?;
    }
    let commit = write_commit(&scene, &inner).await?;
    let done = scene.submit_folder("repo", &["--commit", &commit]).await?;
    ensure!(!done.success() && done.stderr.contains("reading the repository failed"), "{done:?}");
    Ok(())
}
