//! Why a run process gives up, and which of it is a fault of its worker and not of the task.

pub(super) mod causes;
pub(super) mod driver_error;
pub(super) mod faults;
pub(super) mod host_faults;
pub(super) mod start_error;
