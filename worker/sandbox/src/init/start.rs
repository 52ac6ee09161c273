//! Entry point of a re-executed docket: reads the plan and chooses the backend.

use std::ffi::OsString;

use super::{
    super::{config::INIT_MARKER, plan::SandboxBackend},
    bubblewrap,
    init_context::WaitingInit,
    namespaces,
    probe::{self, PROBE_ARGUMENT},
    reaper,
};

/// Returns the arguments after [`INIT_MARKER`] if this process was started as a sandbox's init. A binary
/// that uses the sandbox must call this first in `main`, before any thread exists, and pass the result to
/// [`sandbox_init_main`].
pub fn sandbox_init_args(args: impl IntoIterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut args = args.into_iter().skip(1);
    (args.next()? == INIT_MARKER).then(|| args.collect())
}

/// Runs the init to its end. Must be called with one thread and before anything else is opened.
pub fn sandbox_init_main(args: Vec<OsString>) -> ! {
    let first = args.first().and_then(|arg| arg.to_str());
    let status = match first {
        None => run_init(),
        Some(PROBE_ARGUMENT) => probe::print_probe_report(),
        Some(bubblewrap::INNER_ARGUMENT) => bubblewrap::run_inner(&args[1..]),
        Some(_unknown) => 2,
    };
    std::process::exit(status)
}

fn run_init() -> i32 {
    const NOTHING_TO_DO: i32 = 2;
    let Ok(waiting) = WaitingInit::read_plan() else { return NOTHING_TO_DO };
    match waiting.plan.backend {
        SandboxBackend::Namespaces => namespaces::run_outer(waiting),
        SandboxBackend::Bubblewrap => waiting.receive_command().map_or(NOTHING_TO_DO, bubblewrap::run_outer),
        SandboxBackend::None => waiting
            .receive_command()
            .map_or(NOTHING_TO_DO, |orders| reaper::run_reaper(orders, reaper::ReaperScope::Host)),
    }
}
