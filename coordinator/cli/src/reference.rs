//! Generates the reference under `coordinator/docs/reference` from the code: commands with their help,
//! settings, exit codes, events and routes. A test compares each file with the code; `UPDATE_DOCS=1 cargo test
//! -p docket-cli --bins reference` writes them.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};
use serde_json::Value;

use crate::{args::Cli, config};

mod examples;
mod settings;

/// The first line of every file.
const GENERATED_HEADER: &str = "<!-- Generated from the code; run `UPDATE_DOCS=1 cargo test -p docket-cli --bins reference` to update it. -->\n\n";
/// Width of help texts.
const COLUMNS: usize = 100;

/// Compares a reference file with its expected contents.
fn check_reference_file(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(name);
    let text = format!("{GENERATED_HEADER}{}\n", text.trim_end());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).expect("the reference can be written");
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(text.lines()).find(|(one, other)| one != other);
    assert!(
        there == text,
        "{} differs from the code (first: {differs:?}); update it with UPDATE_DOCS=1 and review the difference",
        path.display()
    );
}

/// Returns every command by its full name, `docket` itself first.
fn all_commands() -> Vec<(String, clap::Command)> {
    fn collect_commands(name: &str, command: &clap::Command, all: &mut Vec<(String, clap::Command)>) {
        all.push((name.to_owned(), command.clone()));
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
            collect_commands(&format!("{name} {}", sub.get_name()), sub, all);
        }
    }
    let mut command = Cli::command().term_width(COLUMNS);
    command.build();
    let mut all = Vec::new();
    collect_commands("docket", &command, &mut all);
    all
}

fn anchor(name: &str) -> String {
    name.replace(' ', "-")
}

/// Formats a cell of a table.
fn table_cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn after_help(command: &clap::Command) -> String {
    command.get_after_help().or(command.get_after_long_help()).map(ToString::to_string).unwrap_or_default()
}

#[test]
fn commands_page_matches_help() {
    let mut text = "# Commands\n\nEvery command with its `--help`. `docket man FOLDER` writes manual pages of the same texts.\n\n".to_owned();
    let all = all_commands();
    for (name, command) in all.iter().skip(1) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let depth = "  ".repeat(name.split(' ').count() - 2);
        let _ = writeln!(text, "{depth}- [`{name}`](#{}): {about}", anchor(name));
    }
    for (name, mut command) in all {
        // Inherited options are listed with `docket` itself.
        if name != "docket" {
            command = command.mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
        }
        let help = command.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
    }
    check_reference_file("commands.md", &text);
}

#[test]
fn exit_codes_page_matches_help() {
    let help = after_help(&Cli::command());
    let (_, codes) = help.split_once("Exit codes:\n").expect("docket --help tells exit codes");
    let mut text = "# Exit codes\n\n| code | meaning |\n|---|---|\n".to_owned();
    let mut seen = 0_u8;
    for line in codes.lines() {
        let (code, says) = line.trim().split_once("  ").expect("a code, and what it says");
        assert_eq!(code.parse(), Ok(seen), "the codes stand in order");
        seen += 1;
        let _ = writeln!(text, "| {code} | {} |", table_cell(says));
    }
    assert_eq!(seen - 1, crate::output::error::ExitKind::EngineMissing.code(), "every code is listed");
    text.push_str(
        "\nWith `--json` an error is one line of JSON on standard error: `{\"error\": …, \"exit\": …}`.\n\n\
         These commands define additional exit codes:\n\n",
    );
    for (name, command) in all_commands().iter().skip(1) {
        let help = after_help(command);
        if ["xit code", "Ends with"].iter().any(|words| help.contains(words)) {
            let _ = writeln!(text, "- [`{name}`](commands.md#{})", anchor(name));
        }
    }
    check_reference_file("exit-codes.md", &text);
}

