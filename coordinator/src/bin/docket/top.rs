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
use docket_worker::client::Client;
use ratatui::{buffer::Buffer, layout::Rect};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    access::{Access, Need},
    context::Context,
    display,
    fail::{Chain, Exit, Failure, Outcome},
    step::{Heard, Key, Taken, is_there, keys_of_terminal},
};
use screen::{Look, draw};

/// How often it is asked for.
const EVERY: Duration = Duration::from_secs(1);
/// The screen where there is no terminal, wide enough for most titles.
const SIZE: (u16, u16) = (100, 60);

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
    let access = Access::open(&cx, Need::Read).await?;
    let shown = shown(&cx, &access.client, args.once).await;
    access.close().await?;
    shown
}

async fn shown(cx: &Context, client: &Client, once: bool) -> Outcome {
    let overview = client.overview().await?;
    if cx.json() {
        display::say_json(&overview);
        return Ok(Exit::Ok);
    }
    if once || !is_there() {
        print(cx, &overview);
        return Ok(Exit::Ok);
    }
    live(cx, client, overview).await
}

fn print(cx: &Context, overview: &Overview) {
    let columns = u16::try_from(cx.screen.columns()).unwrap_or(SIZE.0).max(SIZE.0);
    let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width: columns, height: SIZE.1 });
    draw(&Look { overview, scrolled: 0, lost: None, colors: false, keys: false }, &mut buffer);
    let cells: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    let rows: Vec<String> =
        cells.chunks(usize::from(columns)).map(|row| row.concat().trim_end().to_owned()).collect();
    let last = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
    rows.iter().take(last).for_each(|row| display::say(row));
}

async fn live(cx: &Context, client: &Client, mut overview: Overview) -> Outcome {
    let mut terminations = signal(SignalKind::terminate())?;
    let mut screen = Taken::take()?;
    let wanted = Arc::new(AtomicBool::new(true));
    let mut keys = keys_of_terminal(Arc::clone(&wanted));
    let (mut scrolled, mut lost) = (0_u16, None);
    let mut next = tokio::time::interval(EVERY);
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
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
                None | Some(Heard::Key(Key::Char('q') | Key::Esc | Key::Ctrl('c' | 'd'))) => break,
                Some(Heard::Key(Key::Down | Key::Char('j'))) => scrolled = scrolled.saturating_add(1),
                Some(Heard::Key(Key::Up | Key::Char('k'))) => scrolled = scrolled.saturating_sub(1),
                Some(Heard::Key(Key::PageDown | Key::Char(' '))) => scrolled = scrolled.saturating_add(height / 2),
                Some(Heard::Key(Key::PageUp)) => scrolled = scrolled.saturating_sub(height / 2),
                Some(Heard::Key(Key::Home | Key::Char('g'))) => scrolled = 0,
                Some(Heard::Key(Key::Ctrl('z'))) => screen.suspend()?,
                Some(Heard::Key(Key::Ctrl('l')) | Heard::Resized(..)) => screen.clear()?,
                Some(Heard::Key(_)) => {}
            },
            _ = next.tick() => match client.overview().await {
                Ok(fresh) => (overview, lost) = (fresh, None),
                Err(error) => lost = Some(Failure::from(error).text(Chain::Hidden)),
            },
            _ = terminations.recv() => break,
        }
        scrolled = scrolled.min(rows.saturating_sub(height.min(rows)));
    }
    wanted.store(false, Ordering::Relaxed);
    Ok(Exit::Ok)
}
