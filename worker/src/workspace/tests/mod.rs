//! Tests of the workspace as a whole, on real repositories in temporary folders.

mod crash;
mod deliver;
mod effects;
mod hostile;
mod past;
mod property;
mod put_back;
mod races;
mod round_trip;
mod support;
mod unusual;
