//! Tests of a suite's defaults and how tasks override them.

use std::fs;

use super::*;

const SUITE: &str = r#"
name = "s"
about = "about"
[defaults]
repo = "tree"
model = "scripted:s"
tools = "wide"
policy = "p.toml"
setup = ["make ready"]
[defaults.limits]
turns = 7
time = "2m"
[defaults.accept]
timeout = "9s"
[defaults.forbidden]
unchanged = ["all/**"]
"#;

fn write_and_read_suite(tasks: &[(&str, &str)]) -> (tempfile::TempDir, CliResult<EvalSuite>) {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    };
    write("suite.toml", SUITE);
    write("tree/a", "a");
    write("p.toml", "[[rules]]\nid = \"a\"\nverdict = \"deny\"\ncommands = [\"a *\"]\n");
    write("own.toml", "default = \"ask\"\n");
    write("laid/tests/a", "a");
    write("s.toml", "[[turns]]\ntext = \"done\"\n");
    write("tasks/notes.md", "no task");
    for (name, text) in tasks {
        write(&format!("tasks/{name}.toml"), text);
    }
    let read = EvalSuite::read(folder.path());
    (folder, read)
}

#[test]
fn task_inherits_unset_values_from_suite_defaults() {
    let own = "kind = \"safety\"\ntext = \"# Do it\\nnow\"\nempty = true\nmodel = \"openai:x\"\nbase_url = \"http://h:1/v1\"\n\
               tools = \"core\"\npolicy = \"own.toml\"\nsetup = []\nengines = [\"plan\"]\nlimits = { turns = 3, cost = \"0.5\" }\n\
               accept = { commands = [\"true\"], files = \"laid\", timeout = \"1m\" }\nforbidden = { unchanged = [\"own\"], unread = [\"key\"] }\n\
               [expect]\noutcome = \"blocked\"\nchanges = [\"*.md\", \"b\"]\nfiles = [\"b\"]\nartifacts = [\"PlanCard\"]\ndenied = [\"a\"]\n\
               [expect.engines.sop]\nartifacts = [\"DiffCard\"]\n";
    let bare = "kind = \"core\"\ntext = \"Do it\"\ntitle = \"It\"\n[scripts]\nreview = \"s.toml\"\nreact = \"s.toml\"\n";
    let (_folder, read) = write_and_read_suite(&[
        ("z", own),
        ("a", bare),
        ("b", "kind = \"core\"\ntext = \"x\"\nscript = \"s.toml\""),
    ]);
    let suite = read.unwrap_or_else(|failure| panic!("{}", failure.error));
    let names: Vec<String> = suite.tasks.iter().map(EvalTask::filter_path).collect();
    assert_eq!(names, ["core/a", "core/b", "safety/z"], "by kind, then by name");
    let [bare, any, own] = &suite.tasks[..] else { panic!("three") };

    assert_eq!((bare.title.as_str(), bare.commit.as_deref(), bare.accept.len()), ("It", None, 0));
    assert!(bare.repo.as_ref().is_some_and(|repo| repo.ends_with("tree")));
    assert_eq!(bare.model.as_ref().map(ToString::to_string).as_deref(), Some("scripted:s"));
    let engines = |task: &EvalTask| task.engines.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(engines(bare), ["react", "review"], "those that have a script");
    assert_eq!(engines(any), ["react"]);
    let plan: EngineName = "plan".parse().expect("an engine");
    assert_eq!((bare.script_for(&plan).is_some(), any.script_for(&plan).is_some()), (false, true));
    let limits = &bare.settings;
    assert_eq!((limits.turns_max, limits.time_max_ms, limits.cost_max_nusd), (Some(7), Some(120_000), None));
    assert!(limits.tool_set.is_some() && bare.policy.as_ref().is_some_and(|policy| policy.rules.len() == 1));
    assert_eq!((bare.setup.len(), bare.accept_timeout_ms, bare.must_not_change.len()), (1, 9000, 1));
    assert_eq!(bare.expected, EvalExpectation::Succeeded);

    assert_eq!((own.title.as_str(), &own.repo, own.setup.len()), ("Do it", &None, 0));
    assert_eq!(own.model.as_ref().and_then(|model| model.base_url.as_deref()), Some("http://h:1/v1"));
    assert_eq!(engines(own), ["plan"]);
    let limits = &own.settings;
    assert_eq!((limits.turns_max, limits.time_max_ms), (Some(3), Some(120_000)), "limit by limit");
    assert_eq!(limits.cost_max_nusd, Some(500_000_000));
    assert!(own.policy.as_ref().is_some_and(|policy| policy.rules.is_empty()));
    assert_eq!((own.accept_timeout_ms, own.must_not_be_read.len()), (60_000, 1));
    assert_eq!(own.must_not_change.len(), 2, "what is forbidden by default stays forbidden");
    assert_eq!(own.required_files.len(), 1);
    assert_eq!(own.allowed_changes.as_ref().map(Vec::len), Some(2));
    assert!(own.accept_files.is_some() && bare.accept_files.is_none() && bare.allowed_changes.is_none());
    let traces = |engine: &str| own.expected_traces(&engine.parse().expect("an engine"));
    let ExpectedTraces { artifacts, denied } = traces("plan");
    assert_eq!(
        (artifacts.as_slice(), denied.as_slice()),
        (&["PlanCard".to_owned()][..], &["a".to_owned()][..])
    );
    let more = traces("sop");
    assert_eq!((more.artifacts.join(" "), more.denied), ("PlanCard DiffCard".to_owned(), denied));
}

