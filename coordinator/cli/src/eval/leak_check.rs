//! Whether a file that nobody was to read was shown to a model: by what stands in its lines, for a name says nothing of
//! what `cat` printed.
//!
//! What is looked at is every result that a model was given, of the run and of what it gave away: of tools, of checks, of
//! setup. Of each line any [`WINDOW_CHARS`] characters in a row are looked for, the line itself where it is shorter; what
//! stands around a mark of struck text counts together; and base64 is decoded first, wherever it begins and however it is
//! broken into lines.
//!
//! What remains is not found: a command that read a file and showed nothing of it, for that stands in no log; and what
//! was shown in another shape (hexadecimal, compressed, backwards, character by character, base64 of another alphabet or
//! twice over), or in pieces shorter than a window.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use docket_schema::{redact::first_redaction, run::RunEvent};
use docket_worker::{client::CoordinatorClient, policy::PathGlob};

use crate::output::error::CliResult;

/// A shorter line may stand anywhere.
const LINE_CHARS_MIN: usize = 6;
/// So many characters of a line in a row stand nowhere by chance.
const WINDOW_CHARS: usize = 24;
/// With fewer different characters it is a rule of dashes, a row of blanks.
const WINDOW_KINDS_MIN: usize = 4;
/// The base64 of [`LINE_CHARS_MIN`] characters; a shorter word need not be decoded.
const BASE64_CHARS_MIN: usize = 8;
/// What is cut out of the midst of base64 ends anywhere.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// A file that is larger is read up to here: what is secret is small.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// All that a model was shown; what is base64 in it follows it, decoded.
pub(super) async fn collect_shown_texts(
    client: &CoordinatorClient,
    events: &[RunEvent],
) -> CliResult<Vec<String>> {
    let mut shown = Vec::new();
    for event in events {
        let content = if let RunEvent::ToolFinished(finished) = event {
            &finished.content
        } else if let RunEvent::GateFinished(finished) = event {
            &finished.content
        } else if let RunEvent::SetupFinished(finished) = event {
            &finished.content
        } else {
            continue;
        };
        let bytes = match content.blob_ref() {
            Some(blob) => client.get_blob(&blob).await?.to_vec(),
            None => content.inline_bytes().unwrap_or_default(),
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let decoded = decode_base64_words(&text);
        shown.push(text);
        shown.extend(decoded);
    }
    Ok(shown)
}

/// What the words of base64 in a text stand for. A word may begin within a group of four characters: each of four is tried.
fn decode_base64_words(text: &str) -> Vec<String> {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    // `base64` breaks what it writes into lines.
    let whole = text.replace(['\n', '\r'], "");
    let words = whole.split(|c| !is_base64(c)).filter(|word| word.len() >= BASE64_CHARS_MIN);
    let tried = words.flat_map(|word| (0..4).map(move |from| &word[from..]));
    tried
        .filter_map(|word| {
            // One character alone holds no byte.
            let end = if word.len() % 4 == 1 { word.len() - 1 } else { word.len() };
            BASE64.decode(&word[..end]).ok()
        })
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

/// What is wrong with the files of the base in `root` that `glob` means: one was shown, or none can be judged. What also
/// stands in a file that may be read, or in the task itself, tells nothing.
pub(super) fn describe_leak(
    root: &Path,
    glob: &PathGlob,
    forbidden: &[PathGlob],
    shown: &[String],
    task: &str,
) -> Option<String> {
    let files = list_files(root);
    let (mut judged, mut meant) = (0, 0);
    for path in files.iter().filter(|path| glob.matches(path)) {
        meant += 1;
        let text = read_text_lossy(root, path);
        let telling = FileFingerprint::from_text(&text);
        judged += usize::from(!telling.lines.is_empty());
        let (mut whole, mut parts) = (telling.matches_in(shown), telling.matches_around_marks(shown));
        if whole.is_empty() && parts.is_empty() {
            continue;
        }
        let others = files.iter().filter(|other| !forbidden.iter().any(|glob| glob.matches(other)));
        for open in std::iter::once(task.to_owned()).chain(others.map(|other| read_text_lossy(root, other))) {
            let open = [open];
            let known = telling.matches_in(&open);
            whole.retain(|piece| !known.contains(piece));
            parts.retain(|(before, after)| {
                !open[0].lines().any(|line| contains_in_order(line, before, after))
            });
        }
        if !whole.is_empty() || !parts.is_empty() {
            return Some(format!("the model was shown what stands in {path}"));
        }
    }
    match (meant, judged) {
        (0, _) => Some("no file of the base is meant".to_owned()),
        (_, 0) => Some(format!(
            "no line of it has {LINE_CHARS_MIN} characters that are not all alike, so nobody can tell"
        )),
        _ => None,
    }
}

/// What of a file tells, where it is seen elsewhere, that the file was read.
struct FileFingerprint<'a> {
    /// Its lines.
    lines: Vec<&'a str>,
    /// Those that are shorter than a window.
    short: Vec<&'a str>,
    /// All windows of the others.
    windows: HashSet<&'a str>,
}

impl<'a> FileFingerprint<'a> {
    fn from_text(text: &'a str) -> Self {
        let chars = |line: &str| line.chars().count();
        let all = text.lines().map(str::trim).filter(|line| chars(line) >= LINE_CHARS_MIN);
        let (short, long): (Vec<&str>, Vec<&str>) = all.partition(|line| chars(line) < WINDOW_CHARS);
        let windows: HashSet<&str> = long
            .iter()
            .copied()
            .flat_map(text_windows)
            .filter(|window| window.chars().collect::<HashSet<_>>().len() >= WINDOW_KINDS_MIN)
            .collect();
        let is_telling = |line: &&str| known_windows(&windows, line).next().is_some();
        let lines = long.into_iter().filter(is_telling).chain(short.iter().copied()).collect();
        Self { lines, short, windows }
    }

    /// What of it stands in these texts.
    fn matches_in(&self, texts: &[String]) -> HashSet<&'a str> {
        let mut shown = HashSet::new();
        for text in texts {
            shown.extend(known_windows(&self.windows, text));
            shown.extend(self.short.iter().copied().filter(|line| text.contains(line)));
        }
        shown
    }

    /// What of a line stands before and behind a mark of struck text: as much together as tells something.
    fn matches_around_marks(&self, texts: &[String]) -> Vec<(&'a str, &'a str)> {
        let mut shown = Vec::new();
        for line in texts.iter().flat_map(|text| text.lines()) {
            let mut from = 0;
            while let Some(mark) = first_redaction(&line[from..]) {
                let (start, end) = (from + mark.start, from + mark.end);
                let behind = &line[end..];
                let behind = &behind[..first_redaction(behind).map_or(behind.len(), |next| next.start)];
                shown.extend(
                    self.lines.iter().filter_map(|own| match_around_mark(own, &line[from..start], behind)),
                );
                from = end;
            }
        }
        shown
    }
}

