//! Plays a page: its commands, in order, in one shell with real programs.
//!
//! The first failing command fails the page and reports the page's line; so do a command that must fail and
//! succeeds, and an output line that the page shows but that was not printed.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;

use super::docs_page::{BlockAction, DocsPage, PageCommand};
use crate::system::{TestProgram, run_with_input_within};

/// The script that plays every page.
const DRIVER_SCRIPT: &str = include_str!("driver.sh");
/// Maximum output shown when a page fails: its end says why.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;

/// The environment in which a page is played.
#[derive(Debug, Clone)]
pub struct PageEnvironment {
    /// The reader's home folder.
    pub home: PathBuf,
    /// The reader's initial working folder: a repository.
    pub folder: PathBuf,
    /// The homes of other machines, by name.
    pub hosts: PathBuf,
    /// Additional variables of the reader's environment.
    pub env: Vec<(String, OsString)>,
    /// Time limit of the page.
    pub limit: Duration,
}

/// Plays a page.
///
/// # Errors
/// Returns the failure, with the page's line and the command's output.
pub async fn run_page(page: &DocsPage, room: &PageEnvironment) -> Result<()> {
    let scratch = tempfile::Builder::new().prefix("docket-page-").tempdir()?;
    let played = PageRun { page, folder: scratch.path() };
    let driver = scratch.path().join("driver.sh");
    std::fs::write(&driver, played.write_driver()?)?;
    let mut env: Vec<(&str, &OsStr)> = vec![("HOME", room.home.as_os_str())];
    env.extend(room.env.iter().map(|(name, value)| (name.as_str(), value.as_os_str())));
    let args = [driver.as_os_str(), scratch.path().as_os_str(), room.hosts.as_os_str()];
    let ended = run_with_input_within(room.limit, TestProgram::Bash, &room.folder, (&env, &args), b"").await;
    let ended = ended.with_context(|| format!("{}\n{}", page.name, played.output_tails()))?;
    if let Ok(failed) = std::fs::read_to_string(scratch.path().join("failed")) {
        return Err(played.describe_failure(failed.trim()));
    }
    ensure!(ended.success(), "{}: {}\n{}", page.name, ended.stdout, ended.stderr);
    played.check_expected_output()
}

struct PageRun<'a> {
    page: &'a DocsPage,
    folder: &'a Path,
}

