//! Suggests existing paths for one that does not exist: the same name elsewhere, or a similar name.

use cap_std::fs::Dir;
use docket_schema::content::WorkspacePath;

use super::{
    files::FileError,
    walk::{HiddenEntries, walk_folder},
};

/// Most names that are compared.
const CANDIDATES_MAX: usize = 50_000;
/// Most names that are suggested.
const SUGGESTIONS_MAX: usize = 3;
/// Minimum Jaro–Winkler similarity of two names: accepts `util.py` and `utils.py`, rejects `a.py` and `b.py`.
const SIMILARITY_MIN: f64 = 0.9;

/// Formats a file error for the model; if the file is missing, with the most similar existing paths.
pub(crate) fn format_file_error(root: &Dir, error: &FileError) -> String {
    let FileError::Missing(path) = error else { return error.to_string() };
    let near = similar_paths(root, path);
    match near.is_empty() {
        true => error.to_string(),
        false => format!("`{path}` does not exist; near it are {}", near.join(", ")),
    }
}

fn similar_paths(root: &Dir, wanted: &WorkspacePath) -> Vec<String> {
    let text = wanted.to_string();
    let name = file_name(&text);
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_lowercase();
    let Ok(all) = walk_folder(root, None, None, HiddenEntries::Include) else { return Vec::new() };
    let mut found: Vec<(f64, String)> = all
        .take(CANDIDATES_MAX)
        .filter(|visited| !visited.is_dir)
        .filter_map(|visited| {
            let path = visited.path.to_string();
            let own = file_name(&path);
            let likeness = if own == name {
                // With equal names, the more similar folders win.
                2.0 + strsim::jaro_winkler(&path, &text)
            } else if stem(own) == stem(name) {
                1.5
            } else {
                strsim::jaro_winkler(&own.to_lowercase(), &name.to_lowercase())
            };
            (likeness >= SIMILARITY_MIN).then_some((likeness, path))
        })
        .collect();
    // Sorted by path before, so ties keep that order.
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    found.into_iter().take(SUGGESTIONS_MAX).map(|(_, path)| format!("`{path}`")).collect()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tools::testing::TestWorkspace;

    #[test]
    fn missing_file_error_suggests_similar_paths() {
        let mut w = TestWorkspace::new(&[
            ("src/shop/app.py", ""),
            ("src/utils.py", ""),
            ("web/app.py", ""),
            ("x.c", ""),
        ]);
        for (path, near) in [
            ("app", "near it are `src/shop/app.py`, `web/app.py`"),
            ("shop/app.py", "near it are `src/shop/app.py`, `web/app.py`"),
            ("src/util.py", "near it are `src/utils.py`"),
            ("q.rs", "does not exist: list_files shows what does"),
        ] {
            for (tool, args) in [
                ("read_file", json!({ "path": path })),
                ("edit_file", json!({ "path": path, "edits": [{ "search": "a", "replace": "b" }] })),
            ] {
                let out = w.call_tool(tool, args);
                assert!(out.is_error && out.text().contains(near), "{tool} {path}: {}", out.text());
            }
        }
    }
}
