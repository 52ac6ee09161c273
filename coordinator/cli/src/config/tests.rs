//! Tests of the settings file: accepted values and error messages.

use super::*;

fn load_config_text(text: &str) -> CliResult<Config> {
    let mut config = Config::default();
    config.apply_toml(text, "docket.toml")?;
    config.validate()
}

#[test]
fn setting_keys_are_unique_and_the_file_is_parsed() {
    let names: std::collections::BTreeSet<_> =
        all_setting_keys().flat_map(|key| [key.name, key.env]).collect();
    assert_eq!(names.len(), all_setting_keys().count() * 2);
    let text = "[run]\nturns_max = 40\nauto_lint = false\nrefuse_syntax_errors = true\n[worker]\nqueues = [\"a\", \"b\"]\n\
                [prices.\"openai:x\"]\ninput = \"1\"\n";
    let config = load_config_text(text).expect("legal");
    assert_eq!(
        (config.run_defaults.turns_max, config.run_defaults.auto_lint, config.queues.len()),
        (40, false, 2)
    );
    assert!(config.run_defaults.refuse_syntax_errors && !Config::default().run_defaults.refuse_syntax_errors);
    assert!(config.prices_toml.is_some_and(|toml| toml.contains("openai:x")));
}

#[test]
fn errors_name_the_setting_and_its_allowed_values() {
    for (text, message) in [
        ("[run]\nturns_max = 0", "docket.toml: `run.turns_max` is not a whole number from 1 to 1000"),
        ("[run]\nturns_max = \"many\"", "docket.toml: `run.turns_max` is not a whole number from 1 to 1000"),
        (
            "[worker]\nsandbox = \"jail\"",
            "docket.toml: `worker.sandbox` is not auto, bubblewrap, namespaces or none",
        ),
        (
            "[worker]\nslot = 1",
            "docket.toml: unknown setting `worker.slot`; [worker] has worker.slots, worker.hang_ms, worker.queues, worker.labels, worker.sandbox, worker.memory, worker.processes, worker.disk, worker.files, worker.output, worker.redact, worker.base_urls",
        ),
        (
            "slots = 1",
            "docket.toml: `slots` must be in a section: [run], [task], [roles.NAME], [team], [server], [client], [archive], [blobs], [worker], [delivery], [[notify]], [policy], [mcp.NAME], [prices.\"PROVIDER:MODEL\"]",
        ),
        (
            "[wroker]\nslots = 1",
            "docket.toml: unknown section [wroker]; the sections are [run], [task], [roles.NAME], [team], [server], [client], [archive], [blobs], [worker], [delivery], [[notify]], [policy], [mcp.NAME], [prices.\"PROVIDER:MODEL\"]",
        ),
        (
            "[[policy.rules]]\nid = \"a\"\nverdict = \"deny\"\ncommands = [\"x\"]\nmisses = [\"ls; x\"]",
            "docket.toml: [policy]: rules[0].misses[0] must not be matched by `a`: `ls; x`",
        ),
        (
            "[run]\ncommand_timeout_ms = 400000",
            "run.command_timeout_ms is above run.command_timeout_ms_max; lower it or raise the limit",
        ),
    ] {
        let failure = load_config_text(text).expect_err(text);
        assert_eq!((failure.exit, failure.error.to_string().as_str()), (ExitKind::Usage, message));
    }
    let failure = load_config_text("[run\n").expect_err("no TOML");
    assert!(failure.error.to_string().starts_with("docket.toml: line 1 is not valid TOML"));
    let failure = load_config_text("[run]\nx = \n").expect_err("no value");
    assert!(!failure.error.to_string().contains('\n'), "{:?}", failure.error.to_string());
}

#[test]
fn environment_overrides_file_and_errors_hide_passwords() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("docket.toml");
    std::fs::write(&file, "[worker]\nslots = 3\n").expect("writes");
    let with = |name: &'static str, value: &'static str| {
        Config::load(&file, move |asked| (asked == name).then(|| value.to_owned()))
    };
    assert_eq!(with("DOCKET_SLOTS", "7").expect("legal").slots, 7);
    assert_eq!(with("DOCKET_SLOTS", "").expect("empty is absent").slots, 3);
    let failure = with("DATABASE_URL", "mysql://me:secret@host/db").expect_err("no store of ours");
    assert!(!failure.error.to_string().contains("secret"), "{}", failure.error);
}

#[test]
fn certificate_requires_key_and_hosts_must_be_names() {
    let with = |name: &'static str, value: &'static str| {
        Config::load(std::path::Path::new("/none/docket.toml"), move |asked| {
            (asked == name).then(|| value.to_owned())
        })
    };
    let failure = with("DOCKET_TLS_CERT", "/c.pem").expect_err("half");
    assert!(failure.error.to_string().contains("must be set together"), "{}", failure.error);
    let config = with("DOCKET_HOSTS", "docket.example, build-1").expect("names");
    assert_eq!(config.server.hosts, ["docket.example", "build-1"]);
    for bad in ["http://x", "a:80", "*", "a b"] {
        assert!(with("DOCKET_HOSTS", bad).is_err(), "{bad}");
    }
    assert!(with("DOCKET_CA", "relative.pem").is_err());
}

#[test]
fn run_defaults_match_measured_values() {
    let run = Config::default().run_defaults;
    assert_eq!((run.turns_max, run.corrections_max, run.correction_turns), (30, 3, 5));
    assert_eq!((run.self_corrections_max, run.compaction_percent, run.output_chars_max), (5, 85, 4000));
    assert_eq!((run.auto_lint, run.lint_timeout_ms), (true, 10_000));
}
