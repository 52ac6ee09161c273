//! The binary itself, started as a person starts it. Cargo builds it for this beside the other tests, so that those of the
//! whole system find it there and do not wait for it.

use std::process::Command;

#[test]
#[expect(clippy::disallowed_methods, reason = "the binary itself is what is tested, and it ends at once")]
fn version_is_printed_and_unknown_command_exits_with_2() {
    let docket = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_docket"));
        command.args(args).env_remove("DOCKET_HOME").output().expect("it starts")
    };
    let version = docket(&["--version"]);
    let said = String::from_utf8_lossy(&version.stdout);
    assert!(
        version.status.success() && said.starts_with(concat!("docket ", env!("CARGO_PKG_VERSION"))),
        "{said}"
    );
    let unknown = docket(&["fly"]);
    assert_eq!(unknown.status.code(), Some(2), "as clap has it for what cannot be read");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("fly"));
}
