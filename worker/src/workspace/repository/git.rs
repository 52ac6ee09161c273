//! docket's own git folders and the plumbing calls made in them.
//!
//! docket writes every file of a [`GitDir`], so its configuration is known exactly. The objects of a source
//! repository or a cached base are reached through alternates: that repository's configuration (filters,
//! hooks, fsmonitor, textconv, promisor remotes) is never read.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::process::{
    GIT_LISTING_BYTES_MAX, GitError, SshCommand, TrustedOutput, TrustedSpec, git_spec, remote_spec, run_git,
    run_trusted, settings_env,
};

/// Contents are read from git in batches of about this many bytes, to bound memory.
const BLOB_BATCH_BYTES: u64 = 32 * 1024 * 1024;

/// Timeout for a query in a repository that docket did not create. It normally answers in milliseconds, but
/// its configuration may include a pipe without a writer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// A failed git call.
#[derive(Debug, thiserror::Error)]
pub enum GitCallError {
    /// git could not be run to completion.
    #[error("`git {verb}` could not be run")]
    Run {
        /// The subcommand.
        verb: String,
        #[source]
        source: GitError,
    },
    /// git exited with a failure status.
    #[error("`git {verb}` failed: {message}")]
    Failed {
        /// The subcommand.
        verb: String,
        /// git's stderr, truncated to 2,000 characters.
        message: String,
    },
    /// The output does not have git's documented format.
    #[error("`git {verb}` printed unexpected output ({what}); docket needs git 2.30 or later")]
    UnexpectedOutput {
        /// The subcommand.
        verb: &'static str,
        /// What was wrong.
        what: &'static str,
    },
}

/// The hash function of a repository's object names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    /// Detects the format from the length of a full hexadecimal object name.
    pub(crate) fn from_hex_oid(oid: &str) -> Option<Self> {
        if !oid.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        match oid.len() {
            40 => Some(Self::Sha1),
            64 => Some(Self::Sha256),
            _ => None,
        }
    }

    const fn oid_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    pub(crate) fn zero_oid(self) -> String {
        "0".repeat(self.oid_bytes() * 2)
    }

    /// The header of a `config` file that makes git use this format.
    pub(crate) const fn config_header(self) -> &'static str {
        match self {
            Self::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
            Self::Sha256 => {
                "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat = sha256\n"
            }
        }
    }
}

/// A git folder that only docket writes.
#[derive(Debug, Clone)]
pub(crate) struct GitDir {
    dir: PathBuf,
}

