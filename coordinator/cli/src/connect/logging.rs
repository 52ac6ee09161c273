//! Logging of servers and workers to standard error, as text lines or one JSON object per line.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::output::error::{CliError, CliResult, ExitKind};

/// Format of log lines: `text` for people, `json` for log collectors.
const FORMAT_VAR: &str = "DOCKET_LOG_FORMAT";
/// Log filter, such as `docket_worker=debug`.
const FILTER_VAR: &str = "DOCKET_LOG";

/// Initializes logging: warnings by default, more with `-v`; `DOCKET_LOG` takes precedence.
///
/// # Errors
/// Fails when one of the two variables has an invalid value.
pub(crate) fn init_logging(verbose: u8) -> CliResult<()> {
    let level = match verbose {
        0 => "warn",
        1 => "docket=info,docket_coordinator=info,docket_worker=info,warn",
        _ => "docket=debug,docket_coordinator=debug,docket_worker=debug,info",
    };
    let filter = match non_empty_env(FILTER_VAR) {
        None => EnvFilter::new(level),
        Some(text) => {
            let parsed = EnvFilter::try_new(&text).ok().filter(|_| text.split(',').all(is_directive));
            parsed.ok_or_else(|| invalid_variable(FILTER_VAR, &text, ALLOWED_FILTER))?
        }
    };
    let is_json = match non_empty_env(FORMAT_VAR) {
        None => false,
        Some(text) => {
            parse_is_json(&text).ok_or_else(|| invalid_variable(FORMAT_VAR, &text, "text or json"))?
        }
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // If standard error is a file on a full disk, the logger's complaint about it would panic, and the
        // request in progress would get no reply.
        .log_internal_errors(false);
    // A second initialization keeps the first subscriber, which is harmless.
    if is_json {
        drop(subscriber.json().flatten_event(true).with_target(true).try_init());
    } else {
        drop(subscriber.try_init());
    }
    Ok(())
}

fn non_empty_env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.trim().is_empty())
}

/// Describes a filter.
const ALLOWED_FILTER: &str = "a level (off, error, warn, info, debug or trace), or targets with levels, such as docket_worker=debug,warn";

/// Levels that can be given without a target.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Prefixes of docket's own targets.
const CRATES: [&str; 6] =
    ["docket_coordinator", "docket_worker", "docket_schema", "docket_edit", "docket_sandbox", "docket"];

/// Whether one part of a filter has an effect. The filter library treats a lone word that is not a level as a
/// target, and a target that does not exist has no effect.
fn is_directive(part: &str) -> bool {
    let part = part.trim();
    let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(part))
        || matches!(part, "0" | "1" | "2" | "3" | "4" | "5");
    let is_of_docket = |name: &&str| {
        name.starts_with(part) || part.strip_prefix(*name).is_some_and(|rest| rest.starts_with("::"))
    };
    part.is_empty() || part.contains(['=', '[']) || is_level || CRATES.iter().any(is_of_docket)
}

fn parse_is_json(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "json" => Some(true),
        "text" => Some(false),
        _ => None,
    }
}

fn invalid_variable(name: &str, text: &str, allowed: &str) -> CliError {
    CliError::new(ExitKind::Usage, format!("{name} in the environment: `{text}` is not {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::{is_directive, parse_is_json};

    #[test]
    fn unknown_level_or_target_is_not_a_filter() {
        for good in [
            "info",
            "WARN",
            " off",
            "3",
            "docket",
            "docket_worker",
            "docket_wor",
            "docket_worker::model",
            "x=debug",
            "[run]",
            "",
        ] {
            assert!(is_directive(good), "{good}");
        }
        for bad in ["nonsense", "verbose", "docketx", "docket_workers", "docket_worker:model"] {
            assert!(!is_directive(bad), "{bad}");
        }
    }

    #[test]
    fn a_log_format_is_text_or_json() {
        for (text, json) in
            [("json", Some(true)), (" JSON", Some(true)), ("text", Some(false)), ("yes", None)]
        {
            assert_eq!(parse_is_json(text), json, "{text}");
        }
    }
}