#[test]
fn settings_page_documents_every_setting() {
    let mut text = settings::HEAD.to_owned();
    let mut sections: BTreeMap<&str, Vec<config::SettingDoc>> = BTreeMap::new();
    for key in config::setting_docs() {
        sections.entry(key.name.split('.').next().unwrap_or_default()).or_default().push(key);
    }
    for (section, about) in settings::SECTIONS {
        let keys = sections.remove(section).unwrap_or_else(|| panic!("no settings in [{section}]"));
        let _ = write!(
            text,
            "\n## [{section}]\n\n{about}\n\n| setting | meaning | default | allowed | environment |\n|---|---|---|---|---|\n"
        );
        for key in keys {
            let told = settings::ABOUT.iter().find(|(name, ..)| *name == key.name);
            let (_, says, default) =
                told.unwrap_or_else(|| panic!("reference/settings.rs does not describe `{}`", key.name));
            if let settings::SettingDefault::Value(value) = default {
                assert!(config::is_default(key.name, value), "the default of `{}` is not {value}", key.name);
            }
            let shown = match default {
                settings::SettingDefault::Value(value) => format!("`{value}`"),
                settings::SettingDefault::Description(words) => (*words).to_owned(),
            };
            let name = key.name.split_once('.').map_or(key.name, |(_, name)| name);
            let _ = writeln!(
                text,
                "| `{name}` | {} | {} | {} | `{}` |",
                table_cell(says),
                table_cell(&shown),
                table_cell(key.allowed),
                key.env
            );
        }
    }
    assert!(
        sections.is_empty(),
        "reference/settings.rs does not describe the sections {:?}",
        sections.keys()
    );
    for (name, ..) in settings::ABOUT {
        assert!(config::setting_docs().any(|key| key.name == *name), "the setting `{name}` no longer exists");
    }
    text.push_str(settings::TAIL);
    check_reference_file("settings.md", &text);
}

#[test]
fn events_page_matches_schemas() {
    let mut text = "# Events\n\nThe events in the log: kinds by stream, with their fields. Each event is stored with its stream and sequence number, its \
                    turn, the time it was recorded, the epoch it was written under, and the hash of the previous event; \
                    the JSON Schemas are in `schema/schemas/`. The format of a payload never changes within a version.\n"
        .to_owned();
    let families = [
        ("run", "A run's stream, `run/ID`: decisions, actions and messages of the run."),
        ("task", "A task's stream, `task/ID`: its state, its leases, and the delivery of its result."),
        ("queue", "A queue's stream, `queue/NAME`."),
        ("system", "Streams of the whole installation, `system/TOPIC`."),
    ];
    let all = docket_schema::schemas::all_schemas();
    let mut told = 0;
    for (family, about) in families {
        let _ = write!(text, "\n## {family}\n\n{about}\n");
        for (name, schema) in &all {
            let Some((kind, version)) =
                name.strip_prefix(&format!("event.{family}.")).and_then(|rest| rest.split_once('.'))
            else {
                continue;
            };
            let definition = schema["$defs"].get(kind).unwrap_or(schema);
            let says = schema_description(definition, schema);
            assert!(!says.is_empty(), "{kind} has no doc comment");
            let _ = write!(text, "\n### {kind} {version}\n\n{says}\n");
            told += 1;
            let Some(fields) = definition["properties"].as_object().filter(|fields| !fields.is_empty())
            else {
                continue;
            };
            text.push_str("\n| field | meaning |\n|---|---|\n");
            for (field, value) in fields {
                let _ = writeln!(text, "| `{field}` | {} |", table_cell(&schema_description(value, schema)));
            }
        }
    }
    let kinds = all.keys().filter(|name| name.split('.').count() == 4 && name.starts_with("event.")).count();
    assert_eq!(told, kinds, "every kind is listed");
    check_reference_file("events.md", &text);
}

/// Returns the description of a schema, or of the schema it refers to.
fn schema_description(of: &Value, whole: &Value) -> String {
    let own = of["description"].as_str().map(str::to_owned);
    own.or_else(|| {
        let inner = of["anyOf"].as_array().and_then(|any| any.first()).unwrap_or(of);
        let name = inner["$ref"].as_str()?.rsplit('/').next()?;
        whole["$defs"][name]["description"].as_str().map(str::to_owned)
    })
    .unwrap_or_default()
}

