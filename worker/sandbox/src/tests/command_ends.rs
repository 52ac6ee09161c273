//! Tests how commands end, and that none of their processes remain.

use nix::{
    libc,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::*;

fn all_backends() -> Vec<BackendChoice> {
    [sandboxed_backends(), vec![BackendChoice::None]].concat()
}

#[tokio::test]
async fn exit_statuses_and_signals_are_distinguished() {
    let fixture = SandboxFixture::new();
    for backend in all_backends() {
        let sandbox = fixture.sandbox(backend).await;
        for (line, ended) in [
            ("true", CommandExit::Exit(0)),
            ("exit 3", CommandExit::Exit(3)),
            ("exit 127", CommandExit::Exit(127)),
            ("kill -TERM $$", CommandExit::Signal(libc::SIGTERM)),
            ("kill -KILL $$", CommandExit::Signal(libc::SIGKILL)),
            ("no-such-program", CommandExit::Exit(127)),
        ] {
            assert_eq!(run_shell(&sandbox, line).await.exit, ended, "{backend:?} {line}");
        }
        let missing = sandbox.run(CommandSpec::new(["no-such-program"])).await;
        assert!(matches!(missing, Err(SandboxError::ExecuteFailed { .. })), "{backend:?} {missing:?}");
        let found = sandbox.run(CommandSpec::new(["echo", "a b"])).await.unwrap();
        assert_eq!(to_text(&found.stdout.bytes), "a b\n");
        let empty = sandbox.run(CommandSpec::new(Vec::<String>::new())).await;
        assert!(matches!(empty, Err(SandboxError::EmptyCommand)));
    }
}

#[tokio::test]
async fn stdin_is_empty_or_the_given_bytes() {
    let fixture = SandboxFixture::new();
    for backend in all_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let out = run_shell(&sandbox, "wc -c; readlink /proc/self/fd/0").await;
        assert_eq!(to_text(&out.stdout.bytes), "0\n/dev/null\n", "{backend:?}");
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let out = sandbox.run(CommandSpec { stdin: Some(bytes.clone()), ..shell_spec("cat") }).await.unwrap();
        assert!(out.stdout.bytes == bytes && !out.stdout.truncated, "{backend:?}");
    }
}

#[tokio::test]
async fn descriptors_do_not_leak_and_session_is_new() {
    let fixture = SandboxFixture::new();
    assert_eq!(probe_outside(&["loopback"]), 0, "control");
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        assert_eq!(probe_inside(&sandbox, &["descriptors"]).await, 0, "{backend:?}");
        let out = run_shell(
            &sandbox,
            "cut -d' ' -f1,5,6,7 /proc/$$/stat; (: </dev/tty) 2>/dev/null || echo no tty",
        )
        .await;
        let said = to_text(&out.stdout.bytes);
        let numbers: Vec<&str> = said.split_whitespace().collect();
        assert!(
            numbers[0] == numbers[1] && numbers[0] == numbers[2] && numbers[3] == "0",
            "{backend:?} {said}"
        );
        assert!(said.ends_with("no tty\n"), "{said}");
    }
}

#[tokio::test]
async fn flood_of_output_is_bounded() {
    let fixture = SandboxFixture::new();
    for backend in all_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let line = "echo first; head -c 50000000 /dev/zero; echo; echo last";
        let out = sandbox.run(CommandSpec { keep_bytes_max: 10_000, ..shell_spec(line) }).await.unwrap();
        assert_eq!((out.exit, out.stdout.total_bytes), (CommandExit::Exit(0), 50_000_012), "{backend:?}");
        assert!(out.stdout.truncated && out.stdout.bytes.len() == 10_000);
        assert!(out.stdout.bytes.starts_with(b"first\n") && out.stdout.bytes.ends_with(b"\nlast\n"));
    }
}

/// Daemons of every kind. Each repeatedly writes a mark into the workspace while it lives.
const DAEMON_SCRIPT: &str = "
(setsid sh -c '(trap \"\" TERM HUP; while :; do date +%N > tick; sleep 0.02; done) &' &)
while [ ! -s tick ]; do sleep 0.01; done
";

async fn assert_no_ticks(fixture: &SandboxFixture, backend: BackendChoice) {
    let tick = fixture.workspace().join("tick");
    // run() has returned, so every process is gone and none can write the file.
    fs::remove_file(&tick).unwrap();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!tick.exists(), "{backend:?}: something outlived its call");
    }
}

