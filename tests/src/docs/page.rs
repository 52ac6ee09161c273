//! A Markdown page taken apart: its fenced blocks, and what is to be done with each.
//!
//! The first word behind a fence says what the block is; for `sh` and `console` more may follow:
//!
//! | word | what it says |
//! |---|---|
//! | `no-run` | a test cannot run it; it is listed |
//! | `background` | it goes on in a terminal of its own: a server |
//! | `after-ctrl-c` | before it, what goes on in the background is ended as by Ctrl-C |
//! | `fails`, `fails=N` | it must fail, with exit code N |
//! | `on=HOST` | it is run on another machine: in a home of its own |
//!
//! A block of another kind is a file where a second word names it: `toml careful.toml`, or `toml >>careful.toml` to
//! write behind what is there. Any other word is refused, so that a slip of the pen makes no command unseen.

use std::fmt;

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its path, for messages.
    pub name: String,
    /// Its fenced blocks, in order.
    pub blocks: Vec<Block>,
}

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The page's line that its first line is, from 1.
    pub line: usize,
    /// Its lines, without the indentation of its fence.
    pub text: String,
    /// What is to be done with it.
    pub act: Act,
}

/// What is to be done with a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// To read only.
    Read,
    /// A test cannot run it.
    NotRun,
    /// It is a file.
    Write {
        /// Where; `~/` is the home.
        path: String,
        /// Behind what is there.
        append: bool,
    },
    /// It is run.
    Run {
        /// What is run.
        command: Command,
        /// In a terminal of its own.
        background: bool,
        /// What goes on in the background is ended before.
        after_ctrl_c: bool,
        /// It must fail; with this exit code, where one is named.
        fails: Option<Option<u8>>,
        /// On another machine.
        host: Option<String>,
    },
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The shell's lines.
    pub text: String,
    /// For each of them the page's line.
    pub lines: Vec<usize>,
    /// What must be shown, in this order, each with the page's line. `…` stands for anything.
    pub shown: Vec<(usize, String)>,
}

/// A page that cannot be taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageError {
    page: String,
    line: usize,
    what: String,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.page, self.line, self.what)
    }
}

impl std::error::Error for PageError {}

impl Page {
    /// Takes it apart.
    ///
    /// # Errors
    /// A fence without a word, with a word that is not known, or without an end.
    pub fn read(name: &str, text: &str) -> Result<Self, PageError> {
        let wrong =
            |line: usize, what: &str| PageError { page: name.to_owned(), line, what: what.to_owned() };
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
            let act = act(info, at + 1, &held).map_err(|what| wrong(at, &what))?;
            let text = held.iter().map(|line| format!("{line}\n")).collect();
            blocks.push(Block { line: at + 1, text, act });
        }
        Ok(Self { name: name.to_owned(), blocks })
    }

    /// What a test does not run: each block's first line.
    pub fn not_run(&self) -> Vec<String> {
        let held = self.blocks.iter().filter(|block| block.act == Act::NotRun);
        held.map(|block| block.text.lines().next().unwrap_or_default().to_owned()).collect()
    }

    /// Whether a command that is run names this program.
    pub fn uses(&self, program: &str) -> bool {
        let is_named = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == program);
        self.blocks
            .iter()
            .any(|block| matches!(&block.act, Act::Run { command, .. } if is_named(&command.text)))
    }
}

fn act(info: &str, first: usize, lines: &[String]) -> Result<Act, String> {
    let mut words = info.split_whitespace();
    let kind = words.next().ok_or("say behind the fence what the block is: sh, console, toml, text …")?;
    let command = match kind {
        "sh" => script(first, lines),
        "console" => session(first, lines)?,
        _ => {
            return match (words.next(), words.next()) {
                (None, _) => Ok(Act::Read),
                (Some(path), None) => Ok(Act::Write {
                    append: path.starts_with(">>"),
                    path: path.trim_start_matches(">>").to_owned(),
                }),
                (Some(_), Some(more)) => Err(format!("`{more}` says nothing behind the name of a file")),
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
                fails = Some(Some(code.parse().map_err(|_| format!("`{code}` is no exit code"))?));
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
        return Ok(Act::NotRun);
    }
    Ok(Act::Run { command, background, after_ctrl_c, fails, host })
}

fn script(first: usize, lines: &[String]) -> Command {
    let text = lines.iter().map(|line| format!("{line}\n")).collect();
    Command { text, lines: (first..first + lines.len()).collect(), shown: Vec::new() }
}

/// `$ ` begins a command, a backslash at a line's end goes on with it; all else is what it shows.
fn session(first: usize, lines: &[String]) -> Result<Command, String> {
    let mut command = Command { text: String::new(), lines: Vec::new(), shown: Vec::new() };
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
            None => command.shown.push((at, line.clone())),
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_its_fenced_blocks() {
        let text = "# A\n\n```sh\none\ntwo\n```\n- in a list\n  ```console fails=4 on=b\n  $ three \\\n      --long\n  said … so\n  ```\n\
                    ```toml >>~/x.toml\na = 1\n```\n```sh no-run\nsudo x\n```\n```text\nlook\n```\n```sh background after-ctrl-c\nup\n```\n";
        let page = Page::read("a.md", text).expect("a page");
        assert_eq!(page.blocks.iter().map(|block| block.line).collect::<Vec<_>>(), [4, 9, 14, 17, 20, 23]);
        let Act::Run { command, fails: None, background: false, .. } = &page.blocks[0].act else {
            panic!("{page:?}")
        };
        assert_eq!((command.text.as_str(), &command.lines[..]), ("one\ntwo\n", &[4, 5][..]));
        let Act::Run { command, fails: Some(Some(4)), host: Some(host), .. } = &page.blocks[1].act else {
            panic!("{page:?}")
        };
        assert_eq!((command.text.as_str(), host.as_str()), ("three \\\n    --long\n", "b"));
        assert_eq!(command.shown, [(11, "said … so".to_owned())]);
        assert_eq!(page.blocks[2].act, Act::Write { path: "~/x.toml".to_owned(), append: true });
        assert_eq!(page.not_run(), ["sudo x"]);
        assert!(page.uses("two") && !page.uses("tw") && !page.uses("sudo"));
        assert_eq!(page.blocks[4].act, Act::Read);
        assert!(matches!(page.blocks[5].act, Act::Run { background: true, after_ctrl_c: true, .. }));
    }

    #[test]
    fn what_a_fence_does_not_say_right_is_refused_with_its_place() {
        for (text, wrong) in [
            ("a\n```\nx\n```\n", "a.md:2: say behind"),
            ("```sh norun\nx\n```\n", "`norun` is none of"),
            ("```sh fails=x\nx\n```\n", "`x` is no exit code"),
            ("```toml a b\nx\n```\n", "`b` says nothing"),
            ("```console\nx\n```\n", "begins with `$ `"),
            ("```sh\nx\n", "a.md:1: this fence has no end"),
        ] {
            let error = Page::read("a.md", text).expect_err(text).to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
