//! Tests the limits on commands, and the files they may not change in their writable workspace.

use docket_schema::tool::ExceededResource;

use super::*;
use crate::{Limits, SandboxLayer, probe_host};

fn small_limits() -> Limits {
    Limits {
        memory_bytes: 96 << 20,
        processes: 60,
        disk_bytes: 48 << 20,
        disk_files: 3000,
        output_bytes: 8 << 20,
    }
}

async fn sandbox_with_small_limits(fixture: &SandboxFixture, backend: BackendChoice) -> Sandbox {
    let mut config = fixture.sandbox_config(backend);
    config.limits = small_limits();
    Sandbox::prepare(config).await.unwrap()
}

/// Returns whether docket can create control groups on this host; prints a note if not.
#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
fn has_cgroups() -> bool {
    let host = probe_host();
    let state = host.layers.iter().find(|state| state.layer == SandboxLayer::Cgroup).unwrap();
    match &state.missing_because {
        None => true,
        Some(why) => {
            eprintln!("totals of memory and processes were not tried: {why}");
            false
        }
    }
}

#[tokio::test]
async fn total_memory_is_limited_including_private_folders() {
    if !has_cgroups() {
        return;
    }
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = sandbox_with_small_limits(&fixture, backend).await;
        assert!(sandbox.report().active.contains(&SandboxLayer::Cgroup), "{backend:?}");
        // Each is small by itself; together they are not.
        let many =
            "for n in 1 2 3 4 5 6; do head -c 40000000 /dev/zero | tail -n 1 | (sleep 2; cat) & done; wait";
        for line in ["head -c 300000000 /dev/zero | tail -n 1", "head -c 300000000 /dev/zero > /tmp/x", many]
        {
            assert_eq!(
                run_shell(&sandbox, line).await.exit,
                CommandExit::Exceeded(ExceededResource::Memory),
                "{backend:?} {line}"
            );
        }
        let after = run_shell(&sandbox, "head -c 10000000 /dev/zero | tail -n 1 | wc -c").await;
        assert_eq!(
            (after.exit, to_text(&after.stdout.bytes).trim()),
            (CommandExit::Exit(0), "10000000"),
            "{backend:?}"
        );
    }
}

/// bubblewrap has no limit on the number of files in a private folder; the kernel's data for each counts as
/// memory.
#[tokio::test]
async fn empty_files_in_a_private_folder_are_limited() {
    if !has_cgroups() {
        return;
    }
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = sandbox_with_small_limits(&fixture, backend).await;
        // About 130,000 fill the memory.
        let line = "i=0; while [ $i -lt 400000 ]; do : > /tmp/f$i || break; i=$((i + 1)); done; \
                    [ $i -lt 400000 ] || echo without end";
        let full = run_shell(&sandbox, line).await;
        let said = to_text(&full.stdout.bytes) + &to_text(&full.stderr.bytes);
        let refused = said.contains("No space left");
        assert!(
            full.exit == CommandExit::Exceeded(ExceededResource::Memory) || refused,
            "{backend:?}: {:?} {said}",
            full.exit
        );
        // The kernel takes time to free its data for so many files: until it has, a command may be killed for
        // memory, and for no other reason.
        let mut refused = Vec::new();
        loop {
            let after = run_shell(&sandbox, ": > /tmp/again && echo room").await;
            if to_text(&after.stdout.bytes).trim() == "room" {
                break;
            }
            let said = to_text(&after.stderr.bytes);
            assert_eq!(after.exit, CommandExit::Exceeded(ExceededResource::Memory), "{backend:?}: {said}");
            refused.push(after.exit);
            assert!(refused.len() < 100, "{backend:?}: there is never room again");
        }
    }
}

#[tokio::test]
async fn fork_bomb_is_killed_and_the_next_command_runs() {
    if !has_program("python3") {
        return;
    }
    if !has_cgroups() {
        return;
    }
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = sandbox_with_small_limits(&fixture, backend).await;
        let bomb =
            "import os,time\nwhile True:\n  try:\n    os.fork()\n  except OSError:\n    time.sleep(0.01)";
        let out = sandbox.run(CommandSpec {
            timeout: Duration::from_secs(60),
            ..CommandSpec::new(["python3", "-c", bomb])
        });
        assert_eq!(
            out.await.unwrap().exit,
            CommandExit::Exceeded(ExceededResource::Processes),
            "{backend:?}"
        );
        let few =
            run_shell(&sandbox, "for n in 1 2 3 4 5 6 7 8 9; do sleep 0.1 & done; wait; echo done").await;
        assert_eq!(to_text(&few.stdout.bytes), "done\n", "{backend:?}");
    }
}

