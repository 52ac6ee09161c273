//! Following a run by server-sent events: each follower by itself, and many who share what is read for them.

use std::time::Duration;

use docket_schema::{
    ids::{RunId, Seq},
    run::RunOutcome,
    wire::{Lease, ProblemCode},
};
use futures_util::{StreamExt as _, future::join_all};
use serde_json::{Value, json};

use super::events::{answered_with, asked, ended, phase, started};
use super::support::{House, in_time, token};
use crate::http::{
    Role,
    relay::{Behind, Listener},
};

/// Reads server-sent events off a response.
struct Stream {
    response: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    text: String,
}

impl Stream {
    async fn open(house: &House, run: RunId, query: &str, last_id: Option<&str>) -> Self {
        let url = format!("{}/v1/runs/{run}/follow{query}", house.running.url());
        let mut request = house.client.get(url).bearer_auth(token(Role::Read));
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.expect("answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response: Box::pin(response.bytes_stream()), text: String::new() }
    }

    /// The next event: name (empty for plain ones), id, data.
    async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    line.unwrap_or_default().to_owned()
                };
                let data = serde_json::from_str(&field("data")).expect("json");
                let found = (field("event"), field("id"), data);
                self.text = rest.to_owned();
                return Some(found);
            }
            let chunk = self.response.next().await?.expect("chunk");
            self.text.push_str(std::str::from_utf8(&chunk).expect("text"));
        }
    }

    async fn kinds(&mut self) -> Vec<String> {
        let mut kinds = Vec::new();
        while let Some((name, _, data)) = self.next().await {
            kinds.push(if name.is_empty() { data["kind"].as_str().expect("kind").to_owned() } else { name });
        }
        kinds
    }
}

#[tokio::test]
async fn a_follower_sees_what_is_there_then_what_comes_then_the_end() {
    let house = House::open().await;
    let lease = house.leased().await;
    house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    let mut stream = Stream::open(&house, lease.run, "", None).await;
    let (_, id, data) = stream.next().await.expect("event");
    assert_eq!((id.as_str(), data["kind"].as_str()), ("1", Some("RunStarted")));
    let (next, _) = tokio::join!(stream.next(), house.appended(&lease, 1, vec![phase(0)]));
    assert_eq!(next.expect("event").1, "2");
    house.appended(&lease, 2, vec![ended(RunOutcome::Succeeded, 0)]).await;
    assert_eq!(stream.next().await.expect("event").2["kind"], json!("RunEnded"));
    let (name, _, data) = stream.next().await.expect("end");
    assert_eq!((name.as_str(), &data["status"]), ("end", &json!("succeeded")));
    assert!(stream.next().await.is_none(), "nothing follows the end");
}

#[tokio::test]
async fn a_follower_that_comes_back_goes_on_where_it_was() {
    let house = House::open().await;
    let lease = house.leased().await;
    let events = vec![started(lease.task, lease.run), phase(0), phase(0), ended(RunOutcome::Succeeded, 0)];
    house.appended(&lease, 0, events).await;
    assert_eq!(
        Stream::open(&house, lease.run, "?after=1", Some("2")).await.kinds().await,
        ["PhaseChanged", "RunEnded", "end"]
    );
    assert_eq!(Stream::open(&house, lease.run, "?after=3", None).await.kinds().await, ["RunEnded", "end"]);
    assert_eq!(Stream::open(&house, lease.run, "", Some("4")).await.kinds().await, ["end"]);
    assert_eq!(Stream::open(&house, lease.run, "", Some("400")).await.kinds().await, ["end"]);
}

#[tokio::test]
async fn many_events_come_page_by_page_in_order() {
    let house = House::open().await;
    let lease = house.leased().await;
    let mut head = house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    for _ in 0..3 {
        head = house.appended(&lease, head, vec![phase(0); 100]).await;
    }
    house.appended(&lease, head, vec![ended(RunOutcome::Succeeded, 0)]).await;
    let mut stream = Stream::open(&house, lease.run, "", None).await;
    for seq in 1..=302 {
        assert_eq!(stream.next().await.expect("event").1, seq.to_string());
    }
    assert_eq!(stream.next().await.expect("end").0, "end");
}

#[tokio::test]
async fn a_wrong_id_or_run_is_a_problem_and_no_stream() {
    let house = House::open().await;
    let lease = house.leased().await;
    let path = format!("/v1/runs/{}/follow", lease.run);
    let answer = house.send("GET", &path, token(Role::Read), Vec::new(), Some(("last-event-id", "x"))).await;
    assert_eq!(answer.problem().field.as_deref(), Some("last-event-id"));
    let nobody = RunId(uuid::Uuid::from_u128(5));
    assert_eq!(house.get(&format!("/v1/runs/{nobody}/follow")).await.problem().code, ProblemCode::NotFound);
}

/// A run with one event.
async fn begun(house: &House) -> Lease {
    let lease = house.leased().await;
    house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    lease
}