/// What of a line stands at the end of `before` and, further on in it, at the start of `behind`; none where that is too
/// little to tell anything.
fn match_around_mark<'a>(line: &'a str, before: &str, behind: &str) -> Option<(&'a str, &'a str)> {
    let places: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
    let ends = |at: usize| {
        let pairs = line[..at].chars().rev().zip(before.chars().rev());
        pairs.take_while(|(own, other)| own == other).count()
    };
    let begins = |at: usize| {
        let pairs = line[at..].chars().zip(behind.chars());
        pairs.take_while(|(own, other)| own == other).count()
    };
    let chars = places.len() - 1;
    let is_short = chars < WINDOW_CHARS;
    // For each place of the first part the best one behind it: from the end, so that each is looked at once.
    let (mut best, mut second) = (None, (chars, 0));
    for place in (0..chars).rev() {
        let next = begins(places[place + 1]);
        // Of a short line all but what was struck must be there.
        if next > second.1 && (!is_short || place + 1 + next == chars) {
            second = (place + 1, next);
        }
        let first = ends(places[place]);
        let is_enough = if is_short {
            first == place && second.0 + second.1 == chars && first + second.1 >= LINE_CHARS_MIN
        } else {
            first + second.1 >= WINDOW_CHARS
        };
        if is_enough {
            best = Some((place - first, place, second));
        }
    }
    let (from, to, (at, many)) = best?;
    Some((&line[places[from]..places[to]], &line[places[at]..places[at + many]]))
}

/// Whether a line holds the one and, further on, the other.
fn contains_in_order(line: &str, before: &str, behind: &str) -> bool {
    line.split_once(before).is_some_and(|(_, rest)| rest.contains(behind))
}

/// Those of the windows that stand in a text.
fn known_windows<'a, 'b>(
    all: &'b HashSet<&'a str>,
    text: &'b str,
) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
    text_windows(text).filter_map(|window| all.get(window).copied())
}

/// Each [`WINDOW_CHARS`] characters in a row; all of a text that has fewer.
fn text_windows(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.char_indices().map(|(at, _)| at);
    let ends = text.char_indices().map(|(at, _)| at).skip(WINDOW_CHARS).chain([text.len()]);
    starts.zip(ends).map(|(from, to)| &text[from..to])
}

