//! `docket doctor`: checks what this machine can do.

use std::{path::PathBuf, time::Duration};

use docket_sandbox::{HostReport, Sandbox, probe_host};
use docket_schema::api::{ClockHealth, ClockStepState};
use docket_worker::{
    client::CoordinatorClient,
    mcp::{self, McpServer},
};
use serde::Serialize;

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        local_coordinator,
    },
    context::CliContext,
    home::HomeOwnership,
    output::{
        display::{self, TextStyle},
        error::{CauseDisplay, CliResult, ExitKind, FailWith as _},
        worker_faults::describe_worker_faults,
    },
    services::worker_supervisor,
};

/// Time limit for starting an MCP server. A run uses the limit in the server's settings.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Tools that coding tasks commonly need. They are looked up in PATH and not started.
const TOOLCHAINS: [&str; 12] =
    ["git", "bwrap", "bash", "python3", "pytest", "ruff", "cargo", "node", "npm", "go", "make", "rg"];

/// Command-line arguments of `docket doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The exit code is 1 if this machine cannot run tasks.

Examples:
  docket doctor
  docket doctor --json | jq .sandbox_ok")]
pub(crate) struct DoctorArgs {}

/// The findings, in the form that `--json` prints.
#[derive(Debug, Serialize)]
struct DoctorReport {
    ok: bool,
    version: &'static str,
    home: PathBuf,
    owner_pid: Option<u32>,
    owner_address: Option<String>,
    /// Clock steps seen by the coordinator of this home. Absent if no coordinator responds or none was
    /// seen.
    clock: Option<ClockHealth>,
    store: String,
    store_ok: bool,
    sandbox_ok: bool,
    sandbox_missing: Vec<String>,
    host: HostReport,
    toolchains: Vec<ToolchainReport>,
    keys: Vec<&'static str>,
    mcp: Vec<McpServerReport>,
    worker_faults: Vec<String>,
}

/// An MCP server from the settings. Only names are reported, because values may be secret.
#[derive(Debug, Serialize)]
struct McpServerReport {
    name: String,
    program: String,
    variables: Vec<String>,
    not_set: Vec<String>,
    /// Whether the server starts and works here.
    state: McpServerState,
}

/// Result of starting an MCP server in an empty workspace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum McpServerState {
    /// The server works and offers this many tools.
    Works(usize),
    /// The server does not work, for this reason.
    Broken(String),
    /// The server was not started, for this reason.
    NotTried(&'static str),
}

impl McpServerState {
    async fn probe(cx: &CliContext, sandbox: Result<&Sandbox, &String>, server: &McpServer) -> Self {
        if server.needs_workspace() {
            return Self::NotTried("its command refers to files in a workspace");
        }
        let sandbox = match sandbox {
            Ok(sandbox) => sandbox,
            Err(why) => return Self::Broken(why.clone()),
        };
        match mcp::probe_server(sandbox, server, &cx.config.mcp_env(), SERVER_TIMEOUT).await {
            Ok(tools) => Self::Works(tools),
            Err(error) => Self::Broken(error.to_string()),
        }
    }
}

impl McpServerReport {
    fn from_settings((name, server): (&String, &McpServer), state: McpServerState) -> Self {
        let not_set = server.env_from.iter().filter(|name| std::env::var(name).is_err());
        Self {
            name: name.clone(),
            program: server.command.first().cloned().unwrap_or_default(),
            variables: server.env.0.keys().chain(&server.env_from).cloned().collect(),
            not_set: not_set.cloned().collect(),
            state,
        }
    }

    /// Starts each configured server once.
    async fn probe_all(cx: &CliContext) -> Vec<Self> {
        if cx.config.mcp.is_empty() {
            return Vec::new();
        }
        let folder =
            cx.home.ensure_folder("scratch").map_err(|failure| failure.format_message(CauseDisplay::Hidden));
        let made = match folder {
            Ok(scratch) => {
                worker_supervisor::prepare_sandbox((cx.config.sandbox, cx.config.sandbox_limits), scratch)
                    .await
            }
            Err(why) => Err(why),
        };
        let mut servers = Vec::new();
        for server in &cx.config.mcp {
            let sandbox = made.as_ref().map(|(sandbox, _folder)| sandbox);
            servers.push(Self::from_settings(server, McpServerState::probe(cx, sandbox, server.1).await));
        }
        servers
    }
}

