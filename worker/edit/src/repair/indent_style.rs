//! Adapts the replacement of an exact match to the file: its tabs or spaces if the file uses only the other,
//! and the depth of the block if the whole replacement lacks it. A replacement that agrees with the file is
//! used literally.

use std::ops::Range;

use super::block_depth::opens_deeper_block;
use crate::{pattern::EditPattern, search_doc::SearchDoc, text::leading_indent};

/// Returns the pattern with an adapted replacement for the lines `region`, the first of which is matched from
/// column `col` on; `None` if it already agrees with the file.
pub(crate) fn adapt_replacement(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
    region: Range<usize>,
    col: usize,
) -> Option<EditPattern> {
    if !pattern.replace.contains(['\n', '\t']) && !pattern.replace.starts_with(' ') && col > 0 {
        return None;
    }
    let replace = match IndentStyle::from_doc(doc) {
        Some(IndentStyle::Tabs) => convert_to_tabs(doc, pattern, &region, col),
        Some(IndentStyle::Spaces(unit)) if !pattern.replace.contains("<<-") => {
            convert_to_spaces(pattern, unit)
        }
        Some(IndentStyle::Spaces(_)) | None => None,
    };
    let replace = replace.unwrap_or_else(|| pattern.replace.clone());
    let pattern_now = EditPattern { search: pattern.search.clone(), replace };
    let replace = indent_to_block(doc, &pattern_now, &region, col).unwrap_or(pattern_now.replace);
    (replace != pattern.replace).then(|| EditPattern { search: pattern.search.clone(), replace })
}

/// The style that all indented lines of a file share.
enum IndentStyle {
    Tabs,
    /// The number of spaces per level.
    Spaces(usize),
}

impl IndentStyle {
    /// Returns `None` if the file has both styles or no indentation.
    fn from_doc(doc: &SearchDoc<'_>) -> Option<Self> {
        let indents = || doc.non_blank_lines.iter().map(|at| leading_indent(doc.lines[*at].text));
        // Block comments have one space before each asterisk.
        let tabs = indents().any(|indent| indent.starts_with('\t'));
        let blanks = indents().any(|indent| indent.starts_with("  "));
        match (tabs, blanks) {
            (true, false) => Some(Self::Tabs),
            // A makefile without recipes still needs tabs for its first one. So does shell text
            // indented for `<<-`.
            (false, true) if !["$(", ".PHONY", "<<-"].iter().any(|sign| doc.text.contains(sign)) => {
                // Continuation lines say nothing about blocks.
                let opened = |two: &[usize]| {
                    let (above, line) = (doc.lines[two[0]].text, doc.lines[two[1]].text);
                    let step = leading_indent(line).len().checked_sub(leading_indent(above).len());
                    step.filter(|step| (2..=8).contains(step) && above.trim_end().ends_with([':', '{']))
                };
                doc.non_blank_lines.windows(2).filter_map(opened).min().map(Self::Spaces)
            }
            _ => None,
        }
    }
}

/// Multi-line strings have their own whitespace.
fn toggles_multiline_string(line: &str) -> bool {
    ["\"\"\"", "'''", "`"].iter().any(|quote| line.matches(quote).count() % 2 == 1)
}

/// Maps each line of the replacement with `to`, except lines of the search and multi-line strings.
fn map_new_lines(pattern: &EditPattern, mut to: impl FnMut(usize, &str) -> Option<String>) -> Option<String> {
    let mut quoted = false;
    let mut out = Vec::new();
    for (at, line) in pattern.replace.split('\n').enumerate() {
        let inside = quoted;
        quoted ^= toggles_multiline_string(line);
        let kept = inside || line.trim().is_empty() || pattern.search.split('\n').any(|said| said == line);
        let new = to(at, line).filter(|_| !kept);
        out.push(new.unwrap_or_else(|| line.to_owned()));
    }
    let out = out.join("\n");
    (out != pattern.replace).then_some(out)
}

