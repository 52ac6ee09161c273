//! Parses linter output into findings.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintFinding {
    /// Path of the file, as the linter prints it.
    pub path: String,
    /// Line number, from 1.
    pub line: usize,
    /// Column, from 1; 0 if the linter prints none.
    pub column: usize,
    /// Rule code, such as `F401`, `no-trailing-spaces` or `E0433`; empty if the linter prints none.
    pub code: String,
    pub message: String,
    /// Whether the linter marks its own fix of this finding as safe.
    pub has_safe_fix: bool,
}

impl LintFinding {
    /// Whether the finding is about `file`, a workspace path: linters print it in full or relative to the root.
    #[must_use]
    pub fn is_in(&self, file: &str) -> bool {
        let path = self.path.strip_prefix("./").unwrap_or(&self.path);
        path == file
            || path.strip_suffix(file).is_some_and(|folder| folder.starts_with('/') && folder.ends_with('/'))
    }
}

/// Parses the output of ruff, flake8, eslint, biome, rustfmt, cargo, gofmt or go vet. Lines of any other form are
/// skipped.
#[must_use]
pub fn parse_findings(output: &str) -> Vec<LintFinding> {
    let mut found = Vec::new();
    // eslint prints a file's name once, above its findings.
    let mut heading: Option<&str> = None;
    for line in output.lines() {
        if let Some(finding) = parse_github_annotation(line)
            .or_else(|| parse_rustfmt_diff(line))
            .or_else(|| parse_gofmt_line(line))
        {
            found.push(finding);
        } else if let Some(finding) = heading.and_then(|path| parse_eslint_row(path, line)) {
            found.push(finding);
        } else if let Some(finding) = parse_position_line(line) {
            found.push(finding);
        } else if line.is_empty() || line.starts_with(' ') {
            continue;
        } else {
            heading = Some(line);
        }
    }
    found
}

/// `path:line:column: CODE message`.
fn parse_position_line(line: &str) -> Option<LintFinding> {
    let line = line.strip_prefix("vet: ").unwrap_or(line);
    let mut parts = line.splitn(4, ':');
    let path = parts.next().filter(|path| !path.is_empty() && !path.starts_with(' '))?;
    let (at, column) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let said = parts.next()?.trim();
    let (code, message) = split_code(said);
    let (message, is_safe) = match message.strip_prefix("[*] ") {
        Some(message) if !code.is_empty() => (message.to_owned(), true),
        Some(_) | None => (message, false),
    };
    Some(LintFinding { path: path.to_owned(), line: at, column, code, message, has_safe_fix: is_safe })
}

fn split_code(said: &str) -> (String, String) {
    // rustc: `error[E0433]: …`, `warning: …`.
    if let Some((level, message)) = said.split_once(": ")
        && (level == "warning" || level == "error" || level.starts_with("error["))
    {
        let code = level.strip_prefix("error[").and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
        return (code.to_owned(), message.to_owned());
    }
    let (first, rest) = said.split_once(' ').unwrap_or((said, ""));
    let letters = first.chars().take_while(char::is_ascii_uppercase).count();
    let digits = first.chars().skip(letters).count();
    if letters > 0 && digits > 0 && first.chars().skip(letters).all(|c| c.is_ascii_digit()) {
        return (first.to_owned(), rest.to_owned());
    }
    (String::new(), said.to_owned())
}

/// eslint: `  1:8  error  'foo' is defined but never used  no-unused-vars`.
fn parse_eslint_row(path: &str, line: &str) -> Option<LintFinding> {
    let rest = line.strip_prefix("  ")?.trim_start();
    let (place, rest) = rest.split_once(' ')?;
    let (at, column) = place.split_once(':')?;
    let rest = rest.trim_start();
    let rest = rest.strip_prefix("error").or_else(|| rest.strip_prefix("warning"))?.trim_start();
    let (message, code) = rest.rsplit_once("  ")?;
    Some(LintFinding {
        path: path.to_owned(),
        line: at.parse().ok()?,
        column: column.parse().ok()?,
        code: code.trim().to_owned(),
        message: message.trim().to_owned(),
        has_safe_fix: false,
    })
}

/// biome: `::error title=RULE,file=PATH,line=1,endLine=1,col=8,endColumn=11::message`.
fn parse_github_annotation(line: &str) -> Option<LintFinding> {
    let rest = line.strip_prefix("::")?;
    let (head, message) = rest.split_once("::")?;
    let (_, fields) = head.split_once(' ')?;
    let field = |name: &str| fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    Some(LintFinding {
        path: field("file")?.to_owned(),
        line: field("line")?.parse().ok()?,
        column: field("col").and_then(|column| column.parse().ok()).unwrap_or(0),
        code: field("title").unwrap_or_default().to_owned(),
        message: message.to_owned(),
        has_safe_fix: false,
    })
}

const FORMAT_CODE: &str = "format";

