//! One call's edits, planned in memory against the original and applied together or not at all.

use docket_schema::tool::EditLevel;

use super::{
    explain,
    forms::{is_form, read_patch},
    hint::{self, Anchor, Hint},
    locate::{Doc, Found, Miss, Pattern, already_there, locate},
    merge::{Splice, merge},
    placeholder::brought_in,
    sanitize,
    text::{decode, encode, is_escape},
};

/// Edits of one call. More is a rewrite and hides which of them failed.
pub const EDITS_MAX: usize = 64;

/// Bytes of one search or replacement: larger ones are whole files.
pub const SEARCH_BYTES_MAX: usize = 512 * 1024;

/// A search and what shall stand in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Text of the file, as the model remembers it.
    pub search: String,
    /// The same text as it shall be.
    pub replace: String,
    /// Which place is meant where there are several.
    pub hint: Hint,
}

/// What the edits make of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The file's new bytes; the old ones where all edits were there already.
    pub after: Vec<u8>,
    /// The level each edit was found at, in the order of the call.
    pub levels: Vec<EditLevel>,
}

impl Applied {
    /// The loosest level that was needed.
    #[must_use]
    pub fn level(&self) -> EditLevel {
        self.levels.iter().copied().max().unwrap_or(EditLevel::AlreadyApplied)
    }
}

/// Why nothing was applied. `Display` is written for the model that made the edit: it names the edit
/// and quotes the file's own lines with their numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EditError {
    /// Which edit of the call, from 0; `None` where the call as a whole is at fault.
    pub edit: Option<usize>,
    /// The reason and the file's nearest lines.
    pub message: String,
}

impl EditError {
    fn whole(message: impl Into<String>) -> Self {
        Self { edit: None, message: message.into() }
    }

    fn of(index: usize, total: usize, message: &str) -> Self {
        let message = if total == 1 {
            format!("Nothing was changed: {message}")
        } else {
            format!("Nothing was changed: edit {} of {total}: {message}", index + 1)
        };
        Self { edit: Some(index), message }
    }
}

const BOM: &str = "\u{feff}";

/// Applies `edits` to `before`, all of them or none.
///
/// # Errors
/// [`EditError`] where an edit has no place, more than one, or a place where its change cannot be
/// carried over without guessing; also where edits overlap.
pub fn apply(before: &[u8], edits: &[Edit]) -> Result<Applied, EditError> {
    if edits.is_empty() {
        return Err(EditError::whole("the list of edits is empty: give at least one {search, replace}"));
    }
    if edits.len() > EDITS_MAX {
        return Err(EditError::whole(format!("more than {EDITS_MAX} edits in one call: make several calls")));
    }
    let decoded = decode(before)
        .ok_or_else(|| EditError::whole("the file mixes bytes that are no UTF-8 with private characters"))?;
    let (bom, body) = match decoded.text.strip_prefix(BOM) {
        Some(body) => (BOM, body),
        None => ("", decoded.text.as_str()),
    };
    let read = Doc::new(body);
    let unended = read.lines.last().is_some_and(|line| line.eol.is_empty());
    let text = if unended { format!("{body}{}", read.eol) } else { body.to_owned() };
    let doc = Doc::new(&text);
    let edits = &unfolded(&doc, edits)?;
    let mut levels = Vec::with_capacity(edits.len());
    let mut splices: Vec<(usize, Splice)> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        if let Some(first) = edits[..index].iter().position(|other| other == edit) {
            levels.push(levels[first]);
            continue;
        }
        let planned = plan_one(&doc, edit, decoded.escaped)
            .map_err(|message| EditError::of(index, edits.len(), &message))?;
        levels.push(planned.0);
        splices.extend(planned.1.into_iter().map(|splice| (index, splice)));
    }
    let mut after = join(&text, splices, edits.len())?;
    if unended
        && !doc.solid.is_empty()
        && let Some(eol) = [doc.eol, "\n"].into_iter().find(|eol| after.ends_with(eol))
    {
        after.truncate(after.len() - eol.len());
    }
    Ok(Applied { after: encode(&format!("{bom}{after}"), decoded.escaped), levels })
}

