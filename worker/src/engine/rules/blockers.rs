//! Blockers (A14): tool errors that only a person can resolve, recognized by the output of real tools. Pure.
//!
//! Missing access or credentials lead to a question at once: retrying with the same permissions changes nothing. An
//! external service that does not respond leads to one after a retry. Only a model can recognize an unclear
//! requirement, and says so with `BLOCKED:`.
//!
//! Only errors are inspected, line by line, and never the output of a test runner: a test of a refused login prints
//! the same text and is the work itself. Lines that compare values are skipped as well. Local services that do not
//! respond are ignored: the run can start them.

use std::collections::BTreeSet;

use docket_schema::{
    content::Content,
    ids::Turn,
    run::{FailureCategory, RunSettings, RunState, UnresolvedFailure, is_plan_heading},
};

/// Why a person is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum BlockerKind {
    /// Access or credentials.
    Access,
    /// An external service that does not respond.
    Service,
}

/// Each row: texts that one line must contain, case-insensitive.
const ACCESS_ERRORS: &[&[&str]] = &[
    &["fatal: could not read username for"],
    &["fatal: could not read password for"],
    &["fatal: authentication failed for"],
    &["terminal prompts disabled"],
    &["permission denied (publickey"],
    &["host key verification failed."],
    &["remote: permission to ", " denied to "],
    &["remote: http basic: access denied"],
    &["remote: invalid username or password"],
    &["remote: invalid username or token"],
    &["the requested url returned error: 401"],
    &["the requested url returned error: 403"],
    &["error: http error 401 while getting"],
    &["error: http error 403 while getting"],
    &["401 client error", " for url: "],
    &["403 client error", " for url: "],
    &["npm err", " code e401"],
    &["npm err", " code e403"],
    &["npm err", "eneedauth"],
    &["denied: requested access to the resource is denied"],
    &["unauthorized: authentication required"],
    &["no basic auth credentials"],
    &["unable to locate credentials"],
    &["an error occurred (accessdenied"],
    &["an error occurred (expiredtoken"],
    &["an error occurred (invalidclienttokenid)"],
    &["could not automatically determine credentials"],
    &["your default credentials were not found"],
    &["please run: gh auth login"],
    &["please run:  gh auth login"],
    &["no token found, please run `cargo login`"],
    &["failed to authenticate when downloading repository"],
    &["the api_key client option must be set"],
    &["authenticationerror: error code: 401"],
    &["fatal: password authentication failed for user"],
    &["fatal:  password authentication failed for user"],
];

/// Like [`ACCESS_ERRORS`], from `trouble_rules` 1 on; also for local services, whose secrets a run lacks as well.
const MISSING_SECRET_ERRORS: &[&[&str]] = &[
    &["missing required environment variable"],
    &["required environment variable", " is not set"],
    &["required environment variable", " is missing"],
    &["401", "invalid api key"],
    &["401", "invalid_api_key"],
    &["401", "incorrect api key"],
    &["401 unauthorized", "token"],
    &["401 unauthorized", "credential"],
    &["sudo: a password is required"],
    &["sudo: a terminal is required to read the password"],
    &["access denied for user '", "using password"],
    &["error 1045 (28000): access denied for user"],
];

/// Suffixes of environment variables that hold a secret.
const SECRET_NAME_SUFFIXES: [&str; 6] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS", "_DSN"];

/// Commands that print file contents or run tests: their output is not their own error.
const DISPLAY_COMMANDS: [&str; 16] = [
    "cat ", "head ", "tail ", "less ", "grep ", "egrep ", "rg ", "ag ", "sed ", "awk ", "diff ", "git diff",
    "git show", "git log", "git grep", "echo ",
];
const TEST_COMMANDS: [&str; 10] = [
    "pytest",
    "unittest",
    "npm test",
    "npm run test",
    "yarn test",
    "cargo test",
    "go test",
    "jest",
    "vitest",
    "make test",
];

