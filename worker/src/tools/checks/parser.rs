//! What a language's own parser says of a file that docket's grammar objects to: the grammar may be older than the
//! language. Which parsers are installed is known inside the sandbox only.
//!
//! Called by the syntax gate. A parser reads the file from its input; that it accepts the file is proof, that none is
//! there says nothing.

use docket_schema::content::WorkPath;

use crate::{
    shell::quote,
    tools::context::{
        runner::{CommandSpec, Ended},
        tool_context::ToolContext,
    },
};

/// What own parsers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opinion {
    /// This one takes the file as it is.
    Accepts(&'static str),
    /// None takes it, and this one was there.
    Objects(&'static str),
    /// None is installed, or none for this language is known.
    Absent,
}

/// Time of one parser.
const TIME_MS_MAX: u64 = 10_000;

/// Bytes of a text that is handed over within a line of shell, which may have 128 KiB.
const TEXT_BYTES_MAX: usize = 100_000;

/// What ends such a text.
const END: &str = "DOCKET-TEXT-END";

const NOT_FOUND: i32 = 127;

/// `{ file }` is read from the standard input. The project's own tools go before the host's.
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

/// The parsers of a file of this name: what each is called, and its line.
fn parsers(path: &str) -> Vec<(&'static str, String)> {
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

/// What is parsed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    /// The file as it stands in the workspace.
    File,
    /// What would be written there.
    Text(&'a [u8]),
}

impl Source<'_> {
    /// How it is handed over; `None` where it cannot be.
    fn redirect(self, path: &WorkPath) -> Option<String> {
        match self {
            Self::File => Some(format!(" <{}", quote(std::str::from_utf8(path.as_bytes()).ok()?))),
            Self::Text(text) => {
                let text = std::str::from_utf8(text).ok()?;
                let fits = text.len() <= TEXT_BYTES_MAX && !text.contains('\0') && !text.contains(END);
                let end = if text.ends_with('\n') { "" } else { "\n" };
                fits.then(|| format!(" <<'{END}'\n{text}{end}{END}\n"))
            }
        }
    }
}

/// Asks the own parsers of a file's language, one after the other, until one accepts it.
pub(crate) async fn asked(context: ToolContext<'_>, path: &WorkPath, source: Source<'_>) -> Opinion {
    let Some(redirect) = source.redirect(path) else { return Opinion::Absent };
    let mut opinion = Opinion::Absent;
    for (name, line) in parsers(&path.to_string()) {
        let timeout_ms = context.settings.time_limit(TIME_MS_MAX).ms;
        let shell = format!("{line} >/dev/null 2>&1{redirect}");
        let Ok(output) = context.runner.run(CommandSpec { shell, cwd: None, timeout_ms }).await else {
            continue;
        };
        match output.ended {
            Ended::Exit(0) => return Opinion::Accepts(name),
            Ended::Exit(NOT_FOUND) | Ended::Signal(_) | Ended::TimedOut | Ended::Exceeded(_) => {}
            Ended::Exit(_) => opinion = Opinion::Objects(name),
        }
    }
    opinion
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{Workspace, has};

    fn opinion(path: &str, text: &str) -> (Opinion, Opinion) {
        let w = Workspace::new(&[(path, text)]);
        let file = WorkPath::new(path).expect("legal");
        let of = |source| {
            let file = &file;
            w.with(|context| Box::pin(async move { asked(context, file, source).await }))
        };
        (of(Source::File), of(Source::Text(text.as_bytes())))
    }

    #[test]
    fn own_parsers_say_what_is_right() {
        for (tool, name, path, good, bad) in [
            ("python3", "python3", "it's.py", "x = '$a `b` \\\\'\n", "x = = 1\n"),
            ("rustfmt", "rustfmt", "a.rs", "unsafe extern \"C\" { safe fn f(); }", "fn 9() {}\n"),
            ("node", "node", "a.js", "import a from 'b';\nawait a;\n", "let = ;\n"),
            ("node", "node", "b.js", "with (a) { b }\n", "import a from 'b';\nlet x = (;\n"),
        ] {
            if !has(tool) {
                continue;
            }
            assert_eq!(opinion(path, good), (Opinion::Accepts(name), Opinion::Accepts(name)), "{good}");
            let (of_file, of_text) = opinion(path, bad);
            assert!(matches!(of_file, Opinion::Objects(_)) && of_file == of_text, "{bad}: {of_file:?}");
        }
        assert_eq!(opinion("a.java", "class A {}\n").0, Opinion::Absent);
    }
}
