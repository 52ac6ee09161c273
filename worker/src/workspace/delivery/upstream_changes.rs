//! What came onto a branch while a run was at work, for whoever is to make its result fit that: a person, or the model
//! that is told. Called where a result that conflicts is rejected.

use super::result_commit::{DeliverError, ResultCommit};
use crate::workspace::repository::local_repo::LocalRepo;

impl ResultCommit {
    /// What came onto the branch `from` in `paths` since the base was taken from it, as a patch of at most `bytes_max`
    /// bytes; none where the branch is where it was.
    ///
    /// # Errors
    /// [`DeliverError`].
    pub async fn diff_upstream(
        &self,
        repository: &std::path::Path,
        from: &str,
        paths: &[String],
        bytes_max: usize,
    ) -> Result<Option<String>, DeliverError> {
        let repo = LocalRepo::discover(repository).await?;
        self.borrow_objects(&repo)?;
        let now = self.upstream_tip(&repo, Some(from)).await?;
        if now == self.base_commit {
            return Ok(None);
        }
        // Names of files are no patterns: every git call of ours takes them literally.
        let mut args = vec!["diff", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"];
        args.extend([self.base_commit.as_str(), &now, "--"]);
        args.extend(paths.iter().map(String::as_str));
        let patch = self.git_dir.run(&args, Vec::new()).await?;
        let mut text = String::from_utf8_lossy(&patch).into_owned();
        if text.len() > bytes_max {
            let mut end = bytes_max;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push_str("\n[cut here]\n");
        }
        Ok(Some(text))
    }
}
