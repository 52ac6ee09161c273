//! Maps file names to languages and their grammars.

/// A language that has a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceLanguage {
    Bash,
    C,
    Cpp,
    Go,
    Java,
    JavaScript,
    Json,
    Python,
    Rust,
    Toml,
    Tsx,
    TypeScript,
    Yaml,
}

impl SourceLanguage {
    /// The display name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bash => "shell",
            Self::C => "C",
            Self::Cpp => "C++",
            Self::Go => "Go",
            Self::Java => "Java",
            Self::JavaScript => "JavaScript",
            Self::Json => "JSON",
            Self::Python => "Python",
            Self::Rust => "Rust",
            Self::Toml => "TOML",
            Self::Tsx => "TSX",
            Self::TypeScript => "TypeScript",
            Self::Yaml => "YAML",
        }
    }

    pub(super) fn grammar(self) -> tree_sitter::Language {
        match self {
            Self::Bash => tree_sitter_bash::LANGUAGE,
            Self::C => tree_sitter_c::LANGUAGE,
            Self::Cpp => tree_sitter_cpp::LANGUAGE,
            Self::Go => tree_sitter_go::LANGUAGE,
            Self::Java => tree_sitter_java::LANGUAGE,
            Self::JavaScript => tree_sitter_javascript::LANGUAGE,
            Self::Json => tree_sitter_json::LANGUAGE,
            Self::Python => tree_sitter_python::LANGUAGE,
            Self::Rust => tree_sitter_rust::LANGUAGE,
            Self::Toml => tree_sitter_toml_ng::LANGUAGE,
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX,
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
            Self::Yaml => tree_sitter_yaml::LANGUAGE,
        }
        .into()
    }
}

/// Folders whose files may be broken on purpose.
const FIXTURE_FOLDERS: [&str; 9] = [
    "fixture",
    "fixtures",
    "__fixtures__",
    "testdata",
    "test_data",
    "test-data",
    "corpus",
    "snapshots",
    "__snapshots__",
];

/// Whether a file of this name must parse at the end of a run. Excluded are C and C++ (macros change the grammar), YAML
/// (often generated from templates), shell (each shell has its own syntax) and test fixtures.
#[must_use]
pub fn must_parse(path: &str) -> bool {
    use SourceLanguage::{
        Bash, C, Cpp, Go, Java, JavaScript, Json, Python, Rust, Toml, Tsx, TypeScript, Yaml,
    };
    let is_strict = |language: &SourceLanguage| match language {
        Bash | C | Cpp | Yaml => false,
        Go | Java | JavaScript | Json | Python | Rust | Toml | Tsx | TypeScript => true,
    };
    let material = |part: &str| {
        let part = part.to_ascii_lowercase();
        FIXTURE_FOLDERS.contains(&part.as_str())
    };
    let languages = languages_for_path(path);
    // Many JSON configuration files allow comments and trailing commas.
    let is_json =
        languages == [Json] && !path.ends_with("package.json") && !path.ends_with("package-lock.json");
    !languages.is_empty()
        && languages.iter().all(is_strict)
        && !is_json
        && !path.rsplit('/').skip(1).any(material)
}

/// Languages that a file of this name may be in: text that is valid in one of them is valid. Empty if there is no
/// grammar.
pub(super) fn languages_for_path(path: &str) -> &'static [SourceLanguage] {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    match name.as_str() {
        "cargo.lock" | "poetry.lock" | "uv.lock" | "pdm.lock" | "pipfile" => return &[SourceLanguage::Toml],
        ".clang-format" | ".clang-tidy" => return &[SourceLanguage::Yaml],
        _ => {}
    }
    let Some((stem, end)) = name.rsplit_once('.') else { return &[] };
    match end {
        // A hidden file such as `.json` has no extension.
        _ if stem.is_empty() => &[],
        "sh" | "bash" => &[SourceLanguage::Bash],
        "c" => &[SourceLanguage::C],
        "h" => &[SourceLanguage::C, SourceLanguage::Cpp],
        "cc" | "cpp" | "cxx" | "c++" | "hh" | "hpp" | "hxx" | "ipp" => &[SourceLanguage::Cpp],
        "go" => &[SourceLanguage::Go],
        "java" => &[SourceLanguage::Java],
        // Some toolchains allow type annotations in these files.
        "js" | "mjs" | "cjs" | "jsx" => &[SourceLanguage::JavaScript, SourceLanguage::Tsx],
        "json" | "jsonc" | "webmanifest" | "geojson" | "ipynb" => &[SourceLanguage::Json],
        "py" | "pyi" | "pyw" => &[SourceLanguage::Python],
        "rs" => &[SourceLanguage::Rust],
        "toml" => &[SourceLanguage::Toml],
        "tsx" => &[SourceLanguage::Tsx],
        "ts" | "mts" | "cts" => &[SourceLanguage::TypeScript],
        "yaml" | "yml" => &[SourceLanguage::Yaml],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_follows_the_file_name() {
        for (path, want) in [
            ("src/a.py", &[SourceLanguage::Python][..]),
            ("A.TSX", &[SourceLanguage::Tsx]),
            ("inc/x.h", &[SourceLanguage::C, SourceLanguage::Cpp]),
            ("Cargo.lock", &[SourceLanguage::Toml]),
            ("notes.md", &[]),
            ("Makefile", &[]),
            ("dir.py/file", &[]),
            (".json", &[]),
        ] {
            assert_eq!(languages_for_path(path), want, "{path}");
        }
    }

    #[test]
    fn only_strict_source_files_must_parse() {
        for path in
            ["a.py", "src/a.rs", "a.tsx", "web/package.json", "Cargo.toml", "a.mjs", "x/A.java", "a.go"]
        {
            assert!(must_parse(path), "{path}");
        }
        for path in [
            "a.c",
            "a.h",
            "a.cpp",
            "a.yaml",
            "tsconfig.json",
            "notes.md",
            "tests/fixtures/bad.py",
            "go/testdata/a.go",
        ] {
            assert!(!must_parse(path), "{path}");
        }
    }

    #[test]
    fn every_grammar_loads_into_the_parser() {
        use SourceLanguage::{C, Cpp, Go, Java, JavaScript, Json, Python, Rust, Toml, Tsx, TypeScript, Yaml};
        for language in [C, Cpp, Go, Java, JavaScript, Json, Python, Rust, Toml, Tsx, TypeScript, Yaml] {
            let set = tree_sitter::Parser::new().set_language(&language.grammar());
            assert!(set.is_ok(), "{}: {set:?}", language.name());
        }
    }
}
