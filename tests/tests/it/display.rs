//! Whatever strangers put into a task or a run, no reading command hands it to the terminal: control, bidi,
//! zero-width and tag characters come out as text that can be seen.
//!
//! Exact by design, where standard output is no terminal: the patch of `docket run` and `docket diff`, the file of `docket cat` and
//! the output of `docket replay --output`, which are meant for programs.

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    DocketTerminal, FinishedProcess, SampleRepository, TestProgram, acquire_scenario_slot, run_program,
};
use serde_json::Value;
use tempfile::TempDir;

/// A title, a colour, the clipboard, a link, C1, a return, a backspace, bidi, zero width, a tag.
const HOSTILE: &str = "A\u{1b}]0;pwned\u{7}B\u{1b}[31mC\u{1b}]52;c;cHduZWQ=\u{7}D\u{1b}]8;;http://x\u{1b}\\E\u{9b}31mF\rG\u{8}H\u{202e}I\u{2066}J\u{200b}K\u{e0041}L";

/// The same as a file's name, in what `printf` takes.
const HOSTILE_NAME: &str = r"n\033]0;pwned\007\302\233m\342\200\256\342\200\213\363\240\201\201.txt";

struct HostileFixture {
    home: TempDir,
    sample: SampleRepository,
    task: String,
    run: String,
    /// What `docket run` said while it ran.
    lived: String,
    /// The same on a terminal, with the patch at its end.
    screen: String,
}

/// Text as a basic string of TOML, every character by its number.
fn toml_string(text: &str) -> String {
    let each = text.chars().map(|c| format!("\\U{:08X}", u32::from(c)));
    format!("\"{}\"", each.collect::<String>())
}

impl HostileFixture {
    async fn play_hostile_run() -> Result<Self> {
        let home = tempfile::tempdir()?;
        let sample = SampleRepository::new(&[("a.txt", "one\n")])?;
        let hostile = toml_string(&format!("{HOSTILE}\u{0}"));
        let make = toml_string(&format!(
            "n=$(printf '{HOSTILE_NAME}'); printf '%s\\n' '{HOSTILE}' > \"$n\"; mkdir \"d$n\"; cp \"$n\" \"d$n/f\"; ln -s \"$n\" l; \
             printf '%s\\0' '{HOSTILE}'; printf '%s' '{HOSTILE}' >&2; cp \"$n\" plain.txt; exit 3"
        ));
        let script = sample.write_script(&format!(
            r#"
[[turns]]
text = {hostile}
calls = [
    {{ name = "run_command", args = {{ command = {make} }} }},
    {{ name = "read_file", args = {{ path = {hostile} }} }},
    {{ name = "create_file", args = {{ path = "made.txt", content = {hostile} }} }},
    {{ name = "search_codebase", args = {{ regex = "pwned" }} }},
    {{ name = "list_files", args = {{}} }},
    {{ name = {hostile}, args = {{ {hostile} = {hostile} }} }},
]
[[turns]]
text = {hostile}
calls = [{{ name = "edit_file", args = {{ path = "a.txt", edits = [{{ search = {hostile}, replace = {hostile} }}] }} }}]
[[turns]]
text = {hostile}
"#
        ))?;
        let mut scene = Self {
            home,
            sample,
            task: String::new(),
            run: String::new(),
            lived: String::new(),
            screen: String::new(),
        };
        let repo = scene.sample.path().to_str().context("UTF-8")?.to_owned();
        let script = script.to_str().context("UTF-8")?.to_owned();
        let prompt = format!("{HOSTILE}\n\nmore {HOSTILE}");
        let args = ["run", &prompt, "--repo", &repo, "--model", "scripted:x", "--script", &script];
        scene.screen = scene.run_on_terminal(&args).await?;
        let lived = scene.run_docket(&args).await?;
        ensure!(lived.stdout.contains(HOSTILE), "the patch of `docket run` is exact in a pipe: {lived:?}");
        scene.lived = lived.stderr.clone();
        let row: Value = {
            let all = scene.run_docket(&["ps", "--json"]).await?.into_stdout()?;
            serde_json::from_str(all.lines().next().context("a task")?)?
        };
        scene.run = row["run"].as_str().with_context(|| format!("a run: {row} {lived:?}"))?.to_owned();
        scene.task = row["id"].as_str().context("a task")?.to_owned();
        Ok(scene)
    }

