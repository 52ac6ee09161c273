//! What commands may use together, and what they may not change in the workspace they may write.

use docket_schema::tool::Exceeded;

use super::*;
use crate::{Layer, Limits, probe_host};

fn small() -> Limits {
    Limits {
        memory_bytes: 96 << 20,
        processes: 60,
        disk_bytes: 48 << 20,
        disk_files: 3000,
        output_bytes: 8 << 20,
    }
}

async fn bounded(fixture: &Fixture, backend: BackendChoice) -> Sandbox {
    let mut config = fixture.config(backend);
    config.limits = small();
    Sandbox::prepare(config).await.unwrap()
}

/// Whether this host lets docket make control groups; says so where it does not.
#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
fn groups() -> bool {
    let host = probe_host();
    let state = host.layers.iter().find(|state| state.layer == Layer::Cgroup).unwrap();
    match &state.missing_because {
        None => true,
        Some(why) => {
            eprintln!("totals of memory and processes were not tried: {why}");
            false
        }
    }
}

#[tokio::test]
async fn memory_is_bounded_in_sum_and_the_private_folders_count() {
    if !groups() {
        return;
    }
    let fixture = Fixture::new();
    for backend in walls() {
        let sandbox = bounded(&fixture, backend).await;
        assert!(sandbox.report().active.contains(&Layer::Cgroup), "{backend:?}");
        // Each for itself is small; together they are not.
        let many =
            "for n in 1 2 3 4 5 6; do head -c 40000000 /dev/zero | tail -n 1 | (sleep 2; cat) & done; wait";
        for line in ["head -c 300000000 /dev/zero | tail -n 1", "head -c 300000000 /dev/zero > /tmp/x", many]
        {
            assert_eq!(
                shell(&sandbox, line).await.ended,
                Ended::Exceeded(Exceeded::Memory),
                "{backend:?} {line}"
            );
        }
        let after = shell(&sandbox, "head -c 10000000 /dev/zero | tail -n 1 | wc -c").await;
        assert_eq!(
            (after.ended, text(&after.stdout.bytes).trim()),
            (Ended::Exit(0), "10000000"),
            "{backend:?}"
        );
    }
}

/// bubblewrap knows no limit on the files of a private folder; what the kernel keeps of each counts as memory.
#[tokio::test]
async fn empty_files_in_a_private_folder_come_to_an_end() {
    if !groups() {
        return;
    }
    let fixture = Fixture::new();
    for backend in walls() {
        let sandbox = bounded(&fixture, backend).await;
        // Some 130,000 fill the memory.
        let line = "i=0; while [ $i -lt 400000 ]; do : > /tmp/f$i || break; i=$((i + 1)); done; \
                    [ $i -lt 400000 ] || echo without end";
        let full = shell(&sandbox, line).await;
        let said = text(&full.stdout.bytes) + &text(&full.stderr.bytes);
        let refused = said.contains("No space left");
        assert!(
            full.ended == Ended::Exceeded(Exceeded::Memory) || refused,
            "{backend:?}: {:?} {said}",
            full.ended
        );
        // The kernel takes its time to give back what it kept of so many: until then a command may be ended for
        // memory, and for no other reason.
        let mut refused = Vec::new();
        loop {
            let after = shell(&sandbox, ": > /tmp/again && echo room").await;
            if text(&after.stdout.bytes).trim() == "room" {
                break;
            }
            let said = text(&after.stderr.bytes);
            assert_eq!(after.ended, Ended::Exceeded(Exceeded::Memory), "{backend:?}: {said}");
            refused.push(after.ended);
            assert!(refused.len() < 100, "{backend:?}: there is never room again");
        }
    }
}

#[tokio::test]
async fn a_fork_bomb_is_ended_and_the_next_command_runs() {
    if !has("python3") {
        return;
    }
    if !groups() {
        return;
    }
    let fixture = Fixture::new();
    for backend in walls() {
        let sandbox = bounded(&fixture, backend).await;
        let bomb =
            "import os,time\nwhile True:\n  try:\n    os.fork()\n  except OSError:\n    time.sleep(0.01)";
        let out = sandbox.run(CommandSpec {
            timeout: Duration::from_secs(60),
            ..CommandSpec::new(["python3", "-c", bomb])
        });
        assert_eq!(out.await.unwrap().ended, Ended::Exceeded(Exceeded::Processes), "{backend:?}");
        let few = shell(&sandbox, "for n in 1 2 3 4 5 6 7 8 9; do sleep 0.1 & done; wait; echo done").await;
        assert_eq!(text(&few.stdout.bytes), "done\n", "{backend:?}");
    }
}

