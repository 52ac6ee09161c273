//! Paths as models write them: relative to the workspace, or absolute as commands see them. Pure.

use docket_schema::content::WorkspacePath;

use docket_sandbox::WORKSPACE_INSIDE;

/// Why a text is not a workspace path, for the model.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a path in the workspace: give a relative path without `..`, such as src/main.rs")]
pub(crate) struct PathError(pub(crate) String);

/// Parses a path as models write it; `None` if it is not in the workspace.
pub(crate) fn valid_workspace_path(text: &str) -> Option<WorkspacePath> {
    parse_workspace_path(text).ok()
}

/// Parses a path as models write it: `./a//b/` is `a/b`.
pub(crate) fn parse_workspace_path(text: &str) -> Result<WorkspacePath, PathError> {
    let refuse = || PathError(text.chars().take(200).collect());
    let text = strip_workspace_prefix(text);
    if text.starts_with('/') {
        return Err(refuse());
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    WorkspacePath::new(parts.join("/")).ok_or_else(refuse)
}

/// Strips the workspace folder from a path as commands see it.
pub(crate) fn strip_workspace_prefix(text: &str) -> &str {
    match text.strip_prefix(WORKSPACE_INSIDE) {
        Some("") => ".",
        Some(rest) => rest.strip_prefix('/').unwrap_or(text),
        None => text,
    }
}

/// Like [`parse_workspace_path`]; the root, given as an empty text or `.`, is `None`.
pub(crate) fn parse_folder_path(text: Option<&str>) -> Result<Option<WorkspacePath>, PathError> {
    match text.map(str::trim).map(strip_workspace_prefix) {
        None | Some("" | "." | "./") => Ok(None),
        Some(text) => parse_workspace_path(text).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized_or_rejected() {
        let path = |text: &str| parse_workspace_path(text).expect("legal");
        assert_eq!(path("./a//b/"), path("a/b"));
        for bad in ["", "/etc/passwd", "../x", "a/../../x", "a\0b", "."] {
            assert!(parse_workspace_path(bad).is_err(), "{bad:?}");
        }
    }
}
