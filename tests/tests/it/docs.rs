//! The documentation is true: what its pages tell a reader to run is run, as it stands there, on the real binary.
//!
//! A page is played in namespaces of its own, so that ports, addresses and homes are those that the page names. The model
//! behind every provider is scripted; all else is real.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::tool::ToolSet;
use docket_tests::{
    docs::{DocsPage, PageEnvironment, run_page},
    pg_cluster::{ClusterOptions, PostgresCluster},
    system::{
        SampleRepository, TestIsolation, TestProgram, acquire_scenario_slot, add_address, bring_loopback_up,
        docket_binary, has_program, print_notice, run_in_namespaces, run_program,
    },
};

mod providers;

use providers::ProviderEndpoints;

/// How long a page may take on a busy machine, its namespaces and its end included.
const PAGE_MAX: Duration = Duration::from_secs(300);
/// How long its commands may.
const COMMANDS_MAX: Duration = Duration::from_secs(240);
/// PostgreSQL's usual port.
const POSTGRES: u16 = 5432;

/// Programs that pages use beside docket and git: one that names a program is not played where that is not installed.
const PROGRAMS: [&str; 3] = ["curl", "jq", "openssl"];

/// The keys that the pages show in place of one's own.
const KEYS: [&str; 2] = ["sk-ant-...", "sk-..."];

/// The repository that the pages speak of.
const FILES: [(&str, &str); 4] = [
    ("README.md", "# greet\n\n`greet.sh NAME` says hello.\n"),
    ("docket.toml", "[tests]\ncommand = \"sh tests/run.sh\"\n"),
    ("greet.sh", "#!/bin/sh\n# greet NAME: says hello.\necho \"Hello, $1!\"\n"),
    ("tests/run.sh", "#!/bin/sh\nset -eu\n[ \"$(sh greet.sh World)\" = \"Hello, World!\" ]\n"),
];

/// What the model does with it, whatever it is asked.
const SCRIPT: &str = r#"
after_end = "repeat_last"

[[turns]]
text = "I read the program and its tests."
[[turns.calls]]
name = "read_file"
args = { path = "greet.sh" }
[[turns.calls]]
name = "read_file"
args = { path = "tests/run.sh" }

[[turns]]
text = "The flag comes first; without it nothing changes."
[[turns.calls]]
name = "edit_file"
[turns.calls.args]
path = "greet.sh"
[[turns.calls.args.edits]]
search = 'echo "Hello, $1!"'
replace = '''
if [ "$1" = --shout ]; then
    echo "HELLO, $(echo "$2" | tr a-z A-Z)!"
else
    echo "Hello, $1!"
fi'''

# A model that only looks around may change nothing: then the next one makes both changes.
[[turns]]
when = { last_result_contains = "Refused by policy" }
text = "Both changes are mine to make."
[[turns.calls]]
name = "edit_file"
[turns.calls.args]
path = "greet.sh"
[[turns.calls.args.edits]]
search = 'echo "Hello, $1!"'
replace = '''
if [ "$1" = --shout ]; then
    echo "HELLO, $(echo "$2" | tr a-z A-Z)!"
else
    echo "Hello, $1!"
fi'''
[[turns.calls]]
name = "edit_file"
[turns.calls.args]
path = "tests/run.sh"
[[turns.calls.args.edits]]
search = '[ "$(sh greet.sh World)" = "Hello, World!" ]'
replace = '''
[ "$(sh greet.sh World)" = "Hello, World!" ]
[ "$(sh greet.sh --shout World)" = "HELLO, WORLD!" ]'''
[[turns.or]]
text = "Now its test."
[[turns.or.calls]]
name = "edit_file"
[turns.or.calls.args]
path = "tests/run.sh"
[[turns.or.calls.args.edits]]
search = '[ "$(sh greet.sh World)" = "Hello, World!" ]'
replace = '''
[ "$(sh greet.sh World)" = "Hello, World!" ]
[ "$(sh greet.sh --shout World)" = "HELLO, WORLD!" ]'''

