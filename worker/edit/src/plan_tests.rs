//! Whole calls of the engine: levels, line endings, several edits, arbitrary bytes.

use proptest::prelude::*;

use docket_schema::tool::EditLevel;

use crate::{Edit, EditHint, apply_edits};

fn edit_without_hint(search: &str, replace: &str) -> Edit {
    Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() }
}

fn assert_edit_result(before: &str, search: &str, replace: &str, want: Result<(&str, EditLevel), &str>) {
    match (apply_edits(before.as_bytes(), &[edit_without_hint(search, replace)]), want) {
        (Ok(applied), Ok((after, level))) => {
            assert_eq!(String::from_utf8_lossy(&applied.after), after, "{search:?}");
            assert_eq!(applied.loosest_level(), level, "{search:?}");
        }
        (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
        (got, want) => panic!("{search:?}: got {got:?}, not {want:?}"),
    }
}

#[test]
fn each_match_level_finds_its_place_and_keeps_file_bytes() {
    use EditLevel::{AlreadyApplied, Exact, Fuzzy, Indentation, Whitespace};
    assert_edit_result("a\nb\n", "b", "c", Ok(("a\nc\n", Exact)));
    assert_edit_result(
        "let a = 1;  \nlet b = 2;\n",
        "let a = 1;\nlet b = 2;",
        "let a = 1;\nlet b = 3;",
        Ok(("let a = 1;  \nlet b = 3;\n", Whitespace)),
    );
    assert_edit_result(
        "fn f() {\n\tif x {\n\t\tgo(one);\n\t}\n}\n",
        "if x {\n    go(one);\n}",
        "if x {\n    go(one);\n    if y {\n        stop();\n    }\n}",
        Ok(("fn f() {\n\tif x {\n\t\tgo(one);\n\t\tif y {\n\t\t\tstop();\n\t\t}\n\t}\n}\n", Indentation)),
    );
    assert_edit_result(
        "x = receive_message(y)\nz = 1\n",
        "x = recieve_message(y)\nz = 1",
        "x = receive_message(y, 2)\nz = 1",
        Ok(("x = receive_message(y, 2)\nz = 1\n", Fuzzy)),
    );
    assert_edit_result(
        "say('it')\nend_of_it()\n",
        "say(\"it\")\nend_of_it()",
        "say(\"it\")\nend_of_it(2)",
        Ok(("say('it')\nend_of_it(2)\n", Fuzzy)),
    );
    assert_edit_result(
        "start(1)\nnew_line()\nstop(2)\n",
        "start(1)\nold_line()\nstop(2)",
        "start(1)\nnew_line()\nstop(2)",
        Ok(("start(1)\nnew_line()\nstop(2)\n", AlreadyApplied)),
    );
}

#[test]
fn line_endings_bom_and_last_line_are_kept() {
    use EditLevel::{Exact, Indentation};
    assert_edit_result("\u{feff}a\r\nb\r\nc", "b\nc", "b\nd\nc", Ok(("\u{feff}a\r\nb\r\nd\r\nc", Exact)));
    assert_edit_result("a\r\nb\nc\r\n", "b", "x\ny", Ok(("a\r\nx\ny\nc\r\n", Exact)));
    assert_edit_result("a\nlast", "last\n", "final\n", Ok(("a\nfinal", Exact)));
    assert_edit_result(
        "  abc\r\n    def\r\n",
        "abc\n  def",
        "abc\n  xyz",
        Ok(("  abc\r\n    xyz\r\n", Indentation)),
    );
    assert_edit_result("keep\ngone\n", "gone", "", Ok(("keep\n", Exact)));
    assert_edit_result("only\n", "only\n", "", Ok(("", Exact)));
    assert_edit_result("a\rb\rc\r", "b", "d", Ok(("a\rd\rc\r", Exact)));
    assert_edit_result("a\rb\rc", "b\nc", "b\nd", Ok(("a\rb\rd", Exact)));
    assert_edit_result("", "", "x = 1\n", Ok(("x = 1\n", Exact)));
    assert_edit_result("\n \n", "", "x = 1\n", Ok(("x = 1\n", Exact)));
}

#[test]
fn uncertain_match_is_refused() {
    assert_edit_result("a\nb\na\n", "a", "c", Err("matches 2 places"));
    assert_edit_result("aaa\n", "aa", "b", Err("matches 2 places"));
    assert_edit_result("  go(x)\nq\n    go(x)\n", "go( x )\n", "no", Err("matches 2 places"));
    assert_edit_result("  go(x);\nq\n    go(x);\n", "\tgo(x);\n", "no", Err("matches 2 places"));
    assert_edit_result(
        "total_b = compute(beta, 2)\n",
        "total_c = compute(gamma, 2)",
        "x",
        Err("     1| total_b = compute(beta, 2)"),
    );
    assert_edit_result("a\n", "", "x", Err("search is empty"));
    assert_edit_result("a\n", " \n", "x", Err("only white space"));
    assert_edit_result("", "a", "x", Err("the file is empty"));
    assert_edit_result("a\n", "a", "a", Err("equal"));
    assert_edit_result("alpha()\nbeta()\ngamma()\n", "alpha()\n...\ngamma()", "x", Err("omitted lines"));
    assert_edit_result(
        "alpha()\nbeta()\n",
        "alpha()",
        "alpha()\n# ... rest of the code ...",
        Err("omitted lines"),
    );
    assert_edit_result(
        "start(a)\nhidden(b)\nfinish(c)\n",
        "start(a)\nfinish(c)",
        "begin(a)\nend(c)",
        Err("Nothing was changed"),
    );
}

#[test]
fn ellipsis_line_of_the_file_is_text_even_after_line_numbers() {
    use EditLevel::Exact;
    let text = "try:\n    ...\nfinally:\n    stop(1)\n";
    assert_edit_result(
        text,
        "1| try:\n2|     ...\n3| finally:",
        "1| try:\n2|     ...\n3| else:",
        Ok((&text.replace("finally", "else"), Exact)),
    );
    assert_edit_result(
        text,
        "1| try:\n2|     ...\n3|     stop(1)",
        "1| try:\n2|     ...\n3|     stop(2)",
        Err("omitted lines"),
    );
    // Two lines resemble the number and the line: the number is stripped before one is selected.
    let twins = "  '3' of Options(A, B) : never,\n  '4' of Options(A, B) : never,\n";
    let want = twins.replacen("never", "maybe", 1);
    assert_edit_result(
        twins,
        "L1:   '3' of Options(A, B) : never,",
        "L1:   '3' of Options(A, B) : maybe,",
        Ok((&want, Exact)),
    );
}

#[test]
fn several_edits_apply_atomically() {
    let before = b"one\ntwo\nthree\n";
    let both = apply_edits(before, &[edit_without_hint("three", "3"), edit_without_hint("one", "1")])
        .expect("applies");
    assert_eq!(both.after, b"1\ntwo\n3\n");
    let twice = apply_edits(before, &[edit_without_hint("two", "2"), edit_without_hint("two", "2")])
        .expect("the same edit twice is one");
    assert_eq!(twice.after, b"one\n2\nthree\n");
    let shared = apply_edits(
        before,
        &[edit_without_hint("one\ntwo", "1\ntwo"), edit_without_hint("two\nthree", "two\n3")],
    )
    .expect("context is shared");
    assert_eq!(shared.after, b"1\ntwo\n3\n");
    for clash in [
        [edit_without_hint("one", "1"), edit_without_hint("none", "0")],
        [edit_without_hint("two", "2"), edit_without_hint("two", "zwei")],
    ] {
        let error = apply_edits(before, &clash).expect_err("refused");
        assert!(error.message.starts_with("Nothing was changed: edit 2 of 2"), "{error}");
    }
    assert!(apply_edits(before, &[]).is_err());
}

#[test]
fn non_utf8_bytes_are_kept() {
    let applied = apply_edits(b"caf\xe9 one\ntwo\n", &[edit_without_hint("two", "2")]).expect("applies");
    assert_eq!(applied.after, b"caf\xe9 one\n2\n");
}

/// Takes real lines of this engine's source and changes one operator in the search. None may be applied.
#[test]
fn changed_operator_is_never_applied() {
    let flips = [
        (" == ", " != "),
        (" != ", " == "),
        (" < ", " > "),
        (" > ", " < "),
        (" <= ", " >= "),
        (" < ", " <= "),
        (" + ", " - "),
        (" - ", " + "),
        (" += ", " -= "),
        (" && ", " || "),
        (" || ", " && "),
        ("true", "false"),
        ("(!", "("),
        ("&&", "&"),
        ("&mut ", "&"),
        ("..=", ".."),
        ("?;", ";"),
    ];
    let mut tried = 0;
    for text in [
        include_str!("patch_formats/hunk.rs"),
        include_str!("patch_formats/unified.rs"),
        include_str!("merge.rs"),
        include_str!("tokens.rs"),
        include_str!("plan.rs"),
    ] {
        let text = text.split("#[cfg(test)]").next().expect("a part before the tests");
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            for (from, to) in flips {
                let turned = line.replacen(from, to, 1);
                if turned == *line || line.trim_start().starts_with('/') || text.contains(turned.trim()) {
                    continue;
                }
                for more in [1, 3, 6] {
                    let rest = lines[(at + 1).min(lines.len())..(at + more).min(lines.len())].join("\n");
                    let search = format!("{turned}\n{rest}\n");
                    let replace = format!("{turned} zz_new\n{rest}\n");
                    let made = apply_edits(text.as_bytes(), &[edit_without_hint(&search, &replace)]);
                    assert!(made.is_err(), "{from:?} as {to:?}, {more} lines: {line}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 200, "{tried}");
}

/// Generates lines of few kinds, so that all levels and ambiguities occur.
fn arbitrary_text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("let alpha = compute(1);"),
        Just("    let alpha = compute(1);"),
        Just("\treturn alpha"),
        Just(""),
        Just("if alpha {"),
        Just("}"),
        Just("let alhpa = compute(1);"),
        Just("# ..."),
        Just("```"),
        Just("12| x"),
        Just("caf\u{e9} \u{201c}q\u{201d}"),
        Just("alpha beta gamma delta epsilon"),
    ];
    let eol = prop_oneof![4 => Just("\n"), 1 => Just("\r\n"), 1 => Just("")];
    prop::collection::vec((line, eol), 0..9)
        .prop_map(|lines| lines.into_iter().flat_map(|(a, b)| [a, b]).collect())
}

proptest! {
    #[test]
    fn arbitrary_input_never_panics(
        before in prop::collection::vec(any::<u8>(), 0..120), search in ".{0,20}", replace in ".{0,20}"
    ) {
        apply_edits(&before, &[edit_without_hint(&search, &replace)]).ok();
    }

    /// Lines outside the edited region keep their bytes, and every line of the result comes from
    /// the file or the replacement.
    #[test]
    fn untouched_lines_keep_their_bytes(
        head in arbitrary_text(), core in arbitrary_text(), tail in arbitrary_text(), search in arbitrary_text(), replace in arbitrary_text()
    ) {
        let before = format!("{head}\nUNIQUE-ONE\n{core}\nUNIQUE-TWO\n{tail}");
        let edits = [edit_without_hint(&format!("UNIQUE-ONE\n{search}\nUNIQUE-TWO\n"), &format!("UNIQUE-ONE\n{replace}\nUNIQUE-TWO\n"))];
        if let Ok(applied) = apply_edits(before.as_bytes(), &edits) {
            let after = String::from_utf8(applied.after).expect("text stays text");
            prop_assert!(after.starts_with(&format!("{head}\nUNIQUE-ONE\n")), "{after:?}");
            prop_assert!(after.ends_with(&format!("UNIQUE-TWO\n{tail}")), "{after:?}");
        }
    }

    /// Text that occurs exactly once, byte for byte, is replaced literally.
    #[test]
    fn exact_match_is_replaced_literally(head in arbitrary_text(), tail in arbitrary_text(), replace in "[a-z]{1,5}(\n[a-z]{1,5}){0,3}") {
        let before = format!("{head}\nTHE PLACE\n{tail}");
        let applied = apply_edits(before.as_bytes(), &[edit_without_hint("THE PLACE", &replace)]).expect("one exact place");
        let after = String::from_utf8(applied.after).expect("text");
        prop_assert_eq!(after, format!("{head}\n{replace}\n{tail}"));
    }

    /// The same edits in any order produce the same bytes.
    #[test]
    fn edit_order_does_not_matter(texts in prop::collection::vec("[a-z]{1,4}", 3)) {
        let before = "first place\nx\nsecond place\ny\nthird place\n";
        let edits: Vec<Edit> = ["first place", "second place", "third place"]
            .iter().zip(&texts).map(|(search, replace)| edit_without_hint(search, replace)).collect();
        let backwards: Vec<Edit> = edits.iter().rev().cloned().collect();
        let both = (apply_edits(before.as_bytes(), &edits), apply_edits(before.as_bytes(), &backwards));
        prop_assert_eq!(both.0.map(|a| a.after).ok(), both.1.map(|a| a.after).ok());
    }
}
