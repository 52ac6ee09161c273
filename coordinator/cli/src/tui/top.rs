//! `docket top`: everything as it goes, on one screen: what needs a person, what runs, workers.

mod screen;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use docket_schema::wire::Overview;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    connect::access::{Access, Need},
    context::Context,
    home::Ownership,
    output::{
        display,
        fail::{Chain, Exit, Failure, Outcome},
    },
    tui::step::{Heard, Key, Taken, is_there, keys_of_terminal},
};
use screen::{Look, draw, text};

/// How often it is asked for.
const EVERY: Duration = Duration::from_secs(1);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "What needs a person stands first, then what runs, what ended lately, the queues and workers; once a
second. q or Ctrl-C ends it, the arrows scroll. Without a terminal, and with --once, it is printed once;
--json gives it as one object.

Examples:
  docket top
  docket top --once
  docket top --json | jq '.asks[] | .title'"
)]
pub(crate) struct Args {
    /// Print it once and end
    #[arg(long)]
    once: bool,
}

/// Shows it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let mut access = Access::open(&cx, Need::Read).await?;
    let shown = shown(&cx, &mut access, args.once).await;
    access.close().await?;
    shown
}

async fn shown(cx: &Context, access: &mut Access, once: bool) -> Outcome {
    let overview = access.client.overview().await?;
    if cx.json() {
        display::say_json(&overview);
        return Ok(Exit::Ok);
    }
    if once || !is_there() {
        text(&overview, cx.screen.width()).iter().for_each(|row| display::say(row));
        return Ok(Exit::Ok);
    }
    live(cx, access, overview).await
}

/// The tidings that the loop gets of the coordinator.
type News = Outcome<Overview>;

/// Asks in the background, so that keys are heard while a coordinator does not answer. One that went away and serves the
/// home again may do that at another address: then that is where the next ones come from.
async fn next_of(cx: &Context, access: &mut Access) -> News {
    match access.client.overview().await {
        Ok(overview) => Ok(overview),
        Err(error) => {
            let failure = Failure::from(error);
            if failure.exit == Exit::Unreachable && cx.url.is_none() && is_served(cx) {
                let gone = std::mem::replace(access, Access::open(cx, Need::Read).await?);
                gone.close().await?;
            }
            Err(failure)
        }
    }
}

fn is_served(cx: &Context) -> bool {
    match cx.home.ownership() {
        Ok(Ownership::Owned(owner)) => owner.address.is_some() && !owner.is_gone(),
        Ok(Ownership::Starting | Ownership::Free) | Err(_) => false,
    }
}

async fn live(cx: &Context, access: &mut Access, mut overview: Overview) -> Outcome {
    let mut hangups = signal(SignalKind::hangup())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut screen = Taken::take()?;
    let wanted = Arc::new(AtomicBool::new(true));
    let mut keys = keys_of_terminal(Arc::clone(&wanted));
    let (mut scrolled, mut lost) = (0_u16, None);
    let mut news = Box::pin(later(cx, access));
    let outcome = loop {
        let look = Look {
            overview: &overview,
            scrolled,
            lost: lost.as_deref(),
            colors: cx.screen.colored(),
            keys: true,
        };
        let mut rows = 0;
        screen.draw(|buffer| rows = draw(&look, buffer))?;
        let height = screen.size().1;
        tokio::select! {
            heard = keys.recv() => match heard {
                None | Some(Heard::Key(Key::Char('q') | Key::Esc | Key::Ctrl('c' | 'd'))) => break Exit::Ok,
                Some(Heard::Key(Key::Down | Key::Char('j'))) => scrolled = scrolled.saturating_add(1),
                Some(Heard::Key(Key::Up | Key::Char('k'))) => scrolled = scrolled.saturating_sub(1),
                Some(Heard::Key(Key::PageDown | Key::Char(' '))) => scrolled = scrolled.saturating_add(height / 2),
                Some(Heard::Key(Key::PageUp)) => scrolled = scrolled.saturating_sub(height / 2),
                Some(Heard::Key(Key::Home | Key::Char('g'))) => scrolled = 0,
                Some(Heard::Key(Key::Ctrl('z'))) => screen.suspend()?,
                Some(Heard::Key(Key::Ctrl('l')) | Heard::Resized(..)) => screen.clear()?,
                Some(Heard::Key(_)) => {}
            },
            (told, access) = &mut news => {
                match told {
                    Ok(fresh) => (overview, lost) = (fresh, None),
                    Err(failure) => lost = Some(failure.text(Chain::Hidden)),
                }
                news = Box::pin(later(cx, access));
            }
            _ = hangups.recv() => break Exit::Ok,
            _ = terminations.recv() => break Exit::Ok,
            _ = interrupts.recv() => break Exit::Ok,
        }
        scrolled = scrolled.min(rows.saturating_sub(height.min(rows)));
    };
    wanted.store(false, Ordering::Relaxed);
    Ok(outcome)
}

/// The next tidings, a moment from now.
async fn later<'a>(cx: &Context, access: &'a mut Access) -> (News, &'a mut Access) {
    tokio::time::sleep(EVERY).await;
    (next_of(cx, access).await, access)
}