async fn until_followed(house: &House, counts: (usize, usize)) {
    let api = house.running.handle().api();
    in_time("the followers", async {
        while api.relays.counts() != counts {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// All that a follower is sent, up to the end.
async fn whole(house: &House, run: RunId, query: &str) -> Vec<u8> {
    let url = format!("{}/v1/runs/{run}/follow{query}", house.running.url());
    let answer = house.client.get(url).bearer_auth(token(Role::Read)).send().await.expect("answer");
    answer.bytes().await.expect("all of it").to_vec()
}

#[tokio::test]
async fn many_followers_are_sent_the_same_bytes_wherever_they_begin_and_leave_nothing_behind() {
    let house = House::open().await;
    let lease = begun(&house).await;
    let early = join_all((0..20).map(|_| whole(&house, lease.run, "")));
    let writes = async {
        until_followed(&house, (1, 20)).await;
        let mut head = 1;
        for turn in 1..=40 {
            head = house.appended(&lease, head, vec![asked(turn), answered_with(turn, "aloud")]).await;
            tokio::task::yield_now().await;
        }
        head
    };
    let late_and_end = async {
        let head = writes.await;
        let late =
            join_all(["", "?after=0", "?after=37", "?after=81"].map(|query| whole(&house, lease.run, query)));
        let end = async {
            until_followed(&house, (1, 24)).await;
            house.appended(&lease, head, vec![phase(41), ended(RunOutcome::Succeeded, 41)]).await;
        };
        tokio::join!(late, end).0
    };
    let (early, late) = in_time("all of it", async { tokio::join!(early, late_and_end) }).await;
    let text = String::from_utf8(early[0].clone()).expect("text");
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, (1..=83).map(|seq| seq.to_string()).collect::<Vec<_>>(), "each once and in order");
    assert!(text.ends_with("}\n\n") && text.contains("event: end\n"), "{}", &text[text.len() - 200..]);
    assert!(early.iter().chain(&late[..2]).all(|other| *other == early[0]), "the same bytes");
    let from = |seq: u64| &text[text.find(&format!("id: {seq}\n")).expect("it is there")..];
    assert_eq!(late[2], from(38).as_bytes());
    assert_eq!(late[3], from(82).as_bytes());
    // Nobody is left, and of what was followed neither.
    until_followed(&house, (0, 0)).await;
    assert_eq!(whole(&house, lease.run, "").await, early[0], "after the end as well");
    until_followed(&house, (0, 0)).await;
}

/// What comes behind `place`, once something does.
async fn next(listener: &mut Listener, place: u64) -> Behind {
    in_time("the next event", async {
        loop {
            match listener.behind(Seq(place)) {
                Behind::Nothing => listener.changed().await,
                found => return found,
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_event_is_rendered_once_and_who_falls_behind_is_told_so() {
    let house = House::open().await;
    let lease = begun(&house).await;
    let api = house.running.handle().api();
    let view = api.store.run(lease.run).await.expect("reads").expect("a run");
    let mut listeners: Vec<Listener> = (0..8).map(|_| api.relays.join(&api.app, &view)).collect();
    assert_eq!(api.relays.counts(), (1, 8));
    assert_eq!(listeners[0].behind(Seq(0)), Behind::Left, "what was before stands in the log");
    let mut head = house.appended(&lease, 1, vec![phase(0)]).await;
    let mut at = Vec::new();
    for listener in &mut listeners {
        let Behind::Event(frame) = next(listener, 1).await else { panic!("no event") };
        at.push(frame.as_ptr());
    }
    assert!(at.iter().all(|ptr| *ptr == at[0]), "one and the same bytes");
    for _ in 0..3 {
        head = house.appended(&lease, head, vec![phase(0); 100]).await;
    }
    let last = next(&mut listeners[0], head - 1).await;
    assert!(matches!(last, Behind::Event(_)), "{last:?}");
    assert_eq!(listeners[1].behind(Seq(2)), Behind::Left, "the ring goes on without it");
    listeners.truncate(1);
    assert_eq!(api.relays.counts(), (1, 1), "they are forgotten as they go");
    house.appended(&lease, head, vec![ended(RunOutcome::Succeeded, 0)]).await;
    assert!(matches!(next(&mut listeners[0], head + 1).await, Behind::End(_)));
    drop(listeners);
    assert_eq!(api.relays.counts(), (0, 0));
}

/// Some megabytes that one client does not take hold up no other, and it gets them all when it does.
#[tokio::test]
async fn a_laggard_holds_up_nobody_and_misses_nothing() {
    let house = House::open().await;
    let lease = begun(&house).await;
    let mut slow = Stream::open(&house, lease.run, "", None).await;
    let mut quick = Stream::open(&house, lease.run, "", None).await;
    assert_eq!(
        (slow.next().await.expect("event").1, quick.next().await.expect("event").1),
        ("1".into(), "1".into())
    );
    let (mut head, text) = (1, "x".repeat(200_000));
    for turn in 1..=60 {
        head = house.appended(&lease, head, vec![asked(turn), answered_with(turn, &text)]).await;
        for seq in [head - 1, head] {
            assert_eq!(in_time("an event", quick.next()).await.expect("event").1, seq.to_string());
        }
    }
    house.appended(&lease, head, vec![ended(RunOutcome::Succeeded, 60)]).await;
    for seq in 2..=head + 1 {
        assert_eq!(in_time("an event", slow.next()).await.expect("event").1, seq.to_string());
    }
    assert_eq!((slow.next().await.expect("end").0, slow.next().await), ("end".to_owned(), None));
}

#[tokio::test]
async fn followers_who_go_in_the_middle_leave_nothing_behind() {
    let house = House::open().await;
    let (one, two) = (begun(&house).await, begun(&house).await);
    let mut streams = Vec::new();
    for lease in [&one, &one, &two] {
        let mut stream = Stream::open(&house, lease.run, "", None).await;
        stream.next().await.expect("event");
        streams.push(stream);
    }
    assert_eq!(house.running.handle().api().relays.counts(), (2, 3));
    streams.pop();
    until_followed(&house, (1, 2)).await;
    streams.pop();
    until_followed(&house, (1, 1)).await;
    house.appended(&one, 1, vec![phase(0)]).await;
    assert_eq!(streams[0].next().await.expect("event").1, "2", "who stays goes on");
    streams.clear();
    until_followed(&house, (0, 0)).await;
}
