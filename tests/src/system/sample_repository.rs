//! A small repository for a task, and the submit of the task.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use docket_schema::{ids::TaskId, task::TaskSpec};
use tempfile::TempDir;

use super::{
    coordinator::CoordinatorProcess,
    process::{TestProgram, run_blocking},
};

/// A repository with one commit.
#[derive(Debug)]
pub struct SampleRepository {
    folder: TempDir,
}

impl SampleRepository {
    /// Creates a repository with these files; a path that ends in `.sh` is executable.
    ///
    /// # Errors
    /// Returns an error if git or the file system fails.
    pub fn new(files: &[(&str, &str)]) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::Builder::new().prefix("docket-sample-").tempdir()?;
        for (path, content) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
            std::fs::write(&path, content)?;
            let mode = if path.extension().is_some_and(|end| end == "sh") { 0o755 } else { 0o644 };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        }
        commit_all(folder.path())?;
        Ok(Self { folder })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Submits a task on it as a user would, and returns the coordinator's record. `args` are
    /// additional flags.
    ///
    /// # Errors
    /// Returns an error if it is refused.
    pub async fn submit(
        &self,
        coordinator: &CoordinatorProcess,
        args: &[&str],
    ) -> Result<(TaskId, TaskSpec)> {
        let repo = self.path().to_str().context("a UTF-8 path")?;
        let mut all = vec!["submit", "Do what the script says", "--json", "--repo", repo];
        all.extend(args);
        let row = coordinator.run_docket(&all).await?.into_stdout()?;
        let row: serde_json::Value = serde_json::from_str(&row).context("the output of `submit --json`")?;
        let id: TaskId = row["id"].as_str().context("an id")?.parse()?;
        Ok((id, coordinator.client().get_task(id).await?.task.spec))
    }

    /// Writes a script file next to the repository's work tree and returns its path.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write_script(&self, text: &str) -> Result<PathBuf> {
        let path = self.path().join(".git").join("script.toml");
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

/// Turns a folder with all its files into a repository.
///
/// # Errors
/// Returns an error if git fails.
pub fn commit_all(folder: &Path) -> Result<()> {
    let steps: [&[&str]; 3] = [
        &["init", "--quiet", "--initial-branch", "main"],
        &["add", "--all"],
        &["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message", "start"],
    ];
    for args in steps {
        run_blocking(TestProgram::Git, folder, args.iter().map(AsRef::as_ref))
            .into_stdout()
            .with_context(|| format!("git {args:?}"))?;
    }
    Ok(())
}
