//! Memory shared by runs: the same for all coordinators, and kept through every store fault.

use docket_coordinator::{
    gc,
    system::{FoldError, ForgetOutcome, MemoryAddress, MemoryError, MemoryTable},
};
use docket_schema::{
    api::GcRequest,
    ids::RunId,
    message::CallId,
    system::{MEMORY_KEYS_MAX, MemoryCall, MemoryScope},
};

use super::{StoreFixture, TestDatabase};

fn shop_scope() -> MemoryScope {
    MemoryScope::Repository("/shop".to_owned())
}

fn memory_address<'a>(scope: &'a MemoryScope, key: &'a str) -> MemoryAddress<'a> {
    MemoryAddress { scope, key }
}

fn memory_call(world: &StoreFixture, n: u32) -> MemoryCall {
    MemoryCall { run: RunId(world.next_id()), call: CallId(format!("t{n}-0")) }
}

async fn read_value(world: &StoreFixture, table: &MemoryTable, key: &str) -> Option<String> {
    let found = table.get(&*world.store, memory_address(&shop_scope(), key)).await.expect("reads")?;
    let bytes = world.store.read_blob(found.saved.value.hash).await.expect("reads").expect("is stored");
    Some(String::from_utf8(bytes.to_vec()).expect("text"))
}

pub(super) async fn two_coordinators_share_memory(database: TestDatabase) {
    let one = StoreFixture::open(database).await;
    // A SQLite file has one owner, but its requests may still be concurrent.
    let two = if one.database.is_sqlite() { one.clone() } else { one.open_second_coordinator().await };
    let (of_one, of_two) = (MemoryTable::default(), MemoryTable::default());
    let scope = shop_scope();
    // Forty at once through either: none is lost, and none is refused permanently because of
    // another.
    let (first, second) = (std::sync::Arc::new(of_one), std::sync::Arc::new(of_two));
    let saves: Vec<_> = (0..40_u32)
        .map(|n| {
            let (world, table) =
                if n % 2 == 0 { (one.clone(), first.clone()) } else { (two.clone(), second.clone()) };
            tokio::spawn(async move {
                let (scope, key, text) = (shop_scope(), format!("k{n:02}"), format!("value {n}"));
                let by = memory_call(&world, n);
                let mut tries = 0;
                loop {
                    let now = world.now();
                    match table
                        .save(&*world.store, now, memory_address(&scope, &key), &text, by.clone())
                        .await
                    {
                        // As its caller would: the coordinator replies "try again".
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
        assert_eq!(read_value(&one, &first, &format!("k{n:02}")).await, want);
        assert_eq!(read_value(&two, &second, &format!("k{n:02}")).await, want);
    }
    // A repeated call, through any coordinator, changes nothing.
    let by = memory_call(&one, 99);
    first
        .save(&*one.store, one.now(), memory_address(&scope, "k00"), "mine", by.clone())
        .await
        .expect("saves");
    second
        .save(&*two.store, two.now(), memory_address(&scope, "k00"), "yours", memory_call(&two, 100))
        .await
        .expect("saves");
    second.save(&*two.store, two.now(), memory_address(&scope, "k00"), "mine", by).await.expect("answers");
    assert_eq!(read_value(&one, &first, "k00").await.as_deref(), Some("yours"));
    let by = "me".to_owned();
    let forget = async |world: &StoreFixture, table: &MemoryTable| {
        table
            .forget(&*world.store, world.now(), memory_address(&scope, "k01"), None, by.clone())
            .await
            .expect("answers")
    };
    assert_eq!(forget(&one, &first).await, ForgetOutcome::Forgotten);
    assert_eq!(forget(&two, &second).await, ForgetOutcome::NotFound);
    // A coordinator that starts later folds the same state.
    let third = MemoryTable::default();
    let keys = |list: Vec<docket_schema::system::MemoryRecord>| {
        list.into_iter().map(|one| (one.saved.key, one.saved.value)).collect::<Vec<_>>()
    };
    let late = keys(third.list(&*one.store, Some(&scope), usize::MAX).await.expect("reads"));
    assert_eq!(late, keys(second.list(&*two.store, None, usize::MAX).await.expect("reads")));
    assert_eq!(late.len(), 39);
    one.check_consistency().await;
}

pub(super) async fn scope_limit_is_enforced_and_values_survive_gc(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (table, scope) = (MemoryTable::default(), shop_scope());
    for n in 0..MEMORY_KEYS_MAX {
        let by = memory_call(&world, u32::try_from(n).expect("small"));
        let key = format!("k{n}");
        table
            .save(&*world.store, world.now(), memory_address(&scope, &key), "the same", by)
            .await
            .expect("saves");
    }
    let more = table
        .save(&*world.store, world.now(), memory_address(&scope, "more"), "x", memory_call(&world, 0))
        .await;
    assert!(matches!(more, Err(MemoryError::Full)), "{more:?}");
    let queue = MemoryScope::Queue("other".parse().expect("a queue"));
    table
        .save(&*world.store, world.now(), memory_address(&queue, "more"), "x", memory_call(&world, 1))
        .await
        .expect("another's");
    // Blobs referenced in the log are never dropped, however old.
    let later = world.now().plus_ms(48 * 3_600_000);
    let request = GcRequest { delete: true, ..GcRequest::default() };
    gc::collect(&*world.store, request, |ms| later.minus_ms(ms)).await.expect("collects");
    assert_eq!(read_value(&world, &table, "k7").await.as_deref(), Some("the same"));
    world.check_consistency().await;
}
