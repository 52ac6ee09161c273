//! Compares `search_codebase` with ripgrep itself: the same lines of the same files, on a tree of difficult cases.

use std::collections::BTreeSet;

use serde_json::json;

use crate::tools::{
    CommandSpec,
    testing::{TestWorkspace, has_program},
    text::{
        encoding::decode_line,
        output::{cut_around, escape_hidden},
    },
};

/// Path, line number and text.
type Hit = (String, u64, String);

fn sample() -> TestWorkspace {
    let mut many = String::new();
    for n in 0..100 {
        many.push_str(&format!("needle {n}\nhay\n"));
    }
    let w = TestWorkspace::new(&[
        ("plain.txt", "needle one\nhay\nNeedle two\nthe last needle"),
        ("src/deep/er/a.rs", "fn needle() {}\n// needle needle\n"),
        ("src/many.py", &many),
        ("src/caf\u{e9} and blanks.md", "a needle\n"),
        ("crlf.txt", "needle\r\nhay\r\nneedle;\r\n"),
        ("mixed.txt", "needle\r\nneedle\n"),
        (".hidden", "needle\n"),
        (".config/inner.txt", "needle\n"),
        (".gitignore", "*.log\n/build/\n!keep.log\nsub/*.tmp\n"),
        ("a.log", "needle\n"),
        ("keep.log", "needle\n"),
        ("build/out.txt", "needle\n"),
        ("other/build/in.txt", "needle\n"),
        ("sub/x.tmp", "needle\n"),
        ("sub/.gitignore", "!x.tmp\n*.txt\n"),
        ("sub/y.txt", "needle\n"),
        ("sub/deeper/z.txt", "needle\n"),
        ("sub/deeper/.gitignore", "!z.txt\n"),
        (".ignore", "by-ignore.txt\n"),
        ("by-ignore.txt", "needle\n"),
        (".rgignore", "by-rgignore.txt\n"),
        ("by-rgignore.txt", "needle\n"),
        ("empty.txt", ""),
        ("no-end.txt", "needle"),
        ("long.txt", &format!("{}needle{}\n", "x".repeat(100_000), "y".repeat(200_000))),
        ("a-b/f.txt", "needle\n"),
        ("a/f.txt", "needle\n"),
    ]);
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    w.write_file("utf16.txt", [b"\xff\xfe".to_vec(), utf16("hay\r\nneedle \u{e9}\r\n")].concat());
    w.write_file("bom.txt", b"\xef\xbb\xbfneedle first\nhay\n");
    w.write_file("latin.txt", b"needle caf\xe9\n");
    w.write_file("binary.bin", b"needle\0needle\nneedle\n");
    w.write_file(
        "late.bin",
        [b"needle early\n".to_vec(), vec![b'y'; 200_000], b"\n\0needle\n".to_vec()].concat(),
    );
    w.write_file("controls.txt", b"needle \x1b[31mred\x1b[0m\tneedle\n");
    w.create_link("to-file", "plain.txt");
    w.create_link("to-folder", "src");
    w.create_link("away", "/etc");
    w.create_link("gone", "nothing");
    w
}

/// Runs ripgrep without the rules that are not the workspace's own, sorted and on one thread: its buffer grows with a
/// long line and stays large, and how much of a file it checks for NUL depends on the files before. A glob without a
/// slash is passed as a type, because ripgrep's own globs include ignored files again.
fn search_with_ripgrep(w: &TestWorkspace, regex: &str, glob: Option<&str>) -> BTreeSet<Hit> {
    let glob = match glob {
        None => String::new(),
        Some(path) if path.contains('/') => format!("--glob {}", crate::tools::quote(path)),
        Some(name) => format!("--type-add {} --type wanted", crate::tools::quote(&format!("wanted:{name}"))),
    };
    let shell = format!(
        "rg --no-config --sort path --crlf --no-ignore-parent --no-ignore-global --no-require-git --null --no-heading --with-filename \
         --line-number --column --color never --no-messages {glob} -e {} .",
        crate::tools::quote(regex)
    );
    let spec = CommandSpec { shell, cwd: None, timeout_ms: 60_000 };
    let output =
        w.with_context(|context| Box::pin(async move { context.runner.run(spec).await })).expect("runs");
    let mut hits = BTreeSet::new();
    for line in output.stdout.to_bytes().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Some(at) = line.iter().position(|byte| *byte == 0) else {
            // For a file whose beginning is text: where the search stopped.
            assert!(String::from_utf8_lossy(line).contains("stopped searching binary file"));
            continue;
        };
        let path = String::from_utf8(line[..at].to_vec()).expect("UTF-8");
        let rest = &line[at + 1..];
        let mut parts = rest.splitn(3, |byte| *byte == b':');
        let mut part = || parts.next().expect("number, column and line");
        let number = |bytes: &[u8]| String::from_utf8_lossy(bytes).parse().expect("a number");
        let (number, column, line): (_, u64, _) = (number(part()), number(part()), part());
        let text = escape_hidden(decode_line(line).trim_end_matches('\r'));
        let text = cut_around(&text, usize::try_from(column - 1).expect("fits"), 300);
        hits.insert((path.trim_start_matches("./").to_owned(), number, text));
    }
    hits
}

fn search_with_tool(w: &mut TestWorkspace, regex: &str, glob: Option<&str>) -> (BTreeSet<Hit>, Vec<String>) {
    let out = w.call_tool("search_codebase", json!({"regex": regex, "file_glob": glob, "max_results": 500}));
    assert!(!out.is_error, "{}", out.text());
    let text = out.text().into_owned();
    let mut paths = Vec::new();
    let hits = text.lines().filter(|line| !line.starts_with(crate::tools::NO_MATCHES)).map(|line| {
        let mut parts = line.splitn(3, ':');
        let mut part = || parts.next().expect("path:line: text").to_owned();
        let (path, number, text) = (part(), part().parse().expect("a number"), part());
        paths.push(path.clone());
        (path, number, text.strip_prefix(' ').expect("a blank").to_owned())
    });
    (hits.collect(), paths)
}

#[test]
fn finds_the_same_lines_as_ripgrep() {
    if !has_program("rg") {
        return;
    }
    let mut w = sample();
    let mut found = 0;
    for (regex, glob) in [
        ("needle", None),
        ("(?i)NEEDLE", None),
        ("^needle", None),
        ("needle$", None),
        ("needle;$", None),
        (r"\bneedle\b.*\bneedle\b", None),
        (r"fn \w+\(", Some("*.rs")),
        ("needle", Some("*.txt")),
        ("needle", Some("*.{md,py}")),
        ("needle [0-9]*7$", Some("src/*.py")),
        (r"needle \p{L}+", None),
        ("^$", None),
        ("caf\u{e9}|\u{e9}$", None),
        ("no such thing", None),
        ("needle", Some("*.nothing")),
        ("x{50}needle", None),
    ] {
        let want = search_with_ripgrep(&w, regex, glob);
        let (have, paths) = search_with_tool(&mut w, regex, glob);
        let missing: Vec<_> = want.difference(&have).collect();
        let added: Vec<_> = have.difference(&want).collect();
        assert!(
            missing.is_empty() && added.is_empty(),
            "{regex} {glob:?}\nmissing {missing:?}\nadded {added:?}"
        );
        let parts = |path: &String| path.split('/').map(str::to_owned).collect::<Vec<_>>();
        assert!(paths.is_sorted_by_key(parts), "{regex}: {paths:?}");
        found += have.len();
    }
    assert!(found > 350, "the sample says little: {found} lines");
}
