//! The reference under `coordinator/docs/reference`, made of the code: commands with their help, settings, exit codes,
//! events and routes. A test holds each file against what the code says now; `UPDATE_DOCS=1 cargo test -p
//! docket-coordinator --bins reference` writes them.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};
use serde_json::Value;

use crate::{args::Cli, config};

mod examples;
mod settings;

/// What every file begins with.
const GENERATED_HEADER: &str =
    "<!-- Made of the code; `UPDATE_DOCS=1 cargo test -p docket-cli --bins reference` makes it anew. -->\n\n";
/// How wide help texts are.
const COLUMNS: usize = 100;

/// Holds a file of the reference against what it is to be.
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
        "{} is not what the code says (first: {differs:?}); write it with UPDATE_DOCS=1 and look at the difference",
        path.display()
    );
}

/// Every command, `docket` itself first, by its whole name.
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

/// A cell of a table.
fn table_cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn after_help(command: &clap::Command) -> String {
    command.get_after_help().or(command.get_after_long_help()).map(ToString::to_string).unwrap_or_default()
}

#[test]
fn commands_page_matches_help() {
    let mut text = "# Commands\n\nEvery command with its `--help`. `docket man FOLDER` makes manual pages of the same words.\n\n".to_owned();
    let all = all_commands();
    for (name, command) in all.iter().skip(1) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let depth = "  ".repeat(name.split(' ').count() - 2);
        let _ = writeln!(text, "{depth}- [`{name}`](#{}): {about}", anchor(name));
    }
    for (name, mut command) in all {
        // What is inherited stands with `docket` itself.
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
    let mut text = "# Exit codes\n\n| code | says |\n|---|---|\n".to_owned();
    let mut seen = 0_u8;
    for line in codes.lines() {
        let (code, says) = line.trim().split_once("  ").expect("a code, and what it says");
        assert_eq!(code.parse(), Ok(seen), "the codes stand in order");
        seen += 1;
        let _ = writeln!(text, "| {code} | {} |", table_cell(says));
    }
    assert_eq!(seen - 1, crate::output::error::ExitKind::EngineMissing.code(), "every code is told");
    text.push_str(
        "\nWith `--json` an error is one line of JSON on standard error: `{\"error\": …, \"exit\": …}`.\n\n\
         These commands say more of theirs:\n\n",
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
            "\n## [{section}]\n\n{about}\n\n| setting | says | default | allowed | environment |\n|---|---|---|---|---|\n"
        );
        for key in keys {
            let told = settings::ABOUT.iter().find(|(name, ..)| *name == key.name);
            let (_, says, default) =
                told.unwrap_or_else(|| panic!("reference/settings.rs says nothing of `{}`", key.name));
            if let settings::SettingDefault::Value(value) = default {
                assert!(config::is_default(key.name, value), "`{}` is not {value} by default", key.name);
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
    assert!(sections.is_empty(), "reference/settings.rs has no words for the sections {:?}", sections.keys());
    for (name, ..) in settings::ABOUT {
        assert!(config::setting_docs().any(|key| key.name == *name), "there is no setting `{name}` any more");
    }
    text.push_str(settings::TAIL);
    check_reference_file("settings.md", &text);
}

#[test]
fn events_page_matches_schemas() {
    let mut text = "# Events\n\nWhat stands in the log: kinds by stream, with their fields. Each is kept with its stream and seq, its \
                    turn, the time it was recorded, the epoch it was written under, and the hash of the one before it; \
                    `schema/schemas/` has the JSON Schemas. A payload's shape never changes under its version.\n"
        .to_owned();
    let families = [
        ("run", "A run's stream, `run/ID`: what it decided, did and was told."),
        ("task", "A task's stream, `task/ID`: where it stands, who had it, what became of its result."),
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
            text.push_str("\n| field | says |\n|---|---|\n");
            for (field, value) in fields {
                let _ = writeln!(text, "| `{field}` | {} |", table_cell(&schema_description(value, schema)));
            }
        }
    }
    let kinds = all.keys().filter(|name| name.split('.').count() == 4 && name.starts_with("event.")).count();
    assert_eq!(told, kinds, "every kind is told");
    check_reference_file("events.md", &text);
}

/// What a schema says of itself, or of what it refers to.
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
    let mut text = "# HTTP\n\nThe coordinator's API, in short; a coordinator serves the whole of it as `GET /openapi.json`, and a copy is \
                    [openapi.json](../../openapi.json). A token comes as `Authorization: Bearer …`; who may call says which roles \
                    of tokens are good for it. Errors are problem details with a stable code: [ERRORS.md](../../ERRORS.md).\n\n\
                    | | does | who may call |\n|---|---|---|\n"
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
        assert!(!found.is_empty(), "{name} has examples, and none of them runs docket");
        for words in found {
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{name}: the example `{}` is refused: {error}", words.join(" "));
            }
            tried += 1;
        }
    }
    assert!(missing.is_empty(), "no `Examples:` in the help of: {}", missing.join(", "));
    assert!(tried > 100, "{tried} examples");
}

/// What stands between backquotes in the sentences of a page, each on one line; fenced blocks are left out.
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
    // A backquote too many spoils no more than its paragraph.
    let code = text.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    code.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn inline_code_is_text_between_backquotes() {
    let page = "Say `docket ps`, or `docket\nwhy TASK`.\n```sh\necho `no`\n```\nA ` more.\n\n| `a` |\n";
    assert_eq!(extract_inline_code(page), ["docket ps", "docket why TASK", "more.", "a"]);
}

/// The README and the pages, but for those that are made of the code: their commands are of the helps.
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
                // A sentence may leave out what a command needs, and have a word in place of a value.
                let is_shortened = matches!(
                    error.kind(),
                    ErrorKind::DisplayHelp
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                        | ErrorKind::MissingRequiredArgument
                        | ErrorKind::MissingSubcommand
                        | ErrorKind::ValueValidation
                );
                assert!(is_shortened, "{}: `{code}` is refused: {error}", page.display());
            }
        }
    }
    assert!(tried > 50, "{tried} commands");
}
