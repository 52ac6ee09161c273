//! Asks a language's own parser about a file that docket's grammar rejects: the grammar may be older than the
//! language. Which parsers are installed is known only inside the sandbox.
//!
//! Called by the syntax check. A parser reads the file from stdin. Acceptance is proof; a missing parser proves
//! nothing.

use docket_schema::content::WorkspacePath;

use crate::{
    shell::quote,
    tools::context::{
        runner::{CommandEnd, CommandSpec},
        tool_context::ToolContext,
    },
};

/// Verdict of the native parsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParserVerdict {
    /// This parser accepts the file as it is.
    Accepts(&'static str),
    /// None accepts it, and this parser was installed.
    Rejects(&'static str),
    /// None is installed, or none is known for this language.
    Unavailable,
}

/// Time limit of one parser, in milliseconds.
const PARSER_TIMEOUT_MS: u64 = 10_000;

/// Largest text passed within a shell line, in bytes; the line may have 128 KiB.
const TEXT_BYTES_MAX: usize = 100_000;

/// Delimiter of such a text.
const HEREDOC_END: &str = "DOCKET-TEXT-END";

const EXIT_NOT_FOUND: i32 = 127;

/// `{ file }` is read from stdin. The project's own tools come before the host's.
const RUFF: &str = "PATH=\"$PWD/.venv/bin:$PWD/venv/bin:$PATH\" ruff check --isolated --no-cache --quiet --select E902 \
                    --target-version py314 --stdin-filename x.py -";
const PYTHON: &str = "PATH=\"$PWD/.venv/bin:$PWD/venv/bin:$PATH\" python3 -W ignore -c 'import ast, sys; \
                      ast.parse(sys.stdin.buffer.read())'";
const TOMLLIB: &str = "python3 -c 'import sys, tomllib; tomllib.load(sys.stdin.buffer)'";
const RUSTFMT: &str = "rustfmt --edition 2024 --emit stdout";
const RUSTFMT_OLD: &str = "rustfmt --edition 2018 --emit stdout";
const GOFMT: &str = "gofmt -e";
const NODE_MODULE: &str = "node --check --input-type=module -";
const NODE_SCRIPT: &str = "node --check --input-type=commonjs -";
const ESBUILD: &str = "PATH=\"$PWD/node_modules/.bin:$PATH\" esbuild --log-level=silent --loader=tsx";
const ESBUILD_TS: &str = "PATH=\"$PWD/node_modules/.bin:$PATH\" esbuild --log-level=silent --loader=ts";
/// Syntax only: its errors have numbers below 2000.
const TYPESCRIPT: &str = "node -e 'let t; try { t = require(require.resolve(\"typescript\", { paths: [process.cwd()] })) } \
     catch { process.exit(127) } \
     const r = t.transpileModule(require(\"fs\").readFileSync(0, \"utf8\"), { reportDiagnostics: true, \
     fileName: \"x.\" + process.argv[1], compilerOptions: { target: 99, module: 99, jsx: 1 } }); \
     process.exit(r.diagnostics.some(d => d.category === 1 && d.code < 2000) ? 1 : 0)'";

/// Parsers for a file of this name, each with its shell line.
fn parsers_for_path(path: &str) -> Vec<(&'static str, String)> {
    let end = path.rsplit_once('.').map_or("", |(_, end)| end);
    let typescript = |end: &str| ("typescript", format!("{TYPESCRIPT} {end}"));
    let plain = |name, line: &str| (name, line.to_owned());
    match end {
        "py" | "pyi" | "pyw" => vec![plain("python3", PYTHON), plain("ruff", RUFF)],
        "rs" => vec![plain("rustfmt", RUSTFMT), plain("rustfmt", RUSTFMT_OLD)],
        "go" => vec![plain("gofmt", GOFMT)],
        "js" | "mjs" | "cjs" => {
            vec![plain("node", NODE_MODULE), plain("node", NODE_SCRIPT), typescript("jsx")]
        }
        "ts" | "mts" | "cts" => vec![typescript("ts"), plain("esbuild", ESBUILD_TS)],
        "tsx" | "jsx" => vec![typescript("tsx"), plain("esbuild", ESBUILD)],
        "toml" => vec![plain("python3", TOMLLIB)],
        _ => Vec::new(),
    }
}

/// The input of a parser.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParserInput<'a> {
    /// The file as it is in the workspace.
    File,
    /// The text that would be written there.
    Text(&'a [u8]),
}

impl ParserInput<'_> {
    /// Redirection that passes the input; `None` if that is not possible.
    fn input_redirect(self, path: &WorkspacePath) -> Option<String> {
        match self {
            Self::File => Some(format!(" <{}", quote(std::str::from_utf8(path.as_bytes()).ok()?))),
            Self::Text(text) => {
                let text = std::str::from_utf8(text).ok()?;
                let fits =
                    text.len() <= TEXT_BYTES_MAX && !text.contains('\0') && !text.contains(HEREDOC_END);
                let end = if text.ends_with('\n') { "" } else { "\n" };
                fits.then(|| format!(" <<'{HEREDOC_END}'\n{text}{end}{HEREDOC_END}\n"))
            }
        }
    }
}

