//! Events as stored in the database.

use docket_schema::{
    event::{Envelope, Payload},
    ids::{Epoch, EventHash, Position, Seq, StreamId, Timestamp, Turn},
};

use super::{
    conn::DbConn,
    db_error::TransactionError,
    values::{SqlArg, SqlRow},
};
use crate::store::{StoreError, api::corrupt_error};

/// Events read at once.
const PAGE_EVENTS: usize = 1000;

/// Columns read by [`read_envelope`], stream name first.
const EVENT_COLUMNS: &str = "s.name, e.seq, e.position, e.recorded_at, e.turn, e.epoch, e.kind, \
     e.version, e.payload, e.prev_hash, e.hash";

pub(crate) fn read_envelope(row: &mut SqlRow) -> Result<Envelope, StoreError> {
    let name = row.get_text(0)?;
    let stream: StreamId = name.parse().map_err(|_| corrupt_error(format!("a stream named `{name}`")))?;
    let place = row.format_cell(1);
    read_stored_event(row, stream).map_err(|_| StoreError::Corrupt {
        what: format!("{name}: event {place} was altered (it is not in its form)"),
    })
}

fn read_stored_event(row: &mut SqlRow, stream: StreamId) -> Result<Envelope, StoreError> {
    Ok(Envelope {
        stream,
        seq: Seq(row.get_u64(1)?),
        position: Position(row.get_u64(2)?),
        recorded_at: Timestamp(row.get_i64(3)?),
        turn: Turn(row.get_u32(4)?),
        epoch: Epoch(row.get_u64(5)?),
        kind: row.get_text(6)?,
        version: u16::try_from(row.get_i64(7)?).unwrap_or(u16::MAX),
        payload: Payload::from_store(row.get_text(8)?),
        prev_hash: EventHash(row.get_array(9)?),
        hash: EventHash(row.get_array(10)?),
    })
}

/// Returns the statement that selects events `e` of streams `s`, for [`read_envelope`].
pub(crate) fn select_events_sql(condition: &str) -> String {
    format!("SELECT {EVENT_COLUMNS} FROM events e JOIN streams s ON s.id = e.stream_id WHERE {condition}")
}

/// Passes every event of a stream to `each`, in order, within the caller's transaction.
pub(crate) async fn for_each_event(
    conn: &mut DbConn<'_>,
    stream: &StreamId,
    mut each: impl FnMut(Envelope) -> Result<(), StoreError> + Send,
) -> Result<(), TransactionError> {
    let sql = select_events_sql("s.name = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3");
    let mut after = Seq(0);
    loop {
        let args = vec![
            SqlArg::Text(stream.to_string()),
            SqlArg::from_u64(after.0),
            SqlArg::from_u64(PAGE_EVENTS as u64),
        ];
        let page = conn.query_rows(&sql, args).await?;
        let is_last = page.len() < PAGE_EVENTS;
        for mut row in page {
            let event = read_envelope(&mut row)?;
            after = event.seq;
            each(event)?;
        }
        if is_last {
            return Ok(());
        }
    }
}
