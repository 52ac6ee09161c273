//! Where a re-executed docket begins: reads what it is told and chooses the backend.

use std::ffi::OsString;

use super::{
    super::{config::INIT_MARKER, plan::Backend},
    bubblewrap, namespaces,
    orders::Waiting,
    probe::{self, PROBE_ARGUMENT},
    reaper,
};

/// The arguments after [`INIT_MARKER`] when this process was started as a sandbox's init. A binary that uses
/// the sandbox asks this first thing in `main`, before any thread exists, and hands the answer to
/// [`sandbox_init_main`].
pub fn init_call(args: impl IntoIterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut args = args.into_iter().skip(1);
    (args.next()? == INIT_MARKER).then(|| args.collect())
}

/// The whole life of an init. Must be called with one thread and before anything else is opened.
pub fn sandbox_init_main(args: Vec<OsString>) -> ! {
    let first = args.first().and_then(|arg| arg.to_str());
    let status = match first {
        None => outer(),
        Some(PROBE_ARGUMENT) => probe::answer(),
        Some(bubblewrap::INNER_ARGUMENT) => bubblewrap::inner(&args[1..]),
        Some(_unknown) => 2,
    };
    std::process::exit(status)
}

fn outer() -> i32 {
    const NOTHING_TO_DO: i32 = 2;
    let Ok(waiting) = Waiting::read() else { return NOTHING_TO_DO };
    match waiting.plan.backend {
        Backend::Namespaces => namespaces::run(waiting),
        Backend::Bubblewrap => waiting.orders().map_or(NOTHING_TO_DO, bubblewrap::outer),
        Backend::None => {
            waiting.orders().map_or(NOTHING_TO_DO, |orders| reaper::run(orders, reaper::Place::Host))
        }
    }
}
