//! A test in namespaces of its own: its network, its mounts and its processes are nobody else's, and end with it.
//!
//! The test is started once more, by its name, in a process under `unshare`; inside it sees so, and does its work. What
//! it changes of network and mounts reaches nobody, and whatever it started dies with it, however it ends.

use std::{
    io::Read as _,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sched::{CloneFlags, setns, unshare};

use super::{
    binary::docket_binary,
    process::{FinishedProcess, TestProgram, run_blocking, try_run_blocking},
    scenario_limit::print_notice,
};

/// Set inside.
const INSIDE_VARIABLE: &str = "DOCKET_TESTS_ALONE";
/// How the lines begin that tests say to persons.
const NOTICE_PREFIX: &str = "docket-tests: ";
/// Most of what the inner test said that is shown where it fails, in bytes.
const OUTPUT_SHOWN_BYTES_MAX: usize = 64 * 1024;

/// Where a test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestIsolation {
    /// In namespaces of its own.
    Inside,
    /// It ran in namespaces of its own, and passed.
    Done,
    /// No namespaces are to be had here.
    Unavailable,
}

/// Whether this process is a test in namespaces of its own.
fn is_inside() -> bool {
    std::env::var_os(INSIDE_VARIABLE).is_some()
}

/// Where a test calls this first, it goes on in namespaces of its own, for `limit` at most: answered `Inside` there,
/// and `Done` here once that has passed. `Bare` where there are none to be had, which is said and, in CI, a failure.
///
/// # Errors
/// The test fails inside; what it said is in the error.
pub async fn run_in_namespaces(test: &str, limit: Duration) -> Result<TestIsolation> {
    if is_inside() {
        exit_with_outer_test();
        return Ok(TestIsolation::Inside);
    }
    if let Err(why) = check_requirements() {
        let said = format!(
            "no namespaces to be had here ({why:#}); {test} runs beside all else, without what needs them"
        );
        ensure!(std::env::var_os("CI").is_none(), "{said}");
        print_notice(&said);
        return Ok(TestIsolation::Unavailable);
    }
    let own = std::env::current_exe()?;
    let mut command = tokio::process::Command::from(TestProgram::Unshare.command());
    command
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(own)
        .args([test, "--exact", "--nocapture", "--test-threads", "1"])
        .env(INSIDE_VARIABLE, "1")
        .env("DOCKET_BIN", docket_binary())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    // Held until the end: closed, it ends what is inside.
    let _open = child.stdin.take();
    let output = tokio::time::timeout(limit, child.wait_with_output()).await;
    let output = output.with_context(|| format!("{test} does not end within {} s", limit.as_secs()))??;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let ran = text.contains("1 passed");
    if output.status.success() && ran {
        text.lines().filter_map(|line| line.strip_prefix(NOTICE_PREFIX)).for_each(print_notice);
        return Ok(TestIsolation::Done);
    }
    let from = text.ceil_char_boundary(text.len().saturating_sub(OUTPUT_SHOWN_BYTES_MAX));
    bail!("{test} in namespaces of its own: {}\n{}", output.status, &text[from..])
}

/// The test outside holds the other end of standard input, and lets go of it however it ends. This process is the first
/// of its namespace: with it everything there ends.
fn exit_with_outer_test() {
    std::thread::spawn(|| {
        let mut byte = [0];
        // Nothing is ever written.
        let _ = std::io::stdin().read(&mut byte);
        std::process::exit(1);
    });
}

