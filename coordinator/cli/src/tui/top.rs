//! `docket top`: a live overview of blocked tasks, running tasks, queues and workers.

mod overview_screen;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use docket_schema::api::OverviewResponse;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    home::HomeOwnership,
    output::{
        display,
        error::{CauseDisplay, CliError, CliResult, ExitKind},
    },
    tui::step::{KeyPress, TerminalGuard, TerminalInput, is_interactive, keys_of_terminal},
};
use overview_screen::{OverviewView, draw_overview, render_as_text};

/// Refresh interval.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `docket top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows tasks that need you, running and recently ended tasks, queues and workers, refreshed once a
second. q or Ctrl-C quits, the arrow keys scroll. Without a terminal, or with --once, the overview
is printed once; with --json as one object.

Examples:
  docket top
  docket top --once
  docket top --json | jq '.asks[] | .title'"
)]
pub(crate) struct TopArgs {
    /// Print the overview once and exit
    #[arg(long)]
    once: bool,
}

/// Shows the overview.
pub(crate) async fn run_top(cx: CliContext, args: TopArgs) -> CliResult {
    let mut access = Coordinator::connect(&cx, AccessMode::Read).await?;
    let shown = show_overview(&cx, &mut access, args.once).await;
    access.close().await?;
    shown
}

async fn show_overview(cx: &CliContext, access: &mut Coordinator, once: bool) -> CliResult {
    let overview = access.client.get_overview().await?;
    if cx.is_json() {
        display::print_json(&overview);
        return Ok(ExitKind::Ok);
    }
    if once || !is_interactive() {
        render_as_text(&overview, cx.screen.line_width()).iter().for_each(|row| display::print_line(row));
        return Ok(ExitKind::Ok);
    }
    run_live(cx, access, overview).await
}

/// The result of a request for the overview.
type OverviewResult = CliResult<OverviewResponse>;

/// Requests the overview in the background, so that keys work while a coordinator does not respond. After a
/// reconnect the home may have a coordinator at another address, which is then used.
async fn fetch_overview_or_reconnect(cx: &CliContext, access: &mut Coordinator) -> OverviewResult {
    match access.client.get_overview().await {
        Ok(overview) => Ok(overview),
        Err(error) => {
            let failure = CliError::from(error);
            if failure.exit == ExitKind::Unreachable && cx.url.is_none() && is_home_served(cx) {
                let gone = std::mem::replace(access, Coordinator::connect(cx, AccessMode::Read).await?);
                gone.close().await?;
            }
            Err(failure)
        }
    }
}

fn is_home_served(cx: &CliContext) -> bool {
    match cx.home.ownership() {
        Ok(HomeOwnership::Owned(owner)) => owner.address.is_some() && !owner.is_gone(),
        Ok(HomeOwnership::Starting | HomeOwnership::Free) | Err(_) => false,
    }
}

async fn run_live(cx: &CliContext, access: &mut Coordinator, mut overview: OverviewResponse) -> CliResult {
    let mut hangups = signal(SignalKind::hangup())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut screen = TerminalGuard::acquire()?;
    let wanted = Arc::new(AtomicBool::new(true));
    let mut keys = keys_of_terminal(Arc::clone(&wanted));
    let (mut scrolled, mut lost) = (0_u16, None);
    let mut news = Box::pin(fetch_after_interval(cx, access));
    let outcome = loop {
        let look = OverviewView {
            overview: &overview,
            scrolled,
            connection_error: lost.as_deref(),
            colors: cx.screen.has_colors(),
            shows_keys: true,
        };
        let mut rows = 0;
        screen.draw(|buffer| rows = draw_overview(&look, buffer))?;
        let height = screen.size().1;
        tokio::select! {
            heard = keys.recv() => match heard {
                None | Some(TerminalInput::Key(KeyPress::Char('q') | KeyPress::Esc | KeyPress::Ctrl('c' | 'd'))) => break ExitKind::Ok,
                Some(TerminalInput::Key(KeyPress::Down | KeyPress::Char('j'))) => scrolled = scrolled.saturating_add(1),
                Some(TerminalInput::Key(KeyPress::Up | KeyPress::Char('k'))) => scrolled = scrolled.saturating_sub(1),
                Some(TerminalInput::Key(KeyPress::PageDown | KeyPress::Char(' '))) => scrolled = scrolled.saturating_add(height / 2),
                Some(TerminalInput::Key(KeyPress::PageUp)) => scrolled = scrolled.saturating_sub(height / 2),
                Some(TerminalInput::Key(KeyPress::Home | KeyPress::Char('g'))) => scrolled = 0,
                Some(TerminalInput::Key(KeyPress::Ctrl('z'))) => screen.suspend()?,
                Some(TerminalInput::Key(KeyPress::Ctrl('l')) | TerminalInput::Resized(..)) => screen.clear()?,
                Some(TerminalInput::Key(_)) => {}
            },
            (told, access) = &mut news => {
                match told {
                    Ok(fresh) => (overview, lost) = (fresh, None),
                    Err(failure) => lost = Some(failure.format_message(CauseDisplay::Hidden)),
                }
                news = Box::pin(fetch_after_interval(cx, access));
            }
            _ = hangups.recv() => break ExitKind::Ok,
            _ = terminations.recv() => break ExitKind::Ok,
            _ = interrupts.recv() => break ExitKind::Ok,
        }
        scrolled = scrolled.min(rows.saturating_sub(height.min(rows)));
    };
    wanted.store(false, Ordering::Relaxed);
    Ok(outcome)
}

/// Requests the next overview after the refresh interval.
async fn fetch_after_interval<'a>(
    cx: &CliContext,
    access: &'a mut Coordinator,
) -> (OverviewResult, &'a mut Coordinator) {
    tokio::time::sleep(REFRESH_INTERVAL).await;
    (fetch_overview_or_reconnect(cx, access).await, access)
}
