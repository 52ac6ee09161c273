//! Checks links between the project's Markdown files: each must lead to an existing file, and to a heading
//! in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

/// Every Markdown file's text, by its path from the root.
pub type MarkdownPages = BTreeMap<PathBuf, String>;

/// Returns broken links as `FILE:LINE: LINK (why)`. `is_there` says whether a path from the root exists.
pub fn broken_links(pages: &MarkdownPages, is_there: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, text) in pages {
        for (line, link) in find_links(text) {
            if let Some(why) = link_problem(pages, &is_there, name, &link) {
                broken.push(format!("{}:{line}: {link} ({why})", name.display()));
            }
        }
    }
    broken
}

fn link_problem(
    pages: &MarkdownPages,
    is_there: &impl Fn(&Path) -> bool,
    from: &Path,
    link: &str,
) -> Option<String> {
    // External links cannot be checked here.
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = match path {
        "" => from.to_owned(),
        path => match resolve_path(from.parent().unwrap_or(Path::new("")), path) {
            Some(target) => target,
            None => return Some("it leads out of the project".to_owned()),
        },
    };
    if !is_there(&target) {
        return Some(format!("there is no {}", target.display()));
    }
    let anchor = anchor?;
    let Some(page) = pages.get(&target) else { return Some("only Markdown has headings".to_owned()) };
    (!heading_anchors(page).contains(anchor)).then(|| format!("{} has no such heading", target.display()))
}

/// Returns a path from the root; `None` if it would leave the root.
fn resolve_path(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut all = folder.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => all.push(name),
            Component::CurDir => {}
            Component::ParentDir if all.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(all)
}

/// Returns the lines outside fenced blocks.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// Finds `[words](LINK)` and `![words](LINK)`, except in inline code.
fn find_links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in prose_lines(text) {
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (start, _) in plain.match_indices("](") {
            if let Some(link) = plain[start + 2..].split(')').next() {
                found.push((at, link.split_whitespace().next().unwrap_or_default().to_owned()));
            }
        }
    }
    found
}

/// Returns the anchors that GitHub generates for headings: lower case, no punctuation, hyphens for spaces,
/// numbered if they repeat.
fn heading_anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for (_, line) in prose_lines(text) {
        let Some(heading) = line
            .strip_prefix('#')
            .map(|rest| rest.trim_start_matches('#'))
            .and_then(|rest| rest.strip_prefix(' '))
        else {
            continue;
        };
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String =
            kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect();
        let before = seen.entry(anchor.clone()).and_modify(|count| *count += 1).or_insert(0);
        all.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_and_anchors_are_reported() {
        let readme = "# It\n[a](docs/a.md) [b](docs/a.md#two-words) [c](https://example.org/x) `[d](no.md)`\n\
                      ```text\n[e](no.md)\n```\n[f](docs/b.md)\n[g](docs/a.md#three)\n[h](../out.md) [i](#it) [j](#that)\n[k](run.sh#x)\n";
        let a = "# A\n## Two `words`!\n[up](../README.md)\n## Two words\n[second](#two-words-1)\n";
        let pages: MarkdownPages = [("README.md", readme), ("docs/a.md", a)]
            .map(|(name, text)| (name.into(), text.to_owned()))
            .into();
        let is_there = |path: &Path| pages.contains_key(path) || path == Path::new("run.sh");
        assert_eq!(
            broken_links(&pages, is_there),
            [
                "README.md:6: docs/b.md (there is no docs/b.md)",
                "README.md:7: docs/a.md#three (docs/a.md has no such heading)",
                "README.md:8: ../out.md (it leads out of the project)",
                "README.md:8: #that (README.md has no such heading)",
                "README.md:9: run.sh#x (only Markdown has headings)",
            ]
        );
    }
}