fn convert_to_spaces(pattern: &EditPattern, unit: usize) -> Option<String> {
    map_new_lines(pattern, |_, line| {
        let indent = leading_indent(line);
        indent.contains('\t').then(|| indent.replace('\t', &" ".repeat(unit)) + &line[indent.len()..])
    })
}

/// Converts the replacement's spaces to tabs by depth. The number of spaces per tab is the one that makes
/// each line at most one level deeper than the line above.
fn convert_to_tabs(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
    region: &Range<usize>,
    col: usize,
) -> Option<String> {
    let tabs_of = |indent: &str| indent.matches('\t').count();
    let blanks_of = |indent: &str| indent.matches(' ').count();
    if !pattern.replace.lines().any(|line| leading_indent(line).contains("  ")) {
        return None;
    }
    let head = doc.lines.get(region.start).map_or("", |line| line.text);
    // A first line matched after its indentation has the file's depth.
    let within = tabs_of(leading_indent(&head[..col]));
    let start = doc.lines[..region.start].iter().rev().find(|line| !line.is_blank());
    let before = start
        .map_or(0, |line| tabs_of(leading_indent(line.text)) + usize::from(opens_deeper_block(line.text)));
    let depth = |at: usize, line: &str, unit: usize| {
        let indent = leading_indent(line);
        if at == 0 && col > 0 { within } else { tabs_of(indent) + blanks_of(indent) / unit }
    };
    let fits = |unit: &usize| {
        let mut above = before.max(within);
        let mut quoted = false;
        pattern.replace.split('\n').enumerate().all(|(at, line)| {
            let inside = quoted;
            quoted ^= toggles_multiline_string(line);
            if inside || line.trim().is_empty() {
                return true;
            }
            let deep = depth(at, line, *unit);
            let fine = deep <= above + usize::from(at > 0) && blanks_of(leading_indent(line)) % unit <= 1;
            above = deep;
            fine
        })
    };
    let unit = [4, 8, 2, 3].into_iter().find(fits)?;
    map_new_lines(pattern, |at, line| {
        let indent = leading_indent(line);
        let skip = (at == 0 && col > 0) || !indent.contains("  ");
        let rest = " ".repeat(blanks_of(indent) % unit);
        (!skip).then(|| "\t".repeat(depth(at, line, unit)) + &rest + &line[indent.len()..])
    })
}

/// Indents a replacement of whole lines if all of it is less deep than its block and would fall out of it:
/// below a line that opens the block, or above the block's next line.
fn indent_to_block(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
    region: &Range<usize>,
    col: usize,
) -> Option<String> {
    let solid = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    };
    let (search, replace) = (solid(&pattern.search), solid(&pattern.replace));
    let (said, put) = (search.first()?, replace.first()?);
    let (real, bare) = (leading_indent(said), leading_indent(put));
    let whole = col == 0 && doc.lines.get(region.start)?.text.starts_with(said.as_str());
    if !whole
        || !real.starts_with(bare)
        || real == bare
        || !replace.iter().all(|line| line.starts_with(bare))
        || is_dedented_line(put.trim_start())
        || replace.iter().map(|line| line.trim()).eq(search.iter().map(|line| line.trim()))
    {
        return None;
    }
    // After a blank line, indented text may be an example and the rest prose.
    let solid_at = |at: Option<usize>| at.and_then(|at| doc.lines.get(at)).filter(|line| !line.is_blank());
    let above = solid_at(region.start.checked_sub(1)).map(|line| line.text);
    let below = solid_at(Some(region.end)).map(|line| line.text);
    let opened =
        above.is_some_and(|above| leading_indent(above).len() < real.len() && opens_deeper_block(above));
    let last = replace.last().map_or("", String::as_str);
    let goes_on = below.is_some_and(|below| leading_indent(below) == real)
        && leading_indent(last).len() < real.len()
        && !opens_deeper_block(last);
    if !opened && !goes_on {
        return None;
    }
    // Lines of the search keep their depth, so the replacement is right, unless the block loses its first
    // line, which is invalid where indentation is significant.
    let kept = replace.iter().any(|line| search.contains(line));
    let emptied = above
        .is_some_and(|above| above.trim_end().ends_with(':') && leading_indent(above).len() >= bare.len());
    let alone = kept && replace[1..].iter().all(|line| line.starts_with(real));
    if kept && (!emptied || (alone && opens_deeper_block(put))) {
        return None;
    }
    let first = pattern.replace.split('\n').position(|line| !line.trim().is_empty())?;
    let deeper = |(at, line): (usize, &str)| match line.strip_prefix(bare) {
        Some(rest) if !line.trim().is_empty() && (at == first || !alone) => format!("{real}{rest}"),
        Some(_) | None => line.to_owned(),
    };
    Some(pattern.replace.split('\n').enumerate().map(deeper).collect::<Vec<_>>().join("\n"))
}

