//! Git tools of the wide set: git in the workspace's own repository, inside the sandbox, without hooks, pager or
//! network; commits carry docket's name. The command lines are in [`calls`](crate::calls).

mod run;
#[cfg(test)]
mod tests;

pub(super) use run::run;
