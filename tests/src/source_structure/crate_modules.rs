//! The modules of a crate, and the files that they import from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use quote::ToTokens as _;
use syn::{Item, UseTree};

use super::paths::find_paths;

/// The possible root files of a crate, relative to its folder.
const CRATE_ROOTS: [&str; 2] = ["src/lib.rs", "src/main.rs"];
/// Maximum length of a chain of re-exports. A longer one is a cycle.
const REEXPORTS_MAX: usize = 16;

/// A crate of the product: its modules, and the imports between its files.
#[derive(Debug)]
pub struct ProductCrate {
    /// The folder of its root file, relative to the workspace: `worker/src`.
    pub folder: PathBuf,
    /// Its files, relative to `folder`. The root file is the first.
    pub files: Vec<PathBuf>,
    modules: Vec<SourceModule>,
}

#[derive(Debug, Default)]
struct SourceModule {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names of items defined here.
    items: BTreeSet<String>,
    /// Names bound by `use`.
    bindings: BTreeMap<String, Vec<String>>,
    /// Modules imported with a glob.
    globs: Vec<Vec<String>>,
    /// Every path of two or more segments.
    paths: Vec<Vec<String>>,
}

/// The target of a path.
enum PathTarget {
    Module(usize),
    Item(usize),
}

/// Reads every crate of the workspace at `root` except the test crates.
///
/// # Errors
/// Returns an error if a file cannot be read or is not Rust.
pub fn product_crates(root: &Path) -> Result<Vec<ProductCrate>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for name in CRATE_ROOTS {
            if root.join(&folder).join("Cargo.toml").exists() && root.join(&folder).join(name).exists() {
                found.push(ProductCrate::read_crate(root, &folder.join(name))?);
            }
        }
        for entry in fs::read_dir(root.join(&folder))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_source = !name.starts_with('.') && !["target", "tests", "node_modules"].contains(&&*name);
            if is_source && entry.path().is_dir() && name != "src" {
                folders.push(folder.join(name));
            }
        }
    }
    ensure!(!found.is_empty(), "no crate under {}", root.display());
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(found)
}

impl ProductCrate {
    fn read_crate(root: &Path, main: &Path) -> Result<Self> {
        let folder = main.parent().context("a folder")?.to_owned();
        let mut read = Self { folder: folder.clone(), files: Vec::new(), modules: Vec::new() };
        let name = PathBuf::from(main.file_name().context("a name")?);
        read.add_file_module(&root.join(folder), name, PathBuf::new(), None)?;
        Ok(read)
    }

    /// Reads a file and the files of its modules, which are in `below`. Returns its module.
    fn add_file_module(
        &mut self,
        source: &Path,
        file: PathBuf,
        below: PathBuf,
        parent: Option<usize>,
    ) -> Result<usize> {
        let text = fs::read_to_string(source.join(&file)).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        self.files.push(file);
        let number = self.files.len() - 1;
        self.add_module(source, number, below, parent, parsed.items)
    }

    fn add_module(
        &mut self,
        source: &Path,
        file: usize,
        below: PathBuf,
        parent: Option<usize>,
        items: Vec<Item>,
    ) -> Result<usize> {
        let own = self.modules.len();
        self.modules.push(SourceModule { file, parent, ..SourceModule::default() });
        for item in items.into_iter().filter(|item| !is_test_only(item)) {
            if let Some(name) = item_name(&item) {
                self.modules[own].items.insert(name);
            }
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let below = below.join(&name);
                    let child = match module.content {
                        Some((_, items)) => self.add_module(source, file, below, Some(own), items)?,
                        None => {
                            let beside = below.with_extension("rs");
                            let is_beside = source.join(&beside).exists();
                            let path = if is_beside { beside } else { below.join("mod.rs") };
                            self.add_file_module(source, path, below, Some(own))?
                        }
                    };
                    self.modules[own].children.insert(name, child);
                }
                Item::Use(item) => self.bind_use_tree(own, &mut Vec::new(), &item.tree),
                Item::ForeignMod(_) | Item::ExternCrate(_) => {}
                other => self.modules[own].paths.extend(find_paths(other.into_token_stream())),
            }
        }
        Ok(own)
    }

    fn bind_use_tree(&mut self, module: usize, before: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.bind_use_tree(module, before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.bind_use_tree(module, before, tree))
            }
            UseTree::Glob(_) => self.modules[module].globs.push(before.clone()),
            UseTree::Name(name) => {
                let last = name.ident.to_string();
                let path = if last == "self" { before.clone() } else { [&before[..], &[last]].concat() };
                self.bind_name(module, path.last().cloned().unwrap_or_default(), path);
            }
            UseTree::Rename(rename) => {
                let path = [&before[..], &[rename.ident.to_string()]].concat();
                let name = if rename.rename == "_" { path.join("::") } else { rename.rename.to_string() };
                self.bind_name(module, name, path);
            }
        }
    }

    fn bind_name(&mut self, module: usize, name: String, path: Vec<String>) {
        self.modules[module].paths.push(path.clone());
        self.modules[module].bindings.insert(name, path);
    }

    /// Returns the files that each file imports from, by index.
    #[must_use]
    pub fn file_imports(&self) -> Vec<BTreeSet<usize>> {
        let mut imports = vec![BTreeSet::new(); self.files.len()];
        for (number, module) in self.modules.iter().enumerate() {
            let globs = module.globs.iter().filter_map(|path| self.resolve(number, path, REEXPORTS_MAX));
            let items = module.paths.iter().filter_map(|path| self.resolve(number, path, REEXPORTS_MAX));
            let items = items.filter(|target| matches!(target, PathTarget::Item(_)));
            for PathTarget::Module(target) | PathTarget::Item(target) in globs.chain(items) {
                let file = self.modules[target].file;
                if file != module.file {
                    imports[module.file].insert(file);
                }
            }
        }
        imports
    }

    /// Returns the module or item that a path names. `None` means a path outside the crate, or a method.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<PathTarget> {
        let (mut at, mut rest) = (from, path);
        let mut is_rooted = false;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = self.modules[at].parent?,
                _ => break,
            }
            (rest, is_rooted) = (others, true);
        }
        for (place, name) in rest.iter().enumerate() {
            match self.lookup(at, name, depth) {
                Some(PathTarget::Module(module)) => at = module,
                Some(PathTarget::Item(module)) => return Some(PathTarget::Item(module)),
                None if place == 0 && !is_rooted => return None,
                // An item that a macro generates.
                None => return Some(PathTarget::Item(at)),
            }
        }
        Some(PathTarget::Module(at))
    }

    /// Returns the meaning of a name in a module.
    fn lookup(&self, module: usize, name: &str, depth: usize) -> Option<PathTarget> {
        let depth = depth.checked_sub(1)?;
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return Some(PathTarget::Module(*child));
        }
        if here.items.contains(name) {
            return Some(PathTarget::Item(module));
        }
        if let Some(path) = here.bindings.get(name) {
            return self.resolve(module, path, depth);
        }
        here.globs.iter().find_map(|glob| match self.resolve(module, glob, depth)? {
            PathTarget::Module(other) if other != module => self.lookup(other, name, depth),
            PathTarget::Module(_) | PathTarget::Item(_) => None,
        })
    }
}

/// Returns whether only tests compile the item.
fn is_test_only(item: &Item) -> bool {
    let attributes = match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string();
        text.contains("cfg (test)") || text.contains("cfg (all (test")
    })
}

fn item_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
