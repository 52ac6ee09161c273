//! Following a run by server-sent events: single followers, and many that share one reader.

use std::time::Duration;

use docket_schema::{
    api::{Lease, ProblemCode},
    ids::{RunId, Seq},
    run::RunOutcome,
};
use futures_util::{StreamExt as _, future::join_all};
use serde_json::{Value, json};

use super::event_fixtures::{model_answered_with, model_called, phase_changed, run_ended, run_started};
use super::support::{TestServer, token_for, within_time};
use crate::http::{
    TokenRole,
    middleware::run_broadcast::{NextFrame, RunSubscriber},
};

/// Reads server-sent events from a response.
struct SseStream {
    response: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    text: String,
}

impl SseStream {
    async fn open(house: &TestServer, run: RunId, query: &str, last_id: Option<&str>) -> Self {
        let url = format!("{}/v1/runs/{run}/follow{query}", house.server.url());
        let mut request = house.client.get(url).bearer_auth(token_for(TokenRole::Read));
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.expect("answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response: Box::pin(response.bytes_stream()), text: String::new() }
    }

    /// Returns the next event: name (empty for plain ones), ID, data.
    async fn next_event(&mut self) -> Option<(String, String, Value)> {
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

    async fn collect_kinds(&mut self) -> Vec<String> {
        let mut kinds = Vec::new();
        while let Some((name, _, data)) = self.next_event().await {
            kinds.push(if name.is_empty() { data["kind"].as_str().expect("kind").to_owned() } else { name });
        }
        kinds
    }
}

#[tokio::test]
async fn follower_gets_existing_then_new_events_then_the_end() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    let mut stream = SseStream::open(&house, lease.run, "", None).await;
    let (_, id, data) = stream.next_event().await.expect("event");
    assert_eq!((id.as_str(), data["kind"].as_str()), ("1", Some("RunStarted")));
    let (next, _) = tokio::join!(stream.next_event(), house.append_ok(&lease, 1, vec![phase_changed(0)]));
    assert_eq!(next.expect("event").1, "2");
    house.append_ok(&lease, 2, vec![run_ended(RunOutcome::Succeeded, 0)]).await;
    assert_eq!(stream.next_event().await.expect("event").2["kind"], json!("RunEnded"));
    let (name, _, data) = stream.next_event().await.expect("end");
    assert_eq!((name.as_str(), &data["status"]), ("end", &json!("succeeded")));
    assert!(stream.next_event().await.is_none(), "nothing follows the end");
}

#[tokio::test]
async fn reconnected_follower_continues_after_its_last_event() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let events = vec![
        run_started(lease.task, lease.run),
        phase_changed(0),
        phase_changed(0),
        run_ended(RunOutcome::Succeeded, 0),
    ];
    house.append_ok(&lease, 0, events).await;
    assert_eq!(
        SseStream::open(&house, lease.run, "?after=1", Some("2")).await.collect_kinds().await,
        ["PhaseChanged", "RunEnded", "end"]
    );
    assert_eq!(
        SseStream::open(&house, lease.run, "?after=3", None).await.collect_kinds().await,
        ["RunEnded", "end"]
    );
    assert_eq!(SseStream::open(&house, lease.run, "", Some("4")).await.collect_kinds().await, ["end"]);
    assert_eq!(SseStream::open(&house, lease.run, "", Some("400")).await.collect_kinds().await, ["end"]);
}

#[tokio::test]
async fn follower_reads_many_events_in_order_across_pages() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let mut head = house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    for _ in 0..3 {
        head = house.append_ok(&lease, head, vec![phase_changed(0); 100]).await;
    }
    house.append_ok(&lease, head, vec![run_ended(RunOutcome::Succeeded, 0)]).await;
    let mut stream = SseStream::open(&house, lease.run, "", None).await;
    for seq in 1..=302 {
        assert_eq!(stream.next_event().await.expect("event").1, seq.to_string());
    }
    assert_eq!(stream.next_event().await.expect("end").0, "end");
}

