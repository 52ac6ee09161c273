//! Fuzzes arguments of tool calls, on a real folder. Commands are not run: the fuzzed code is what reads the
//! arguments.

use std::{fs, sync::LazyLock};

use cap_std::{ambient_authority, fs::Dir};
use docket_schema::tool::ToolSet;
use docket_worker::tools::{
    BaseView, CommandOutput, CommandRunner, CommandSpec, FullOutputs, NoMemory, ReadSet, RunnerError,
    SHOW_CHANGES, SHOW_FILE, SURVEY, ToolContext, ToolSettings, call_labels, canonical_tool_name, card_specs,
    core_tool_specs, execute_tool, recovery_class, tool_specs,
};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{lossy_text, split_input};

const OUTSIDE_CONTENT: &str = "outside\n";
/// Maximum size of one call's result for a model, plus room for messages.
const ANSWER_BYTES_MAX: usize = 512 * 1024;

/// Refuses every command: a fuzzer's shell lines must not run.
struct RefusingRunner;

impl CommandRunner for RefusingRunner {
    fn run(&self, _spec: CommandSpec) -> BoxFuture<'_, Result<CommandOutput, RunnerError>> {
        Box::pin(async { Err(RunnerError::from_host_fault("not run")) })
    }
}

struct ToolFixture {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

fn create_fixture() -> ToolFixture {
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(dir.path().join("work/src")).expect("a folder");
    fs::write(dir.path().join("outside"), OUTSIDE_CONTENT).expect("written");
    fs::write(dir.path().join("work/src/main.py"), "def a():\n    return 1\n").expect("written");
    std::os::unix::fs::symlink(dir.path().join("outside"), dir.path().join("work/link")).expect("linked");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    ToolFixture { dir, runtime }
}

/// The input is a tool's name, then its arguments.
pub(super) fn fuzz_call(input: &[u8]) {
    static FIXTURE: LazyLock<std::sync::Mutex<ToolFixture>> =
        LazyLock::new(|| std::sync::Mutex::new(create_fixture()));
    let place = FIXTURE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let pieces = split_input(input);
    let name = lossy_text(&pieces[0]).trim().to_owned();
    let Some(Ok(args)) = pieces.get(1).map(|args| serde_json::from_slice::<Value>(args)) else { return };
    let _ = (canonical_tool_name(&name), call_labels(&name, &args), recovery_class(&name, &args));
    let root = Dir::open_ambient_dir(place.dir.path().join("work"), ambient_authority()).expect("opens");
    let (read_set, settings, outputs) = (ReadSet::new(), ToolSettings::default(), FullOutputs::default());
    let base = BaseView::default();
    let context = ToolContext {
        root: &root,
        runner: &RefusingRunner,
        read_set: &read_set,
        settings: &settings,
        test_runner: None,
        outputs: &outputs,
        base: &base,
        memory: &NoMemory,
        call: None,
    };
    let own = [SHOW_FILE, SHOW_CHANGES, SURVEY].contains(&name.as_str());
    let all = [tool_specs(ToolSet::Wide), core_tool_specs(), card_specs()].concat();
    let known = own || all.iter().any(|spec| spec.name == name);
    let outcome = place.runtime.block_on(execute_tool(context, &name, &args));
    assert!(known || outcome.is_error, "no tool `{name}`, and no error");
    assert!(outcome.content.len() <= ANSWER_BYTES_MAX, "{} bytes for the model", outcome.content.len());
    let outside = fs::read_to_string(place.dir.path().join("outside")).expect("is still there");
    assert_eq!(outside, OUTSIDE_CONTENT, "a call wrote outside");
    let mut left: Vec<_> =
        fs::read_dir(place.dir.path()).expect("reads").flatten().map(|e| e.file_name()).collect();
    left.sort();
    assert_eq!(left, ["outside", "work"], "a call made something outside");
}
