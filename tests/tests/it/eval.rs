//! `docket eval`: the suite of the samples ends as expected with every engine; its report holds to its schema and its
//! page is well formed; what must fail is seen to fail; a bad suite is told by file, line and key.

mod evaluation_checks;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    eval::{EvalCheckKind, EvalComparison, EvalKind, EvalOutcome, EvalReport, EvalResult},
    report::Ratio,
    run::FailureKind,
};
use docket_tests::{
    json_schema,
    system::{
        DocketTerminal, FinishedProcess, SampleRepository, TestProgram, acquire_scenario_slot, run_program,
    },
};
use serde_json::Value;

/// Engines that the samples hold scripts for. A new engine is added here, and with a script to the tasks that show it.
const ENGINES: [&str; 6] = ["react", "plan", "review", "architect", "team", "sop"];

fn samples_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/samples")
}

fn read_schema(name: &str) -> Result<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../schema/schemas/{name}.json"));
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

async fn run_docket<A: AsRef<OsStr>>(home: &Path, args: &[A]) -> Result<FinishedProcess> {
    run_program(TestProgram::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
}

fn parse_report(said: &FinishedProcess) -> Result<EvalReport> {
    let value: Value = serde_json::from_str(&said.stdout).with_context(|| format!("a report: {said:?}"))?;
    json_schema::validate(&read_schema("eval.EvalReport")?, &value)?;
    let report: EvalReport = serde_json::from_value(value.clone())?;
    // What the type leaves out of the text would not come back.
    ensure!(serde_json::to_value(&report)? == value, "the report says more than its type");
    Ok(report)
}

/// A suite of one task over the cellar of the samples, with changes to its text.
struct TestSuite(tempfile::TempDir);

impl TestSuite {
    fn new(changes: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("tasks"))?;
        let suite = Self(folder);
        let at = samples_folder();
        suite.write_file(
            "suite.toml",
            "name = \"one\"\n[defaults]\nmodel = \"scripted:x\"\n[defaults.accept]\ntimeout = \"20s\"\n",
        )?;
        let mut text = format!(
            "kind = \"core\"\nrepo = \"{0}/fixtures/cellar\"\ntitle = \"One shelf\"\ntext = \"Count all shelves.\"\n\
             script = \"{0}/scripts/busy-provider.react.toml\"\n[limits]\nturns = 9\n[accept]\ncommands = [\"grep -q 'in shelves:' \
             cellar.py\"]\n[forbidden]\nunchanged = [\"tests/**\"]\n[expect]\noutcome = \"succeeded\"\n",
            at.display()
        );
        for (from, to) in changes {
            ensure!(text.contains(from), "there is no `{from}` in {text}");
            text = text.replace(from, to);
        }
        suite.write_file("tasks/shelf.toml", &text)?;
        Ok(suite)
    }

    fn write_file(&self, path: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.0.path().join(path), text)?)
    }

    fn suite_path(&self) -> &OsStr {
        self.0.path().as_os_str()
    }
}

/// One kind of the samples, through the engines that its tasks have scripts for; each try is as expected.
async fn evaluate_kind(home: &Path, kind: EvalKind, more: &[&OsStr]) -> Result<EvalReport> {
    evaluate_samples(home, kind, "*", more).await
}

/// Those of them whose names fit this glob.
async fn evaluate_samples(home: &Path, kind: EvalKind, names: &str, more: &[&OsStr]) -> Result<EvalReport> {
    let (suite, only) = (samples_folder(), format!("{}/{names}", kind.as_str()));
    let args = ["eval".as_ref(), suite.as_os_str(), "--json".as_ref(), "--only".as_ref(), only.as_ref()];
    let said = run_docket(home, &[&args[..], more].concat()).await?;
    let report = parse_report(&said)?;
    let not_passed: Vec<_> = report.results.iter().filter(|result| !result.passed).collect();
    ensure!(said.code() == Some(0) && not_passed.is_empty(), "{not_passed:#?} {}", said.stderr);
    ensure!(report.all.worked_ms > 0 && report.took_ms > 0, "time passes: {:?}", report.all);
    for result in &report.results {
        ensure!(result.kind == kind && result.run.is_some(), "{result:?}");
        ensure!(result.commit.as_ref().is_some_and(|commit| commit.len() == 40), "{result:?}");
        // No call is made where the budget would not pay for it.
        ensure!(result.total_tokens() > 0 || result.task == "token-limit", "{result:?}");
        ensure!(result.metrics.len() == 12, "{result:?}");
    }
    Ok(report)
}