[[turns]]
[[turns.calls]]
name = "run_tests"
args = {}

[[turns]]
text = "`greet.sh --shout NAME` greets in capitals, and a test says so."
"#;

/// What a page needs beside a repository and a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageSetup {
    /// On a machine where docket was never used.
    Fresh,
    /// As `start.md` leaves it: a key in the environment, a model in `docket.toml`.
    AfterStart,
    /// The same, with a PostgreSQL server.
    WithPostgres,
    /// The same, where this machine has the address that the page speaks of.
    WithAddress,
}

macro_rules! pages {
    ($($test:ident: $page:literal, $begins:ident;)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() -> Result<()> {
                Box::pin(play_page(concat!("docs::", stringify!($test)), $page, PageSetup::$begins)).await
            }
        )*
    };
}

pages! {
    readme: "README.md", Fresh;
    start: "coordinator/docs/start.md", Fresh;
    concepts: "coordinator/docs/concepts.md", AfterStart;
    benchmarks: "coordinator/docs/benchmarks.md", Fresh;
    backlog: "coordinator/docs/howto/backlog.md", AfterStart;
    replay: "coordinator/docs/howto/replay.md", AfterStart;
    resume: "coordinator/docs/howto/resume.md", AfterStart;
    fork: "coordinator/docs/howto/fork.md", AfterStart;
    sandbox_policy: "coordinator/docs/howto/sandbox-policy.md", AfterStart;
    postgresql: "coordinator/docs/howto/postgresql.md", WithPostgres;
    several_hosts: "coordinator/docs/howto/several-hosts.md", WithAddress;
    upgrading: "coordinator/docs/howto/upgrading.md", AfterStart;
    backup: "coordinator/docs/howto/backup.md", AfterStart;
    models: "coordinator/docs/topics/models.md", AfterStart;
    engines: "coordinator/docs/topics/engines.md", AfterStart;
    tools: "coordinator/docs/topics/tools.md", AfterStart;
    checks: "coordinator/docs/topics/checks.md", AfterStart;
    delivery: "coordinator/docs/topics/delivery.md", AfterStart;
    storage: "coordinator/docs/topics/storage.md", AfterStart;
    programs: "coordinator/docs/topics/programs.md", AfterStart;
}

/// What no test can run, by page: each block's first line. Whoever adds one says here why.
const NOT_RUN: &[(&str, &str)] = &[
    // Builds docket, or downloads it; the demo is `it demo::`.
    ("README.md", "cargo run --release -- demo"),
    ("README.md", "git clone https://github.com/docket-dev/docket && cd docket"),
    ("README.md", "cargo test --workspace"),
    ("coordinator/docs/start.md", "git clone https://github.com/docket-dev/docket && cd docket"),
    ("coordinator/docs/howto/upgrading.md", "git pull && cargo install --locked --path coordinator/cli"),
    // Minutes on an idle machine; `it bench::` and the tests of `tests/bench` measure each part briefly.
    ("coordinator/docs/benchmarks.md", "docket bench"),
    ("coordinator/docs/benchmarks.md", "cargo build --release -p docket-cli -p docket-bench"),
    ("coordinator/docs/benchmarks.md", "target/release/docket-bench --only finished --finished-runs 100000"),
    // Another program's download.
    ("coordinator/docs/start.md", "ollama pull qwen2.5-coder:7b"),
    // Wants a terminal; `it step::` has one.
    ("coordinator/docs/howto/replay.md", "docket step $task"),
    ("coordinator/docs/howto/fork.md", "docket step $task --with $fork"),
    // The system's own administrator.
    ("coordinator/docs/howto/postgresql.md", "sudo -u postgres createuser --pwprompt docket"),
    (
        "coordinator/docs/howto/backup.md",
        "pg_dump --format=custom --file docket.dump postgres://docket@db/docket",
    ),
    // It is run in `several-hosts.md`, where there is one to drain.
    ("coordinator/docs/howto/upgrading.md", "docket workers drain builder --wait"),
    // Minutes of work; `it eval::` and `it compare::` do it.
    ("coordinator/docs/topics/engines.md", "docket eval tests/suites/samples --html report.html"),
    (
        "coordinator/docs/topics/engines.md",
        "docket compare a.md backlog.jsonl --repo . --model openai:gpt-5.5 --model anthropic:claude-opus-5-5",
    ),
];

