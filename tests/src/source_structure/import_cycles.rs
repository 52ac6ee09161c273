//! Import cycles: strongly connected components of a graph (Tarjan, 1972).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path},
};

use super::crate_modules::ProductCrate;

/// Files or folders, each of which reaches all others through imports. Names are relative to the
/// workspace.
pub type ImportCycle = Vec<String>;

/// Returns cycles of files, largest first.
#[must_use]
pub fn file_cycles(product: &[ProductCrate]) -> Vec<ImportCycle> {
    let mut found = Vec::new();
    for read in product {
        for members in strongly_connected_components(&read.file_imports()) {
            let name = |file: usize| read.folder.join(&read.files[file]).display().to_string();
            found.push(members.into_iter().map(name).collect());
        }
    }
    sort_cycles(found)
}

/// Returns cycles across folders: entries of one folder that import from each other in a cycle, at least two
/// of which are folders. A file `x.rs` next to a folder `x` belongs to that entry. The file of the folder's
/// own module (`mod.rs`, or the crate root) belongs to no entry.
#[must_use]
pub fn folder_cycles(product: &[ProductCrate]) -> Vec<ImportCycle> {
    let mut found = Vec::new();
    for read in product {
        let entries: Vec<Vec<String>> = read.files.iter().map(|file| module_path(file)).collect();
        let mut graphs: BTreeMap<&[String], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
        for (from, imports) in read.file_imports().iter().enumerate() {
            for to in imports {
                let (from, to) = (&entries[from], &entries[*to]);
                let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
                if let (Some(one), Some(other)) = (from.get(shared), to.get(shared)) {
                    let graph = graphs.entry(&from[..shared]).or_default();
                    graph.entry(one).or_default().insert(other);
                    graph.entry(other).or_default();
                }
            }
        }
        for (folder, graph) in graphs {
            let names: Vec<&str> = graph.keys().copied().collect();
            let number = |name: &str| names.iter().position(|known| *known == name);
            let edges: Vec<BTreeSet<usize>> = graph
                .values()
                .map(|targets| targets.iter().filter_map(|name| number(name)).collect())
                .collect();
            for members in strongly_connected_components(&edges) {
                let place = |member: usize| [folder, &[names[member].to_owned()]].concat();
                let is_folder = |member: &usize| {
                    entries
                        .iter()
                        .any(|path| path.len() > folder.len() + 1 && path.starts_with(&place(*member)))
                };
                if members.iter().filter(|member| is_folder(member)).count() > 1 {
                    let name =
                        |member: usize| read.folder.join(place(member).join("/")).display().to_string();
                    found.push(members.into_iter().map(name).collect());
                }
            }
        }
    }
    sort_cycles(found)
}

/// Returns the module path of a file: `[a, b]` for `a/b.rs`, `[a]` for `a/mod.rs`.
fn module_path(file: &Path) -> Vec<String> {
    let stem = file.with_extension("");
    let mut parts: Vec<String> = stem
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect();
    let is_own = parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    if is_own {
        parts.pop();
    }
    parts
}

fn sort_cycles(mut circles: Vec<ImportCycle>) -> Vec<ImportCycle> {
    circles.iter_mut().for_each(|circle| circle.sort());
    circles.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
    circles
}

/// Returns the strongly connected components of two or more nodes.
fn strongly_connected_components(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut walk =
        TarjanSearch { edges, visited: vec![None; edges.len()], stack: Vec::new(), found: Vec::new() };
    for node in 0..edges.len() {
        if walk.visited[node].is_none() {
            walk.visit(node);
        }
    }
    walk.found.into_iter().filter(|members| members.len() > 1).collect()
}

#[derive(Clone, Copy)]
struct VisitedNode {
    /// The earliest node on the stack known to be reachable.
    low_link: usize,
    is_on_stack: bool,
}

struct TarjanSearch<'a> {
    edges: &'a [BTreeSet<usize>],
    visited: Vec<Option<VisitedNode>>,
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl TarjanSearch<'_> {
    fn visit(&mut self, node: usize) -> usize {
        let index = self.visited.iter().flatten().count();
        let mut low = index;
        self.visited[node] = Some(VisitedNode { low_link: low, is_on_stack: true });
        self.stack.push(node);
        for target in &self.edges[node] {
            match self.visited[*target] {
                None => low = low.min(self.visit(*target)),
                Some(seen) if seen.is_on_stack => low = low.min(seen.low_link),
                Some(_) => {}
            }
        }
        self.visited[node] = Some(VisitedNode { low_link: low, is_on_stack: true });
        if low == index {
            let at = self.stack.iter().rposition(|member| *member == node).unwrap_or_default();
            let members = self.stack.split_off(at);
            for member in &members {
                self.visited[*member] = Some(VisitedNode { low_link: low, is_on_stack: false });
            }
            self.found.push(members);
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_found_and_a_chain_is_not_a_cycle() {
        let edges = |lists: &[&[usize]]| -> Vec<BTreeSet<usize>> {
            lists.iter().map(|list| list.iter().copied().collect()).collect()
        };
        assert!(strongly_connected_components(&edges(&[&[1], &[2], &[]])).is_empty());
        let mut found = strongly_connected_components(&edges(&[&[1], &[2], &[0, 3], &[4], &[3], &[0]]));
        found.iter_mut().for_each(|members| members.sort_unstable());
        found.sort();
        assert_eq!(found, [vec![0, 1, 2], vec![3, 4]]);
    }
}