/// rustfmt: `Diff in src/lib.rs:3:`.
fn parse_rustfmt_diff(line: &str) -> Option<LintFinding> {
    let rest = line.strip_prefix("Diff in ")?.strip_suffix(':')?;
    let (path, at) = rest.rsplit_once(':')?;
    let message = "not as rustfmt writes it".to_owned();
    Some(LintFinding {
        path: path.to_owned(),
        line: at.parse().ok()?,
        column: 0,
        code: FORMAT_CODE.to_owned(),
        message,
        has_safe_fix: false,
    })
}

/// gofmt's findings, as docket's check line prints them.
fn parse_gofmt_line(line: &str) -> Option<LintFinding> {
    let (path, message) =
        line.split_once(": ").filter(|(_, message)| *message == "not as gofmt writes it")?;
    let (path, message) = (path.to_owned(), message.to_owned());
    Some(LintFinding { path, line: 1, column: 0, code: FORMAT_CODE.to_owned(), message, has_safe_fix: false })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn summarize_findings(output: &str) -> Vec<String> {
        parse_findings(output)
            .iter()
            .map(|f| format!("{}:{}:{} {} {}", f.path, f.line, f.column, f.code, f.message))
            .collect()
    }

    #[test]
    fn python_linter_output_is_parsed() {
        let ruff = "a.py:1:8: F401 [*] `os` imported but unused\na.py:7:9: F821 Undefined name `Path`\nFound 2 errors.\n\
                    [*] 1 fixable with `--fix`.\n";
        assert_eq!(
            summarize_findings(ruff),
            ["a.py:1:8 F401 `os` imported but unused", "a.py:7:9 F821 Undefined name `Path`"]
        );
        assert_eq!(
            parse_findings(ruff).iter().map(|found| found.has_safe_fix).collect::<Vec<_>>(),
            [true, false]
        );
        assert_eq!(
            summarize_findings("./a.py:6:10: W291 trailing whitespace\n"),
            ["./a.py:6:10 W291 trailing whitespace"]
        );
    }

    #[test]
    fn javascript_linter_output_is_parsed() {
        let eslint = "\n/project/a.js\n  1:8   error  'foo' is defined but never used                no-unused-vars\n  \
                      4:31  error  Newline required at end of file but not found  eol-last\n\n\
                      ✖ 2 problems (2 errors, 0 warnings)\n  1 error potentially fixable with the `--fix` option.\n\n";
        assert_eq!(
            summarize_findings(eslint),
            [
                "/project/a.js:1:8 no-unused-vars 'foo' is defined but never used",
                "/project/a.js:4:31 eol-last Newline required at end of file but not found",
            ]
        );
        let biome = "::warning title=lint/correctness/noUnusedImports,file=/project/a.js,line=1,endLine=1,col=8,endColumn=11::This import is unused.\n";
        assert_eq!(
            summarize_findings(biome),
            ["/project/a.js:1:8 lint/correctness/noUnusedImports This import is unused."]
        );
    }

    #[test]
    fn rust_and_go_output_is_parsed() {
        let cargo = "src/lib.rs:3:36: error[E0433]: cannot find type `HashMap` in this scope: use of undeclared type `HashMap`\n\
                     src/lib.rs:1:5: warning: unused import: `std::fmt`\nerror: could not compile `calc` (lib)\n";
        assert_eq!(
            summarize_findings(cargo),
            [
                "src/lib.rs:3:36 E0433 cannot find type `HashMap` in this scope: use of undeclared type `HashMap`",
                "src/lib.rs:1:5  unused import: `std::fmt`",
            ]
        );
        assert_eq!(
            summarize_findings("Diff in src/lib.rs:1:\n use std::fmt;\n-fn  main(){}\n"),
            ["src/lib.rs:1:0 format not as rustfmt writes it"]
        );
        let go = "# example.org/calc\nvet: ./x.go:6:2: undeclared name: fmt\n./x.go:3:2: imported and not used: \"os\"\n";
        assert_eq!(
            summarize_findings(go),
            ["./x.go:6:2  undeclared name: fmt", "./x.go:3:2  imported and not used: \"os\""]
        );
        assert_eq!(
            summarize_findings("x.go: not as gofmt writes it\n"),
            ["x.go:1:0 format not as gofmt writes it"]
        );
    }

    #[test]
    fn finding_matches_only_its_file() {
        let finding = |path: &str| LintFinding {
            path: path.into(),
            line: 1,
            column: 1,
            code: String::new(),
            message: String::new(),
            has_safe_fix: false,
        };
        assert!(finding("./src/a.py").is_in("src/a.py") && finding("/workspace/src/a.py").is_in("src/a.py"));
        assert!(!finding("lib/src/a.py").is_in("src/a.py") && !finding("/x/ba.py").is_in("a.py"));
    }

    proptest! {
        #[test]
        fn any_output_is_parsed_without_panic(text in "(\\PC|\n|:|::error |Diff in ){0,80}") {
            prop_assert!(parse_findings(&text).len() <= text.lines().count());
        }
    }
}
