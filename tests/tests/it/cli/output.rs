//! Standard output for whoever reads it: one that has seen enough is no failure, a disk that is full is one; and a patch of
//! what did not complete goes into no pipe.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{Finished, Sample, Tool, docket, room, run};

/// Lines and bytes are written by different functions.
const COMMANDS: [&str; 2] = ["man pages --json", "completions bash"];

/// Runs a line of the shell that knows docket as `$0`.
async fn in_a_shell(folder: &Path, line: &str) -> Result<Finished> {
    let env = [("DOCKET_HOME", folder.as_os_str())];
    let args: [&OsStr; 3] = ["-c".as_ref(), line.as_ref(), docket().as_os_str()];
    run(Tool::Bash, folder, &env, &args).await
}

#[tokio::test]
async fn what_could_not_be_written_is_told_unless_nobody_reads_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for command in COMMANDS {
        let full = in_a_shell(folder.path(), &format!("\"$0\" {command} > /dev/full")).await?;
        let told = full.stderr.contains("cannot write to standard output");
        ensure!(full.code() == Some(1) && told, "{command}: {full:?}");
        // Whoever reads the pipe has gone before it is written to.
        let line = format!("exec 5> >(true); wait $!; \"$0\" {command} >&5");
        let gone = in_a_shell(folder.path(), &line).await?;
        ensure!(gone.success() && gone.stderr.is_empty(), "{command}: {gone:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_gets_no_patch_of_what_did_not_complete() -> Result<()> {
    let _room = room().await;
    let home = tempfile::tempdir()?;
    let sample = Sample::new(&[("a.txt", "a\n")])?;
    let script = sample.script(
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
    let ended = run(Tool::Docket, home.path(), &env, &args).await?;
    ensure!(ended.code() == Some(1) && ended.stdout.is_empty(), "{ended:?}");
    let told = ended.stderr.lines().find(|line| line.contains("no patch was written"));
    let told = told.with_context(|| format!("{ended:?}"))?;
    let diff = told.split('`').nth(1).and_then(|command| command.strip_prefix("docket diff "));
    let run_id = diff.with_context(|| format!("{told} names no `docket diff`"))?;
    let patch = run(Tool::Docket, home.path(), &env, &["diff", run_id]).await?.ok()?;
    ensure!(patch.contains("one.txt"), "{patch}");
    Ok(())
}
