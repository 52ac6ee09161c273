//! `docket worker`: runs a worker for a remote coordinator, or for this home's.

use std::{ffi::OsString, path::PathBuf};

use docket_sandbox::TOOL_HOME_VARIABLES;
use docket_worker::{
    bootstrap::SandboxChoice,
    client::home_address,
    process::{ChildHandle, ChildLog, ChildSpec, start_child},
    secret::Secret,
};

use crate::{
    connect::logging,
    context::CliContext,
    home::HomeOwnership,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
        signals::StopSignals,
    },
    services::worker_supervisor,
};

/// Arguments of `docket worker`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The coordinator is DOCKET_URL (or --url) with DOCKET_TOKEN, or the one that serves this home.
SIGTERM lets each run finish its turn and releases it; a second SIGTERM exits at once.

Examples:
  DOCKET_URL=https://docket.example.org DOCKET_TOKEN=... docket worker --slots 8
  docket worker --queues slow,nightly"
)]
pub(crate) struct WorkerCommandArgs {
    #[command(flatten)]
    worker: worker_supervisor::WorkerArgs,
}

/// Works until stopped.
pub(crate) async fn run_worker(mut cx: CliContext, args: WorkerCommandArgs) -> CliResult {
    logging::init_logging(cx.verbose)?;
    let stop = StopSignals::listen()?;
    args.worker.apply_to(&mut cx.config);
    let coordinator = find_coordinator(&cx)?;
    let (address, token, name) = (coordinator.address, coordinator.token, args.worker.name());
    let job = match coordinator.of_home {
        Some(home) => worker_supervisor::WorkerSpec::for_home(&home, token, name),
        None => worker_supervisor::WorkerSpec::new(&address, token, name),
    };
    let job = job.with_failpoints(args.worker.failpoints());
    let worker = worker_supervisor::start_supervisor(&cx, job, &stop)?;
    if cx.is_json() {
        let slots = cx.config.slots;
        display::print_json(
            &serde_json::json!({ "coordinator": address, "pid": std::process::id(), "slots": slots }),
        );
    } else {
        display::print_line(&format!(
            "working for {address}, up to {} concurrent runs; press Ctrl-C to stop",
            cx.config.slots
        ));
    }
    worker.await?;
    if !stop.drain.is_cancelled() {
        display::print_note("stopped: this worker was drained (`docket workers drain`)");
    }
    Ok(ExitKind::Ok)
}

/// The coordinator of a worker.
struct FoundCoordinator {
    /// Its current address.
    address: String,
    token: Secret,
    /// The address of this home, if the coordinator is this home's: the worker then stays with the home when
    /// another process takes over.
    of_home: Option<String>,
}

fn find_coordinator(cx: &CliContext) -> CliResult<FoundCoordinator> {
    let given = std::env::var("DOCKET_TOKEN").ok().as_deref().and_then(Secret::new);
    if let Some(url) = &cx.url {
        let token = given.ok_or_else(|| {
            let message =
                "DOCKET_TOKEN is not set; the token is in the file `token` of the coordinator's home";
            CliError::new(ExitKind::Refused, message)
        })?;
        return Ok(FoundCoordinator { address: url.trim_end_matches('/').to_owned(), token, of_home: None });
    }
    match cx.home.ownership()? {
        HomeOwnership::Owned(owner) => match owner.address {
            Some(address) => {
                let (token, of_home) = (cx.home.load_or_create_token()?, home_address(&cx.home.lock_path()));
                Ok(FoundCoordinator { address, token, of_home })
            }
            None => Err(no_coordinator()),
        },
        HomeOwnership::Starting | HomeOwnership::Free => Err(no_coordinator()),
    }
}

fn no_coordinator() -> CliError {
    let message = "no coordinator serves this home; start `docket serve` or `docket up`, or set DOCKET_URL";
    CliError::new(ExitKind::Unreachable, message)
}

/// Starts a worker process in the home for the coordinator at `address`.
pub(crate) async fn start_worker_process(
    cx: &CliContext,
    address: &str,
    name: &str,
    slots: u32,
) -> CliResult<ChildHandle> {
    let failed = || "cannot start a worker".to_owned();
    let program = std::env::current_exe().fail_with(ExitKind::Failed, failed)?;
    let env = [
        ("DOCKET_URL", address.to_owned()),
        ("DOCKET_TOKEN", cx.home.load_or_create_token()?.expose().to_owned()),
        ("DOCKET_HOME", cx.home.path().display().to_string()),
        ("DOCKET_SANDBOX", sandbox_name(cx).to_owned()),
    ];
    let spec = ChildSpec {
        program,
        args: ["worker", "--slots", &slots.to_string(), "--name", name].map(OsString::from).to_vec(),
        cwd: PathBuf::from("/"),
        env: env.map(|(key, value)| (key.into(), value.into())).to_vec(),
        inherit: ["PATH", "HOME", "LANG", "TMPDIR", "DOCKET_LOG"]
            .into_iter()
            .chain(TOOL_HOME_VARIABLES)
            .map(OsString::from)
            .collect(),
        stdin_payload: Vec::new(),
        log: ChildLog::Append(worker_log_path(cx, name)),
    };
    start_child(spec).await.fail_with(ExitKind::Failed, failed)
}

/// Returns the log file of the worker process of this name.
pub(crate) fn worker_log_path(cx: &CliContext, name: &str) -> PathBuf {
    cx.home.path().join(format!("worker-{name}.log"))
}

fn sandbox_name(cx: &CliContext) -> &'static str {
    match cx.config.sandbox {
        SandboxChoice::Auto => "auto",
        SandboxChoice::Bubblewrap => "bubblewrap",
        SandboxChoice::Namespaces => "namespaces",
        SandboxChoice::None => "none",
    }
}

/// Finds a run process of a worker process in the process list.
pub(crate) fn find_run_process(worker: i32) -> Option<i32> {
    let threads = std::fs::read_dir(format!("/proc/{worker}/task")).ok()?;
    let children =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let all: Vec<i32> = children
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect();
    all.into_iter().find(|child| {
        std::fs::read(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| line.split(|b| *b == 0).any(|arg| arg == b"run-process"))
    })
}
