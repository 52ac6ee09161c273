//! Which files hold a project's configuration: these are edited, never replaced whole.

use docket_schema::content::WorkPath;

const NAMES: [&str; 38] = [
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
];

/// Beginnings of names such as `vite.config.ts` and `.eslintrc.json`.
const STEMS: [&str; 14] = [
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
];

/// Whether `path` names a configuration file.
pub(super) fn is_config(path: &WorkPath) -> bool {
    let Some(name) = path.parts().last().and_then(|name| std::str::from_utf8(name).ok()) else {
        return false;
    };
    NAMES.contains(&name) || STEMS.iter().any(|stem| name.starts_with(stem))
}

/// Share of a configuration file's lines that must survive an edit of it.
const KEPT_MIN_PERCENT: usize = 50;
/// Files with fewer lines than this change as a whole by any edit.
const LINES_MIN: usize = 6;

/// Whether an edit leaves so little of the old lines that it is a replacement.
pub(super) fn is_replaced_whole(before: &[u8], after: &[u8]) -> bool {
    let solid = |bytes: &[u8]| -> Vec<Vec<u8>> {
        bytes
            .split(|b| *b == b'\n')
            .map(|line| line.trim_ascii().to_vec())
            .filter(|line| !line.is_empty())
            .collect()
    };
    let (old, new) = (solid(before), solid(after));
    let mut left = std::collections::HashMap::<&[u8], usize>::new();
    for line in &new {
        *left.entry(line).or_default() += 1;
    }
    let kept = old
        .iter()
        .filter(|line| left.get_mut(line.as_slice()).filter(|n| **n > 0).map(|n| *n -= 1).is_some())
        .count();
    old.len() >= LINES_MIN && kept * 100 < old.len() * KEPT_MIN_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_files_are_known_at_any_depth() {
        let path = |text: &str| WorkPath::new(text).expect("legal");
        for name in ["package.json", "a/b/Cargo.toml", "vite.config.ts", ".eslintrc.cjs"] {
            assert!(is_config(&path(name)), "{name}");
        }
        assert!(!is_config(&path("src/package.rs")));
    }

    #[test]
    fn a_changed_line_is_no_replacement() {
        let before = b"a\nb\nc\nd\ne\nf\n";
        assert!(!is_replaced_whole(before, b"a\nb\nc\nd\ne\nX\nY\n"));
        assert!(is_replaced_whole(before, b"q\nb\nc\n"));
        assert!(!is_replaced_whole(b"a\n", b"b\n"));
    }
}
