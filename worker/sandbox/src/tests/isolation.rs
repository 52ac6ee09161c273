//! Tests what a command must not reach.

use std::{net::TcpListener, os::unix::net::UnixListener};

use docket_schema::tool::ExceededResource;
use nix::libc;

use super::*;
use crate::{CheckedHost, HostReport, InitProgram, SandboxLayer, probe_host};

#[tokio::test]
async fn self_test_passes_and_report_names_the_layers() {
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let report = sandbox.report();
        for layer in [
            SandboxLayer::Userns,
            SandboxLayer::Mount,
            SandboxLayer::Pid,
            SandboxLayer::Net,
            SandboxLayer::Seccomp,
            SandboxLayer::Rlimits,
        ] {
            assert!(report.active.contains(&layer), "{backend:?} {report:?}");
        }
        assert_eq!(report.active.contains(&SandboxLayer::Landlock), probe_host().landlock_abi > 0);
        assert!(report.missing.iter().all(|missing| !missing.reason.is_empty()));
    }
    let none = fixture.sandbox(BackendChoice::None).await;
    assert_eq!(none.report().active, []);
    assert!(none.report().missing.iter().any(|missing| missing.layer == SandboxLayer::Net));
}

#[test]
fn probe_reports_every_layer() {
    let host = probe_host();
    assert_eq!(host.layers.len(), 10, "{host:?}");
    let json = serde_json::to_string(&host).unwrap();
    assert_eq!(serde_json::from_str::<HostReport>(&json).unwrap(), host);
    assert!(host.missing_required_layers().is_empty(), "the tests of this module need walls: {host:?}");
}

/// A supervisor's check is valid for its runs: they get the same isolation, and a layer that cannot be
/// built prevents the run.
#[tokio::test]
async fn sandbox_on_a_checked_host_has_the_same_isolation() {
    let (checking, run) = (SandboxFixture::new(), SandboxFixture::new());
    for backend in sandboxed_backends() {
        let first = checking.sandbox(backend).await;
        let handed = serde_json::to_vec(&first.checked_host()).unwrap();
        let checked: CheckedHost = serde_json::from_slice(&handed).unwrap();
        let sandbox = Sandbox::for_checked_host(&run.sandbox_config(backend), &checked).unwrap();
        assert_eq!(sandbox.report(), first.report());
        sandbox.run_self_test_for_tests().await.unwrap();

        let mut config = run.sandbox_config(backend);
        config.init_program = InitProgram { program: "/bin/false".into(), args: Vec::new() };
        let broken = Sandbox::for_checked_host(&config, &checked).unwrap();
        assert!(broken.run(CommandSpec::shell("touch ran")).await.is_err());
        assert!(!run.workspace().join("ran").exists());
    }
}

#[tokio::test]
async fn unresponsive_init_program_is_reported_as_missing_layers() {
    let fixture = SandboxFixture::new();
    let mut config = fixture.sandbox_config(BackendChoice::Auto);
    config.init_program = InitProgram { program: "/bin/echo".into(), args: Vec::new() };
    assert!(matches!(Sandbox::prepare(config).await, Err(SandboxError::TooFewLayers { .. })));
}

#[tokio::test]
async fn workspace_with_another_owner_is_refused() {
    let fixture = SandboxFixture::new();
    let Some((_, gid)) = workspace_owner() else { return assert!(!nix::unistd::geteuid().is_root()) };
    chown(fixture.workspace(), Some(0), Some(gid)).unwrap();
    let refused = Sandbox::prepare(fixture.sandbox_config(BackendChoice::Namespaces)).await;
    assert!(matches!(refused, Err(SandboxError::WrongWorkspaceOwner { found_uid: 0, .. })));
}

#[tokio::test]
async fn sandbox_that_cannot_start_is_refused() {
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let mut config = fixture.sandbox_config(backend);
        // Answers the probe but cannot act as an init.
        let script = fixture.dir.path().join("init");
        let binary = own_binary();
        let line = format!("#!/bin/sh\n[ \"$2\" = probe ] && exec {} \"$@\"\nexit 1\n", binary.display());
        fs::write(&script, line).unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        config.init_program.program = script;
        let refused = Sandbox::prepare(config).await;
        assert!(matches!(refused, Err(SandboxError::SelfTestFailed { .. })), "{backend:?}");
    }
    for path in [PathBuf::from("/no/such/cache"), "/".into(), fixture.dir.path().into(), "relative".into()] {
        let mut config = fixture.sandbox_config(BackendChoice::Namespaces);
        config.readonly.push(path);
        assert!(matches!(Sandbox::prepare(config).await, Err(SandboxError::InvalidReadonlyPath { .. })));
    }
    let config = SandboxConfig::new(BackendChoice::Namespaces, &fixture.workspace().join("missing"));
    assert!(matches!(Sandbox::prepare(config).await, Err(SandboxError::InvalidWorkspace { .. })));
}

