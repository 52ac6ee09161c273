//! Parsers for values of flags, settings and backlog files.
//!
//! Every error says what the value must be; the caller names the flag or field.

use docket_sandbox::BackendChoice;
use docket_schema::{
    content::WorkspacePath,
    message::ModelRef,
    run::{ReasoningEffort, TaskComplexity, parse_temperature_milli},
    task::check_model,
    tool::ToolSet,
};

use docket_worker::bootstrap::SandboxChoice;

use crate::{
    config,
    output::error::{CliError, CliResult, ExitKind},
};

/// Parses an amount of money, such as 2.50, to nano-dollars.
pub(crate) fn parse_dollars(text: &str) -> Result<u64, String> {
    config::parse_nano_dollars(text).ok_or_else(|| format!("it must be {}", config::ALLOWED_DOLLARS))
}

/// Parses a duration, such as 90s, 30m or 2h, to milliseconds.
pub(crate) fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let (number, unit_ms) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1000),
        Some((at, 'm')) => (&text[..at], 60_000),
        Some((at, 'h')) => (&text[..at], 3_600_000),
        Some(_) | None => ("", 0),
    };
    let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms)).filter(|ms| *ms > 0);
    ms.ok_or_else(|| "it must be a number with its unit, such as 90s, 30m or 2h".to_owned())
}

/// Parses a model of the form PROVIDER:NAME.
pub(crate) fn parse_model(text: &str) -> Result<ModelRef, String> {
    text.parse().map_err(|error: docket_schema::ids::ParseIdError| error.to_string())
}

/// Parses the complexity of a task.
pub(crate) fn parse_complexity(text: &str) -> Result<TaskComplexity, String> {
    text.parse().map_err(str::to_owned)
}

/// Parses a reasoning effort.
pub(crate) fn parse_effort(text: &str) -> Result<ReasoningEffort, String> {
    text.parse().map_err(str::to_owned)
}

/// Parses the name of a tool set.
pub(crate) fn parse_tool_set(text: &str) -> Result<ToolSet, String> {
    text.parse().map_err(str::to_owned)
}

/// Parses a sampling temperature to thousandths.
pub(crate) fn parse_temperature(text: &str) -> Result<u32, String> {
    parse_temperature_milli(text).ok_or_else(|| format!("it must be {}", config::ALLOWED_TEMPERATURE))
}

/// Parses a path in a workspace.
pub(crate) fn parse_workspace_path(text: &str) -> Result<WorkspacePath, String> {
    WorkspacePath::new(text)
        .ok_or_else(|| "it must be relative and stay inside the repository, such as src/lib.rs".to_owned())
}

/// Parses the address of a store.
pub(crate) fn parse_store_address(text: &str) -> Result<String, String> {
    if config::is_store_address(text) {
        Ok(text.to_owned())
    } else {
        Err("it must be sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE".to_owned())
    }
}

/// Validates `--base-url` before anything is pinned or sent, with an error in terms of the flag.
pub(crate) fn check_base_url(model: &ModelRef) -> CliResult<()> {
    check_model(model)
        .map_err(|error| CliError::new(ExitKind::Usage, format!("--base-url must be {}", error.must)))
}

/// Converts the worker's setting to the sandbox's type.
pub(crate) const fn to_backend_choice(choice: SandboxChoice) -> BackendChoice {
    match choice {
        SandboxChoice::Auto => BackendChoice::Auto,
        SandboxChoice::Bubblewrap => BackendChoice::Bubblewrap,
        SandboxChoice::Namespaces => BackendChoice::Namespaces,
        SandboxChoice::None => BackendChoice::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_dollars_are_parsed_with_units() {
        for (text, ms) in [("90s", Some(90_000)), ("30m", Some(1_800_000)), ("2h", Some(7_200_000))]
            .into_iter()
            .chain(["", "30", "m", "0s", "-1s", "1d", "99999999999999999999h"].map(|bad| (bad, None)))
        {
            assert_eq!(parse_duration_ms(text).ok(), ms, "{text}");
        }
        for (text, nusd) in
            [("2.50", Some(2_500_000_000)), ("3", Some(3_000_000_000)), ("0.0001", Some(100_000))]
                .into_iter()
                .chain(
                    ["", "0", "-1", "0.0000000001", ".5", "1,5", "99999999999999999999"]
                        .map(|bad| (bad, None)),
                )
        {
            assert_eq!(parse_dollars(text).ok(), nusd, "{text}");
        }
    }
}
