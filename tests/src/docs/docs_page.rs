//! Parses a Markdown page into its fenced blocks and the action for each.
//!
//! The first word after a fence says what the block is; for `sh` and `console`, more words may follow:
//!
//! | word | meaning |
//! |---|---|
//! | `no-run` | a test cannot run it; it is listed |
//! | `background` | it keeps running in a separate terminal: a server |
//! | `after-ctrl-c` | background commands are ended first, as by Ctrl-C |
//! | `fails`, `fails=N` | it must fail, with exit code N |
//! | `on=HOST` | it runs on another machine: in a separate home |
//!
//! A block of another kind is a file if a second word names it: `toml careful.toml`, or `toml >>careful.toml`
//! to append to an existing file. Any other word is refused, so that a typo never hides a command.

use std::fmt;

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocsPage {
    /// Its path, for messages.
    pub name: String,
    /// Its fenced blocks, in order.
    pub blocks: Vec<PageBlock>,
}

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageBlock {
    /// The line number of its first line in the page, from 1.
    pub line: usize,
    /// Its lines, without the indentation of its fence.
    pub text: String,
    pub action: BlockAction,
}

/// What to do with a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockAction {
    /// For reading only.
    ReadOnly,
    /// A test cannot run it.
    Skip,
    /// Write it to a file.
    Write {
        /// The path; `~/` is the home.
        path: String,
        /// Whether to append to an existing file.
        append: bool,
    },
    /// Run it.
    Run {
        command: PageCommand,
        /// In a separate terminal.
        background: bool,
        /// Background commands are ended first.
        after_ctrl_c: bool,
        /// It must fail; with this exit code, if one is given.
        expected_failure: Option<Option<u8>>,
        /// The other machine to run it on.
        host: Option<String>,
    },
}

/// A command of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCommand {
    /// The shell lines.
    pub text: String,
    /// The page line of each shell line.
    pub lines: Vec<usize>,
    /// Expected output lines in order, each with its page line. `…` matches anything.
    pub expected_output: Vec<(usize, String)>,
}

/// A page that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageError {
    page: String,
    line: usize,
    reason: String,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.page, self.line, self.reason)
    }
}

impl std::error::Error for PageError {}

impl DocsPage {
    /// Parses a page.
    ///
    /// # Errors
    /// Returns an error if a fence has no word, an unknown word, or no end.
    pub fn parse(name: &str, text: &str) -> Result<Self, PageError> {
        let wrong =
            |line: usize, what: &str| PageError { page: name.to_owned(), line, reason: what.to_owned() };
        let mut blocks = Vec::new();
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        while let Some((at, line)) = lines.next() {
            let Some(info) = line.trim_start().strip_prefix("```") else { continue };
            let indent = line.len() - line.trim_start().len();
            let mut held = Vec::new();
            loop {
                let Some((_, line)) = lines.next() else { return Err(wrong(at, "this fence has no end")) };
                if line.trim() == "```" {
                    break;
                }
                held.push(line.get(indent..).unwrap_or_else(|| line.trim_start()).to_owned());
            }
            let act = parse_action(info, at + 1, &held).map_err(|what| wrong(at, &what))?;
            let text = held.iter().map(|line| format!("{line}\n")).collect();
            blocks.push(PageBlock { line: at + 1, text, action: act });
        }
        Ok(Self { name: name.to_owned(), blocks })
    }

    /// Returns the first line of each block that a test does not run.
    pub fn skipped_blocks(&self) -> Vec<String> {
        let held = self.blocks.iter().filter(|block| block.action == BlockAction::Skip);
        held.map(|block| block.text.lines().next().unwrap_or_default().to_owned()).collect()
    }

    /// Returns whether a command that is run uses this program.
    pub fn uses_program(&self, program: &str) -> bool {
        let is_named = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == program);
        self.blocks
            .iter()
            .any(|block| matches!(&block.action, BlockAction::Run { command, .. } if is_named(&command.text)))
    }
}

