//! Forbidden operations, performed by this test binary when it is started with [`MARKER`]. The exit status
//! is 0 if the operation succeeded, or its errno if it was refused.

use std::{
    env, fs,
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
};

use nix::{
    libc,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::{ForkResult, fork, pause},
};

pub(super) const MARKER: &str = "__sandbox-test-probe";

pub(super) fn run_if_requested() {
    let args: Vec<String> = env::args().collect();
    if args.get(1).is_none_or(|arg| arg != MARKER) {
        return;
    }
    let names: Vec<&str> = args[2..].iter().map(String::as_str).collect();
    let result = attempt_probe(&names);
    std::process::exit(result.err().map_or(0, |error| error.raw_os_error().unwrap_or(255)));
}

fn syscall(number: i64, args: [i64; 4]) -> io::Result<()> {
    #[expect(unsafe_code, reason = "a probe makes the call that must be refused")]
    // SAFETY: all arguments are numbers or null; if a call is wrongly allowed, its effect ends with this
    // process.
    let result = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3]) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn attempt_probe(names: &[&str]) -> io::Result<()> {
    match names {
        ["connect", address] => TcpStream::connect(address).map(|_| ()),
        ["connect-unix", path] => UnixStream::connect(path).map(|_| ()),
        ["read", path] => fs::read(path).map(|_| ()),
        ["userns"] => Ok(unshare(CloneFlags::CLONE_NEWUSER)?),
        ["clone-userns"] => {
            syscall(libc::SYS_clone, [i64::from(libc::CLONE_NEWUSER | libc::SIGCHLD), 0, 0, 0])
        }
        ["mount"] => Ok(mount(Some("none"), "/tmp", Some("tmpfs"), MsFlags::empty(), None::<&str>)?),
        ["ptrace"] => ptrace_child(),
        ["io_uring"] => syscall(libc::SYS_io_uring_setup, [1, 0, 0, 0]),
        ["clone3"] => syscall(libc::SYS_clone3, [0, 0, 0, 0]),
        ["keyctl"] => syscall(libc::SYS_keyctl, [0, -3, 0, 0]),
        ["bpf"] => syscall(libc::SYS_bpf, [0, 0, 0, 0]),
        ["socket", family] => {
            syscall(libc::SYS_socket, [family.parse().unwrap(), i64::from(libc::SOCK_DGRAM), 0, 0])
        }
        ["tiocsti"] => syscall(libc::SYS_ioctl, [0, libc::TIOCSTI.cast_signed(), 0, 0]),
        ["tiocsti-high"] => syscall(libc::SYS_ioctl, [0, (libc::TIOCSTI | (1 << 40)).cast_signed(), 0, 0]),
        ["set-id", path] => {
            fs::write(path, "x")?;
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o4755))
        }
        ["x32"] => syscall(libc::SYS_getpid | 0x4000_0000, [0; 4]),
        ["loopback"] => use_loopback(),
        ["descriptors"] => find_open_descriptor(),
        ["fork-bomb"] => fork_bomb(),
        other => panic!("no probe {other:?}"),
    }
}

#[expect(unsafe_code, reason = "the probe is single-threaded: it runs before main")]
fn ptrace_child() -> io::Result<()> {
    // SAFETY: one thread.
    match unsafe { fork()? } {
        ForkResult::Child => {
            pause();
            Ok(())
        }
        ForkResult::Parent { child } => {
            let seized = syscall(libc::SYS_ptrace, [0x4206, child.as_raw().into(), 0, 0]);
            nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL)?;
            seized
        }
    }
}

/// Runs a server and a client, both in this process.
fn use_loopback() -> io::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(b"over loopback")?;
    drop(client);
    let mut got = String::new();
    server.read_to_string(&mut got)?;
    if got == "over loopback" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Fails at the first open descriptor above 2.
fn find_open_descriptor() -> io::Result<()> {
    for fd in 3..4096 {
        #[expect(unsafe_code, reason = "asks for flags of a number")]
        // SAFETY: no pointer.
        let open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        if open {
            return Err(io::Error::from_raw_os_error(fd));
        }
    }
    Ok(())
}

/// Starts more processes than a sandbox may have and fewer than a host has room for.
#[expect(unsafe_code, reason = "the probe is single-threaded: it runs before main")]
fn fork_bomb() -> io::Result<()> {
    for _ in 0..2_000 {
        // SAFETY: one thread.
        if let ForkResult::Child = unsafe { fork()? } {
            pause();
        }
    }
    Ok(())
}
