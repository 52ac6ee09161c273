//! Tests of blockers with real messages, and with messages that only look like them.

use docket_schema::{
    run::{BlockedReason, RunSettings, ToolStatus},
    tool::{TestCounts, ToolFacts},
};
use serde_json::json;

use super::blockers::{BlockerKind, find_blocker};
use crate::engine::{Action, react_tests::TestLog};

const ACCESS: &[&str] = &[
    "fatal: could not read Username for 'https://git.example.com': No such device or address",
    "fatal: could not read Username for 'https://git.example.com': terminal prompts disabled",
    "fatal: Authentication failed for 'https://git.example.com/a/b.git/'",
    "git@git.example.com: Permission denied (publickey).",
    "git@git.example.com: Permission denied (publickey,password).\nfatal: Could not read from remote repository.",
    "Host key verification failed.\nfatal: Could not read from remote repository.",
    "remote: Permission to a/b.git denied to c.\nfatal: unable to access 'https://git.example.com/a/b.git/': The requested URL returned error: 403",
    "remote: HTTP Basic: Access denied",
    "curl: (22) The requested URL returned error: 401",
    "curl: (22) The requested URL returned error: 403 Forbidden",
    "ERROR: HTTP error 403 while getting https://packages.example.com/simple/x.whl",
    "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://api.example.com/v1/me",
    "npm ERR! code E401\nnpm ERR! Unable to authenticate, need: Basic",
    "npm error code E403",
    "npm error code ENEEDAUTH",
    "denied: requested access to the resource is denied",
    "Error response from daemon: unauthorized: authentication required",
    "Unable to locate credentials. You can configure credentials by running \"aws configure\".",
    "An error occurred (AccessDenied) when calling the PutObject operation: Access Denied",
    "An error occurred (ExpiredToken) when calling the ListBuckets operation",
    "To get started with GitHub CLI, please run:  gh auth login",
    "error: no token found, please run `cargo login`",
    "openai.OpenAIError: The api_key client option must be set either by passing api_key to the client or by setting the OPENAI_API_KEY environment variable",
    "psql: error: FATAL:  password authentication failed for user \"app\"",
];

const SERVICE: &[&str] = &[
    "curl: (6) Could not resolve host: api.example.com",
    "fatal: unable to access 'https://git.example.com/a/b/': Could not resolve host: git.example.com",
    "Temporary failure in name resolution",
    "npm ERR! request to https://registry.example.com/x failed, reason: getaddrinfo EAI_AGAIN registry.example.com",
    "Error: getaddrinfo ENOTFOUND db.example.com",
    "Error: connect ECONNREFUSED 10.0.0.5:5432",
    "curl: (7) Failed to connect to api.example.com port 443 after 3 ms: Connection refused",
    "curl: (28) Connection timed out after 30001 milliseconds",
    "psql: error: connection to server at \"db.example.com\" (10.0.0.5), port 5432 failed: Connection refused",
    "go: example.com/m@v1: dial tcp: lookup proxy.example.com: no such host",
    "dial tcp 10.0.0.5:443: i/o timeout",
    "net/http: TLS handshake timeout",
    "curl: (22) The requested URL returned error: 503",
    "fatal: unable to access 'https://git.example.com/a/': The requested URL returned error: 502",
    "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://api.example.com/",
    "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='api.example.com', port=443): Max retries exceeded with url: /",
    "npm error 503 Service Unavailable - GET https://registry.example.com/x",
];

const FALSE_POSITIVES: &[&str] = &[
    "bash: ./run.sh: Permission denied",
    "sh: 1: ./configure: Permission denied",
    "PermissionError: [Errno 13] Permission denied: 'out.txt'",
    "mkdir: cannot create directory '/srv': Permission denied",
    "E       assert 403 == 200",
    "E       assert response.status_code == 401",
    "FAILED tests/test_auth.py::test_forbidden_returns_403 - AssertionError: 403 Client Error: Forbidden for url: x",
    "expected 403 Forbidden, got 200 OK",
    "thread 'login' panicked at src/auth.rs:401:5: unauthorized: authentication required",
    "error[E0403]: the name `T` is already used for a generic parameter",
    "src/auth.rs:401:13: error: unexpected token",
    "KeyError: 'api_key'",
    "ValueError: invalid API key",
    "403 passed, 401 failed",
    "login: unauthorized",
    "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: http://localhost:8000/admin",
    "Error: connect ECONNREFUSED 127.0.0.1:3000",
    "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Connection refused",
    "psql: error: connection to server at \"localhost\" (::1), port 5432 failed: Connection refused",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "TimeoutError: task did not end",
    "error: cannot find value `timeout` in this scope",
    "HTTP 500 is returned by handler()",
    "",
];

#[test]
fn real_blocker_messages_match_and_similar_ones_do_not() {
    for (said, wanted) in ACCESS
        .iter()
        .map(|said| (said, Some(BlockerKind::Access)))
        .chain(SERVICE.iter().map(|said| (said, Some(BlockerKind::Service))))
        .chain(FALSE_POSITIVES.iter().map(|said| (said, None)))
    {
        assert_eq!(find_blocker(said).map(|(need, _)| need), wanted, "{said}");
    }
}

fn blockers_log(settings: RunSettings) -> TestLog {
    TestLog::with_settings(settings, &[], "namespaces")
}

/// One turn with one failed call; returns the question after it.
fn fail_tool(log: &mut TestLog, tool: &str, said: &str, tests: Option<TestCounts>) -> Option<String> {
    let line = format!("a command {}", log.state.turn);
    log.answer_with("", &[(tool, json!({ "command": line }))]);
    let error_signature = Some(said.to_owned());
    let facts = ToolFacts { exit: Some(1), error_signature, tests, ..ToolFacts::default() };
    log.run_batch_with(&[(ToolStatus::Ok, &format!("exit status 1\nstderr:\n{said}\n"), facts)]);
    question_text(log)
}

