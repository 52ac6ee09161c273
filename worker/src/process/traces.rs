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
pub fn leave_no_traces() -> std::io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    prctl::set_dumpable(false)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::getrlimit;

    use super::*;

    #[test]
    fn nothing_is_dumped_and_commands_start_all_the_same() {
        leave_no_traces().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_CORE).unwrap(), (0, 0));
        assert!(!prctl::get_dumpable().unwrap());
        // The sandbox's init is this program again, through a path below `/proc/self`.
        let host = docket_sandbox::probe_host();
        assert!(host.missing_for_walls().is_empty(), "{host:?}");
    }
}