#[derive(Debug, Serialize)]
struct ToolchainReport {
    name: &'static str,
    path: Option<PathBuf>,
}

pub(crate) async fn run_doctor(cx: CliContext, _: DoctorArgs) -> CliResult {
    let host = tokio::task::spawn_blocking(probe_host)
        .await
        .fail_with(ExitKind::Failed, || "cannot probe this machine".to_owned())?;
    let (store, store_ok) = match local_coordinator::open_store(&cx).await {
        Ok(store) => {
            let text = store.backend().to_owned();
            store.close().await;
            (text, true)
        }
        Err(failure) => (failure.format_message(CauseDisplay::Hidden), false),
    };
    let owner = match cx.home.ownership()? {
        HomeOwnership::Owned(owner) => Some(owner),
        HomeOwnership::Starting | HomeOwnership::Free => None,
    };
    // Must match the rule by which a worker refuses to start.
    let needed = ["userns", "mount", "pid", "net", "ipc", "uts", "seccomp"];
    let missing: Vec<String> = host
        .layers
        .iter()
        .filter_map(|layer| Some((layer.layer.name(), layer.missing_because.as_ref()?)))
        .filter(|(name, _)| needed.contains(name))
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    let toolchains: Vec<ToolchainReport> =
        TOOLCHAINS.iter().map(|name| ToolchainReport { name, path: find_in_path(name) }).collect();
    let git = toolchains.iter().any(|tool| tool.name == "git" && tool.path.is_some());
    let report = DoctorReport {
        ok: store_ok && missing.is_empty() && git,
        version: env!("CARGO_PKG_VERSION"),
        home: cx.home.path().to_owned(),
        owner_pid: owner.as_ref().map(|owner| owner.pid),
        clock: fetch_clock_health(&cx, owner.as_ref().and_then(|owner| owner.address.as_deref())).await,
        owner_address: owner.and_then(|owner| owner.address),
        store,
        store_ok,
        sandbox_ok: missing.is_empty(),
        sandbox_missing: missing,
        host,
        toolchains,
        keys: local_coordinator::PROVIDER_KEY_VARS
            .iter()
            .filter(|(_, env)| std::env::var_os(env).is_some())
            .map(|(_, env)| *env)
            .collect(),
        mcp: McpServerReport::probe_all(&cx).await,
        worker_faults: fetch_worker_faults(&cx).await,
    };
    if cx.is_json() {
        display::print_json(&report);
    } else {
        print_report(&cx, &report);
    }
    Ok(if report.ok { ExitKind::Ok } else { ExitKind::Failed })
}

/// Returns the clock steps seen by the coordinator at `address`.
async fn fetch_clock_health(cx: &CliContext, address: Option<&str>) -> Option<ClockHealth> {
    let client = CoordinatorClient::new(address?, cx.home.load_or_create_token().ok()?).ok()?;
    client.check_ready().await.ok()?.clock
}

/// Describes the clock steps.
fn describe_clock_steps(clock: &ClockHealth) -> Option<String> {
    let last = clock.last?;
    let (by, direction) =
        (display::format_duration(last.by_ms.unsigned_abs()), if last.by_ms < 0 { "back" } else { "ahead" });
    let came = match last.state {
        ClockStepState::Watched => "it will be followed if it lasts",
        ClockStepState::Followed => {
            "it lasted, and the coordinator followed it: check the time service on that machine"
        }
        ClockStepState::Gone => {
            "it was reverted at once and not followed: check the time service on that machine"
        }
    };
    let times = if clock.steps == 1 { "once".to_owned() } else { format!("{} times", clock.steps) };
    Some(format!(
        "the coordinator's clock was stepped {times}, last by {by} {direction} at {}; {came}",
        last.seen_at
    ))
}

