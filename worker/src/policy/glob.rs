//! A glob of paths, by the rules that policies have, for others who speak of paths.

use globset::GlobMatcher;

use super::evaluate::compile_glob;

/// See the module: `*` stays within a folder and `**` goes on below; a glob without a slash is about the name in any
/// folder, and one that ends with a slash about all below a folder.
#[derive(Debug, Clone)]
pub struct PathGlob {
    text: String,
    matcher: GlobMatcher,
}

impl PathGlob {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("it must be a glob, as tests/**".to_owned());
        }
        let matcher = compile_glob(text).map_err(|error| format!("it must be a glob: {error}"))?;
        Ok(Self { text: text.to_owned(), matcher })
    }

    /// Whether it means this path.
    pub fn matches(&self, path: &str) -> bool {
        self.matcher.is_match(path)
    }

    /// As it was written.
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