#[tokio::test]
async fn host_files_do_not_exist_inside() {
    let fixture = SandboxFixture::new();
    let secret = fixture.dir.path().join("secret");
    fs::write(&secret, "outside").unwrap();
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let secret = secret.to_str().unwrap();
    let home_secret =
        tempfile::Builder::new().prefix(".docket-test").tempfile_in(std::env::var("HOME").unwrap()).unwrap();
    let paths =
        [secret, home_secret.path().to_str().unwrap(), "/etc/passwd-", "/proc/1/environ", "/proc/1/mem"];
    for path in &paths[..2] {
        assert_eq!(probe_outside(&["read", path]), 0, "control: {path}");
    }
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        for path in paths.iter().chain(&[
            "/etc/shadow",
            "/proc/1/root/etc/shadow",
            "/sys/kernel/notes",
            "/proc/kcore",
        ]) {
            assert_ne!(probe_inside(&sandbox, &["read", path]).await, 0, "{backend:?} {path}");
        }
        let out = run_shell(&sandbox, "ls / /root /home /var 2>&1; cat /proc/self/mountinfo").await;
        let seen = to_text(&out.stdout.bytes);
        assert!(!seen.contains(".old") && !seen.contains("boot"), "{backend:?} {seen}");
        assert_eq!(probe_inside(&sandbox, &["read", "/etc/passwd"]).await, 0, "control: the made-up one");
    }
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
async fn landlock_denies_paths_that_mounts_would_allow() {
    let fixture = SandboxFixture::new();
    let landlock = probe_host().landlock_abi;
    if !sandboxed_backends().contains(&BackendChoice::Bubblewrap) || landlock == 0 {
        eprintln!("needs bubblewrap and Landlock (here version {landlock}): not tried");
        return;
    }
    // The init's own program is mounted there, readable by mode. It is not mounted again as a read-only
    // path, because a rule applies to the file, whatever its mount.
    let config = SandboxConfig::new(BackendChoice::Bubblewrap, &fixture.workspace());
    let sandbox = Sandbox::prepare(config).await.unwrap();
    let out = run_shell(&sandbox, "ls -l /.docket-init; cat /.docket-init").await;
    assert!(to_text(&out.stdout.bytes).starts_with("-rwx"), "control: {}", to_text(&out.stdout.bytes));
    assert!(to_text(&out.stderr.bytes).contains("Permission denied"), "{}", to_text(&out.stderr.bytes));
}

#[tokio::test]
async fn links_out_of_the_workspace_are_dead() {
    let fixture = SandboxFixture::new();
    let secret = fixture.dir.path().join("secret");
    fs::write(&secret, "outside").unwrap();
    std::os::unix::fs::symlink(&secret, fixture.workspace().join("link")).unwrap();
    std::os::unix::fs::symlink(fixture.dir.path(), fixture.workspace().join("folder")).unwrap();
    assert_eq!(fs::read(fixture.workspace().join("link")).unwrap(), b"outside", "control");
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let out =
            run_shell(&sandbox, "cat link folder/secret; echo over > link; echo over > folder/new").await;
        assert!(out.stdout.bytes.is_empty(), "{backend:?} {}", to_text(&out.stdout.bytes));
        assert_eq!(fs::read(&secret).unwrap(), b"outside");
        assert!(!fixture.dir.path().join("new").exists());
        for cwd in ["folder", "/etc", "..", "a/../..", "missing"] {
            let refused = sandbox.run(CommandSpec { cwd: cwd.into(), ..shell_spec("pwd") }).await;
            assert!(matches!(refused, Err(SandboxError::InvalidCwd { .. })), "{backend:?} {cwd} {refused:?}");
        }
    }
}

