//! Dashboard files embedded in the binary, each with its hash as a strong ETag.
//!
//! Add a new file as a line in `files!`; a test compares the folder with the table.

use std::{collections::HashMap, sync::LazyLock};

use axum::http::HeaderValue;

/// The page served for every dashboard address.
const INDEX_PAGE: &str = "index.html";

macro_rules! files {
    ($($name:literal),+ $(,)?) => { &[$(($name, include_bytes!(concat!("assets/", $name)))),+] };
}

/// Name below `/ui/assets/`, and content.
static ASSET_FILES: &[(&str, &[u8])] = files![
    "api.js",
    "app.js",
    "backlog/bulk-actions.js",
    "backlog/loaded-tasks.js",
    "backlog/task-panel.js",
    "base.css",
    "charts.js",
    "components.css",
    "components.js",
    "dialogs.js",
    "dom.js",
    "format.js",
    "icon.svg",
    "index.html",
    "keyboard.js",
    "live.js",
    "pages.css",
    "pages/backlog.js",
    "pages/login.js",
    "pages/metrics.js",
    "pages/overview.js",
    "pages/run.js",
    "pages/task.js",
    "router.js",
    "run.css",
    "run/changes.js",
    "run/comparison.js",
    "run/diff.js",
    "run/files.js",
    "run/forks.js",
    "run/header.js",
    "run/ledger.js",
    "run/tabs.js",
    "run/turn-slider.js",
    "run/turn.js",
    "task-actions.js",
    "task-details.js",
    "theme.js",
];

/// A file as it is served.
#[derive(Debug)]
pub(crate) struct DashboardAsset {
    pub(crate) bytes: &'static [u8],
    pub(crate) content_type: HeaderValue,
    /// BLAKE3 hash of the content, so that a browser does not download it twice.
    pub(crate) etag: HeaderValue,
}

static ASSETS: LazyLock<HashMap<&'static str, DashboardAsset>> = LazyLock::new(|| {
    ASSET_FILES
        .iter()
        .filter_map(|(name, bytes)| Some((*name, DashboardAsset::from_file(name, bytes)?)))
        .collect()
});

impl DashboardAsset {
    fn from_file(name: &str, bytes: &'static [u8]) -> Option<Self> {
        let content_type = match name.rsplit_once('.')?.1 {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => return None,
        };
        let hash = blake3::hash(bytes).to_hex();
        let etag = HeaderValue::from_str(&format!("\"{}\"", hash.get(..32)?)).ok()?;
        Some(Self { bytes, content_type: HeaderValue::from_static(content_type), etag })
    }
}

/// Returns the file with this name.
pub(crate) fn find_asset(name: &str) -> Option<&'static DashboardAsset> {
    ASSETS.get(name)
}

/// Returns the page itself.
pub(crate) fn index_page() -> Option<&'static DashboardAsset> {
    find_asset(INDEX_PAGE)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    fn assets_dir() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dashboard/assets")
    }

    fn list_files_on_disk() -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut folders = vec![assets_dir()];
        while let Some(at) = folders.pop() {
            for entry in fs::read_dir(&at).expect("the folder").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(assets_dir()).expect("within").display().to_string();
                    found.insert(name);
                }
            }
        }
        found
    }

    #[test]
    fn every_asset_file_is_served_unchanged() {
        let names: BTreeSet<String> = ASSETS.keys().map(|name| (*name).to_owned()).collect();
        assert_eq!(names, list_files_on_disk());
        for (name, asset) in ASSETS.iter() {
            assert_eq!(asset.bytes, fs::read(assets_dir().join(name)).expect(name), "{name}");
            assert!(!asset.bytes.is_empty(), "{name}");
        }
        assert!(index_page().is_some());
    }

    /// Everything that a module imports or the page references exists under that name.
    #[test]
    fn every_reference_between_assets_resolves() {
        let mut followed = 0;
        for (name, asset) in ASSETS.iter() {
            let text = std::str::from_utf8(asset.bytes).expect("UTF-8");
            let at = Path::new(name).parent().expect("a folder");
            for part in text.split(['"', '\'']).skip(1) {
                let target =
                    if let Some(rest) = part.strip_prefix("/ui/assets/").filter(|rest| !rest.is_empty()) {
                        rest.to_owned()
                    } else if part.starts_with("./") || part.starts_with("../") {
                        let joined = at.join(part);
                        let mut parts: Vec<&str> = Vec::new();
                        for step in joined.iter().filter_map(|step| step.to_str()) {
                            match step {
                                "." => {}
                                ".." => drop(parts.pop()),
                                step => parts.push(step),
                            }
                        }
                        parts.join("/")
                    } else {
                        continue;
                    };
                followed += 1;
                assert!(ASSETS.contains_key(target.as_str()), "{name} names {part}");
            }
        }
        assert!(followed > 20, "{followed} references");
    }

    /// Foreign text is inserted as text, never as markup; the response policy blocks anything else.
    #[test]
    fn no_asset_injects_markup_or_runs_inline_code() {
        let words = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "createContextualFragment",
            "DOMParser",
            "setHTML",
            "srcdoc",
            "eval(",
            "new Function",
            "javascript:",
            " style=",
            " onclick=",
            " onload=",
            "\"style\"",
        ];
        for (name, asset) in ASSETS.iter().filter(|(name, _)| !name.ends_with(".svg")) {
            let text = std::str::from_utf8(asset.bytes).expect("UTF-8");
            for (n, line) in text.lines().enumerate() {
                for word in words {
                    assert!(!line.contains(word), "{name}:{}: {word}: {line}", n + 1);
                }
            }
        }
    }

    #[test]
    fn asset_files_stay_short() {
        for (name, asset) in ASSETS.iter() {
            let lines = std::str::from_utf8(asset.bytes).expect("UTF-8").lines().count();
            assert!(lines <= 500, "{name} has {lines} lines, at most 500");
        }
    }
}
