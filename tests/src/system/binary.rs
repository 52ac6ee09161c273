//! The binaries under test: `docket` and `docket-bench`, each built once per test process.
//!
//! Cargo tells a test the location of a binary only within one package, and these belong to other packages.
//! `cargo test --workspace` builds them anyway, for tests of their own packages, at no extra cost; such a
//! binary is used if no source is newer. Otherwise it is built here, by the cargo that runs the test, with
//! the profile and target folder of the test itself, taken from the test's own path
//! (`TARGET/PROFILE/deps/it-HASH`). A lock file prevents concurrent builds by test processes that start
//! together. `DOCKET_BIN` names a `docket` to use instead.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::SystemTime,
};

use super::process::{TestProgram, run_blocking};

/// The sources of `docket`.
const DOCKET_SOURCES: [&str; 5] = ["Cargo.toml", "Cargo.lock", "schema", "worker", "coordinator"];

/// Returns the path of `docket`; the first call builds it.
///
/// # Panics
/// Panics with cargo's output if it cannot be built.
pub fn docket_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("DOCKET_BIN") {
        Some(path) => PathBuf::from(path),
        None => build_binary("docket", &DOCKET_SOURCES),
    })
}

/// Returns the path of `docket-bench`; the first call builds it.
///
/// # Panics
/// Panics with cargo's output if it cannot be built.
pub(super) fn docket_bench_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| build_binary("docket-bench", &[&DOCKET_SOURCES[..], &["tests/bench"]].concat()))
}

fn build_binary(name: &str, sources: &[&str]) -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    let profile_folder = own.parent().and_then(Path::parent).expect("TARGET/PROFILE/deps/TEST");
    let target = profile_folder.parent().expect("TARGET/PROFILE");
    let profile = match profile_folder.file_name().and_then(|name| name.to_str()).expect("a profile's folder")
    {
        "debug" => "dev",
        other => other,
    };
    let lock = File::create(target.join("docket-under-test.lock")).expect("the target folder can be written");
    lock.lock().expect("a lock on a local file");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's root");
    let built = profile_folder.join(name);
    if modified_at(&built)
        .is_some_and(|at| newest_source_time(root, sources).is_some_and(|source| source < at))
    {
        return built;
    }
    let args = ["build", "--quiet", "--workspace", "--bin", name, "--profile", profile];
    let done = run_blocking(
        TestProgram::Cargo,
        root,
        args.iter().map(AsRef::as_ref).chain(["--target-dir".as_ref(), target.as_os_str()]),
    );
    assert!(done.success(), "{name} cannot be built:\n{}", done.stderr);
    built
}

fn modified_at(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// Returns the modification time of the newest source; `None` if unknown.
fn newest_source_time(root: &Path, sources: &[&str]) -> Option<SystemTime> {
    let mut left: Vec<PathBuf> = sources.iter().map(|name| root.join(name)).collect();
    let mut newest = None;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(path.read_dir().ok()?.flatten().map(|entry| entry.path()));
        } else {
            newest = newest.max(Some(modified_at(&path)?));
        }
    }
    newest
}
