//! Sample projects and fixtures as repositories, and clean checkouts of results.

pub(crate) mod clean_checkout;
pub(crate) mod fixture;
pub(crate) mod projects;
