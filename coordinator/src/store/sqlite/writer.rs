//! The one writer of a SQLite file. Its desk outlives a batch, so an append reads nothing; the
//! statements still carry the fence, so that a second process on the same file is noticed and not
//! overwritten. It has a thread to itself, which its statements may block.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{checkpoint::Checkpointer, direct, open::unopened};
use crate::store::{
    StoreError,
    ask::{Answered, Ask, now_of},
    conn::{Conn, Dialect},
    desk::{Desk, LoadError},
    fault::{Fault, again, fault, store_error},
    lane::Committer,
    lone::run_lone,
    plan::plan_batch,
    progress::{LOCK_HELD, WriterProgress},
    write::{named_blobs_are_there, writes},
};

/// How long others may hold the file before a write gives up.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// Pause before a busy file is tried again; SQLite has waited itself before it says busy.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// How often a batch is decided again after another process's write was noticed.
const STALE_MAX: u32 = 3;

pub(super) struct SqliteWriter {
    conn: Connection,
    desk: Desk,
    next_position: u64,
    checkpointer: Checkpointer,
    progress: Arc<WriterProgress>,
}

impl SqliteWriter {
    pub(super) async fn new(conn: Connection, checkpointer: Checkpointer) -> Result<Self, StoreError> {
        let desk = Desk::new(Dialect::Sqlite, 0..0);
        let mut writer = Self { conn, desk, next_position: 1, checkpointer, progress: Arc::default() };
        writer.forget().await.map_err(unopened)?;
        Ok(writer)
    }

    /// Forgets what was read, and reads where to go on.
    async fn forget(&mut self) -> Result<(), sqlx::Error> {
        let sql = "SELECT coalesce((SELECT max(position) FROM events), 0), coalesce((SELECT max(id) FROM streams), 0)";
        let rows = Conn::Direct(&mut self.conn).rows(sql, Vec::new()).await?;
        let cell = |at| rows.first().and_then(|row| row.int(at).ok()).unwrap_or(0);
        self.next_position = cell(0).unsigned_abs() + 1;
        self.desk = Desk::new(Dialect::Sqlite, cell(1) + 1..i64::MAX);
        Ok(())
    }

    /// One transaction for all, decided again as long as that helps.
    async fn attempt(&mut self, asks: &[&Ask]) -> Result<Vec<Answered>, StoreError> {
        let started = Instant::now();
        let doing = asks.first().map_or("writing", |ask| ask.doing());
        let mut stale = 0;
        loop {
            let source = match self.once(asks).await {
                Ok(answers) => return Ok(answers),
                Err(LoadError::Store(error)) => {
                    self.desk.clear();
                    return Err(error);
                }
                Err(LoadError::LimitsUnexpected) => unreachable!("only PostgreSQL has a lock for limits"),
                Err(LoadError::Sql(source)) => source,
            };
            // Not every error ends a transaction by itself.
            let _ = Conn::Direct(&mut self.conn).run("ROLLBACK", Vec::new()).await;
            self.desk.clear();
            let fault = fault(Dialect::Sqlite, &source);
            let hopeless = match fault {
                Fault::Again => {
                    self.progress.note_obstacle(LOCK_HELD);
                    std::thread::sleep(BUSY_PAUSE);
                    started.elapsed() > BUSY_MAX
                }
                Fault::Stale => {
                    stale += 1;
                    stale > STALE_MAX
                }
                Fault::Away | Fault::ReadOnly | Fault::Full | Fault::Damaged | Fault::Ours => true,
            };
            if hopeless
                || self
                    .forget()
                    .await
                    .is_err_and(|e| crate::store::fault::fault(Dialect::Sqlite, &e) != Fault::Again)
            {
                return Err(store_error(Dialect::Sqlite, doing, source));
            }
        }
    }

    async fn once(&mut self, asks: &[&Ask]) -> Result<Vec<Answered>, LoadError> {
        self.desk.begin(now_of(asks));
        let mut answers = plan_batch(&mut self.desk, &mut Conn::Direct(&mut self.conn), asks).await?;
        if !self.desk.staged.is_empty() {
            let base = self.next_position;
            self.write(base)?;
            self.next_position += self.desk.staged.events.len() as u64;
            for answer in &mut answers {
                answer.place(base);
            }
        }
        Ok(answers)
    }

    fn write(&mut self, base: u64) -> Result<(), sqlx::Error> {
        let named = named_blobs_are_there(&self.desk.staged);
        let mut writes = writes(&mut self.desk, base);
        writes.push(named);
        direct::run(&self.conn, "BEGIN IMMEDIATE", &[])?;
        for write in &writes {
            if !write.run(&self.conn)? {
                return Err(direct::row_is_gone());
            }
        }
        direct::run(&self.conn, "COMMIT", &[])?;
        Ok(())
    }
}

impl Committer for SqliteWriter {
    const HAS_A_THREAD: bool = true;

    fn report_to(&mut self, progress: Arc<WriterProgress>) {
        self.progress = progress;
    }

    async fn batch(&mut self, asks: &[&Ask]) -> Vec<Answered> {
        let error = match self.attempt(asks).await {
            Ok(answers) => return answers,
            Err(error) => error,
        };
        let one_may_be_at_fault =
            matches!(error, StoreError::Fault { .. } | StoreError::Corrupt { .. } | StoreError::Full { .. });
        if asks.len() == 1 || !one_may_be_at_fault {
            return asks.iter().map(|ask| ask.failed(again(&error))).collect();
        }
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            answers.push(match self.attempt(&[*ask]).await {
                Ok(mut one) => one.pop().expect("one ask, one answer"),
                Err(error) => ask.failed(error),
            });
        }
        answers
    }

    async fn lone(&mut self, ask: &Ask) -> Answered {
        let started = Instant::now();
        loop {
            let mut conn = Conn::Direct(&mut self.conn);
            let result = async {
                conn.run("BEGIN IMMEDIATE", Vec::new()).await?;
                let answer = run_lone(&mut conn, ask).await?;
                conn.run("COMMIT", Vec::new()).await?;
                Ok::<_, LoadError>(answer)
            }
            .await;
            // What a call asks for changes nothing that is remembered, and comes often.
            let moves_none = matches!(
                ask,
                Ask::Permit(_) | Ask::CallEnded { .. } | Ask::Reserve { .. } | Ask::CountBatch { .. }
            );
            if !moves_none {
                self.desk.clear();
            }
            let error = match result {
                Ok(answer) => return answer,
                Err(error) => error,
            };
            let _ = Conn::Direct(&mut self.conn).run("ROLLBACK", Vec::new()).await;
            match error {
                LoadError::Store(error) => return ask.failed(error),
                LoadError::LimitsUnexpected => unreachable!("only PostgreSQL has a lock for limits"),
                LoadError::Sql(source) => {
                    let busy = fault(Dialect::Sqlite, &source) == Fault::Again;
                    if busy {
                        self.progress.note_obstacle(LOCK_HELD);
                    }
                    if !busy || started.elapsed() > BUSY_MAX {
                        return ask.failed(store_error(Dialect::Sqlite, ask.doing(), source));
                    }
                }
            }
        }
    }

    fn between(&mut self) {
        self.checkpointer.committed(&self.conn);
    }

    async fn close(mut self) {
        // Before the last connection goes: that empties the log.
        self.checkpointer.end();
        // What was acknowledged is in the write-ahead log already.
        let _ = self.conn.close();
    }
}