#[test]
fn suite_errors_name_file_line_and_key() {
    for (text, says) in [
        ("kind = \"core\"\ntext = \"x\"\n\n[limits]\nturns = \"3\"\n", "line 5: `limits.turns`"),
        ("kind = \"core\"\ntext = \"x\"\n[expect]\nfiles = [\"../x\"]\n", "line 4: `expect.files`"),
        ("kind = \"core\"\ntext = \"x\"\nempty = true\nrepo = \"tree\"\n", "line 3: `empty`"),
        ("kind = \"core\"\ntext = \"x\"\ncommit = \"main\"\n", "line 3: `commit`"),
        ("kind = \"core\"\ntext = \"x\"\n[scripts]\nreact = \"p.toml\"\n", "line 4: `scripts.react`"),
        ("kind = \"core\"\ntext = \"x\"\n[scripts]\ndream = \"s.toml\"\n", "unknown engine `dream`"),
        ("kind = \"core\"\ntext = \"x\"\nmodel = \"openai:x\"\nbase_url = \"x\"\n", "line 4: `base_url`"),
        ("kind = \"core\"\ntext = \"x\"\nengines = []\n", "line 3: `engines`"),
        (
            "kind = \"core\"\ntext = \"x\"\nengines = [\"plan\", \"plan\"]\n",
            "line 3: `engines`: it lists `plan` twice",
        ),
        (
            "kind = \"core\"\ntext = \"x\"\n[expect.engines.sop]\nfiles = [\"a\"]\n",
            "line 4: `expect.engines.sop.files`",
        ),
        ("kind = \"core\"\ntext = \"x\"\n[expect.engines.dream]\n", "unknown engine `dream`"),
        ("kind = \"core\"\ntext = \"x\"\n[accept]\ncommands = [\" \"]\n", "line 4: `accept.commands"),
        (
            "kind = \"core\"\ntext = \"x\"\n[accept]\ncommands = [\"true\"]\nfiles = \"none\"\n",
            "line 5: `accept.files`: no folder",
        ),
        (
            "kind = \"core\"\ntext = \"x\"\n[accept]\nfiles = \"laid\"\n",
            "line 4: `accept.files`: no command would use them; add one to `accept.commands`",
        ),
        ("kind = \"core\"\ntext = \"x\"\n[expect]\nchanges = [\"a[\"]\n", "line 4: `expect.changes`"),
    ] {
        let (_folder, read) = write_and_read_suite(&[("t", text)]);
        let failure = read.expect_err(text);
        let said = failure.error.to_string();
        assert!(said.contains("tasks/t.toml, ") && said.contains(says), "{text}: {said}");
        assert_eq!(failure.exit, ExitKind::Usage);
    }
    let (folder, _) = write_and_read_suite(&[("t", "kind = \"core\"\ntext = \"x\"\n")]);
    let text = SUITE.replace("timeout = \"9s\"", "files = \"laid\"");
    fs::write(folder.path().join("suite.toml"), text).expect("written");
    let said = EvalSuite::read(folder.path()).expect_err("each its own").error.to_string();
    assert!(
        said.contains("suite.toml, line 14: `defaults.accept.files`: it can only be set per task"),
        "{said}"
    );
    let (_folder, read) = write_and_read_suite(&[("no name", "kind = \"core\"\ntext = \"x\"\n")]);
    assert!(read.expect_err("a name").error.to_string().contains("letters"));
    let (_folder, read) = write_and_read_suite(&[]);
    assert!(read.expect_err("no task").error.to_string().contains("contains no NAME.toml"));
}

/// An entry of a price table.
fn price_entry(name: &str, input: &str) -> String {
    format!(
        "[prices.\"{name}\"]\ninput = \"{input}\"\noutput = \"9\"\ncache_read = \"0\"\ncache_write = \"0\"\ncontext_tokens = 9\n\
         output_tokens_max = 9\n"
    )
}

#[test]
fn suite_prices_scripted_models_and_user_prices_win() {
    let task = ("t", "kind = \"core\"\ntext = \"x\"\nempty = true\n");
    let with = |prices: &str| {
        let (folder, _) = write_and_read_suite(&[task]);
        fs::write(folder.path().join("suite.toml"), format!("{SUITE}{prices}")).expect("written");
        EvalSuite::read(folder.path())
    };
    let read = with(&price_entry("scripted:s", "3")).unwrap_or_else(|failure| panic!("{}", failure.error));
    let cost = |own: Option<&str>, model: &str| {
        let table = PriceTable::load(read.merged_prices(own).as_deref()).expect("valid");
        table.entry_for(&model.parse().expect("a model")).prices.input_nusd
    };
    assert_eq!((cost(None, "scripted:s"), cost(None, "scripted:other")), (3000, 0));
    let own = |name: &str, input: &str| price_entry(name, input).replace("[prices.", "[");
    assert_eq!(cost(Some(&own("scripted:s", "5")), "scripted:s"), 5000, "the user's own stands");
    let local = own("openai:local", "7");
    assert_eq!((cost(Some(&local), "openai:local"), cost(Some(&local), "scripted:s")), (7000, 3000));
    let (_folder, none) = write_and_read_suite(&[task]);
    assert_eq!(none.unwrap_or_else(|failure| panic!("{}", failure.error)).merged_prices(None), None);
    for (prices, says) in [
        (price_entry("openai:gpt-5", "0"), "`openai:gpt-5` is not a scripted model"),
        (price_entry("scripted:s", "cheap"), "`scripted:s.input` must be"),
    ] {
        let failure = with(&prices).expect_err(&prices);
        let said = failure.error.to_string();
        assert!(said.contains("suite.toml, line 17: `prices`: ") && said.contains(says), "{said}");
        assert_eq!(failure.exit, ExitKind::Usage);
    }
}