/// The edits, with those whose search is a whole patch of another form read as what they are. Text that
/// stands in the file is text.
fn unfolded(doc: &Doc<'_>, edits: &[Edit]) -> Result<Vec<Edit>, EditError> {
    let mut out = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        let alone = edit.replace.trim().is_empty() || edit.replace == edit.search;
        if alone && edit.hint == Hint::default() && is_form(&edit.search) && !doc.text.contains(&edit.search)
        {
            let read = read_patch(None, &edit.search);
            out.extend(read.map_err(|error| EditError { edit: Some(index), message: error.to_string() })?);
        } else {
            out.push(edit.clone());
        }
    }
    if out.len() > EDITS_MAX {
        return Err(EditError::whole(format!("more than {EDITS_MAX} edits in one call: make several calls")));
    }
    Ok(out)
}

fn plan_one(doc: &Doc<'_>, edit: &Edit, escaped: bool) -> Result<(EditLevel, Vec<Splice>), String> {
    let pattern = normal(doc, edit);
    hint::check(&edit.hint)?;
    if let Some(splice) = added(doc, edit, &pattern)? {
        return Ok((EditLevel::Exact, vec![splice]));
    }
    check(doc, &pattern, escaped)?;
    let found = match locate(doc, &pattern, &edit.hint) {
        Err(Miss::Absent | Miss::Doubtful(_)) if already_there(doc, &pattern).is_some() => {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Ok(found)
            if found.iter().all(|found| found.level == EditLevel::Fuzzy)
                && already_there(doc, &pattern)
                    .is_some_and(|place| found.iter().all(|found| meet(&place, &found.region()))) =>
        {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Err(Miss::Absent | Miss::Doubtful(_)) => cleaned(doc, &pattern, &edit.hint)?,
        other => other.map_err(|miss| explain::miss(doc, &pattern, &miss))?,
    };
    if let Some(found) = sanitize::written(doc, &pattern) {
        return Err(found.text().to_owned());
    }
    if edit.hint.whole_lines && found.iter().any(|found| lacks_margin(doc, found)) {
        return Err(
            "a context line of the patch lacks the blank that stands before the file's own text: begin \
                    each line of a hunk with ` `, `-` or `+`"
                .to_owned(),
        );
    }
    let mut splices = Vec::new();
    for found in &found {
        splices.extend(merge(doc, found).map_err(|conflict| explain::conflict(doc, found, &conflict))?);
    }
    let regions = found.iter().flat_map(|found| found.region()).filter_map(|line| doc.lines.get(line));
    let old: String = regions.flat_map(|line| [line.text, "\n"]).collect();
    if let Some(mark) = splices.iter().find_map(|splice| brought_in(&old, &splice.text)) {
        return Err(format!(
            "replace brings in `{mark}`, which stands for a value that was hidden and is no text of the file: \
             leave that line out of search and replace, so that the file keeps its own. A file that is to hold \
             these very words is written with run_command"
        ));
    }
    let level = found.iter().map(|found| found.level).max().unwrap_or(EditLevel::Exact);
    Ok((level, splices))
}

/// The splice of an edit that quotes nothing, where there is nothing to quote: the file is empty, or a hunk
/// that only adds lines names the line above them.
fn added(doc: &Doc<'_>, edit: &Edit, pattern: &Pattern) -> Result<Option<Splice>, String> {
    if !pattern.search.trim().is_empty() || pattern.replace.trim().is_empty() {
        return Ok(None);
    }
    let (start, end) = match &edit.hint.anchor {
        _ if doc.solid.is_empty() => (0, doc.text.len()),
        Some(Anchor::Below(0)) => (0, 0),
        Some(Anchor::Below(line)) => match doc.lines.get(line - 1) {
            Some(line) => (line.end_with_eol(), line.end_with_eol()),
            None => {
                return Err(format!("the hunk adds lines below line {line}, which the file does not have"));
            }
        },
        Some(Anchor::Line(_) | Anchor::After(_) | Anchor::End) | None => return Ok(None),
    };
    if let Some(found) = sanitize::written(doc, pattern) {
        return Err(found.text().to_owned());
    }
    if let Some(mark) = brought_in("", &pattern.replace) {
        return Err(format!("replace brings in `{mark}`, which stands for a value that was hidden"));
    }
    Ok(Some(Splice { start, end, text: pattern.replace.replace('\n', doc.eol) }))
}

/// Whether a line of the file is the search's with one blank before it: the blank was the line's mark.
fn lacks_margin(doc: &Doc<'_>, found: &Found) -> bool {
    found.level > EditLevel::Whitespace
        && found.align.iter().zip(&found.search).any(|(place, said)| {
            let real = place.map(|place| doc.lines[place].text);
            !said.trim().is_empty() && real.and_then(|real| real.strip_prefix(' ')) == Some(said)
        })
}

fn meet(a: &std::ops::Range<usize>, b: &std::ops::Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The second try, for a search copied with a frame around it.
fn cleaned(doc: &Doc<'_>, pattern: &Pattern, hint: &Hint) -> Result<Vec<Found>, String> {
    let miss =
        |pattern: &Pattern| locate(doc, pattern, hint).map_err(|miss| explain::miss(doc, pattern, &miss));
    match sanitize::clean(pattern) {
        Ok(clean) if clean.search != pattern.search && !clean.search.trim().is_empty() => miss(&clean),
        Ok(_) => miss(pattern),
        Err(why) => Err(format!("{} {}", why.text(), explain::nearest(doc, &pattern.search))),
    }
}

fn normal(doc: &Doc<'_>, edit: &Edit) -> Pattern {
    let plain = |text: &str| {
        let text = text.strip_prefix(BOM).unwrap_or(text).replace("\r\n", "\n");
        if doc.eol == "\r" { text.replace('\r', "\n") } else { text }
    };
    Pattern { search: plain(&edit.search), replace: plain(&edit.replace) }
}

fn check(doc: &Doc<'_>, pattern: &Pattern, escaped: bool) -> Result<(), String> {
    if pattern.search.len() > SEARCH_BYTES_MAX || pattern.replace.len() > SEARCH_BYTES_MAX {
        return Err(format!("search or replace exceeds {SEARCH_BYTES_MAX} bytes: quote only what changes"));
    }
    if doc.solid.is_empty() {
        return Err(
            "the file is empty, so there is nothing that search could name: fill it with an empty search"
                .to_owned(),
        );
    }
    if pattern.search.is_empty() {
        return Err("search is empty: quote the lines that the change replaces, or the line beside which \
                    text is to be added"
            .to_owned());
    }
    if pattern.search.trim().is_empty() {
        return Err("search holds only white space: quote a line with text".to_owned());
    }
    if pattern.search == pattern.replace {
        return Err("search and replace are equal: there is nothing to change".to_owned());
    }
    if escaped && pattern.replace.chars().any(is_escape) {
        return Err("replace holds a private character that this file's encoding cannot take".to_owned());
    }
    Ok(())
}

/// Writes the splices, in order of their place; refuses those that overlap.
fn join(text: &str, mut splices: Vec<(usize, Splice)>, total: usize) -> Result<String, EditError> {
    splices.sort_by_key(|(index, splice)| (splice.start, splice.end, *index));
    for two in splices.windows(2) {
        let ((a, first), (b, second)) = (&two[0], &two[1]);
        let same_spot =
            first.start == second.start || (second.start == first.end && second.start == second.end);
        if a == b && first.end > second.start {
            let message = "the places it names touch each other: make one edit of the lines they stand on";
            return Err(EditError::of(*a, total, message));
        }
        if a != b && (first.end > second.start || same_spot) {
            let line = text[..second.start].matches('\n').count() + 1;
            let message = format!(
                "it changes the same text as edit {}, at line {line}. All edits are matched against the \
                 file as it is now: join the two into one edit.",
                a.min(b) + 1
            );
            return Err(EditError::of(*a.max(b), total, &message));
        }
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (_, splice) in &splices {
        out.push_str(&text[at..splice.start]);
        out.push_str(&splice.text);
        at = splice.end;
    }
    out.push_str(&text[at..]);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edit(search: &str, replace: &str) -> Edit {
        Edit { search: search.to_owned(), replace: replace.to_owned(), hint: Hint::default() }
    }

    fn check(before: &str, search: &str, replace: &str, want: Result<(&str, EditLevel), &str>) {
        match (apply(before.as_bytes(), &[edit(search, replace)]), want) {
            (Ok(applied), Ok((after, level))) => {
                assert_eq!(String::from_utf8_lossy(&applied.after), after, "{search:?}");
                assert_eq!(applied.level(), level, "{search:?}");
            }
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
            (got, want) => panic!("{search:?}: got {got:?}, not {want:?}"),
        }
    }

    #[test]
    fn each_level_finds_its_place_and_keeps_the_files_bytes() {
        use EditLevel::{AlreadyApplied, Exact, Fuzzy, Indentation, Whitespace};
        check("a\nb\n", "b", "c", Ok(("a\nc\n", Exact)));
        check(
            "let a = 1;  \nlet b = 2;\n",
            "let a = 1;\nlet b = 2;",
            "let a = 1;\nlet b = 3;",
            Ok(("let a = 1;  \nlet b = 3;\n", Whitespace)),
        );
        check(
            "fn f() {\n\tif x {\n\t\tgo(one);\n\t}\n}\n",
            "if x {\n    go(one);\n}",
            "if x {\n    go(one);\n    if y {\n        stop();\n    }\n}",
            Ok(("fn f() {\n\tif x {\n\t\tgo(one);\n\t\tif y {\n\t\t\tstop();\n\t\t}\n\t}\n}\n", Indentation)),
        );
        check(
            "x = receive_message(y)\nz = 1\n",
            "x = recieve_message(y)\nz = 1",
            "x = receive_message(y, 2)\nz = 1",
            Ok(("x = receive_message(y, 2)\nz = 1\n", Fuzzy)),
        );
        check(
            "say('it')\nend_of_it()\n",
            "say(\"it\")\nend_of_it()",
            "say(\"it\")\nend_of_it(2)",
            Ok(("say('it')\nend_of_it(2)\n", Fuzzy)),
        );
        check(
            "start(1)\nnew_line()\nstop(2)\n",
            "start(1)\nold_line()\nstop(2)",
            "start(1)\nnew_line()\nstop(2)",
            Ok(("start(1)\nnew_line()\nstop(2)\n", AlreadyApplied)),
        );
    }

    #[test]
    fn line_ends_mark_and_last_line_stay() {
        use EditLevel::{Exact, Indentation};
        check("\u{feff}a\r\nb\r\nc", "b\nc", "b\nd\nc", Ok(("\u{feff}a\r\nb\r\nd\r\nc", Exact)));
        check("a\r\nb\nc\r\n", "b", "x\ny", Ok(("a\r\nx\ny\nc\r\n", Exact)));
        check("a\nlast", "last\n", "final\n", Ok(("a\nfinal", Exact)));
        check("  abc\r\n    def\r\n", "abc\n  def", "abc\n  xyz", Ok(("  abc\r\n    xyz\r\n", Indentation)));
        check("keep\ngone\n", "gone", "", Ok(("keep\n", Exact)));
        check("only\n", "only\n", "", Ok(("", Exact)));
        check("a\rb\rc\r", "b", "d", Ok(("a\rd\rc\r", Exact)));
        check("a\rb\rc", "b\nc", "b\nd", Ok(("a\rb\rd", Exact)));
        check("", "", "x = 1\n", Ok(("x = 1\n", Exact)));
        check("\n \n", "", "x = 1\n", Ok(("x = 1\n", Exact)));
    }

    #[test]
    fn what_is_not_certain_is_refused() {
        check("a\nb\na\n", "a", "c", Err("matches 2 places"));
        check("aaa\n", "aa", "b", Err("matches 2 places"));
        check("  go(x)\nq\n    go(x)\n", "go( x )\n", "no", Err("matches 2 places"));
        check("  go(x);\nq\n    go(x);\n", "\tgo(x);\n", "no", Err("matches 2 places"));
        check(
            "total_b = compute(beta, 2)\n",
            "total_c = compute(gamma, 2)",
            "x",
            Err("     1| total_b = compute(beta, 2)"),
        );
        check("a\n", "", "x", Err("search is empty"));
        check("a\n", " \n", "x", Err("only white space"));
        check("", "a", "x", Err("the file is empty"));
        check("a\n", "a", "a", Err("equal"));
        check("alpha()\nbeta()\ngamma()\n", "alpha()\n...\ngamma()", "x", Err("omitted lines"));
        check("alpha()\nbeta()\n", "alpha()", "alpha()\n# ... rest of the code ...", Err("omitted lines"));
        check(
            "start(a)\nhidden(b)\nfinish(c)\n",
            "start(a)\nfinish(c)",
            "begin(a)\nend(c)",
            Err("Nothing was changed"),
        );
    }

    #[test]
    fn several_edits_stand_or_fall_together() {
        let before = b"one\ntwo\nthree\n";
        let both = apply(before, &[edit("three", "3"), edit("one", "1")]).expect("applies");
        assert_eq!(both.after, b"1\ntwo\n3\n");
        let twice = apply(before, &[edit("two", "2"), edit("two", "2")]).expect("the same edit twice is one");
        assert_eq!(twice.after, b"one\n2\nthree\n");
        let shared = apply(before, &[edit("one\ntwo", "1\ntwo"), edit("two\nthree", "two\n3")])
            .expect("context is shared");
        assert_eq!(shared.after, b"1\ntwo\n3\n");
        for clash in [[edit("one", "1"), edit("none", "0")], [edit("two", "2"), edit("two", "zwei")]] {
            let error = apply(before, &clash).expect_err("refused");
            assert!(error.message.starts_with("Nothing was changed: edit 2 of 2"), "{error}");
        }
        assert!(apply(before, &[]).is_err());
    }

    #[test]
    fn bytes_that_are_no_text_stay() {
        let applied = apply(b"caf\xe9 one\ntwo\n", &[edit("two", "2")]).expect("applies");
        assert_eq!(applied.after, b"caf\xe9 one\n2\n");
    }

    /// Lines of few kinds, so that all levels and ambiguities are met.
    fn some_text() -> impl Strategy<Value = String> {
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
        fn no_bytes_and_no_edit_make_it_panic(
            before in prop::collection::vec(any::<u8>(), 0..120), search in ".{0,20}", replace in ".{0,20}"
        ) {
            apply(&before, &[edit(&search, &replace)]).ok();
        }

        /// Lines outside the region of the edit keep their bytes, and every line of the result is the
        /// file's or the replacement's.
        #[test]
        fn untouched_lines_keep_their_bytes(
            head in some_text(), core in some_text(), tail in some_text(), search in some_text(), replace in some_text()
        ) {
            let before = format!("{head}\nUNIQUE-ONE\n{core}\nUNIQUE-TWO\n{tail}");
            let edits = [edit(&format!("UNIQUE-ONE\n{search}\nUNIQUE-TWO\n"), &format!("UNIQUE-ONE\n{replace}\nUNIQUE-TWO\n"))];
            if let Ok(applied) = apply(before.as_bytes(), &edits) {
                let after = String::from_utf8(applied.after).expect("text stays text");
                prop_assert!(after.starts_with(&format!("{head}\nUNIQUE-ONE\n")), "{after:?}");
                prop_assert!(after.ends_with(&format!("UNIQUE-TWO\n{tail}")), "{after:?}");
            }
        }

        /// What stands in the file once, byte for byte, is replaced literally.
        #[test]
        fn an_exact_edit_is_literal(head in some_text(), tail in some_text(), replace in "[a-z]{1,5}(\n[a-z]{1,5}){0,3}") {
            let before = format!("{head}\nTHE PLACE\n{tail}");
            let applied = apply(before.as_bytes(), &[edit("THE PLACE", &replace)]).expect("one exact place");
            let after = String::from_utf8(applied.after).expect("text");
            prop_assert_eq!(after, format!("{head}\n{replace}\n{tail}"));
        }

        /// The same edits in any order give the same bytes.
        #[test]
        fn the_order_of_edits_does_not_matter(texts in prop::collection::vec("[a-z]{1,4}", 3)) {
            let before = "first place\nx\nsecond place\ny\nthird place\n";
            let edits: Vec<Edit> = ["first place", "second place", "third place"]
                .iter().zip(&texts).map(|(search, replace)| edit(search, replace)).collect();
            let backwards: Vec<Edit> = edits.iter().rev().cloned().collect();
            let both = (apply(before.as_bytes(), &edits), apply(before.as_bytes(), &backwards));
            prop_assert_eq!(both.0.map(|a| a.after).ok(), both.1.map(|a| a.after).ok());
        }
    }
}
