//! The inbox: tasks enqueued within an application's own transaction.

use docket_coordinator::{
    clock::Clock,
    store::{InboxAct, InboxFound, InboxMove, InboxMoved, NewTask},
    tasks::take_inbox_once,
    wakeups::Wakes,
};
use docket_schema::{
    event::TypedEvent as _,
    ids::{StreamId, TaskId},
    redact::Redactor,
    task::{TaskEvent, TaskSpec, TaskState},
};

use super::{
    Database, World,
    database::Raw,
    world::{blob, spec},
};

/// One round of a coordinator's own task; how many rows it settled.
async fn take(world: &World) -> usize {
    take_inbox_once(&*world.store, &Redactor::default(), &Clock::new(), &Wakes::default())
        .await
        .expect("the store answers")
}

/// The statement that enqueues and answers the task's id, as the documents give it.
fn enqueue(raw: &Raw, spec: &str) -> String {
    match raw {
        Raw::Sqlite(_) => {
            format!("INSERT INTO inbox (spec, submitted_by) VALUES ('{spec}', 'shop') RETURNING id")
        }
        Raw::Postgres(_) => format!("SELECT docket_enqueue('{spec}')::text"),
    }
}

/// Puts a row there as nobody should, past the function: `id` and all.
async fn put(raw: &mut Raw, id: &str, spec: &str) {
    let sql =
        format!("INSERT INTO inbox (id, spec, submitted_by, created_at) VALUES ('{id}', '{spec}', 'x', 1)");
    raw.run(&sql).await.expect("inserts");
}

