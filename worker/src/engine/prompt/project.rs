//! The project layer: build system, tests, files, and the project's own instructions.
//!
//! A pure function of the base tree, so that all tasks on one tree share it ([`ProjectLayer`] is cached per tree by
//! the worker).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Longest project instructions included, in bytes.
pub const INSTRUCTIONS_BYTES_MAX: usize = 32 * 1024;
/// Above this many files the tree is shown as folders with counts.
const TREE_FILES_MAX: usize = 1000;
/// Size limit of the rendered tree, in bytes, with few instructions and with many.
pub(super) const TREE_BYTES_MAX: usize = 12 * 1024;
const TREE_BYTES_MIN: usize = 7 * 1024;
/// Lines about build systems.
const STACK_LINES_MAX: usize = 12;
/// Languages named.
const LANGUAGES_MAX: usize = 6;
/// Bytes of the line that reports omissions.
const LEFT_OUT_BYTES: usize = 60;
/// Minimum bytes for a file of instructions, before the next one is only named.
const INSTRUCTIONS_BYTES_MIN: usize = 512;

/// Bytes around a text in addition to its path: its heading, and the note that it is cut.
const FRAME_BYTES: usize = 100;

/// What the run executor found about the project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectLayer {
    /// Instructions for contributors, the root's first, then by path.
    pub instructions: Vec<InstructionFile>,
    /// Its build systems and languages.
    pub stack: ProjectStack,
    /// Its files, as rendered.
    pub tree: String,
    /// How its tests are run, if that is known.
    pub tests: Option<String>,
    /// Linters that check each change.
    pub linters: Vec<String>,
}

/// A file of instructions: `AGENTS.md` or `CLAUDE.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionFile {
    /// Its path.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl InstructionFile {
    /// The folder it applies to; empty = the whole repository.
    fn scope_folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

/// The build systems and languages of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectStack {
    /// Build systems, each with its folder (empty = the root), the root's first.
    pub built_with: Vec<(String, String)>,
    /// Languages and how many files each has, most frequent first.
    pub languages: Vec<(String, usize)>,
}

impl ProjectLayer {
    /// Builds the layer from the paths of a tree and its instructions.
    pub fn from_files(files: &[String], instructions: Vec<InstructionFile>) -> Self {
        let told: usize = instructions.iter().map(|told| told.text.len()).sum();
        // The tree may use the space that instructions leave.
        let room = (INSTRUCTIONS_BYTES_MAX + TREE_BYTES_MIN).saturating_sub(told);
        let room = room.clamp(TREE_BYTES_MIN, TREE_BYTES_MAX);
        Self {
            instructions,
            stack: ProjectStack::from_files(files),
            tree: render_tree(files, room),
            ..Self::default()
        }
    }

    /// Renders the layer's text.
    pub(super) fn render_text(&self) -> String {
        let mut out = self.stack.render_text();
        if let Some(tests) = &self.tests {
            out.push_str(&format!("Its tests: `{tests}`.\n"));
        }
        if !self.linters.is_empty() {
            out.push_str(&format!("Looks at each change you make: {}.\n", self.linters.join(", ")));
        }
        out.push_str("Files:\n");
        out.push_str(if self.tree.is_empty() { "(none yet)\n" } else { &self.tree });
        self.render_instructions(&mut out);
        out
    }

    /// Renders the instructions within one limit: the root's first, because it applies everywhere. The rest of the
    /// space is shared: short texts are complete, long ones are cut to the same length; if the shares get too small,
    /// the last ones are only named by path, to be read when working there.
    fn render_instructions(&self, out: &mut String) {
        // Each text has its path around it, three times at most.
        let lengths: Vec<(usize, usize)> = self
            .instructions
            .iter()
            .map(|told| (told.text.len(), 3 * told.path.len() + FRAME_BYTES))
            .collect();
        let has_root = self.instructions.first().is_some_and(|told| told.scope_folder().is_empty());
        let shares = allot_bytes(&lengths, has_root);
        let mut unread = Vec::new();
        for (told, share) in self.instructions.iter().zip(shares) {
            let Some(share) = share else {
                unread.push(told.path.as_str());
                continue;
            };
            let text = &told.text[..told.text.floor_char_boundary(share)];
            let about = match told.scope_folder() {
                "" => String::new(),
                folder => format!(" about {folder}/ (it goes over what is said above)"),
            };
            out.push_str(&format!("\n# What {} says{about}\n{}\n", told.path, text.trim_end()));
            if text.len() < told.text.len() {
                out.push_str(&format!("[… cut here; read {} for the rest]\n", told.path));
            }
        }
        if !unread.is_empty() {
            let (shown, more) = unread.split_at(unread.len().min(20));
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            out.push_str(&format!(
                "\nRead what people wrote for a folder before you change something in it: {}{more}\n",
                shown.join(", ")
            ));
        }
    }
}

