//! The edit engine, and the patches of other forms that it reads.

use docket_edit::{Edit, Hint, apply, framed, read_patch};
use docket_schema::tool::EditLevel;

use super::{pieces, text};

/// Larger inputs find nothing that smaller ones do not, and are slow.
const BYTES_MAX: usize = 64 * 1024;

/// A file, then search and replacement in turn.
pub(super) fn edit(input: &[u8]) {
    if input.len() > BYTES_MAX {
        return;
    }
    let pieces = pieces(input);
    let (file, rest) = pieces.split_first().expect("there is always one");
    let edits: Vec<Edit> = rest
        .chunks_exact(2)
        .map(|pair| Edit { search: text(&pair[0]), replace: text(&pair[1]), hint: Hint::default() })
        .collect();
    hold(file, &edits);
    let _ = framed("a.py", rest.first().map_or("", |piece| std::str::from_utf8(piece).unwrap_or("")));
}

/// A file, then a patch.
pub(super) fn patch(input: &[u8]) {
    if input.len() > BYTES_MAX {
        return;
    }
    let pieces = pieces(input);
    let (file, patch) = (&pieces[0], pieces.get(1).map_or(String::new(), |patch| text(patch)));
    for path in [None, Some("src/main.py")] {
        if let Ok(edits) = read_patch(path, &patch) {
            hold(file, &edits);
        }
    }
}

/// What an edit that was made has to keep.
fn hold(file: &[u8], edits: &[Edit]) {
    let Ok(applied) = apply(file, edits) else { return };
    assert_eq!(applied.levels.len(), edits.len(), "a level for each edit");
    let nothing_done = applied.levels.iter().all(|level| *level == EditLevel::AlreadyApplied);
    if nothing_done {
        assert_eq!(applied.after, file, "nothing was to be done, and nothing is");
    }
    assert!(
        std::str::from_utf8(file).is_err() || std::str::from_utf8(&applied.after).is_ok(),
        "a text stays a text"
    );
    let most = file.len() + edits.iter().map(|edit| edit.replace.len()).sum::<usize>() * 16 + 4096;
    assert!(applied.after.len() <= most, "{} bytes came of {}", applied.after.len(), file.len());
}
