//! The command line as people and scripts have it: tables on terminals of any width, progress of what takes long, the live
//! view, JSON wherever a script may read, manual pages and completions, output
//! that nobody takes.

mod completions;
mod home;
mod json;
mod man;
mod output;
mod progress;
mod tables;
mod top;
