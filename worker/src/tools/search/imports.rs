//! Import graph of a project, from import lines and each language's usual rules. Pure. A rough picture for planning:
//! imports that do not resolve to a file of the project are left out.

use std::collections::{BTreeMap, BTreeSet};

/// Maps a file to the files that it imports.
pub(crate) type ImportGraph = BTreeMap<String, BTreeSet<String>>;

/// Whether a file's extension is one whose imports are read.
pub(crate) fn is_source_file(path: &str) -> bool {
    import_language(path).is_some()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ImportLanguage {
    Python,
    Script,
    Rust,
    Go,
    C,
}

fn import_language(path: &str) -> Option<ImportLanguage> {
    Some(match path.rsplit_once('.')?.1 {
        "py" | "pyi" => ImportLanguage::Python,
        "js" | "mjs" | "cjs" | "jsx" | "ts" | "mts" | "cts" | "tsx" => ImportLanguage::Script,
        "rs" => ImportLanguage::Rust,
        "go" => ImportLanguage::Go,
        "c" | "h" | "cc" | "cpp" | "cxx" | "hpp" | "hh" => ImportLanguage::C,
        _ => return None,
    })
}

/// Builds the graph. `files` are all paths, `sources` the texts of those that are read.
pub(crate) fn import_graph(files: &BTreeSet<String>, sources: &BTreeMap<String, String>) -> ImportGraph {
    let mut all = ImportGraph::new();
    for (path, text) in sources {
        let project = ImportResolver { files, folder: parent_folder(path), path };
        let found: BTreeSet<String> = match import_language(path) {
            Some(ImportLanguage::Python) => {
                text.lines().flat_map(|line| project.python_imports(line)).collect()
            }
            Some(ImportLanguage::Script) => {
                text.lines().flat_map(|line| project.script_imports(line)).collect()
            }
            Some(ImportLanguage::Rust) => text.lines().filter_map(|line| project.rust_import(line)).collect(),
            Some(ImportLanguage::Go) => text.lines().filter_map(|line| project.go_import(line)).collect(),
            Some(ImportLanguage::C) => text.lines().filter_map(|line| project.c_include(line)).collect(),
            None => continue,
        };
        let found: BTreeSet<String> = found.into_iter().filter(|used| used != path).collect();
        if !found.is_empty() {
            all.insert(path.clone(), found);
        }
    }
    all
}

fn parent_folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn join_path(folder: &str, rest: &str) -> String {
    if folder.is_empty() { rest.to_owned() } else { format!("{folder}/{rest}") }
}

struct ImportResolver<'a> {
    files: &'a BTreeSet<String>,
    folder: &'a str,
    path: &'a str,
}

impl ImportResolver<'_> {
    fn first_existing(&self, candidates: impl IntoIterator<Item = String>) -> Option<String> {
        candidates.into_iter().find(|path| self.files.contains(path))
    }

    fn python_imports(&self, line: &str) -> Vec<String> {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(names) = line.strip_prefix("import ") {
            let modules = names.split(',').filter_map(|name| name.split_whitespace().next());
            return modules.filter_map(|module| self.resolve_python_module(module)).collect();
        }
        let Some((module, names)) = line.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
        else {
            return Vec::new();
        };
        let names = names.trim_matches(['(', ')', ' ']).split(',');
        let names = names.filter_map(|name| name.split_whitespace().next());
        // `from a import b`: b is a module of the package or a name in it.
        let dot = if module.ends_with('.') { "" } else { "." };
        let mut found: Vec<String> =
            names.filter_map(|name| self.resolve_python_module(&format!("{module}{dot}{name}"))).collect();
        if found.is_empty() {
            found.extend(self.resolve_python_module(module));
        }
        found
    }

    fn resolve_python_module(&self, module: &str) -> Option<String> {
        let dots = module.len() - module.trim_start_matches('.').len();
        let rest = module[dots..].replace('.', "/");
        let at = |root: &str| {
            let base = join_path(root, &rest);
            [format!("{base}.py"), format!("{base}/__init__.py"), format!("{base}.pyi")]
        };
        if dots > 0 {
            let mut root = self.folder;
            for _ in 1..dots {
                root = parent_folder(root);
            }
            return if rest.is_empty() {
                self.first_existing([join_path(root, "__init__.py")])
            } else {
                self.first_existing(at(root))
            };
        }
        self.first_existing(["", "src", self.folder].iter().flat_map(|root| at(root)))
    }

    fn script_imports(&self, line: &str) -> Vec<String> {
        let marks = ["from ", "import ", "import(", "require("];
        if !marks.iter().any(|mark| line.contains(mark)) {
            return Vec::new();
        }
        let quoted = line.split(['\'', '"', '`']).skip(1).step_by(2);
        quoted
            .filter(|text| text.starts_with('.'))
            .filter_map(|text| self.resolve_script_module(text))
            .collect()
    }

    fn resolve_script_module(&self, text: &str) -> Option<String> {
        let base = resolve_relative(self.folder, text)?;
        let bare = base.strip_suffix(".js").unwrap_or(&base);
        let endings = ["ts", "tsx", "mts", "js", "jsx", "mjs", "cjs"];
        let own = endings.iter().map(|end| format!("{bare}.{end}"));
        let index = endings.iter().map(|end| join_path(&base, &format!("index.{end}")));
        self.first_existing(std::iter::once(base.clone()).chain(own).chain(index))
    }

    fn rust_import(&self, line: &str) -> Option<String> {
        let line = line.trim();
        let line = line.strip_prefix("pub").map_or(line, |rest| {
            let rest = rest.trim_start();
            if rest.starts_with('(') { rest.split_once(')').map_or(rest, |(_, rest)| rest) } else { rest }
        });
        let line = line.trim_start();
        if let Some(name) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
            let stem = self.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"))?;
            let below = if ["lib", "main", "mod"].contains(&stem) {
                self.folder.to_owned()
            } else {
                join_path(self.folder, stem)
            };
            return self.first_existing([
                join_path(&below, &format!("{name}.rs")),
                join_path(&below, &format!("{name}/mod.rs")),
            ]);
        }
        let path = line.strip_prefix("use crate::")?;
        let words: Vec<&str> = path.split("::").map(|word| word.trim_matches(['{', ';', ' ', ','])).collect();
        let root = self.crate_root()?;
        // The longest prefix that is a module.
        (1..=words.len().min(4)).rev().find_map(|many| {
            let base = join_path(root, &words[..many].join("/"));
            self.first_existing([format!("{base}.rs"), format!("{base}/mod.rs")])
        })
    }

    /// The nearest parent folder called `src`.
    fn crate_root(&self) -> Option<&str> {
        let mut at = self.folder;
        loop {
            if at == "src" || at.ends_with("/src") {
                return Some(at);
            }
            if at.is_empty() {
                return None;
            }
            at = parent_folder(at);
        }
    }

    /// A Go package is a folder; its first file represents it.
    fn go_import(&self, line: &str) -> Option<String> {
        let line = line.trim();
        let is_import = line.starts_with("import ") || line.ends_with('"');
        let package = line.split('"').nth(1).filter(|package| is_import && package.contains('/'))?;
        // The part before the folder is the module's own name.
        let ends = package.match_indices('/').map(|(at, _)| &package[at + 1..]);
        ends.filter(|folder| !folder.is_empty())
            .find_map(|wanted| {
                let below = format!("{wanted}/");
                self.files.range(below.clone()..).next().filter(|path| {
                    path.starts_with(&below) && path.ends_with(".go") && !path[below.len()..].contains('/')
                })
            })
            .cloned()
    }

    fn c_include(&self, line: &str) -> Option<String> {
        let name = line.trim().strip_prefix("#include")?.trim().strip_prefix('"')?.split('"').next()?;
        let near = resolve_relative(self.folder, name);
        self.first_existing(near.into_iter().chain([
            name.to_owned(),
            join_path("include", name),
            join_path("src", name),
        ]))
    }
}