/// Allots bytes to each text; `None` = only its path is named.
fn allot_bytes(lengths: &[(usize, usize)], has_root: bool) -> Vec<Option<usize>> {
    let (root, rest) = lengths.split_at(usize::from(has_root));
    let root = root.first().map(|(root, _)| (*root).min(INSTRUCTIONS_BYTES_MAX));
    let room = INSTRUCTIONS_BYTES_MAX - root.unwrap_or(0);
    // As many texts as can get the minimum share; a shorter text needs less.
    let least = |(length, around): &(usize, usize)| (*length).min(INSTRUCTIONS_BYTES_MIN) + around;
    let mut told = rest.len();
    while told > 0 && rest[..told].iter().map(least).sum::<usize>() > room {
        told -= 1;
    }
    let mut left = room - rest[..told].iter().map(|(_, around)| around).sum::<usize>();
    let mut by_length: Vec<usize> = rest[..told].iter().map(|(length, _)| *length).collect();
    by_length.sort_unstable();
    // The shortest first: space that a text does not need goes to the others.
    let mut cap = 0;
    for (nth, length) in by_length.iter().enumerate() {
        cap = left / (told - nth);
        left -= cap.min(*length);
    }
    let share = |(nth, (length, _)): (usize, &(usize, usize))| (nth < told).then(|| (*length).min(cap));
    root.into_iter().map(Some).chain(rest.iter().enumerate().map(share)).collect()
}

impl ProjectStack {
    /// Detects the stack from well-known files and extensions.
    pub fn from_files(files: &[String]) -> Self {
        let mut built_with: Vec<(String, String)> = Vec::new();
        for file in files {
            let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
            if is_third_party_folder(folder) {
                continue;
            }
            let beside = |name: &str| {
                let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
                files.binary_search(&path).is_ok()
            };
            if let Some(with) = detect_build_system(name, beside) {
                built_with.push((folder.to_owned(), with));
            }
        }
        built_with.sort_by_key(|(folder, _)| {
            (folder.matches('/').count() + usize::from(!folder.is_empty()), folder.clone())
        });
        built_with.dedup();
        Self { built_with, languages: count_languages(files) }
    }

    fn render_text(&self) -> String {
        let mut out = String::new();
        let root: Vec<&str> = self
            .built_with
            .iter()
            .filter(|(folder, _)| folder.is_empty())
            .map(|(_, with)| with.as_str())
            .collect();
        if !root.is_empty() {
            out.push_str(&format!("Built with: {}.\n", root.join(", ")));
        }
        let mut nested = BTreeMap::<&str, Vec<&str>>::new();
        for (folder, with) in self.built_with.iter().filter(|(folder, _)| !folder.is_empty()) {
            nested.entry(folder).or_default().push(with);
        }
        let more = nested.len().saturating_sub(STACK_LINES_MAX);
        for (folder, with) in nested.into_iter().take(STACK_LINES_MAX) {
            out.push_str(&format!("In {folder}/: {}.\n", with.join(", ")));
        }
        if more > 0 {
            out.push_str(&format!("[… and {more} more folders with a build of their own]\n"));
        }
        if !self.languages.is_empty() {
            let named: Vec<String> =
                self.languages.iter().map(|(name, count)| format!("{name} ({count})")).collect();
            out.push_str(&format!("Languages, with how many files: {}.\n", named.join(", ")));
        }
        out
    }
}

/// Whether a folder holds third-party code or samples: instructions there are not about this project.
pub fn is_third_party_folder(folder: &str) -> bool {
    const OTHERS: [&str; 8] =
        ["node_modules", "vendor", "third_party", "testdata", "fixtures", ".venv", "target", "dist"];
    folder.split('/').any(|part| OTHERS.contains(&part))
}

fn detect_build_system(name: &str, beside: impl Fn(&str) -> bool) -> Option<String> {
    let first = |of: &[(&str, &str)], otherwise: &str| {
        of.iter().find(|(file, _)| beside(file)).map_or(otherwise, |(_, word)| *word).to_owned()
    };
    Some(match name {
        "Cargo.toml" => "Rust (cargo)".to_owned(),
        "pyproject.toml" => {
            let by = first(
                &[("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pdm.lock", "pdm"), ("Pipfile", "pipenv")],
                "pyproject",
            );
            format!("Python ({by})")
        }
        "setup.py" if !beside("pyproject.toml") => "Python (setup.py)".to_owned(),
        "requirements.txt" if !beside("pyproject.toml") && !beside("setup.py") => {
            "Python (requirements.txt)".to_owned()
        }
        "package.json" => {
            let by = first(
                &[
                    ("pnpm-lock.yaml", "pnpm"),
                    ("yarn.lock", "yarn"),
                    ("bun.lock", "bun"),
                    ("bun.lockb", "bun"),
                ],
                "npm",
            );
            let language = if beside("tsconfig.json") { "TypeScript" } else { "JavaScript" };
            format!("{language} ({by})")
        }
        "go.mod" => "Go (go modules)".to_owned(),
        "pom.xml" => "Java (Maven)".to_owned(),
        "build.gradle" | "build.gradle.kts" => "Java (Gradle)".to_owned(),
        "CMakeLists.txt" => "C/C++ (CMake)".to_owned(),
        "meson.build" => "C/C++ (Meson)".to_owned(),
        "Gemfile" => "Ruby (bundler)".to_owned(),
        "composer.json" => "PHP (composer)".to_owned(),
        "mix.exs" => "Elixir (mix)".to_owned(),
        "Makefile" => "make".to_owned(),
        "Dockerfile" => "Docker".to_owned(),
        _ => return None,
    })
}

