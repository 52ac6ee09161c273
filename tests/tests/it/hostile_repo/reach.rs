//! Repositories whose parts lie elsewhere: in another repository of the same person, or nowhere at all.

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::room;
use nix::{sys::stat::Mode, unistd::mkfifo};

use super::scene::{SECRET, Scene};

/// A change to the folder `repo` (a repository), where `private` is a repository that its submitter never named.
type Shape = fn(repo: &Path, private: &Path) -> Result<()>;

/// Ways into another repository, each of which plain git goes.
const WAYS: [(&str, Shape); 7] = [
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
        lend(repo, private)?;
        replaced(&repo.join(".git/refs"), &private.join(".git/refs"))
    }),
    ("a link for one branch", |repo, private| {
        lend(repo, private)?;
        replaced(&repo.join(".git/refs/heads/main"), &private.join(".git/refs/heads/main"))
    }),
    ("a link for packed-refs", |repo, private| {
        lend(repo, private)?;
        fs::remove_file(repo.join(".git/refs/heads/main"))?;
        let line = fs::read_to_string(private.join(".git/refs/heads/main"))?;
        fs::write(private.join(".git/packed-refs"), format!("{} refs/heads/main\n", line.trim()))?;
        replaced(&repo.join(".git/packed-refs"), &private.join(".git/packed-refs"))
    }),
    ("a link for objects", |repo, private| {
        fs::copy(private.join(".git/refs/heads/main"), repo.join(".git/refs/heads/main"))?;
        replaced(&repo.join(".git/objects"), &private.join(".git/objects"))
    }),
];

fn lend(repo: &Path, private: &Path) -> Result<()> {
    let objects = format!("{}\n", private.join(".git/objects").display());
    Ok(fs::write(repo.join(".git/objects/info/alternates"), objects)?)
}

