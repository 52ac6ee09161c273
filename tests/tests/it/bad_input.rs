//! Bad input of every kind: one clear line that names the remedy, the documented exit code, no
//! panic, and nothing lost (invariant 11).

use std::{ffi::OsStr, net::TcpListener, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{api::LeaseRequest, run::EngineRef};
use docket_tests::system::{
    CoordinatorProcess, FinishedProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram,
    acquire_scenario_slot, run_program,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A command that must fail.
struct FailingCommand<'a> {
    what: &'a str,
    args: &'a [&'a str],
    env: &'a [(&'a str, &'a str)],
    /// As `docket --help` documents it.
    code: i32,
    /// What the line must hold: what is wrong, and what helps.
    says: &'a [&'a str],
}

async fn run_docket(home: &Path, case: &FailingCommand<'_>) -> Result<FinishedProcess> {
    let env = case.env.iter().map(|(name, value)| (*name, OsStr::new(value)));
    let env: Vec<_> = std::iter::once(("DOCKET_HOME", home.as_os_str())).chain(env).collect();
    run_program(TestProgram::Docket, home, &env, case.args).await
}

/// Everything that is wrong with how a command failed.
fn list_faults(case: &FailingCommand<'_>, done: &FinishedProcess) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault =
        |text: String| faults.push(format!("{}: {text}\n  {}", case.what, done.stderr.trim_end()));
    if done.code() != Some(case.code) {
        fault(format!("exit code {:?} in place of {}", done.code(), case.code));
    }
    // What is wrong on the command line itself comes with a pointer to --help below it.
    let lines =
        done.stderr.lines().filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    if lines.count() != 1 || !done.stdout.is_empty() {
        fault(format!("not one line: stdout `{}`", done.stdout));
    }
    if done.stderr.contains("panicked") {
        fault("a panic".to_owned());
    }
    for word in case.says {
        if !done.stderr.contains(word) {
            fault(format!("it does not say `{word}`"));
        }
    }
    faults
}

/// For programs, the same failure is one JSON object with the exit code in it.
#[tokio::test]
async fn failures_are_json_with_the_json_flag() -> Result<()> {
    let home = tempfile::tempdir()?;
    let args = ["--json", "show", "00000000-0000-7000-8000-000000000000"];
    let case = FailingCommand { what: "an unknown id", args: &args, env: &[], code: 3, says: &["error"] };
    let done = run_docket(home.path(), &case).await?;
    let said: serde_json::Value = serde_json::from_str(done.stderr.trim())?;
    ensure!(said["exit"] == 3 && said["error"].is_string() && done.code() == Some(3), "{said}");
    Ok(())
}

