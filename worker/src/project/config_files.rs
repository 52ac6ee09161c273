//! Recognizes a project's configuration files: these are edited, never replaced as a whole.

use docket_schema::content::WorkspacePath;

const CONFIG_FILE_NAMES: [&str; 52] = [
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "tox.ini",
    "pytest.ini",
    "requirements.txt",
    "Pipfile",
    "poetry.lock",
    "uv.lock",
    "package.json",
    "package-lock.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "pnpm-workspace.yaml",
    "tsconfig.json",
    "jsconfig.json",
    "biome.json",
    "deno.json",
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "clippy.toml",
    "go.mod",
    "go.sum",
    "go.work",
    "Makefile",
    "CMakeLists.txt",
    "meson.build",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "Gemfile",
    "composer.json",
    "mix.exs",
    "Dockerfile",
    ".gitignore",
    ".editorconfig",
    "Pipfile.lock",
    "pdm.lock",
    "environment.yml",
    "ruff.toml",
    "mypy.ini",
    ".flake8",
    ".pre-commit-config.yaml",
    "deno.jsonc",
    "nx.json",
    "turbo.json",
    "Gemfile.lock",
    "composer.lock",
    "settings.gradle",
    "settings.gradle.kts",
];

/// Prefixes of names such as `vite.config.ts` and `.eslintrc.json`.
const CONFIG_FILE_PREFIXES: [&str; 15] = [
    "vite.config.",
    "vitest.config.",
    "jest.config.",
    "webpack.config.",
    "rollup.config.",
    "babel.config.",
    "eslint.config.",
    "prettier.config.",
    "tailwind.config.",
    "next.config.",
    ".eslintrc",
    ".prettierrc",
    "docker-compose.",
    "tsconfig.",
    "requirements-",
];

pub(crate) fn is_config_file(path: &WorkspacePath) -> bool {
    let Some(name) = path.components().last().and_then(|name| std::str::from_utf8(name).ok()) else {
        return false;
    };
    CONFIG_FILE_NAMES.contains(&name) || CONFIG_FILE_PREFIXES.iter().any(|stem| name.starts_with(stem))
}

/// Percentage of a configuration file's lines that must survive an edit.
const RETAINED_MIN_PERCENT: usize = 50;
/// A legitimate edit may change every line of a file with fewer lines than this, so its words are compared instead.
const LINES_MIN: usize = 6;
/// Any edit can replace most of a file with fewer words than this.
const WORDS_MIN: usize = 6;

/// Whether an edit leaves so little of the old content that it is a replacement.
pub(crate) fn is_full_replacement(before: &[u8], after: &[u8]) -> bool {
    let lines = |bytes: &'_ [u8]| -> Vec<Vec<u8>> {
        let solid = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        solid.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let words = |bytes: &'_ [u8]| -> Vec<Vec<u8>> {
        let words = bytes.split(|byte| !byte.is_ascii_alphanumeric() && *byte < 128);
        words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let old = lines(before);
    if old.len() >= LINES_MIN {
        return retained_percent(&old, &lines(after)) < RETAINED_MIN_PERCENT;
    }
    let old = words(before);
    old.len() >= WORDS_MIN && retained_percent(&old, &words(after)) < RETAINED_MIN_PERCENT
}

/// Percentage of `old` that is also in `new`, counting duplicates.
fn retained_percent(old: &[Vec<u8>], new: &[Vec<u8>]) -> usize {
    let mut left = std::collections::HashMap::<&[u8], usize>::new();
    for part in new {
        *left.entry(part).or_default() += 1;
    }
    let kept = old
        .iter()
        .filter(|part| left.get_mut(part.as_slice()).filter(|n| **n > 0).map(|n| *n -= 1).is_some())
        .count();
    kept * 100 / old.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_files_are_recognized_at_any_depth() {
        let path = |text: &str| WorkspacePath::new(text).expect("legal");
        for name in ["package.json", "a/b/Cargo.toml", "vite.config.ts", ".eslintrc.cjs"] {
            assert!(is_config_file(&path(name)), "{name}");
        }
        assert!(!is_config_file(&path("src/package.rs")));
    }

    #[test]
    fn small_edit_is_not_a_replacement() {
        let before = b"a\nb\nc\nd\ne\nf\n";
        assert!(!is_full_replacement(before, b"a\nb\nc\nd\ne\nX\nY\n"));
        assert!(is_full_replacement(before, b"q\nb\nc\n"));
        assert!(!is_full_replacement(b"a\n", b"b\n"));
        // A file of one long line is compared by its words.
        let one = b"{\"name\":\"a\",\"version\":\"1\",\"type\":\"module\",\"main\":\"x\"}\n";
        assert!(!is_full_replacement(
            one,
            b"{\"name\":\"a\",\"version\":\"2\",\"type\":\"module\",\"main\":\"x\"}\n"
        ));
        assert!(is_full_replacement(one, b"{\"private\": true}\n"));
    }
}
