//! The git tools of the wide set: git in the workspace's own repository, inside the sandbox, without hooks, pager or
//! network; commits bear docket's name. What each runs is in [`calls`](crate::calls).

mod run;
#[cfg(test)]
mod tests;

pub(super) use run::run;