/// Runs the native parsers of a file's language in turn until one accepts it.
pub(crate) async fn run_native_parsers(
    context: ToolContext<'_>,
    path: &WorkspacePath,
    source: ParserInput<'_>,
) -> ParserVerdict {
    let Some(redirect) = source.input_redirect(path) else { return ParserVerdict::Unavailable };
    let mut opinion = ParserVerdict::Unavailable;
    for (name, line) in parsers_for_path(&path.to_string()) {
        let timeout_ms = context.settings.time_limit(PARSER_TIMEOUT_MS).ms;
        let shell = format!("{line} >/dev/null 2>&1{redirect}");
        let Ok(output) = context.runner.run(CommandSpec { shell, cwd: None, timeout_ms }).await else {
            continue;
        };
        match output.ended {
            CommandEnd::Exit(0) => return ParserVerdict::Accepts(name),
            CommandEnd::Exit(EXIT_NOT_FOUND)
            | CommandEnd::Signal(_)
            | CommandEnd::TimedOut
            | CommandEnd::Exceeded(_) => {}
            CommandEnd::Exit(_) => opinion = ParserVerdict::Rejects(name),
        }
    }
    opinion
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestWorkspace, has_program};

    fn verdicts(path: &str, text: &str) -> (ParserVerdict, ParserVerdict) {
        let w = TestWorkspace::new(&[(path, text)]);
        let file = WorkspacePath::new(path).expect("legal");
        let of = |source| {
            let file = &file;
            w.with_context(|context| Box::pin(async move { run_native_parsers(context, file, source).await }))
        };
        (of(ParserInput::File), of(ParserInput::Text(text.as_bytes())))
    }

    #[test]
    fn native_parsers_accept_valid_code() {
        for (tool, name, path, good, bad) in [
            ("python3", "python3", "it's.py", "x = '$a `b` \\\\'\n", "x = = 1\n"),
            ("rustfmt", "rustfmt", "a.rs", "unsafe extern \"C\" { safe fn f(); }", "fn 9() {}\n"),
            ("node", "node", "a.js", "import a from 'b';\nawait a;\n", "let = ;\n"),
            ("node", "node", "b.js", "with (a) { b }\n", "import a from 'b';\nlet x = (;\n"),
        ] {
            if !has_program(tool) {
                continue;
            }
            assert_eq!(
                verdicts(path, good),
                (ParserVerdict::Accepts(name), ParserVerdict::Accepts(name)),
                "{good}"
            );
            let (of_file, of_text) = verdicts(path, bad);
            assert!(matches!(of_file, ParserVerdict::Rejects(_)) && of_file == of_text, "{bad}: {of_file:?}");
        }
        assert_eq!(verdicts("a.java", "class A {}\n").0, ParserVerdict::Unavailable);
    }
}
