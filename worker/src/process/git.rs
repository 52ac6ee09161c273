//! docket's own `git` plumbing: a fixed program, a fixed environment, no configuration but the one here.
//!
//! Who calls it works on docket's own git folders only (or reads a source repository that a person named at
//! submit). It is never pointed at the `.git` inside a workspace: what a model may write there executes.
//! Invariants: no system or user configuration, no hooks, no prompts, no pager, no credential store; no
//! transport but local paths, https and ssh.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use super::trusted::{TrustedError, TrustedOutput, TrustedSpec, run_trusted};

/// The largest answer git may give in one call. Packs of a base pass through here; a larger repository has
/// to be read in parts.
pub const GIT_OUTPUT_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The largest listing of a tree, in bytes: some million files at a hundred bytes each. A few hundred bytes of trees within
/// trees can name more paths than any disk holds, so that a listing ends long before git's own answer would.
pub const GIT_LISTING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Long enough to fetch a large history over a slow link, short enough that a dead remote frees its slot.
pub const GIT_TIMEOUT: Duration = Duration::from_secs(600);

/// Looked at in this order; `PATH` is not, for it may lead into a folder that others write.
const GIT_PATHS: [&str; 5] = [
    "/usr/bin/git",
    "/usr/local/bin/git",
    "/bin/git",
    "/run/current-system/sw/bin/git",
    "/opt/homebrew/bin/git",
];

/// Settings that stand over whatever a repository's own configuration says.
const FIXED_SETTINGS: [(&str, &str); 22] = [
    ("core.hooksPath", "/dev/null"),
    // Since 2.54 settings name hooks too; later gits take this for all of an event.
    ("hook.reference-transaction.enabled", "false"),
    // It says what a commit holds, and nobody checks that against the commit.
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

/// Why git gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No git in the fixed places.
    #[error("git was found in none of {}: install it with the system's package manager", GIT_PATHS.join(", "))]
    NotInstalled,
    /// It was started and failed before it had a status.
    #[error("git failed before it had a status")]
    Run(#[source] TrustedError),
}

/// The environment that puts `more` beside the fixed settings; laid over a call's environment it stands.
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

/// The call of git that [`run_git`] would make, for callers that need another limit or deadline.
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

/// What a person's own git needs to know them by at a remote: keys, agents, helpers, proxies.
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

/// Settings that a push leaves to the person: how they are known.
const USER_SETTINGS: [&str; 2] = ["credential.helper", "core.askPass"];

/// Settings of a push alone.
const PUSH_SETTINGS: [(&str, &str); 4] = [
    ("push.gpgSign", "false"),
    ("push.followTags", "false"),
    ("push.recurseSubmodules", "no"),
    ("core.alternateRefsCommand", "true"),
];

/// Which ssh a remote is spoken with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshCommand {
    /// That of the system, which asks nobody anything.
    NonInteractive,
    /// The one that the person's own settings name.
    FromSettings,
}

/// The call of git that speaks with a remote in the name of whoever runs docket: with their own settings, keys
/// and helpers. To be made in a git folder of docket's own, so that no settings of a repository are read.
///
/// # Errors
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

/// The command line of a git that a remote on this machine is served by (`receive-pack`): a repository like any
/// other, whose hooks and settings start nothing.
pub fn serving_command(verb: &str) -> String {
    let settings = FIXED_SETTINGS.iter().chain(&PUSH_SETTINGS).chain(&[("receive.autogc", "false")]);
    let settings: Vec<String> = settings.map(|(key, value)| format!("-c {key}={value}")).collect();
    format!("git {} {verb}", settings.join(" "))
}

/// Runs git in `cwd`. `env` is laid over the fixed environment (`GIT_DIR`, `GIT_INDEX_FILE`, author and
/// committer); nothing is inherited. A status other than 0 is part of the answer.
///
/// # Errors
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
