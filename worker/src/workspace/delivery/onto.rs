//! A run's change laid onto a branch: onto what came there since the run's base was pinned, or onto what docket
//! delivered before.
//!
//! The merge is made in docket's own git folder, of trees alone, and the source repository gets objects and a ref
//! only once all is sure. Invariants: the same run onto the same commits is the same commit, so that a repeated
//! delivery is known by its id; a branch that is not docket's is never moved, and one that is only goes forward; no
//! merge driver, filter or hook of the repository runs.

use std::{ffi::OsStr, fs, io::Write as _, path::Path};

use super::deliver::{DIFF_AS_PATCH, DeliverError, ResultCommit, Signature, branch_at};
use crate::workspace::repository::{
    git::{GitCallError, alternates_file, ended_at, line, look_at, refused, run_at, without_hooks},
    reach::check_writing,
    source::LocalRepo,
};

/// A branch that is to hold a result.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Its name.
    pub branch: &'a str,
    /// The commit's message.
    pub message: &'a str,
    /// Author, committer and time.
    pub signature: &'a Signature,
    /// Commits that were delivered for the same task before: onto these another may be put.
    pub own: &'a [Own],
    /// Put it also onto what a run delivered that this one does not stand on, though that undoes it.
    pub replace: bool,
    /// The branch that the base was taken from: where it moved, the result is laid onto what it is now. None = the
    /// result stands on its base.
    pub from: Option<&'a str>,
}

/// A commit that was delivered for a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Its name.
    pub commit: String,
    /// Whose result it is.
    pub of: Whose,
}

/// Whose result a delivered commit is, as seen from the run whose result is delivered now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This run's own.
    Same,
    /// A run's that this one stands on: it has what that one did.
    Earlier,
    /// Another run's, of whose work this one knows nothing.
    Other,
}

/// A branch that holds the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The commit it is at.
    pub commit: String,
    /// The commit under it.
    pub parent: String,
}

/// Where a commit is put, and the commit whose tree the change is laid onto: another one where docket's own stand
/// between them.
struct Place {
    parent: String,
    anchor: String,
}

impl ResultCommit {
    /// Puts the result as one commit on top of the base into `repository`, as the new branch `branch`, whatever came
    /// there since; the commit's id. Delivering the same again changes nothing and answers the same.
    ///
    /// # Errors
    /// [`DeliverError`]; [`DeliverError::BranchTaken`] where the branch is another commit.
    pub async fn deliver_branch(
        &self,
        repository: &Path,
        branch: &str,
        message: &str,
        signature: &Signature,
    ) -> Result<String, DeliverError> {
        let wanted = Wanted { branch, message, signature, own: &[], replace: false, from: None };
        self.deliver_onto(repository, &wanted).await.map(|made| made.commit)
    }

