//! Arguments of tool calls, on a real folder. Commands are not run: what is fuzzed is what reads the arguments.

use std::{fs, sync::LazyLock};

use cap_std::{ambient_authority, fs::Dir};
use docket_schema::tool::ToolSet;
use docket_worker::tools::{
    BaseView, CommandOutput, CommandSpec, NoMemory, ReadSet, Runner, RunnerError, SHOW_CHANGES, SHOW_FILE,
    SURVEY, ToolContext, ToolSettings, WholeOutputs, card_specs, execute, labels, meant_name, recovery_class,
    specs, specs_of,
};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{pieces, text};

const OUTSIDE: &str = "outside\n";
/// What a model is shown of one call, with room for words around it.
const ANSWER_BYTES_MAX: usize = 512 * 1024;

/// Refuses: a fuzzer's shell lines are nobody's wish.
struct Never;

impl Runner for Never {
    fn run(&self, _spec: CommandSpec) -> BoxFuture<'_, Result<CommandOutput, RunnerError>> {
        Box::pin(async { Err(RunnerError::of_host("not run")) })
    }
}

struct Place {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

fn place() -> Place {
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(dir.path().join("work/src")).expect("a folder");
    fs::write(dir.path().join("outside"), OUTSIDE).expect("written");
    fs::write(dir.path().join("work/src/main.py"), "def a():\n    return 1\n").expect("written");
    std::os::unix::fs::symlink(dir.path().join("outside"), dir.path().join("work/link")).expect("linked");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    Place { dir, runtime }
}

/// A tool's name, then its arguments.
pub(super) fn call(input: &[u8]) {
    static PLACE: LazyLock<std::sync::Mutex<Place>> = LazyLock::new(|| std::sync::Mutex::new(place()));
    let place = PLACE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let pieces = pieces(input);
    let name = text(&pieces[0]).trim().to_owned();
    let Some(Ok(args)) = pieces.get(1).map(|args| serde_json::from_slice::<Value>(args)) else { return };
    let _ = (meant_name(&name), labels(&name, &args), recovery_class(&name, &args));
    let root = Dir::open_ambient_dir(place.dir.path().join("work"), ambient_authority()).expect("opens");
    let (read_set, settings, outputs) = (ReadSet::new(), ToolSettings::default(), WholeOutputs::default());
    let base = BaseView::default();
    let context = ToolContext {
        root: &root,
        runner: &Never,
        read_set: &read_set,
        settings: &settings,
        tests: None,
        outputs: &outputs,
        base: &base,
        memory: &NoMemory,
        call: None,
    };
    let own = [SHOW_FILE, SHOW_CHANGES, SURVEY].contains(&name.as_str());
    let all = [specs_of(ToolSet::Wide), specs(), card_specs()].concat();
    let known = own || all.iter().any(|spec| spec.name == name);
    let outcome = place.runtime.block_on(execute(context, &name, &args));
    assert!(known || outcome.is_error, "no tool `{name}`, and no error");
    assert!(outcome.content.len() <= ANSWER_BYTES_MAX, "{} bytes for the model", outcome.content.len());
    let outside = fs::read_to_string(place.dir.path().join("outside")).expect("is still there");
    assert_eq!(outside, OUTSIDE, "a call wrote outside");
    let mut left: Vec<_> =
        fs::read_dir(place.dir.path()).expect("reads").flatten().map(|e| e.file_name()).collect();
    left.sort();
    assert_eq!(left, ["outside", "work"], "a call made something outside");
}
