//! The rules, enumerated.