/// Returns the faults reported by workers, if a coordinator responds. Doctor checks this machine
/// either way.
async fn fetch_worker_faults(cx: &CliContext) -> Vec<String> {
    let is_served = cx.url.is_some()
        || matches!(cx.home.ownership(), Ok(HomeOwnership::Owned(owner)) if owner.address.is_some());
    if !is_served {
        return Vec::new();
    }
    let Ok(access) = Coordinator::connect(cx, AccessMode::Read).await else { return Vec::new() };
    let workers = access.client.get_status().await.map(|status| status.workers).unwrap_or_default();
    // The response was already read, so errors on close do not matter.
    drop(access.close().await);
    describe_worker_faults(&workers)
}

fn print_report(cx: &CliContext, report: &DoctorReport) {
    let mark = |good: bool, text: &str| {
        let (style, word) = if good { (TextStyle::Good, "ok     ") } else { (TextStyle::Bad, "missing") };
        display::print_line(&format!("{}  {}", cx.screen.paint(style, word), display::sanitize_line(text)));
    };
    mark(true, &format!("docket {}, home {}", report.version, report.home.display()));
    mark(report.store_ok, &format!("store: {}", report.store));
    match (&report.owner_pid, &report.owner_address) {
        (Some(pid), Some(address)) => mark(true, &format!("process {pid} is serving this home at {address}")),
        (Some(pid), None) => mark(true, &format!("process {pid} is writing to this home")),
        (None, _) => display::print_line(
            "-        no coordinator is running for this home; start one with `docket up`",
        ),
    }
    if let Some(text) = report.clock.as_ref().and_then(describe_clock_steps) {
        display::print_line(&format!("-        {}", display::sanitize_line(&text)));
    }
    for layer in &report.host.layers {
        let text = match &layer.missing_because {
            None => format!("sandbox: {}", layer.layer.name()),
            Some(why) => format!("sandbox: {}: {why}", layer.layer.name()),
        };
        mark(layer.missing_because.is_none(), &text);
    }
    for lower in &report.host.lower_limits {
        display::print_line(&format!("-        sandbox: rlimits: {}", display::sanitize_line(lower)));
    }
    if !report.sandbox_ok {
        display::print_line(
            "         model commands would run unsandboxed here; workers refuse to start without --sandbox none",
        );
    }
    for tool in &report.toolchains {
        match &tool.path {
            Some(path) => mark(true, &format!("{}: {}", tool.name, path.display())),
            None => display::print_line(&format!("-        {}: not in PATH", tool.name)),
        }
    }
    for server in &report.mcp {
        let given = match server.variables.as_slice() {
            [] => String::new(),
            names => format!(", receives {}", names.join(", ")),
        };
        let lacks = match server.not_set.as_slice() {
            [] => String::new(),
            names => format!("; not set here: {}", names.join(", ")),
        };
        let text = format!("MCP server `{}`: {}{given}{lacks}", server.name, server.program);
        match &server.state {
            McpServerState::Works(1) => mark(true, &format!("{text}: works, 1 tool")),
            McpServerState::Works(tools) => mark(true, &format!("{text}: works, {tools} tools")),
            McpServerState::Broken(_) if !server.not_set.is_empty() => mark(false, &text),
            McpServerState::Broken(why) => {
                mark(
                    false,
                    &format!("{text}: does not work in an empty workspace: {}", display::sanitize_line(why)),
                );
            }
            McpServerState::NotTried(_) if !server.not_set.is_empty() => mark(false, &text),
            McpServerState::NotTried(why) => {
                display::print_line(&format!("-        {text}: not tested: {why}"))
            }
        }
    }
    report.worker_faults.iter().for_each(|fault| mark(false, fault));
    let keys = if report.keys.is_empty() {
        "none of ANTHROPIC_API_KEY, OPENAI_API_KEY is set".to_owned()
    } else {
        format!("{} set", report.keys.join(", "))
    };
    display::print_line(&format!("-        model keys: {keys}"));
    display::print_line(
        "-        model protocols: anthropic:NAME, openai:NAME (chat completions), openai-responses:NAME; both OpenAI \
         protocols use OPENAI_API_KEY",
    );
}

/// Finds a program in PATH.
pub(crate) fn find_in_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::var_os("PATH")?;
    let runs = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(runs)
}
