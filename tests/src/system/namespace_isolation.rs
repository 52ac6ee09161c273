//! Runs a test in separate namespaces: its network, mounts and processes are its own, and end with it.
//!
//! The test is started a second time, by its name, in a process under `unshare`; the inner one detects this
//! and does its work. Its changes to network and mounts stay inside, and everything it started dies with it,
//! however it ends.

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
/// Prefix of lines that tests print for people.
const NOTICE_PREFIX: &str = "docket-tests: ";
/// Maximum output of the inner test shown on a failure.
const OUTPUT_SHOWN_BYTES_MAX: usize = 64 * 1024;

/// Where a test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestIsolation {
    /// In separate namespaces.
    Inside,
    /// It ran in separate namespaces and passed.
    Done,
    /// Namespaces are not available.
    Unavailable,
}

/// Returns whether this process is a test in separate namespaces.
fn is_inside() -> bool {
    std::env::var_os(INSIDE_VARIABLE).is_some()
}

/// Moves the calling test into separate namespaces, for at most `limit`: returns `Inside` there, and `Done`
/// here once that test has passed. Must be called first. Returns `Unavailable`, with a notice, if there are
/// no namespaces; in CI, that is a failure.
///
/// # Errors
/// Returns an error with the inner test's output if it fails.
pub async fn run_in_namespaces(test: &str, limit: Duration) -> Result<TestIsolation> {
    if is_inside() {
        exit_with_outer_test();
        return Ok(TestIsolation::Inside);
    }
    if let Err(why) = check_requirements() {
        let said = format!(
            "no namespaces available ({why:#}); {test} runs without isolation and skips what needs it"
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
    // Held until the end: closing it ends the inner test.
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
    bail!("{test} in separate namespaces: {}\n{}", output.status, &text[from..])
}

/// Exits with the outer test. That one holds the other end of standard input, which closes however it ends.
/// This process is the first of its namespace, so everything in it ends too.
fn exit_with_outer_test() {
    std::thread::spawn(|| {
        let mut byte = [0];
        // Nothing is ever written.
        let _ = std::io::stdin().read(&mut byte);
        std::process::exit(1);
    });
}

/// Checks the requirements of a test in namespaces.
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

/// A network namespace connected to this process's own by a veth pair.
#[derive(Debug)]
pub struct NetworkLink {
    // Held open: the namespace lives as long as it is referenced.
    namespace: std::fs::File,
    number: u8,
}

impl NetworkLink {
    /// Creates the link with this number.
    ///
    /// # Errors
    /// Returns an error if this process may not create it.
    pub fn new(number: u8) -> Result<Self> {
        // A namespace belongs to a thread: the thread that creates it does nothing else and ends at
        // once.
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

    /// Returns the address of this end.
    pub fn address(&self) -> IpAddr {
        Ipv4Addr::new(10, 99, self.number, 1).into()
    }

    /// Connects from the other side, within `patience`.
    ///
    /// # Errors
    /// Returns an error if there is no response or the namespace cannot be entered.
    pub fn connect(&self, to: SocketAddr, patience: Duration) -> Result<TcpStream> {
        let namespace = self.namespace.try_clone()?;
        // Affects only this thread, which does nothing else.
        let connected = std::thread::spawn(move || -> Result<TcpStream> {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(TcpStream::connect_timeout(&to, patience)?)
        });
        connected.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    }

    /// Returns the path for entering the namespace.
    pub fn namespace(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd()).into()
    }

    /// Blocks all traffic without notifying either side.
    ///
    /// # Errors
    /// Returns an error if the interface cannot be taken down.
    pub fn cut(&self) -> Result<()> {
        run_ip(&["link", "set", &self.outer_interface(), "down"])
    }

    /// Restores the traffic.
    ///
    /// # Errors
    /// Returns an error if the interface cannot be brought up.
    pub fn restore(&self) -> Result<()> {
        run_ip(&["link", "set", &self.outer_interface(), "up"])
    }
}

/// Brings up the loopback of a network namespace that was just entered.
///
/// # Errors
/// Returns an error if this process may not do so.
pub fn bring_loopback_up() -> Result<()> {
    run_ip(&["link", "set", "lo", "up"])
}

/// Adds an address to the network namespace that was just entered, as if it were a separate
/// machine.
///
/// # Errors
/// Returns an error if this process may not do so.
pub fn add_address(address: IpAddr) -> Result<()> {
    run_ip(&["addr", "add", &address.to_string(), "dev", "lo"])
}

fn run_ip(args: &[&str]) -> Result<()> {
    run_blocking(TestProgram::Ip, Path::new("/"), args.iter().map(AsRef::as_ref)).into_stdout().map(drop)
}
