//! What is remembered beyond runs: one word for all coordinators, kept through all that befalls a store.

use docket_coordinator::{
    gc,
    system::{FoldError, Forgotten, MemoryAddress, MemoryError, MemoryTable},
};
use docket_schema::{
    ids::RunId,
    message::CallId,
    system::{MEMORY_KEYS_MAX, MemoryCall, MemoryScope},
    wire::GcRequest,
};

use super::{Database, World};

fn shop() -> MemoryScope {
    MemoryScope::Repository("/shop".to_owned())
}

fn at<'a>(scope: &'a MemoryScope, key: &'a str) -> MemoryAddress<'a> {
    MemoryAddress { scope, key }
}

fn call(world: &World, n: u32) -> MemoryCall {
    MemoryCall { run: RunId(world.id()), call: CallId(format!("t{n}-0")) }
}

async fn value(world: &World, table: &MemoryTable, key: &str) -> Option<String> {
    let found = table.get(&*world.store, at(&shop(), key)).await.expect("reads")?;
    let bytes = world.store.blob(found.saved.value.hash).await.expect("reads").expect("is stored");
    Some(String::from_utf8(bytes.to_vec()).expect("text"))
}

pub(super) async fn two_coordinators_remember_the_same(database: Database) {
    let one = World::open(database).await;
    // A file of SQLite has one owner, whose requests come side by side all the same.
    let two = if one.database.is_sqlite() { one.clone() } else { one.beside().await };
    let (of_one, of_two) = (MemoryTable::default(), MemoryTable::default());
    let scope = shop();
    // Forty at once, through either: none is lost, none is refused for the other's sake for good.
    let (first, second) = (std::sync::Arc::new(of_one), std::sync::Arc::new(of_two));
    let saves: Vec<_> = (0..40_u32)
        .map(|n| {
            let (world, table) =
                if n % 2 == 0 { (one.clone(), first.clone()) } else { (two.clone(), second.clone()) };
            tokio::spawn(async move {
                let (scope, key, text) = (shop(), format!("k{n:02}"), format!("value {n}"));
                let by = call(&world, n);
                let mut tries = 0;
                loop {
                    let now = world.now();
                    match table.save(&*world.store, now, at(&scope, &key), &text, by.clone()).await {
                        // As its caller would: the coordinator answers "try again".
                        Err(MemoryError::Fold(FoldError::Contended(_))) if tries < 50 => tries += 1,
                        other => return other,
                    }
                }
            })
        })
        .collect();
    for save in saves {
        save.await.expect("ends").expect("saves");
    }
    for n in 0..40 {
        let want = Some(format!("value {n}"));
        assert_eq!(value(&one, &first, &format!("k{n:02}")).await, want);
        assert_eq!(value(&two, &second, &format!("k{n:02}")).await, want);
    }
    // A call that comes again, by whichever coordinator, changes nothing.
    let by = call(&one, 99);
    first.save(&*one.store, one.now(), at(&scope, "k00"), "mine", by.clone()).await.expect("saves");
    second.save(&*two.store, two.now(), at(&scope, "k00"), "yours", call(&two, 100)).await.expect("saves");
    second.save(&*two.store, two.now(), at(&scope, "k00"), "mine", by).await.expect("answers");
    assert_eq!(value(&one, &first, "k00").await.as_deref(), Some("yours"));
    let by = "me".to_owned();
    let forget = async |world: &World, table: &MemoryTable| {
        table.forget(&*world.store, world.now(), at(&scope, "k01"), None, by.clone()).await.expect("answers")
    };
    assert_eq!(forget(&one, &first).await, Forgotten::Yes);
    assert_eq!(forget(&two, &second).await, Forgotten::Absent);
    // Whoever begins later folds the same.
    let third = MemoryTable::default();
    let keys = |list: Vec<docket_schema::system::Remembered>| {
        list.into_iter().map(|one| (one.saved.key, one.saved.value)).collect::<Vec<_>>()
    };
    let late = keys(third.list(&*one.store, Some(&scope), usize::MAX).await.expect("reads"));
    assert_eq!(late, keys(second.list(&*two.store, None, usize::MAX).await.expect("reads")));
    assert_eq!(late.len(), 39);
    one.check().await;
}

pub(super) async fn a_scope_is_full_and_a_value_outlives_garbage_collection(database: Database) {
    let world = World::open(database).await;
    let (table, scope) = (MemoryTable::default(), shop());
    for n in 0..MEMORY_KEYS_MAX {
        let by = call(&world, u32::try_from(n).expect("small"));
        let key = format!("k{n}");
        table.save(&*world.store, world.now(), at(&scope, &key), "the same", by).await.expect("saves");
    }
    let more = table.save(&*world.store, world.now(), at(&scope, "more"), "x", call(&world, 0)).await;
    assert!(matches!(more, Err(MemoryError::Full)), "{more:?}");
    let queue = MemoryScope::Queue("other".parse().expect("a queue"));
    table
        .save(&*world.store, world.now(), at(&queue, "more"), "x", call(&world, 1))
        .await
        .expect("another's");
    // What the log names is never dropped, however long ago it was written.
    let later = world.now().plus_ms(48 * 3_600_000);
    let request = GcRequest { delete: true, ..GcRequest::default() };
    gc::collect(&*world.store, request, |ms| later.minus_ms(ms)).await.expect("collects");
    assert_eq!(value(&world, &table, "k7").await.as_deref(), Some("the same"));
    world.check().await;
}
