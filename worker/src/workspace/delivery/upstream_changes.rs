//! Diff of a branch since a run's base commit, limited to given paths. It is shown to a person or a model
//! that resolves a conflict. Called when a conflicting result is rejected.

use super::result_commit::{DeliverError, ResultCommit};
use crate::workspace::repository::local_repo::LocalRepo;

impl ResultCommit {
    /// Returns the changes to `paths` on the branch `from` since the base was taken from it, as a patch of at
    /// most `bytes_max` bytes; `None` if the branch has not moved.
    ///
    /// # Errors
    /// [`DeliverError`] if the branch cannot be read or git fails.
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
        // File names are not patterns: all our git calls take them literally.
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
