//! Tests of the layers of the prompt, byte for byte, and their limits.

use docket_schema::run::TaskComplexity;

use super::{project::TREE_BYTES_MAX, *};
use crate::tools;

fn owned_paths(files: &[&str]) -> Vec<String> {
    let mut files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
    files.sort();
    files
}

fn sample_project() -> ProjectLayer {
    let files = owned_paths(&[
        "AGENTS.md",
        "Cargo.toml",
        "Makefile",
        "src/lib.rs",
        "src/price/mod.rs",
        "src/price/round.rs",
        "web/CLAUDE.md",
        "web/index.ts",
        "web/package.json",
        "web/pnpm-lock.yaml",
        "web/tsconfig.json",
        "web/node_modules/left-pad/package.json",
    ]);
    let told = |path: &str, text: &str| InstructionFile { path: path.to_owned(), text: text.to_owned() };
    let told = vec![told("AGENTS.md", "Prices are in cents.\n"), told("web/CLAUDE.md", "Two spaces.\n")];
    ProjectLayer {
        tests: Some("cargo test".to_owned()),
        linters: vec!["clippy".to_owned(), "eslint".to_owned()],
        ..ProjectLayer::from_files(&files, told)
    }
}

#[test]
fn system_prompt_matches_the_snapshot() {
    insta::assert_snapshot!(system_prompt(&tools::core_tool_specs(), &sample_project()));
}

#[test]
fn task_prompt_matches_the_snapshot() {
    let requires = ["src/tax.rs".to_owned(), "tests/tax.rs".to_owned()];
    let shown = [TaskComplexity::Low, TaskComplexity::Medium, TaskComplexity::High]
        .map(|size| task_prompt("Add a tax", "Prices carry a tax of 19 %.", &requires, size));
    insta::assert_snapshot!(shown.join("\n=======\n"));
}

#[test]
fn empty_project_prompt_matches_the_snapshot() {
    insta::assert_snapshot!(
        system_prompt(&[], &ProjectLayer::default()).rsplit_once("# The project").expect("a project").1
    );
}

#[test]
fn large_tree_is_shown_as_folders_with_counts() {
    let files: Vec<String> = (0..1001).map(|n| format!("src/m{}/a_long_name_{n:04}.rs", n % 3)).collect();
    let mut sorted = files;
    sorted.sort();
    let shown = ProjectLayer::from_files(&sorted, Vec::new()).render_text();
    assert!(shown.contains("src/m0/ (334 files)\n"), "{shown}");
    assert!(!shown.contains("_1000.rs"));
    sorted.pop();
    let shown = ProjectLayer::from_files(&sorted, Vec::new()).render_text();
    assert!(shown.contains("src/m0/: a_long_name_0000.rs, a_long_name_0003.rs") && shown.contains(" more\n"));
}

#[test]
fn wide_tree_is_truncated_with_a_note() {
    let mut files: Vec<String> = (0..5000).map(|n| format!("a-folder-of-packages-{n}/x.rs")).collect();
    files.sort();
    let shown = ProjectLayer::from_files(&files, Vec::new()).tree;
    assert!(shown.len() <= TREE_BYTES_MAX && shown.contains("more folders; use list_files]"), "{shown}");
}

/// The same task pasted from elsewhere gives the same prompt (E3).
#[test]
fn pasted_task_text_is_normalized() {
    let told = task_prompt(
        "Add a tax",
        "Prices carry a tax.\n\n\n  - of 19 %\n\tnot of 7",
        &[],
        TaskComplexity::Low,
    );
    for text in [
        "Prices carry a tax.\r\n\r\n\r\n  - of 19 %\r\n\tnot of 7\r\n",
        "\u{feff}\n\n  \nPrices carry a tax.  \n\n\n\n\n\n  - of 19 %\t\n\tnot of 7\n\n\n",
        "Add a tax\r\nPrices carry a tax.\n\n\n  - of 19 %\n\tnot of 7",
    ] {
        assert_eq!(task_prompt("Add a tax ", text, &[], TaskComplexity::Low), told, "{text:?}");
    }
}

#[test]
fn long_task_is_truncated_with_a_note() {
    let shown =
        task_prompt("t", &"ä".repeat(TASK_CHARS_MAX + 1), &["out.txt".to_owned()], TaskComplexity::Low);
    assert!(shown.contains("is cut here") && shown.contains("- out.txt"));
    assert_eq!(shown.matches('ä').count(), TASK_CHARS_MAX);
    let whole = task_prompt("t", &"ä".repeat(TASK_CHARS_MAX), &[], TaskComplexity::Low);
    assert!(!whole.contains("is cut here"));
}

