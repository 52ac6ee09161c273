//! The last layers, applied just before `execve`: resource limits, Landlock, seccomp.

use std::io;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::{
    libc,
    sys::resource::{Resource, getrlimit, setrlimit},
};
use seccompiler::apply_filter;

use super::{
    super::plan::{MountAccess, SandboxBackend, SandboxPlan},
    init_context::{SetupFailure, failed_at},
    seccomp::build_filters,
};

/// More than any build or test server opens, less than what exhausts the host's table.
pub(crate) const NOFILE: u64 = 4096;

/// Maximum size of a single file.
pub(crate) const FILE_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// The newest ABI this code supports; older kernels apply what they can.
const LANDLOCK_ABI: ABI = ABI::V6;

/// Applies resource limits. They apply per process, so they are the weakest layer; only `processes` is
/// counted per sealed user namespace, so that calls do not take from each other.
pub(super) fn apply_rlimits(backend: SandboxBackend, processes: u64) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    match backend {
        SandboxBackend::None => {}
        SandboxBackend::Bubblewrap | SandboxBackend::Namespaces => {
            lower_rlimit(Resource::RLIMIT_NOFILE, NOFILE)?;
            lower_rlimit(Resource::RLIMIT_NPROC, processes)?;
            lower_rlimit(Resource::RLIMIT_FSIZE, FILE_BYTES)?;
        }
    }
    Ok(())
}

/// Sets a limit, or keeps the host's own if it is lower: only root may raise it.
fn lower_rlimit(resource: Resource, wanted: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    let most = wanted.min(hard);
    Ok(setrlimit(resource, most, most)?)
}

/// Applies the access rules of the mounts once more, through Landlock.
pub(super) fn apply_landlock(plan: &SandboxPlan) -> Result<(), SetupFailure> {
    let refused = |error: landlock::RulesetError| {
        let text = error.to_string();
        SetupFailure { step: format!("landlock ({text})"), errno: libc::EPERM }
    };
    let all = AccessFs::from_all(LANDLOCK_ABI);
    let read = AccessFs::from_read(LANDLOCK_ABI);
    let write = all & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|ruleset| ruleset.scope(Scope::from_all(LANDLOCK_ABI)))
        .and_then(Ruleset::create)
        .map_err(refused)?;
    let mut allow = |path: &std::path::Path, rights: BitFlags<AccessFs>| -> Result<(), SetupFailure> {
        let step = || format!("landlock rule for {}", path.display());
        let fd = PathFd::new(path).map_err(|_| SetupFailure { step: step(), errno: libc::ENOENT })?;
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(LANDLOCK_ABI) };
        (&mut rules).add_rule(PathBeneath::new(fd, rights)).map_err(refused)?;
        Ok(())
    };
    allow("/".as_ref(), AccessFs::ReadDir.into())?;
    // The plan laid out all of /etc inside, so one rule covers its many files.
    for path in ["/proc", "/etc"] {
        allow(path.as_ref(), read)?;
    }
    for (path, access) in plan.mount_paths().filter(|(path, _)| !path.starts_with("/etc")) {
        let rights = match access {
            MountAccess::Read => read,
            MountAccess::Write => write,
            MountAccess::Device => device,
        };
        allow(path, rights)?;
    }
    let status = rules.restrict_self().map_err(refused)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => {
            Err(SetupFailure { step: "landlock (not enforced)".to_owned(), errno: libc::ENOSYS })
        }
    }
}

/// Applies the filters. Nothing but `execve` may follow.
pub(super) fn apply_seccomp() -> Result<(), SetupFailure> {
    let failed = |text: String| SetupFailure { step: format!("seccomp ({text})"), errno: libc::EPERM };
    for program in build_filters().map_err(|error| failed(error.to_string()))? {
        apply_filter(&program).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
                failed_at("seccomp")(error)
            }
            other => failed(other.to_string()),
        })?;
    }
    Ok(())
}
