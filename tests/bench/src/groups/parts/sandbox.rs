//! The cost of the sandbox: `true` inside it, alternating with `true` without it.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use docket_sandbox::{BackendChoice, CommandExit, CommandSpec, Sandbox, SandboxConfig};
use docket_worker::process::{TrustedSpec, run_trusted};

use crate::report::{BenchReport, EffortLevel, Samples};

/// The program; every Linux has it at one of these paths.
const TRUE_PROGRAMS: [&str; 2] = ["/usr/bin/true", "/bin/true"];
/// The first runs load the page cache.
const WARM_UP_RUNS: usize = 3;

/// Measures. If this host cannot provide a sandbox, the figures are missing with the reason.
pub(crate) async fn measure(
    folder: &Path,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let program = TRUE_PROGRAMS
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .context("`true` is not installed")?;
    let workspace = folder.join("workspace");
    std::fs::create_dir_all(&workspace)?;
    if let Some((uid, gid)) = docket_sandbox::workspace_owner() {
        std::os::unix::fs::chown(&workspace, Some(uid), Some(gid))?;
    }
    let sandbox = match Sandbox::prepare(SandboxConfig::new(BackendChoice::Auto, &workspace)).await {
        Ok(sandbox) => sandbox,
        Err(error) => {
            for name in ["spawn_sandboxed_ms_p50", "sandbox_overhead_ms_p50"] {
                report.set_missing(name, format!("{error}; see `docket doctor`"));
            }
            return Ok(());
        }
    };
    let (mut bare, mut inside, mut overhead) = (Samples::default(), Samples::default(), Samples::default());
    for sample in 0..effort.spawns() + WARM_UP_RUNS {
        let alone = spawn_bare(&program, folder).await?;
        let started = Instant::now();
        let output =
            sandbox.run(CommandSpec::new([program.as_os_str()])).await.context("the sandbox fails")?;
        let walled = started.elapsed();
        ensure!(output.exit == CommandExit::Exit(0), "`true` ended with {:?}", output.exit);
        if sample >= WARM_UP_RUNS {
            bare.push_ms(alone);
            inside.push_ms(walled);
            overhead.push((walled.as_secs_f64() - alone.as_secs_f64()) * 1000.0);
        }
    }
    report.set_percentile("spawn_bare_ms_p50", &bare, 50);
    report.set_percentile("spawn_sandboxed_ms_p50", &inside, 50);
    report.set_percentile("sandbox_overhead_ms_p50", &overhead, 50);
    Ok(())
}

async fn spawn_bare(program: &Path, folder: &Path) -> anyhow::Result<Duration> {
    let spec = TrustedSpec {
        program: program.to_owned(),
        args: Vec::new(),
        cwd: folder.to_owned(),
        env: Vec::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(10),
        stdout_bytes_max: 1024,
    };
    let started = Instant::now();
    run_trusted(spec).await.context("`true` does not start")?;
    Ok(started.elapsed())
}