fn question_text(log: &TestLog) -> Option<String> {
    match log.decide().act {
        Action::Block { question: docket_schema::content::Content::Text(text), why, .. } => {
            assert_eq!(why, BlockedReason::Escalated);
            Some(text)
        }
        Action::CallModel(_) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn missing_access_asks_at_once_and_names_it() {
    let mut log = blockers_log(RunSettings::default());
    let question = fail_tool(&mut log, "run_command", ACCESS[1], None).expect("asks");
    insta::assert_snapshot!(question, @r"
    `run_command a command 0` needs an access or credentials that the run lacks:
    fatal: could not read Username for 'https://git.example.com': terminal prompts disabled

    Grant it, mend it, or say how to do without; the run goes on from here with your words.
    ");
}

#[test]
fn unavailable_service_asks_after_a_retry() {
    let mut log = blockers_log(RunSettings::default());
    assert_eq!(fail_tool(&mut log, "run_command", SERVICE[0], None), None, "it is tried again");
    let question = fail_tool(&mut log, "run_command", SERVICE[5], None).expect("asks");
    assert!(question.contains("also when asked again") && question.contains("10.0.0.5"), "{question}");
}

#[test]
fn test_output_is_not_a_blocker() {
    let tests = Some(TestCounts { failed: 1, ..TestCounts::default() });
    assert_eq!(fail_tool(&mut blockers_log(RunSettings::default()), "run_tests", ACCESS[0], tests), None);
    assert_eq!(fail_tool(&mut blockers_log(RunSettings::default()), "run_tests", ACCESS[0], None), None);
    let mut log = blockers_log(RunSettings::default());
    log.answer_with("", &[("run_command", json!({ "command": "cat notes" }))]);
    let facts = ToolFacts { exit: Some(0), ..ToolFacts::default() };
    log.run_batch_with(&[(ToolStatus::Ok, ACCESS[0], facts)]);
    assert_eq!(question_text(&log), None, "it ended well");
    let old: RunSettings = serde_json::from_value(json!({})).expect("reads");
    assert!(!old.ask_at_blockers, "logs from before decide as they did");
    assert_eq!(fail_tool(&mut self::blockers_log(old), "run_command", ACCESS[0], None), None);
}

/// The output that `command` failed with, under these settings.
fn question_for_output(settings: RunSettings, command: &str, said: &str) -> Option<String> {
    let mut log = blockers_log(settings);
    log.answer_with("", &[("run_command", json!({ "command": command }))]);
    let facts = ToolFacts { exit: Some(1), error_signature: Some(said.to_owned()), ..ToolFacts::default() };
    log.run_batch_with(&[(ToolStatus::Ok, &format!("exit status 1\nstderr:\n{said}\n"), facts)]);
    question_text(&log)
}

#[test]
fn missing_secrets_ask_but_mentions_of_them_do_not() {
    let secrets = [
        "Error: Missing required environment variable DATABASE_URL",
        "KeyError: 'STRIPE_API_KEY'",
        "HTTP 401 Unauthorized: invalid api key",
        "sudo: a password is required",
        "ERROR 1045 (28000): Access denied for user 'root'@'localhost' (using password: NO)",
        "pymysql.err.OperationalError: (1045, \"Access denied for user 'app'@'10.0.0.2' (using password: YES)\")",
    ];
    for said in secrets {
        let question = question_for_output(RunSettings::default(), "python3 app.py", said);
        assert!(question.is_some_and(|question| question.contains(said)), "{said}");
        for command in ["cat notes.txt; false", "python3 -m pytest -q", "ls && grep -r key ."] {
            assert_eq!(question_for_output(RunSettings::default(), command, said), None, "{command}: {said}");
        }
        let before = RunSettings { trouble_rules: 0, ..RunSettings::default() };
        assert_eq!(
            question_for_output(before, "python3 app.py", said),
            None,
            "logs from before decide as they did"
        );
    }
    for said in [
        "KeyError: 'user_key'",
        "KeyError: 'NAME'",
        "AssertionError: expected 'HTTP 401 Unauthorized: invalid api key'",
        "E   KeyError: 'STRIPE_API_KEY'",
        "HTTP/1.1 401 Unauthorized",
        "zsh: permission denied: ./run.sh",
    ] {
        assert_eq!(question_for_output(RunSettings::default(), "python3 app.py", said), None, "{said}");
    }
    let old: RunSettings = serde_json::from_value(json!({})).expect("reads");
    assert_eq!(old.trouble_rules, 0);
}

#[test]
fn displayed_or_test_output_is_not_a_blocker() {
    let said =
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://api.example.com/";
    for command in [
        "pytest -q",
        "python -m pytest -x tests",
        "make test || pytest -q",
        "cat app.log; grep -q zzz app.log",
        "cd log && tail -5 app.log; ls nope",
        "npx mocha",
        "node --test",
    ] {
        assert_eq!(question_for_output(RunSettings::default(), command, said), None, "{command}");
        let before = RunSettings { trouble_rules: 1, ..RunSettings::default() };
        assert!(
            question_for_output(before, command, said).is_some(),
            "logs from before decide as they did: {command}"
        );
    }
    for command in ["python app.py", "cat .env; python app.py", "curl -f https://api.example.com/ | head -1"]
    {
        assert!(question_for_output(RunSettings::default(), command, said).is_some(), "{command}");
    }
}
