//! A home, a repository that tasks come from, and whoever asks.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use docket_tests::system::{Finished, Proc, Sample, Tool, run, until};
use serde_json::Value;

/// Changes the ninth line of `a.txt`, and makes a file.
pub(super) const EDIT: &str = r#"
[[turns]]
calls = [
  { name = "run_command", args = { command = "sed -i 's/^nine$/by the run/' a.txt" } },
  { name = "create_file", args = { path = "new.txt", content = "new\n" } },
]
[[turns]]
text = "Done."
"#;

/// Nine lines, of which the first and the last are these.
pub(super) fn text(first: &str, last: &str) -> String {
    format!("{first}\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n{last}\n")
}

/// See the module.
pub(super) struct Scene {
    folder: tempfile::TempDir,
    sample: Sample,
}

impl Scene {
    pub(super) fn new() -> Result<Self> {
        let sample = Sample::new(&[("a.txt", &text("one", "nine"))])?;
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("home"))?;
        Ok(Self { folder, sample })
    }

    pub(super) fn repo(&self) -> PathBuf {
        self.sample.path().to_owned()
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn home(&self) -> PathBuf {
        self.at("home")
    }

    pub(super) async fn docket(&self, args: &[&str]) -> Result<Finished> {
        self.docket_with(&[], args).await
    }

    pub(super) async fn docket_with(&self, more: &[(&str, &OsStr)], args: &[&str]) -> Result<Finished> {
        let home = self.home();
        let env = [&[("DOCKET_HOME", home.as_os_str())], more].concat();
        run(Tool::Docket, self.folder.path(), &env, args).await
    }

    /// git in the repository; what it says, without the last line's end.
    pub(super) async fn git(&self, args: &[&str]) -> Result<String> {
        self.git_at(&self.repo(), args).await
    }

    pub(super) async fn git_at(&self, folder: &Path, args: &[&str]) -> Result<String> {
        let said = run(Tool::Git, folder, &[], args).await?.ok().with_context(|| format!("git {args:?}"))?;
        Ok(said.trim_end().to_owned())
    }

    /// What a person commits meanwhile.
    pub(super) async fn commit(&self, files: &[(&str, &str)]) -> Result<()> {
        for (path, content) in files {
            std::fs::write(self.repo().join(path), content)?;
        }
        self.git(&["add", "--all"]).await?;
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        self.git(&[&who[..], &["commit", "--quiet", "-m", "meanwhile"]].concat()).await?;
        Ok(())
    }

    async fn asked(&self, verb: &str, script: &str, more: &[&str]) -> Result<Finished> {
        let script = self.sample.script(script)?;
        let (repo, script) = (self.repo(), script.to_str().context("UTF-8")?.to_owned());
        let repo = repo.to_str().context("UTF-8")?;
        let args = [verb, "Do it", "--json", "--repo", repo, "--model", "scripted:x", "--script", &script];
        self.docket(&[&args[..], more].concat()).await
    }

    /// A task from start to finish; its id.
    pub(super) async fn play(&self, script: &str, more: &[&str]) -> Result<String> {
        id_of(&self.asked("run", script, more).await?.ok()?)
    }

    /// A task for `docket up`; its id.
    pub(super) async fn submit(&self, script: &str, more: &[&str]) -> Result<String> {
        id_of(&self.asked("submit", script, more).await?.ok()?)
    }

    /// A batch with a task for each of these branches; their ids.
    pub(super) async fn import(&self, batch: &str, script: &str, branches: &[&str]) -> Result<Vec<String>> {
        let script = self.sample.script(script)?;
        let line = |branch: &&str| {
            serde_json::json!({ "text": format!("Do it on {branch}"), "branch": branch, "script": script })
                .to_string()
        };
        let file = self.at("todo.jsonl");
        std::fs::write(&file, branches.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        let (file, repo) = (file.display().to_string(), self.repo().display().to_string());
        let args = ["import", &file, "--batch", batch, "--repo", &repo, "--model", "scripted:x"];
        self.docket(&args).await?.ok()?;
        let rows = self.docket(&["ps", "--batch", batch, "--sort", "oldest", "--json"]).await?.ok()?;
        rows.lines().map(id_of).collect()
    }

    pub(super) async fn up(&self) -> Result<Proc> {
        let args = ["up", "-v", "--json", "--slots", "1", "--listen", "127.0.0.1:0"];
        Ok(Proc::start("up", &self.home(), &[], &args).await?.0)
    }

    /// A coordinator and workers of another home, on this home's store.
    pub(super) async fn up_at(&self, home: &Path, more: &[(&str, &OsStr)]) -> Result<Proc> {
        let args = ["up", "-v", "--json", "--slots", "1", "--listen", "127.0.0.1:0"];
        Ok(Proc::start("up", home, more, &args).await?.0)
    }

    /// Commits of the log that deliveries were told with, and how often each kind of event came, over all tasks.
    pub(super) async fn log_of(&self, id: &str) -> Result<Vec<Value>> {
        let log = self.docket(&["logs", id, "--json"]).await?.ok()?;
        log.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// A task as `docket show --json` has it.
    pub(super) async fn row(&self, id: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.docket(&["show", id, "--json"]).await?.ok()?)?)
    }

    /// The task, once it is in this state.
    pub(super) async fn is(&self, id: &str, state: &str) -> Result<Value> {
        until(&format!("task {id} {state}"), async || {
            self.row(id).await.ok().filter(|row| row["state"] == state)
        })
        .await
    }

    /// The kinds of a task's events that begin so, in order; but for claims, which are as many as there were tries.
    pub(super) async fn kinds(&self, id: &str, start: &str) -> Result<Vec<String>> {
        let log = self.docket(&["logs", id, "--json"]).await?.ok()?;
        let kinds = log.lines().map(|line| {
            let event: Value = serde_json::from_str(line)?;
            Ok(event["kind"].as_str().context("a kind")?.to_owned())
        });
        let kinds = kinds.collect::<Result<Vec<_>>>()?;
        let is_meant = |kind: &String| kind.starts_with(start) && kind != "TaskDeliveryClaimed";
        Ok(kinds.into_iter().filter(is_meant).collect())
    }

    /// A bare repository as the remote `origin`.
    pub(super) async fn remote(&self) -> Result<PathBuf> {
        let bare = self.at("remote.git");
        let path = bare.to_str().context("UTF-8")?;
        self.git(&["init", "--quiet", "--bare", "--initial-branch", "main", path]).await?;
        self.git(&["remote", "add", "origin", path]).await?;
        self.git(&["push", "--quiet", "origin", "main"]).await?;
        Ok(bare)
    }

    /// A file that the shell runs.
    pub(super) fn executable(&self, path: &Path, text: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        std::fs::write(path, text)?;
        Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
    }
}

fn id_of(row: &str) -> Result<String> {
    let row: Value = serde_json::from_str(row.lines().last().context("a row")?)?;
    Ok(row["id"].as_str().context("an id")?.to_owned())
}
