//! A home in which every list has something to list: tasks that ran, one that waits, a batch, a limit, a schedule, a token, a
//! remembered word, an archived task, somebody who is told.

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than a terminal of 80 columns, with wide characters where one of 60 ends.
pub(super) const TITLE: &str = "Mend the long and winding road \u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57} to the sea, \
and paint every lamp that stands beside it green before the morning comes";

const SCRIPT: &str = r#"
[[turns]]
text = "I write it."
calls = [
  { name = "write_file", args = { path = "src/a_rather_long_name_of_a_file.txt", content = "good\nlines\n" } },
  { name = "memory_save", args = { key = "how/test", value = "sh test.sh says whether it is right, and says so in many words, every time" } },
]
[[turns]]
text = "It is done."
"#;

/// A line of JSON from a command.
pub(super) fn parse_row(text: &str) -> Result<Value> {
    let line = text.lines().next().context("a line")?;
    serde_json::from_str(line).with_context(|| line.to_owned())
}

/// See the module.
pub(super) struct FilledHome {
    pub(super) coordinator: CoordinatorProcess,
    _worker: WorkerProcess,
    pub(super) sample: SampleRepository,
    /// Two tasks that were done, and their runs.
    pub(super) tasks: Vec<String>,
    pub(super) runs: Vec<String>,
    /// Files of tests.
    pub(super) folder: TempDir,
    _home: TempDir,
}

impl FilledHome {
    pub(super) async fn new() -> Result<Self> {
        let (home, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let archive = folder.path().join("archive");
        std::fs::create_dir(&archive)?;
        let settings = format!(
            "[archive]\nto = \"file://{}\"\n[[notify]]\nname = \"ops\"\ncommand = [\"/bin/sh\", \"-c\", \"cat > /dev/null\"]\n",
            archive.display()
        );
        std::fs::write(home.path().join("docket.toml"), settings)?;
        let coordinator =
            CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual)
                .await?;
        let worker =
            WorkerProcess::start(&coordinator, &WorkerOptions { slots: 2, ..WorkerOptions::default() })
                .await?;
        let sample = SampleRepository::new(&[("README.md", "read me\n"), ("src/lib.txt", "old\n")])?;
        sample.write_script(SCRIPT)?;
        let mut stage = Self {
            coordinator,
            _worker: worker,
            sample,
            tasks: Vec::new(),
            runs: Vec::new(),
            folder,
            _home: home,
        };
        stage.fill().await?;
        Ok(stage)
    }

    async fn fill(&mut self) -> Result<()> {
        self.import("old", &["An old one"]).await?;
        self.docket_output(&["archive", "--older-than", "0h"]).await?;
        self.import("todo", &[TITLE, "Another"]).await?;
        for line in
            self.docket_output(&["ps", "--json", "--batch", "todo", "--sort", "oldest"]).await?.lines()
        {
            let row = parse_row(line)?;
            ensure!(row["state"] == "completed", "{row}");
            self.tasks.push(row["id"].as_str().context("an id")?.to_owned());
            self.runs.push(row["run"].as_str().context("a run")?.to_owned());
        }
        let (repo, script) = (self.repo_path()?, self.write_script()?);
        let task = [TITLE, "--repo", &repo, "--model", "scripted:s", "--script", &script];
        self.docket_output(&[&["schedule", "add", "nightly", "--cron", "0 3 * * *"][..], &task].concat())
            .await?;
        self.docket_output(&["limit", "set", "openai", "--requests", "50/m", "--tokens", "40000/m"]).await?;
        self.docket_output(&[
            "token",
            "create",
            "--name",
            "continuous-integration",
            "--role",
            "read",
            "--expires",
            "9d",
        ])
        .await?;
        self.submit_waiting_task().await?;
        Ok(())
    }

    /// Puts tasks into a batch, and waits until they are done.
    async fn import(&self, batch: &str, titles: &[&str]) -> Result<()> {
        let file = self.write_backlog(batch, titles)?;
        let (repo, script) = (self.repo_path()?, self.write_script()?);
        let flags = ["--batch", batch, "--repo", &repo, "--model", "scripted:s", "--script", &script];
        self.docket_output(&[&["import", &file][..], &flags].concat()).await?;
        self.docket_output(&["batch", batch, "--wait"]).await?;
        Ok(())
    }

    /// A file of tasks.
    pub(super) fn write_backlog(&self, name: &str, titles: &[&str]) -> Result<String> {
        let file = self.folder.path().join(format!("{name}.jsonl"));
        let lines =
            titles.iter().map(|title| json!({ "title": title, "text": title, "tools": "wide" }).to_string());
        std::fs::write(&file, lines.collect::<Vec<_>>().join("\n"))?;
        Ok(file.to_str().context("UTF-8")?.to_owned())
    }

    /// A task that nobody begins.
    pub(super) async fn submit_waiting_task(&self) -> Result<String> {
        let (repo, script) = (self.repo_path()?, self.write_script()?);
        let task = [TITLE, "--repo", &repo, "--model", "scripted:s", "--script", &script];
        let said = self
            .docket_output(&[&["submit", "--json", "--at", "2199-01-01T00:00:00Z"][..], &task].concat())
            .await?;
        Ok(parse_row(&said)?["id"].as_str().context("an id")?.to_owned())
    }

    pub(super) fn repo_path(&self) -> Result<String> {
        Ok(self.sample.path().to_str().context("UTF-8")?.to_owned())
    }

    pub(super) fn write_script(&self) -> Result<String> {
        Ok(self.sample.write_script(SCRIPT)?.to_str().context("UTF-8")?.to_owned())
    }

    /// What a command says that must succeed.
    pub(super) async fn docket_output(&self, args: &[&str]) -> Result<String> {
        self.coordinator.run_docket(args).await?.into_stdout().with_context(|| args.join(" "))
    }
}