/// More of both, from `trouble_rules` 2 on: commands that only inspect, and other test runners.
const INSPECT_COMMANDS: [&str; 9] = ["cd ", "ls", "pwd", "true", "wc ", "sort", "uniq", "find ", "printf "];
const MORE_TEST_COMMANDS: [&str; 16] = [
    "make check",
    "tox",
    "nox",
    "nextest",
    "node --test",
    "mocha",
    "pnpm test",
    "pnpm run test",
    "bun test",
    "ctest",
    "gradlew",
    "gradle ",
    "mvn ",
    "rspec",
    "phpunit",
    "dotnet test",
];

/// Like [`ACCESS_ERRORS`], for services.
const SERVICE_ERRORS: &[&[&str]] = &[
    &["could not resolve host"],
    &["temporary failure in name resolution"],
    &["temporary failure resolving"],
    &["name or service not known"],
    &["getaddrinfo enotfound"],
    &["getaddrinfo eai_again"],
    &["dial tcp", "no such host"],
    &["dial tcp", "connection refused"],
    &["dial tcp", "i/o timeout"],
    &["connect econnrefused "],
    &["connect etimedout "],
    &["curl: (7)", "failed to connect to "],
    &["curl: (28)", "timed out"],
    &["connection to server at ", "connection refused"],
    &["connection to server at ", "timeout expired"],
    &["ssh: connect to host ", "connection refused"],
    &["ssh: connect to host ", "connection timed out"],
    &["httpsconnectionpool(", "read timed out"],
    &["httpsconnectionpool(", "max retries exceeded"],
    &["net/http: tls handshake timeout"],
    &["the requested url returned error: 50"],
    &["error: http error 50", " while getting"],
    &["500 server error", " for url: "],
    &["502 server error", " for url: "],
    &["503 server error", " for url: "],
    &["504 server error", " for url: "],
    &["npm err", " 503 service unavailable"],
    &["npm err", " code e50"],
    &["received unexpected http status: 50"],
];

/// A line that compares values reports what a test expected.
const COMPARISON_WORDS: [&str; 4] = ["assert", "expect", "==", "panicked"];

/// Services that a run can start itself.
const LOCAL_SERVICES: [&str; 5] = ["localhost", "127.0.0.1", "::1", "0.0.0.0", "testserver"];

/// Returns why the error `said` needs a person, and the line that shows it.
pub(in crate::engine) fn find_blocker(said: &str) -> Option<(BlockerKind, &str)> {
    said.lines().map(str::trim).find_map(|line| {
        let lower = line.to_lowercase();
        let holds = |words: &&[&str]| words.iter().all(|word| lower.contains(word));
        if COMPARISON_WORDS.iter().chain(&LOCAL_SERVICES).any(|word| lower.contains(word)) {
            None
        } else if ACCESS_ERRORS.iter().any(&holds) {
            Some((BlockerKind::Access, line))
        } else if SERVICE_ERRORS.iter().any(holds) {
            Some((BlockerKind::Service, line))
        } else {
            None
        }
    })
}

/// Returns a secret that the run lacks, from the error of a command, in addition to [`find_blocker`].
fn find_missing_secret<'a>(command: &str, said: &'a str) -> Option<(BlockerKind, &'a str)> {
    let shows = command
        .split(['|', ';', '&'])
        .any(|part| DISPLAY_COMMANDS.iter().any(|word| part.trim_start().starts_with(word)));
    if shows || TEST_COMMANDS.iter().any(|word| command.contains(word)) {
        return None;
    }
    said.lines().map(str::trim).find_map(|line| {
        let lower = line.to_lowercase();
        let compares = COMPARISON_WORDS.iter().any(|word| lower.contains(word)) || line.starts_with("E  ");
        let holds = MISSING_SECRET_ERRORS.iter().any(|words| words.iter().all(|word| lower.contains(word)));
        (!compares && (holds || is_missing_secret_line(line))).then_some((BlockerKind::Access, line))
    })
}

/// `KeyError: 'STRIPE_API_KEY'`: Python did not find it in its environment.
fn is_missing_secret_line(line: &str) -> bool {
    let name = line.strip_prefix("KeyError: '").and_then(|rest| rest.strip_suffix('\''));
    name.is_some_and(|name| {
        let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        is_name && SECRET_NAME_SUFFIXES.iter().any(|end| name.ends_with(end))
    })
}