/// Each tool of the wide set is named where they are told of.
#[test]
fn every_wide_tool_is_documented() -> Result<()> {
    let text = std::fs::read_to_string(repository_root().join("coordinator/docs/topics/tools.md"))?;
    for set in ToolSet::ALL {
        let lacking = docket_worker::tools::tool_specs(set).into_iter().map(|spec| spec.name);
        let lacking: Vec<String> = lacking.filter(|name| !text.contains(&format!("`{name}`"))).collect();
        ensure!(lacking.is_empty(), "not in tools.md: {lacking:?}");
    }
    Ok(())
}

fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's root")
}

fn read_page(name: &str) -> Result<DocsPage> {
    let text = std::fs::read_to_string(repository_root().join(name)).with_context(|| name.to_owned())?;
    Ok(DocsPage::parse(name, &text)?)
}

/// Only one page at a time has the ports where there are no namespaces.
static PORTS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn play_page(test: &str, name: &str, begins: PageSetup) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let page = read_page(name)?;
    if PROGRAMS.into_iter().any(|program| page.uses_program(program) && !has_program(program)) {
        return Ok(());
    }
    let _ports = match run_in_namespaces(test, PAGE_MAX).await? {
        TestIsolation::Done => return Ok(()),
        TestIsolation::Inside => {
            bring_loopback_up()?;
            None
        }
        TestIsolation::Unavailable if begins == PageSetup::WithAddress => {
            print_notice(&format!(
                "{name} was NOT played: it needs a network namespace, which root can have"
            ));
            return Ok(());
        }
        TestIsolation::Unavailable => Some(PORTS.lock().await),
    };
    let Some(stage) = ReaderMachine::new(begins).await? else { return Ok(()) };
    run_page(&page, &stage.room).await?;
    print_notice(&format!("{name} was played; {} model calls", stage.providers.call_count()));
    Ok(())
}

/// A reader's machine.
struct ReaderMachine {
    room: PageEnvironment,
    providers: ProviderEndpoints,
    // Held until the page was played.
    _repository: SampleRepository,
    _folder: tempfile::TempDir,
    _cluster: Option<PostgresCluster>,
}

impl ReaderMachine {
    /// `None` where this machine lacks what the page needs, which is said.
    async fn new(begins: PageSetup) -> Result<Option<Self>> {
        let folder = tempfile::Builder::new().prefix("docket-docs-").tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let (home, programs, hosts) = (at("home"), at("bin"), at("hosts"));
        for made in [&home, &programs, &hosts] {
            std::fs::create_dir(made)?;
        }
        std::os::unix::fs::symlink(docket_binary(), programs.join("docket"))?;
        // Copies to the home that stands for the other machine.
        let scp = format!(
            "#!/bin/sh\nset -eu\nmkdir -p '{0}'/\"${{2%%:*}}\"\ncp -- \"$1\" '{0}'/\"${{2%%:*}}/${{2#*:}}\"\n",
            hosts.display()
        );
        write_program(&programs.join("scp"), &scp)?;
        std::fs::write(
            home.join(".gitconfig"),
            "[user]\nname = Reader\nemail = reader@example.org\n[init]\ndefaultBranch = main\n",
        )?;
        let repository = SampleRepository::new(&FILES)?;
        let remote = at("greet.git");
        git(
            folder.path(),
            &["clone", "--quiet", "--bare", path_text(repository.path())?, path_text(&remote)?],
        )
        .await?;
        git(repository.path(), &["remote", "add", "origin", path_text(&remote)?]).await?;
        let mut providers = ProviderEndpoints::start(SCRIPT, &KEYS).await?;
        let mut env = providers.client_env();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path: OsString = [programs.as_os_str(), &path].join(OsStr::new(":"));
        env.push(("PATH".to_owned(), path));
        let place = home.join(".local/share/docket");
        if begins != PageSetup::Fresh {
            env.push(("ANTHROPIC_API_KEY".to_owned(), KEYS[0].into()));
            std::fs::create_dir_all(&place)?;
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700))?;
            std::fs::write(place.join("docket.toml"), "[task]\nmodel = \"anthropic:claude-sonnet-5-5\"\n")?;
        }
        if begins == PageSetup::AfterStart {
            let env = [("DOCKET_HOME", place.as_os_str())];
            run_program(TestProgram::Docket, &home, &env, &["db", "migrate"]).await?.into_stdout()?;
        }
        let mut cluster = None;
        if begins == PageSetup::WithPostgres {
            let Some(started) = PostgresCluster::start_private(ClusterOptions::default()) else {
                return Ok(None);
            };
            let port = started.port().context("a cluster of our own")?;
            providers.forward_port(POSTGRES, SocketAddr::from(([127, 0, 0, 1], port))).await?;
            create_database(started.url()).await?;
            cluster = Some(started);
        }
        if begins == PageSetup::WithAddress {
            add_address("10.0.0.5".parse()?)?;
        }
        let room =
            PageEnvironment { home, folder: repository.path().to_owned(), hosts, env, limit: COMMANDS_MAX };
        Ok(Some(Self { room, providers, _repository: repository, _folder: folder, _cluster: cluster }))
    }
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("a UTF-8 path")
}

