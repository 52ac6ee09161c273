//! What servers and workers say on standard error: lines for people, or a JSON object a line.

use std::io::IsTerminal as _;

/// `json` in it makes each line an object, for what collects logs.
const FORMAT: &str = "DOCKET_LOG_FORMAT";

/// Starts logging: warnings, or more with `-v`; `DOCKET_LOG` (as `docket_worker=debug`) goes over it.
pub(crate) fn start(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "docket=info,docket_coordinator=info,docket_worker=info,warn",
        _ => "docket=debug,docket_coordinator=debug,docket_worker=debug,info",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("DOCKET_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // Where standard error is a file on a full disk, the complaint about it would panic, and the
        // request in hand would go unanswered.
        .log_internal_errors(false);
    let as_json = std::env::var(FORMAT).is_ok_and(|format| format.trim().eq_ignore_ascii_case("json"));
    // A second start keeps the first: nothing is lost by it.
    if as_json {
        drop(subscriber.json().flatten_event(true).with_target(true).try_init());
    } else {
        drop(subscriber.try_init());
    }
}