async fn check_all_fail_cleanly(home: &Path, cases: &[FailingCommand<'_>]) -> Result<()> {
    let mut found = Vec::new();
    for case in cases {
        found.extend(list_faults(case, &run_docket(home, case).await?));
    }
    ensure!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_with_unknown_targets_fail_cleanly() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let mut ids = Vec::new();
    for _ in 0..17 {
        // With seventeen ids, two end in the same digit.
        let (id, _) = sample.submit(&coordinator, &["--model", "openai:x"]).await?;
        ids.push(id.to_string());
    }
    let ends = |digit: char| ids.iter().filter(|id| id.ends_with(digit)).count();
    let shared = "0123456789abcdef".chars().find(|digit| ends(*digit) > 1).context("two that end alike")?;
    let shared = shared.to_string();
    let plain = tempfile::tempdir()?;
    let plain = plain.path().to_str().context("a UTF-8 path")?;
    let repo = sample.path().to_str().context("a UTF-8 path")?;
    let address = coordinator.address().to_owned();
    let port = address.rsplit(':').next().context("a port")?;
    let listen = format!("127.0.0.1:{port}");
    let cases = [
        FailingCommand {
            what: "an unknown id",
            args: &["show", "ffffffffff"],
            env: &[],
            code: 3,
            says: &["ffffffffff", "docket ps"],
        },
        FailingCommand {
            what: "no id at all",
            args: &["show", "what?"],
            env: &[],
            code: 3,
            says: &["is not a valid id", "docket ps"],
        },
        FailingCommand {
            what: "an ambiguous id",
            args: &["cancel", &shared],
            env: &[],
            code: 3,
            says: &["more digits"],
        },
        FailingCommand {
            what: "a run not begun",
            args: &["replay", &ids[0]],
            env: &[],
            code: 3,
            says: &["docket why"],
        },
        FailingCommand {
            what: "a missing repository",
            args: &["submit", "x", "--model", "openai:x", "--repo", "/does/not/exist"],
            env: &[],
            code: 2,
            says: &["/does/not/exist", "--repo"],
        },
        FailingCommand {
            what: "a folder without git",
            args: &["submit", "x", "--model", "openai:x", "--repo", plain],
            env: &[],
            code: 2,
            says: &["git"],
        },
        FailingCommand {
            what: "an unknown provider",
            args: &["submit", "x", "--model", "clever:x", "--repo", repo],
            env: &[],
            code: 2,
            says: &["clever", "anthropic"],
        },
        FailingCommand {
            what: "an unknown engine",
            args: &["submit", "x", "--model", "openai:x", "--engine", "warp", "--repo", repo],
            env: &[],
            code: 2,
            says: &["warp", "react"],
        },
        FailingCommand {
            what: "no model",
            args: &["submit", "x", "--repo", repo],
            env: &[],
            code: 2,
            says: &["--model"],
        },
        FailingCommand {
            what: "a wrong token",
            args: &["ps"],
            env: &[("DOCKET_URL", &address), ("DOCKET_TOKEN", "wrong")],
            code: 4,
            says: &["token", "DOCKET_TOKEN"],
        },
        FailingCommand {
            what: "a home that is served already",
            args: &["serve", "--listen", "127.0.0.1:0"],
            env: &[],
            code: 4,
            says: &["already", "--home"],
        },
        FailingCommand {
            what: "no token for another's coordinator",
            args: &["ps"],
            env: &[("DOCKET_URL", "http://127.0.0.1:9")],
            code: 4,
            says: &["DOCKET_TOKEN", "`token`"],
        },
        FailingCommand {
            what: "no such token",
            args: &["token", "revoke", "x"],
            env: &[],
            code: 3,
            says: &["`x`", "token list"],
        },
        FailingCommand {
            what: "no such schedule",
            args: &["schedule", "show", "x"],
            env: &[],
            code: 3,
            says: &["`x`", "schedule list"],
        },
        FailingCommand {
            what: "no such batch",
            args: &["batch", "nix"],
            env: &[],
            code: 3,
            says: &["`nix`", "docket batch"],
        },
        FailingCommand {
            what: "no such worker",
            args: &["workers", "drain", "x"],
            env: &[],
            code: 3,
            says: &["`x`", "docket workers"],
        },
        FailingCommand {
            what: "a stream that is none",
            args: &["logs", "system/nothing"],
            env: &[],
            code: 2,
            says: &["system/nothing", "run/ID"],
        },
        FailingCommand {
            what: "a backlog that is not there",
            args: &["import", "/nowhere/b.jsonl"],
            env: &[],
            code: 2,
            says: &["/nowhere/b.jsonl", "check that it exists"],
        },
        FailingCommand {
            what: "a suite that is none",
            args: &["eval", "/nowhere"],
            env: &[],
            code: 2,
            says: &["/nowhere/suite.toml", "a suite is a folder"],
        },
        FailingCommand {
            what: "a policy that is not there",
            args: &["policy", "check", "/nowhere/p.toml"],
            env: &[],
            code: 2,
            says: &["/nowhere/p.toml", "TOML"],
        },
        FailingCommand {
            what: "another store that is not there",
            args: &["verify", "--store", "sqlite:/nowhere/x.db"],
            env: &[],
            code: 2,
            says: &["/nowhere/x.db", "--store"],
        },
        FailingCommand {
            what: "pages where nobody may write",
            args: &["man", "/proc/nowhere"],
            env: &[],
            code: 1,
            says: &["/proc/nowhere", "choose a writable folder"],
        },
        FailingCommand {
            what: "a screen for a program",
            args: &["step", &ids[0]],
            env: &[],
            code: 2,
            says: &["terminal", "docket replay"],
        },
        FailingCommand {
            what: "nobody at the address",
            args: &["ps"],
            env: &[("DOCKET_URL", "http://127.0.0.1:9"), ("DOCKET_TOKEN", "x")],
            code: 5,
            says: &["127.0.0.1:9", "docket up"],
        },
    ];
    check_all_fail_cleanly(coordinator.home(), &cases).await?;
    let elsewhere = tempfile::tempdir()?;
    let cases = [
        FailingCommand {
            what: "a port in use",
            args: &["serve", "--listen", &listen],
            env: &[],
            code: 1,
            says: &[port, "another port"],
        },
        FailingCommand {
            what: "a dashboard of nobody",
            args: &["dashboard"],
            env: &[],
            code: 5,
            says: &["docket up"],
        },
    ];
    check_all_fail_cleanly(elsewhere.path(), &cases).await?;
    let untouched = tempfile::tempdir()?;
    let cases = [
        FailingCommand {
            what: "a database that was never made",
            args: &["db", "backup", "copy.db"],
            env: &[],
            code: 3,
            says: &["docket.db", "--home"],
        },
        FailingCommand {
            what: "a backup that was never made",
            args: &["db", "restore", "copy.db"],
            env: &[],
            code: 3,
            says: &["copy.db", "docket db backup"],
        },
    ];
    check_all_fail_cleanly(untouched.path(), &cases).await?;
    let args = ["run", "hi", "--empty", "--model", "anthropic:x"];
    let says = ["ANTHROPIC_API_KEY is not set", "--base-url"];
    let keyless =
        FailingCommand { what: "a key that is not set", args: &args, env: &[], code: 2, says: &says };
    check_all_fail_cleanly(elsewhere.path(), &[keyless]).await?;
    // Nothing was lost, and nothing came that was refused.
    let status = coordinator.client().get_status().await?;
    let count: u64 = status.tasks.iter().map(|row| row.count).sum();
    ensure!(count == 17, "{count} tasks");
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_settings_and_stores_fail_cleanly() -> Result<()> {
    let home = tempfile::tempdir()?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    // A port that nobody answers at: it was free a moment ago, and is below those given out.
    let nobody = "postgres://docket:secret@127.0.0.1:9/docket";
    let silent = format!("127.0.0.1:{}", taken.local_addr()?.port());
    let cases = [
        FailingCommand {
            what: "a database that is away",
            args: &["ps", "--json"],
            env: &[("DATABASE_URL", nobody)],
            code: 5,
            says: &["127.0.0.1"],
        },
        FailingCommand {
            what: "a coordinator without its database",
            args: &["serve", "--listen", "127.0.0.1:0"],
            env: &[("DATABASE_URL", nobody)],
            code: 5,
            says: &["127.0.0.1"],
        },
        FailingCommand {
            what: "a database file whose folder is not there",
            args: &["ps"],
            env: &[("DATABASE_URL", "sqlite:/nonexistent/x.db")],
            code: 5,
            says: &["/nonexistent/x.db", "does its folder exist"],
        },
        FailingCommand {
            what: "a store that is none",
            args: &["ps"],
            env: &[("DATABASE_URL", "mysql://u:secret@h/d")],
            code: 2,
            says: &["postgres://"],
        },
        FailingCommand {
            what: "a port in use",
            args: &["serve", "--listen", &silent],
            env: &[],
            code: 1,
            says: &["in use", "another port"],
        },
        FailingCommand {
            what: "open to all",
            args: &["serve", "--listen", "0.0.0.0:0"],
            env: &[],
            code: 2,
            says: &["--insecure"],
        },
        FailingCommand {
            what: "a model's address that is none",
            args: &["submit", "x", "--empty", "-m", "openai:x", "--base-url", "not a url"],
            env: &[],
            code: 2,
            says: &["--base-url", "http://localhost"],
        },
        FailingCommand {
            what: "a model's address with a password",
            args: &["run", "x", "--empty", "-m", "openai:x", "--base-url", "http://user:pw@h/v1"],
            env: &[],
            code: 2,
            says: &["without user, password"],
        },
        FailingCommand {
            what: "a setting that is none",
            args: &["ps"],
            env: &[("DOCKET_SLOTS", "many")],
            code: 2,
            says: &["DOCKET_SLOTS", "1 to 1000"],
        },
        FailingCommand {
            what: "a worker for nobody",
            args: &["worker"],
            env: &[],
            code: 5,
            says: &["docket serve"],
        },
    ];
    check_all_fail_cleanly(home.path(), &cases).await?;
    for (toml, says) in [
        ("[run\n", ["docket.toml", "TOML"]),
        ("[run]\nturns_max = 0\n", ["run.turns_max", "1 to 1000"]),
        ("[wroker]\nslots = 1\n", ["wroker", "[worker]"]),
    ] {
        std::fs::write(home.path().join("docket.toml"), toml)?;
        let case = FailingCommand { what: toml, args: &["ps"], env: &[], code: 2, says: &says };
        check_all_fail_cleanly(home.path(), &[case]).await?;
    }
    std::fs::write(home.path().join("docket.toml"), "[worker]\nslots = 1\n")?;
    let broken = tempfile::tempdir()?;
    std::fs::write(
        broken.path().join("docket.db"),
        "this was never a database, whatever its name says\n".repeat(99),
    )?;
    let says = ["damaged", "backup"];
    let case = FailingCommand { what: "a damaged database", args: &["ps"], env: &[], code: 5, says: &says };
    check_all_fail_cleanly(broken.path(), &[case]).await?;
    let case = FailingCommand { what: "all well", args: &["ps", "--json"], env: &[], code: 0, says: &[] };
    let done = run_docket(home.path(), &case).await?;
    ensure!(done.success() && !done.stderr.contains("secret"), "{done:?}");
    Ok(())
}

/// Sends a body as it is, and gives the whole answer.
async fn post_raw_body(
    coordinator: &CoordinatorProcess,
    token: &str,
    path: &str,
    body: &str,
) -> Result<String> {
    let host = coordinator.address().strip_prefix("http://").context("an address")?;
    let mut stream = TcpStream::connect(host).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// What the API makes of bodies and queries that are none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_bodies_are_answered_with_problem_details() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let bodies: [(&str, &str, u16, &str); 7] = [
        ("/v1/tasks", "{", 400, "invalid_request"),
        ("/v1/tasks", "[]", 400, "invalid_request"),
        ("/v1/tasks", r#"{"tasks": [], "sudo": true}"#, 400, "invalid_request"),
        ("/v1/tasks", r#"{"tasks": [{"title": "x"}]}"#, 400, "invalid_request"),
        ("/v1/lease", r#"{"max": -1}"#, 400, "invalid_request"),
        ("/v1/tasks/zzz/cancel", "{}", 400, "invalid_request"),
        ("/v1/nowhere", "{}", 404, "not_found"),
    ];
    for (path, body, status, code) in bodies {
        let answer = post_raw_body(&coordinator, coordinator.token(), path, body).await?;
        let (head, text) = answer.split_once("\r\n\r\n").context("a head and a body")?;
        ensure!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {body}: {head}");
        ensure!(head.to_lowercase().contains("content-type: application/problem+json"), "{path}: {head}");
        let problem: serde_json::Value = serde_json::from_str(text)?;
        ensure!(problem["code"] == code, "{path} {body}: {problem}");
        let detail = problem["detail"].as_str().context("a detail")?;
        ensure!(!detail.is_empty() && !detail.contains('\n'), "{path}: one line: {detail}");
    }
    let refused = post_raw_body(&coordinator, "wrong", "/v1/tasks", "{}").await?;
    ensure!(refused.starts_with("HTTP/1.1 401 ") && refused.contains("unauthorized"), "{refused}");
    let status = coordinator.client().get_status().await?;
    ensure!(status.tasks.iter().all(|row| row.count == 0), "something was accepted: {:?}", status.tasks);
    coordinator.end_and_check().await
}

/// The database holds what makes the tokens of runs: its files are closed to others, whoever made the folder,
/// whatever the umask; those of an earlier docket are closed at the next start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_files_are_private_to_the_owner() -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let _room = acquire_scenario_slot().await;
    let folder = tempfile::tempdir()?;
    let set = |name: &str, mode| {
        std::fs::set_permissions(folder.path().join(name), std::fs::Permissions::from_mode(mode))
    };
    set("", 0o755)?;
    let modes = || -> Result<Vec<(String, u32)>> {
        let mut modes = Vec::new();
        for entry in std::fs::read_dir(folder.path())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("docket.db") || name == "token" {
                modes.push((name, entry.metadata()?.permissions().mode() & 0o777));
            }
        }
        Ok(modes)
    };
    let closed = |when: &str| -> Result<()> {
        let modes = modes()?;
        ensure!(modes.len() == 4 && modes.iter().all(|(_, mode)| *mode == 0o600), "{when}: {modes:?}");
        Ok(())
    };
    let mut coordinator =
        CoordinatorProcess::start_in(folder.path(), StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    closed("a new one")?;
    ensure!(
        coordinator.log_tail().contains("chmod 700"),
        "the open folder is not told: {}",
        coordinator.log_tail()
    );
    for name in ["docket.db", "docket.db-wal", "docket.db-shm"] {
        set(name, 0o644)?;
    }
    coordinator.restart().await?;
    closed("one of an earlier docket")?;
    set("", 0o777)?;
    let case = FailingCommand {
        what: "a home that others may write to",
        args: &["ps"],
        env: &[],
        code: 4,
        says: &["chmod go-w", "0777"],
    };
    check_all_fail_cleanly(folder.path(), &[case]).await?;
    set("", 0o700)?;
    coordinator.end_and_check().await
}

/// Nothing is waited for that never comes: a task cancelled before its run began, and one that never had a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_cancelled_before_they_began_are_not_waited_for() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let (begun, _) = sample.submit(&coordinator, &["--model", "openai:x"]).await?;
    // A worker that has it and does not come to begin.
    let request = LeaseRequest {
        labels: docket_schema::task::LabelSet::default(),
        layers: Vec::new(),
        faults: Vec::new(),
        room: None,
        incarnation: docket_worker::clock::new_incarnation(),
        number: 1,
        name: "idle".to_owned(),
        queues: Vec::new(),
        engines: vec![EngineRef { name: "react".to_owned(), version: 1 }],
        max: 1,
        wait_ms: 0,
    };
    let leases = coordinator.client().lease(&request).await?.leases;
    ensure!(leases.len() == 1 && leases[0].task == begun, "{leases:?}");
    let (never, _) = sample.submit(&coordinator, &["--model", "openai:x"]).await?;
    for task in [begun, never] {
        coordinator.client().cancel(task, "not needed").await?;
    }
    let (begun, never) = (begun.to_string(), never.to_string());
    let cases = [
        FailingCommand {
            what: "a run that ended before it began",
            args: &["apply", &begun],
            env: &[],
            code: 4,
            says: &["ended before it started", "docket why"],
        },
        FailingCommand {
            what: "a task that was never run",
            args: &["apply", &never],
            env: &[],
            code: 3,
            says: &["cancelled", "never ran", "docket retry"],
        },
    ];
    check_all_fail_cleanly(coordinator.home(), &cases).await?;
    coordinator.end_and_check().await
}
