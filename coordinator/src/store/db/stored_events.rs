//! Events as the database holds them.

use docket_schema::{
    event::{Envelope, Payload},
    ids::{Epoch, EventHash, Position, Seq, StreamId, Timestamp, Turn},
};

use super::{
    conn::Conn,
    db_error::TransactionError,
    values::{Arg, Row},
};
use crate::store::{StoreError, api::corrupt};

/// Events read at once.
const PAGE: usize = 1000;

/// Columns of [`envelope`], stream name first.
const EVENT_COLUMNS: &str = "s.name, e.seq, e.position, e.recorded_at, e.turn, e.epoch, e.kind, \
     e.version, e.payload, e.prev_hash, e.hash";

pub(crate) fn envelope(row: &mut Row) -> Result<Envelope, StoreError> {
    let name = row.text(0)?;
    let stream: StreamId = name.parse().map_err(|_| corrupt(format!("a stream named `{name}`")))?;
    let place = row.format_cell(1);
    event_of(row, stream).map_err(|_| StoreError::Corrupt {
        what: format!("{name}: event {place} was altered (it is not in its form)"),
    })
}

fn event_of(row: &mut Row, stream: StreamId) -> Result<Envelope, StoreError> {
    Ok(Envelope {
        stream,
        seq: Seq(row.count(1)?),
        position: Position(row.count(2)?),
        recorded_at: Timestamp(row.int(3)?),
        turn: Turn(row.small(4)?),
        epoch: Epoch(row.count(5)?),
        kind: row.text(6)?,
        version: u16::try_from(row.int(7)?).unwrap_or(u16::MAX),
        payload: Payload::from_store(row.text(8)?),
        prev_hash: EventHash(row.fixed(9)?),
        hash: EventHash(row.fixed(10)?),
    })
}

/// The statement that selects events `e` of streams `s`, for [`envelope`].
pub(crate) fn select_events(condition: &str) -> String {
    format!("SELECT {EVENT_COLUMNS} FROM events e JOIN streams s ON s.id = e.stream_id WHERE {condition}")
}

/// Hands every event of a stream to `each`, in order, within the caller's transaction.
pub(crate) async fn for_each_event(
    conn: &mut Conn<'_>,
    stream: &StreamId,
    mut each: impl FnMut(Envelope) -> Result<(), StoreError> + Send,
) -> Result<(), TransactionError> {
    let sql = select_events("s.name = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3");
    let mut after = Seq(0);
    loop {
        let args = vec![Arg::Text(stream.to_string()), Arg::count(after.0), Arg::count(PAGE as u64)];
        let page = conn.rows(&sql, args).await?;
        let is_last = page.len() < PAGE;
        for mut row in page {
            let event = envelope(&mut row)?;
            after = event.seq;
            each(event)?;
        }
        if is_last {
            return Ok(());
        }
    }
}