#[tokio::test]
async fn following_an_unknown_run_or_event_id_is_a_problem() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let path = format!("/v1/runs/{}/follow", lease.run);
    let answer =
        house.send("GET", &path, token_for(TokenRole::Read), Vec::new(), Some(("last-event-id", "x"))).await;
    assert_eq!(answer.parse_problem().field.as_deref(), Some("last-event-id"));
    let nobody = RunId(uuid::Uuid::from_u128(5));
    assert_eq!(
        house.get(&format!("/v1/runs/{nobody}/follow")).await.parse_problem().code,
        ProblemCode::NotFound
    );
}

/// Creates a run with one event.
async fn lease_and_start(house: &TestServer) -> Lease {
    let lease = house.submit_and_lease().await;
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    lease
}

async fn wait_for_followers(house: &TestServer, counts: (usize, usize)) {
    let api = house.server.handle().api();
    within_time("the followers", async {
        while api.broadcasts.counts() != counts {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Returns everything that a follower receives, up to the end.
async fn read_to_end(house: &TestServer, run: RunId, query: &str) -> Vec<u8> {
    let url = format!("{}/v1/runs/{run}/follow{query}", house.server.url());
    let answer = house.client.get(url).bearer_auth(token_for(TokenRole::Read)).send().await.expect("answer");
    answer.bytes().await.expect("all of it").to_vec()
}

#[tokio::test]
async fn many_followers_get_identical_bytes_and_are_cleaned_up() {
    let house = TestServer::start().await;
    let lease = lease_and_start(&house).await;
    let early = join_all((0..20).map(|_| read_to_end(&house, lease.run, "")));
    let writes = async {
        wait_for_followers(&house, (1, 20)).await;
        let mut head = 1;
        for turn in 1..=40 {
            head = house
                .append_ok(&lease, head, vec![model_called(turn), model_answered_with(turn, "aloud")])
                .await;
            tokio::task::yield_now().await;
        }
        head
    };
    let late_and_end = async {
        let head = writes.await;
        let late = join_all(
            ["", "?after=0", "?after=37", "?after=81"].map(|query| read_to_end(&house, lease.run, query)),
        );
        let end = async {
            wait_for_followers(&house, (1, 24)).await;
            house
                .append_ok(&lease, head, vec![phase_changed(41), run_ended(RunOutcome::Succeeded, 41)])
                .await;
        };
        tokio::join!(late, end).0
    };
    let (early, late) = within_time("all of it", async { tokio::join!(early, late_and_end) }).await;
    let text = String::from_utf8(early[0].clone()).expect("text");
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, (1..=83).map(|seq| seq.to_string()).collect::<Vec<_>>(), "each once and in order");
    assert!(text.ends_with("}\n\n") && text.contains("event: end\n"), "{}", &text[text.len() - 200..]);
    assert!(early.iter().chain(&late[..2]).all(|other| *other == early[0]), "the same bytes");
    let from = |seq: u64| &text[text.find(&format!("id: {seq}\n")).expect("it is there")..];
    assert_eq!(late[2], from(38).as_bytes());
    assert_eq!(late[3], from(82).as_bytes());
    // No followers are left, and the followed run is forgotten.
    wait_for_followers(&house, (0, 0)).await;
    assert_eq!(read_to_end(&house, lease.run, "").await, early[0], "after the end as well");
    wait_for_followers(&house, (0, 0)).await;
}

/// Returns the frame after `place` once there is one.
async fn next_frame(listener: &mut RunSubscriber, place: u64) -> NextFrame {
    within_time("the next event", async {
        loop {
            match listener.next_after(Seq(place)) {
                NextFrame::Pending => listener.wait_for_change().await,
                found => return found,
            }
        }
    })
    .await
}

#[tokio::test]
async fn events_are_rendered_once_and_slow_followers_read_the_log() {
    let house = TestServer::start().await;
    let lease = lease_and_start(&house).await;
    let api = house.server.handle().api();
    let view = api.store.get_run(lease.run).await.expect("reads").expect("a run");
    let mut listeners: Vec<RunSubscriber> =
        (0..8).map(|_| api.broadcasts.subscribe(&api.app, &view)).collect();
    assert_eq!(api.broadcasts.counts(), (1, 8));
    assert_eq!(listeners[0].next_after(Seq(0)), NextFrame::OnlyInLog, "earlier events are only in the log");
    let mut head = house.append_ok(&lease, 1, vec![phase_changed(0)]).await;
    let mut at = Vec::new();
    for listener in &mut listeners {
        let NextFrame::Event(frame) = next_frame(listener, 1).await else { panic!("no event") };
        at.push(frame.as_ptr());
    }
    assert!(at.iter().all(|ptr| *ptr == at[0]), "one and the same bytes");
    for _ in 0..3 {
        head = house.append_ok(&lease, head, vec![phase_changed(0); 100]).await;
    }
    let last = next_frame(&mut listeners[0], head - 1).await;
    assert!(matches!(last, NextFrame::Event(_)), "{last:?}");
    assert_eq!(listeners[1].next_after(Seq(2)), NextFrame::OnlyInLog, "the ring advances without it");
    listeners.truncate(1);
    assert_eq!(api.broadcasts.counts(), (1, 1), "they are forgotten as they go");
    house.append_ok(&lease, head, vec![run_ended(RunOutcome::Succeeded, 0)]).await;
    assert!(matches!(next_frame(&mut listeners[0], head + 1).await, NextFrame::End(_)));
    drop(listeners);
    assert_eq!(api.broadcasts.counts(), (0, 0));
}

/// A client that does not read some megabytes delays no other client, and receives them all when it
/// reads.
#[tokio::test]
async fn slow_follower_delays_no_other_and_misses_no_event() {
    let house = TestServer::start().await;
    let lease = lease_and_start(&house).await;
    let mut slow = SseStream::open(&house, lease.run, "", None).await;
    let mut quick = SseStream::open(&house, lease.run, "", None).await;
    assert_eq!(
        (slow.next_event().await.expect("event").1, quick.next_event().await.expect("event").1),
        ("1".into(), "1".into())
    );
    let (mut head, text) = (1, "x".repeat(200_000));
    for turn in 1..=60 {
        head =
            house.append_ok(&lease, head, vec![model_called(turn), model_answered_with(turn, &text)]).await;
        for seq in [head - 1, head] {
            assert_eq!(within_time("an event", quick.next_event()).await.expect("event").1, seq.to_string());
        }
    }
    house.append_ok(&lease, head, vec![run_ended(RunOutcome::Succeeded, 60)]).await;
    for seq in 2..=head + 1 {
        assert_eq!(within_time("an event", slow.next_event()).await.expect("event").1, seq.to_string());
    }
    assert_eq!((slow.next_event().await.expect("end").0, slow.next_event().await), ("end".to_owned(), None));
}

#[tokio::test]
async fn disconnected_followers_are_cleaned_up() {
    let house = TestServer::start().await;
    let (one, two) = (lease_and_start(&house).await, lease_and_start(&house).await);
    let mut streams = Vec::new();
    for lease in [&one, &one, &two] {
        let mut stream = SseStream::open(&house, lease.run, "", None).await;
        stream.next_event().await.expect("event");
        streams.push(stream);
    }
    assert_eq!(house.server.handle().api().broadcasts.counts(), (2, 3));
    streams.pop();
    wait_for_followers(&house, (1, 2)).await;
    streams.pop();
    wait_for_followers(&house, (1, 1)).await;
    house.append_ok(&one, 1, vec![phase_changed(0)]).await;
    assert_eq!(streams[0].next_event().await.expect("event").1, "2", "the remaining follower continues");
    streams.clear();
    wait_for_followers(&house, (0, 0)).await;
}
