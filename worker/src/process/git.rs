//! docket's own git calls: a fixed program, a fixed environment and no configuration except the one defined here.
//!
//! Callers use it only on docket's own git folders, or to read a source repository that a person named at submit. It
//! never runs on the `.git` inside a workspace, because a model could put executable configuration there. Invariants:
//! no system or user configuration, no hooks, no prompts, no pager, no credential store; no transports except local
//! paths, https and ssh.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use super::trusted::{TrustedError, TrustedOutput, TrustedSpec, run_trusted};

/// Largest output of a single git call, in bytes. Packs of a base pass through here; a larger repository has to be
/// read in parts.
pub const GIT_OUTPUT_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Largest tree listing, in bytes: a few million files at a hundred bytes each. A few hundred bytes of nested trees
/// can name more paths than any disk holds, so listings have a lower limit than other output.
pub const GIT_LISTING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Long enough to fetch a large history over a slow link, short enough for a dead remote to free its slot.
pub const GIT_TIMEOUT: Duration = Duration::from_secs(600);

/// Checked in this order; `PATH` is not used because it may lead to a folder that others can write.
const GIT_PATHS: [&str; 5] = [
    "/usr/bin/git",
    "/usr/local/bin/git",
    "/bin/git",
    "/run/current-system/sw/bin/git",
    "/opt/homebrew/bin/git",
];

/// Settings that override any configuration of a repository.
const FIXED_SETTINGS: [(&str, &str); 22] = [
    ("core.hooksPath", "/dev/null"),
    // Since git 2.54 settings can name hooks; later versions apply this to all hooks of an event.
    ("hook.reference-transaction.enabled", "false"),
    // It claims what a commit contains, and git does not check that against the commit.
    ("core.commitGraph", "false"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.askPass", "false"),
    ("credential.helper", ""),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("init.templateDir", ""),
    ("diff.external", ""),
    ("protocol.allow", "never"),
    ("protocol.file.allow", "always"),
    ("protocol.https.allow", "always"),
    ("protocol.ssh.allow", "always"),
];

/// Why a git call failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// git is not installed at any of the fixed paths.
    #[error("git was not found at {}: install it with the system's package manager", GIT_PATHS.join(", "))]
    NotInstalled,
    /// git started but failed before it returned a status.
    #[error("git failed before it returned a status")]
    Run(#[source] TrustedError),
}

/// Returns environment variables that add `more` to the fixed settings; they replace those of the call's environment.
pub fn settings_env(more: &[(String, String)]) -> Vec<(OsString, OsString)> {
    let fixed = FIXED_SETTINGS.iter().copied();
    let all: Vec<_> = fixed.chain(more.iter().map(|(key, value)| (key.as_str(), value.as_str()))).collect();
    config_env(&all)
}

fn config_env(all: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    let mut env = vec![("GIT_CONFIG_COUNT".into(), all.len().to_string().into())];
    for (index, (key, value)) in all.iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{index}").into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{index}").into(), value.into()));
    }
    env
}

/// Returns the git call that [`run_git`] would make, for callers that need another limit or deadline.
///
/// # Errors
/// [`GitError::NotInstalled`].
pub fn git_spec<A: AsRef<OsStr>>(
    args: &[A],
    cwd: &Path,
    env: &[(OsString, OsString)],
    stdin: Vec<u8>,
) -> Result<TrustedSpec, GitError> {
    let program =
        GIT_PATHS.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or(GitError::NotInstalled)?;
    let fixed = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", "/nonexistent"),
        ("LC_ALL", "C"),
        ("TZ", "UTC"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
    ];
    let mut all: Vec<(OsString, OsString)> =
        fixed.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
    all.extend(settings_env(&[]));
    all.extend_from_slice(env);
    Ok(TrustedSpec {
        program,
        args: args.iter().map(|arg| arg.as_ref().to_owned()).collect(),
        cwd: cwd.to_owned(),
        env: all,
        stdin,
        timeout: GIT_TIMEOUT,
        stdout_bytes_max: GIT_OUTPUT_BYTES_MAX,
    })
}

/// Variables that a person's own git needs to authenticate at a remote: keys, agents, helpers, proxies.
const USER_ENVIRONMENT: [&str; 25] = [
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "GNUPGHOME",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_CONFIG_GLOBAL",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GITLAB_TOKEN",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// Settings that a push leaves to the person: how they authenticate.
const USER_SETTINGS: [&str; 2] = ["credential.helper", "core.askPass"];

/// Settings for pushes only.
const PUSH_SETTINGS: [(&str, &str); 4] = [
    ("push.gpgSign", "false"),
    ("push.followTags", "false"),
    ("push.recurseSubmodules", "no"),
    ("core.alternateRefsCommand", "true"),
];

/// The ssh command used for a remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshCommand {
    /// The system's ssh, without prompts.
    NonInteractive,
    /// The one configured in the person's own settings.
    FromSettings,
}