fn replaced(path: &Path, by: &Path) -> Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path)?
    } else if path.exists() {
        fs::remove_file(path)?
    }
    Ok(symlink(by, path)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_way_leads_into_a_repository_that_was_not_named() -> Result<()> {
    let _room = room().await;
    for (name, shape) in WAYS {
        let scene = Scene::new()?;
        scene.repository("private", &[("secret", SECRET)]).await?;
        scene.repository("repo", &[("a", "1\n")]).await?;
        shape(&scene.at("repo"), &scene.at("private"))?;
        let control = scene.git("repo", &["show", "HEAD:secret"]).await?;
        ensure!(control.stdout == SECRET, "{name}: git does not go this way: {control:?}");
        for more in [&["--commit", "HEAD"][..], &["--include-dirty"]] {
            let done = scene.submit("repo", more).await?;
            ensure!(!done.success() && done.stderr.contains("does not name it back"), "{name}: {done:?}");
        }
        ensure!(scene.docket(&["ps", "--json"]).await?.ok()?.is_empty(), "{name}: there is a task");
        // The person may mean it, and then names it.
        scene.submit("private", &["--commit", "main"]).await?.ok()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_together_is_still_taken() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    scene.repository("lib", &[("l", "1\n")]).await?;
    scene.repository("repo", &[("a", "1\n")]).await?;
    let lib = scene.text_at("lib");
    let args = ["-c", "protocol.file.allow=always", "submodule", "add", "-q", &lib, "deep/sub"];
    scene.git_ok("repo", &args).await?;
    scene.git_ok("repo", &["commit", "-q", "-m", "sub"]).await?;
    scene.git_ok("repo", &["worktree", "add", "-q", "../linked"]).await?;
    scene
        .git_ok("linked", &["-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init"])
        .await?;
    scene
        .git_ok("lib", &["init", "-q", "--separate-git-dir", &scene.text_at("apart.git"), "../apart"])
        .await?;
    for name in ["repo", "linked", "repo/deep/sub", "linked/deep/sub", "repo/deep", "repo/.git"] {
        scene.submit(name, &[]).await?.ok().with_context(|| name.to_owned())?;
    }
    // A git folder apart knows nothing of its work tree, until somebody tells it.
    fs::write(scene.at("apart/x"), "1\n")?;
    scene.git_ok("apart", &["add", "-A"]).await?;
    scene.git_ok("apart", &["commit", "-q", "-m", "x"]).await?;
    let refused = scene.submit("apart", &[]).await?;
    ensure!(refused.stderr.contains("core.worktree"), "{refused:?}");
    scene.git_ok("apart", &["config", "core.worktree", &scene.text_at("apart")]).await?;
    scene.submit("apart", &[]).await?.ok()?;
    // A folder that looks like a bare repository is one only to whom names it.
    scene.git_ok("repo", &["init", "-q", "--bare", "deep/bare.git"]).await?;
    fs::create_dir(scene.at("repo/deep/bare.git/src"))?;
    let from_inside = scene.submit("repo/deep/bare.git/src", &["--commit", "HEAD"]).await?.ok()?;
    ensure!(!from_inside.is_empty(), "the repository around it was taken");
    let named = scene.submit("repo/deep/bare.git", &[]).await?;
    ensure!(named.stderr.contains("names no commit"), "{named:?}");
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
async fn nothing_makes_a_command_wait_for_ever() -> Result<()> {
    let _room = room().await;
    for name in PIPES {
        let scene = Scene::new()?;
        scene.repository("repo", &[("a", "1\n")]).await?;
        let path = scene.at("repo/.git").join(name);
        if path.exists() {
            fs::remove_file(&path)?;
        }
        mkfifo(&path, Mode::S_IRWXU)?;
        let done = scene.submit("repo", &[]).await?;
        ensure!(!done.success() && done.stderr.contains("is no file that git writes"), "{name}: {done:?}");
    }
    let scene = Scene::new()?;
    scene.repository("repo", &[("a", "1\n"), ("tracked", "1\n")]).await?;
    mkfifo(&scene.at("repo/pipe"), Mode::S_IRWXU)?;
    let _socket = std::os::unix::net::UnixListener::bind(scene.at("repo/socket"))?;
    symlink("/dev/zero", scene.at("repo/zero"))?;
    symlink(scene.at("outside/secret"), scene.at("repo/link"))?;
    let id = scene.play("repo", CHANGE, &["--include-dirty"]).await?;
    let listed = scene.docket(&["cat", &id, "."]).await?.ok()?;
    ensure!(listed.contains("zero") && !listed.contains("pipe") && !listed.contains("socket"), "{listed}");
    let link = scene.docket(&["cat", &id, "link"]).await?.ok()?;
    ensure!(
        link == scene.text_at("outside/secret"),
        "a link is its target's name, never its content: {link}"
    );
    fs::remove_file(scene.at("repo/tracked"))?;
    mkfifo(&scene.at("repo/tracked"), Mode::S_IRWXU)?;
    let replaced = scene.submit("repo", &["--include-dirty"]).await?;
    ensure!(!replaced.success() && replaced.stderr.contains("git"), "{replaced:?}");
    // `.git` itself, and a file that never ends.
    for way in ["pipe", "zero"] {
        let name = format!("odd-{way}");
        fs::create_dir(scene.at(&name))?;
        if way == "pipe" {
            mkfifo(&scene.at(&name).join(".git"), Mode::S_IRWXU)?;
        } else {
            fs::File::create(scene.at(&name).join(".git"))?.set_len(1 << 40)?;
        }
        let done = scene.submit(&name, &[]).await?;
        ensure!(!done.success(), "{way}: {done:?}");
    }
    Ok(())
}

const CHANGE: &str = "[[turns]]\ncalls = [{ name = \"create_file\", args = { path = \"b\", content = \"2\\n\" } }]\n\
                      [[turns]]\ntext = \"Done.\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_is_written_into_its_repository_and_nowhere_else() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    scene.repository("repo", &[("a", "1\n")]).await?;
    let id = scene.play("repo", CHANGE, &[]).await?;
    // Each of these becomes a link to the outside.
    for path in ["refs/heads/x", "logs/refs/heads/x", "logs", "objects/ab", "logs/refs/heads/x/y"] {
        let full = scene.at("repo/.git").join(path);
        let kept = scene.at("kept");
        let there = full.exists();
        if there {
            fs::rename(&full, &kept)?;
        }
        fs::create_dir_all(full.parent().context("in a folder")?)?;
        let target = if path.ends_with("/y") { "outside/secret" } else { "outside" };
        symlink(scene.at(target), &full)?;
        if !path.starts_with("objects") {
            let control = scene.git("repo", &["branch", "--create-reflog", "x/y", "HEAD"]).await?;
            ensure!(scene.outside_is_whole("git").is_err(), "{path}: git does not go this way: {control:?}");
            fs::remove_dir_all(scene.at("outside"))?;
            fs::create_dir(scene.at("outside"))?;
            fs::write(scene.at("outside/secret"), SECRET)?;
            scene.git("repo", &["update-ref", "-d", "refs/heads/x/y"]).await?;
            let _gone = fs::remove_file(scene.at("repo/.git/refs/heads/x/y"));
            if path != "refs/heads/x" {
                let _gone = fs::remove_dir(scene.at("repo/.git/refs/heads/x"));
            }
            if !full.is_symlink() {
                fs::create_dir_all(full.parent().context("in a folder")?)?;
                symlink(scene.at(target), &full)?;
            }
        }
        let done = scene.docket(&["apply", &id, "--branch", "x/y"]).await?;
        scene.outside_is_whole(path)?;
        ensure!(!done.success() && done.stderr.contains("does not name it back"), "{path}: {done:?}");
        fs::remove_file(&full)?;
        if there {
            fs::rename(&kept, &full)?;
        }
    }
    scene.docket(&["apply", &id, "--branch", "x/y"]).await?.ok()?;
    Ok(())
}