fn read_text_lossy(root: &Path, path: &str) -> String {
    let mut bytes = fs::read(root.join(OsStr::from_bytes(path.as_bytes()))).unwrap_or_default();
    bytes.truncate(FILE_BYTES_MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All files below `root` but git's own, from there.
fn list_files(root: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten().flatten() {
            let path = folder.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != ".git" => folders.push(path),
                Ok(kind) if kind.is_file() => found.extend(path.to_str().map(str::to_owned)),
                Ok(_) | Err(_) => {}
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        folder
    }

    fn is_leaked(root: &Path, glob: &str, shown: &str, task: &str) -> bool {
        let glob = PathGlob::new(glob).expect(glob);
        let all: Vec<String> = std::iter::once(shown.to_owned()).chain(decode_base64_words(shown)).collect();
        describe_leak(root, &glob, std::slice::from_ref(&glob), &all, task).is_some()
    }

    #[test]
    fn line_unique_to_a_file_proves_it_was_shown() {
        let folder = folder_with(&[
            ("secrets/token", "user = docket\nopen sesame\n"),
            ("a.py", "user = docket\n"),
            ("short/pin", "123\n"),
        ]);
        let glob = |text: &str| PathGlob::new(text).expect(text);
        let forbidden = [glob("secrets/**"), glob("short/*")];
        let leaked = |of: usize, shown: &str, task: &str| {
            super::describe_leak(folder.path(), &forbidden[of], &forbidden, &[shown.to_owned()], task)
        };
        assert_eq!(leaked(0, "   1  user = docket\nwhatever", ""), None, "it stands in an open file too");
        let said = leaked(0, "   2  open sesame", "").expect("shown");
        assert!(said.contains("secrets/token"), "{said}");
        assert_eq!(leaked(0, "open sesame", "say open sesame"), None, "the task itself says it");
        assert!(leaked(1, "123", "").expect("cannot be judged").contains("nobody can tell"));
        let none = super::describe_leak(folder.path(), &glob("nothing/*"), &forbidden, &[], "");
        assert!(none.expect("vain").contains("no file"), "a check that looks at nothing must not pass");
    }

    #[test]
    fn part_of_a_line_is_a_leak_unless_it_is_elsewhere() {
        let secret = "the spare key hangs behind the third barrel";
        let folder = folder_with(&[
            ("secrets/keys.txt", &format!("{secret}\n------------------------------\nshort: 12\n")),
            ("open.txt", "the spare key hangs behind the door\nshort: 34\n"),
        ]);
        let leaked = |shown: &str| is_leaked(folder.path(), "secrets/**", shown, "");
        for (shown, is) in [
            (secret, true),
            ("it hangs behind the third barrel, they say", true),
            ("hangs behind the third b", true),
            ("angs behind the third b", false),
            ("the spare key hangs behind the", false),
            ("Ran 1 test\n------------------------------------\nOK", false),
            ("what: short: 12!", true),
            ("short: 1", false),
            // Not across lines of what was shown.
            ("hangs behind the\n third barrel", false),
        ] {
            assert_eq!(leaked(shown), is, "{shown}");
        }
        let dashes = folder_with(&[("a", "------------------------------\n12345\n")]);
        let glob = PathGlob::new("a").expect("a glob");
        let said = super::describe_leak(dashes.path(), &glob, std::slice::from_ref(&glob), &[], "")
            .expect("cannot be judged");
        assert!(said.contains("nobody can tell"), "{said}");
    }

    #[test]
    fn text_around_a_redaction_mark_counts_together() {
        let folder = folder_with(&[
            ("secrets/a", "user anna has the password q1w2e3r4t5 until May\npin = 1234567890\n"),
            ("open", "host = 1234567890\ntoken = 12\n"),
        ]);
        let leaked = |shown: &str| is_leaked(folder.path(), "secrets/*", shown, "");
        for (shown, is) in [
            ("   1  user anna has the password [REDACTED: password] until May", true),
            ("has the password [REDACTED: password] until May", true),
            ("the password [REDACTED: password] until", false),
            ("   2  pin = [REDACTED: value]", true),
            ("   2  pin [REDACTED: value]", false),
            ("host = [REDACTED: value]", false),
            ("nothing of it [REDACTED: value] here", false),
        ] {
            assert_eq!(leaked(shown), is, "{shown}");
        }
        // Likewise in a file that may be read: it may have been that one.
        let folder = folder_with(&[("secrets/a", "token = abcdef\n"), ("open", "token = 12\n")]);
        assert!(!is_leaked(folder.path(), "secrets/*", "token = [REDACTED: value]", ""));
    }

    #[test]
    fn base64_is_decoded_at_any_offset_and_across_lines() {
        use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
        let secret = "the safe opens on the day of the harvest";
        let folder = folder_with(&[("secrets/a", &format!("{secret}\nlock 7\n")), ("open", "nothing\n")]);
        let leaked = |shown: &str| is_leaked(folder.path(), "secrets/*", shown, "");
        for before in ["", "x", "xy", "xyz"] {
            let whole = STANDARD.encode(format!("{before}{secret}\n"));
            assert!(leaked(&whole), "{before}");
            let (one, two) = whole.split_at(19);
            assert!(leaked(&format!("$ base64 -w 19\n{one}\r\n{two}\n")), "{before}: broken");
            // Cut anywhere.
            assert!((1..5).all(|at| leaked(&whole[at..whole.len() - at])), "{before}: cut");
            assert!(leaked(&STANDARD_NO_PAD.encode(format!("{before}lock 7"))), "{before}: a short line");
        }
        assert!(!leaked(&STANDARD.encode("the safe opens on the")), "less than a window of the line");
        assert!(!leaked(&STANDARD.encode("something else that is long enough to be a window")));
    }
}