/// What became of a task with an engine.
fn find_result<'a>(report: &'a EvalReport, task: &str, engine: &str) -> Result<&'a EvalResult> {
    let is_meant = |one: &&EvalResult| one.task == task && one.engine == engine;
    report.results.iter().find(is_meant).with_context(|| format!("{task} was not tried with {engine}"))
}

/// That the log of a kept run tells of these, in this order.
async fn check_log_mentions(home: &Path, of: &EvalResult, words: &[&str]) -> Result<()> {
    let run = of.run.context("a run")?.to_string();
    let log = run_docket(home, &["logs", &run]).await?.into_stdout()?;
    let mut rest = log.as_str();
    for word in words {
        let (_, behind) = rest
            .split_once(word)
            .with_context(|| format!("{} with {}: no `{word}` in its place in {log}", of.task, of.engine))?;
        rest = behind;
    }
    Ok(())
}

/// Names of what was looked at.
fn check_names(of: &EvalResult, what: EvalCheckKind) -> Vec<&str> {
    of.checks.iter().filter(|check| check.what == what).map(|check| check.name.as_str()).collect()
}

#[test]
fn samples_cover_every_kind_and_engine() -> Result<()> {
    let (mut engines, mut kinds) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
    for entry in std::fs::read_dir(samples_folder().join("tasks"))? {
        let task: toml::Table = std::fs::read_to_string(entry?.path())?.parse()?;
        *kinds.entry(task["kind"].as_str().context("a kind")?.to_owned()).or_default() += 1;
        let scripts = task.get("scripts").and_then(toml::Value::as_table);
        for engine in scripts.into_iter().flat_map(toml::Table::keys) {
            *engines.entry(engine.clone()).or_default() += 1;
        }
    }
    ensure!(kinds.values().sum::<usize>() >= 16, "{kinds:?}");
    for kind in EvalKind::ALL {
        ensure!(kinds.get(kind.as_str()).is_some_and(|count| *count >= 3), "{kind:?}: {kinds:?}");
    }
    for engine in ENGINES {
        ensure!(engines.get(engine).is_some_and(|count| *count >= 4), "{engine}: {engines:?}");
    }
    Ok(())
}

/// Core tasks with these names, through all engines; kept, and each decision derived again.
async fn compare_engines(home: &Path, names: &str) -> Result<EvalReport> {
    let engines = ENGINES.iter().flat_map(|name| ["--engine", *name]);
    let flags: Vec<&OsStr> = engines.chain(["--keep"]).map(OsStr::new).collect();
    let report = evaluate_samples(home, EvalKind::Core, names, &flags).await?;
    let named: Vec<&str> = report.engines.iter().map(|one| one.engine.as_str()).collect();
    ensure!(named == ENGINES, "in the order of the command line: {named:?}");
    let tasks = report.common.len() as u64;
    for one in &report.common_engines {
        ensure!((one.sum.tasks, one.sum.passed, one.sum.succeeded) == (tasks, tasks, tasks), "{one:?}");
        ensure!(one.sum.turns > 0 && one.sum.artifacts.of == one.sum.artifacts.all, "{one:?}");
        // The suite says what its model costs.
        ensure!(one.sum.cost_nusd > Some(0), "{one:?}");
    }
    let verified = run_docket(home, &["verify"]).await?;
    ensure!(verified.code() == Some(0), "{verified:?}");
    Ok(report)
}

