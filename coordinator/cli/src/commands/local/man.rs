//! `docket man`: manual pages generated from the `--help` texts.

use std::path::PathBuf;

use clap_mangen::Man;

use crate::{
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// A line with more words is prose that introduces a list, not a heading.
const HEADING_WORDS_MAX: usize = 3;

/// Footer of each page. Subcommands have no version of their own, so it names the version of
/// docket.
const PAGE_FOOTER: &str = concat!("docket ", env!("CARGO_PKG_VERSION"));

/// Command-line arguments of `docket man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Writes docket.1, docket-submit.1 and so on. Without a folder, prints the main page.

Examples:
  docket man ~/.local/share/man/man1
  docket man | man -l -
  man docket-fork")]
pub(crate) struct ManArgs {
    /// Folder to write to; created if needed
    folder: Option<PathBuf>,
}

pub(crate) fn run_man(cx: &CliContext, args: &ManArgs, docket: clap::Command) -> CliResult {
    let pages = render_pages(docket).fail_as(ExitKind::Failed)?;
    let Some(folder) = &args.folder else {
        if cx.is_json() {
            let message = "--json lists the pages written and needs a folder: `docket man DIR --json`";
            return Err(CliError::new(ExitKind::Usage, message));
        }
        if let Some((_, whole)) = pages.first() {
            display::print_bytes(whole.as_bytes());
        }
        return Ok(ExitKind::Ok);
    };
    let failed = || format!("cannot write manual pages to {}; choose a writable folder", folder.display());
    std::fs::create_dir_all(folder).fail_with(ExitKind::Failed, failed)?;
    for (name, page) in &pages {
        std::fs::write(folder.join(name), page).fail_with(ExitKind::Failed, failed)?;
    }
    if cx.is_json() {
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        display::print_json(&serde_json::json!({ "folder": folder, "pages": names }));
    } else {
        display::print_note(&format!("wrote {} manual pages to {}", pages.len(), folder.display()));
    }
    Ok(ExitKind::Ok)
}

/// Renders the pages by file name, the main page first. `help` gets no page, because each command
/// has `--help`.
fn render_pages(docket: clap::Command) -> std::io::Result<Vec<(String, String)>> {
    let mut command = remove_help_command(docket);
    // Sets the full name of each command, e.g. `docket-db-backup`.
    command.build();
    let mut pages = Vec::new();
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|of| !of.is_hide_set()).cloned());
        let page = Man::new(command).source(PAGE_FOOTER).manual("docket");
        let mut text = Vec::new();
        page.render(&mut text)?;
        pages.push((page.get_filename(), escape_non_ascii(&split_sections(&String::from_utf8_lossy(&text)))));
    }
    pages[1..].sort_by(|one, other| one.0.cmp(&other.0));
    Ok(pages)
}

fn remove_help_command(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(remove_help_command)
}

/// Splits the help footer, which clap_mangen renders as one section, into sections. A line such as
/// `Examples:` above indented lines starts a section, and the indented lines are kept verbatim.
fn split_sections(page: &str) -> String {
    let Some((before, rest)) = page.split_once("\n.SH EXTRA\n") else { return page.to_owned() };
    let (extra, after) = rest.find("\n.SH ").map_or((rest, ""), |at| rest.split_at(at));
    let mut out = format!("{before}\n");
    let (mut begun, mut filled, mut apart) = (false, true, false);
    let mut lines = extra.lines().peekable();
    while let Some(line) = lines.next() {
        let is_list = |line: &str| line.starts_with("  ");
        if line.is_empty() {
            apart = true;
            continue;
        }
        let heading = line.strip_suffix(':').filter(|_| lines.peek().is_some_and(|next| is_list(next)));
        if !filled && !is_list(line) {
            out.push_str(".fi\n");
            filled = true;
        }
        if let Some(heading) = heading.filter(|heading| heading.split(' ').count() <= HEADING_WORDS_MAX) {
            let heading = heading.to_uppercase();
            out.push_str(&format!(
                ".SH {}\n",
                if heading == "EXIT CODES" { "EXIT STATUS" } else { &heading }
            ));
            (begun, apart) = (true, false);
            continue;
        }
        if !begun {
            out.push_str(".SH NOTES\n");
            (begun, apart) = (true, false);
        }
        if std::mem::take(&mut apart) {
            out.push_str(".PP\n");
        }
        if filled && is_list(line) {
            out.push_str(".nf\n");
            filled = false;
        }
        out.push_str(line);
        out.push('\n');
    }
    if !filled {
        out.push_str(".fi\n");
    }
    out.push_str(after.trim_start_matches('\n'));
    out
}

