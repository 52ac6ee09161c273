//! Faults of this machine: a full or unwritable disk, exhausted file descriptors or memory.

use std::error::Error;

use docket_schema::api::{FaultKind, FaultScope, WorkerFault};
use nix::errno::Errno;

use super::error_chain;

/// Returns the machine fault that caused an error, if any: a full or unwritable disk, exhausted file descriptors or
/// memory.
pub(in crate::run) fn host_fault(error: &(dyn Error + 'static)) -> Option<WorkerFault> {
    let raw = |cause: &(dyn Error + 'static)| {
        let of_io = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        of_io.map(Errno::from_raw).or_else(|| cause.downcast_ref::<Errno>().copied())
    };
    let kind = error_chain::iter_chain(error).filter_map(raw).find_map(|errno| match errno {
        Errno::ENOSPC | Errno::EDQUOT | Errno::EROFS | Errno::EIO => Some(FaultKind::Disk),
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => Some(FaultKind::Host),
        _ => None,
    })?;
    Some(WorkerFault::new(kind, FaultScope::AnyTask, &error_chain::format_chain(error)))
}

/// Returns the fault behind a base that cannot be written out: as [`host_fault`], or a folder this worker may not
/// write.
pub(in crate::run) fn folder_fault(error: &(dyn Error + 'static)) -> Option<WorkerFault> {
    let is_refused = |cause: &(dyn Error + 'static)| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| matches!(error.kind(), std::io::ErrorKind::PermissionDenied))
    };
    host_fault(error).or_else(|| {
        let refused = error_chain::iter_chain(error).any(is_refused);
        refused.then(|| {
            WorkerFault::new(FaultKind::Disk, FaultScope::AnyTask, &error_chain::format_chain(error))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::MaterializeError;

    fn write_error(errno: Errno) -> MaterializeError {
        MaterializeError::Io { path: "/scratch".into(), source: errno.into() }
    }

    #[test]
    fn full_disk_is_a_worker_fault_and_a_bad_name_is_not() {
        for (errno, kind) in [
            (Errno::ENOSPC, Some(FaultKind::Disk)),
            (Errno::EDQUOT, Some(FaultKind::Disk)),
            (Errno::EROFS, Some(FaultKind::Disk)),
            (Errno::EMFILE, Some(FaultKind::Host)),
            (Errno::ENAMETOOLONG, None),
            (Errno::EACCES, None),
        ] {
            let fault = host_fault(&write_error(errno));
            assert_eq!(fault.as_ref().map(|fault| fault.kind), kind, "{errno}");
            assert!(fault.is_none_or(|fault| fault.message.contains("/scratch")), "{errno}");
        }
        let refused = folder_fault(&write_error(Errno::EACCES)).map(|fault| fault.kind);
        assert_eq!(refused, Some(FaultKind::Disk));
        assert_eq!(folder_fault(&write_error(Errno::ENAMETOOLONG)), None);
    }
}
