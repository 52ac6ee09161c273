//! `docket worker`: a worker for a coordinator elsewhere, or for this home's.

use std::{ffi::OsString, path::PathBuf};

use docket_sandbox::TOOL_HOMES;
use docket_worker::{
    bootstrap::SandboxChoice,
    client::home_address,
    process::{ChildHandle, ChildLog, ChildSpec, start_child},
    secret::Secret,
};

use crate::{
    connect::logging,
    context::Context,
    home::Ownership,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
        signals::Stop,
    },
    services::supervise,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The coordinator is DOCKET_URL (or --url) with DOCKET_TOKEN, or the one that serves this home. SIGTERM
lets each run finish its turn and gives it back; a second one ends at once.

Examples:
  DOCKET_URL=https://docket.example.org DOCKET_TOKEN=... docket worker --slots 8
  docket worker --queues slow,nightly"
)]
pub(crate) struct Args {
    #[command(flatten)]
    worker: supervise::WorkerArgs,
}

/// Works until told to stop.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    logging::start(cx.verbose)?;
    let stop = Stop::listen()?;
    args.worker.lay_over(&mut cx.config);
    let coordinator = find_coordinator(&cx)?;
    let (address, token, name) = (coordinator.address, coordinator.token, args.worker.name());
    let job = match coordinator.of_home {
        Some(home) => supervise::Job::of_home(&home, token, name),
        None => supervise::Job::new(&address, token, name),
    };
    let job = job.dying_at(args.worker.failpoints());
    let worker = supervise::start(&cx, job, &stop)?;
    if cx.json() {
        let slots = cx.config.slots;
        display::say_json(
            &serde_json::json!({ "coordinator": address, "pid": std::process::id(), "slots": slots }),
        );
    } else {
        display::say(&format!(
            "working for {address}, up to {} runs at once; Ctrl-C ends it in order",
            cx.config.slots
        ));
    }
    worker.await?;
    if !stop.drain.is_cancelled() {
        display::note("ended: somebody drained this worker (`docket workers drain`)");
    }
    Ok(Exit::Ok)
}

/// Whom a worker works for.
struct FoundCoordinator {
    /// Where it answers now.
    address: String,
    token: Secret,
    /// The address of this home, where the coordinator is this home's: the worker stays with the home when another
    /// process serves it.
    of_home: Option<String>,
}

fn find_coordinator(cx: &Context) -> Outcome<FoundCoordinator> {
    let given = std::env::var("DOCKET_TOKEN").ok().as_deref().and_then(Secret::new);
    if let Some(url) = &cx.url {
        let token = given.ok_or_else(|| {
            let message = "DOCKET_TOKEN is not set; it is in the file `token` of the coordinator's home";
            Failure::new(Exit::Refused, message)
        })?;
        return Ok(FoundCoordinator { address: url.trim_end_matches('/').to_owned(), token, of_home: None });
    }
    match cx.home.ownership()? {
        Ownership::Owned(owner) => match owner.address {
            Some(address) => {
                let (token, of_home) = (cx.home.token()?, home_address(&cx.home.lock_path()));
                Ok(FoundCoordinator { address, token, of_home })
            }
            None => Err(no_coordinator()),
        },
        Ownership::Starting | Ownership::Free => Err(no_coordinator()),
    }
}

fn no_coordinator() -> Failure {
    let message = "no coordinator serves this home; start `docket serve` or `docket up`, or set DOCKET_URL";
    Failure::new(Exit::Unreachable, message)
}

/// Starts a worker in the home as a process of its own, for the coordinator at `address`.
pub(crate) async fn start_process(
    cx: &Context,
    address: &str,
    name: &str,
    slots: u32,
) -> Outcome<ChildHandle> {
    let failed = || "cannot start a worker".to_owned();
    let program = std::env::current_exe().fail_with(Exit::Failed, failed)?;
    let env = [
        ("DOCKET_URL", address.to_owned()),
        ("DOCKET_TOKEN", cx.home.token()?.expose().to_owned()),
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
            .chain(TOOL_HOMES)
            .map(OsString::from)
            .collect(),
        stdin_payload: Vec::new(),
        log: ChildLog::Append(log_of(cx, name)),
    };
    start_child(spec).await.fail_with(Exit::Failed, failed)
}

/// The log of the worker's process of this name.
pub(crate) fn log_of(cx: &Context, name: &str) -> PathBuf {
    cx.home.path().join(format!("worker-{name}.log"))
}

fn sandbox_name(cx: &Context) -> &'static str {
    match cx.config.sandbox {
        SandboxChoice::Auto => "auto",
        SandboxChoice::Bubblewrap => "bubblewrap",
        SandboxChoice::Namespaces => "namespaces",
        SandboxChoice::None => "none",
    }
}

/// A run process of a worker's process, by the system's own list.
pub(crate) fn run_process_of(worker: i32) -> Option<i32> {
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