/// Escapes non-ASCII characters by code point, which every roff understands.
fn escape_non_ascii(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    for c in page.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            out.push_str(&format!("\\[u{:04X}]", u32::from(c)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;

    /// Macros used by the pages: those of `man`, and requests that every roff has.
    const MACROS: [&str; 13] = ["TH", "SH", "TP", "PP", "IP", "RS", "RE", "br", "nf", "fi", "ie", "el", "ds"];

    fn collect_page_names(command: &clap::Command, name: &str, found: &mut BTreeSet<String>) {
        found.insert(format!("{name}.1"));
        for of in command.get_subcommands().filter(|of| !of.is_hide_set() && of.get_name() != "help") {
            collect_page_names(of, &format!("{name}-{}", of.get_name()), found);
        }
    }

    #[test]
    fn every_command_has_one_valid_roff_page() {
        let pages = render_pages(crate::args::Cli::command()).expect("rendered");
        let mut expected = BTreeSet::new();
        collect_page_names(&crate::args::Cli::command(), "docket", &mut expected);
        let names: BTreeSet<String> = pages.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, expected);
        assert_eq!(pages[0].0, "docket.1");
        for (name, page) in &pages {
            let title = name.trim_end_matches(".1");
            let starts = |start: &str| page.lines().any(|line| line.starts_with(start));
            assert!(starts(&format!(".TH {title} 1 ")) && page.contains(PAGE_FOOTER), "{name}: {page}");
            let of_name = page.split_once(".SH NAME\n").expect("a name").1.lines().next().unwrap_or_default();
            let escaped = title.replace('-', "\\-");
            let about = of_name.strip_prefix(&format!("{escaped} \\- ")).unwrap_or_default();
            assert!(!about.is_empty(), "{name}: {of_name}");
            for section in ["SYNOPSIS", "DESCRIPTION", "OPTIONS"] {
                assert!(starts(&format!(".SH {section}")), "{name} has no {section}");
            }
            assert!(!page.contains("EXTRA") && page.is_ascii(), "{name}: {page}");
            let count = |of: &str| {
                page.lines().filter(|line| *line == of || line.starts_with(&format!("{of} "))).count()
            };
            assert_eq!(count(".RS"), count(".RE"), "{name}");
            assert_eq!(count(".nf"), count(".fi"), "{name}");
            for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
                let word = line[1..].split(' ').next().unwrap_or_default();
                assert!(line.starts_with('.') && MACROS.contains(&word), "{name}: {line}");
            }
            // Every referenced page exists.
            for of in page.lines().filter_map(|line| line.strip_suffix("(1)")) {
                let of = format!("{}.1", of.replace("\\-", "-"));
                assert!(names.contains(&of), "{name} names {of}");
            }
        }
    }

    #[test]
    fn examples_and_exit_codes_are_separate_sections() {
        let pages = render_pages(crate::args::Cli::command()).expect("rendered");
        let (_, whole) = &pages[0];
        for section in
            [".SH EXAMPLES\n.nf\n  docket demo", ".SH EXIT STATUS\n.nf\n  0  success\n", ".SH VERSION\n"]
        {
            assert!(whole.contains(section), "{section} in {whole}");
        }
        let page = split_sections(
            "a\n.SH EXTRA\nWords of it,\nand more.\n\nFormats:\n  x  y\n\nSee: that.\n.SH VERSION\n1\n",
        );
        insta::assert_snapshot!(page, @r"
        a
        .SH NOTES
        Words of it,
        and more.
        .SH FORMATS
        .nf
          x  y
        .fi
        .PP
        See: that.
        .SH VERSION
        1
        ");
    }
}