#[test]
fn instruction_files_share_one_limit_and_the_rest_is_named() {
    let told = |path: &str, bytes: usize| InstructionFile { path: path.to_owned(), text: "x".repeat(bytes) };
    let project = ProjectLayer {
        instructions: vec![
            told("AGENTS.md", 20_000),
            told("a/AGENTS.md", INSTRUCTIONS_BYTES_MAX),
            told("b/AGENTS.md", 10),
        ],
        ..ProjectLayer::default()
    };
    let shown = project.render_text();
    let told_of = |text: &str| text.matches('x').count();
    assert!(
        (INSTRUCTIONS_BYTES_MAX - 300..INSTRUCTIONS_BYTES_MAX).contains(&told_of(&shown)),
        "{}",
        told_of(&shown)
    );
    assert!(shown.contains("[… cut here; read a/AGENTS.md for the rest]"));
    assert!(
        shown.contains("# What b/AGENTS.md says about b/ (it goes over what is said above)\nxxxxxxxxxx\n")
    );
    // Without one at the root all get equal shares, and if there are too many the last ones are named.
    let project = ProjectLayer {
        instructions: (0..70).map(|n| told(&format!("f{n:02}/AGENTS.md"), 600 + 1000 * (n % 2))).collect(),
        ..ProjectLayer::default()
    };
    let shown = project.render_text();
    assert!(
        (INSTRUCTIONS_BYTES_MAX * 3 / 4..INSTRUCTIONS_BYTES_MAX).contains(&told_of(&shown)),
        "{}",
        told_of(&shown)
    );
    let told = shown.matches("\n# What ").count();
    assert!((40..60).contains(&told), "{told}");
    assert!(shown.contains(&format!("before you change something in it: f{told}/AGENTS.md, f")), "{shown}");
}

/// A16: however large the project and the task, the first request stays small.
#[test]
fn largest_prompt_layers_stay_within_the_limit() {
    let mut files: Vec<String> =
        (0..40_000).map(|n| format!("some/folder{}/deep{}/file{n}.rs", n % 70, n % 9)).collect();
    files.extend((0..200).map(|n| format!("project{n}/Cargo.toml")));
    files.sort();
    let instructions =
        (0..64).map(|n| InstructionFile { path: format!("f{n}/AGENTS.md"), text: "y".repeat(9000) });
    let project = ProjectLayer::from_files(&files, instructions.collect());
    let requires: Vec<String> = (0..500).map(|n| format!("src/generated/file{n}.rs")).collect();
    let task = task_prompt("t", &"z".repeat(100_000), &requires, TaskComplexity::High);
    let bytes = system_prompt(&tools::core_tool_specs(), &project).len() + task.len();
    assert!(bytes <= PROMPT_BYTES_MAX, "{bytes} bytes");
}

/// A24: the parts that differ between tasks come after the shared ones, so that a provider's cache serves all of
/// them.
#[test]
fn system_prompt_does_not_depend_on_the_task() {
    assert_eq!(
        system_prompt(&tools::core_tool_specs(), &sample_project()),
        system_prompt(&tools::core_tool_specs(), &sample_project())
    );
    let others = task_prompt("Another", "Text.", &[], TaskComplexity::Low);
    assert!(!system_prompt(&tools::core_tool_specs(), &sample_project()).contains(&others));
}

#[test]
fn complexity_is_estimated_from_the_task_text() {
    let points = |n: usize| (0..n).map(|n| format!("- point {n}\n")).collect::<String>();
    for (title, text, requires, expected) in [
        ("Mend the rounding in prices.py", "", 0, TaskComplexity::Low),
        ("Fix a typo", "In the README, somewhere below the picture.", 0, TaskComplexity::Low),
        ("Add a flag", &points(3), 0, TaskComplexity::Medium),
        ("Add a flag", "Refactor what is in the way.", 0, TaskComplexity::Medium),
        ("Add a parser", &"It has to read what is written. ".repeat(20), 0, TaskComplexity::Medium),
        ("Build a tracker", &points(8), 0, TaskComplexity::High),
        ("Build a tracker", "", 5, TaskComplexity::High),
        ("Migrate and redesign the store", "", 0, TaskComplexity::High),
        ("Read this", &"word ".repeat(400), 0, TaskComplexity::High),
    ] {
        assert_eq!(estimate_complexity(title, text, requires), expected, "{title}");
    }
}