    /// Puts the result as one commit into `repository`, as `wanted` says. Delivering the same again changes nothing
    /// and answers the same.
    ///
    /// # Errors
    /// [`DeliverError`]; [`DeliverError::BranchTaken`] where the branch holds other work,
    /// [`DeliverError::Conflict`] where the change cannot be laid onto what came meanwhile, and
    /// [`DeliverError::Nothing`] where there is no change.
    pub async fn deliver_onto(&self, repository: &Path, wanted: &Wanted<'_>) -> Result<Made, DeliverError> {
        let branch = wanted.branch;
        let reference = format!("refs/heads/{branch}");
        match self.own.run(&["check-ref-format", &reference], Vec::new()).await {
            Ok(_) if !branch.starts_with('-') => {}
            Ok(_) | Err(GitCallError::Refused { .. }) => {
                return Err(DeliverError::BranchName(branch.to_owned()));
            }
            Err(error) => return Err(error.into()),
        }
        let repo = LocalRepo::find(repository).await?;
        in_the_way(&repo, branch).await?;
        check_writing(&repo.git_dir, &repo.common_dir, &reference)?;
        self.borrow_objects(&repo)?;
        let tip = branch_at(&repo, &reference).await?;
        let place = match &tip {
            None => {
                let parent = self.moved_to(&repo, wanted.from).await?;
                Place { anchor: parent.clone(), parent }
            }
            Some(tip) => {
                if let Some(made) = self.made_before(&repo, tip, wanted).await? {
                    return Ok(made);
                }
                if let Some(made) = self.under_tip(&repo, tip, wanted).await? {
                    return Ok(made);
                }
                let Some(last) = wanted.own.iter().rfind(|own| own.commit == *tip) else {
                    return Err(DeliverError::BranchTaken { branch: branch.to_owned(), at: tip.clone() });
                };
                if last.of == Whose::Other && !wanted.replace {
                    return Err(DeliverError::Undoes { branch: branch.to_owned(), at: tip.clone() });
                }
                if is_checked_out(&repo, &reference).await? {
                    return Err(DeliverError::CheckedOut(branch.to_owned()));
                }
                Place { parent: tip.clone(), anchor: self.under_own(&repo, tip, wanted.own).await? }
            }
        };
        let onto = wanted.from.unwrap_or(branch);
        let tree = self.tree_onto(&place.anchor, onto).await?;
        if tree == self.tree_of(&place.parent).await? {
            // On top of what an earlier run delivered that is the result as well; otherwise nobody wants a branch.
            let parent = self.under_own(&repo, &place.parent, wanted.own).await?;
            return tip.map(|commit| Made { commit, parent }).ok_or(DeliverError::Nothing);
        }
        let commit = self.commit_on(&tree, &place, wanted).await?;
        self.send_objects(&repo, &commit, &place.parent).await?;
        move_branch(&repo, &reference, (tip.as_deref(), &commit), wanted).await?;
        Ok(Made { commit, parent: place.parent })
    }

    /// The change as a patch onto the commit that is checked out in `repository`, laid onto its files: all or nothing.
    /// What is not committed there stays, and is in the way only where the change is.
    ///
    /// # Errors
    /// As [`ResultCommit::deliver_onto`]; [`DeliverError::FilesDiffer`] where the files differ from their commit at the
    /// place. Answers whether there was anything to do: what has the change already has it.
    pub async fn apply_to_files(&self, repository: &Path) -> Result<bool, DeliverError> {
        let repo = LocalRepo::find(repository).await?;
        let Some(files) = &repo.work_tree else {
            let why = "it has no work tree: name a branch".to_owned();
            return Err(GitCallError::Refused { verb: "apply".to_owned(), message: why }.into());
        };
        self.borrow_objects(&repo)?;
        let head = repo.resolve(None).await?.commit;
        let tree = self.tree_onto(&head, "HEAD").await?;
        let patch = self.own.run(&[&DIFF_AS_PATCH[..], &[&head, &tree]].concat(), Vec::new()).await?;
        if patch.is_empty() {
            return Ok(false);
        }
        let env: [(&str, &OsStr); 1] = [("GIT_WORK_TREE", files.as_os_str())];
        let ran = async |args: &[&str]| ended_at((self.own.path(), files), args, &env, patch.clone()).await;
        let check = ran(&["apply", "--check", "--whitespace=nowarn"]).await?;
        if !check.success() {
            let is_there = ran(&["apply", "--check", "--reverse", "--whitespace=nowarn"]).await?.success();
            let paths = paths_told(&String::from_utf8_lossy(&check.stderr));
            return if is_there { Ok(false) } else { Err(DeliverError::FilesDiffer { paths }) };
        }
        let args = ["apply", "--whitespace=nowarn"];
        let ended = ran(&args).await?;
        if ended.success() { Ok(true) } else { Err(refused(&args, &ended).into()) }
    }

