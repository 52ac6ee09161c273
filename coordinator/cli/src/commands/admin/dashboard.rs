//! `docket dashboard`: opens the dashboard in a browser, signed in.
//!
//! The token is passed in the fragment of the address, which browsers never send, and the page
//! removes it at once. Browser histories may still keep it, so it expires within the day. The
//! browser is given a file that only this user can read and that redirects to the address, because
//! every user of the machine can see command lines.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{IsTerminal as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use docket_schema::{api::CreateTokenRequest, system::TokenRole};
use docket_worker::{
    client::CoordinatorClient,
    process::{TrustedSpec, run_trusted},
    secret::Secret,
};

use crate::{
    commands::local::doctor::find_in_path,
    connect::coordinator::token_from_env,
    context::CliContext,
    home::HomeOwnership,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// Lifetime of a browser's token: one working day.
const TOKEN_LIFETIME_MS: u64 = 12 * 60 * 60 * 1000;
/// Time limit for the desktop opener to hand the file to a browser.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit on captured opener output, which is not shown.
const OPENER_OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Environment variables passed to the opener and the browser.
const PASSED_ENV: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "BROWSER",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "XDG_CURRENT_DESKTOP",
    "XDG_DATA_DIRS",
    "XDG_CONFIG_HOME",
];

/// Command-line arguments of `docket dashboard`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Opens the dashboard in a browser, or prints its address if there is no desktop. The address
contains a token that is valid for 12 hours (or DOCKET_TOKEN, if set). Anyone who has the address
has that token's permissions.

Examples:
  docket dashboard
  docket dashboard --print
  DOCKET_TOKEN=$(docket token create --name me --role read --json | jq -r .secret) docket --url http://10.0.0.5:7117 dashboard"
)]
pub(crate) struct DashboardArgs {
    /// Print the address instead of opening a browser
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run_dashboard(cx: CliContext, args: DashboardArgs) -> CliResult {
    let (address, token) = find_coordinator(&cx)?;
    let token = browser_token(&address, token).await?;
    let place = format!("{}/ui/", address.trim_end_matches('/'));
    let signed_in = format!("{place}#token={}", token.expose());
    if cx.is_json() {
        display::print_json(&serde_json::json!({ "address": place, "signed_in": signed_in }));
        return Ok(ExitKind::Ok);
    }
    let desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let opens = !args.print && desktop && std::io::stdout().is_terminal();
    match find_opener().filter(|_| opens) {
        Some(opener) => {
            open_in_browser(&cx, opener, &signed_in).await?;
            display::print_line(&format!("dashboard: {place}"));
        }
        None => display::print_line(&signed_in),
    }
    Ok(ExitKind::Ok)
}

/// Where the token comes from.
enum TokenSource {
    /// Set by the user in the environment; its role decides what the page may do.
    Given(Secret),
    /// The home's own token, which never expires.
    Home(Secret),
}

/// Returns the token to give to the browser. Browser histories keep what they were given, so the
/// home's own token is exchanged for one that expires.
async fn browser_token(address: &str, token: TokenSource) -> CliResult<Secret> {
    let home = match token {
        TokenSource::Given(token) => return Ok(token),
        TokenSource::Home(token) => token,
    };
    let id = docket_coordinator::clock::new_id().simple().to_string();
    let name = format!("browser-{}", &id[id.len() - 12..]);
    let name = name.parse().map_err(anyhow::Error::from)?;
    let request = CreateTokenRequest { name, role: TokenRole::Admin, expires_in_ms: Some(TOKEN_LIFETIME_MS) };
    let made = CoordinatorClient::new(address, home)?.create_token(&request).await?;
    Secret::new(&made.secret)
        .ok_or_else(|| CliError::new(ExitKind::Failed, "the coordinator returned an invalid token"))
}

/// Returns the coordinator's address and the token to use.
fn find_coordinator(cx: &CliContext) -> CliResult<(String, TokenSource)> {
    let owned = match cx.home.ownership()? {
        HomeOwnership::Owned(owner) => owner.address,
        HomeOwnership::Starting | HomeOwnership::Free => None,
    };
    match (&cx.url, owned) {
        (Some(url), owned) => match token_from_env() {
            Some(token) => Ok((url.clone(), TokenSource::Given(token))),
            None if owned.as_deref() == Some(url.trim_end_matches('/')) => {
                Ok((url.clone(), TokenSource::Home(cx.home.load_or_create_token()?)))
            }
            None => Err(CliError::new(
                ExitKind::Refused,
                "DOCKET_TOKEN is not set; use the token in the file `token` in the coordinator's home",
            )),
        },
        (None, Some(address)) => match token_from_env() {
            Some(token) => Ok((address, TokenSource::Given(token))),
            None => Ok((address, TokenSource::Home(cx.home.load_or_create_token()?))),
        },
        (None, None) => Err(CliError::new(
            ExitKind::Unreachable,
            format!("no coordinator is running for {}; start one with `docket up`", cx.home.path().display()),
        )),
    }
}

/// Finds `setsid` and `xdg-open`. `setsid` starts a new session so that a browser outlives this
/// command.
fn find_opener() -> Option<(PathBuf, PathBuf)> {
    Some((find_in_path("setsid")?, find_in_path("xdg-open")?))
}

async fn open_in_browser(
    cx: &CliContext,
    (setsid, opener): (PathBuf, PathBuf),
    address: &str,
) -> CliResult<()> {
    let page = cx.home.path().join("dashboard.html");
    write_redirect_page(&page, address).fail_with(ExitKind::Failed, || {
        format!(
            "cannot write {}; run `docket dashboard --print` to print the address instead",
            page.display()
        )
    })?;
    let env = PASSED_ENV.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    let spec = TrustedSpec {
        program: setsid,
        args: vec!["--fork".into(), opener.into(), page.into()],
        cwd: "/".into(),
        env: env.collect(),
        stdin: Vec::new(),
        timeout: OPEN_TIMEOUT,
        stdout_bytes_max: OPENER_OUTPUT_BYTES_MAX,
    };
    run_trusted(spec).await.fail_with(ExitKind::Failed, || {
        "the desktop could not open a browser; run `docket dashboard --print` to print the address instead".to_owned()
    })?;
    Ok(())
}

/// Writes a page that redirects to `address` and that only this user can read.
fn write_redirect_page(page: &Path, address: &str) -> std::io::Result<()> {
    // Removed and created again, so that no other process has it open.
    match std::fs::remove_file(page) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(page)?;
    let address = address.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    writeln!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={address}\"><title>docket</title>\
         <a href=\"{address}\">The dashboard</a>"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn redirect_page_is_private_and_escapes_the_address() {
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("dashboard.html");
        std::fs::write(&page, "older").expect("writes");
        write_redirect_page(&page, "http://127.0.0.1:1/ui/#token=a\"><script>").expect("writes");
        let mode = std::fs::metadata(&page).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&page).expect("text");
        assert!(text.contains("url=http://127.0.0.1:1/ui/#token=a&quot;>&lt;script>"), "{text}");
        assert!(!text.contains("<script"), "{text}");
    }
}