#[tokio::test]
async fn workspace_is_limited_in_bytes_and_files() {
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = sandbox_with_small_limits(&fixture, backend).await;
        for line in [
            "head -c 200000000 /dev/zero > big; sleep 20",
            "for n in 1 2 3 4 5 6 7 8; do head -c 20000000 /dev/zero > part$n; sleep 0.1; done; sleep 20",
            "i=0; while [ $i -lt 100000 ]; do : > f$i; i=$((i+1)); done; sleep 20",
        ] {
            let out = run_shell(&sandbox, line).await;
            assert_eq!(out.exit, CommandExit::Exceeded(ExceededResource::Disk), "{backend:?} {line}");
            assert!(out.duration_ms < 19_000);
            // Space can be freed again.
            let out = run_shell(&sandbox, "find . -type f -delete; echo done").await;
            assert_eq!(to_text(&out.stdout.bytes), "done\n", "{backend:?}");
        }
        assert_eq!(
            run_shell(&sandbox, "head -c 9000000 /dev/zero > fits && rm fits").await.exit,
            CommandExit::Exit(0)
        );
    }
}

#[tokio::test]
async fn output_flood_is_killed_and_head_and_tail_are_kept() {
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = sandbox_with_small_limits(&fixture, backend).await;
        let out = run_shell(&sandbox, "echo first; yes").await;
        assert_eq!(out.exit, CommandExit::Exceeded(ExceededResource::Output), "{backend:?}");
        assert!(
            out.stdout.bytes.starts_with(b"first\n")
                && out.stdout.bytes.ends_with(b"y\n")
                && out.stdout.truncated
        );
        assert!(out.stdout.total_bytes < 200 << 20, "{}", out.stdout.total_bytes);
    }
}

#[tokio::test]
async fn sandbox_cgroups_are_removed() {
    if !has_cgroups() {
        return;
    }
    let fixture = SandboxFixture::new();
    let mine = format!("-{}-", std::process::id());
    let left = || -> Vec<String> {
        let all = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let parents = all.flat_map(|entry| {
            let own = fs::read_to_string("/proc/self/cgroup").unwrap();
            let paths = own.lines().filter_map(|line| line.rsplit(':').next()).map(str::to_owned);
            paths
                .map(move |path| entry.path().join(path.trim_start_matches('/')).join("docket"))
                .collect::<Vec<_>>()
        });
        let entries = parents.filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| name.contains(&mine))
            .collect()
    };
    // Other tests of this process have their own groups: this test counts the one it adds.
    let sandbox = sandbox_with_small_limits(&fixture, BackendChoice::Namespaces).await;
    run_shell(&sandbox, "true").await;
    let name = sandbox.group_name().unwrap();
    assert!(left().contains(&name), "control");
    drop(sandbox);
    // An init that was being prepared holds it a moment longer.
    for _ in 0..200 {
        if !left().contains(&name) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} is still there");
}

#[tokio::test]
async fn new_hooks_and_configuration_are_removed() {
    let fixture = SandboxFixture::new();
    fixture.write(".git/HEAD", "ref: refs/heads/main\n");
    fixture.write("sub/docket.toml", "own\n");
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        for line in [
            "mkdir -p .git/hooks && echo evil > .git/hooks/post-checkout",
            "echo evil > .git/config",
            "mkdir -p a/b/.git/hooks && echo evil > a/b/.git/hooks/pre-commit && echo evil > a/b/.git/config",
            "echo evil > docket.toml; mkdir .docket; echo evil > .docket/policy.toml",
            "mv sub sub2; mkdir sub; echo evil > sub/docket.toml; mv sub2/* sub/ 2>/dev/null; rm -rf sub2",
            "mkdir e; echo evil > e/config; mkdir n; ln -s ../e n/.git",
            "echo evil > DOCKET.TOML; mkdir -p c/.GIT/Hooks; echo evil > c/.GIT/Hooks/x",
            "(sleep 1; echo evil > docket.toml) & setsid sh -c 'sleep 1; echo evil > docket.toml' &",
        ] {
            run_shell(&sandbox, line).await;
            let mut evil = Vec::new();
            for entry in
                ignore::WalkBuilder::new(fixture.workspace()).standard_filters(false).build().flatten()
            {
                let name = entry.path().to_string_lossy().to_lowercase();
                let protected = name.contains("/hooks")
                    || name.ends_with("config")
                    || name.contains("docket.toml")
                    || name.contains("/.docket");
                if protected
                    && fs::read(entry.path()).is_ok_and(|bytes| bytes == b"evil\n")
                    && !name.ends_with("/e/config")
                {
                    evil.push(name);
                }
            }
            assert_eq!(evil, Vec::<String>::new(), "{backend:?} {line}");
            assert!(fs::symlink_metadata(fixture.workspace().join("n/.git")).is_err());
        }
        assert_eq!(
            fs::read_to_string(fixture.workspace().join("sub/docket.toml")).unwrap(),
            "own\n",
            "{backend:?}"
        );
        let out = run_shell(
            &sandbox,
            "git init -q made && cd made && git commit -q --allow-empty -m one && git log --format=%s",
        )
        .await;
        assert_eq!(
            (out.exit, to_text(&out.stdout.bytes).as_str()),
            (CommandExit::Exit(0), "one\n"),
            "{backend:?}"
        );
        assert!(out.restored_paths.iter().any(|path| path == "made/.git/config"), "{:?}", out.restored_paths);
        let out = run_shell(&sandbox, "cd made && git log --format=%s && rm -rf ../made").await;
        assert_eq!(to_text(&out.stdout.bytes), "one\n", "it goes on without its configuration");
    }
}

