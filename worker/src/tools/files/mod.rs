//! The tools that show and change files.

pub(super) mod create_file;
pub(super) mod edit_file;
pub(super) mod large_file;
pub(super) mod paths;
pub(super) mod proposal;
pub(super) mod read_file;
pub(super) mod read_output;
pub(super) mod show_changes;
pub(super) mod show_file;
pub(super) mod table_of_contents;
