//! Path globs with the semantics of policies, for other modules that select paths.

use globset::GlobMatcher;

use super::evaluate::compile_glob;

/// A path glob: `*` stays within a folder, `**` crosses folders, a glob without a slash matches the name in any
/// folder, and one that ends with a slash matches everything below a folder.
#[derive(Debug, Clone)]
pub struct PathGlob {
    text: String,
    matcher: GlobMatcher,
}

impl PathGlob {
    /// Parses a glob.
    ///
    /// # Errors
    /// Describes why the glob is invalid.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("it must be a glob, as tests/**".to_owned());
        }
        let matcher = compile_glob(text).map_err(|error| format!("it must be a glob: {error}"))?;
        Ok(Self { text: text.to_owned(), matcher })
    }

    /// Whether the glob matches this path.
    pub fn matches(&self, path: &str) -> bool {
        self.matcher.is_match(path)
    }

    /// The glob as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::PathGlob;

    #[test]
    fn glob_matches_like_a_policy_rule() {
        for (glob, path, means) in [
            ("tests/**", "tests/a/b.py", true),
            ("tests/", "tests/a/b.py", true),
            ("tests/*", "tests/a/b.py", false),
            ("*.key", "deep/in/a.key", true),
            ("./a.py", "a.py", true),
            ("a.py", "b.py", false),
        ] {
            assert_eq!(PathGlob::new(glob).expect(glob).matches(path), means, "{glob} {path}");
        }
        for wrong in ["", " ", "a[", "{a"] {
            assert!(PathGlob::new(wrong).expect_err(wrong).contains("glob"));
        }
    }
}
