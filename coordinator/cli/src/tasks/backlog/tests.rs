//! Tests of each backlog format and its error messages.

use proptest::prelude::*;

use super::*;

fn read_backlog_text(text: &str) -> CliResult<Vec<BacklogLine>> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("b.jsonl");
    std::fs::write(&file, text).expect("written");
    read_backlog(&file)
}

#[test]
fn tasks_keep_file_order_and_empty_lines_are_skipped() {
    let all = "\u{feff}{\"text\": \"one\"}\r\n\n{\"text\": \"two\", \"title\": \"T\", \"tests\": \"make test\", \
               \"requires\": [\"a/b\"], \"setup\": [\"make\"]}";
    let lines = read_backlog_text(all).expect("read");
    assert_eq!(lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    let two = &lines[1];
    assert_eq!((two.title.as_deref(), two.tests.as_deref()), (Some("T"), Some("make test")));
    assert_eq!((two.requires[0].to_string(), two.setup[0].as_str()), ("a/b".to_owned(), "make"));
}

#[test]
fn every_invalid_line_is_reported_with_number_and_field() {
    let bad = "{\"text\": \"a\"}\n{\"txt\": \"b\"}\nnot json\n{\"text\": \" \"}\n{\"text\": \"a\"}\n\
               {\"text\": \"c\", \"requires\": [\"../x\"]}\n{\"text\": 5}\n";
    let failure = read_backlog_text(bad).expect_err("faults");
    assert_eq!(failure.exit, ExitKind::Usage);
    let said = format!("{:#}", failure.error);
    for words in [
        "b.jsonl:2: unknown field `txt`; did you mean `text`?",
        "b.jsonl:3: this is not JSON",
        "b.jsonl:4: `text` is empty",
        "b.jsonl:5: duplicate of the task in line 1",
        "b.jsonl:6: `requires`: `../x` must be relative",
        "b.jsonl:7: `text`: invalid type: the number `5`, expected a string",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    assert!(read_backlog_text("\n").expect_err("none").error.to_string().contains("contains no task"));
    let many = "x\n".repeat(30);
    assert!(read_backlog_text(&many).expect_err("many").error.to_string().ends_with("and 20 more"));
}

#[test]
fn backlog_file_is_recognized_by_extension() {
    for (name, is) in
        [("a.jsonl", true), ("b/A.JSONL", true), ("c.ndjson", true), ("d.json", false), ("-", false)]
    {
        assert_eq!(is_backlog(Path::new(name)), is, "{name}");
    }
}

fn options_for(form: BacklogFormat) -> BacklogOptions {
    let clones = SweBenchOptions { folder: Path::new("/nowhere").to_owned(), include_hints: false };
    BacklogOptions {
        format: form,
        labels: vec![parse_label_priority("bug=10").expect("a label")],
        clones: Some(clones),
    }
}

fn titles(read: &ParsedBacklog) -> Vec<(usize, &str)> {
    read.entries.iter().map(|(at, line)| (*at, line.title.as_deref().unwrap_or(""))).collect()
}

#[test]
fn checklist_keeps_headings_bodies_and_code() {
    let text = "# Shop\r\n\nWords.\n\n- [x] done\n  - [ ] a part of what is done\n- [ ] **Mend** the rounding\n\n  \
                It is in `prices.py`:\n\n  ```py\n  - [ ] no box\n# no heading\n  ```\n  - [ ] a part\n## Later ##\n\
                1. [ ] First\nand on\n\n* [ ] Second\n\n\tindented\n\nA paragraph.\n- [a link](x)\n- [ ] Third\n- plain\n\
                ```\n- [ ] in code\n```\n<!--\n- [ ] in a comment\n-->\n# Other\n- [X] done too\n";
    let read = parse(text, &options_for(BacklogFormat::Markdown));
    assert_eq!(read.faults.format_lines("c.md"), Vec::<String>::new());
    assert_eq!(
        titles(&read),
        [
            (6, "done: a part of what is done"),
            (7, "Shop: **Mend** the rounding"),
            (17, "Later: First"),
            (20, "Later: Second"),
            (26, "Later: Third")
        ]
    );
    assert_eq!(read.skipped, SkippedEntries { done: 2, pull_requests: 0 });
    let body = |n: usize| read.entries[n + 1].1.text.as_str();
    assert_eq!(
        body(0),
        "**Mend** the rounding\n\n  It is in `prices.py`:\n\n  ```py\n  - [ ] no box\n# no heading\n  ```\n  - [ ] a part\n\n\
         (From the list under: Shop)\n"
    );
    assert_eq!(body(1), "First\n\nand on\n\n(From the list under: Shop > Later)\n");
    assert_eq!(body(2), "Second\n\nindented\n\n(From the list under: Shop > Later)\n");
}

#[test]
fn checklist_faults_are_reported() {
    let read = parse("- [ ]\n- [ ] a\n\n```\n- [ ] b\n", &options_for(BacklogFormat::Markdown));
    assert_eq!(
        read.faults.format_lines("c.md"),
        ["c.md:1: the box has no text", "c.md:4: the code block that begins with ``` here is not closed"]
    );
}

#[test]
fn open_issues_become_tasks_keyed_by_url() {
    let text = r#"[
  {"number": 1, "title": "Crash", "body": "It\r\ncrashes", "labels": [{"name": "Bug"}, {"name": "ui"}],
   "url": "https://github.com/o/n/issues/1", "state": "OPEN"},
  {"number": 2, "title": "Old", "state": "closed", "html_url": "h2", "url": "api"},
  {"number": 3, "title": "Pull", "state": "open", "html_url": "https://github.com/o/n/pull/3"},
  {"number": 4, "title": "Null body", "state": "open", "body": null, "html_url": "h4", "url": "api4", "labels": ["x"]},

  {"number": "5", "title": "No number"},
  {"number": 6, "title": " "},
  {"number": 1, "title": "Crash", "url": "https://github.com/o/n/issues/1", "state": "OPEN"}
]"#;
    let read = parse(text, &options_for(BacklogFormat::Github));
    assert_eq!(titles(&read), [(2, "Crash (#1)"), (6, "Null body (#4)")]);
    let first = &read.entries[0].1;
    assert_eq!(first.text, "Crash\n\nIt\ncrashes\n\n(Issue #1: https://github.com/o/n/issues/1)\n");
    assert_eq!((first.priority, first.dedup.as_deref()), (Some(10), Some("https://github.com/o/n/issues/1")));
    assert_eq!((read.entries[1].1.priority, read.entries[1].1.dedup.as_deref()), (None, Some("h4")));
    assert_eq!(read.skipped, SkippedEntries { done: 1, pull_requests: 1 });
    assert_eq!(read.repeated, [(10, 2)]);
    let faults = read.faults.format_lines("i.json").join("\n");
    assert!(
        faults.contains("i.json:8: `number`: invalid type: the text \"5\", expected a whole number")
            && faults.contains("i.json:9: `title` is empty"),
        "{faults}"
    );
}

#[test]
fn swe_bench_task_names_its_clone_and_omits_the_solution() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("django__django")).expect("made");
    let clones = SweBenchOptions { folder: folder.path().to_owned(), include_hints: false };
    let line = |id: &str, repo: &str, commit: &str| {
        format!(
            "{{\"instance_id\": \"{id}\", \"repo\": \"{repo}\", \"base_commit\": \"{commit}\", \
             \"problem_statement\": \"It fails.\", \"hints_text\": \"Look there\", \"patch\": \"SECRET\"}}\n"
        )
    };
    let commit = "d26b2424437dabeeca94d7900b37d2df4410da0c";
    let text = [
        line("django__django-1", "django/django", commit),
        line("a b", "django/django", commit),
        line("x__y-1", "django/../..", commit),
        line("x__y-2", "x/y", commit),
        line("x__y-3", "django/django", "HEAD"),
    ]
    .concat();
    for hints in [false, true] {
        let clones = Some(SweBenchOptions { include_hints: hints, ..clones.clone() });
        let read =
            parse(&text, &BacklogOptions { format: BacklogFormat::SweBench, labels: Vec::new(), clones });
        let only = &read.entries[0].1;
        assert_eq!((read.entries.len(), only.title.as_deref()), (1, Some("django__django-1")));
        assert_eq!((only.dedup.as_deref(), only.commit.as_deref()), (Some("django__django-1"), Some(commit)));
        assert_eq!(only.repo.as_deref(), Some(&*folder.path().join("django__django")));
        assert_eq!(only.text.contains("Look there"), hints);
        assert!(!only.text.contains("SECRET"));
        let faults = read.faults.format_lines("s").join("\n");
        for says in [
            "s:2: `instance_id` must",
            "s:3: `repo` must",
            "s:4: `repo`: no clone",
            "s:5: `base_commit` must",
        ] {
            assert!(faults.contains(says), "{says} in {faults}");
        }
    }
}

