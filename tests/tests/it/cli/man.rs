//! Manual pages as the binary writes them: one for each command, and such as roff reads without a word.

use std::{collections::BTreeSet, ffi::OsStr};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{TestProgram, print_notice, run_program};

use super::home::parse_row;

#[tokio::test]
async fn every_command_has_a_valid_man_page() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (home, pages) = (folder.path().join("home"), folder.path().join("man1"));
    let pages_arg = pages.to_str().context("UTF-8")?;
    let env = [("DOCKET_HOME", home.as_os_str())];
    let said = run_program(TestProgram::Docket, folder.path(), &env, &["man", pages_arg, "--json"])
        .await?
        .into_stdout()?;
    let told: BTreeSet<String> = serde_json::from_value(parse_row(&said)?["pages"].clone())?;
    let files = std::fs::read_dir(&pages)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    let files = files.collect::<Result<BTreeSet<String>>>()?;
    ensure!(told == files && files.len() > 70, "{told:?}\n{files:?}");

    // Each command that its parent's help names has one.
    let mut left = vec![Vec::<String>::new()];
    let mut seen = BTreeSet::new();
    while let Some(path) = left.pop() {
        let page = format!("{}.1", [&["docket".to_owned()][..], &path].concat().join("-"));
        ensure!(files.contains(&page), "{page} is missing");
        let text = std::fs::read_to_string(pages.join(&page))?;
        for section in [".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH OPTIONS\n"] {
            ensure!(text.contains(section), "{page} has no {section}");
        }
        let is_parent = text.contains(".SH SUBCOMMANDS\n");
        seen.insert(page);
        if !is_parent {
            continue;
        }
        let mut args = path.clone();
        args.push("--help".to_owned());
        let help = run_program(TestProgram::Docket, folder.path(), &env, &args).await?.into_stdout()?;
        let (_, commands) = help.split_once("Commands:\n").context("commands")?;
        let names = commands.lines().take_while(|line| !line.is_empty());
        // What is further in goes on with the line before.
        let names = names.filter(|line| !line.starts_with("   "));
        for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
            left.push([&path[..], &[name.to_owned()]].concat());
        }
    }
    ensure!(seen == files, "pages of no command: {:?}", files.difference(&seen));

    let groff = folder.path().join("docket.1");
    std::fs::write(
        &groff,
        run_program(TestProgram::Docket, folder.path(), &env, &["man"]).await?.into_stdout()?,
    )?;
    let mut read = 0;
    for page in files.iter().map(|page| pages.join(page)).chain([groff]) {
        let args: [&OsStr; 5] =
            ["-man".as_ref(), "-ww".as_ref(), "-z".as_ref(), "-Tutf8".as_ref(), page.as_os_str()];
        match run_program(TestProgram::Groff, folder.path(), &[], &args).await {
            Ok(done) => {
                ensure!(done.success() && done.stderr.is_empty(), "{}: {}", page.display(), done.stderr);
                read += 1;
            }
            Err(_) => {
                print_notice("no groff here: the pages' structure was checked, and no roff has read them");
                ensure!(std::env::var_os("CI").is_none(), "CI needs it; .ci/run installs it");
                break;
            }
        }
    }
    ensure!(read == 0 || read == files.len() + 1, "{read}");
    Ok(())
}