    /// Lets docket's own folder read what the repository holds, and know where its history is cut.
    pub(crate) fn borrow_objects(&self, repo: &LocalRepo) -> Result<(), DeliverError> {
        let list = self.own.path().join("objects/info/alternates");
        let fail = |source| DeliverError::Scratch { path: list.clone(), source };
        let more = alternates_file(&[&repo.objects()]);
        let there = fs::read(&list).unwrap_or_default();
        if there.windows(more.len()).any(|lines| lines == more) {
            return Ok(());
        }
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&list).map_err(fail)?;
        file.write_all(&more).map_err(fail)?;
        let cut = fs::read(repo.common_dir.join("shallow")).unwrap_or_default();
        let mut file =
            fs::OpenOptions::new().append(true).open(self.own.path().join("shallow")).map_err(fail)?;
        file.write_all(&cut).map_err(fail)
    }

    /// What the branch that the base was taken from is at now; the base where it has not gone on.
    pub(crate) async fn moved_to(
        &self,
        repo: &LocalRepo,
        from: Option<&str>,
    ) -> Result<String, DeliverError> {
        let base = || self.base_commit.clone();
        let Some(from) = from else { return Ok(base()) };
        let Some(now) = branch_at(repo, &format!("refs/heads/{from}")).await? else { return Ok(base()) };
        // A base of uncommitted changes stands on what was checked out.
        let raw = self.own.run(&["cat-file", "commit", &self.base_commit], Vec::new()).await?;
        let raw = String::from_utf8_lossy(&raw);
        let mut parents = raw.lines().map_while(|line| (!line.is_empty()).then_some(line));
        let is_under = parents.any(|line| line.strip_prefix("parent ") == Some(&now));
        Ok(if now == self.base_commit || is_under { base() } else { now })
    }

    /// The result again, if the branch's tip is exactly what this run's delivery makes.
    async fn made_before(
        &self,
        repo: &LocalRepo,
        tip: &str,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Made>, DeliverError> {
        let Some(parent) = parent_of(repo, tip).await? else { return Ok(None) };
        let anchor = self.under_own(repo, &parent, wanted.own).await?;
        let place = Place { parent, anchor };
        match self.commit(&place, wanted.branch, wanted).await {
            Ok(commit) if commit == tip => Ok(Some(Made { commit, parent: place.parent })),
            Ok(_) | Err(DeliverError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// This run's own commit, if it was delivered before and the branch has gone on from it: by a later run of the
    /// task, or by a person.
    async fn under_tip(
        &self,
        repo: &LocalRepo,
        tip: &str,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Made>, DeliverError> {
        for own in wanted.own.iter().filter(|own| own.of == Whose::Same) {
            let args = ["merge-base", "--is-ancestor", &own.commit, tip];
            match look_at(&repo.git_dir, &args).await {
                Ok(_) => {
                    let parent = parent_of(repo, &own.commit).await?.unwrap_or_default();
                    return Ok(Some(Made { commit: own.commit.clone(), parent }));
                }
                // It is not, or it is not there at all.
                Err(GitCallError::Refused { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// The first commit at or under `commit` that was not delivered for the task.
    async fn under_own(&self, repo: &LocalRepo, commit: &str, own: &[Own]) -> Result<String, DeliverError> {
        let mut at = commit.to_owned();
        // Each is passed once at most, for no commit is its own ancestor.
        for _ in own {
            if !own.iter().any(|own| own.commit == at) {
                break;
            }
            let Some(parent) = parent_of(repo, &at).await? else { break };
            at = parent;
        }
        Ok(at)
    }

    async fn commit(&self, place: &Place, onto: &str, wanted: &Wanted<'_>) -> Result<String, DeliverError> {
        let tree = self.tree_onto(&place.anchor, onto).await?;
        self.commit_on(&tree, place, wanted).await
    }

    async fn commit_on(
        &self,
        tree: &str,
        place: &Place,
        wanted: &Wanted<'_>,
    ) -> Result<String, DeliverError> {
        self.commit_tree(tree, Some(&place.parent), wanted.signature, wanted.message).await
    }

    async fn tree_of(&self, commit: &str) -> Result<String, DeliverError> {
        let peeled = format!("{commit}^{{tree}}");
        Ok(line(self.own.run(&["rev-parse", "--verify", "--end-of-options", &peeled], Vec::new()).await?))
    }

    async fn commit_tree(
        &self,
        tree: &str,
        parent: Option<&str>,
        signature: &Signature,
        message: &str,
    ) -> Result<String, DeliverError> {
        let person = signature.environment();
        let person: Vec<(&str, &OsStr)> =
            person.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        let mut args = vec!["commit-tree"];
        args.extend(parent.iter().flat_map(|parent| ["-p", parent]));
        args.push(tree);
        Ok(line(self.own.run_env(&args, &person, message.as_bytes().to_vec()).await?))
    }

    /// The tree of `anchor` with the run's change laid onto it.
    async fn tree_onto(&self, anchor: &str, onto: &str) -> Result<String, DeliverError> {
        if anchor == self.base_commit {
            return Ok(self.tree.clone());
        }
        let (base, ours) = (self.tree_of(&self.base_commit).await?, self.tree_of(anchor).await?);
        if ours == base || base == self.tree {
            return Ok(if ours == base { self.tree.clone() } else { ours });
        }
        // Commits of their own, so that git finds the base by what was pinned, whatever became of the history.
        let nobody = Signature { name: "docket".into(), email: "docket@localhost".into(), at_seconds: 0 };
        let base = self.commit_tree(&base, None, &nobody, "base\n").await?;
        let ours = self.commit_tree(&ours, Some(&base), &nobody, "ours\n").await?;
        let theirs = self.commit_tree(&self.tree, Some(&base), &nobody, "theirs\n").await?;
        let args = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", &ours, &theirs];
        let ended = ended_at((self.own.path(), self.own.path()), &args, &[], Vec::new()).await?;
        let mut parts = ended.stdout.split(|b| *b == 0).filter(|part| !part.is_empty());
        let tree = parts.next().map(|part| String::from_utf8_lossy(part).into_owned());
        match (ended.exit, tree) {
            (crate::process::ChildExit::Exit(0), Some(tree)) => Ok(tree),
            (crate::process::ChildExit::Exit(1), Some(_)) => {
                let paths = parts.map(|path| String::from_utf8_lossy(path).into_owned());
                let paths = real_paths(paths, &[&ours, &theirs]);
                Err(DeliverError::Conflict { onto: onto.to_owned(), paths })
            }
            // Its usage, since it knows no such option.
            (crate::process::ChildExit::Exit(129), _) => {
                let what = "merging needs git 2.38 or later";
                Err(GitCallError::Answer { verb: "merge-tree", what }.into())
            }
            _ => Err(refused(&args, &ended).into()),
        }
    }

    /// The objects of the commit that the repository may lack; the whole base too where its commit is not
    /// there (uncommitted changes were part of it).
    async fn send_objects(&self, repo: &LocalRepo, commit: &str, parent: &str) -> Result<(), DeliverError> {
        let known = format!("{parent}^{{commit}}");
        let has_parent = match look_at(&repo.git_dir, &["cat-file", "-e", &known]).await {
            Ok(_) => true,
            Err(GitCallError::Refused { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let mut args = vec!["rev-list", "--objects", "--no-object-names", commit];
        let not = format!("^{parent}");
        if has_parent {
            args.push(&not);
        }
        let names = self.own.run(&args, Vec::new()).await?;
        let pack = self.own.run(&["pack-objects", "-q", "--stdout", "--window=0"], names).await?;
        run_at(&repo.git_dir, &["unpack-objects", "-q"], &[], pack).await?;
        Ok(())
    }
}

impl Signature {
    fn environment(&self) -> [(&'static str, String); 6] {
        // Without the sign git takes small numbers for years.
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

/// Moves the branch from where it was looked at, or makes it where it was not there.
async fn move_branch(
    repo: &LocalRepo,
    reference: &str,
    (old, new): (Option<&str>, &str),
    wanted: &Wanted<'_>,
) -> Result<(), DeliverError> {
    let update = match old {
        None => format!("create {reference}\0{new}\0"),
        Some(old) => format!("update {reference}\0{new}\0{old}\0"),
    };
    let args = ["update-ref", "--stdin", "-z", "--create-reflog", "-m", "docket: delivered"];
    let person = wanted.signature.environment();
    let quiet = without_hooks(&repo.git_dir).await?;
    let quiet = quiet.iter().filter_map(|(name, value)| Some((name.to_str()?, value.as_os_str())));
    let person = person.iter().map(|(name, value)| (*name, value.as_ref()));
    let env: Vec<(&str, &OsStr)> = person.chain(quiet).collect();
    match run_at(&repo.git_dir, &args, &env, update.into_bytes()).await {
        Ok(_) => Ok(()),
        // Somebody made or moved the branch since we looked.
        Err(error) => match branch_at(repo, reference).await? {
            Some(at) if at == new => Ok(()),
            Some(at) if Some(at.as_str()) != old => {
                Err(DeliverError::BranchTaken { branch: wanted.branch.to_owned(), at })
            }
            Some(_) | None => Err(error.into()),
        },
    }
}

/// The paths that `git apply` complains of.
fn paths_told(stderr: &str) -> Vec<String> {
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

/// Paths as they are in the trees: a file that a folder stands in the way of has the name of its side behind it.
fn real_paths(paths: impl Iterator<Item = String>, sides: &[&str]) -> Vec<String> {
    let mut real: Vec<String> = paths
        .map(|path| {
            let cut = sides.iter().find_map(|side| path.rfind(&format!("~{side}")));
            cut.map_or_else(|| path.clone(), |at| path[..at].to_owned())
        })
        .collect();
    real.dedup();
    real
}

/// Branches whose names are folders of each other cannot be there together.
/// Refuses a branch that is a folder of another one's name, or that another one is a folder of.
pub(crate) async fn in_the_way(repo: &LocalRepo, branch: &str) -> Result<(), DeliverError> {
    let error = |other: &str| DeliverError::InTheWay { branch: branch.to_owned(), other: other.to_owned() };
    for (at, _) in branch.match_indices('/') {
        if branch_at(repo, &format!("refs/heads/{}", &branch[..at])).await?.is_some() {
            return Err(error(&branch[..at]));
        }
    }
    let below = format!("refs/heads/{branch}/");
    let args = ["for-each-ref", "--count=1", "--format=%(refname)", &below];
    let found = line(look_at(&repo.git_dir, &args).await?);
    match found.strip_prefix("refs/heads/") {
        Some(other) => Err(error(other)),
        None => Ok(()),
    }
}

async fn parent_of(repo: &LocalRepo, commit: &str) -> Result<Option<String>, DeliverError> {
    let first = format!("{commit}^1");
    let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &first];
    match look_at(&repo.git_dir, &args).await {
        Ok(found) => Ok(Some(line(found))),
        Err(GitCallError::Refused { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn is_checked_out(repo: &LocalRepo, reference: &str) -> Result<bool, DeliverError> {
    let listed = look_at(&repo.git_dir, &["worktree", "list", "--porcelain"]).await?;
    let wanted = format!("branch {reference}");
    Ok(String::from_utf8_lossy(&listed).lines().any(|line| line == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_as_they_are_in_the_trees() {
        let (ours, theirs) = ("1".repeat(40), "2".repeat(40));
        let told = [format!("dir~{ours}"), "dir".to_owned(), "a~b".to_owned(), format!("x/y~{theirs}")];
        let real = real_paths(told.into_iter(), &[&ours, &theirs]);
        assert_eq!(real, ["dir", "a~b", "x/y"]);
        let stderr = "error: patch failed: a: b.txt:9\nerror: a: b.txt: patch does not apply\n\
                      error: new.txt: already exists in working directory\nwarning: x\n";
        assert_eq!(paths_told(stderr), ["a: b.txt", "new.txt"]);
    }
}