// `characters` has to be compiled, and is what `docket demo` does: not here again. The others are two evaluations, so that
// none takes long on a machine that is busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn core_tasks_succeed_with_every_engine() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let report = compare_engines(home.path(), "[fm]*").await?;
    ensure!(report.common == ["file-names", "mixed-numbers"], "{:?}", report.common);
    // Each engine takes its own way to the same end.
    for (task, engine, words) in [
        ("file-names", "architect", &["the patch is invalid", "coder: step 1", "step 1 is done"][..]),
        ("mixed-numbers", "architect", &["coder: final checks: mend pantry/amounts.py", "verdict: finish"]),
        ("file-names", "team", &["the tester replied: failed", "verdict: retry", "coder: round 2"]),
        ("file-names", "sop", &["tests_pass: failed", "tests_pass: passed", "[complete_task]"]),
        ("mixed-numbers", "sop", &["Refused by policy (mode)", "[plan_card]"]),
    ] {
        check_log_mentions(home.path(), find_result(&report, task, engine)?, words).await?;
    }
    // What is expected of one engine is asked of no other.
    let denied = |engine: &str| {
        Ok::<_, anyhow::Error>(check_names(
            find_result(&report, "mixed-numbers", engine)?,
            EvalCheckKind::Denied,
        ))
    };
    ensure!(denied("sop")? == ["mode"] && denied("team")?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_are_compared_over_common_tasks() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let report = compare_engines(home.path(), "[os]*").await?;
    ensure!(report.common == ["shopping-list"] && report.has_partial_coverage(), "{:?}", report.common);
    // `sop` owes four artifacts whatever its task says; the file that the task wants comes on top.
    let artifacts =
        |engine: &str| Ok::<_, anyhow::Error>(find_result(&report, "shopping-list", engine)?.artifacts);
    ensure!(artifacts("sop")? == Ratio { of: 5, all: 5 } && artifacts("react")? == Ratio { of: 1, all: 1 });
    let left: BTreeSet<&str> = report.left_out.iter().map(|left| left.task.as_str()).collect();
    ensure!(left.contains("one-usage"), "what has no script for an engine is told: {left:?}");
    // A person reads one table, in which each has its line.
    let suite = samples_folder();
    let engines = ENGINES.iter().flat_map(|name| ["--engine".as_ref(), name.as_ref()]);
    let args = ["eval".as_ref(), suite.as_os_str(), "--only".as_ref(), "core/shopping-list".as_ref()];
    let said = run_docket(home.path(), &args.into_iter().chain(engines).collect::<Vec<&OsStr>>())
        .await?
        .into_stdout()?;
    let mut lines = said.lines().skip_while(|line| !line.starts_with("ENGINE"));
    let head = lines.next().with_context(|| format!("a table of engines: {said}"))?;
    for column in ["PASSED", "SUCCEEDED", "TURNS", "TOKENS", "COST", "TIME", "ARTIFACTS"] {
        ensure!(head.contains(column), "{head}");
    }
    let named: Vec<&str> =
        lines.map_while(|line| line.split_whitespace().next()).take(ENGINES.len()).collect();
    ensure!(named == ENGINES, "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integration_tasks_change_related_files() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let report = evaluate_kind(home.path(), EvalKind::Integration, &["--keep".as_ref()]).await?;
    ensure!(report.results.len() >= 9, "{} tries", report.results.len());
    ensure!(report.results.iter().all(|one| one.checks.iter().filter(|check| check.passed).count() >= 3));
    let of = |engine: &str| find_result(&report, "count", engine);
    let mended = ["step 2 failed", "coder: step 2: mend logcut.sh", "step 2 is done"];
    check_log_mentions(home.path(), of("architect")?, &mended).await?;
    let sent_back = ["the reviewer replied: send_back", "coder: round 2", "the reviewer replied: approve"];
    check_log_mentions(home.path(), of("team")?, &sent_back).await?;
    // Two files are reviewed by somebody else; artifacts that the engine owes are counted once, though the task names them.
    check_log_mentions(
        home.path(),
        of("sop")?,
        &["reviewer: review 1", "[review_report]", "[complete_task]"],
    )
    .await?;
    let all = ["PlanCard", "DiffCard", "TestReport", "ReviewReport"];
    ensure!(
        check_names(of("sop")?, EvalCheckKind::Artifact) == all
            && of("sop")?.artifacts == Ratio { of: 4, all: 4 }
    );
    let verified = run_docket(home.path(), &["verify"]).await?;
    ensure!(verified.code() == Some(0), "{verified:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn safety_tasks_attempt_forbidden_actions_and_are_refused() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let page = home.path().join("report.html");
    let more = ["--keep".as_ref(), "--html".as_ref(), page.as_os_str()];
    let report = evaluate_kind(home.path(), EvalKind::Safety, &more).await?;
    for result in &report.results {
        let denied = result.checks.iter().any(|check| check.what == EvalCheckKind::Denied);
        let asked = matches!(result.outcome, EvalOutcome::Blocked(_));
        ensure!(denied || asked, "{} shows nothing refused", result.task);
    }
    check_page_is_well_formed(home.path(), &page, &report).await?;
    // What is kept can be looked at, and every decision is derived again.
    let listed = run_docket(home.path(), &["ps", "--json", "-n", "1000"]).await?.into_stdout()?;
    ensure!(listed.lines().count() == report.results.len(), "{listed}");
    let verified = run_docket(home.path(), &["verify"]).await?;
    ensure!(verified.code() == Some(0), "{verified:?}");
    // Scripted tasks say nothing of a model: they are left out where models are measured.
    let metrics = run_docket(home.path(), &["metrics", "--json"]).await?.into_stdout()?;
    let metrics: Value = serde_json::from_str(&metrics)?;
    ensure!(metrics["tasks"] == serde_json::json!([]) && metrics["scripted_left_out"].as_u64() > Some(0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_tasks_end_as_expected_and_keep_their_work() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let report =
        evaluate_kind(home.path(), EvalKind::Recovery, &["--workers".as_ref(), "3".as_ref()]).await?;
    ensure!(report.workers == 3);
    let outcomes: BTreeSet<String> = report.results.iter().map(|result| result.outcome.to_string()).collect();
    for outcome in ["failed: turn_limit", "failed: limit", "failed: plan", "blocked: model", "succeeded"] {
        ensure!(outcomes.contains(outcome), "no {outcome} among {outcomes:?}");
    }
    for engine in ["react", "plan", "architect", "team", "sop"] {
        let ended = &find_result(&report, "time-limit", engine)?.outcome;
        ensure!(*ended == EvalOutcome::Failed(FailureKind::Limit), "{engine}: {ended}");
    }
    Ok(())
}

/// Read by Python: as XML, which takes nothing that is left open; and as HTML, for what it refers to.
const READ_PAGE: &str = r#"
import json, sys, xml.dom.minidom
from html.parser import HTMLParser
text = open(sys.argv[1], encoding="utf-8").read()
page = xml.dom.minidom.parseString(text)
tags = {}
for node in page.getElementsByTagName("*"):
    tags[node.tagName] = tags.get(node.tagName, 0) + 1
ids = [node.getAttribute("id") for node in page.getElementsByTagName("*") if node.hasAttribute("id")]
assert len(ids) == len(set(ids)), "an id twice"
for svg in page.getElementsByTagName("svg"):
    assert svg.getAttribute("role") == "img" and svg.getElementsByTagName("title"), "a chart without a name"
    for name in svg.getAttribute("aria-labelledby").split():
        assert name in ids, name
    assert svg.parentNode.getElementsByTagName("table"), "a chart without its table"
class Reader(HTMLParser):
    outside = []
    def handle_starttag(self, tag, attrs):
        self.outside += [v for k, v in attrs if k in ("src", "href", "srcset", "onload", "onclick")]
reader = Reader()
reader.feed(text)
print(json.dumps({"tags": tags, "outside": reader.outside, "lang": page.documentElement.getAttribute("lang")}))
"#;

async fn check_page_is_well_formed(folder: &Path, page: &Path, report: &EvalReport) -> Result<()> {
    let args = ["-c".as_ref(), OsStr::new(READ_PAGE), page.as_os_str()];
    let said = run_program(TestProgram::Python, folder, &[], &args).await?.into_stdout()?;
    let said: Value = serde_json::from_str(&said)?;
    let tags: BTreeMap<String, u64> = serde_json::from_value(said["tags"].clone())?;
    let count = |tag: &str| tags.get(tag).copied().unwrap_or(0);
    ensure!(said["lang"] == "en" && said["outside"] == serde_json::json!([]), "{said}");
    ensure!(count("svg") == 7 && count("svg") == count("figure") && count("script") == 0, "{tags:?}");
    let text = std::fs::read_to_string(page)?;
    ensure!(text.contains("prefers-color-scheme: dark") && text.contains("default-src 'none'"));
    for result in &report.results {
        ensure!(text.contains(&result.task), "{} is not on the page", result.task);
    }
    Ok(())
}

const GIVES_AWAY: &str = r#"
[[turns]]
when = { any_contains = "Say what the cellar is." }
text = "It counts bottles."
or = [{ calls = [{ name = "delegate", args = { title = "Look", instructions = "Say what the cellar is." } }] }]
[[turns]]
calls = [{ name = "read_file", args = { path = "cellar.py" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "cellar.py", edits = [{ search = "    for shelf in shelves[1:]:", replace = "    for shelf in shelves:" }] } }]
[[turns]]
text = "All shelves are counted."
"#;

/// What a child costs is part of what its task costs, and its turns are of its task's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delegated_work_counts_in_cost_and_turns() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("docket.toml"), "[run]\ndelegation_depth_max = 1\n")?;
    let script = format!("script = \"{}/scripts/busy-provider.react.toml\"", samples_folder().display());
    let own = home.path().join("script.toml");
    std::fs::write(&own, GIVES_AWAY)?;
    let suite = TestSuite::new(&[(script.as_str(), &format!("script = \"{}\"", own.display()))])?;
    let said = run_docket(home.path(), &["eval".as_ref(), suite.suite_path(), "--json".as_ref()]).await?;
    let report = parse_report(&said)?;
    ensure!(said.code() == Some(0) && report.all.passed == 1, "{said:?}");
    // Four turns of its own, and those of its child, which mends what its checks say.
    let one = &report.results[0];
    ensure!((one.turns, one.cost.answered) == (8, 8), "{one:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expected_failures_fail_and_appear_in_the_comparison() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let good = TestSuite::new(&[])?;
    let said = run_docket(home.path(), &["eval".as_ref(), good.suite_path(), "--json".as_ref()]).await?;
    let well = parse_report(&said)?;
    ensure!(said.code() == Some(0) && well.all.passed == 1, "{said:?}");
    let left = run_docket(home.path(), &["ps", "--json"]).await?.into_stdout()?;
    ensure!(left.is_empty(), "without --keep nothing is left behind: {left}");
    let a = home.path().join("a.json");
    std::fs::write(&a, &said.stdout)?;

    // Each wants something that is not so; the run itself ends as before.
    let cases = [
        (
            "grep -q 'in shelves:' cellar.py",
            "python3 -c 'import cellar; assert cellar.bottles([1]) == 2'",
            "command",
        ),
        ("grep -q 'in shelves:' cellar.py", "test -e cellar.py && sleep 30", "command"),
        ("tests/**", "*.py", "unchanged"),
        ("outcome = \"succeeded\"", "files = [\"nothing.txt\"]", "file"),
        ("outcome = \"succeeded\"", "artifacts = [\"PlanCard\"]", "artifact"),
        ("outcome = \"succeeded\"", "denied = [\"no-rule\"]", "denied"),
        ("outcome = \"succeeded\"", "engines.react.artifacts = [\"PlanCard\"]", "artifact"),
        ("unchanged = [\"tests/**\"]", "unread = [\"cellar.py\"]", "unread"),
        ("outcome = \"succeeded\"", "outcome = \"failed: turn_limit\"", ""),
    ];
    for (from, to, what) in cases {
        let suite = TestSuite::new(&[(from, to)])?;
        suite.write_file(
            "suite.toml",
            "name = \"one\"\n[defaults]\nmodel = \"scripted:x\"\n[defaults.accept]\ntimeout = \"2s\"\n",
        )?;
        let said = run_docket(home.path(), &["eval".as_ref(), suite.suite_path(), "--json".as_ref()]).await?;
        let badly = parse_report(&said)?;
        ensure!(said.code() == Some(1) && badly.all.passed == 0, "{to}: {said:?}");
        let result = &badly.results[0];
        let failed: Vec<&str> =
            result.checks.iter().filter(|check| !check.passed).map(|check| check.what.as_str()).collect();
        let wanted: Vec<&str> = Some(what).filter(|what| !what.is_empty()).into_iter().collect();
        ensure!(failed == wanted && result.outcome == EvalOutcome::Succeeded, "{to}: {result:#?}");
        if to.contains("sleep") {
            let text = result.checks.iter().find_map(|check| check.said.as_deref()).unwrap_or_default();
            ensure!(text.contains("2 s"), "the time limit ended it: {text}");
        }

        // What passed before fails now: the comparison says so, and so does its exit code; the other way round it does not.
        let b = home.path().join("b.json");
        std::fs::write(&b, &said.stdout)?;
        let compare = |a: &Path, b: &Path| {
            [
                "eval".into(),
                "compare".into(),
                a.as_os_str().to_owned(),
                b.as_os_str().to_owned(),
                "--json".into(),
            ]
        };
        let said = run_docket(home.path(), &compare(&a, &b)).await?;
        ensure!(said.code() == Some(1), "{said:?}");
        let value: Value = serde_json::from_str(&said.stdout)?;
        json_schema::validate(&read_schema("eval.EvalComparison")?, &value)?;
        let compared: EvalComparison = serde_json::from_value(value)?;
        ensure!(compared.tasks[0].change.as_str() == "regressed", "{compared:?}");
        let said = run_docket(home.path(), &compare(&b, &a)).await?;
        ensure!(said.code() == Some(0) && said.stdout.contains("mended"), "{said:?}");
    }
    Ok(())
}

#[tokio::test]
async fn suite_errors_name_file_line_and_key() -> Result<()> {
    let home = tempfile::tempdir()?;
    for (from, to, says) in [
        ("kind = \"core\"", "kind = \"chore\"", &["line 1", "`kind`", "recovery"][..]),
        ("kind = \"core\"", "kind = \"core\"\nfoo = 1", &["line 2", "`foo`", "unknown field"]),
        ("turns = 9", "turn = 9", &["line 7", "`limits.turn`", "`turns`"]),
        ("turns = 9", "turns = 0", &["line 7", "`limits.turns`", "1000"]),
        ("turns = 9", "time = \"soon\"", &["line 7", "`limits.time`", "90s"]),
        (
            "outcome = \"succeeded\"",
            "outcome = \"failed: turns\"",
            &["line 13", "`expect.outcome`", "turn_limit"],
        ),
        ("tests/**", "tests/[", &["line 11", "`forbidden.unchanged`", "glob"]),
        ("busy-provider", "no-such", &["line 5", "`script`", "no-such"]),
        ("fixtures/cellar", "fixtures/attic", &["line 2", "`repo`", "attic"]),
        ("[limits]", "engines = [\"dream\"]\n[limits]", &["line 6", "`engines[0]`", "react"]),
        ("[limits]", "engines = [\"react\"", &["tasks/shelf.toml", "line"]),
        ("title = \"One shelf\"", "commit = \"main\"", &["line 3", "`commit`", "not a git repository"]),
        ("text = \"Count all shelves.\"", "text = \" \"", &["line 4", "`text`"]),
        ("text = \"Count all shelves.\"", "", &["missing field `text`"]),
        ("script = ", "model = \"scripted:y\"\nscripts = {}\n# ", &["`scripts`", "react"]),
        ("script = ", "policy = \"none.toml\"\nscript = ", &["line 5", "`policy`", "none.toml"]),
    ] {
        let suite = TestSuite::new(&[(from, to)])?;
        let said = run_docket(home.path(), &["eval".as_ref(), suite.suite_path()]).await?;
        ensure!(said.code() == Some(2), "{to}: {said:?}");
        for word in says.iter().chain(&["tasks/shelf.toml"]) {
            ensure!(said.stderr.contains(word), "{to}: no `{word}` in {}", said.stderr);
        }
        ensure!(said.stderr.lines().count() == 1, "{}", said.stderr);
    }
    let good = TestSuite::new(&[])?;
    for (args, says) in [
        (&["--only", "nothing"][..], "--only"),
        (&["--engine", "plan"], "no script for the engine `plan`"),
        (&["--engine", "dream"], "unknown engine `dream`"),
        (&["--model", "openai:x", "--base-url", "nowhere"], "--base-url"),
    ] {
        // An engine that cannot be tried with any task leaves nothing to try; `script` is one for any engine.
        let suite = if args.contains(&"plan") {
            TestSuite::new(&[("script = ", "scripts.react = ")])?
        } else {
            TestSuite::new(&[])?
        };
        let all =
            [&["eval".as_ref(), suite.suite_path()], &args.iter().map(OsStr::new).collect::<Vec<_>>()[..]]
                .concat();
        let said = run_docket(home.path(), &all).await?;
        ensure!(said.code() == Some(2) && said.stderr.contains(says), "{args:?}: {said:?}");
    }
    // A repository that is one, without the commit that is wanted.
    let sample = SampleRepository::new(&[("cellar.py", "")])?;
    let from = format!("{}/fixtures/cellar\"", samples_folder().display());
    let to = format!("{}\"\ncommit = \"v9\"", sample.path().display());
    let suite = TestSuite::new(&[(&from, &to)])?;
    let said = run_docket(home.path(), &["eval".as_ref(), suite.suite_path()]).await?;
    ensure!(said.code() == Some(2) && said.stderr.contains("shelf.toml, line 3: `commit`"), "{said:?}");
    good.write_file("suite.toml", "name = \"one\"\nabuot = \"x\"\n")?;
    let said = run_docket(home.path(), &["eval".as_ref(), good.suite_path()]).await?;
    ensure!(said.code() == Some(2) && said.stderr.contains("suite.toml, line 2: `abuot`"), "{said:?}");
    let said = run_docket(home.path(), &["eval", "/nowhere/at/all"]).await?;
    ensure!(said.code() == Some(2) && said.stderr.contains("suite.toml"), "{said:?}");
    let said = run_docket(home.path(), &["eval", "compare", "/nowhere/a.json", "/nowhere/b.json"]).await?;
    ensure!(said.code() == Some(2), "{said:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_shows_progress_and_then_a_table() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let suite = TestSuite::new(&[])?;
    let args = ["eval".as_ref(), suite.suite_path()];
    let mut terminal =
        DocketTerminal::start(home.path(), &[("DOCKET_HOME", home.path().as_os_str())], &args)?;
    terminal.wait_for_text("0/1").await?;
    terminal.wait_for_text("OUTCOME").await?;
    terminal.wait_for_text("1 of 1 as expected").await?;
    ensure!(terminal.wait().await?.success());
    Ok(())
}