#[tokio::test]
async fn the_workspace_is_bounded_in_bytes_and_in_files() {
    let fixture = Fixture::new();
    for backend in walls() {
        let sandbox = bounded(&fixture, backend).await;
        for line in [
            "head -c 200000000 /dev/zero > big; sleep 20",
            "for n in 1 2 3 4 5 6 7 8; do head -c 20000000 /dev/zero > part$n; sleep 0.1; done; sleep 20",
            "i=0; while [ $i -lt 100000 ]; do : > f$i; i=$((i+1)); done; sleep 20",
        ] {
            let out = shell(&sandbox, line).await;
            assert_eq!(out.ended, Ended::Exceeded(Exceeded::Disk), "{backend:?} {line}");
            assert!(out.duration_ms < 19_000);
            // Room can be made again.
            let out = shell(&sandbox, "find . -type f -delete; echo done").await;
            assert_eq!(text(&out.stdout.bytes), "done\n", "{backend:?}");
        }
        assert_eq!(
            shell(&sandbox, "head -c 9000000 /dev/zero > fits && rm fits").await.ended,
            Ended::Exit(0)
        );
    }
}

#[tokio::test]
async fn a_flood_of_output_is_ended_and_both_ends_of_it_are_kept() {
    let fixture = Fixture::new();
    for backend in walls() {
        let sandbox = bounded(&fixture, backend).await;
        let out = shell(&sandbox, "echo first; yes").await;
        assert_eq!(out.ended, Ended::Exceeded(Exceeded::Output), "{backend:?}");
        assert!(
            out.stdout.bytes.starts_with(b"first\n")
                && out.stdout.bytes.ends_with(b"y\n")
                && out.stdout.truncated
        );
        assert!(out.stdout.total_bytes < 200 << 20, "{}", out.stdout.total_bytes);
    }
}

#[tokio::test]
async fn nothing_of_a_sandbox_is_left_in_the_hosts_groups() {
    if !groups() {
        return;
    }
    let fixture = Fixture::new();
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
    // Other tests of this process have theirs: the number of this one's is what it adds.
    let sandbox = bounded(&fixture, BackendChoice::Namespaces).await;
    shell(&sandbox, "true").await;
    let name = sandbox.group_name().unwrap();
    assert!(left().contains(&name), "control");
    drop(sandbox);
    // An init that was being made ready holds it a moment longer.
    for _ in 0..200 {
        if !left().contains(&name) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} is still there");
}

#[tokio::test]
async fn hooks_and_configuration_that_are_not_there_yet_cannot_come_to_be() {
    let fixture = Fixture::new();
    fixture.write(".git/HEAD", "ref: refs/heads/main\n");
    fixture.write("sub/docket.toml", "own\n");
    for backend in walls() {
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
            shell(&sandbox, line).await;
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
        let out = shell(
            &sandbox,
            "git init -q made && cd made && git commit -q --allow-empty -m one && git log --format=%s",
        )
        .await;
        assert_eq!((out.ended, text(&out.stdout.bytes).as_str()), (Ended::Exit(0), "one\n"), "{backend:?}");
        assert!(out.put_back.iter().any(|path| path == "made/.git/config"), "{:?}", out.put_back);
        let out = shell(&sandbox, "cd made && git log --format=%s && rm -rf ../made").await;
        assert_eq!(text(&out.stdout.bytes), "one\n", "it goes on without its configuration");
    }
}