/// Returns a git call that contacts a remote on behalf of the user running docket, with their own settings, keys and
/// helpers. Use it in one of docket's own git folders, so that no repository's settings are read.
///
/// # Errors
/// [`GitError::NotInstalled`].
/// [`GitError::NotInstalled`].
pub fn remote_spec<A: AsRef<OsStr>>(
    args: &[A],
    git_dir: &Path,
    ssh: SshCommand,
) -> Result<TrustedSpec, GitError> {
    let spec = git_spec(args, git_dir, &[], Vec::new())?;
    let is_setting = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("GIT_CONFIG_"));
    let is_dropped = |name: &OsString| {
        is_setting(name)
            || name == "GIT_ATTR_NOSYSTEM"
            || (ssh == SshCommand::FromSettings && name == "GIT_SSH_COMMAND")
    };
    let mut env: Vec<(OsString, OsString)> =
        spec.env.into_iter().filter(|(name, _)| !is_dropped(name)).collect();
    let own = USER_ENVIRONMENT.iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)));
    env.extend(own);
    let settings: Vec<(&str, &str)> = FIXED_SETTINGS
        .iter()
        .copied()
        .filter(|(key, _)| !USER_SETTINGS.contains(key))
        .chain(PUSH_SETTINGS)
        .collect();
    env.extend(config_env(&settings));
    env.push(("GIT_DIR".into(), git_dir.into()));
    Ok(TrustedSpec { env, ..spec })
}

/// Returns the command line of the git process that serves a remote on this machine (`receive-pack`). That repository
/// is untrusted too: its hooks and settings must not start anything.
pub fn serving_command(verb: &str) -> String {
    let settings = FIXED_SETTINGS.iter().chain(&PUSH_SETTINGS).chain(&[("receive.autogc", "false")]);
    let settings: Vec<String> = settings.map(|(key, value)| format!("-c {key}={value}")).collect();
    format!("git {} {verb}", settings.join(" "))
}

/// Runs git in `cwd`. `env` is laid over the fixed environment (`GIT_DIR`, `GIT_INDEX_FILE`, author and committer);
/// nothing is inherited. A nonzero status is part of the output, not an error.
///
/// # Errors
/// git is not installed, or the call failed before it returned a status.
/// [`GitError`].
pub async fn run_git<A: AsRef<OsStr>>(
    args: &[A],
    cwd: &Path,
    env: &[(OsString, OsString)],
    stdin: Vec<u8>,
) -> Result<TrustedOutput, GitError> {
    run_trusted(git_spec(args, cwd, env, stdin)?).await.map_err(GitError::Run)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(dir: &Path, args: &[&str], stdin: &[u8]) -> TrustedOutput {
        run_git(args, dir, &[], stdin.to_vec()).await.unwrap()
    }

    #[tokio::test]
    async fn plumbing_works_and_hooks_do_not_run() {
        let dir = tempfile::tempdir().unwrap();
        assert!(run(dir.path(), &["init", "-q", "-b", "main", "."], b"").await.is_success());
        let hook = dir.path().join(".git/hooks/pre-commit");
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, "#!/bin/sh\ntouch hooked\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&hook, executable).unwrap();
        let blob = run(dir.path(), &["hash-object", "-w", "--stdin"], b"hello\n").await;
        assert_eq!(blob.stdout, b"ce013625030ba8dba906f756967f9e9ca394464a\n");
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let commit = [&who[..], &["commit", "-q", "--allow-empty", "-m", "one"]].concat();
        let out = run(dir.path(), &commit, b"").await;
        assert!(out.is_success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(!dir.path().join("hooked").exists());
    }

    #[tokio::test]
    async fn transports_that_run_programs_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let out = run(dir.path(), &["ls-remote", "ext::touch fetched"], b"").await;
        assert!(!out.is_success());
        assert!(String::from_utf8_lossy(&out.stderr).contains("not allowed"));
        assert!(!dir.path().join("fetched").exists());
    }

    #[tokio::test]
    async fn user_configuration_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let out = run(dir.path(), &["config", "--list", "--show-origin"], b"").await;
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.lines().all(|line| line.starts_with("command line:")), "{text}");
    }
}