#[test]
fn every_line_field_is_parsed_and_bounded() {
    let all = r#"{"text": "t", "title": "T", "queue": "q", "priority": -5, "at": "2026-01-31T02:00:00Z", "dedup": "k",
        "tests": "make test", "requires": ["a"], "setup": ["make"], "branch": "b", "model": "openai:m",
        "base_url": "http://h/v1", "explore_model": "openai:e", "fallback_model": "openai:f", "engine": "react",
        "repo": "r", "commit": "c", "tools": "wide", "turns": 5, "complexity": "low", "delegate": 2, "effort": "high", "temperature": 0.5,
        "key": "me", "if_failed": "cancel",
        "concurrency": {"key": "k", "max": 2}, "selector": {"gpu": "a100"}, "max_tokens": 9, "max_cost": "2.50", "max_time": "30m", "attempts": 2, "script": "s.toml"}"#
        .replace('\n', " ");
    let line = BacklogLine::parse(&all).expect("a task");
    assert_eq!(
        (line.max_cost, line.max_time, line.temperature, line.delegate),
        (Some(2_500_000_000), Some(1_800_000), Some(500), Some(2))
    );
    assert_eq!(line.model.map(|model| model.to_string()).as_deref(), Some("openai:m"));
    for (bad, says) in [
        (r#"{"text": "t", "priority": 1001}"#, "`priority` must be within"),
        (r#"{"text": "t", "tools": "all"}"#, "`tools`: it must be core or wide"),
        (r#"{"text": "t", "turns": 0}"#, "`turns` must be from"),
        (r#"{"text": "t", "delegate": 9}"#, "`delegate` must be from 0 to 8"),
        (r#"{"text": "t", "model": "llama"}"#, "`model`:"),
        (r#"{"text": "t", "max_cost": true}"#, "`max_cost`: it must be a text"),
        (r#"{"text": "t", "max_time": 30}"#, "`max_time`: it must be a number with its unit"),
        (r#"{"text": "t", "at": "tomorrow"}"#, "`at`:"),
        (r#"{"text": "t", "queue": "a/b"}"#, "`queue`"),
        (r#"{"text": "t", "prompt": "x"}"#, "unknown field `prompt`; did you mean `text`?"),
        (r#"{"text": "t", "prority": 1}"#, "unknown field `prority`; did you mean `priority`?"),
        (r#"{"text": "t", "zzzz": 1}"#, "unknown field `zzzz`, expected one of"),
        (r#"{"text": "a\u0000b"}"#, "`text` contains the invisible character U+0000"),
        (r#"{"text": "t", "title": "\u202eevil"}"#, "`title` contains the invisible character U+202E"),
        (r#"{"text": "t"} {"text": "u"}"#, "there is more text after the task"),
        (r#"{"text": "t", "text": "u"}"#, "duplicate field `text`"),
    ] {
        let said = BacklogLine::parse(bad).expect_err(bad);
        assert!(said.contains(says), "{says} in {said}");
    }
    let long = format!("{{\"text\": \"{}\"}}", "x".repeat(200_000));
    assert!(BacklogLine::parse(&long).expect_err("too long").contains("`text` has 200000 bytes"));
}

#[test]
fn tasks_are_ordered_after_their_dependencies() {
    let line = |text: &str, key: &str, after: &[&str]| {
        serde_json::json!({ "text": text, "key": key, "after": after }).to_string()
    };
    let read = |lines: &[String]| parse(&lines.join("\n"), &options_for(BacklogFormat::Jsonl));
    let some = "00000000-0000-7000-8000-000000000001";
    let good = read(&[
        line("c", "c", &["b", "a"]),
        line("x", "x", &[some]),
        line("b", "b", &["a"]),
        line("a", "a", &[]),
    ]);
    assert_eq!(good.faults.format_lines("f"), Vec::<String>::new());
    assert_eq!(good.entries.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [4, 3, 1, 2]);
    let bad = read(&[
        line("a", "a", &["b"]),
        line("b", "b", &["a"]),
        line("c", "c", &["nobody"]),
        line("d", "c", &[]),
    ]);
    let said = bad.faults.format_lines("f").join("\n");
    for says in [
        "it depends on itself",
        "f:3: `after`: no line has the key `nobody`",
        "f:4: `key`: line 3 already has the key `c`",
    ] {
        assert!(said.contains(says), "{says} in {said}");
    }
    // A chain as long as a file does not use more stack.
    let chain: Vec<String> =
        (0..50_000).map(|n| line(&n.to_string(), &n.to_string(), &[&(n + 1).to_string()])).collect();
    let long = read(&[chain, vec![line("50000", "50000", &[])]].concat());
    assert_eq!((long.faults.count(), long.entries[0].0, long.entries[50_000].0), (0, 50_001, 1));
}

#[test]
fn fields_fixed_by_compare_are_rejected() {
    for field in [
        "\"priority\": 1",
        "\"model\": \"openai:m\"",
        "\"after\": [\"00000000-0000-7000-8000-000000000001\"]",
    ] {
        let failure = read_backlog_text(&format!("{{\"text\": \"a\", {field}}}")).expect_err(field);
        assert!(failure.error.to_string().contains("only works with `docket import`"), "{:#}", failure.error);
    }
}

#[test]
fn formats_are_detected() {
    let form = |name: &str, text: &str| BacklogFormat::detect(Path::new(name), text);
    for (name, text, is) in [
        ("a.md", "{", Some(BacklogFormat::Markdown)),
        ("a.jsonl", "{\"text\": \"number title\"}", Some(BacklogFormat::Jsonl)),
        ("-", "\n[{\"number\": 1, \"title\": \"t\"}]", Some(BacklogFormat::Github)),
        (
            "-",
            "{\"repo\": \"a/b\", \"instance_id\": \"i\", \"base_commit\": \"c\"}",
            Some(BacklogFormat::SweBench),
        ),
        ("-", "# H\n\n- [ ] a\n", Some(BacklogFormat::Markdown)),
        ("a.txt", "hello", None),
        ("a.jsonl", "not json", Some(BacklogFormat::Jsonl)),
    ] {
        assert_eq!(form(name, text), is, "{name} {text}");
    }
}

#[test]
fn hostile_input_is_rejected_with_bounded_messages() {
    let deep = format!("{{\"text\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let huge = format!("{{\"text\": \"{}\"}}", "x".repeat(2 * 1024 * 1024));
    let many = "{\"text\": 1}\n".repeat(300_000);
    for form in [BacklogFormat::Jsonl, BacklogFormat::Github, BacklogFormat::SweBench] {
        for text in [&deep, &huge, &many, &format!("[{deep}]"), &format!("[{huge}]"), "[1, {}", "[[]]"] {
            let read = parse(text, &options_for(form));
            assert!(read.faults.count() > 0 && read.entries.is_empty(), "{form:?}");
            let said = read.faults.format_lines("f");
            assert!(
                said.len() <= FAULTS_SHOWN_MAX + 1 && said.iter().all(|line| line.len() < 2000),
                "{said:?}"
            );
        }
    }
    let many: String = (0..TASKS_MAX + 5).map(|n| format!("{{\"text\": \"{n}\"}}\n")).collect();
    let read = parse(&many, &options_for(BacklogFormat::Jsonl));
    assert_eq!(
        read.faults.format_lines("f"),
        [format!("f:{}: a file can have at most 100000 tasks; split it", TASKS_MAX + 1)]
    );
}

proptest! {
    #[test]
    fn no_text_makes_a_form_panic(text in "(?s).{0,300}", pieces in "([ \t\n#`~\\-*+0-9.)x\\[\\]{}\",:<!>a-c]|- \\[ \\] |\\n```|<!--|-->){0,120}") {
        for form in [BacklogFormat::Jsonl, BacklogFormat::Markdown, BacklogFormat::Github, BacklogFormat::SweBench] {
            for text in [&text, &pieces] {
                let read = parse(text, &options_for(form));
                let lines = text.lines().count();
                prop_assert!(read.entries.iter().all(|(at, _)| (1..=lines).contains(at)));
            }
            let _ = BacklogFormat::detect(Path::new("-"), &text);
        }
    }

    #[test]
    fn an_array_and_lines_hold_the_same(texts in proptest::collection::vec("[a-z\"\\n]{1,20}", 1..20)) {
        let objects: Vec<String> = texts.iter().map(|text| serde_json::json!({ "text": text }).to_string()).collect();
        let (lines, array) = (objects.join("\n"), format!("[{}]", objects.join(",\n")));
        let (lines, array) = (parse(&lines, &options_for(BacklogFormat::Jsonl)), parse(&array, &options_for(BacklogFormat::Jsonl)));
        prop_assert_eq!(&lines.entries, &array.entries);
        prop_assert_eq!(lines.faults.count(), array.faults.count());
    }
}

#[test]
fn open_boxes_under_a_ticked_box_are_tasks() {
    let text = "# Plan\n- [x] Epic: payments\n  - [ ] refund endpoint\n    with words\n  - [x] done\n    - [ ] deep\n  - [ ] retries\n- [x] All\n  - [x] of it\n- [ ] other\n";
    let reading = BacklogOptions { format: BacklogFormat::Markdown, labels: Vec::new(), clones: None };
    let read = parse(text, &reading);
    let titles: Vec<_> =
        read.entries.iter().map(|(at, line)| (*at, line.title.as_deref().unwrap_or_default())).collect();
    assert_eq!(
        titles,
        [
            (3, "Epic: payments: refund endpoint"),
            (6, "done: deep"),
            (7, "Epic: payments: retries"),
            (10, "Plan: other")
        ]
    );
    assert!(
        read.entries[0].1.text.contains("with words")
            && read.entries[0].1.text.contains("Plan > Epic: payments")
    );
    assert_eq!(read.skipped.done, 3);
}