/// Returns whether a line may be less deep than its block: it closes or divides the block, or is a list item
/// or a label.
fn is_dedented_line(line: &str) -> bool {
    let word: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
    line.starts_with(['}', ')', ']', '<', '#', '-', '*', '+', '|', '>', '/', '"', '\'', '`', '@', '.'])
        || line.starts_with(|c: char| c.is_ascii_digit())
        || matches!(
            word.as_str(),
            "else"
                | "elif"
                | "elsif"
                | "except"
                | "catch"
                | "finally"
                | "rescue"
                | "end"
                | "fi"
                | "done"
                | "esac"
                | "case"
                | "default"
                | "public"
                | "private"
                | "protected"
        )
}

#[cfg(test)]
mod tests {
    use crate::{Edit, EditHint, apply_edits};

    fn assert_edit_result(before: &str, search: &str, replace: &str, want: &str) {
        let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() };
        let applied =
            apply_edits(before.as_bytes(), &[edit]).unwrap_or_else(|error| panic!("{search:?}: {error}"));
        assert_eq!(String::from_utf8_lossy(&applied.after), want, "{search:?} {replace:?}");
    }

    #[test]
    fn new_lines_use_tabs_like_the_file() {
        let make = "all: build\n\nbuild:\n\tgo build\n";
        assert_edit_result(
            make,
            "all: build\n",
            "all: build\n\nclean:\n    rm -rf bin\n",
            "all: build\n\nclean:\n\trm -rf bin\n\nbuild:\n\tgo build\n",
        );
        assert_edit_result(
            make,
            "go build",
            "go build\n    go vet",
            "all: build\n\nbuild:\n\tgo build\n\tgo vet\n",
        );
        assert_edit_result(
            make,
            "\tgo build\n",
            "\tgo build\n\nt:\n        go t\n",
            &format!("{make}\nt:\n\tgo t\n"),
        );
        let go = "func A() {\n\tx()\n\tif ok {\n\t\tz()\n\t}\n}\n";
        assert_edit_result(go, "x()", "x()\n    w()", &go.replace("x()\n", "x()\n\tw()\n"));
        assert_edit_result(go, "x()", "x()\n\t    w()", &go.replace("x()\n", "x()\n\t\tw()\n"));
        assert_edit_result(go, "z()", "z()\n        w()", &go.replace("z()\n", "z()\n\t\tw()\n"));
        assert_edit_result(
            go,
            "func A() {\n",
            "func A() {\n    w()\n    if q {\n        r()\n    }\n",
            &go.replace("A() {\n", "A() {\n\tw()\n\tif q {\n\t\tr()\n\t}\n"),
        );
        assert_edit_result(
            go,
            "func A() {\n",
            "/*\n * B\n */\nfunc B() {\n  w()\n}\n\nfunc A() {\n",
            &format!("/*\n * B\n */\nfunc B() {{\n\tw()\n}}\n\n{go}"),
        );
        let class = "class A:\n\tdef f(self):\n\t\tx = 1\n";
        for search in ["def f(self):", "\tdef f(self):"] {
            let before = if search.starts_with('\t') { "    " } else { "" };
            let replace = format!("{before}def f(self):\n        y = 2");
            assert_edit_result(class, search, &replace, &class.replace("self):\n", "self):\n\t\ty = 2\n"));
        }
        assert_edit_result(
            class,
            "class A:\n",
            "class A:\n    z = 0\n\n",
            &class.replace("A:\n", "A:\n\tz = 0\n\n"),
        );
    }

    #[test]
    fn new_lines_use_spaces_like_the_file() {
        let class = "class A:\n  def f(self):\n    x = 1\n";
        assert_edit_result(
            class,
            "class A:\n",
            "class A:\n\tz = 0\n\n",
            &class.replace("A:\n", "A:\n  z = 0\n\n"),
        );
        let vars = "SRC = a.c \\\n      b.c\n";
        assert_edit_result(vars, "      b.c\n", "      b.c\nall:\n\tcc\n", &format!("{vars}all:\n\tcc\n"));
    }

    #[test]
    fn matching_or_mixed_indentation_is_kept_literally() {
        let go = "func A() {\n\tx()\n}\n";
        assert_edit_result(go, "\tx()", "\tx(`\n    a\n`)", &go.replace("x()", "x(`\n    a\n`)"));
        let mixed = "a:\n\tb\nc:\n    d\n";
        assert_edit_result(mixed, "c:\n", "c:\n    e\n", &mixed.replace("c:\n", "c:\n    e\n"));
        assert_edit_result(mixed, "a:\n", "a:\n\te\n", &mixed.replace("a:\n", "a:\n\te\n"));
        let shell = "f() {\n  a\n}\n";
        assert_edit_result(shell, "  a\n", "  cat <<-E\n\tx\n\tE\n", "f() {\n  cat <<-E\n\tx\n\tE\n}\n");
        assert_edit_result("a:\n  b\n", "a:\n", "a:\n    e\n", "a:\n    e\n  b\n");
    }

    #[test]
    fn replacement_stays_inside_its_block() {
        let class = "class A:\n    def f(self):\n        a = 1\n        return a\n";
        let body = |body: &str| format!("class A:\n    def f(self):\n{body}");
        for replace in ["a = 2\nif a:\n    return a", "    a = 2\n    if a:\n        return a"] {
            let want = body("        a = 2\n        if a:\n            return a\n");
            assert_edit_result(class, "        a = 1\n        return a", replace, &want);
        }
        assert_edit_result(class, "        a = 1\n", "a = 2\n", &class.replace("a = 1", "a = 2"));
        // An unchanged line proves nothing if the block would lose its first line.
        assert_edit_result(
            class,
            "        a = 1\n        return a",
            "a = 2\n        return a",
            &class.replace("= 1", "= 2"),
        );
        assert_edit_result("a:\n  b: 1\n  c: 2\n  d: 3\n", "  c: 2", "c: 5", "a:\n  b: 1\n  c: 5\n  d: 3\n");
        for (before, search, replace, want) in [
            // Moved out of the loop on purpose.
            ("for a in b:\n    c()\n    d()\n", "    d()", "e()", "for a in b:\n    c()\ne()\n"),
            ("- a\n  - b\n", "  - b", "- c", "- a\n- c\n"),
            (
                "class A {\n    int x;\n};\n",
                "    int x;",
                "public:\n    int y;",
                "class A {\npublic:\n    int y;\n};\n",
            ),
            (
                "f() {\n    a();\n}\n",
                "    a();",
                "#if X\n    b();\n#endif",
                "f() {\n#if X\n    b();\n#endif\n}\n",
            ),
            ("if a:\n    b\n", "    b", "b", "if a:\nb\n"),
            ("Try:\n\n    run\n", "    run", "Nothing.", "Try:\n\nNothing.\n"),
        ] {
            assert_edit_result(before, search, replace, want);
        }
    }
}