fn count_languages(files: &[String]) -> Vec<(String, usize)> {
    const LANGUAGE_EXTENSIONS: [(&str, &[&str]); 18] = [
        ("Rust", &["rs"]),
        ("Python", &["py", "pyi"]),
        ("TypeScript", &["ts", "tsx", "mts"]),
        ("JavaScript", &["js", "jsx", "mjs", "cjs"]),
        ("Go", &["go"]),
        ("Java", &["java"]),
        ("Kotlin", &["kt", "kts"]),
        ("C", &["c", "h"]),
        ("C++", &["cc", "cpp", "cxx", "hpp", "hh"]),
        ("C#", &["cs"]),
        ("Ruby", &["rb"]),
        ("PHP", &["php"]),
        ("Swift", &["swift"]),
        ("Elixir", &["ex", "exs"]),
        ("shell", &["sh", "bash"]),
        ("SQL", &["sql"]),
        ("HTML", &["html"]),
        ("CSS", &["css", "scss"]),
    ];
    let mut counts = [0_usize; LANGUAGE_EXTENSIONS.len()];
    for file in files {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        let Some((_, ending)) = name.rsplit_once('.') else { continue };
        if let Some(at) = LANGUAGE_EXTENSIONS.iter().position(|(_, endings)| endings.contains(&ending))
            && !is_third_party_folder(folder)
        {
            counts[at] += 1;
        }
    }
    let mut named: Vec<(String, usize)> = LANGUAGE_EXTENSIONS
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|((name, _), count)| ((*name).to_owned(), count))
        .collect();
    named.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    named.truncate(LANGUAGES_MAX);
    named
}

/// Renders the files, one line per folder: complete while they are few, then with fewer names, then counts alone.
fn render_tree(files: &[String], bytes_max: usize) -> String {
    let mut folders = BTreeMap::<&str, Vec<&str>>::new();
    for file in files {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        folders.entry(folder).or_default().push(name);
    }
    if files.len() <= TREE_FILES_MAX {
        for names_max in [usize::MAX, 30, 12, 5] {
            let text: String =
                folders.iter().map(|(folder, names)| render_folder_line(folder, names, names_max)).collect();
            if text.len() <= bytes_max {
                return text;
            }
        }
    }
    render_folder_counts(files, bytes_max)
}

fn render_folder_line(folder: &str, names: &[&str], names_max: usize) -> String {
    let shown = names[..names.len().min(names_max)].join(", ");
    let folder = if folder.is_empty() { ".".to_owned() } else { folder.to_owned() };
    let more = names.len().saturating_sub(names_max);
    if more == 0 { format!("{folder}/: {shown}\n") } else { format!("{folder}/: {shown} and {more} more\n") }
}

/// Renders folders with the number of files in and below them, as deep as space allows.
fn render_folder_counts(files: &[String], bytes_max: usize) -> String {
    let deepest = files.iter().map(|file| file.matches('/').count()).max().unwrap_or(0);
    let mut best = String::new();
    for depth in 1..=deepest.max(1) {
        let mut counts = BTreeMap::<&str, usize>::new();
        for file in files {
            let end = file.match_indices('/').map(|(at, _)| at).take(depth).last();
            *counts.entry(end.map_or("", |end| &file[..end])).or_default() += 1;
        }
        let lines = counts.iter().map(|(folder, count)| {
            let folder = if folder.is_empty() { "." } else { folder };
            format!("{folder}/ ({count} files)\n")
        });
        let text: String = lines.collect();
        if text.len() > bytes_max {
            if best.is_empty() {
                best = take_fitting_lines(&text, bytes_max);
            }
            break;
        }
        best = text;
    }
    best
}

fn take_fitting_lines(text: &str, bytes_max: usize) -> String {
    let mut out = String::new();
    let mut left = text.lines().count();
    for line in text.lines() {
        if out.len() + line.len() + 1 + LEFT_OUT_BYTES > bytes_max {
            break;
        }
        out.push_str(line);
        out.push('\n');
        left -= 1;
    }
    out.push_str(&format!("[… and {left} more folders; use list_files]\n"));
    out
}
