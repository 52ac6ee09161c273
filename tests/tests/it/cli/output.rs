//! Standard output for whoever reads it: one that has seen enough is no failure, a disk that is full is one; and a patch of
//! what did not complete goes into no pipe.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    FinishedProcess, SampleRepository, TestProgram, acquire_scenario_slot, docket_binary, run_program,
};

/// Lines and bytes are written by different functions.
const COMMANDS: [&str; 2] = ["man pages --json", "completions bash"];

/// Runs a line of the shell that knows docket as `$0`.
async fn run_in_shell(folder: &Path, line: &str) -> Result<FinishedProcess> {
    let env = [("DOCKET_HOME", folder.as_os_str())];
    let args: [&OsStr; 3] = ["-c".as_ref(), line.as_ref(), docket_binary().as_os_str()];
    run_program(TestProgram::Bash, folder, &env, &args).await
}

#[tokio::test]
async fn write_errors_are_reported_except_broken_pipe() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for command in COMMANDS {
        let full = run_in_shell(folder.path(), &format!("\"$0\" {command} > /dev/full")).await?;
        let told = full.stderr.contains("cannot write to standard output");
        ensure!(full.code() == Some(1) && told, "{command}: {full:?}");
        // Whoever reads the pipe has gone before it is written to.
        let line = format!("exec 5> >(true); wait $!; \"$0\" {command} >&5");
        let gone = run_in_shell(folder.path(), &line).await?;
        ensure!(gone.success() && gone.stderr.is_empty(), "{command}: {gone:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_run_prints_no_patch_to_a_pipe() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let script = sample.write_script(
        r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "one.txt", content = "one\n" } }]
[[turns]]
text = "BLOCKED: which port?"
"#,
    )?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "x", "--repo", repo, "--model", "scripted:s", "--script", script];
    let env = [("DOCKET_HOME", home.path().as_os_str())];
    let ended = run_program(TestProgram::Docket, home.path(), &env, &args).await?;
    ensure!(ended.code() == Some(1) && ended.stdout.is_empty(), "{ended:?}");
    let told = ended.stderr.lines().find(|line| line.contains("no patch was written"));
    let told = told.with_context(|| format!("{ended:?}"))?;
    let diff = told.split('`').nth(1).and_then(|command| command.strip_prefix("docket diff "));
    let run_id = diff.with_context(|| format!("{told} names no `docket diff`"))?;
    let patch =
        run_program(TestProgram::Docket, home.path(), &env, &["diff", run_id]).await?.into_stdout()?;
    ensure!(patch.contains("one.txt"), "{patch}");
    Ok(())
}