#[tokio::test]
async fn only_workspace_and_private_scratch_are_writable() {
    let fixture = SandboxFixture::new();
    fixture.write("given.txt", "from docket\n");
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        for path in [
            "/usr/x",
            "/etc/x",
            "/x",
            "/dev/x",
            "/proc/sys/kernel/core_pattern",
            "/root/x",
            "/var/x",
            "/lib/x",
        ] {
            let out = run_shell(&sandbox, &format!("echo x > {path}")).await;
            assert_ne!(out.exit, CommandExit::Exit(0), "{backend:?} {path}");
        }
        let scratch =
            "echo x > /tmp/x && echo x > ~/x && echo x > /dev/shm/x && echo x > /run/x && echo x > /dev/null";
        assert_eq!(run_shell(&sandbox, scratch).await.exit, CommandExit::Exit(0), "{backend:?}");
        let out = run_shell(&sandbox, "ls /tmp ~ /dev/shm /run | grep x").await;
        assert_eq!(out.exit, CommandExit::Exit(1), "left over: {}", to_text(&out.stdout.bytes));
        let line = "echo more >> given.txt && mkdir -p deep/er && echo y > deep/er/y && mv given.txt deep/moved && pwd";
        let out = run_shell(&sandbox, line).await;
        assert_eq!(
            (out.exit, to_text(&out.stdout.bytes)),
            (CommandExit::Exit(0), "/workspace\n".to_owned()),
            "{backend:?}"
        );
        let made = fixture.workspace().join("deep/moved");
        assert_eq!(fs::read_to_string(&made).unwrap(), "from docket\nmore\n");
        fs::remove_dir_all(fixture.workspace().join("deep")).unwrap();
        fixture.write("given.txt", "from docket\n");
    }
}

#[tokio::test]
async fn commands_are_not_host_root() {
    use std::os::unix::fs::MetadataExt;
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let out = run_shell(&sandbox, "touch mine; id -u; id -un; cat /proc/self/uid_map").await;
        let said = to_text(&out.stdout.bytes);
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(words[..3], ["1000", "docket", "1000"], "{backend:?}");
        let meta = fs::metadata(fixture.workspace().join("mine")).unwrap();
        assert_ne!(meta.uid(), 0);
        if let Some((uid, gid)) = workspace_owner() {
            assert_eq!((meta.uid(), meta.gid()), (uid, gid), "{backend:?}");
        }
        fs::remove_file(fixture.workspace().join("mine")).unwrap();
    }
}

#[tokio::test]
async fn only_loopback_network_exists_inside() {
    let fixture = SandboxFixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let socket = fixture.dir.path().join("socket");
    let _unix = UnixListener::bind(&socket).unwrap();
    let socket = socket.to_str().unwrap();
    assert_eq!(probe_outside(&["connect", &address]), 0, "control");
    assert_eq!(probe_outside(&["connect-unix", socket]), 0, "control");
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        assert_eq!(probe_inside(&sandbox, &["connect", &address]).await, libc::ECONNREFUSED, "{backend:?}");
        assert_eq!(
            probe_inside(&sandbox, &["connect", "192.0.2.1:80"]).await,
            libc::ENETUNREACH,
            "{backend:?}"
        );
        assert_ne!(probe_inside(&sandbox, &["connect-unix", socket]).await, 0, "{backend:?}");
        assert_eq!(probe_inside(&sandbox, &["loopback"]).await, 0, "{backend:?}");
    }
}

