//! On real processes.