async fn git(folder: &Path, args: &[&str]) -> Result<()> {
    run_program(TestProgram::Git, folder, &[], args).await?.into_stdout().map(drop)
}

fn write_program(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
}

/// The page's own line for it asks for rights that the test does not have.
async fn create_database(url: &str) -> Result<()> {
    use sqlx::Connection as _;
    let mut admin = sqlx::PgConnection::connect(url).await?;
    sqlx::raw_sql("CREATE DATABASE docket").execute(&mut admin).await?;
    Ok(())
}

/// Every page of the documentation.
fn list_pages() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::from(["README.md".to_owned()]);
    let mut folders = vec![repository_root().join("coordinator/docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.insert(path_text(path.strip_prefix(repository_root())?)?.to_owned());
            }
        }
    }
    Ok(found)
}

#[test]
fn every_page_is_played_or_excused() -> Result<()> {
    let mut not_run = Vec::new();
    for name in list_pages()? {
        // `reference/` is generated from the code; neither folder has commands to run.
        if ["reference/", "architecture/"]
            .iter()
            .any(|folder| name.starts_with(&format!("coordinator/docs/{folder}")))
        {
            continue;
        }
        ensure!(PAGES.contains(&name.as_str()), "{name} has no test; add it to `pages!`");
        let page = read_page(&name)?;
        for block in &page.blocks {
            let looks_run =
                block.text.lines().any(|line| line.starts_with("docket ") || line.starts_with("$ "));
            let is_read = block.action == docket_tests::docs::BlockAction::ReadOnly;
            ensure!(
                !(looks_run && is_read),
                "{name}:{}: a command in a block that is not sh or console",
                block.line
            );
        }
        // Nobody is to build what no test has seen.
        let installs = page.blocks.iter().flat_map(|block| block.text.lines());
        for line in installs.filter(|line| line.contains("cargo install")) {
            ensure!(line.contains(" --locked"), "{name}: `{line}` leaves Cargo.lock aside");
        }
        not_run.extend(page.skipped_blocks().into_iter().map(|first| (name.clone(), first)));
    }
    for (name, first) in &not_run {
        print_notice(&format!("not run: {name}: {first}"));
        let known = NOT_RUN.iter().any(|(page, line)| page == name && line == first);
        ensure!(known, "{name}: `{first}` is not run, and NOT_RUN does not hold it");
    }
    for (name, line) in NOT_RUN {
        let there = not_run.iter().any(|(page, first)| page == name && first == line);
        ensure!(there, "NOT_RUN holds `{line}` of {name}, where it no longer stands");
    }
    Ok(())
}
