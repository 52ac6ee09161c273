//! Following a run by server-sent events.

use docket_schema::{ids::RunId, run::RunOutcome, wire::ProblemCode};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::events::{ended, phase, started};
use super::support::{House, token};
use crate::http::Role;

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
