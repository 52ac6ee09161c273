//! Permits to ask a model provider: spaced, whichever coordinator gives them.

use docket_coordinator::{
    store::Permitted,
    system::{FoldError, LimitTable},
};
use docket_schema::{
    ids::{Epoch, RunId, Timestamp},
    run::RunOutcome,
    system::{LimitRemoved, LimitSet, ProviderLimits, Rate},
    wire::{PERMIT_WAIT_MS_MAX, PermitRequest},
};

use super::{
    Database, World,
    world::{LEASE_MS, Worker, spec},
};

const OPENAI: &str = "openai";

fn rate(text: &str) -> Option<Rate> {
    Some(text.parse().expect("a rate"))
}

pub(super) async fn permits_are_spaced_whoever_asks(database: Database) {
    let one = World::open(database).await;
    let two = one.beside().await;
    let cost = ProviderLimits { requests: rate("5/s"), ..ProviderLimits::default() }.cost(1000, 0);
    let begun = one.now();
    // Forty at once through two coordinators, with two seconds of room: ten moments and the first.
    let until = begun.plus_ms(2000);
    let asked = (0..40).map(|n| {
        let world = if n % 2 == 0 { one.clone() } else { two.clone() };
        let caller = (RunId(world.id()), Epoch(1));
        tokio::spawn(async move { world.store.permit(OPENAI.to_owned(), caller, cost, begun, until).await })
    });
    let (mut taken, mut refused) = (Vec::new(), 0);
    for asked in asked.collect::<Vec<_>>() {
        match asked.await.expect("ends").expect("answers") {
            Permitted::At(at) => taken.push(at.0),
            Permitted::NotBefore(at) => {
                assert!(at > until, "{at}");
                refused += 1;
            }
            Permitted::Crowded => panic!("calls are not counted here"),
        }
    }
    taken.sort_unstable();
    let spaced: Vec<i64> = (0..11).map(|n| begun.0 + n * 200_000).collect();
    assert_eq!((taken, refused), (spaced, 29));
    // What was refused has taken nothing; another provider stands where it likes.
    let later = Timestamp(begun.0 + 3_000_000);
    let caller = (RunId(one.id()), Epoch(1));
    let at = two.store.permit(OPENAI.to_owned(), caller, cost, later, later).await.expect("answers");
    assert_eq!(at, Permitted::At(later));
    let other = one.store.permit("anthropic".to_owned(), caller, cost, begun, begun).await.expect("answers");
    assert_eq!(other, Permitted::At(begun));
    one.check().await;
}

pub(super) async fn tokens_count_as_what_they_were(database: Database) {
    let world = World::open(database).await;
    let (store, table, other) = (&*world.store, LimitTable::default(), LimitTable::default());
    let ask =
        |tokens, correction| PermitRequest { provider: OPENAI.to_owned(), tokens, correction, call: None };
    let caller = (RunId(world.id()), Epoch(1));
    let free = table.permit(store, caller, &ask(1_000_000, 0), world.now()).await.expect("answers");
    assert!(free.granted && free.wait_ms == 0, "no limit: {free:?}");
    let limits = ProviderLimits { tokens: rate("60000/m"), ..ProviderLimits::default() };
    let set = LimitSet { provider: OPENAI.to_owned(), limits, by: "me".to_owned() };
    let decide = |_: &_| Ok::<_, FoldError>(Some(set.clone().into()));
    table.fold.change(store, world.now(), decide).await.expect("set");
    other.fold.catch_up(store).await.expect("reads");
    assert_eq!((table.providers(), other.providers()), (vec![OPENAI.to_owned()], vec![OPENAI.to_owned()]));
    // A thousand tokens are a second. The world's clock moves by microseconds only.
    let now = world.now();
    let permit = async |tokens, correction| {
        let answer = other.permit(store, caller, &ask(tokens, correction), now).await.expect("answers");
        (answer.granted, answer.wait_ms)
    };
    assert_eq!(permit(4000, 0).await, (true, 0));
    assert_eq!(permit(2000, 0).await, (true, 4000));
    // The one before had 1,500 fewer, and this one's had 3,000 more.
    assert_eq!(permit(1000, -1500).await, (true, 4500));
    assert_eq!(permit(1000, 3000).await, (true, 8500));
    assert_eq!(permit(50_000, 0).await, (true, 9500));
    // A minute ahead: told to ask again, never for longer than the longest wait.
    assert_eq!(permit(1, 0).await, (false, PERMIT_WAIT_MS_MAX));
    let decide = |_: &_| {
        Ok::<_, FoldError>(Some(LimitRemoved { provider: OPENAI.to_owned(), by: "me".to_owned() }.into()))
    };
    table.fold.change(store, world.now(), decide).await.expect("removed");
    assert!(
        table.permit(store, caller, &ask(1, 0), now).await.expect("answers").granted
            && table.providers().is_empty()
    );
    world.check().await;
}

pub(super) async fn calls_under_way_are_counted_while_their_lease_stands(database: Database) {
    let one = World::open(database).await;
    let two = one.beside().await;
    let worker: Worker = one.worker();
    for _ in 0..6 {
        one.submit(spec("asks")).await;
    }
    let leases = worker.lease(6).await;
    let cost = ProviderLimits { concurrent: Some(2), ..ProviderLimits::default() }.cost(1, 0);
    let now = one.now();
    let ask = async |world: &World, n: usize| {
        let caller = (leases[n].run, leases[n].record.epoch);
        let (world, provider) = (world.clone(), OPENAI.to_owned());
        world.store.permit(provider, caller, cost, now, now).await.expect("answers") == Permitted::At(now)
    };
    // Six at once through two coordinators: two.
    let asked: Vec<_> = leases
        .iter()
        .zip([&one, &two].into_iter().cycle())
        .map(|(lease, world)| {
            let (world, caller) = (world.clone(), (lease.run, lease.record.epoch));
            tokio::spawn(async move { world.store.permit(OPENAI.to_owned(), caller, cost, now, now).await })
        })
        .collect();
    let mut under_way = Vec::new();
    for (n, asked) in asked.into_iter().enumerate() {
        if asked.await.expect("ends").expect("answers") == Permitted::At(now) {
            under_way.push(n);
        }
    }
    let [first, second] = under_way[..] else { panic!("{under_way:?} are under way") };
    let mut waiting = (0..6).filter(|n| !under_way.contains(n));
    let mut next = || waiting.next().expect("one that waits");
    let (third, fourth, fifth) = (next(), next(), next());
    // Sent again it is the same call; another waits until one has ended.
    assert!(ask(&two, first).await && !ask(&one, third).await);
    two.store.answered(leases[first].run).await.expect("ended");
    assert!(ask(&one, third).await && !ask(&two, fourth).await);
    // A run that ends, and a lease that expires, have no call under way.
    worker.end(&leases[second], RunOutcome::Succeeded).await;
    assert!(ask(&one, fourth).await && !ask(&two, fifth).await);
    one.pass(LEASE_MS * 2);
    assert!(one.expire().await > 0);
    assert!(ask(&one, fifth).await);
    one.check().await;
}
