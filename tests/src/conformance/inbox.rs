//! The inbox: tasks enqueued within an application's own transaction.

use docket_coordinator::{
    background::consume_inbox_once,
    clock::Clock,
    store::{InboxAction, InboxContent, InboxMove, InboxOutcome, NewTask},
    wakeups::WakeupBus,
};
use docket_schema::{
    event::TypedEvent as _,
    ids::{StreamId, TaskId},
    redact::Redactor,
    task::{TaskEvent, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase,
    database::RawConnection,
    fixture::{new_blob, task_spec},
};

/// Runs one pass of a coordinator's inbox job; returns how many rows it settled.
async fn process_inbox(world: &StoreFixture) -> usize {
    consume_inbox_once(&*world.store, &Redactor::default(), &Clock::new(), &WakeupBus::default())
        .await
        .expect("the store answers")
}

/// The documented statement that enqueues a task and returns its id.
fn enqueue_statement(raw: &RawConnection, spec: &str) -> String {
    match raw {
        RawConnection::Sqlite(_) => {
            format!("INSERT INTO inbox (spec, submitted_by) VALUES ('{spec}', 'shop') RETURNING id")
        }
        RawConnection::Postgres(_) => format!("SELECT docket_enqueue('{spec}')::text"),
    }
}

/// Inserts a row directly, without the function, as applications must not: with `id` and all.
async fn insert_row(raw: &mut RawConnection, id: &str, spec: &str) {
    let sql =
        format!("INSERT INTO inbox (id, spec, submitted_by, created_at) VALUES ('{id}', '{spec}', 'x', 1)");
    raw.execute(&sql).await.expect("inserts");
}

fn spec_json(task: TaskId, more: &str) -> String {
    format!(r#"{{"like": "{task}"{more}}}"#)
}

fn parse_task_id(text: &str) -> TaskId {
    text.parse().expect("the id of a task")
}

async fn count_submissions(world: &StoreFixture) -> usize {
    world.read_feed().await.iter().filter(|event| event.kind == "TaskSubmitted").count()
}

async fn count_rows(world: &StoreFixture) -> usize {
    world.store.list_inbox(100).await.expect("reads").len()
}

const BEGIN: &str = "BEGIN";

pub(super) async fn enqueue_joins_the_callers_transaction(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let template = world.submit(TaskSpec { priority: 7, ..task_spec("template") }).await;
    let mut shop = world.database.raw_connection().await;
    shop.execute("CREATE TABLE orders (number BIGINT PRIMARY KEY, task TEXT)")
        .await
        .expect("a separate table");

    // Rolled back: neither the order nor the task exists.
    shop.execute(BEGIN).await.expect("begins");
    shop.execute("INSERT INTO orders VALUES (1, NULL)").await.expect("inserts");
    let sql = enqueue_statement(&shop, &spec_json(template, r#", "title": "one""#));
    shop.query_text(&sql).await.expect("enqueues");
    shop.execute("ROLLBACK").await.expect("rolls back");
    assert_eq!((process_inbox(&world).await, count_rows(&world).await), (0, 0));
    assert_eq!(shop.query_number("SELECT count(*) FROM orders").await.expect("counts"), 0);

    // Committed: both exist, and the order knows its task.
    shop.execute(BEGIN).await.expect("begins");
    let sql = enqueue_statement(&shop, &spec_json(template, r#", "title": "two", "text": "mend it""#));
    let made = shop.query_text(&sql).await.expect("enqueues");
    shop.execute(&format!("INSERT INTO orders VALUES (2, '{made}')")).await.expect("inserts");
    assert_eq!(process_inbox(&world).await, 0, "it is invisible before the commit");
    shop.execute("COMMIT").await.expect("commits");
    assert_eq!(process_inbox(&world).await, 1);
    let stored = shop.query_text("SELECT task FROM orders WHERE number = 2").await.expect("reads");
    let task = world.task(parse_task_id(&stored)).await;
    assert_eq!(
        (task.state, task.spec.title.as_str(), task.spec.text.as_str()),
        (TaskState::Available, "two", "mend it")
    );
    assert_eq!((task.spec.priority, task.spec.base), (7, task_spec("x").base), "the rest is as the other's");
    let first = world.read_stream(StreamId::Task(task.id)).await.remove(0);
    let submitted = TaskEvent::decode(&first.kind, first.version, first.payload.as_str()).expect("decodes");
    let by = if let TaskEvent::TaskSubmitted(submitted) = submitted { submitted.by } else { String::new() };
    let role = match &mut shop {
        RawConnection::Sqlite(_) => "shop".to_owned(),
        RawConnection::Postgres(_) => shop.query_text("SELECT session_user::text").await.expect("reads"),
    };
    assert_eq!(by, format!("inbox/{role}"));
    assert_eq!(task.id.0.get_version_num(), 7, "ids sort by their time");
    assert_eq!(
        (count_submissions(&world).await, count_rows(&world).await, process_inbox(&world).await),
        (2, 0, 0)
    );
    world.check_consistency().await;
}

pub(super) async fn crash_between_enqueue_and_submit_neither_loses_nor_duplicates_tasks(
    database: TestDatabase,
) {
    let world = StoreFixture::open(database).await;
    let template = world.submit(task_spec("template")).await;
    let mut shop = world.database.raw_connection().await;
    // The application dies before its commit.
    let mut dies = world.database.raw_connection().await;
    dies.execute(BEGIN).await.expect("begins");
    let sql = enqueue_statement(&dies, &spec_json(template, ""));
    dies.query_text(&sql).await.expect("enqueues");
    drop(dies);
    // The coordinator dies between reading and committing: the row it read is still there.
    let sql = enqueue_statement(&shop, &spec_json(template, r#", "title": "kept""#));
    let kept = shop.query_text(&sql).await.expect("enqueues");
    let seen = world.store.list_waiting_inbox(10).await.expect("reads");
    assert_eq!(seen.len(), 1, "{seen:?}");
    world.store.close().await;
    let world = world.open_second_coordinator().await;
    assert_eq!(process_inbox(&world).await, 1);
    // The coordinator dies right after its commit: another reader that knew of the row finds it gone.
    let found = InboxContent::Task(Box::new(NewTask {
        id: parse_task_id(&kept),
        spec: task_spec("other"),
        fork: None,
    }));
    let again = vec![InboxMove { row: kept.clone(), by: "x".to_owned(), content: found }];
    let moved = world.store.consume_inbox(again, world.now()).await.expect("answers");
    assert_eq!(moved, [InboxOutcome::Gone]);
    // The application does not know whether its commit succeeded, and enqueues under the same id.
    let spec = spec_json(template, r#", "title": "kept""#);
    for _ in 0..2 {
        let sql = match &shop {
            RawConnection::Sqlite(_) => format!(
                "INSERT INTO inbox (id, spec) VALUES ('{kept}', '{spec}') ON CONFLICT DO NOTHING RETURNING 'done'"
            ),
            RawConnection::Postgres(_) => format!("SELECT docket_enqueue('{spec}', '{kept}')::text"),
        };
        let _ = shop.query_text(&sql).await;
    }
    assert_eq!((count_rows(&world).await, process_inbox(&world).await, count_rows(&world).await), (1, 1, 0));
    assert_eq!(world.task(parse_task_id(&kept)).await.spec.title, "kept");
    assert_eq!(count_submissions(&world).await, 2, "the template and one");
    world.check_consistency().await;
}

/// The row is the only copy of the application's task: it stays, with the reason.
pub(super) async fn row_with_a_taken_task_id_stays(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let template = world.submit(task_spec("template")).await;
    let mut shop = world.database.raw_connection().await;
    let taken = TaskId(world.next_id());
    let known = NewTask { id: taken, spec: task_spec("known"), fork: None };
    world.store.submit(vec![known], "me".to_owned(), world.now()).await.expect("accepted");
    let least = world.next_id().to_string();
    insert_row(&mut shop, &taken.to_string(), &spec_json(template, r#", "title": "lost?""#)).await;
    insert_row(&mut shop, &least, &spec_json(template, r#", "priority": -32768"#)).await;
    assert_eq!(process_inbox(&world).await, 2);
    let refused = world.store.list_inbox(100).await.expect("reads");
    let why = |id: &str| refused.iter().find(|row| row.id == id).and_then(|row| row.refused.clone());
    let reason = why(&taken.to_string()).expect("refused");
    assert!(reason.contains("`known`") && reason.contains("`lost?`"), "{reason}");
    let reason = why(&least).expect("refused");
    assert!(reason.contains("`priority` must be within -1000 and 1000"), "{reason}");
    assert_eq!((refused.len(), count_submissions(&world).await), (2, 2));
    // With the same content as the existing id, the row is that task, enqueued again.
    let same = serde_json::to_string(&task_spec("known")).expect("serializes");
    let sql =
        format!("UPDATE inbox SET spec = '{same}', refused = NULL, refused_at = NULL WHERE id = '{taken}'");
    shop.execute(&sql).await.expect("writes");
    assert_eq!(
        (process_inbox(&world).await, count_rows(&world).await, count_submissions(&world).await),
        (1, 1, 2)
    );
    world.check_consistency().await;
}

/// A manifest of no files, which no case here has stored.
const EMPTY_MANIFEST: &[u8] = b"docket-manifest-1\n";

pub(super) async fn invalid_row_stays_and_does_not_block_others(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let template = world.submit(task_spec("template")).await;
    let mut shop = world.database.raw_connection().await;
    let ids: Vec<String> = (0..8).map(|_| world.next_id().to_string()).collect();
    let based = |title: &str, manifest: &[u8]| {
        let mut spec = task_spec(title);
        spec.base.manifest = new_blob(manifest).blob;
        serde_json::to_string(&spec).expect("serializes")
    };
    let no_manifest = b"no list of files";
    world.store.put_blobs(vec![new_blob(no_manifest)], world.now()).await.expect("stores");
    let blobless = based("no tree", EMPTY_MANIFEST);
    let waits =
        spec_json(template, &format!(r#", "conditions": {{"after": ["{}"]}}"#, TaskId(world.next_id())));
    insert_row(&mut shop, &ids[0], "{ no json").await;
    insert_row(&mut shop, &ids[1], &spec_json(template, r#", "tittle": "x""#)).await;
    insert_row(&mut shop, &ids[2], &blobless).await;
    insert_row(&mut shop, &ids[3], &spec_json(TaskId(world.next_id()), "")).await;
    insert_row(&mut shop, "no uuid", &spec_json(template, "")).await;
    insert_row(&mut shop, &ids[4], &spec_json(template, r#", "priority": 2000"#)).await;
    insert_row(&mut shop, &ids[5], &waits).await;
    insert_row(&mut shop, &ids[6], r#"{"title": "x", "text": "y"}"#).await;
    insert_row(&mut shop, &ids[7], &based("no manifest", no_manifest)).await;
    let sql = enqueue_statement(&shop, &spec_json(template, r#", "title": "good""#));
    let good = shop.query_text(&sql).await.expect("enqueues");
    assert_eq!(process_inbox(&world).await, 10);
    assert_eq!(world.task(parse_task_id(&good)).await.state, TaskState::Available);

    let refused = world.store.list_inbox(100).await.expect("reads");
    let why = |id: &str| {
        let row = refused.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("{id}: {refused:#?}"));
        assert!(row.refused_at.is_some());
        row.refused.clone().unwrap_or_default()
    };
    for (row, words) in [
        (ids[0].as_str(), "invalid JSON"),
        (&ids[1], "unknown field `tittle`"),
        (&ids[2], "no tree is stored under its base"),
        (&ids[3], "which does not exist"),
        ("no uuid", "its id must be a UUID"),
        (&ids[4], "`priority` must be within -1000 and 1000"),
        (&ids[5], "dependency "),
        (&ids[6], "missing field `base`"),
        (&ids[7], "`base.manifest` must be a file list"),
    ] {
        assert!(why(row).contains(words), "{row}: {}", why(row));
    }
    assert_eq!(
        (refused.len(), process_inbox(&world).await),
        (9, 0),
        "they are not looked at again by themselves"
    );
    assert_eq!(world.store.count_inbox().await.expect("counts"), (0, 9));

    // One row is fixed and examined again; another is dropped.
    world.store.put_blobs(vec![new_blob(EMPTY_MANIFEST)], world.now()).await.expect("stores");
    let act =
        async |row: &str, act| world.store.apply_inbox_action(row.to_owned(), act).await.expect("answers");
    assert!(act(&ids[2], InboxAction::Retry).await);
    assert_eq!(process_inbox(&world).await, 1);
    assert_eq!(world.task(parse_task_id(&ids[2])).await.spec.title, "no tree");
    assert!(act("no uuid", InboxAction::Drop).await);
    assert!(!act("no uuid", InboxAction::Drop).await && !act(&ids[2], InboxAction::Retry).await);
    assert_eq!(world.store.count_inbox().await.expect("counts"), (0, 7));
    world.check_consistency().await;
}

pub(super) async fn many_coordinators_process_each_row_once(database: TestDatabase) {
    const ROWS: usize = 60;
    let world = StoreFixture::open(database).await;
    let template = world.submit(task_spec("template")).await;
    let mut shop = world.database.raw_connection().await;
    let mut made = Vec::new();
    shop.execute(BEGIN).await.expect("begins");
    for _ in 0..ROWS {
        let sql = enqueue_statement(&shop, &spec_json(template, ""));
        made.push(parse_task_id(&shop.query_text(&sql).await.expect("enqueues")));
    }
    shop.execute("COMMIT").await.expect("commits");
    let all = [world.clone(), world.open_second_coordinator().await, world.open_second_coordinator().await];
    let rounds = all.iter().cloned().map(|world| {
        tokio::spawn(async move {
            let mut settled = 0;
            while count_rows(&world).await > 0 {
                settled += process_inbox(&world).await;
            }
            settled
        })
    });
    let mut settled = 0;
    for round in rounds.collect::<Vec<_>>() {
        settled += round.await.expect("no panic");
    }
    assert_eq!((settled, count_submissions(&world).await), (ROWS, ROWS + 1), "each once, by one of them");
    for task in made {
        assert_eq!(world.task(task).await.state, TaskState::Available);
    }
    for other in &all[1..] {
        other.store.close().await;
    }
    world.check_consistency().await;
}

pub(super) async fn enqueued_deduplication_key_applies(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let first = world.submit(TaskSpec { dedup_key: Some("order 5".to_owned()), ..task_spec("first") }).await;
    let mut shop = world.database.raw_connection().await;
    let same = spec_json(first, r#", "dedup_key": "order 5""#);
    let free = spec_json(first, "");
    let mut made = Vec::new();
    for text in [&same, &free] {
        let sql = enqueue_statement(&shop, text);
        made.push(parse_task_id(&shop.query_text(&sql).await.expect("enqueues")));
    }
    assert_eq!((process_inbox(&world).await, count_rows(&world).await), (2, 0));
    assert!(world.store.get_task(made[0]).await.expect("reads").is_none(), "the first one holds the key");
    assert_eq!(world.task(made[1]).await.spec.dedup_key, None, "a key is none of what is taken over");
    world.check_consistency().await;
}

/// PostgreSQL: a role that may execute the function and has no other privilege. SQLite: an application with
/// its own file attaches docket's.
pub(super) async fn application_needs_only_the_execute_right(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let template = world.submit(task_spec("template")).await;
    let mut shop = world.database.raw_connection().await;
    let RawConnection::Postgres(_) = shop else { return check_attached_database(&world, template).await };
    let role = format!("docket_shop_{}", std::process::id());
    shop.execute(&format!("CREATE ROLE {role}")).await.expect("makes a role");
    shop.execute(&format!("SET SESSION AUTHORIZATION {role}")).await.expect("becomes it");
    let sql = enqueue_statement(&shop, &spec_json(template, ""));
    let denied = shop.query_text(&sql).await.expect_err("denied until it is granted").to_string();
    assert!(denied.contains("permission denied for function docket_enqueue"), "{denied}");
    shop.execute("RESET SESSION AUTHORIZATION").await.expect("back");
    shop.execute(&format!("GRANT EXECUTE ON FUNCTION docket_enqueue(jsonb, uuid) TO {role}"))
        .await
        .expect("grants");
    shop.execute(&format!("SET SESSION AUTHORIZATION {role}")).await.expect("becomes it");
    for sql in [
        "SELECT count(*) FROM inbox",
        "DELETE FROM inbox",
        "SELECT count(*) FROM events",
        "UPDATE tasks SET priority = 1",
    ] {
        let denied = shop.execute(sql).await.expect_err(sql).to_string();
        assert!(denied.contains("permission denied"), "{sql}: {denied}");
    }
    // The role's own objects on the search path have no effect: the function's path is pinned.
    shop.execute("CREATE TEMP TABLE inbox (id text, spec text, submitted_by text, created_at bigint)")
        .await
        .expect("a table of the same name");
    shop.execute("SET search_path = pg_temp, public").await.expect("sets");
    let made = parse_task_id(&shop.query_text(&sql).await.expect("enqueues"));
    for (spec, words) in [
        ("[1]", "a task is a JSON object"),
        (r#"{"title": "x", "text": "y", "model": {}}"#, r#""base" is missing"#),
        (r#"{"like": "abc"}"#, r#""like" must be the whole id of a task"#),
        (r#"{"like": 5}"#, r#""like" must be the whole id of a task"#),
        (&spec_json(template, r#", "title": " ""#), r#""title" must be 1 to 200 characters"#),
        (&spec_json(template, r#", "text": 5"#), r#""text" must be a string"#),
    ] {
        let refused = shop.query_text(&format!("SELECT public.docket_enqueue('{spec}')::text")).await;
        let refused = refused.expect_err(spec).to_string();
        assert!(refused.contains(words), "{spec}: {refused}");
    }
    assert_eq!(process_inbox(&world).await, 1);
    let first = world.read_stream(StreamId::Task(made)).await.remove(0);
    assert!(first.payload.as_str().contains(&format!("inbox/{role}")), "{first:?}");
    shop.execute(&format!("RESET SESSION AUTHORIZATION; DROP OWNED BY {role}; DROP ROLE {role}"))
        .await
        .expect("cleans up");
    world.check_consistency().await;
}

/// Commit and rollback include both files. (A crash of the machine between the two files' commits may split
/// them, as documented; the application then enqueues under the same id again, as in the case above.)
async fn check_attached_database(world: &StoreFixture, template: TaskId) {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("shop.db");
    std::fs::write(&own, b"").expect("an empty database");
    let mut shop = world.database.raw_connection().await;
    shop.execute(&format!("ATTACH '{}' AS shop; CREATE TABLE shop.orders (task TEXT)", own.display()))
        .await
        .expect("attaches");
    for (end, count) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        shop.execute(BEGIN).await.expect("begins");
        let sql = enqueue_statement(&shop, &spec_json(template, ""));
        let made = shop.query_text(&sql).await.expect("enqueues");
        shop.execute(&format!("INSERT INTO shop.orders VALUES ('{made}')")).await.expect("inserts");
        shop.execute(end).await.expect("ends");
        assert_eq!(shop.query_number("SELECT count(*) FROM shop.orders").await.expect("counts"), count);
        assert_eq!(process_inbox(world).await as i64, count, "{end}");
    }
    let made = shop.query_text("SELECT task FROM shop.orders").await.expect("reads");
    assert_eq!(world.task(parse_task_id(&made)).await.state, TaskState::Available);
}

pub(super) async fn inbox_poll_cost_depends_only_on_pending_rows(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let mut raw = world.database.raw_connection().await;
    let many = if world.database.is_sqlite() {
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 5000) \
         INSERT INTO inbox (id, spec, submitted_by, created_at, refused, refused_at) SELECT i, 'x', '', i, 'x', 1 FROM n"
    } else {
        "INSERT INTO inbox (id, spec, submitted_by, created_at, refused, refused_at) \
         SELECT i, 'x', '', i, 'x', 1 FROM generate_series(1, 5000) i"
    };
    raw.execute(many).await.expect("inserts");
    raw.execute("ANALYZE").await.expect("analyzes");
    let sql = "SELECT id, spec FROM inbox WHERE refused IS NULL ORDER BY created_at, id LIMIT 200";
    let plan = raw.explain_query(sql).await.expect("plans");
    assert!(
        plan.contains("inbox_waiting") && !plan.contains("TEMP B-TREE") && !plan.contains("Sort"),
        "{plan}"
    );
}
