//! Applies a run's change to a branch: on top of commits made since the run's base was pinned, or on top of
//! an earlier delivery.
//!
//! The merge uses trees only and runs in docket's own git folder; the source repository receives objects and
//! a ref only after everything has succeeded. Invariants: the same run on the same commits produces the same
//! commit, so a repeated delivery is recognized by its id; a branch that is not docket's is never moved, and
//! docket's own branches only move forward; no merge driver, filter or hook of the repository runs.

use std::{ffi::OsStr, fs, io::Write as _, path::Path};

use super::result_commit::{CommitSignature, DeliverError, PATCH_DIFF_ARGS, ResultCommit, branch_commit};
use crate::workspace::repository::{
    git::{
        GitCallError, failed_call_error, format_alternates, hook_disabling_env, run_for_status,
        run_in_git_dir, run_probe, trim_output_line,
    },
    local_repo::LocalRepo,
    repo_safety::check_safe_to_write,
};

/// A branch to deliver a result to.
#[derive(Debug, Clone, Copy)]
pub struct BranchDelivery<'a> {
    pub branch: &'a str,
    /// The commit's message.
    pub message: &'a str,
    /// Author, committer and time.
    pub signature: &'a CommitSignature,
    /// Commits delivered earlier for the same task. The result may be placed on top of these.
    pub delivered: &'a [DeliveredCommit],
    /// Place the result even on top of another run's delivery that this run does not build on, which undoes
    /// it.
    pub replace: bool,
    /// The branch that the base was taken from. If it has moved, the result is applied to its current tip.
    /// `None` = the result stays on its base.
    pub base_branch: Option<&'a str>,
}

/// A commit that was delivered for a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveredCommit {
    /// The commit's id.
    pub commit: String,
    /// The run whose result it is.
    pub origin: CommitOrigin,
}

/// The origin of a delivered commit, relative to the run that is being delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOrigin {
    /// The same run.
    SameRun,
    /// A run that this one builds on: its work is included.
    EarlierRun,
    /// Another run, whose work is not included in this one.
    OtherRun,
}

/// A branch that contains the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveredBranch {
    /// The commit that the branch is at.
    pub commit: String,
    /// The commit's parent.
    pub parent: String,
}

/// Where a commit is placed, and the commit whose tree the change is applied to; they differ if docket's own
/// commits lie between them.
struct CommitPlacement {
    parent: String,
    anchor: String,
}

impl ResultCommit {
    /// Delivers the result as one commit on top of the base into `repository`, as the new branch `branch`,
    /// regardless of newer commits. Returns the commit's id. Repeating the delivery changes nothing and
    /// returns the same id.
    ///
    /// # Errors
    /// [`DeliverError`]; in particular [`DeliverError::BranchTaken`] if the branch is at another commit.
    pub async fn deliver_new_branch(
        &self,
        repository: &Path,
        branch: &str,
        message: &str,
        signature: &CommitSignature,
    ) -> Result<String, DeliverError> {
        let wanted =
            BranchDelivery { branch, message, signature, delivered: &[], replace: false, base_branch: None };
        self.deliver_to_branch(repository, &wanted).await.map(|made| made.commit)
    }