impl PageRun<'_> {
    /// Writes the blocks as files, and returns the script that plays them.
    fn write_driver(&self) -> Result<String> {
        let mut lines = vec![DRIVER_SCRIPT.to_owned()];
        for (step, block) in self.page.blocks.iter().enumerate() {
            let file = self.folder.join(format!("{step}.sh"));
            lines.push(format!("step={step}"));
            match &block.action {
                BlockAction::ReadOnly | BlockAction::Skip => {}
                BlockAction::Write { path, append } => {
                    std::fs::write(file, &block.text)?;
                    let target = quote_for_shell(path).with_context(|| self.format_location(block.line))?;
                    let arrow = if *append { ">>" } else { ">" };
                    lines.push(format!("mkdir -p -m 700 -- \"$(dirname -- {target})\""));
                    lines.push(format!("cat -- \"$play/{step}.sh\" {arrow} {target}"));
                }
                BlockAction::Run { command, background, after_ctrl_c, expected_failure: fails, host } => {
                    std::fs::write(file, &command.text)?;
                    if *after_ctrl_c {
                        lines.push("end_all".to_owned());
                    }
                    let how = match host {
                        Some(host) => {
                            format!(
                                "on_host {}",
                                quote_for_shell(host).with_context(|| self.format_location(block.line))?
                            )
                        }
                        None => "here".to_owned(),
                    };
                    lines.push(match (background, fails) {
                        (true, None) => format!("background {how}"),
                        (false, Some(code)) => {
                            let code = code.map_or_else(|| "any".to_owned(), |code| code.to_string());
                            format!("must_fail {code} {how}")
                        }
                        (false, None) => format!("{how} > \"$play/{step}.out\" 2>&1"),
                        (true, Some(_)) => {
                            bail!("{}: a server must not fail", self.format_location(block.line))
                        }
                    });
                }
            }
        }
        lines.push("end_all".to_owned());
        Ok(lines.join("\n") + "\n")
    }

    fn format_location(&self, line: usize) -> String {
        format!("{}:{line}", self.page.name)
    }

    /// Translates the driver's failure into the terms of the page.
    fn describe_failure(&self, failed: &str) -> anyhow::Error {
        let mut words = failed.splitn(4, ' ');
        let mut next = || words.next().unwrap_or_default();
        let (step, file, line, why) = (next(), next(), next(), next());
        let block = step.parse::<usize>().ok().and_then(|step| self.page.blocks.get(step));
        let Some((block, lines)) = block.map(|block| (block, action_lines(&block.action))) else {
            return anyhow::anyhow!("{}: {failed}\n{}", self.page.name, self.output_tails());
        };
        let own = format!("/{step}.sh");
        // If a list of commands fails, the shell reports the driver's line; its last line is meant.
        let at = line
            .parse::<usize>()
            .ok()
            .filter(|_| file.ends_with(&own))
            .and_then(|line| lines.get(line.checked_sub(1)?));
        let at = at.or(lines.last()).copied().unwrap_or(block.line);
        let why = if file == "end" { why.to_owned() } else { format!("status {why}") };
        anyhow::anyhow!(
            "{}: `{}`: {why}\n{}",
            self.format_location(at),
            self.line_at(at),
            self.output_tails()
        )
    }

    /// Returns the page's line that the block recorded.
    fn line_at(&self, at: usize) -> &str {
        let block = self.page.blocks.iter().rev().find(|block| block.line <= at);
        block.and_then(|block| block.text.lines().nth(at - block.line)).unwrap_or_default()
    }

    /// Returns the ends of all outputs.
    fn output_tails(&self) -> String {
        let mut all = String::new();
        for (step, block) in self.page.blocks.iter().enumerate() {
            let text = self.read_output(step);
            if !text.is_empty() {
                let from = text.ceil_char_boundary(text.len().saturating_sub(OUTPUT_BYTES_MAX));
                all.push_str(&format!("--- {}\n{}\n", self.format_location(block.line), &text[from..]));
            }
        }
        all
    }

    fn read_output(&self, step: usize) -> String {
        let bytes = std::fs::read(self.folder.join(format!("{step}.out"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Checks that every output line of the page was printed, in this order.
    fn check_expected_output(&self) -> Result<()> {
        for (step, block) in self.page.blocks.iter().enumerate() {
            let BlockAction::Run { command, .. } = &block.action else { continue };
            let output = self.read_output(step);
            let mut lines = output.lines();
            for (at, shown) in &command.expected_output {
                let pattern = output_pattern(shown)?;
                ensure!(
                    lines.any(|line| pattern.is_match(line)),
                    "{}: `{shown}` is shown, and was not printed there:\n{output}",
                    self.format_location(*at)
                );
            }
        }
        Ok(())
    }
}

const fn action_lines(act: &BlockAction) -> &[usize] {
    match act {
        BlockAction::Run { command: PageCommand { lines, .. }, .. } => lines.as_slice(),
        BlockAction::ReadOnly | BlockAction::Skip | BlockAction::Write { .. } => &[],
    }
}

/// Quotes a path of a page for the shell.
fn quote_for_shell(path: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let rest = path.strip_prefix("~/");
    ensure!(rest.unwrap_or(path).chars().all(plain), "`{path}` is not a plain path");
    Ok(match rest {
        Some(rest) => format!("\"$HOME/{rest}\""),
        None => format!("'{path}'"),
    })
}

/// Returns the pattern of an output line: `…` matches anything, whitespace matches any whitespace, and
/// eight digits of an id match any id.
fn output_pattern(shown: &str) -> Result<Regex> {
    let id = Regex::new(r"\b[0-9a-f]{8}\b")?;
    let escaped = regex::escape(shown.trim()).replace('…', ".*");
    let blanks = Regex::new(r"\s+")?.replace_all(&escaped, r"\s+").into_owned();
    Ok(Regex::new(&id.replace_all(&blanks, "[0-9a-f]{8}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run_text(text: &str) -> Result<PathBuf> {
        let folder = tempfile::tempdir()?;
        let home = folder.path().to_owned();
        let room = PageEnvironment {
            folder: home.clone(),
            hosts: home.join("hosts"),
            home,
            env: Vec::new(),
            limit: Duration::from_secs(60),
        };
        run_page(&DocsPage::parse("page.md", text)?, &room).await?;
        Ok(folder.keep())
    }

    async fn run_failing_text(text: &str) -> String {
        run_text(text).await.expect_err(text).to_string()
    }

    #[tokio::test]
    async fn page_runs_in_one_session_and_writes_its_files() -> Result<()> {
        let page = "```sh\nmkdir at && cd at\na=1\n```\n```toml x/y.toml\nb = 2\n```\n```toml >>x/y.toml\nc = 3\n```\n\
                    ```console\n$ echo $a $(cat x/y.toml) \\\n    more 3f9c01ab\n1 b = 2 … = 3   more 00000000\n```\n\
                    ```sh on=other\npwd\ntest \"$PWD\" = \"$HOME\"\n```\n```sh fails=3\nexit_with() { return 3; }; exit_with\n```\n\
                    ```sh no-run\nfalse\n```\n";
        let home = run_text(page).await?;
        assert!(home.join("at/x/y.toml").is_file() && home.join("hosts/other").is_dir());
        Ok(std::fs::remove_dir_all(home)?)
    }

    #[tokio::test]
    async fn failing_command_is_reported_with_page_and_line() {
        for (text, told) in [
            ("a\n```sh\ntrue\n\nls /no/such\n```\n", "page.md:5: `ls /no/such`: status"),
            ("```sh\na=$(false)\n```\n", "page.md:2: `a=$(false)`: status 1"),
            ("```sh\nfalse | cat\n```\n", "page.md:2:"),
            ("```sh\ntrue\nfalse && true\n```\n", "page.md:3:"),
            ("```console\n$ true\n$ no-such-program\n```\n", "page.md:3:"),
            ("```sh on=b\ntrue\nfalse\n```\n", "page.md:3:"),
            ("```sh fails\ntrue\n```\n", "page.md:2: `true`: it must fail, and it did not"),
            ("```sh fails=4\nfalse\n```\n", "it must fail with exit code 4"),
            ("```console\n$ echo a; echo b\nb\na\n```\n", "page.md:4: `a` is shown, and was not printed"),
            ("```sh background\ntrue\n```\n", "said nothing"),
        ] {
            let said = run_failing_text(text).await;
            assert!(said.contains(told), "{text}: {said}");
        }
    }

    /// As when a script runs the tests with `&`.
    #[tokio::test]
    async fn ctrl_c_works_when_the_parent_ignores_it() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let driver = folder.path().join("driver.sh");
        std::fs::write(
            &driver,
            format!("{DRIVER_SCRIPT}\nbash -c 'trap \"echo heard\" INT; kill -INT $$'\n"),
        )?;
        let ignores = OsStr::new("trap '' INT; exec bash \"$@\"");
        let (place, name) = (folder.path().as_os_str(), OsStr::new("bash"));
        let args = [OsStr::new("-c"), ignores, name, driver.as_os_str(), place, place];
        let ended = run_with_input_within(
            Duration::from_secs(60),
            TestProgram::Bash,
            folder.path(),
            (&[], &args),
            b"",
        );
        assert_eq!(ended.await?.into_stdout()?, "heard\n");
        Ok(())
    }

    #[tokio::test]
    async fn background_server_runs_until_ctrl_c_and_must_exit_cleanly() -> Result<()> {
        let server = |code: u8| {
            format!(
                "```sh background\nbash -c 'trap \"echo ends >> $HOME/ended; exit {code}\" INT; echo up; while :; do sleep 0.02; done'\n```\n\
                 ```sh\ntest ! -e ~/ended\n```\n```sh after-ctrl-c\ntest -e ~/ended\n```\n"
            )
        };
        std::fs::remove_dir_all(run_text(&server(0)).await?)?;
        let said = run_failing_text(&server(3)).await;
        assert!(said.contains("page.md:2:") && said.contains("status 3"), "{said}");
        Ok(())
    }
}