/// Whether all that a test in namespaces needs is here.
fn check_requirements() -> Result<()> {
    let wanted: [(TestProgram, &[&str]); 3] = [
        (
            TestProgram::Unshare,
            &["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "true"],
        ),
        (TestProgram::Nsenter, &["--version"]),
        (TestProgram::Ip, &["-Version"]),
    ];
    for (tool, args) in wanted {
        let finished = try_run_blocking(tool, Path::new("/"), args.iter().map(AsRef::as_ref));
        finished
            .map_err(anyhow::Error::from)
            .and_then(FinishedProcess::into_stdout)
            .with_context(|| format!("{tool:?}"))?;
    }
    Ok(())
}

/// A network namespace that is joined to this process's own by a pair of virtual Ethernet ends.
#[derive(Debug)]
pub struct NetworkLink {
    // Held open: the namespace lives as long as somebody holds it.
    namespace: std::fs::File,
    number: u8,
}

impl NetworkLink {
    /// The `number`-th one.
    ///
    /// # Errors
    /// This process may not make it.
    pub fn new(number: u8) -> Result<Self> {
        // A namespace is a thread's: the thread that made it is its first and ends at once.
        let made = std::thread::spawn(|| -> Result<std::fs::File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(std::fs::File::open("/proc/thread-self/ns/net")?)
        });
        let namespace = made.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        let link = Self { namespace, number };
        let (here, there) = (link.outer_interface(), format!("there{number}"));
        let namespace = link.namespace().to_string_lossy().into_owned();
        run_ip(&["link", "add", "name", &here, "type", "veth", "peer", "name", &there])?;
        run_ip(&["link", "set", &there, "netns", &namespace])?;
        run_ip(&["addr", "add", &format!("{}/24", link.address()), "dev", &here])?;
        run_ip(&["link", "set", &here, "up"])?;
        let far = format!("10.99.{number}.2/24");
        link.run_inside(&["addr", "add", &far, "dev", &there])?;
        link.run_inside(&["link", "set", &there, "up"])?;
        link.run_inside(&["link", "set", "lo", "up"])?;
        Ok(link)
    }

    fn outer_interface(&self) -> String {
        format!("here{}", self.number)
    }

    fn run_inside(&self, args: &[&str]) -> Result<()> {
        let enter = format!("--net={}", self.namespace().display());
        let all = [&[enter.as_str(), "--", "ip"], args].concat();
        run_blocking(TestProgram::Nsenter, Path::new("/"), all.iter().map(AsRef::as_ref))
            .into_stdout()
            .map(drop)
    }

    /// The address of this end.
    pub fn address(&self) -> IpAddr {
        Ipv4Addr::new(10, 99, self.number, 1).into()
    }

    /// Connects from the other side, within `patience`.
    ///
    /// # Errors
    /// Nothing answers, or the namespace cannot be entered.
    pub fn connect(&self, to: SocketAddr, patience: Duration) -> Result<TcpStream> {
        let namespace = self.namespace.try_clone()?;
        // This thread only: it is the first and last thing that it does.
        let connected = std::thread::spawn(move || -> Result<TcpStream> {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(TcpStream::connect_timeout(&to, patience)?)
        });
        connected.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    }

    /// Where the namespace is to be entered.
    pub fn namespace(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd()).into()
    }

    /// Nothing passes any more; nobody is told so.
    ///
    /// # Errors
    /// The end cannot be taken down.
    pub fn cut(&self) -> Result<()> {
        run_ip(&["link", "set", &self.outer_interface(), "down"])
    }

    /// All passes again.
    ///
    /// # Errors
    /// The end cannot be set up.
    pub fn restore(&self) -> Result<()> {
        run_ip(&["link", "set", &self.outer_interface(), "up"])
    }
}

/// Sets up the loopback of a network namespace that was just entered.
///
/// # Errors
/// This process may not.
pub fn bring_loopback_up() -> Result<()> {
    run_ip(&["link", "set", "lo", "up"])
}

/// Gives an address to the network namespace that was just entered, as if it were a machine's own.
///
/// # Errors
/// This process may not.
pub fn add_address(address: IpAddr) -> Result<()> {
    run_ip(&["addr", "add", &address.to_string(), "dev", "lo"])
}

fn run_ip(args: &[&str]) -> Result<()> {
    run_blocking(TestProgram::Ip, Path::new("/"), args.iter().map(AsRef::as_ref)).into_stdout().map(drop)
}
