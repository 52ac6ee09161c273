//! What a process that holds keys leaves for others to find: nothing.

use nix::sys::{
    prctl,
    resource::{Resource, setrlimit},
};

/// From here on this process leaves no core dump, neither in a file nor to a program that collects them, and other
/// processes of the same user can read neither its memory nor its environment (`/proc/PID/{mem,environ}`), nor trace
/// it. Both hold for children until they execute another program.
///
/// # Errors
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
        // The sandbox's init is this program again, through a path below `/proc/self`.
        let host = docket_sandbox::probe_host();
        assert!(host.missing_required_layers().is_empty(), "{host:?}");
    }
}
