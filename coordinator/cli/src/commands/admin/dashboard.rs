//! `docket dashboard`: opens the dashboard in a browser, signed in.
//!
//! The token goes into the address behind its `#`, which no browser sends with a request; the page takes it out at once.
//! Histories may keep it all the same, so it is one that ends within the day. To the browser goes a file that only this user may read and that leads there: what stands in a command line every
//! user of the machine can see.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{IsTerminal as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use docket_schema::{system::Role, wire::CreateTokenRequest};
use docket_worker::{
    client::Client,
    process::{TrustedSpec, run_trusted},
    secret::Secret,
};

use crate::{
    commands::local::doctor::find_in_path,
    connect::access::token_given,
    context::Context,
    home::Ownership,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
};

/// How long a browser stays signed in: a day's work.
const STAY_MS: u64 = 12 * 60 * 60 * 1000;
/// How long the desktop may take to hand the file to a browser.
const OPEN_MS: Duration = Duration::from_secs(10);
/// What the desktop's opener says, at most: nobody reads it.
const SAID_BYTES_MAX: usize = 64 * 1024;
/// What the opener and the browser need of the environment.
const HANDED_ON: [&str; 14] = [
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

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Opens it where there is a desktop, and prints its address otherwise. The address holds a token that is good
for 12 hours (or DOCKET_TOKEN, where that is set): whoever has it has what the token is good for.

Examples:
  docket dashboard
  docket dashboard --print
  DOCKET_TOKEN=$(docket token create --name me --role read --json | jq -r .secret) docket --url http://10.0.0.5:7117 dashboard"
)]
pub(crate) struct Args {
    /// Print the address, open nothing
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let (address, token) = whereabouts(&cx)?;
    let token = for_a_day(&address, token).await?;
    let place = format!("{}/ui/", address.trim_end_matches('/'));
    let signed_in = format!("{place}#token={}", token.expose());
    if cx.json() {
        display::say_json(&serde_json::json!({ "address": place, "signed_in": signed_in }));
        return Ok(Exit::Ok);
    }
    let desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let opens = !args.print && desktop && std::io::stdout().is_terminal();
    match opener().filter(|_| opens) {
        Some(opener) => {
            open(&cx, opener, &signed_in).await?;
            display::say(&format!("the dashboard opens at {place}"));
        }
        None => display::say(&signed_in),
    }
    Ok(Exit::Ok)
}

/// Whose token it is.
enum Held {
    /// Somebody gave it, and says by it what the page may do.
    Given(Secret),
    /// The home's own, which never ends.
    Home(Secret),
}

/// The token that a browser gets: it keeps in its history what it once had. So the home's own is not for it, but one
/// that ends by itself.
async fn for_a_day(address: &str, token: Held) -> Outcome<Secret> {
    let home = match token {
        Held::Given(token) => return Ok(token),
        Held::Home(token) => token,
    };
    let id = docket_coordinator::clock::new_id().simple().to_string();
    let name = format!("browser-{}", &id[id.len() - 12..]);
    let name = name.parse().map_err(anyhow::Error::from)?;
    let request = CreateTokenRequest { name, role: Role::Admin, expires_in_ms: Some(STAY_MS) };
    let made = Client::new(address, home)?.create_token(&request).await?;
    Secret::new(&made.secret)
        .ok_or_else(|| Failure::new(Exit::Failed, "the coordinator made a token that is none"))
}

/// Where the coordinator answers, and with what token.
fn whereabouts(cx: &Context) -> Outcome<(String, Held)> {
    let owned = match cx.home.ownership()? {
        Ownership::Owned(owner) => owner.address,
        Ownership::Starting | Ownership::Free => None,
    };
    match (&cx.url, owned) {
        (Some(url), owned) => match token_given() {
            Some(token) => Ok((url.clone(), Held::Given(token))),
            None if owned.as_deref() == Some(url.trim_end_matches('/')) => {
                Ok((url.clone(), Held::Home(cx.home.token()?)))
            }
            None => Err(Failure::new(
                Exit::Refused,
                "DOCKET_TOKEN is not set; it is in the file `token` of the coordinator's home",
            )),
        },
        (None, Some(address)) => match token_given() {
            Some(token) => Ok((address, Held::Given(token))),
            None => Ok((address, Held::Home(cx.home.token()?))),
        },
        (None, None) => Err(Failure::new(
            Exit::Unreachable,
            format!("no coordinator serves {}; start one with `docket up`", cx.home.path().display()),
        )),
    }
}

/// What opens a file as the desktop would, in a session of its own: a browser that it starts outlives this command.
fn opener() -> Option<(PathBuf, PathBuf)> {
    Some((find_in_path("setsid")?, find_in_path("xdg-open")?))
}

async fn open(cx: &Context, (setsid, opener): (PathBuf, PathBuf), address: &str) -> Outcome<()> {
    let page = cx.home.path().join("dashboard.html");
    lead_to(&page, address).fail_with(Exit::Failed, || {
        format!("cannot write {}; `docket dashboard --print` tells the address", page.display())
    })?;
    let env = HANDED_ON.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    let spec = TrustedSpec {
        program: setsid,
        args: vec!["--fork".into(), opener.into(), page.into()],
        cwd: "/".into(),
        env: env.collect(),
        stdin: Vec::new(),
        timeout: OPEN_MS,
        stdout_bytes_max: SAID_BYTES_MAX,
    };
    run_trusted(spec).await.fail_with(Exit::Failed, || {
        "the desktop opens no browser; `docket dashboard --print` tells the address".to_owned()
    })?;
    Ok(())
}

/// A page that leads to `address`, for this user's eyes.
fn lead_to(page: &Path, address: &str) -> std::io::Result<()> {
    // Made anew, so that nobody else has it open.
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
    fn the_page_that_leads_there_is_for_its_user_alone_and_escapes_the_address() {
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("dashboard.html");
        std::fs::write(&page, "older").expect("writes");
        lead_to(&page, "http://127.0.0.1:1/ui/#token=a\"><script>").expect("writes");
        let mode = std::fs::metadata(&page).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&page).expect("text");
        assert!(text.contains("url=http://127.0.0.1:1/ui/#token=a&quot;>&lt;script>"), "{text}");
        assert!(!text.contains("<script"), "{text}");
    }
}
