//! The layers of the prompt, to the byte, and their bounds.

use docket_schema::run::Complexity;

use super::{project::TREE_BYTES_MAX, *};
use crate::tools;

fn paths(files: &[&str]) -> Vec<String> {
    let mut files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
    files.sort();
    files
}

fn shop() -> Project {
    let files = paths(&[
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
    let told = |path: &str, text: &str| Instructions { path: path.to_owned(), text: text.to_owned() };
    let told = vec![told("AGENTS.md", "Prices are in cents.\n"), told("web/CLAUDE.md", "Two spaces.\n")];
    Project {
        tests: Some("cargo test".to_owned()),
        linters: vec!["clippy".to_owned(), "eslint".to_owned()],
        ..Project::of(&files, told)
    }
}

#[test]
fn the_system_prompt_to_the_byte() {
    insta::assert_snapshot!(system(&tools::specs(), &shop()));
}

#[test]
fn the_task_to_the_byte() {
    let requires = ["src/tax.rs".to_owned(), "tests/tax.rs".to_owned()];
    let shown = [Complexity::Low, Complexity::Medium, Complexity::High]
        .map(|size| task("Add a tax", "Prices carry a tax of 19 %.", &requires, size));
    insta::assert_snapshot!(shown.join("\n=======\n"));
}

#[test]
fn an_empty_folder_says_so() {
    insta::assert_snapshot!(
        system(&[], &Project::default()).rsplit_once("# The project").expect("a project").1
    );
}

#[test]
fn a_tree_of_many_files_is_shown_as_folders_with_counts() {
    let files: Vec<String> = (0..1001).map(|n| format!("src/m{}/a_long_name_{n:04}.rs", n % 3)).collect();
    let mut sorted = files;
    sorted.sort();
    let shown = Project::of(&sorted, Vec::new()).text();
    assert!(shown.contains("src/m0/ (334 files)\n"), "{shown}");
    assert!(!shown.contains("_1000.rs"));
    sorted.pop();
    let shown = Project::of(&sorted, Vec::new()).text();
    assert!(shown.contains("src/m0/: a_long_name_0000.rs, a_long_name_0003.rs") && shown.contains(" more\n"));
}

#[test]
fn a_wide_tree_is_cut_and_says_so() {
    let mut files: Vec<String> = (0..5000).map(|n| format!("a-folder-of-packages-{n}/x.rs")).collect();
    files.sort();
    let shown = Project::of(&files, Vec::new()).tree;
    assert!(shown.len() <= TREE_BYTES_MAX && shown.contains("more folders; use list_files]"), "{shown}");
}

/// The same task pasted from elsewhere is the same prompt (E3).
#[test]
fn a_task_is_told_in_one_form_whatever_it_was_pasted_from() {
    let told = task("Add a tax", "Prices carry a tax.\n\n\n  - of 19 %\n\tnot of 7", &[], Complexity::Low);
    for text in [
        "Prices carry a tax.\r\n\r\n\r\n  - of 19 %\r\n\tnot of 7\r\n",
        "\u{feff}\n\n  \nPrices carry a tax.  \n\n\n\n\n\n  - of 19 %\t\n\tnot of 7\n\n\n",
        "Add a tax\r\nPrices carry a tax.\n\n\n  - of 19 %\n\tnot of 7",
    ] {
        assert_eq!(task("Add a tax ", text, &[], Complexity::Low), told, "{text:?}");
    }
}

#[test]
fn a_long_task_is_cut_and_says_so() {
    let shown = task("t", &"ä".repeat(TASK_CHARS_MAX + 1), &["out.txt".to_owned()], Complexity::Low);
    assert!(shown.contains("is cut here") && shown.contains("- out.txt"));
    assert_eq!(shown.matches('ä').count(), TASK_CHARS_MAX);
    let whole = task("t", &"ä".repeat(TASK_CHARS_MAX), &[], Complexity::Low);
    assert!(!whole.contains("is cut here"));
}

#[test]
fn instructions_share_one_bound_and_what_does_not_fit_is_named() {
    let told = |path: &str, bytes: usize| Instructions { path: path.to_owned(), text: "x".repeat(bytes) };
    let project = Project {
        instructions: vec![
            told("AGENTS.md", 20_000),
            told("a/AGENTS.md", INSTRUCTIONS_BYTES_MAX),
            told("b/AGENTS.md", 10),
        ],
        ..Project::default()
    };
    let shown = project.text();
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
    // Without one at the root all share alike, and of too many the last ones are named.
    let project = Project {
        instructions: (0..70).map(|n| told(&format!("f{n:02}/AGENTS.md"), 600 + 1000 * (n % 2))).collect(),
        ..Project::default()
    };
    let shown = project.text();
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
fn all_layers_at_their_largest_stay_within_the_bound() {
    let mut files: Vec<String> =
        (0..40_000).map(|n| format!("some/folder{}/deep{}/file{n}.rs", n % 70, n % 9)).collect();
    files.extend((0..200).map(|n| format!("project{n}/Cargo.toml")));
    files.sort();
    let instructions =
        (0..64).map(|n| Instructions { path: format!("f{n}/AGENTS.md"), text: "y".repeat(9000) });
    let project = Project::of(&files, instructions.collect());
    let requires: Vec<String> = (0..500).map(|n| format!("src/generated/file{n}.rs")).collect();
    let task = task("t", &"z".repeat(100_000), &requires, Complexity::High);
    let bytes = system(&tools::specs(), &project).len() + task.len();
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}

/// A24: what differs between tasks stands behind what they share, so that a provider's cache serves all of them.
#[test]
fn the_system_prompt_of_a_tree_holds_nothing_of_a_task() {
    assert_eq!(system(&tools::specs(), &shop()), system(&tools::specs(), &shop()));
    let others = task("Another", "Text.", &[], Complexity::Low);
    assert!(!system(&tools::specs(), &shop()).contains(&others));
}

#[test]
fn the_size_of_a_task_is_read_from_its_words() {
    let points = |n: usize| (0..n).map(|n| format!("- point {n}\n")).collect::<String>();
    for (title, text, requires, expected) in [
        ("Mend the rounding in prices.py", "", 0, Complexity::Low),
        ("Fix a typo", "In the README, somewhere below the picture.", 0, Complexity::Low),
        ("Add a flag", &points(3), 0, Complexity::Medium),
        ("Add a flag", "Refactor what is in the way.", 0, Complexity::Medium),
        ("Add a parser", &"It has to read what is written. ".repeat(20), 0, Complexity::Medium),
        ("Build a tracker", &points(8), 0, Complexity::High),
        ("Build a tracker", "", 5, Complexity::High),
        ("Migrate and redesign the store", "", 0, Complexity::High),
        ("Read this", &"word ".repeat(400), 0, Complexity::High),
    ] {
        assert_eq!(estimate(title, text, requires), expected, "{title}");
    }
}