#[tokio::test]
async fn command_variables_are_not_shared() {
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends().into_iter().chain([BackendChoice::None]) {
        let sandbox = fixture.sandbox(backend).await;
        let mut own = shell_spec("echo $OWN $LANG; env | grep -c ^LANG=");
        own.env
            .0
            .extend([("OWN", "its own"), ("LANG", "C")].map(|(name, value)| (name.into(), value.into())));
        assert_eq!(format!("{:?}", own.env), r#"{"LANG", "OWN"}"#, "names alone are shown");
        let out = sandbox.run(own).await.unwrap();
        assert_eq!(to_text(&out.stdout.bytes), "its own C\n1\n", "{backend:?}");
        let next = run_shell(
            &sandbox,
            "echo ${OWN-none} $LANG; cat /proc/1/environ 2>/dev/null | grep -c 'its own'",
        )
        .await;
        assert_eq!(to_text(&next.stdout.bytes), "none C.UTF-8\n0\n", "{backend:?}");
    }
}

#[tokio::test]
async fn environment_holds_only_the_allowed_variables() {
    let fixture = SandboxFixture::new();
    // Control: this process has something that could leak.
    assert!(std::env::vars().count() > 0);
    for backend in sandboxed_backends() {
        let mut config = fixture.sandbox_config(backend);
        config.env.push(("EXTRA".to_owned(), "given".to_owned()));
        config.env.push(("LANG".to_owned(), "C".to_owned()));
        let sandbox = Sandbox::prepare(config).await.unwrap();
        let out = run_shell(&sandbox, "env; cat /proc/1/environ /proc/1/cmdline 2>/dev/null").await;
        let said = to_text(&out.stdout.bytes);
        let allowed = [
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "LANG",
            "TERM",
            "TZ",
            "TMPDIR",
            "CARGO_HOME",
            "EXTRA",
            "CARGO_NET_OFFLINE",
            "RUSTUP_HOME",
            "PYENV_ROOT",
            "GOMODCACHE",
            "GIT_CONFIG_SYSTEM",
            "PYTHONDONTWRITEBYTECODE",
            "PWD",
            "OLDPWD",
            "SHLVL",
            "_",
        ];
        assert_eq!(said.lines().filter(|line| line.starts_with("LANG=")).collect::<Vec<_>>(), ["LANG=C"]);
        for line in said.lines().filter(|line| line.contains('=')) {
            assert!(allowed.contains(&line.split('=').next().unwrap()), "{backend:?} {line}");
        }
        assert!(
            said.contains("EXTRA=given") && said.contains("TZ=UTC") && said.contains("HOME=/home/docket")
        );
    }
}

#[tokio::test]
async fn dangerous_system_calls_are_denied() {
    let fixture = SandboxFixture::new();
    let file = fixture.workspace().join("set-id");
    // The harmless ones succeed outside, which shows that the probe works.
    for args in [&["ptrace"][..], &["userns"], &["set-id", file.to_str().unwrap()], &["socket", "17"]] {
        let status = probe_outside(args);
        assert!(status == 0 || (args[0] == "socket" && status == libc::EPERM), "control {args:?}: {status}");
    }
    fs::remove_file(&file).unwrap();
    let refused: [(&[&str], i32); 13] = [
        (&["ptrace"], libc::EPERM),
        (&["userns"], libc::EPERM),
        (&["clone-userns"], libc::EPERM),
        (&["mount"], libc::EPERM),
        (&["bpf"], libc::EPERM),
        (&["keyctl"], libc::EPERM),
        (&["socket", "17"], libc::EPERM),
        (&["socket", "38"], libc::EPERM),
        (&["tiocsti"], libc::EPERM),
        (&["tiocsti-high"], libc::EPERM),
        (&["set-id", "/workspace/set-id"], libc::EPERM),
        (&["io_uring"], libc::ENOSYS),
        (&["clone3"], libc::ENOSYS),
    ];
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        for (args, errno) in refused {
            assert_eq!(probe_inside(&sandbox, args).await, errno, "{backend:?} {args:?}");
        }
        assert_eq!(probe_inside(&sandbox, &["socket", "2"]).await, 0, "control: inet sockets can be made");
        if cfg!(target_arch = "x86_64") {
            let argv = [own_binary().into_os_string(), probe::MARKER.into(), "x32".into()];
            let out = sandbox.run(CommandSpec::new(argv)).await.unwrap();
            assert_eq!(out.exit, CommandExit::Signal(libc::SIGSYS), "{backend:?}");
        }
    }
}

#[tokio::test]
async fn repository_hooks_and_configuration_are_read_only() {
    let fixture = SandboxFixture::new();
    fixture.write(".git/hooks/pre-commit.sample", "x");
    fixture.write(".git/config", "[core]\n");
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let out = run_shell(&sandbox, "echo x > .git/index && cat .git/config").await;
        assert_eq!(
            (out.exit, to_text(&out.stdout.bytes)),
            (CommandExit::Exit(0), "[core]\n".to_owned()),
            "control"
        );
        for line in
            ["echo x > .git/config", "echo x > .git/hooks/pre-commit", "rm -rf .git/hooks", "rm .git/config"]
        {
            assert_ne!(run_shell(&sandbox, line).await.exit, CommandExit::Exit(0), "{backend:?} {line}");
        }
        assert_eq!(fs::read_to_string(fixture.workspace().join(".git/config")).unwrap(), "[core]\n");
    }
}

