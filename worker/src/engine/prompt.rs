//! The layers of the prompt: base, project, task (A16). Pure text from what the driver saw when the
//! run started; the result is pinned in `RunStarted` and never made again.

use docket_schema::message::ToolSpec;

/// Longest project instructions taken over, in bytes.
pub const INSTRUCTIONS_BYTES_MAX: usize = 32 * 1024;
/// Longest task text taken over, in characters.
pub const TASK_CHARS_MAX: usize = 5000;
/// Above this many files the tree is shown as folders with counts.
pub const TREE_FILES_MAX: usize = 1000;
/// Most lines of the tree that are shown.
pub const TREE_LINES_MAX: usize = 300;

/// What the driver saw of the project.
#[derive(Debug, Clone, Default)]
pub struct Project {
    /// Name and text of the instructions file, if there is one.
    pub instructions: Option<(String, String)>,
    /// Paths of all files of the base, in order.
    pub files: Vec<String>,
    /// How its tests are run, if that is known.
    pub tests: Option<String>,
}

const BASE: &str = "\
You are a software engineer who works alone in a repository, without anybody to talk to while you work. \
You see the repository and change it through tools only. Everything you do is recorded.

# How to work
- Look before you touch: read a file before you edit it, and search instead of guessing where things are.
- Change as little as the task needs. Keep the style, the names and the structure that are there.
- `edit_file` takes search and replace pairs; quote enough lines that the place is unique. \
`create_file` makes new files and never overwrites one. Project configuration is edited line by line, never replaced.
- Run the tests after each step that could break something, and read what failed before you change anything again. \
The same failing attempt three times means that your picture is wrong: look again.
- Commands run in a sandbox without a network. Each starts in the repository's root with nothing left over of the one before.
- Decide small matters yourself. Do not add what was not asked for.

# Your plan
- Your first answer begins with a line `PLAN:` and the steps of the task, one a line, as `- [ ] step`. \
Give it again, with `- [x]` for what is done, whenever a step is done or the plan changes, beside the call that comes next.
- When the conversation grows too long its oldest part is made shorter. Your last plan, the files you changed, \
the commands you ran, the errors that are open and what people told you are kept by the runtime and stand behind the task.

# How to end
- When the work is done and its tests pass, answer without calling a tool: say in a few sentences what you changed and why. \
The project's checks then run; if they fail you go on.
- If you cannot go on without a person (a requirement that contradicts itself, an access you lack), \
answer with a text that begins `BLOCKED:` and ask one precise question.
";

/// The system prompt: base and project layers.
pub fn system(tools: &[ToolSpec], project: &Project) -> String {
    let mut out = String::from(BASE);
    out.push_str("\n# Tools\n");
    for tool in tools {
        let gist = tool.description.split_terminator(". ").next().unwrap_or_default();
        out.push_str(&format!("- `{}`: {}\n", tool.name, gist.trim_end_matches('.')));
    }
    out.push_str("\n# The project\n");
    let stack = stack(&project.files);
    if !stack.is_empty() {
        out.push_str(&format!("Built with: {}.\n", stack.join(", ")));
    }
    if let Some(tests) = &project.tests {
        out.push_str(&format!("Its tests: `{tests}`.\n"));
    }
    out.push_str("Files:\n");
    out.push_str(&tree(&project.files));
    if let Some((name, text)) = &project.instructions {
        let text = cut_bytes(text, INSTRUCTIONS_BYTES_MAX);
        out.push_str(&format!("\n# What {name} says\n{text}\n"));
    }
    out
}

/// The first user message: the task layer.
pub fn task(title: &str, text: &str, requires: &[String]) -> String {
    let mut out = format!("# Task: {title}\n\n");
    let cut: String = text.chars().take(TASK_CHARS_MAX).collect();
    out.push_str(&cut);
    if cut.len() < text.len() {
        out.push_str("\n[… the task text is cut here]");
    }
    if !requires.is_empty() {
        out.push_str("\n\nThese paths must exist at the end:\n");
        for path in requires {
            out.push_str(&format!("- {path}\n"));
        }
    }
    out
}

/// What the project is built with, by its well-known files.
pub fn stack(files: &[String]) -> Vec<&'static str> {
    const MARKS: [(&str, &str); 12] = [
        ("Cargo.toml", "Rust (cargo)"),
        ("pyproject.toml", "Python (pyproject)"),
        ("setup.py", "Python (setup.py)"),
        ("requirements.txt", "Python (requirements.txt)"),
        ("package.json", "JavaScript (npm)"),
        ("tsconfig.json", "TypeScript"),
        ("go.mod", "Go"),
        ("pom.xml", "Java (Maven)"),
        ("build.gradle", "Java (Gradle)"),
        ("CMakeLists.txt", "C/C++ (CMake)"),
        ("Makefile", "make"),
        ("Dockerfile", "Docker"),
    ];
    MARKS.iter().filter(|(mark, _)| files.iter().any(|file| file == mark)).map(|(_, name)| *name).collect()
}

fn tree(files: &[String]) -> String {
    if files.is_empty() {
        return "(none yet)\n".to_owned();
    }
    let lines: Vec<String> = if files.len() <= TREE_FILES_MAX && files.len() <= TREE_LINES_MAX {
        files.to_vec()
    } else {
        folders(files)
    };
    let shown = lines.len().min(TREE_LINES_MAX);
    let mut out = lines[..shown].join("\n");
    out.push('\n');
    if shown < lines.len() {
        out.push_str(&format!("[… and {} more folders; use list_files]\n", lines.len() - shown));
    }
    out
}

fn folders(files: &[String]) -> Vec<String> {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for file in files {
        let folder = file.rsplit_once('/').map_or(".", |(folder, _)| folder);
        *counts.entry(folder).or_default() += 1;
    }
    counts.into_iter().map(|(folder, count)| format!("{folder}/ ({count} files)")).collect()
}

fn cut_bytes(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_tree_is_shown_as_folders_with_counts() {
        let files: Vec<String> = (0..1001).map(|n| format!("src/m{}/f{n}.rs", n % 3)).collect();
        let shown = system(&[], &Project { files, ..Project::default() });
        assert!(shown.contains("src/m0/ (334 files)"), "{shown}");
        assert!(!shown.contains("f1000.rs"));
    }

    #[test]
    fn a_long_task_is_cut_and_says_so() {
        let shown = task("t", &"ä".repeat(TASK_CHARS_MAX + 1), &["out.txt".to_owned()]);
        assert!(shown.contains("is cut here") && shown.contains("- out.txt"));
        assert_eq!(shown.matches('ä').count(), TASK_CHARS_MAX);
    }

    #[test]
    fn the_prompt_names_tools_stack_tests_and_instructions() {
        let tools = [ToolSpec {
            name: "read_file".into(),
            description: "Reads a file. More.".into(),
            input_schema: serde_json::json!({}),
        }];
        let project = Project {
            instructions: Some(("AGENTS.md".into(), "Use tabs.".into())),
            files: vec!["Cargo.toml".into(), "src/lib.rs".into()],
            tests: Some("cargo test".into()),
        };
        insta::assert_snapshot!(system(&tools, &project).split("# Tools").nth(1).expect("a tool section"));
    }
}