    async fn run_docket(&self, args: &[&str]) -> Result<FinishedProcess> {
        let home = self.home.path();
        run_program(TestProgram::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
    }

    async fn run_on_terminal(&self, args: &[&str]) -> Result<String> {
        let home = self.home.path();
        let mut terminal = DocketTerminal::start(home, &[("DOCKET_HOME", home.as_os_str())], args)?;
        terminal.wait().await?;
        Ok(terminal.full_output())
    }

    /// What each reading command is called with; and whether its standard output is exact in a pipe.
    fn reading_commands(&self) -> Vec<(Vec<String>, bool)> {
        let (task, run) = (self.task.as_str(), self.run.as_str());
        let wrong = format!("no-{HOSTILE}");
        let all: [(&[&str], bool); 30] = [
            (&["ps"], false),
            (&["ps", "--json"], false),
            (&["show", task], false),
            (&["show", run], false),
            (&["show", run, "--json"], false),
            (&["logs", task], false),
            (&["logs", run], false),
            (&["logs", run, "--json"], false),
            (&["follow", task], false),
            (&["follow", run, "--json"], false),
            (&["replay", run], false),
            (&["replay", run, "--json"], false),
            (&["verify", run], false),
            (&["compare", run, run], false),
            (&["step", run], false),
            (&["diff", run], true),
            (&["diff", run, "--stat"], false),
            (&["diff", run, "--name-only"], false),
            (&["diff", run, "--json"], false),
            (&["cat", run, "."], false),
            (&["cat", run, "plain.txt"], true),
            (&["cat", run, "plain.txt", "--json"], false),
            (&["cat", run, "made.txt"], true),
            (&["blame", run, "plain.txt"], false),
            (&["blame", run, "plain.txt", "--json"], false),
            // What is wrong is named, too.
            (&["show", &wrong], false),
            (&["cat", run, &wrong], false),
            (&["submit", &wrong, "--repo", &wrong, "--model", "scripted:x"], false),
            (&["blame", run, &wrong, "--json"], false),
            (&["replay", &wrong, "--json"], false),
        ];
        all.map(|(args, exact)| (args.iter().map(|arg| (*arg).to_owned()).collect(), exact)).into()
    }
}

/// By a list of its own, not docket's.
fn is_raw_control(c: char) -> bool {
    let n = u32::from(c);
    (n < 0x20 && c != '\n' && c != '\t')
        || (0x7f..=0x9f).contains(&n)
        || (0x200b..=0x200f).contains(&n)
        || (0x202a..=0x202e).contains(&n)
        || (0x2066..=0x2069).contains(&n)
        || n == 0xfeff
        || (0xe0000..=0xe007f).contains(&n)
}

fn check_harmless(text: &str, of: &str) -> Result<()> {
    let raw = text.char_indices().find(|(_, c)| is_raw_control(*c));
    let around = |at: usize| {
        text[..at].chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect::<String>()
    };
    ensure!(raw.is_none(), "{of} lets {raw:?} through, after {:?}", raw.map(|(at, _)| around(at)));
    Ok(())
}

/// A terminal's bytes without what docket itself says to it: colours, line ends, the progress line.
fn strip_own_sequences(text: &str) -> String {
    strip_csi_sequences(text).replace("\r\n", "\n").replace('\r', "\n")
}

/// Takes out `ESC [ numbers letter`. A stranger's own such sequence must not come that far: it is looked for by
/// what stands around it.
fn strip_csi_sequences(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).map_or(after.len(), |at| at + 1);
        rest = &after[end..];
    }
    out + rest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untrusted_text_cannot_control_the_terminal() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HostileFixture::play_hostile_run().await?;
    let (mut wrong, mut seen) = (Vec::new(), 0);
    wrong.extend(check_harmless(&scene.lived, "docket run, standard error").err());
    ensure!(scene.screen.contains("pwned") && scene.screen.contains("diff --git"), "{:?}", scene.screen);
    ensure!(
        !scene.screen.contains("C\u{1b}]52") && !scene.screen.contains("B\u{1b}[31mC"),
        "{:?}",
        scene.screen
    );
    wrong.extend(check_harmless(&strip_own_sequences(&scene.screen), "docket run, on a terminal").err());
    for (args, exact) in scene.reading_commands() {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = scene.run_docket(&args).await?;
        let named = format!("docket {} {}", args[0], args[1..].join(" ").escape_debug());
        // The control: the strings are really there.
        seen += usize::from(done.stdout.contains("pwned") || done.stderr.contains("pwned"));
        if exact {
            ensure!(done.stdout.contains(HOSTILE), "{named} is exact in a pipe: {:?}", done.stdout);
        } else {
            wrong.extend(check_harmless(&done.stdout, &format!("{named}, standard output")).err());
        }
        wrong.extend(check_harmless(&done.stderr, &format!("{named}, standard error")).err());
        if args[0] == "step" {
            continue;
        }
        let screen = scene.run_on_terminal(&args).await?;
        ensure!(!screen.contains("C\u{1b}]52") && !screen.contains("B\u{1b}[31mC"), "{named}: {screen:?}");
        wrong.extend(check_harmless(&strip_own_sequences(&screen), &format!("{named}, on a terminal")).err());
    }
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    // JSON that says them by number means them.
    let row: Value = serde_json::from_str(
        scene.run_docket(&["show", &scene.task, "--json"]).await?.into_stdout()?.trim(),
    )?;
    ensure!(row.to_string().contains('\u{202e}'), "what is parsed is what was written: {row}");
    ensure!(seen >= 20, "only {seen} commands showed a stranger's text");
    Ok(())
}
