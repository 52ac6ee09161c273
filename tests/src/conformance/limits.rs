//! Permits for model providers: spaced, whichever coordinator grants them.

use docket_coordinator::{
    store::PermitOutcome,
    system::{FoldError, ProviderLimitTable},
};
use docket_schema::{
    api::{PERMIT_WAIT_MS_MAX, PermitRequest},
    ids::{Epoch, RunId, Timestamp},
    run::RunOutcome,
    system::{LimitRemoved, LimitSet, ProviderLimits, RateLimit},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{FakeWorker, LEASE_MS, task_spec},
};

const OPENAI: &str = "openai";

fn parse_rate(text: &str) -> Option<RateLimit> {
    Some(text.parse().expect("a rate"))
}

pub(super) async fn permits_are_spaced_across_coordinators(database: TestDatabase) {
    let one = StoreFixture::open(database).await;
    let two = one.open_second_coordinator().await;
    let cost =
        ProviderLimits { requests: parse_rate("5/s"), ..ProviderLimits::default() }.permit_cost(1000, 0);
    let begun = one.now();
    // Forty at once through two coordinators, with two seconds of room: ten slots and the first
    // one.
    let until = begun.plus_ms(2000);
    let asked = (0..40).map(|n| {
        let world = if n % 2 == 0 { one.clone() } else { two.clone() };
        let caller = (RunId(world.next_id()), Epoch(1));
        tokio::spawn(async move {
            world.store.request_permit(OPENAI.to_owned(), caller, cost, begun, until).await
        })
    });
    let (mut taken, mut refused) = (Vec::new(), 0);
    for asked in asked.collect::<Vec<_>>() {
        match asked.await.expect("ends").expect("answers") {
            PermitOutcome::GrantedAt(at) => taken.push(at.0),
            PermitOutcome::NotBefore(at) => {
                assert!(at > until, "{at}");
                refused += 1;
            }
            PermitOutcome::AtConcurrencyLimit => panic!("calls are not counted here"),
        }
    }
    taken.sort_unstable();
    let spaced: Vec<i64> = (0..11).map(|n| begun.0 + n * 200_000).collect();
    assert_eq!((taken, refused), (spaced, 29));
    // A refused request takes nothing; another provider is independent.
    let later = Timestamp(begun.0 + 3_000_000);
    let caller = (RunId(one.next_id()), Epoch(1));
    let at = two.store.request_permit(OPENAI.to_owned(), caller, cost, later, later).await.expect("answers");
    assert_eq!(at, PermitOutcome::GrantedAt(later));
    let other =
        one.store.request_permit("anthropic".to_owned(), caller, cost, begun, begun).await.expect("answers");
    assert_eq!(other, PermitOutcome::GrantedAt(begun));
    one.check_consistency().await;
}

pub(super) async fn permits_are_charged_for_actual_tokens(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (store, table, other) = (&*world.store, ProviderLimitTable::default(), ProviderLimitTable::default());
    let ask =
        |tokens, correction| PermitRequest { provider: OPENAI.to_owned(), tokens, correction, call: None };
    let caller = (RunId(world.next_id()), Epoch(1));
    let free = table.request_permit(store, caller, &ask(1_000_000, 0), world.now()).await.expect("answers");
    assert!(free.granted && free.wait_ms == 0, "no limit: {free:?}");
    let limits = ProviderLimits { tokens: parse_rate("60000/m"), ..ProviderLimits::default() };
    let set = LimitSet { provider: OPENAI.to_owned(), limits, by: "me".to_owned() };
    let decide = |_: &_| Ok::<_, FoldError>(Some(set.clone().into()));
    table.fold.change(store, world.now(), decide).await.expect("set");
    other.fold.catch_up(store).await.expect("reads");
    assert_eq!((table.providers(), other.providers()), (vec![OPENAI.to_owned()], vec![OPENAI.to_owned()]));
    // A thousand tokens take one second. The fixture's clock moves by microseconds only.
    let now = world.now();
    let permit = async |tokens, correction| {
        let answer =
            other.request_permit(store, caller, &ask(tokens, correction), now).await.expect("answers");
        (answer.granted, answer.wait_ms)
    };
    assert_eq!(permit(4000, 0).await, (true, 0));
    assert_eq!(permit(2000, 0).await, (true, 4000));
    // The previous call used 1,500 fewer, and this one's used 3,000 more.
    assert_eq!(permit(1000, -1500).await, (true, 4500));
    assert_eq!(permit(1000, 3000).await, (true, 8500));
    assert_eq!(permit(50_000, 0).await, (true, 9500));
    // A minute ahead: the answer is to retry, never after more than the maximum wait.
    assert_eq!(permit(1, 0).await, (false, PERMIT_WAIT_MS_MAX));
    let decide = |_: &_| {
        Ok::<_, FoldError>(Some(LimitRemoved { provider: OPENAI.to_owned(), by: "me".to_owned() }.into()))
    };
    table.fold.change(store, world.now(), decide).await.expect("removed");
    assert!(
        table.request_permit(store, caller, &ask(1, 0), now).await.expect("answers").granted
            && table.providers().is_empty()
    );
    world.check_consistency().await;
}

pub(super) async fn calls_in_flight_count_while_their_lease_is_valid(database: TestDatabase) {
    let one = StoreFixture::open(database).await;
    let two = one.open_second_coordinator().await;
    let worker: FakeWorker = one.new_worker();
    for _ in 0..6 {
        one.submit(task_spec("asks")).await;
    }
    let leases = worker.lease(6).await;
    let cost = ProviderLimits { concurrent: Some(2), ..ProviderLimits::default() }.permit_cost(1, 0);
    let now = one.now();
    let ask = async |world: &StoreFixture, n: usize| {
        let caller = (leases[n].run, leases[n].record.epoch);
        let (world, provider) = (world.clone(), OPENAI.to_owned());
        world.store.request_permit(provider, caller, cost, now, now).await.expect("answers")
            == PermitOutcome::GrantedAt(now)
    };
    // Six at once through two coordinators: two are permitted.
    let asked: Vec<_> = leases
        .iter()
        .zip([&one, &two].into_iter().cycle())
        .map(|(lease, world)| {
            let (world, caller) = (world.clone(), (lease.run, lease.record.epoch));
            tokio::spawn(async move {
                world.store.request_permit(OPENAI.to_owned(), caller, cost, now, now).await
            })
        })
        .collect();
    let mut under_way = Vec::new();
    for (n, asked) in asked.into_iter().enumerate() {
        if asked.await.expect("ends").expect("answers") == PermitOutcome::GrantedAt(now) {
            under_way.push(n);
        }
    }
    let [first, second] = under_way[..] else { panic!("{under_way:?} are under way") };
    let mut waiting = (0..6).filter(|n| !under_way.contains(n));
    let mut next = || waiting.next().expect("one that waits");
    let (third, fourth, fifth) = (next(), next(), next());
    // A repeated request is the same call; another one waits until a call has ended.
    assert!(ask(&two, first).await && !ask(&one, third).await);
    two.store.release_permit(leases[first].run).await.expect("ended");
    assert!(ask(&one, third).await && !ask(&two, fourth).await);
    // A run that ended and an expired lease have no calls in flight.
    worker.end_run(&leases[second], RunOutcome::Succeeded).await;
    assert!(ask(&one, fourth).await && !ask(&two, fifth).await);
    one.advance_clock(LEASE_MS * 2);
    assert!(one.expire_leases().await > 0);
    assert!(ask(&one, fifth).await);
    one.check_consistency().await;
}
