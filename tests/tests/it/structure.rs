//! Figures of the structure, each with the value that it must not exceed. A limit may only fall: a change that lowers a
//! figure lowers its limit too. `cargo run -p docket-tests --bin structure` prints all of them.

use std::collections::{BTreeMap, BTreeSet};

use docket_tests::source_structure;

use crate::code_rules::repository_root;

/// Lines of the product that are neither empty nor a comment. To reach: 108,000.
const PRODUCT_CODE_MAX: usize = 126_900;
/// Lines of test code for a hundred of the product. To reach: 80.
const TEST_PERCENT_MIN: usize = 74;
/// Files of the product in one folder, without those of folders in it.
const FOLDER_FILES_MAX: usize = 15;
/// Folders with more files, and how many they may have. To reach: none over 20.
const CROWDED: &[(&str, usize)] = &[
    ("coordinator/cli/src/commands/runs", 16),
    ("coordinator/cli/src/commands/tasks", 16),
    ("coordinator/cli/src/tui/step", 19),
    ("worker/sandbox/src", 19),
    ("worker/src/model", 18),
];
/// Lines of a function's body.
const FUNCTION_LINES_MAX: usize = 70;
/// Functions that are longer.
const LONG_FUNCTIONS: &[&str] = &[
    "coordinator/cli/src/commands/local/doctor.rs: print_report",
    "coordinator/cli/src/commands/runs/export.rs: run_export",
    "coordinator/cli/src/commands/runs/follow.rs: describe_event",
    "coordinator/cli/src/commands/runs/import/backlog_import.rs: import_backlog",
    "coordinator/cli/src/commands/runs/replay_text.rs: print_turn",
    "coordinator/cli/src/commands/tasks/schedule.rs: run_schedule",
    "coordinator/cli/src/output/event_format.rs: format_system_event",
    "coordinator/src/decide/waiting/explain.rs: describe_available",
    "coordinator/src/store/plan/lease.rs: plan_lease",
    "schema/src/system/notifications_fold.rs: apply",
    "schema/src/system/schedules_fold.rs: apply",
    "schema/src/task/task_record.rs: apply",
    "worker/edit/src/matching/fuzzy.rs: best_windows",
    "worker/sandbox/src/execution.rs: run_to_end",
    "worker/src/model/client.rs: read_stream",
    "worker/src/run/delegation/open_calls.rs: collect_child_result",
    "worker/src/run/startup/pin_run.rs: build_run_started",
    "worker/src/shell/parse.rs: add_node",
    "worker/src/supervisor/dispatch.rs: run_loop",
];
/// Circles of imports across folders, with the number of their entries: there is none.
const FOLDER_CIRCLES: &[usize] = &[];
/// Circles of imports of more than seven files: there is none.
const FILE_CIRCLES: &[usize] = &[];
/// Files of a circle that is not in the list.
const CIRCLE_FILES_MAX: usize = 7;
/// Matches that name every run event.
const EXHAUSTIVE_MATCHES_MAX: usize = 5;

#[test]
fn product_size_and_test_ratio_are_within_limits() {
    let sizes = source_structure::measure_sizes(&repository_root()).expect("sources that read");
    let (product, tests) = (sizes.product_code(), sizes.test_code());
    assert!(product <= PRODUCT_CODE_MAX, "{product} lines of product code, at most {PRODUCT_CODE_MAX}");
    let percent = tests * 100 / product;
    assert!(percent >= TEST_PERCENT_MIN, "{percent} lines of tests for a hundred of the product");
}

#[test]
fn folders_are_small() {
    let folders =
        source_structure::measure_sizes(&repository_root()).expect("sources that read").folder_file_counts();
    assert!(folders.len() > 50, "folders are read: {}", folders.len());
    let allowed: BTreeMap<&str, usize> = CROWDED.iter().copied().collect();
    let mut found = Vec::new();
    for (folder, files) in &folders {
        let limit = allowed.get(folder.as_str()).copied().unwrap_or(FOLDER_FILES_MAX);
        if *files > limit {
            found.push(format!("{folder} has {files} files, at most {limit}: divide it by duty"));
        }
    }
    for (folder, limit) in allowed {
        let files = folders.get(folder).copied().unwrap_or_default();
        if files < limit {
            found.push(format!("{folder} has {files} files now: lower its limit or remove its line"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn functions_are_short() {
    let found = source_structure::measure_sizes(&repository_root())
        .expect("sources that read")
        .long_functions(FUNCTION_LINES_MAX);
    let allowed: BTreeSet<String> = LONG_FUNCTIONS.iter().map(|name| (*name).to_owned()).collect();
    let longer: Vec<_> = found.difference(&allowed).collect();
    assert!(longer.is_empty(), "functions of more than {FUNCTION_LINES_MAX} lines: {longer:#?}");
    let gone: Vec<_> = allowed.difference(&found).collect();
    assert!(gone.is_empty(), "short enough now, remove them from the list: {gone:#?}");
}

#[test]
fn imports_run_in_few_circles() {
    let product = source_structure::product_crates(&repository_root()).expect("sources that read");
    let modules: usize = product.iter().map(|read| read.files.len()).sum();
    assert!(modules > 800, "modules are found: {modules}");
    let across = source_structure::folder_cycles(&product);
    check_circles("circles across folders", &across, FOLDER_CIRCLES);
    let mut files = source_structure::file_cycles(&product);
    files.retain(|circle| circle.len() > CIRCLE_FILES_MAX);
    check_circles("circles of files", &files, FILE_CIRCLES);
}

/// The sizes of circles and their limits, largest first: none may be larger, and a limit that none comes up to is lowered.
fn check_circles(which: &str, circles: &[source_structure::ImportCycle], limits: &[usize]) {
    let sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
    for (nth, circle) in circles.iter().enumerate() {
        let limit = limits.get(nth).copied().unwrap_or_default();
        assert!(circle.len() <= limit, "{which}: {sizes:?}, at most {limits:?}. Number {nth}: {circle:#?}");
    }
    assert!(sizes == limits, "{which}: {sizes:?} now, the limits are {limits:?}: lower them");
}

#[test]
fn few_matches_name_every_run_event() {
    let product = source_structure::product_crates(&repository_root()).expect("sources that read");
    let variants =
        source_structure::enum_variants(&repository_root(), &product, "RunEvent").expect("the run's events");
    let found = source_structure::exhaustive_matches(&repository_root(), &product, "RunEvent", &variants)
        .expect("reads");
    let count: usize = found.iter().map(|(_, matches)| matches).sum();
    assert!(count >= 1, "the fold of a run matches all of them");
    assert!(count <= EXHAUSTIVE_MATCHES_MAX, "{count}, at most {EXHAUSTIVE_MATCHES_MAX}: {found:#?}");
}