fn parse_action(info: &str, first: usize, lines: &[String]) -> Result<BlockAction, String> {
    let mut words = info.split_whitespace();
    let kind = words.next().ok_or("say behind the fence what the block is: sh, console, toml, text …")?;
    let command = match kind {
        "sh" => parse_script(first, lines),
        "console" => parse_session(first, lines)?,
        _ => {
            return match (words.next(), words.next()) {
                (None, _) => Ok(BlockAction::ReadOnly),
                (Some(path), None) => Ok(BlockAction::Write {
                    append: path.starts_with(">>"),
                    path: path.trim_start_matches(">>").to_owned(),
                }),
                (Some(_), Some(more)) => Err(format!("`{more}` is not allowed after a file name")),
            };
        }
    };
    let (mut not_run, mut background, mut after_ctrl_c, mut fails, mut host) =
        (false, false, false, None, None);
    for word in words {
        match (word, word.split_once('=')) {
            ("no-run", _) => not_run = true,
            ("background", _) => background = true,
            ("after-ctrl-c", _) => after_ctrl_c = true,
            ("fails", _) => fails = Some(None),
            (_, Some(("fails", code))) => {
                fails = Some(Some(code.parse().map_err(|_| format!("`{code}` is not an exit code"))?));
            }
            (_, Some(("on", name))) => host = Some(name.to_owned()),
            _ => {
                return Err(format!(
                    "`{word}` is none of no-run, background, after-ctrl-c, fails, fails=N, on=HOST"
                ));
            }
        }
    }
    if not_run {
        return Ok(BlockAction::Skip);
    }
    Ok(BlockAction::Run { command, background, after_ctrl_c, expected_failure: fails, host })
}

fn parse_script(first: usize, lines: &[String]) -> PageCommand {
    let text = lines.iter().map(|line| format!("{line}\n")).collect();
    PageCommand { text, lines: (first..first + lines.len()).collect(), expected_output: Vec::new() }
}

/// Parses a session: `$ ` begins a command, a backslash at the end of a line continues it, and all
/// other lines are its output.
fn parse_session(first: usize, lines: &[String]) -> Result<PageCommand, String> {
    let mut command = PageCommand { text: String::new(), lines: Vec::new(), expected_output: Vec::new() };
    let mut goes_on = false;
    for (at, line) in (first..).zip(lines) {
        let said = if goes_on { Some(line.as_str()) } else { line.strip_prefix("$ ") };
        match said {
            Some(said) => {
                command.text.push_str(&format!("{said}\n"));
                command.lines.push(at);
                goes_on = said.ends_with('\\');
            }
            None if command.lines.is_empty() => {
                return Err("a console block begins with `$ ` and a command".to_owned());
            }
            None if line.trim().is_empty() => {}
            None => command.expected_output.push((at, line.clone())),
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_parsed_into_fenced_blocks() {
        let text = "# A\n\n```sh\none\ntwo\n```\n- in a list\n  ```console fails=4 on=b\n  $ three \\\n      --long\n  said … so\n  ```\n\
                    ```toml >>~/x.toml\na = 1\n```\n```sh no-run\nsudo x\n```\n```text\nlook\n```\n```sh background after-ctrl-c\nup\n```\n";
        let page = DocsPage::parse("a.md", text).expect("a page");
        assert_eq!(page.blocks.iter().map(|block| block.line).collect::<Vec<_>>(), [4, 9, 14, 17, 20, 23]);
        let BlockAction::Run { command, expected_failure: None, background: false, .. } =
            &page.blocks[0].action
        else {
            panic!("{page:?}")
        };
        assert_eq!((command.text.as_str(), &command.lines[..]), ("one\ntwo\n", &[4, 5][..]));
        let BlockAction::Run { command, expected_failure: Some(Some(4)), host: Some(host), .. } =
            &page.blocks[1].action
        else {
            panic!("{page:?}")
        };
        assert_eq!((command.text.as_str(), host.as_str()), ("three \\\n    --long\n", "b"));
        assert_eq!(command.expected_output, [(11, "said … so".to_owned())]);
        assert_eq!(page.blocks[2].action, BlockAction::Write { path: "~/x.toml".to_owned(), append: true });
        assert_eq!(page.skipped_blocks(), ["sudo x"]);
        assert!(page.uses_program("two") && !page.uses_program("tw") && !page.uses_program("sudo"));
        assert_eq!(page.blocks[4].action, BlockAction::ReadOnly);
        assert!(matches!(
            page.blocks[5].action,
            BlockAction::Run { background: true, after_ctrl_c: true, .. }
        ));
    }

    #[test]
    fn invalid_fence_is_refused_with_its_location() {
        for (text, wrong) in [
            ("a\n```\nx\n```\n", "a.md:2: say behind"),
            ("```sh norun\nx\n```\n", "`norun` is none of"),
            ("```sh fails=x\nx\n```\n", "`x` is not an exit code"),
            ("```toml a b\nx\n```\n", "`b` is not allowed"),
            ("```console\nx\n```\n", "begins with `$ `"),
            ("```sh\nx\n", "a.md:1: this fence has no end"),
        ] {
            let error = DocsPage::parse("a.md", text).expect_err(text).to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