/// Whether a command only prints file contents, or also runs tests.
fn prints_foreign_output(command: &str) -> bool {
    let mut parts = command.split(['|', ';', '&', '\n']).map(str::trim_start).filter(|part| !part.is_empty());
    let looks =
        |part: &str| DISPLAY_COMMANDS.iter().chain(&INSPECT_COMMANDS).any(|word| part.starts_with(word));
    TEST_COMMANDS.iter().chain(&MORE_TEST_COMMANDS).any(|word| command.contains(word)) || parts.all(looks)
}

fn blocker_for_trouble(trouble: &UnresolvedFailure, rules: u32) -> Option<(BlockerKind, &str)> {
    let of_tests = trouble.failing.is_some() || trouble.tool == "run_tests";
    let of_files = matches!(trouble.kind, FailureCategory::NotFound | FailureCategory::WriteFailed);
    match &trouble.text {
        // Output of another program proves nothing: it is what was requested.
        Content::Text(_) if rules > 1 && prints_foreign_output(&trouble.subject) => None,
        Content::Text(said) if !of_tests && !of_files => find_blocker(said)
            .or_else(|| (rules > 0).then(|| find_missing_secret(&trouble.subject, said)).flatten()),
        Content::Text(_) | Content::B64(_) | Content::Blob(_) => None,
    }
}

/// Returns the question about errors of the last turn that only a person can resolve.
pub(in crate::engine) fn blocker_question(run: &RunState, settings: &RunSettings) -> Option<Content> {
    if !settings.ask_at_blockers || run.transcript.has_notes() {
        return None;
    }
    let blockers = run.unresolved_failures.iter().filter_map(|trouble| {
        blocker_for_trouble(trouble, settings.trouble_rules).map(|found| (trouble, found))
    });
    let silent = blockers.clone().filter(|(_, (need, _))| *need == BlockerKind::Service);
    let silent_in: BTreeSet<Turn> = silent.flat_map(|(trouble, _)| trouble.turns.iter().copied()).collect();
    let (trouble, (need, line)) = blockers
        .filter(|(trouble, _)| trouble.turns.contains(&run.turn))
        .find(|(_, (need, _))| *need == BlockerKind::Access || silent_in.len() > 1)?;
    let what = match need {
        BlockerKind::Access => "needs an access or credentials that the run lacks",
        BlockerKind::Service => "needs a service that does not answer, also when asked again",
    };
    let call = super::escalation::format_call_name(trouble);
    let question = format!(
        "`{call}` {what}:\n{}\n\nGrant it, mend it, or say how to do without; the run goes on from here with your words.",
        super::escalation::excerpt_first_line(line)
    );
    Some(Content::Text(question))
}

/// How a model reports that it cannot continue.
const BLOCKED_MARK: &str = "BLOCKED:";

/// Returns the question of a reply that begins with the mark or, with `anywhere`, has it at the start of a line, bare
/// or in Markdown.
pub(in crate::engine) fn blocked_question(text: Option<&Content>, anywhere: bool) -> Option<Content> {
    match text {
        Some(Content::Text(text)) => {
            let begins = |at: usize| {
                let line = text[at..].trim_start_matches(|c: char| c.is_whitespace() || "*_#>".contains(c));
                line.strip_prefix(BLOCKED_MARK)
            };
            let first = text.trim_start().strip_prefix(BLOCKED_MARK);
            let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
            let question = first.or_else(|| lines.filter(|_| anywhere).find_map(begins))?;
            // A plan after it is not part of the question.
            let plan = question.lines().position(|line| anywhere && is_plan_heading(line));
            let plan = plan.map(|line| question.lines().take(line).map(|line| line.len() + 1).sum::<usize>());
            let question = plan.and_then(|end| question.get(..end)).unwrap_or(question);
            let question = question.trim_matches(|c: char| c.is_whitespace() || "*_".contains(c));
            let question =
                if question.is_empty() { "The model is blocked and does not say by what." } else { question };
            Some(Content::Text(question.to_owned()))
        }
        Some(Content::B64(_) | Content::Blob(_)) | None => None,
    }
}
