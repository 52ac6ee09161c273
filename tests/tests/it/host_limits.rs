//! Limits that a host or its settings give to commands: `docket sandbox` stands behind the same as a run.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{TestProgram, acquire_scenario_slot, docket_binary, run_program};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandbox_command_has_the_limits_of_the_worker() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (home, work) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let settings = "[worker]\nmemory = \"192MiB\"\nprocesses = 77\ndisk = \"64MiB\"\nfiles = 4321\n";
    fs::write(home.path().join("docket.toml"), settings)?;
    let workspace = work.path().to_str().context("UTF-8")?;
    let limits = async |more: &[&str]| -> Result<Value> {
        let args = [&["--json", "sandbox", "--workspace", workspace][..], more, &["--", "true"]].concat();
        let said =
            run_program(TestProgram::Docket, home.path(), &[("DOCKET_HOME", home.path().as_os_str())], &args)
                .await?
                .into_stdout()?;
        let said: Value = serde_json::from_str(said.trim()).with_context(|| said.clone())?;
        Ok(said["layers"]["limits"].clone())
    };
    let of_settings = limits(&[]).await?;
    for (field, value) in
        [("memory_bytes", 192 << 20), ("processes", 77), ("disk_bytes", 64 << 20), ("disk_files", 4321)]
    {
        ensure!(of_settings[field] == value, "`{field}`: {of_settings}");
    }
    let of_flags = limits(&["--processes", "88"]).await?;
    ensure!(of_flags["processes"] == 88 && of_flags["memory_bytes"] == 192 << 20, "{of_flags}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_with_low_hard_limits_runs_commands_within_them_and_doctor_names_them() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (home, work) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let program = docket_binary().to_str().context("UTF-8")?;
    let low = "ulimit -f 262144 && ulimit -n 512 && exec \"$@\"";
    let args = ["-c", low, "bash", program, "sandbox", "--workspace", work.path().to_str().context("UTF-8")?];
    let env = [("DOCKET_HOME", home.path().as_os_str())];
    let inside = [&args[..], &["--", "ulimit -Hn; ulimit -Hf"]].concat();
    let said = run_program(TestProgram::Bash, home.path(), &env, &inside).await?.into_stdout()?;
    ensure!(said.lines().collect::<Vec<_>>() == ["512", "262144"], "{said}");

    let doctor = ["-c", low, "bash", program, "--json", "doctor"];
    let said = run_program(TestProgram::Bash, home.path(), &env, &doctor).await?;
    let report: Value = serde_json::from_str(said.stdout.trim()).with_context(|| format!("{said:?}"))?;
    let lower = report["host"]["lower_limits"].as_array().context("a list")?;
    let told = |what: &str| lower.iter().filter_map(Value::as_str).any(|text| text.contains(what));
    ensure!(told("512 open files") && told("bytes of one file"), "{report}");
    let said =
        run_program(TestProgram::Bash, home.path(), &env, &["-c", low, "bash", program, "doctor"]).await?;
    ensure!(said.stdout.contains("rlimits: commands are limited to 512 open files"), "{said:?}");
    Ok(())
}
