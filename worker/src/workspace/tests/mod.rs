//! Tests of the workspace as a whole, on real repositories in temporary folders.

mod crash;
mod deliver;
mod effects;
mod hidden;
mod hostile;
mod modes;
mod past;
mod property;
mod put_back;
mod races;
mod round_trip;
mod submodules;
mod support;
mod unusual;