    /// Delivers the result as one commit into `repository`, as described by `wanted`. Repeating the delivery
    /// changes nothing and returns the same result.
    ///
    /// # Errors
    /// [`DeliverError::BranchTaken`] if the branch contains other work, [`DeliverError::Conflict`] if the
    /// change conflicts with newer commits, and [`DeliverError::NoChanges`] if there is no change.
    pub async fn deliver_to_branch(
        &self,
        repository: &Path,
        wanted: &BranchDelivery<'_>,
    ) -> Result<DeliveredBranch, DeliverError> {
        let branch = wanted.branch;
        let reference = format!("refs/heads/{branch}");
        match self.git_dir.run(&["check-ref-format", &reference], Vec::new()).await {
            Ok(_) if !branch.starts_with('-') => {}
            Ok(_) | Err(GitCallError::Failed { .. }) => {
                return Err(DeliverError::BranchName(branch.to_owned()));
            }
            Err(error) => return Err(error.into()),
        }
        let repo = LocalRepo::discover(repository).await?;
        check_branch_name_conflict(&repo, branch).await?;
        check_safe_to_write(&repo.git_dir, &repo.common_dir, &reference)?;
        self.borrow_objects(&repo)?;
        let tip = branch_commit(&repo, &reference).await?;
        let place = match &tip {
            None => {
                let parent = self.upstream_tip(&repo, wanted.base_branch).await?;
                CommitPlacement { anchor: parent.clone(), parent }
            }
            Some(tip) => {
                if let Some(made) = self.find_identical_delivery(&repo, tip, wanted).await? {
                    return Ok(made);
                }
                if let Some(made) = self.find_earlier_delivery(&repo, tip, wanted).await? {
                    return Ok(made);
                }
                let Some(last) = wanted.delivered.iter().rfind(|own| own.commit == *tip) else {
                    return Err(DeliverError::BranchTaken { branch: branch.to_owned(), at: tip.clone() });
                };
                if last.origin == CommitOrigin::OtherRun && !wanted.replace {
                    return Err(DeliverError::WouldUndoOtherRun {
                        branch: branch.to_owned(),
                        at: tip.clone(),
                    });
                }
                if is_checked_out(&repo, &reference).await? {
                    return Err(DeliverError::BranchCheckedOut(branch.to_owned()));
                }
                CommitPlacement {
                    parent: tip.clone(),
                    anchor: self.first_undelivered_ancestor(&repo, tip, wanted.delivered).await?,
                }
            }
        };
        let onto = wanted.base_branch.unwrap_or(branch);
        let tree = self.merge_onto(&place.anchor, onto).await?;
        if tree == self.resolve_tree_id(&place.parent).await? {
            // Even without a change, the branch is wanted on top of an earlier run's delivery; otherwise it
            // has no use.
            let parent = self.first_undelivered_ancestor(&repo, &place.parent, wanted.delivered).await?;
            return tip.map(|commit| DeliveredBranch { commit, parent }).ok_or(DeliverError::NoChanges);
        }
        let commit = self.commit_placed_tree(&tree, &place, wanted).await?;
        self.send_objects(&repo, &commit, &place.parent).await?;
        update_branch_ref(&repo, &reference, (tip.as_deref(), &commit), wanted).await?;
        Ok(DeliveredBranch { commit, parent: place.parent })
    }

    /// Applies the change as a patch to the files of the commit that is checked out in `repository`: all or
    /// nothing. Uncommitted changes are kept, and conflict only if they touch the same places. Returns
    /// whether there was anything to do: files that already contain the change are left alone.
    ///
    /// # Errors
    /// Those of [`ResultCommit::deliver_to_branch`], and [`DeliverError::DirtyFiles`] if the files differ
    /// from their commit at the changed places.
    pub async fn apply_to_files(&self, repository: &Path) -> Result<bool, DeliverError> {
        let repo = LocalRepo::discover(repository).await?;
        let Some(files) = &repo.work_tree else {
            let why = "it has no work tree: deliver to a branch instead".to_owned();
            return Err(GitCallError::Failed { verb: "apply".to_owned(), message: why }.into());
        };
        self.borrow_objects(&repo)?;
        let head = repo.resolve_commit(None).await?.commit;
        let tree = self.merge_onto(&head, "HEAD").await?;
        let patch = self.git_dir.run(&[&PATCH_DIFF_ARGS[..], &[&head, &tree]].concat(), Vec::new()).await?;
        if patch.is_empty() {
            return Ok(false);
        }
        let env: [(&str, &OsStr); 1] = [("GIT_WORK_TREE", files.as_os_str())];
        let ran = async |args: &[&str]| {
            run_for_status((self.git_dir.path(), files), args, &env, patch.clone()).await
        };
        let check = ran(&["apply", "--check", "--whitespace=nowarn"]).await?;
        if !check.is_success() {
            let is_there = ran(&["apply", "--check", "--reverse", "--whitespace=nowarn"]).await?.is_success();
            let paths = parse_apply_error_paths(&String::from_utf8_lossy(&check.stderr));
            return if is_there { Ok(false) } else { Err(DeliverError::DirtyFiles { paths }) };
        }
        let args = ["apply", "--whitespace=nowarn"];
        let ended = ran(&args).await?;
        if ended.is_success() { Ok(true) } else { Err(failed_call_error(&args, &ended).into()) }
    }

