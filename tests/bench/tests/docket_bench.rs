//! Runs the program itself, as a developer starts it. Cargo builds it for this test along with the others, so
//! that the whole-system tests find it and do not wait for a build.

use std::process::Command;

#[test]
#[expect(clippy::disallowed_methods, reason = "the program itself is what is tested, and it ends at once")]
fn figures_are_listed_and_missing_docket_is_reported() {
    let bench = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_docket-bench"));
        command.args(args).env_remove("DATABASE_URL").output().expect("it starts")
    };
    let listed = bench(&["--list", "--json", "--only", "edit"]);
    let said = String::from_utf8_lossy(&listed.stdout);
    assert!(
        listed.status.success() && said.lines().all(|line| line.contains("\"group\":\"edit\"")),
        "{said}"
    );
    assert!(said.contains("\"figure\":\"edit_us_p50\""), "{said}");
    let lacks = bench(&["--docket", "/nowhere/docket", "--only", "edit"]);
    let said = String::from_utf8_lossy(&lacks.stderr);
    assert_eq!(lacks.status.code(), Some(2), "{said}");
    assert!(said.contains("/nowhere/docket") && said.contains("cargo build"), "{said}");
}