/// Resolves a path relative to a folder; `None` if it leads outside.
fn resolve_relative(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports_of(path: &str, text: &str, files: &[&str]) -> Vec<String> {
        let files = files.iter().chain([&path]).map(|path| (*path).to_owned()).collect();
        let sources = BTreeMap::from([(path.to_owned(), text.to_owned())]);
        import_graph(&files, &sources).remove(path).unwrap_or_default().into_iter().collect()
    }

    #[test]
    fn imports_are_resolved_to_files_of_the_project() {
        for (path, text, files, wanted) in [
            (
                "t/test_a.py",
                "import a, os\nfrom pkg.b import c  # why\n",
                &["a.py", "pkg/b.py"][..],
                &["a.py", "pkg/b.py"][..],
            ),
            (
                "pkg/x.py",
                "from . import y, z\nfrom ..q import r\nfrom .y import (k)\n",
                &["pkg/y.py", "q.py", "pkg/__init__.py"],
                &["pkg/y.py", "q.py"],
            ),
            ("m.py", "from lib import thing\n", &["src/lib/__init__.py"], &["src/lib/__init__.py"]),
            ("m.py", "x = 'import a'\nimport numpy\n", &["a.py"], &[]),
            (
                "web/a.ts",
                "import { b } from './b';\nconst c = require(\"../c.js\");\nimport 'react';\n",
                &["web/b.tsx", "c.ts"],
                &["c.ts", "web/b.tsx"],
            ),
            ("web/a.js", "export * from './d'\n", &["web/d/index.js"], &["web/d/index.js"]),
            (
                "src/lib.rs",
                "mod a;\npub(crate) mod b;\nmod c {\n",
                &["src/a.rs", "src/b/mod.rs", "src/c.rs"],
                &["src/a.rs", "src/b/mod.rs"],
            ),
            (
                "k/src/b/mod.rs",
                "use crate::a::{f, g};\nuse crate::b::d::E;\nuse std::fs;\n",
                &["k/src/a.rs", "k/src/b/d.rs"],
                &["k/src/a.rs", "k/src/b/d.rs"],
            ),
            (
                "cmd/main.go",
                "import (\n\t\"fmt\"\n\t\"example.org/m/internal/q\"\n)\n",
                &["internal/q/q.go", "internal/q/r.go"],
                &["internal/q/q.go"],
            ),
            (
                "src/a.c",
                "#include <stdio.h>\n#include \"b.h\"\n#include \"c.h\"\n",
                &["src/b.h", "include/c.h"],
                &["include/c.h", "src/b.h"],
            ),
            ("a/x.js", "import '../../out'\n", &["out.js"], &[]),
        ] {
            assert_eq!(imports_of(path, text, files), wanted, "{path}: {text}");
        }
    }
}
