//! Hardening for processes that hold API keys: no core dumps, no ptrace, no `/proc` reads by the same user.

use nix::sys::{
    prctl,
    resource::{Resource, setrlimit},
};

/// Disables core dumps, both to files and to collector programs. Other processes of the same user can no longer trace
/// this process or read its memory or environment (`/proc/PID/{mem,environ}`). Children inherit both until they
/// execute another program.
///
/// # Errors
/// The kernel rejected one of the two settings.
/// The kernel refused one of the two.
pub fn disable_core_dumps_and_ptrace() -> std::io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    prctl::set_dumpable(false)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::getrlimit;

    use super::*;

    #[test]
    fn core_dumps_are_disabled_and_commands_still_start() {
        disable_core_dumps_and_ptrace().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_CORE).unwrap(), (0, 0));
        assert!(!prctl::get_dumpable().unwrap());
        // The sandbox's init is this program again, started through a path below `/proc/self`.
        let host = docket_sandbox::probe_host();
        assert!(host.missing_required_layers().is_empty(), "{host:?}");
    }
}