#[tokio::test]
async fn daemons_are_killed_at_the_end_of_the_call() {
    let fixture = SandboxFixture::new();
    for backend in all_backends() {
        let sandbox = fixture.sandbox(backend).await;
        assert_eq!(run_shell(&sandbox, DAEMON_SCRIPT).await.exit, CommandExit::Exit(0), "{backend:?}");
        assert_no_ticks(&fixture, backend).await;
    }
}

#[tokio::test]
async fn deadline_kills_all_processes() {
    let fixture = SandboxFixture::new();
    for backend in all_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let line = format!("{DAEMON_SCRIPT} trap '' TERM; echo begun; sleep 600");
        let spec = CommandSpec { timeout: Duration::from_millis(1500), ..shell_spec(&line) };
        let out = sandbox.run(spec).await.unwrap();
        assert_eq!(
            (out.exit, to_text(&out.stdout.bytes)),
            (CommandExit::TimedOut, "begun\n".to_owned()),
            "{backend:?}"
        );
        assert_no_ticks(&fixture, backend).await;
    }
}

#[tokio::test]
async fn dropping_the_call_kills_all_processes() {
    let fixture = SandboxFixture::new();
    for backend in all_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let tick = fixture.workspace().join("tick");
        let call =
            tokio::spawn(async move { sandbox.run(shell_spec(&format!("{DAEMON_SCRIPT} sleep 600"))).await });
        while !tick.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        wait_until_ticks_stop(&tick).await;
    }
}

/// Waits until the file stays absent once removed.
async fn wait_until_ticks_stop(tick: &Path) {
    for _ in 0..500 {
        let _ = fs::remove_file(tick);
        tokio::time::sleep(Duration::from_millis(100)).await;
        if !tick.exists() {
            return;
        }
    }
    panic!("it still ticks");
}

const VICTIM_VARIABLE: &str = "DOCKET_TEST_SANDBOX_VICTIM";

/// Does nothing by itself; [`killing_docket_kills_the_process_tree`] starts this test in a separate process.
#[tokio::test]
async fn victim_process() {
    let Ok(told) = std::env::var(VICTIM_VARIABLE) else { return };
    let (backend, workspace) = told.split_once(':').unwrap();
    let backend = match backend {
        "Namespaces" => BackendChoice::Namespaces,
        "Bubblewrap" => BackendChoice::Bubblewrap,
        "None" => BackendChoice::None,
        other => panic!("{other}"),
    };
    let sandbox = Sandbox::prepare(SandboxConfig::new(backend, Path::new(workspace))).await.unwrap();
    let _ = run_shell(&sandbox, &format!("{DAEMON_SCRIPT} sleep 600")).await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the parent that is killed must be a process of its own")]
async fn killing_docket_kills_the_process_tree() {
    for backend in all_backends() {
        let fixture = SandboxFixture::new();
        let tick = fixture.workspace().join("tick");
        let mut docket = std::process::Command::new(own_binary())
            .args(["--exact", "tests::command_ends::victim_process", "--nocapture"])
            .env(VICTIM_VARIABLE, format!("{backend:?}:{}", fixture.workspace().display()))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..2_000 {
            if tick.exists() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(tick.exists(), "control: {backend:?} ticks");
        let pid = i32::try_from(docket.id()).unwrap();
        let init = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        docket.wait().unwrap();
        wait_until_ticks_stop(&tick).await;
        for child in init.split_whitespace() {
            wait_until_gone(child.parse().unwrap()).await;
        }
    }
}

/// Waits until no process with this id is running. A zombie counts as ended.
async fn wait_until_gone(pid: i32) {
    for _ in 0..2_000 {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return };
        if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("process {pid} still runs");
}

#[tokio::test]
async fn fork_bomb_is_bounded() {
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        assert_eq!(probe_inside(&sandbox, &["fork-bomb"]).await, libc::EAGAIN, "{backend:?}");
        assert_eq!(
            run_shell(&sandbox, "true").await.exit,
            CommandExit::Exit(0),
            "{backend:?}: the next call works"
        );
    }
}

#[tokio::test]
async fn calls_run_concurrently() {
    let fixture = SandboxFixture::new();
    for backend in all_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let calls: Vec<_> = (0..8)
            .map(|n| {
                let sandbox = sandbox.clone();
                tokio::spawn(async move { run_shell(&sandbox, &format!("echo {n}; exit {n}")).await })
            })
            .collect();
        for (n, call) in calls.into_iter().enumerate() {
            let out = call.await.unwrap();
            assert_eq!(
                (out.exit, to_text(&out.stdout.bytes)),
                (CommandExit::Exit(n as i32), format!("{n}\n")),
                "{backend:?}"
            );
        }
    }
}
