//! Repositories whose parts lie elsewhere: in another repository of the same person, or nowhere at all.

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::acquire_scenario_slot;
use nix::{sys::stat::Mode, unistd::mkfifo};

use super::fixture::{HostileRepository, SECRET};

/// A change to the folder `repo` (a repository), where `private` is a repository that its submitter never named.
type RepositoryChange = fn(repo: &Path, private: &Path) -> Result<()>;

/// Ways into another repository, each of which plain git goes.
const WAYS: [(&str, RepositoryChange); 7] = [
    ("a file for .git", |repo, private| {
        fs::remove_dir_all(repo.join(".git"))?;
        Ok(fs::write(repo.join(".git"), format!("gitdir: {}\n", private.join(".git").display()))?)
    }),
    ("a link for .git", |repo, private| {
        fs::remove_dir_all(repo.join(".git"))?;
        Ok(symlink(private.join(".git"), repo.join(".git"))?)
    }),
    ("commondir", |repo, private| {
        Ok(fs::write(repo.join(".git/commondir"), format!("{}\n", private.join(".git").display()))?)
    }),
    ("a link for refs", |repo, private| {
        borrow_objects(repo, private)?;
        replace_with_link(&repo.join(".git/refs"), &private.join(".git/refs"))
    }),
    ("a link for one branch", |repo, private| {
        borrow_objects(repo, private)?;
        replace_with_link(&repo.join(".git/refs/heads/main"), &private.join(".git/refs/heads/main"))
    }),
    ("a link for packed-refs", |repo, private| {
        borrow_objects(repo, private)?;
        fs::remove_file(repo.join(".git/refs/heads/main"))?;
        let line = fs::read_to_string(private.join(".git/refs/heads/main"))?;
        fs::write(private.join(".git/packed-refs"), format!("{} refs/heads/main\n", line.trim()))?;
        replace_with_link(&repo.join(".git/packed-refs"), &private.join(".git/packed-refs"))
    }),
    ("a link for objects", |repo, private| {
        fs::copy(private.join(".git/refs/heads/main"), repo.join(".git/refs/heads/main"))?;
        replace_with_link(&repo.join(".git/objects"), &private.join(".git/objects"))
    }),
];

fn borrow_objects(repo: &Path, private: &Path) -> Result<()> {
    let objects = format!("{}\n", private.join(".git/objects").display());
    Ok(fs::write(repo.join(".git/objects/info/alternates"), objects)?)
}