#[tokio::test]
async fn linked_git_folder_does_not_expose_the_host() {
    let fixture = SandboxFixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir_all(outside.join("hooks")).unwrap();
    fs::write(outside.join("config"), "host secret").unwrap();
    std::os::unix::fs::symlink(&outside, fixture.workspace().join(".git")).unwrap();
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let out = run_shell(
            &sandbox,
            "cat .git/config; find / -name config -exec grep -l 'host secret' {} + 2>/dev/null",
        )
        .await;
        assert!(out.stdout.bytes.is_empty(), "{backend:?} {}", to_text(&out.stdout.bytes));
    }
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
async fn read_only_paths_and_toolchains_are_usable() {
    let fixture = SandboxFixture::new();
    let cache = fixture.dir.path().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::write(cache.join("object"), "cached").unwrap();
    for backend in sandboxed_backends() {
        let mut config = fixture.sandbox_config(backend);
        config.readonly.push(cache.clone());
        let sandbox = Sandbox::prepare(config).await.unwrap();
        let path = cache.to_str().unwrap();
        let out =
            run_shell(&sandbox, &format!("cat {path}/object; echo x > {path}/object || echo refused")).await;
        assert_eq!(to_text(&out.stdout.bytes), "cachedrefused\n", "{backend:?}");
        let git =
            "git init -q . && git commit -q --allow-empty -m one && git log --format=%an && rm -rf .git";
        let out = run_shell(&sandbox, git).await;
        assert_eq!(
            (out.exit, to_text(&out.stdout.bytes)),
            (CommandExit::Exit(0), "docket\n".to_owned()),
            "{backend:?}"
        );
        if Path::new(&std::env::var("HOME").unwrap()).join(".rustup/toolchains").exists() {
            let out = run_shell(&sandbox, "cargo --version && rustc --version").await;
            assert_eq!(out.exit, CommandExit::Exit(0), "{backend:?} {}", to_text(&out.stderr.bytes));
        } else {
            eprintln!("no rustup in this home: cargo was not tried inside");
        }
        let out = run_shell(
            &sandbox,
            "mkdir -p $CARGO_HOME && touch $CARGO_HOME/lock && ls -A $CARGO_HOME ${CARGO_HOME%/.cargo}",
        )
        .await;
        let seen = to_text(&out.stdout.bytes);
        assert!(out.exit == CommandExit::Exit(0) && !seen.contains("credentials"), "{backend:?} {seen}");
    }
}

/// Creates nested folders.
const NESTING_SCRIPT: &str = "import os, sys\nprint('nesting', flush=True)\nfor n in range(4200):\n    os.mkdir('d')\n    os.chdir('d')\nsys.exit(3)";

#[tokio::test]
async fn too_deep_nesting_keeps_the_result_and_blames_the_workspace() {
    if !has_program("python3") {
        return;
    }
    for backend in sandboxed_backends() {
        let fixture = SandboxFixture::new();
        let sandbox = fixture.sandbox(backend).await;
        let line = format!("python3 -c \"{NESTING_SCRIPT}\"");
        let error = sandbox.run(shell_spec(&line)).await.unwrap_err();
        assert!(error.is_workspace_fault(), "{backend:?}: {error:?}");
        let SandboxError::RestoreFailed { output, .. } = error else { panic!("{backend:?}: {error:?}") };
        // The disk watch ends the command if it looks between the last folders and the exit.
        let ends = [CommandExit::Exit(3), CommandExit::Exceeded(ExceededResource::Disk)];
        assert!(ends.contains(&output.exit), "{backend:?}: {:?}", output.exit);
        assert!(to_text(&output.stdout.bytes).contains("nesting"), "{backend:?}");
        // The next command cannot start there.
        let error = sandbox.run(shell_spec("true")).await.unwrap_err();
        assert!(
            matches!(error, SandboxError::ProtectFailed { .. }) && error.is_workspace_fault(),
            "{error:?}"
        );
        // A plain `remove_dir_all` opens each folder within the previous one.
        let mut folder = fixture.workspace().join("d");
        for _ in 0..3 {
            folder.push("d");
        }
        assert!(folder.exists(), "{backend:?}");
        remove_nested(&fixture.workspace());
    }
}

/// Removes the chain of folders from its top: each folder is moved out of the one above, which is then empty.
fn remove_nested(workspace: &Path) {
    let (top, out) = (workspace.join("d"), workspace.join("out"));
    while top.exists() {
        if top.join("d").exists() {
            fs::rename(top.join("d"), &out).unwrap();
            fs::remove_dir(&top).unwrap();
            fs::rename(&out, &top).unwrap();
        } else {
            fs::remove_dir(&top).unwrap();
        }
    }
}