impl GitDir {
    /// Creates a git folder in the existing, empty folder `dir`.
    pub(crate) fn create(dir: &Path, format: ObjectFormat, alternates: &[&Path]) -> io::Result<Self> {
        for folder in ["objects/info", "objects/pack", "refs/heads", "info"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        fs::write(dir.join("HEAD"), "ref: refs/heads/docket\n")?;
        fs::write(dir.join("config"), format.config_header())?;
        if !alternates.is_empty() {
            fs::write(dir.join("objects/info/alternates"), format_alternates(alternates))?;
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// Opens an existing git folder.
    pub(crate) fn open(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Runs a plumbing command in this folder and returns its stdout.
    pub(crate) async fn run(&self, args: &[&str], stdin: Vec<u8>) -> Result<Vec<u8>, GitCallError> {
        self.run_with_env(args, &[], stdin).await
    }

    /// Like [`GitDir::run`], with additional environment variables.
    pub(crate) async fn run_with_env(
        &self,
        args: &[&str],
        env: &[(&str, &OsStr)],
        stdin: Vec<u8>,
    ) -> Result<Vec<u8>, GitCallError> {
        run_in_git_dir(&self.dir, args, env, stdin).await
    }

    /// Returns the complete tree of `commit`: NUL-terminated entries as printed by `ls-tree`.
    ///
    /// # Errors
    /// Those of [`GitDir::run`], and an error if the output exceeds [`GIT_LISTING_BYTES_MAX`].
    pub(crate) async fn list_tree(&self, commit: &str) -> Result<Vec<u8>, GitCallError> {
        let args = ["ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit];
        let spec = git_spec(&args, &self.dir, &git_environment(&self.dir, &[]), Vec::new());
        let output = match spec {
            Ok(spec) => {
                let bounded = TrustedSpec { stdout_bytes_max: GIT_LISTING_BYTES_MAX, ..spec };
                run_trusted(bounded).await.map_err(GitError::Run)
            }
            Err(error) => Err(error),
        };
        stdout_or_error(&args, output)
    }

    /// Reads the contents of `objects` (name and expected size) in order, and calls `each` with the position
    /// and the bytes. Reading in batches bounds memory.
    pub(crate) async fn read_blobs<E: From<GitCallError>>(
        &self,
        objects: &[(String, u64)],
        mut each: impl FnMut(usize, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut start = 0;
        while start < objects.len() {
            let mut bytes = 0;
            let count = objects[start..]
                .iter()
                .take_while(|(_, size)| {
                    let first = bytes == 0;
                    bytes += size + 1;
                    first || bytes <= BLOB_BATCH_BYTES
                })
                .count()
                .max(1);
            let group = &objects[start..start + count];
            let mut input = String::with_capacity(group.len() * 41);
            for (oid, _) in group {
                input.push_str(oid);
                input.push('\n');
            }
            let output = self.run(&["cat-file", "--batch"], input.into_bytes()).await?;
            let mut rest = output.as_slice();
            for at in start..start + count {
                let (content, tail) = split_batch_object(rest).ok_or(GitCallError::UnexpectedOutput {
                    verb: "cat-file",
                    what: "an object is missing or the output is truncated",
                })?;
                each(at, content.to_vec())?;
                rest = tail;
            }
            start += count;
        }
        Ok(())
    }
}

/// Runs git with `git_dir` as its repository.
pub(crate) async fn run_in_git_dir(
    git_dir: &Path,
    args: &[&str],
    env: &[(&str, &OsStr)],
    stdin: Vec<u8>,
) -> Result<Vec<u8>, GitCallError> {
    let output = run_git(args, git_dir, &git_environment(git_dir, env), stdin).await;
    stdout_or_error(args, output)
}

/// Like [`run_in_git_dir`], in the folder `cwd`, and returns normally whatever the exit status.
pub(crate) async fn run_for_status(
    (git_dir, cwd): (&Path, &Path),
    args: &[&str],
    env: &[(&str, &OsStr)],
    stdin: Vec<u8>,
) -> Result<TrustedOutput, GitCallError> {
    let output = run_git(args, cwd, &git_environment(git_dir, env), stdin).await;
    output.map_err(|source| GitCallError::Run { verb: subcommand_name(args), source })
}

/// Communicates with a remote from `git_dir`, one of docket's own folders, with the identity of the user who
/// runs docket.
pub(crate) async fn run_remote(git_dir: &Path, args: &[&str]) -> Result<TrustedOutput, GitCallError> {
    let failed = |source| GitCallError::Run { verb: subcommand_name(args), source };
    let own = ["config", "--global", "--get", "core.sshCommand"];
    let own = remote_spec(&own, git_dir, SshCommand::NonInteractive).map_err(failed)?;
    let own = run_trusted(own).await.map_err(|error| failed(GitError::Run(error)))?;
    let ssh = if own.is_success() { SshCommand::FromSettings } else { SshCommand::NonInteractive };
    run_trusted(remote_spec(args, git_dir, ssh).map_err(failed)?)
        .await
        .map_err(|error| failed(GitError::Run(error)))
}

/// Like [`run_in_git_dir`], for a short query in a repository that docket did not create.
pub(crate) async fn run_probe(git_dir: &Path, args: &[&str]) -> Result<Vec<u8>, GitCallError> {
    let output = match git_spec(args, git_dir, &git_environment(git_dir, &[]), Vec::new()) {
        Ok(spec) => run_trusted(TrustedSpec { timeout: PROBE_TIMEOUT, ..spec }).await.map_err(GitError::Run),
        Err(error) => Err(error),
    };
    stdout_or_error(args, output)
}

/// Returns environment variables that disable all hooks configured in `git_dir` (git 2.54 and later). No
/// single setting disables all hooks, so each is disabled by name.
pub(crate) async fn hook_disabling_env(git_dir: &Path) -> Result<Vec<(OsString, OsString)>, GitCallError> {
    let args = ["config", "--null", "--name-only", "--get-regexp", r"^hook\."];
    let found = match run_probe(git_dir, &args).await {
        Ok(found) => found,
        // No hooks are configured.
        Err(GitCallError::Failed { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let unknown =
        |_| GitCallError::UnexpectedOutput { verb: "config", what: "the name of a hook is not UTF-8" };
    let found = String::from_utf8(found).map_err(unknown)?;
    let names = found.split('\0').filter_map(|key| key.strip_prefix("hook.")?.rsplit_once('.'));
    let off: BTreeSet<String> = names.map(|(name, _)| format!("hook.{name}.enabled")).collect();
    let off: Vec<_> = off.into_iter().map(|key| (key, "false".to_owned())).collect();
    Ok(settings_env(&off))
}

fn git_environment(git_dir: &Path, env: &[(&str, &OsStr)]) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = vec![
        ("GIT_DIR".into(), git_dir.into()),
        // A partial clone must not fetch implicitly: fetching runs commands from its configuration.
        ("GIT_NO_LAZY_FETCH".into(), "1".into()),
        ("GIT_LITERAL_PATHSPECS".into(), "1".into()),
    ];
    all.extend(env.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    all
}

fn stdout_or_error(args: &[&str], output: Result<TrustedOutput, GitError>) -> Result<Vec<u8>, GitCallError> {
    let output = output.map_err(|source| GitCallError::Run { verb: subcommand_name(args), source })?;
    if output.is_success() {
        return Ok(output.stdout);
    }
    Err(failed_call_error(args, &output))
}

/// Builds the error for a failed git call from its stderr.
pub(crate) fn failed_call_error(args: &[&str], output: &TrustedOutput) -> GitCallError {
    let message: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(2000).collect();
    GitCallError::Failed { verb: subcommand_name(args), message }
}

fn subcommand_name(args: &[&str]) -> String {
    args.iter().find(|arg| !arg.starts_with('-')).map_or("?", |verb| verb).to_owned()
}

/// Converts one line of git output to text.
pub(crate) fn trim_output_line(output: Vec<u8>) -> String {
    String::from_utf8_lossy(&output).trim_end_matches('\n').to_owned()
}

/// Splits `<oid> <type> <size>\n<content>\n` off the output of `cat-file --batch`.
fn split_batch_object(output: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = output.iter().position(|b| *b == b'\n')?;
    let head = std::str::from_utf8(&output[..end]).ok()?;
    let mut words = head.split(' ').skip(1);
    let _kind = words.next().filter(|kind| *kind != "missing")?;
    let size: usize = words.next()?.parse().ok()?;
    let content = output.get(end + 1..end + 1 + size)?;
    Some((content, output.get(end + 2 + size..)?))
}

/// Formats an `objects/info/alternates` file.
pub(crate) fn format_alternates(folders: &[&Path]) -> Vec<u8> {
    let mut out = Vec::new();
    for folder in folders {
        out.push(b'"');
        for byte in folder.as_os_str().as_bytes() {
            match byte {
                b'"' | b'\\' => out.extend([b'\\', *byte]),
                0x20..=0x7e => out.push(*byte),
                _ => out.extend(format!("\\{byte:03o}").into_bytes()),
            }
        }
        out.extend(b"\"\n");
    }
    out
}

/// One entry of a git index file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitIndexEntry {
    pub(crate) path: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) oid: String,
}

/// Parses a version 2 index file (as written by `read-tree` in docket's own git folder).
pub(crate) fn parse_git_index(bytes: &[u8], format: ObjectFormat) -> Option<Vec<GitIndexEntry>> {
    const STAT_BYTES: usize = 40;
    const MODE_AT: usize = 24;
    let head = bytes.get(..12)?;
    if !head.starts_with(b"DIRC\0\0\0\x02") {
        return None;
    }
    let count = u32::from_be_bytes(head[8..12].try_into().ok()?) as usize;
    // Each entry takes more than 62 bytes: a false count must not make us reserve memory for it.
    let mut files = Vec::with_capacity(count.min(bytes.len() / 62));
    let mut at = 12;
    for _ in 0..count {
        let mode = u32::from_be_bytes(bytes.get(at + MODE_AT..at + MODE_AT + 4)?.try_into().ok()?);
        let oid_at = at + STAT_BYTES;
        let path_at = oid_at + format.oid_bytes() + 2;
        let oid = bytes.get(oid_at..oid_at + format.oid_bytes())?;
        let rest = bytes.get(path_at..)?;
        let length = rest.iter().position(|b| *b == 0)?;
        let oid = oid.iter().fold(String::with_capacity(64), |mut hex, byte| {
            use std::fmt::Write as _;
            write!(hex, "{byte:02x}").expect("writing to a string cannot fail");
            hex
        });
        files.push(GitIndexEntry { path: rest[..length].to_vec(), mode, oid });
        // Entries are padded with 1 to 8 NULs to a multiple of eight bytes.
        at += (path_at - at + length + 8) & !7;
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_index_files_are_none_without_a_panic() {
        let mut index = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
        index.extend([0; 24]);
        index.extend(0o100_644_u32.to_be_bytes());
        index.extend([0; 12]);
        index.extend([0xab; 20]);
        index.extend([0, 3]);
        index.extend(b"a/b\0\0\0\0\0\0\0");
        let files = parse_git_index(&index, ObjectFormat::Sha1).expect("whole");
        assert_eq!(files, [GitIndexEntry { path: b"a/b".to_vec(), mode: 0o100_644, oid: "ab".repeat(20) }]);
        for cut in 0..index.len() - 7 {
            assert_eq!(parse_git_index(&index[..cut], ObjectFormat::Sha1), None, "cut at {cut}");
        }
    }

    #[test]
    fn truncated_batch_output_is_none() {
        let whole = b"ab blob 3\nx\ny\nrest";
        assert_eq!(split_batch_object(whole), Some((&b"x\ny"[..], &b"rest"[..])));
        assert_eq!(split_batch_object(b"ab missing\n"), None);
        assert_eq!(split_batch_object(&whole[..12]), None);
    }

    #[test]
    fn special_characters_in_alternates_are_quoted() {
        let file = format_alternates(&[Path::new("/a \"b\"\n/\u{e9}")]);
        assert_eq!(file, b"\"/a \\\"b\\\"\\012/\\303\\251\"\n");
    }
}