fn replace_with_link(path: &Path, by: &Path) -> Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path)?
    } else if path.exists() {
        fs::remove_file(path)?
    }
    Ok(symlink(by, path)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_repositories_cannot_be_reached() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    for (name, shape) in WAYS {
        let scene = HostileRepository::new()?;
        scene.make_repository("private", &[("secret", SECRET)]).await?;
        scene.make_repository("repo", &[("a", "1\n")]).await?;
        shape(&scene.path_in("repo"), &scene.path_in("private"))?;
        let control = scene.run_git("repo", &["show", "HEAD:secret"]).await?;
        ensure!(control.stdout == SECRET, "{name}: git does not go this way: {control:?}");
        for more in [&["--commit", "HEAD"][..], &["--include-dirty"]] {
            let done = scene.submit_folder("repo", more).await?;
            ensure!(!done.success() && done.stderr.contains("does not refer back to it"), "{name}: {done:?}");
        }
        ensure!(
            scene.run_docket(&["ps", "--json"]).await?.into_stdout()?.is_empty(),
            "{name}: there is a task"
        );
        // The person may mean it, and then names it.
        scene.submit_folder("private", &["--commit", "main"]).await?.into_stdout()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worktrees_and_linked_repositories_still_work() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HostileRepository::new()?;
    scene.make_repository("lib", &[("l", "1\n")]).await?;
    scene.make_repository("repo", &[("a", "1\n")]).await?;
    let lib = scene.read_text("lib");
    let args = ["-c", "protocol.file.allow=always", "submodule", "add", "-q", &lib, "deep/sub"];
    scene.git_output("repo", &args).await?;
    scene.git_output("repo", &["commit", "-q", "-m", "sub"]).await?;
    scene.git_output("repo", &["worktree", "add", "-q", "../linked"]).await?;
    scene
        .git_output("linked", &["-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init"])
        .await?;
    scene
        .git_output("lib", &["init", "-q", "--separate-git-dir", &scene.read_text("apart.git"), "../apart"])
        .await?;
    for name in ["repo", "linked", "repo/deep/sub", "linked/deep/sub", "repo/deep", "repo/.git"] {
        scene.submit_folder(name, &[]).await?.into_stdout().with_context(|| name.to_owned())?;
    }
    // A git folder apart knows nothing of its work tree, until somebody tells it.
    fs::write(scene.path_in("apart/x"), "1\n")?;
    scene.git_output("apart", &["add", "-A"]).await?;
    scene.git_output("apart", &["commit", "-q", "-m", "x"]).await?;
    let refused = scene.submit_folder("apart", &[]).await?;
    ensure!(refused.stderr.contains("core.worktree"), "{refused:?}");
    scene.git_output("apart", &["config", "core.worktree", &scene.read_text("apart")]).await?;
    scene.submit_folder("apart", &[]).await?.into_stdout()?;
    // A folder that looks like a bare repository is one only to whom names it.
    scene.git_output("repo", &["init", "-q", "--bare", "deep/bare.git"]).await?;
    fs::create_dir(scene.path_in("repo/deep/bare.git/src"))?;
    let from_inside =
        scene.submit_folder("repo/deep/bare.git/src", &["--commit", "HEAD"]).await?.into_stdout()?;
    ensure!(!from_inside.is_empty(), "the repository around it was taken");
    let named = scene.submit_folder("repo/deep/bare.git", &[]).await?;
    ensure!(named.stderr.contains("is not a commit"), "{named:?}");
    Ok(())
}

/// Pipes where git and docket read files. `None`: it is taken for a folder without a repository.
const PIPES: [&str; 9] = [
    "commondir",
    "HEAD",
    "index",
    "config",
    "packed-refs",
    "refs/heads/main",
    "refs/heads/other",
    "objects/info/alternates",
    "objects/pack/pack-1.idx",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn special_files_do_not_block_commands() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    for name in PIPES {
        let scene = HostileRepository::new()?;
        scene.make_repository("repo", &[("a", "1\n")]).await?;
        let path = scene.path_in("repo/.git").join(name);
        if path.exists() {
            fs::remove_file(&path)?;
        }
        mkfifo(&path, Mode::S_IRWXU)?;
        let done = scene.submit_folder("repo", &[]).await?;
        ensure!(
            !done.success() && done.stderr.contains("is not a file that git creates"),
            "{name}: {done:?}"
        );
    }
    let scene = HostileRepository::new()?;
    scene.make_repository("repo", &[("a", "1\n"), ("tracked", "1\n")]).await?;
    mkfifo(&scene.path_in("repo/pipe"), Mode::S_IRWXU)?;
    let _socket = std::os::unix::net::UnixListener::bind(scene.path_in("repo/socket"))?;
    symlink("/dev/zero", scene.path_in("repo/zero"))?;
    symlink(scene.path_in("outside/secret"), scene.path_in("repo/link"))?;
    let id = scene.play_script("repo", CHANGE, &["--include-dirty"]).await?;
    let listed = scene.run_docket(&["cat", &id, "."]).await?.into_stdout()?;
    ensure!(listed.contains("zero") && !listed.contains("pipe") && !listed.contains("socket"), "{listed}");
    let link = scene.run_docket(&["cat", &id, "link"]).await?.into_stdout()?;
    ensure!(
        link == scene.read_text("outside/secret"),
        "a link is its target's name, never its content: {link}"
    );
    fs::remove_file(scene.path_in("repo/tracked"))?;
    mkfifo(&scene.path_in("repo/tracked"), Mode::S_IRWXU)?;
    let replaced = scene.submit_folder("repo", &["--include-dirty"]).await?;
    ensure!(!replaced.success() && replaced.stderr.contains("git"), "{replaced:?}");
    // `.git` itself, and a file that never ends.
    for way in ["pipe", "zero"] {
        let name = format!("odd-{way}");
        fs::create_dir(scene.path_in(&name))?;
        if way == "pipe" {
            mkfifo(&scene.path_in(&name).join(".git"), Mode::S_IRWXU)?;
        } else {
            fs::File::create(scene.path_in(&name).join(".git"))?.set_len(1 << 40)?;
        }
        let done = scene.submit_folder(&name, &[]).await?;
        ensure!(!done.success(), "{way}: {done:?}");
    }
    Ok(())
}

const CHANGE: &str = "[[turns]]\ncalls = [{ name = \"create_file\", args = { path = \"b\", content = \"2\\n\" } }]\n\
                      [[turns]]\ntext = \"Done.\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branch_is_written_only_into_its_repository() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HostileRepository::new()?;
    scene.make_repository("repo", &[("a", "1\n")]).await?;
    let id = scene.play_script("repo", CHANGE, &[]).await?;
    // Each of these becomes a link to the outside.
    for path in ["refs/heads/x", "logs/refs/heads/x", "logs", "objects/ab", "logs/refs/heads/x/y"] {
        let full = scene.path_in("repo/.git").join(path);
        let kept = scene.path_in("kept");
        let there = full.exists();
        if there {
            fs::rename(&full, &kept)?;
        }
        fs::create_dir_all(full.parent().context("in a folder")?)?;
        let target = if path.ends_with("/y") { "outside/secret" } else { "outside" };
        symlink(scene.path_in(target), &full)?;
        if !path.starts_with("objects") {
            let control = scene.run_git("repo", &["branch", "--create-reflog", "x/y", "HEAD"]).await?;
            ensure!(
                scene.assert_outside_unchanged("git").is_err(),
                "{path}: git does not go this way: {control:?}"
            );
            fs::remove_dir_all(scene.path_in("outside"))?;
            fs::create_dir(scene.path_in("outside"))?;
            fs::write(scene.path_in("outside/secret"), SECRET)?;
            scene.run_git("repo", &["update-ref", "-d", "refs/heads/x/y"]).await?;
            let _gone = fs::remove_file(scene.path_in("repo/.git/refs/heads/x/y"));
            if path != "refs/heads/x" {
                let _gone = fs::remove_dir(scene.path_in("repo/.git/refs/heads/x"));
            }
            if !full.is_symlink() {
                fs::create_dir_all(full.parent().context("in a folder")?)?;
                symlink(scene.path_in(target), &full)?;
            }
        }
        let done = scene.run_docket(&["apply", &id, "--branch", "x/y"]).await?;
        scene.assert_outside_unchanged(path)?;
        ensure!(!done.success() && done.stderr.contains("does not refer back to it"), "{path}: {done:?}");
        fs::remove_file(&full)?;
        if there {
            fs::rename(&kept, &full)?;
        }
    }
    scene.run_docket(&["apply", &id, "--branch", "x/y"]).await?.into_stdout()?;
    Ok(())
}