#[test]
fn http_page_matches_openapi_document() {
    let document = docket_coordinator::http::openapi_document();
    let mut text = "# HTTP\n\nA summary of the coordinator's API. A coordinator serves the complete description as `GET /openapi.json`; a copy is \
                    [openapi.json](../../openapi.json). Send the token as `Authorization: Bearer …`; the last column lists the roles of tokens that \
                    may call a route. Errors are problem details with a stable code: [ERRORS.md](../../ERRORS.md).\n\n\
                    | route | description | who may call |\n|---|---|---|\n"
        .to_owned();
    let paths = document["paths"].as_object().expect("paths");
    for (path, operations) in paths {
        for (verb, operation) in operations.as_object().expect("operations") {
            let says = |field: &str| operation[field].as_str().unwrap_or_default().to_owned();
            let who = says("description");
            let who = who.trim_start_matches("For: ").trim_end_matches('.');
            let summary = says("summary");
            assert!(!summary.is_empty(), "{verb} {path} has no summary");
            let _ = writeln!(
                text,
                "| `{} {path}` | {} | {} |",
                verb.to_ascii_uppercase(),
                table_cell(&summary),
                table_cell(who)
            );
        }
    }
    check_reference_file("http.md", &text);
}

#[test]
fn every_command_has_examples_that_parse() {
    let mut missing = Vec::new();
    let mut tried = 0;
    for (name, command) in all_commands() {
        let help = after_help(&command);
        let Some((_, examples)) = help.split_once("Examples:\n") else {
            missing.push(name);
            continue;
        };
        let found = examples::parse_commands(examples);
        assert!(!found.is_empty(), "{name} has examples, but none of them runs docket");
        for words in found {
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{name}: the example `{}` is rejected: {error}", words.join(" "));
            }
            tried += 1;
        }
    }
    assert!(missing.is_empty(), "no `Examples:` in the help of: {}", missing.join(", "));
    assert!(tried > 100, "{tried} examples");
}

/// Extracts inline code from the sentences of a page, each on one line; fenced blocks are skipped.
fn extract_inline_code(page: &str) -> Vec<String> {
    let (mut text, mut is_fenced) = (String::new(), false);
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            text.push('\n');
        } else if !is_fenced {
            text.push_str(line);
            text.push('\n');
        }
    }
    // An unmatched backquote affects only its own paragraph.
    let code = text.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    code.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn inline_code_is_text_between_backquotes() {
    let page = "Say `docket ps`, or `docket\nwhy TASK`.\n```sh\necho `no`\n```\nA ` more.\n\n| `a` |\n";
    assert_eq!(extract_inline_code(page), ["docket ps", "docket why TASK", "more.", "a"]);
}

/// The README and the pages, except generated ones, whose commands come from the help texts.
fn handwritten_pages() -> Vec<std::path::PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("../README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of pages") {
            let path = entry.expect("an entry of that folder").path();
            if path.is_dir() && !path.ends_with("docs/reference") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

#[test]
fn inline_commands_in_pages_exist_with_their_flags() {
    let mut tried = 0;
    for page in handwritten_pages() {
        let text = std::fs::read_to_string(&page).expect("a page can be read");
        for code in extract_inline_code(&text).iter().filter(|code| code.starts_with("docket ")) {
            for words in examples::parse_commands(&format!("  {code}\n")) {
                tried += 1;
                let Err(error) = Cli::try_parse_from(&words) else { continue };
                // A sentence may omit required arguments of a command, and use a placeholder for a value.
                let is_shortened = matches!(
                    error.kind(),
                    ErrorKind::DisplayHelp
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                        | ErrorKind::MissingRequiredArgument
                        | ErrorKind::MissingSubcommand
                        | ErrorKind::ValueValidation
                );
                assert!(is_shortened, "{}: `{code}` is rejected: {error}", page.display());
            }
        }
    }
    assert!(tried > 50, "{tried} commands");
}