fn like(task: TaskId, more: &str) -> String {
    format!(r#"{{"like": "{task}"{more}}}"#)
}

fn id(text: &str) -> TaskId {
    text.parse().expect("the id of a task")
}

async fn submissions(world: &World) -> usize {
    world.feed().await.iter().filter(|event| event.kind == "TaskSubmitted").count()
}

async fn rows(world: &World) -> usize {
    world.store.inbox(100).await.expect("reads").len()
}

const BEGIN: &str = "BEGIN";

pub(super) async fn enqueue_in_the_callers_transaction(database: Database) {
    let world = World::open(database).await;
    let template = world.submit(TaskSpec { priority: 7, ..spec("template") }).await;
    let mut shop = world.database.raw().await;
    shop.run("CREATE TABLE orders (number BIGINT PRIMARY KEY, task TEXT)").await.expect("a table of its own");

    // Rolled back: neither the order nor the task.
    shop.run(BEGIN).await.expect("begins");
    shop.run("INSERT INTO orders VALUES (1, NULL)").await.expect("inserts");
    let sql = enqueue(&shop, &like(template, r#", "title": "one""#));
    shop.text(&sql).await.expect("enqueues");
    shop.run("ROLLBACK").await.expect("rolls back");
    assert_eq!((take(&world).await, rows(&world).await), (0, 0));
    assert_eq!(shop.number("SELECT count(*) FROM orders").await.expect("counts"), 0);

    // Committed: both, and the order knows its task.
    shop.run(BEGIN).await.expect("begins");
    let sql = enqueue(&shop, &like(template, r#", "title": "two", "text": "mend it""#));
    let made = shop.text(&sql).await.expect("enqueues");
    shop.run(&format!("INSERT INTO orders VALUES (2, '{made}')")).await.expect("inserts");
    assert_eq!(take(&world).await, 0, "nobody sees it before the commit");
    shop.run("COMMIT").await.expect("commits");
    assert_eq!(take(&world).await, 1);
    let stored = shop.text("SELECT task FROM orders WHERE number = 2").await.expect("reads");
    let task = world.task(id(&stored)).await;
    assert_eq!(
        (task.state, task.spec.title.as_str(), task.spec.text.as_str()),
        (TaskState::Available, "two", "mend it")
    );
    assert_eq!((task.spec.priority, task.spec.base), (7, spec("x").base), "the rest is as the other's");
    let first = world.stream(StreamId::Task(task.id)).await.remove(0);
    let submitted = TaskEvent::decode(&first.kind, first.version, first.payload.as_str()).expect("decodes");
    let by = if let TaskEvent::TaskSubmitted(submitted) = submitted { submitted.by } else { String::new() };
    let role = match &mut shop {
        Raw::Sqlite(_) => "shop".to_owned(),
        Raw::Postgres(_) => shop.text("SELECT session_user::text").await.expect("reads"),
    };
    assert_eq!(by, format!("inbox/{role}"));
    assert_eq!(task.id.0.get_version_num(), 7, "ids sort by their time");
    assert_eq!((submissions(&world).await, rows(&world).await, take(&world).await), (2, 0, 0));
    world.check().await;
}

pub(super) async fn a_crash_between_enqueue_and_task_loses_and_doubles_nothing(database: Database) {
    let world = World::open(database).await;
    let template = world.submit(spec("template")).await;
    let mut shop = world.database.raw().await;
    // The application dies before its commit.
    let mut dies = world.database.raw().await;
    dies.run(BEGIN).await.expect("begins");
    let sql = enqueue(&dies, &like(template, ""));
    dies.text(&sql).await.expect("enqueues");
    drop(dies);
    // The coordinator dies between looking and its commit: what it saw stands there.
    let sql = enqueue(&shop, &like(template, r#", "title": "kept""#));
    let kept = shop.text(&sql).await.expect("enqueues");
    let seen = world.store.inbox_waiting(10).await.expect("reads");
    assert_eq!(seen.len(), 1, "{seen:?}");
    world.store.close().await;
    let world = world.beside().await;
    assert_eq!(take(&world).await, 1);
    // The coordinator dies between its commit and all that follows: whoever knew of the row finds it gone.
    let found = InboxFound::Task(Box::new(NewTask { id: id(&kept), spec: spec("other"), fork: None }));
    let again = vec![InboxMove { row: kept.clone(), by: "x".to_owned(), found }];
    let moved = world.store.take_inbox(again, world.now()).await.expect("answers");
    assert_eq!(moved, [InboxMoved::Elsewhere]);
    // The application does not know whether its commit took place, and enqueues under the same id.
    let spec = like(template, r#", "title": "kept""#);
    for _ in 0..2 {
        let sql = match &shop {
            Raw::Sqlite(_) => format!(
                "INSERT INTO inbox (id, spec) VALUES ('{kept}', '{spec}') ON CONFLICT DO NOTHING RETURNING 'done'"
            ),
            Raw::Postgres(_) => format!("SELECT docket_enqueue('{spec}', '{kept}')::text"),
        };
        let _ = shop.text(&sql).await;
    }
    assert_eq!((rows(&world).await, take(&world).await, rows(&world).await), (1, 1, 0));
    assert_eq!(world.task(id(&kept)).await.spec.title, "kept");
    assert_eq!(submissions(&world).await, 2, "the template and one");
    world.check().await;
}

/// The row is the only place where the application's task stands: it stays, with the reason.
pub(super) async fn a_row_with_the_id_of_another_task_stays(database: Database) {
    let world = World::open(database).await;
    let template = world.submit(spec("template")).await;
    let mut shop = world.database.raw().await;
    let taken = TaskId(world.id());
    let known = NewTask { id: taken, spec: spec("known"), fork: None };
    world.store.submit(vec![known], "me".to_owned(), world.now()).await.expect("accepted");
    let least = world.id().to_string();
    put(&mut shop, &taken.to_string(), &like(template, r#", "title": "lost?""#)).await;
    put(&mut shop, &least, &like(template, r#", "priority": -32768"#)).await;
    assert_eq!(take(&world).await, 2);
    let refused = world.store.inbox(100).await.expect("reads");
    let why = |id: &str| refused.iter().find(|row| row.id == id).and_then(|row| row.refused.clone());
    let reason = why(&taken.to_string()).expect("refused");
    assert!(reason.contains("`known`") && reason.contains("`lost?`"), "{reason}");
    let reason = why(&least).expect("refused");
    assert!(reason.contains("`priority` must be within -1000 and 1000"), "{reason}");
    assert_eq!((refused.len(), submissions(&world).await), (2, 2));
    // Under the content that the id stands for, the row is that task, enqueued again.
    let same = serde_json::to_string(&spec("known")).expect("serializes");
    let sql =
        format!("UPDATE inbox SET spec = '{same}', refused = NULL, refused_at = NULL WHERE id = '{taken}'");
    shop.run(&sql).await.expect("writes");
    assert_eq!((take(&world).await, rows(&world).await, submissions(&world).await), (1, 1, 2));
    world.check().await;
}

/// A list of no files, which no case here has stored.
const EMPTY_MANIFEST: &[u8] = b"docket-manifest-1\n";

pub(super) async fn what_is_no_task_stays_and_keeps_back_no_other(database: Database) {
    let world = World::open(database).await;
    let template = world.submit(spec("template")).await;
    let mut shop = world.database.raw().await;
    let ids: Vec<String> = (0..8).map(|_| world.id().to_string()).collect();
    let based = |title: &str, manifest: &[u8]| {
        let mut spec = spec(title);
        spec.base.manifest = blob(manifest).blob;
        serde_json::to_string(&spec).expect("serializes")
    };
    let no_manifest = b"no list of files";
    world.store.put_blobs(vec![blob(no_manifest)], world.now()).await.expect("stores");
    let blobless = based("no tree", EMPTY_MANIFEST);
    let waits = like(template, &format!(r#", "conditions": {{"after": ["{}"]}}"#, TaskId(world.id())));
    put(&mut shop, &ids[0], "{ no json").await;
    put(&mut shop, &ids[1], &like(template, r#", "tittle": "x""#)).await;
    put(&mut shop, &ids[2], &blobless).await;
    put(&mut shop, &ids[3], &like(TaskId(world.id()), "")).await;
    put(&mut shop, "no uuid", &like(template, "")).await;
    put(&mut shop, &ids[4], &like(template, r#", "priority": 2000"#)).await;
    put(&mut shop, &ids[5], &waits).await;
    put(&mut shop, &ids[6], r#"{"title": "x", "text": "y"}"#).await;
    put(&mut shop, &ids[7], &based("no manifest", no_manifest)).await;
    let sql = enqueue(&shop, &like(template, r#", "title": "good""#));
    let good = shop.text(&sql).await.expect("enqueues");
    assert_eq!(take(&world).await, 10);
    assert_eq!(world.task(id(&good)).await.state, TaskState::Available);

    let refused = world.store.inbox(100).await.expect("reads");
    let why = |id: &str| {
        let row = refused.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("{id}: {refused:#?}"));
        assert!(row.refused_at.is_some());
        row.refused.clone().unwrap_or_default()
    };
    for (row, words) in [
        (ids[0].as_str(), "it is no JSON"),
        (&ids[1], "unknown field `tittle`"),
        (&ids[2], "no tree is stored under its base"),
        (&ids[3], "there is no task"),
        ("no uuid", "its id must be a UUID"),
        (&ids[4], "`priority` must be within -1000 and 1000"),
        (&ids[5], "to wait for"),
        (&ids[6], "missing field `base`"),
        (&ids[7], "`base.manifest` must be a list of files"),
    ] {
        assert!(why(row).contains(words), "{row}: {}", why(row));
    }
    assert_eq!((refused.len(), take(&world).await), (9, 0), "they are not looked at again by themselves");
    assert_eq!(world.store.inbox_counts().await.expect("counts"), (0, 9));

    // Mended, one is looked at once more; another is dropped.
    world.store.put_blobs(vec![blob(EMPTY_MANIFEST)], world.now()).await.expect("stores");
    let act = async |row: &str, act| world.store.act_inbox(row.to_owned(), act).await.expect("answers");
    assert!(act(&ids[2], InboxAct::Retry).await);
    assert_eq!(take(&world).await, 1);
    assert_eq!(world.task(id(&ids[2])).await.spec.title, "no tree");
    assert!(act("no uuid", InboxAct::Drop).await);
    assert!(!act("no uuid", InboxAct::Drop).await && !act(&ids[2], InboxAct::Retry).await);
    assert_eq!(world.store.inbox_counts().await.expect("counts"), (0, 7));
    world.check().await;
}

pub(super) async fn many_coordinators_take_each_row_once(database: Database) {
    const ROWS: usize = 60;
    let world = World::open(database).await;
    let template = world.submit(spec("template")).await;
    let mut shop = world.database.raw().await;
    let mut made = Vec::new();
    shop.run(BEGIN).await.expect("begins");
    for _ in 0..ROWS {
        let sql = enqueue(&shop, &like(template, ""));
        made.push(id(&shop.text(&sql).await.expect("enqueues")));
    }
    shop.run("COMMIT").await.expect("commits");
    let all = [world.clone(), world.beside().await, world.beside().await];
    let rounds = all.iter().cloned().map(|world| {
        tokio::spawn(async move {
            let mut settled = 0;
            while rows(&world).await > 0 {
                settled += take(&world).await;
            }
            settled
        })
    });
    let mut settled = 0;
    for round in rounds.collect::<Vec<_>>() {
        settled += round.await.expect("no panic");
    }
    assert_eq!((settled, submissions(&world).await), (ROWS, ROWS + 1), "each once, by one of them");
    for task in made {
        assert_eq!(world.task(task).await.state, TaskState::Available);
    }
    for other in &all[1..] {
        other.store.close().await;
    }
    world.check().await;
}

pub(super) async fn an_enqueued_deduplication_key_holds(database: Database) {
    let world = World::open(database).await;
    let first = world.submit(TaskSpec { dedup_key: Some("order 5".to_owned()), ..spec("first") }).await;
    let mut shop = world.database.raw().await;
    let same = like(first, r#", "dedup_key": "order 5""#);
    let free = like(first, "");
    let mut made = Vec::new();
    for text in [&same, &free] {
        let sql = enqueue(&shop, text);
        made.push(id(&shop.text(&sql).await.expect("enqueues")));
    }
    assert_eq!((take(&world).await, rows(&world).await), (2, 0));
    assert!(world.store.task(made[0]).await.expect("reads").is_none(), "the first one holds the key");
    assert_eq!(world.task(made[1]).await.spec.dedup_key, None, "a key is none of what is taken over");
    world.check().await;
}

/// PostgreSQL: a role that may execute the function and has no other right. SQLite: an application with a file of its
/// own attaches docket's.
pub(super) async fn an_application_needs_execute_and_nothing_else(database: Database) {
    let world = World::open(database).await;
    let template = world.submit(spec("template")).await;
    let mut shop = world.database.raw().await;
    let Raw::Postgres(_) = shop else { return attached(&world, template).await };
    let role = format!("docket_shop_{}", std::process::id());
    shop.run(&format!("CREATE ROLE {role}")).await.expect("makes a role");
    shop.run(&format!("SET SESSION AUTHORIZATION {role}")).await.expect("becomes it");
    let sql = enqueue(&shop, &like(template, ""));
    let denied = shop.text(&sql).await.expect_err("nobody may until it is granted").to_string();
    assert!(denied.contains("permission denied for function docket_enqueue"), "{denied}");
    shop.run("RESET SESSION AUTHORIZATION").await.expect("back");
    shop.run(&format!("GRANT EXECUTE ON FUNCTION docket_enqueue(jsonb, uuid) TO {role}"))
        .await
        .expect("grants");
    shop.run(&format!("SET SESSION AUTHORIZATION {role}")).await.expect("becomes it");
    for sql in [
        "SELECT count(*) FROM inbox",
        "DELETE FROM inbox",
        "SELECT count(*) FROM events",
        "UPDATE tasks SET priority = 1",
    ] {
        let denied = shop.run(sql).await.expect_err(sql).to_string();
        assert!(denied.contains("permission denied"), "{sql}: {denied}");
    }
    // Nothing of its own on the search path comes between: the function's path is pinned.
    shop.run("CREATE TEMP TABLE inbox (id text, spec text, submitted_by text, created_at bigint)")
        .await
        .expect("a table of the same name");
    shop.run("SET search_path = pg_temp, public").await.expect("sets");
    let made = id(&shop.text(&sql).await.expect("enqueues"));
    for (spec, words) in [
        ("[1]", "a task is a JSON object"),
        (r#"{"title": "x", "text": "y", "model": {}}"#, r#""base" is missing"#),
        (r#"{"like": "abc"}"#, r#""like" must be the whole id of a task"#),
        (r#"{"like": 5}"#, r#""like" must be the whole id of a task"#),
        (&like(template, r#", "title": " ""#), r#""title" must be 1 to 200 characters"#),
        (&like(template, r#", "text": 5"#), r#""text" must be a string"#),
    ] {
        let refused = shop.text(&format!("SELECT public.docket_enqueue('{spec}')::text")).await;
        let refused = refused.expect_err(spec).to_string();
        assert!(refused.contains(words), "{spec}: {refused}");
    }
    assert_eq!(take(&world).await, 1);
    let first = world.stream(StreamId::Task(made)).await.remove(0);
    assert!(first.payload.as_str().contains(&format!("inbox/{role}")), "{first:?}");
    shop.run(&format!("RESET SESSION AUTHORIZATION; DROP OWNED BY {role}; DROP ROLE {role}"))
        .await
        .expect("cleans up");
    world.check().await;
}

/// Commit and rollback take both files along. (A crash of the machine between the two files' commits need not: the
/// documents say so, and what the application does then is the case above: the same id again.)
async fn attached(world: &World, template: TaskId) {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("shop.db");
    std::fs::write(&own, b"").expect("an empty database");
    let mut shop = world.database.raw().await;
    shop.run(&format!("ATTACH '{}' AS shop; CREATE TABLE shop.orders (task TEXT)", own.display()))
        .await
        .expect("attaches");
    for (end, count) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        shop.run(BEGIN).await.expect("begins");
        let sql = enqueue(&shop, &like(template, ""));
        let made = shop.text(&sql).await.expect("enqueues");
        shop.run(&format!("INSERT INTO shop.orders VALUES ('{made}')")).await.expect("inserts");
        shop.run(end).await.expect("ends");
        assert_eq!(shop.number("SELECT count(*) FROM shop.orders").await.expect("counts"), count);
        assert_eq!(take(world).await as i64, count, "{end}");
    }
    let made = shop.text("SELECT task FROM shop.orders").await.expect("reads");
    assert_eq!(world.task(id(&made)).await.state, TaskState::Available);
}

pub(super) async fn a_look_at_the_inbox_costs_what_waits_there(database: Database) {
    let world = World::open(database).await;
    let mut raw = world.database.raw().await;
    let many = if world.database.is_sqlite() {
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 5000) \
         INSERT INTO inbox (id, spec, submitted_by, created_at, refused, refused_at) SELECT i, 'x', '', i, 'x', 1 FROM n"
    } else {
        "INSERT INTO inbox (id, spec, submitted_by, created_at, refused, refused_at) \
         SELECT i, 'x', '', i, 'x', 1 FROM generate_series(1, 5000) i"
    };
    raw.run(many).await.expect("inserts");
    raw.run("ANALYZE").await.expect("analyzes");
    let sql = "SELECT id, spec FROM inbox WHERE refused IS NULL ORDER BY created_at, id LIMIT 200";
    let plan = raw.plan(sql).await.expect("plans");
    assert!(
        plan.contains("inbox_waiting") && !plan.contains("TEMP B-TREE") && !plan.contains("Sort"),
        "{plan}"
    );
}
