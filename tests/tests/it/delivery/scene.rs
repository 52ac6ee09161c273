//! A home, a repository that tasks come from, and whoever asks.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use docket_tests::system::{
    FinishedProcess, RunningProcess, SampleRepository, TestProgram, run_program, wait_until,
};
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
pub(super) fn nine_lines(first: &str, last: &str) -> String {
    format!("{first}\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n{last}\n")
}

/// See the module.
pub(super) struct DeliveryFixture {
    folder: tempfile::TempDir,
    sample: SampleRepository,
}

impl DeliveryFixture {
    pub(super) fn new() -> Result<Self> {
        let sample = SampleRepository::new(&[("a.txt", &nine_lines("one", "nine"))])?;
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("home"))?;
        Ok(Self { folder, sample })
    }

    pub(super) fn repo_path(&self) -> PathBuf {
        self.sample.path().to_owned()
    }

    pub(super) fn path_in(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn home_path(&self) -> PathBuf {
        self.path_in("home")
    }

    pub(super) async fn run_docket(&self, args: &[&str]) -> Result<FinishedProcess> {
        self.run_docket_with(&[], args).await
    }

    pub(super) async fn run_docket_with(
        &self,
        more: &[(&str, &OsStr)],
        args: &[&str],
    ) -> Result<FinishedProcess> {
        let home = self.home_path();
        let env = [&[("DOCKET_HOME", home.as_os_str())], more].concat();
        run_program(TestProgram::Docket, self.folder.path(), &env, args).await
    }

    /// git in the repository; what it says, without the last line's end.
    pub(super) async fn git_output(&self, args: &[&str]) -> Result<String> {
        self.git_output_at(&self.repo_path(), args).await
    }

    pub(super) async fn git_output_at(&self, folder: &Path, args: &[&str]) -> Result<String> {
        let said = run_program(TestProgram::Git, folder, &[], args)
            .await?
            .into_stdout()
            .with_context(|| format!("git {args:?}"))?;
        Ok(said.trim_end().to_owned())
    }

    /// What a person commits meanwhile.
    pub(super) async fn commit_files(&self, files: &[(&str, &str)]) -> Result<()> {
        for (path, content) in files {
            std::fs::write(self.repo_path().join(path), content)?;
        }
        self.git_output(&["add", "--all"]).await?;
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        self.git_output(&[&who[..], &["commit", "--quiet", "-m", "meanwhile"]].concat()).await?;
        Ok(())
    }

    async fn run_task_command(&self, verb: &str, script: &str, more: &[&str]) -> Result<FinishedProcess> {
        let script = self.sample.write_script(script)?;
        let (repo, script) = (self.repo_path(), script.to_str().context("UTF-8")?.to_owned());
        let repo = repo.to_str().context("UTF-8")?;
        let args = [verb, "Do it", "--json", "--repo", repo, "--model", "scripted:x", "--script", &script];
        self.run_docket(&[&args[..], more].concat()).await
    }

    /// A task from start to finish; its id.
    pub(super) async fn play_task(&self, script: &str, more: &[&str]) -> Result<String> {
        parse_id(&self.run_task_command("run", script, more).await?.into_stdout()?)
    }

    /// A task for `docket up`; its id.
    pub(super) async fn submit_task(&self, script: &str, more: &[&str]) -> Result<String> {
        parse_id(&self.run_task_command("submit", script, more).await?.into_stdout()?)
    }

    /// A batch with a task for each of these branches; their ids.
    pub(super) async fn import_batch(
        &self,
        batch: &str,
        script: &str,
        branches: &[&str],
    ) -> Result<Vec<String>> {
        let script = self.sample.write_script(script)?;
        let line = |branch: &&str| {
            serde_json::json!({ "text": format!("Do it on {branch}"), "branch": branch, "script": script })
                .to_string()
        };
        let file = self.path_in("todo.jsonl");
        std::fs::write(&file, branches.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        let (file, repo) = (file.display().to_string(), self.repo_path().display().to_string());
        let args = ["import", &file, "--batch", batch, "--repo", &repo, "--model", "scripted:x"];
        self.run_docket(&args).await?.into_stdout()?;
        let rows =
            self.run_docket(&["ps", "--batch", batch, "--sort", "oldest", "--json"]).await?.into_stdout()?;
        rows.lines().map(parse_id).collect()
    }

    pub(super) async fn start_up(&self) -> Result<RunningProcess> {
        let args = ["up", "-v", "--json", "--slots", "1", "--listen", "127.0.0.1:0"];
        Ok(RunningProcess::start_docket("up", &self.home_path(), &[], &args).await?.0)
    }

    /// A coordinator and workers of another home, on this home's store.
    pub(super) async fn start_up_at(&self, home: &Path, more: &[(&str, &OsStr)]) -> Result<RunningProcess> {
        let args = ["up", "-v", "--json", "--slots", "1", "--listen", "127.0.0.1:0"];
        Ok(RunningProcess::start_docket("up", home, more, &args).await?.0)
    }

    /// Commits of the log that deliveries were told with, and how often each kind of event came, over all tasks.
    pub(super) async fn task_log(&self, id: &str) -> Result<Vec<Value>> {
        let log = self.run_docket(&["logs", id, "--json"]).await?.into_stdout()?;
        log.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// A task as `docket show --json` has it.
    pub(super) async fn task_row(&self, id: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.run_docket(&["show", id, "--json"]).await?.into_stdout()?)?)
    }

    /// The task, once it is in this state.
    pub(super) async fn wait_for_state(&self, id: &str, state: &str) -> Result<Value> {
        wait_until(&format!("task {id} {state}"), async || {
            self.task_row(id).await.ok().filter(|row| row["state"] == state)
        })
        .await
    }

    /// The kinds of a task's events that begin so, in order; but for claims, which are as many as there were tries.
    pub(super) async fn event_kinds(&self, id: &str, start: &str) -> Result<Vec<String>> {
        let log = self.run_docket(&["logs", id, "--json"]).await?.into_stdout()?;
        let kinds = log.lines().map(|line| {
            let event: Value = serde_json::from_str(line)?;
            Ok(event["kind"].as_str().context("a kind")?.to_owned())
        });
        let kinds = kinds.collect::<Result<Vec<_>>>()?;
        let is_meant = |kind: &String| kind.starts_with(start) && kind != "TaskDeliveryClaimed";
        Ok(kinds.into_iter().filter(is_meant).collect())
    }

    /// A bare repository as the remote `origin`.
    pub(super) async fn add_remote(&self) -> Result<PathBuf> {
        let bare = self.path_in("remote.git");
        let path = bare.to_str().context("UTF-8")?;
        self.git_output(&["init", "--quiet", "--bare", "--initial-branch", "main", path]).await?;
        self.git_output(&["remote", "add", "origin", path]).await?;
        self.git_output(&["push", "--quiet", "origin", "main"]).await?;
        Ok(bare)
    }

    /// A file that the shell runs.
    pub(super) fn write_executable(&self, path: &Path, text: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        std::fs::write(path, text)?;
        Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
    }
}

fn parse_id(row: &str) -> Result<String> {
    let row: Value = serde_json::from_str(row.lines().last().context("a row")?)?;
    Ok(row["id"].as_str().context("an id")?.to_owned())
}