/// A host process listens in the workspace: a debugger, a git daemon.
#[tokio::test]
async fn host_sockets_and_pipes_in_the_workspace_are_unreachable() {
    use std::{io::Read as _, os::unix::net::UnixListener};
    if !has_program("python3") {
        return;
    }
    let fixture = SandboxFixture::new();
    let socket = UnixListener::bind(fixture.workspace().join("host.sock")).unwrap();
    socket.set_nonblocking(true).unwrap();
    let fifo = fixture.workspace().join("host.fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    for path in ["host.sock", "host.fifo"] {
        let path = fixture.workspace().join(path);
        fixture.set_workspace_owner(&path);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let mut reader = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
    let code = "import socket,sys\nfor p in ('host.sock','./host.sock'):\n  s=socket.socket(1)\n  try: s.connect(p); print('reached')\n  except OSError as e: print('refused')";
    let line = format!("python3 -c \"{code}\"; echo told > host.fifo");
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let out = run_shell(&sandbox, &line).await;
        assert_eq!(
            to_text(&out.stdout.bytes),
            "refused\nrefused\n",
            "{backend:?} {}",
            to_text(&out.stderr.bytes)
        );
        assert!(socket.accept().is_err(), "{backend:?}");
        assert!(reader.read(&mut [0; 8]).is_err(), "{backend:?}");
        // The command's own sockets work as usual.
        let own = "import socket\na=socket.socket(1); a.bind('own.sock'); a.listen(1)\nb=socket.socket(1); b.connect('own.sock'); print('own')";
        let out = run_shell(
            &sandbox,
            &format!("python3 -c \"{own}\"; rm own.sock && mkfifo p && (echo x > p &) && cat p && rm p"),
        )
        .await;
        assert_eq!(to_text(&out.stdout.bytes), "own\nx\n", "{backend:?} {}", to_text(&out.stderr.bytes));
    }
    nix::unistd::write(&reader, b"x").unwrap();
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 1, "control: the pipe has a reader");
}

#[tokio::test]
async fn deleted_open_files_count_as_disk_usage() {
    if !has_program("python3") {
        return;
    }
    if !has_cgroups() {
        return;
    }
    let fixture = SandboxFixture::new();
    let code = "import os,time\nf=open('x','wb'); os.unlink('x')\nfor n in range(200): f.write(b'y'*(1<<20))\nf.flush(); time.sleep(20)";
    for backend in sandboxed_backends() {
        let sandbox = sandbox_with_small_limits(&fixture, backend).await;
        let spec =
            CommandSpec { timeout: Duration::from_secs(60), ..CommandSpec::new(["python3", "-c", code]) };
        assert_eq!(
            sandbox.run(spec).await.unwrap().exit,
            CommandExit::Exceeded(ExceededResource::Disk),
            "{backend:?}"
        );
    }
}

#[tokio::test]
async fn stopped_command_leaves_no_hooks() {
    use crate::CommandIo;
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let heard = CommandIo { stop: Some(stopped), ..CommandIo::default() };
        let line = "mkdir -p .git/hooks && echo evil > .git/hooks/x && touch began && sleep 60";
        let running = tokio::spawn({
            let sandbox = sandbox.clone();
            async move { sandbox.run_with_io(shell_spec(line), heard).await }
        });
        while !fixture.workspace().join("began").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.send(true).unwrap();
        let out = running.await.unwrap().unwrap();
        assert_eq!(out.exit, CommandExit::TimedOut, "{backend:?}");
        assert!(!fixture.workspace().join(".git/hooks").exists());
        fs::remove_dir_all(fixture.workspace().join(".git")).unwrap();
        fs::remove_file(fixture.workspace().join("began")).unwrap();
    }
}

#[tokio::test]
async fn workspace_repository_cannot_be_moved() {
    for backend in sandboxed_backends() {
        let fixture = SandboxFixture::new();
        for (path, bytes) in
            [("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n"), ("refs/x", ""), ("objects/x", "")]
        {
            fixture.write(&format!(".git/{path}"), bytes);
        }
        let sandbox = fixture.sandbox(backend).await;
        let out =
            run_shell(&sandbox, "git add -A && git commit -q --allow-empty -m one && git log --format=%s")
                .await;
        let said = to_text(&out.stderr.bytes);
        assert_eq!(
            (out.exit, to_text(&out.stdout.bytes).as_str()),
            (CommandExit::Exit(0), "one\n"),
            "{backend:?} {said}"
        );
        for line in [
            "mv .git g",
            "mv .git g; mkdir .git; echo evil > .git/config",
            "mkdir x; mv -T --exchange x .git",
            "rm -rf .git",
        ] {
            assert_ne!(run_shell(&sandbox, line).await.exit, CommandExit::Exit(0), "{backend:?} {line}");
            let config = fs::read_to_string(fixture.workspace().join(".git/config")).unwrap();
            assert_eq!(config, "[core]\n", "{backend:?} {line}");
        }
    }
}