    /// Gives docket's own folder access to the repository's objects and to its shallow boundaries.
    pub(crate) fn borrow_objects(&self, repo: &LocalRepo) -> Result<(), DeliverError> {
        let list = self.git_dir.path().join("objects/info/alternates");
        let fail = |source| DeliverError::ScratchFolder { path: list.clone(), source };
        let more = format_alternates(&[&repo.objects_folder()]);
        let there = fs::read(&list).unwrap_or_default();
        if there.windows(more.len()).any(|lines| lines == more) {
            return Ok(());
        }
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&list).map_err(fail)?;
        file.write_all(&more).map_err(fail)?;
        let cut = fs::read(repo.common_dir.join("shallow")).unwrap_or_default();
        let mut file =
            fs::OpenOptions::new().append(true).open(self.git_dir.path().join("shallow")).map_err(fail)?;
        file.write_all(&cut).map_err(fail)
    }

    /// Returns the tip of the branch that the base was taken from, or the base if the branch has not moved.
    pub(crate) async fn upstream_tip(
        &self,
        repo: &LocalRepo,
        from: Option<&str>,
    ) -> Result<String, DeliverError> {
        let base = || self.base_commit.clone();
        let Some(from) = from else { return Ok(base()) };
        let Some(now) = branch_commit(repo, &format!("refs/heads/{from}")).await? else { return Ok(base()) };
        // A base of uncommitted changes has the checked-out commit as its parent.
        let raw = self.git_dir.run(&["cat-file", "commit", &self.base_commit], Vec::new()).await?;
        let raw = String::from_utf8_lossy(&raw);
        let mut parents = raw.lines().map_while(|line| (!line.is_empty()).then_some(line));
        let is_under = parents.any(|line| line.strip_prefix("parent ") == Some(&now));
        Ok(if now == self.base_commit || is_under { base() } else { now })
    }

    /// Returns the earlier result if the branch's tip is exactly the commit that this delivery would make.
    async fn find_identical_delivery(
        &self,
        repo: &LocalRepo,
        tip: &str,
        wanted: &BranchDelivery<'_>,
    ) -> Result<Option<DeliveredBranch>, DeliverError> {
        let Some(parent) = parent_commit(repo, tip).await? else { return Ok(None) };
        let anchor = self.first_undelivered_ancestor(repo, &parent, wanted.delivered).await?;
        let place = CommitPlacement { parent, anchor };
        match self.merge_and_commit(&place, wanted.branch, wanted).await {
            Ok(commit) if commit == tip => Ok(Some(DeliveredBranch { commit, parent: place.parent })),
            Ok(_) | Err(DeliverError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns this run's own commit if it was delivered before and the branch has since moved on: by a later
    /// run of the task, or by a person.
    async fn find_earlier_delivery(
        &self,
        repo: &LocalRepo,
        tip: &str,
        wanted: &BranchDelivery<'_>,
    ) -> Result<Option<DeliveredBranch>, DeliverError> {
        for own in wanted.delivered.iter().filter(|own| own.origin == CommitOrigin::SameRun) {
            let args = ["merge-base", "--is-ancestor", &own.commit, tip];
            match run_probe(&repo.git_dir, &args).await {
                Ok(_) => {
                    let parent = parent_commit(repo, &own.commit).await?.unwrap_or_default();
                    return Ok(Some(DeliveredBranch { commit: own.commit.clone(), parent }));
                }
                // Not an ancestor, or the commit does not exist.
                Err(GitCallError::Failed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Returns the first commit, starting at `commit` and following parents, that was not delivered for the
    /// task.
    async fn first_undelivered_ancestor(
        &self,
        repo: &LocalRepo,
        commit: &str,
        own: &[DeliveredCommit],
    ) -> Result<String, DeliverError> {
        let mut at = commit.to_owned();
        // Each is visited at most once, because no commit is its own ancestor.
        for _ in own {
            if !own.iter().any(|own| own.commit == at) {
                break;
            }
            let Some(parent) = parent_commit(repo, &at).await? else { break };
            at = parent;
        }
        Ok(at)
    }

    async fn merge_and_commit(
        &self,
        place: &CommitPlacement,
        onto: &str,
        wanted: &BranchDelivery<'_>,
    ) -> Result<String, DeliverError> {
        let tree = self.merge_onto(&place.anchor, onto).await?;
        self.commit_placed_tree(&tree, place, wanted).await
    }

    async fn commit_placed_tree(
        &self,
        tree: &str,
        place: &CommitPlacement,
        wanted: &BranchDelivery<'_>,
    ) -> Result<String, DeliverError> {
        self.commit_tree(tree, Some(&place.parent), wanted.signature, wanted.message).await
    }

    async fn resolve_tree_id(&self, commit: &str) -> Result<String, DeliverError> {
        let peeled = format!("{commit}^{{tree}}");
        Ok(trim_output_line(
            self.git_dir.run(&["rev-parse", "--verify", "--end-of-options", &peeled], Vec::new()).await?,
        ))
    }

    async fn commit_tree(
        &self,
        tree: &str,
        parent: Option<&str>,
        signature: &CommitSignature,
        message: &str,
    ) -> Result<String, DeliverError> {
        let person = signature.git_environment();
        let person: Vec<(&str, &OsStr)> =
            person.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        let mut args = vec!["commit-tree"];
        args.extend(parent.iter().flat_map(|parent| ["-p", parent]));
        args.push(tree);
        Ok(trim_output_line(self.git_dir.run_with_env(&args, &person, message.as_bytes().to_vec()).await?))
    }

    /// Applies the run's change to the tree of `anchor`.
    async fn merge_onto(&self, anchor: &str, onto: &str) -> Result<String, DeliverError> {
        if anchor == self.base_commit {
            return Ok(self.tree.clone());
        }
        let (base, ours) =
            (self.resolve_tree_id(&self.base_commit).await?, self.resolve_tree_id(anchor).await?);
        if ours == base || base == self.tree {
            return Ok(if ours == base { self.tree.clone() } else { ours });
        }
        // Synthetic commits, so that git uses the pinned base as the merge base whatever happened to the
        // history.
        let nobody =
            CommitSignature { name: "docket".into(), email: "docket@localhost".into(), at_seconds: 0 };
        let base = self.commit_tree(&base, None, &nobody, "base\n").await?;
        let ours = self.commit_tree(&ours, Some(&base), &nobody, "ours\n").await?;
        let theirs = self.commit_tree(&self.tree, Some(&base), &nobody, "theirs\n").await?;
        let args = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", &ours, &theirs];
        let ended =
            run_for_status((self.git_dir.path(), self.git_dir.path()), &args, &[], Vec::new()).await?;
        let mut parts = ended.stdout.split(|b| *b == 0).filter(|part| !part.is_empty());
        let tree = parts.next().map(|part| String::from_utf8_lossy(part).into_owned());
        match (ended.exit, tree) {
            (crate::process::ChildExit::Exit(0), Some(tree)) => Ok(tree),
            (crate::process::ChildExit::Exit(1), Some(_)) => {
                let paths = parts.map(|path| String::from_utf8_lossy(path).into_owned());
                let paths = strip_side_suffixes(paths, &[&ours, &theirs]);
                Err(DeliverError::Conflict { onto: onto.to_owned(), paths })
            }
            // git printed its usage because it does not know the option.
            (crate::process::ChildExit::Exit(129), _) => {
                let what = "merging needs git 2.38 or later";
                Err(GitCallError::UnexpectedOutput { verb: "merge-tree", what }.into())
            }
            _ => Err(failed_call_error(&args, &ended).into()),
        }
    }

    /// Sends the objects of the commit that the repository may lack, including the complete base if its
    /// commit is missing there (because it contains uncommitted changes).
    async fn send_objects(&self, repo: &LocalRepo, commit: &str, parent: &str) -> Result<(), DeliverError> {
        let known = format!("{parent}^{{commit}}");
        let has_parent = match run_probe(&repo.git_dir, &["cat-file", "-e", &known]).await {
            Ok(_) => true,
            Err(GitCallError::Failed { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let mut args = vec!["rev-list", "--objects", "--no-object-names", commit];
        let not = format!("^{parent}");
        if has_parent {
            args.push(&not);
        }
        let names = self.git_dir.run(&args, Vec::new()).await?;
        let pack = self.git_dir.run(&["pack-objects", "-q", "--stdout", "--window=0"], names).await?;
        run_in_git_dir(&repo.git_dir, &["unpack-objects", "-q"], &[], pack).await?;
        Ok(())
    }
}

impl CommitSignature {
    fn git_environment(&self) -> [(&'static str, String); 6] {
        // Without the sign git reads small numbers as years.
        let date = format!("@{} +0000", self.at_seconds);
        [
            ("GIT_AUTHOR_NAME", self.name.clone()),
            ("GIT_AUTHOR_EMAIL", self.email.clone()),
            ("GIT_AUTHOR_DATE", date.clone()),
            ("GIT_COMMITTER_NAME", self.name.clone()),
            ("GIT_COMMITTER_EMAIL", self.email.clone()),
            ("GIT_COMMITTER_DATE", date),
        ]
    }
}

/// Moves the branch from the commit it was seen at, or creates it if it did not exist.
async fn update_branch_ref(
    repo: &LocalRepo,
    reference: &str,
    (old, new): (Option<&str>, &str),
    wanted: &BranchDelivery<'_>,
) -> Result<(), DeliverError> {
    let update = match old {
        None => format!("create {reference}\0{new}\0"),
        Some(old) => format!("update {reference}\0{new}\0{old}\0"),
    };
    let args = ["update-ref", "--stdin", "-z", "--create-reflog", "-m", "docket: delivered"];
    let person = wanted.signature.git_environment();
    let quiet = hook_disabling_env(&repo.git_dir).await?;
    let quiet = quiet.iter().filter_map(|(name, value)| Some((name.to_str()?, value.as_os_str())));
    let person = person.iter().map(|(name, value)| (*name, value.as_ref()));
    let env: Vec<(&str, &OsStr)> = person.chain(quiet).collect();
    match run_in_git_dir(&repo.git_dir, &args, &env, update.into_bytes()).await {
        Ok(_) => Ok(()),
        // The branch was created or moved since it was read.
        Err(error) => match branch_commit(repo, reference).await? {
            Some(at) if at == new => Ok(()),
            Some(at) if Some(at.as_str()) != old => {
                Err(DeliverError::BranchTaken { branch: wanted.branch.to_owned(), at })
            }
            Some(_) | None => Err(error.into()),
        },
    }
}

/// Returns the paths that `git apply` reports.
fn parse_apply_error_paths(stderr: &str) -> Vec<String> {
    let mut paths: Vec<String> = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("error: "))
        .filter_map(|line| match line.strip_prefix("patch failed: ") {
            Some(place) => place.rsplit_once(':').map(|(path, _)| path.to_owned()),
            None => line.rsplit_once(": ").map(|(path, _)| path.to_owned()),
        })
        .collect();
    paths.dedup();
    paths
}

/// Returns paths as they are in the trees: git appends the name of its side to a file that conflicts with a
/// folder.
fn strip_side_suffixes(paths: impl Iterator<Item = String>, sides: &[&str]) -> Vec<String> {
    let mut real: Vec<String> = paths
        .map(|path| {
            let cut = sides.iter().find_map(|side| path.rfind(&format!("~{side}")));
            cut.map_or_else(|| path.clone(), |at| path[..at].to_owned())
        })
        .collect();
    real.dedup();
    real
}

/// Refuses a branch name that is a folder of an existing branch's name, or the other way round: git cannot
/// store both.
pub(crate) async fn check_branch_name_conflict(repo: &LocalRepo, branch: &str) -> Result<(), DeliverError> {
    let error =
        |other: &str| DeliverError::BranchNameConflict { branch: branch.to_owned(), other: other.to_owned() };
    for (at, _) in branch.match_indices('/') {
        if branch_commit(repo, &format!("refs/heads/{}", &branch[..at])).await?.is_some() {
            return Err(error(&branch[..at]));
        }
    }
    let below = format!("refs/heads/{branch}/");
    let args = ["for-each-ref", "--count=1", "--format=%(refname)", &below];
    let found = trim_output_line(run_probe(&repo.git_dir, &args).await?);
    match found.strip_prefix("refs/heads/") {
        Some(other) => Err(error(other)),
        None => Ok(()),
    }
}

async fn parent_commit(repo: &LocalRepo, commit: &str) -> Result<Option<String>, DeliverError> {
    let first = format!("{commit}^1");
    let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &first];
    match run_probe(&repo.git_dir, &args).await {
        Ok(found) => Ok(Some(trim_output_line(found))),
        Err(GitCallError::Failed { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn is_checked_out(repo: &LocalRepo, reference: &str) -> Result<bool, DeliverError> {
    let listed = run_probe(&repo.git_dir, &["worktree", "list", "--porcelain"]).await?;
    let wanted = format!("branch {reference}");
    Ok(String::from_utf8_lossy(&listed).lines().any(|line| line == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_suffixes_are_stripped_from_conflict_paths() {
        let (ours, theirs) = ("1".repeat(40), "2".repeat(40));
        let told = [format!("dir~{ours}"), "dir".to_owned(), "a~b".to_owned(), format!("x/y~{theirs}")];
        let real = strip_side_suffixes(told.into_iter(), &[&ours, &theirs]);
        assert_eq!(real, ["dir", "a~b", "x/y"]);
        let stderr = "error: patch failed: a: b.txt:9\nerror: a: b.txt: patch does not apply\n\
                      error: new.txt: already exists in working directory\nwarning: x\n";
        assert_eq!(parse_apply_error_paths(stderr), ["a: b.txt", "new.txt"]);
    }
}
