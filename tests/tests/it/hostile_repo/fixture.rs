//! A stranger's repository, the traps in it, and the eyes that see whether one was stepped into.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{FinishedProcess, TestProgram, run_program};
use serde_json::Value;
use tempfile::TempDir;

/// A home, and a place with a repository `repo`, programs in `traps`, and in `fired` a file per trap that ran.
pub(super) struct HostileRepository {
    home: TempDir,
    place: TempDir,
}

impl HostileRepository {
    pub(super) fn new() -> Result<Self> {
        let scene = Self { home: tempfile::tempdir()?, place: tempfile::tempdir()? };
        for name in ["repo", "traps", "fired", "outside"] {
            fs::create_dir(scene.path_in(name))?;
        }
        fs::write(scene.path_in("outside/secret"), SECRET)?;
        Ok(scene)
    }

    pub(super) fn home_path(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn path_in(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(super) fn read_text(&self, name: &str) -> String {
        self.path_in(name).to_string_lossy().into_owned()
    }

    /// A program that leaves a mark and then does as `cat` does; one that git would talk with ends.
    pub(super) fn write_trap(&self, name: &str) -> Result<String> {
        let program = self.path_in("traps").join(name);
        let mark = self.path_in("fired").join(name);
        let talks = ["ssh", "process", "instead-of", "alternates", "alias", "included", "included-if"];
        let then = if talks.contains(&name) { "exit 1" } else { "exec cat" };
        fs::write(&program, format!("#!/bin/sh\n: > '{}'\n{then}\n", mark.display()))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        Ok(program.to_string_lossy().into_owned())
    }

    /// The traps that ran since this was asked last.
    pub(super) fn take_fired_traps(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(self.path_in("fired"))? {
            let entry = entry?;
            names.insert(entry.file_name().to_string_lossy().into_owned());
            fs::remove_file(entry.path())?;
        }
        Ok(names)
    }

    pub(super) async fn run_docket<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<FinishedProcess> {
        let home = self.home.path();
        run_program(TestProgram::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
    }

    /// `docket submit` of the folder `name`.
    pub(super) async fn submit_folder(&self, name: &str, more: &[&str]) -> Result<FinishedProcess> {
        let repo = self.read_text(name);
        let args = ["submit", "Do it", "--repo", &repo, "--model", "openai:none", "--json"];
        self.run_docket(&[&args[..], more].concat()).await
    }

    /// Plays `script` on the folder `name`; the run's id.
    pub(super) async fn play_script(&self, name: &str, script: &str, more: &[&str]) -> Result<String> {
        let file = self.path_in("script.toml");
        fs::write(&file, script)?;
        let (repo, file) = (self.read_text(name), file.to_string_lossy().into_owned());
        let args = ["run", "Do it", "--repo", &repo, "--model", "scripted:s", "--script", &file];
        self.run_docket(&[&args[..], more].concat()).await?.into_stdout()?;
        let tasks = self.run_docket(&["ps", "--json"]).await?.into_stdout()?;
        let last = tasks.lines().next().context("a task")?;
        let task: Value = serde_json::from_str(last)?;
        Ok(task["run"].as_str().context("a run")?.to_owned())
    }

    /// git as anybody runs it, in the folder `name`, with that folder's own settings in force.
    pub(super) async fn run_git(&self, name: &str, args: &[&str]) -> Result<FinishedProcess> {
        run_git_in(&self.path_in(name), args).await
    }

    /// As [`Self::git`], and it must succeed.
    pub(super) async fn git_output(&self, name: &str, args: &[&str]) -> Result<String> {
        self.run_git(name, args).await?.into_stdout().with_context(|| format!("git {args:?}"))
    }

    /// Makes the folder `name` a repository of these files.
    pub(super) async fn make_repository(&self, name: &str, files: &[(&str, &str)]) -> Result<()> {
        fs::create_dir_all(self.path_in(name))?;
        self.git_output(name, &["init", "-q", "-b", "main", "."]).await?;
        for (path, content) in files {
            let path = self.path_in(name).join(path);
            fs::create_dir_all(path.parent().context("in a folder")?)?;
            fs::write(path, content)?;
        }
        self.git_output(name, &["add", "-A"]).await?;
        self.git_output(name, &["commit", "-q", "--allow-empty", "-m", "start"]).await?;
        Ok(())
    }

    /// What stands outside has not changed, and nothing came to it.
    pub(super) fn assert_outside_unchanged(&self, what: &str) -> Result<()> {
        let names = fs::read_dir(self.path_in("outside"))?.map(|entry| Ok(entry?.file_name()));
        let names: Vec<_> = names.collect::<Result<_>>()?;
        ensure!(names == ["secret"], "{what}: {names:?} stand outside");
        ensure!(fs::read_to_string(self.path_in("outside/secret"))? == SECRET, "{what}: changed outside");
        Ok(())
    }
}

/// What must not be seen anywhere else.
pub(super) const SECRET: &str = "outside-word-4711\n";

pub(super) async fn run_git_in(folder: &Path, args: &[&str]) -> Result<FinishedProcess> {
    let env: Vec<(&str, &OsStr)> = [
        ("HOME", "/nonexistent"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_TERMINAL_PROMPT", "0"),
        // For a folder whose settings name no editor.
        ("VISUAL", "true"),
        ("GIT_AUTHOR_NAME", "t"),
        ("GIT_AUTHOR_EMAIL", "t@example.org"),
        ("GIT_COMMITTER_NAME", "t"),
        ("GIT_COMMITTER_EMAIL", "t@example.org"),
    ]
    .map(|(name, value)| (name, OsStr::new(value)))
    .into();
    run_program(TestProgram::Git, folder, &env, args).await
}