/// Somebody of the host's listens in the workspace: a debugger, a daemon of git's.
#[tokio::test]
async fn sockets_and_pipes_of_the_host_in_the_workspace_lead_to_nobody() {
    use std::{io::Read as _, os::unix::net::UnixListener};
    if !has("python3") {
        return;
    }
    let fixture = Fixture::new();
    let socket = UnixListener::bind(fixture.workspace().join("host.sock")).unwrap();
    socket.set_nonblocking(true).unwrap();
    let fifo = fixture.workspace().join("host.fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    for path in ["host.sock", "host.fifo"] {
        let path = fixture.workspace().join(path);
        fixture.own(&path);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let mut reader = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
    let code = "import socket,sys\nfor p in ('host.sock','./host.sock'):\n  s=socket.socket(1)\n  try: s.connect(p); print('reached')\n  except OSError as e: print('refused')";
    let line = format!("python3 -c \"{code}\"; echo told > host.fifo");
    for backend in walls() {
        let sandbox = fixture.sandbox(backend).await;
        let out = shell(&sandbox, &line).await;
        assert_eq!(text(&out.stdout.bytes), "refused\nrefused\n", "{backend:?} {}", text(&out.stderr.bytes));
        assert!(socket.accept().is_err(), "{backend:?}");
        assert!(reader.read(&mut [0; 8]).is_err(), "{backend:?}");
        // One's own work as they always do.
        let own = "import socket\na=socket.socket(1); a.bind('own.sock'); a.listen(1)\nb=socket.socket(1); b.connect('own.sock'); print('own')";
        let out = shell(
            &sandbox,
            &format!("python3 -c \"{own}\"; rm own.sock && mkfifo p && (echo x > p &) && cat p && rm p"),
        )
        .await;
        assert_eq!(text(&out.stdout.bytes), "own\nx\n", "{backend:?} {}", text(&out.stderr.bytes));
    }
    nix::unistd::write(&reader, b"x").unwrap();
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 1, "control: the pipe has a reader");
}

#[tokio::test]
async fn files_without_a_name_count() {
    if !has("python3") {
        return;
    }
    if !groups() {
        return;
    }
    let fixture = Fixture::new();
    let code = "import os,time\nf=open('x','wb'); os.unlink('x')\nfor n in range(200): f.write(b'y'*(1<<20))\nf.flush(); time.sleep(20)";
    for backend in walls() {
        let sandbox = bounded(&fixture, backend).await;
        let spec =
            CommandSpec { timeout: Duration::from_secs(60), ..CommandSpec::new(["python3", "-c", code]) };
        assert_eq!(sandbox.run(spec).await.unwrap().ended, Ended::Exceeded(Exceeded::Disk), "{backend:?}");
    }
}

#[tokio::test]
async fn a_command_that_is_stopped_leaves_nothing_planted() {
    use crate::Heard;
    let fixture = Fixture::new();
    for backend in walls() {
        let sandbox = fixture.sandbox(backend).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let heard = Heard { stop: Some(stopped), ..Heard::default() };
        let line = "mkdir -p .git/hooks && echo evil > .git/hooks/x && touch began && sleep 60";
        let running = tokio::spawn({
            let sandbox = sandbox.clone();
            async move { sandbox.run_heard(spec(line), heard).await }
        });
        while !fixture.workspace().join("began").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.send(true).unwrap();
        let out = running.await.unwrap().unwrap();
        assert_eq!(out.ended, Ended::TimedOut, "{backend:?}");
        assert!(!fixture.workspace().join(".git/hooks").exists());
        fs::remove_dir_all(fixture.workspace().join(".git")).unwrap();
        fs::remove_file(fixture.workspace().join("began")).unwrap();
    }
}

#[tokio::test]
async fn the_workspaces_own_repository_stays_where_it_is() {
    for backend in walls() {
        let fixture = Fixture::new();
        for (path, bytes) in
            [("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n"), ("refs/x", ""), ("objects/x", "")]
        {
            fixture.write(&format!(".git/{path}"), bytes);
        }
        let sandbox = fixture.sandbox(backend).await;
        let out =
            shell(&sandbox, "git add -A && git commit -q --allow-empty -m one && git log --format=%s").await;
        let said = text(&out.stderr.bytes);
        assert_eq!(
            (out.ended, text(&out.stdout.bytes).as_str()),
            (Ended::Exit(0), "one\n"),
            "{backend:?} {said}"
        );
        for line in [
            "mv .git g",
            "mv .git g; mkdir .git; echo evil > .git/config",
            "mkdir x; mv -T --exchange x .git",
            "rm -rf .git",
        ] {
            assert_ne!(shell(&sandbox, line).await.ended, Ended::Exit(0), "{backend:?} {line}");
            let config = fs::read_to_string(fixture.workspace().join(".git/config")).unwrap();
            assert_eq!(config, "[core]\n", "{backend:?} {line}");
        }
    }
}
