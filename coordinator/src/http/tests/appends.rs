//! Rejected appends, and batches of appends.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use docket_schema::{
    api::{AppendManyRequest, AppendManyResponse, AppendResult, BlobUpload, ProblemCode, StreamAppend},
    content::BlobRef,
    event::{EVENTS_PER_APPEND_MAX, NewEvent, PAYLOAD_BYTES_MAX, Payload, TypedEvent as _},
    ids::{BlobHash, RunId, Turn},
    run::{CancelRequested, RunEvent, RunOutcome, Told},
};
use serde_json::{Value, json};

use super::event_fixtures::{MANIFEST, phase_changed, run_ended, run_started, task_spec};
use super::support::{TestServer, append_request, lease_request, token_for};
use crate::http::TokenRole;

fn raw_event(kind: &str, version: u16, payload: &str) -> NewEvent {
    let payload = Payload::from_store(payload.to_owned());
    NewEvent { kind: kind.to_owned(), version, turn: Turn(0), payload }
}

#[tokio::test]
async fn undecodable_or_coordinator_only_events_are_rejected() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let told = RunEvent::from(Told { text: "psst".into(), by: "me".to_owned() }).encode(Turn(0));
    let cancel = CancelRequested { by: "me".to_owned(), reason: String::new() };
    let cancel = RunEvent::from(cancel).encode(Turn(0));
    let long = format!(r#"{{"phase":"editing","more":"{}"}}"#, "x".repeat(PAYLOAD_BYTES_MAX));
    let other = run_started(lease.task, RunId(uuid::Uuid::from_u128(1)));
    let deep = format!(r#"{{"phase":"editing","more":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let table: Vec<(&str, Vec<NewEvent>, ProblemCode, &str)> = vec![
        ("no events", vec![], ProblemCode::InvalidRequest, "events"),
        ("too many", vec![phase_changed(0); EVENTS_PER_APPEND_MAX + 1], ProblemCode::TooLarge, "events"),
        (
            "half a surrogate pair in an unknown field",
            vec![raw_event("PhaseChanged", 1, r#"{"phase":"editing","more":"\ud800"}"#)],
            ProblemCode::InvalidRequest,
            "events[0]",
        ),
        (
            "too much depth in an unknown field",
            vec![raw_event("PhaseChanged", 1, &deep)],
            ProblemCode::InvalidRequest,
            "body",
        ),
        ("unknown kind", vec![raw_event("Danced", 1, "{}")], ProblemCode::InvalidRequest, "events[0]"),
        (
            "unknown version",
            vec![raw_event("PhaseChanged", 9, "{}")],
            ProblemCode::InvalidRequest,
            "events[0]",
        ),
        (
            "wrong shape",
            vec![phase_changed(0), raw_event("PhaseChanged", 1, "{}")],
            ProblemCode::InvalidRequest,
            "events[1]",
        ),
        ("too long", vec![raw_event("PhaseChanged", 1, &long)], ProblemCode::TooLarge, "events[0].payload"),
        (
            "line breaks",
            vec![raw_event("PhaseChanged", 1, "{\n\"phase\":\"editing\"}")],
            ProblemCode::InvalidRequest,
            "events[0]",
        ),
        ("told", vec![told], ProblemCode::InvalidRequest, "events[0]"),
        ("cancel", vec![cancel], ProblemCode::InvalidRequest, "events[0]"),
        ("superseded", vec![run_ended(RunOutcome::Superseded, 0)], ProblemCode::InvalidRequest, "events[0]"),
        ("another run", vec![other], ProblemCode::InvalidRequest, "events[0]"),
        (
            "after the end",
            vec![run_ended(RunOutcome::Succeeded, 0), phase_changed(0)],
            ProblemCode::InvalidRequest,
            "events[1]",
        ),
    ];
    for (name, events, code, field) in table {
        let problem = house.send_append(&lease, 0, events).await.parse_problem();
        assert_eq!(
            (problem.code, problem.field.as_deref()),
            (code, Some(field)),
            "{name}: {}",
            problem.detail
        );
    }
    let page: Value = house.get(&format!("/v1/runs/{}/events", lease.run)).await.parse_success();
    assert_eq!(page["events"], json!([]), "nothing of it was written");
}

#[tokio::test]
async fn blobs_uploaded_before_or_with_an_append_are_verified() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let path = format!("/v1/runs/{}/append", lease.run);
    let bytes = b"a long part".repeat(1000);
    let upload = |blob| BlobUpload { blob, b64: STANDARD.encode(&bytes) };
    let mut request = append_request(lease.epoch, 0, vec![run_started(lease.task, lease.run)]);

    request.names = vec![BlobHash::hash_bytes(b"never stored")];
    let problem = house.post(&path, &lease.token, &request).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::BlobMissing);
    request.names = vec![BlobHash::hash_bytes(MANIFEST)];

    request.blobs = vec![upload(BlobRef { hash: BlobHash::hash_bytes(b"other"), bytes: bytes.len() as u64 })];
    let problem = house.post(&path, &lease.token, &request).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::BlobMismatch, Some("blobs[0]")));

    request.blobs = vec![BlobUpload { blob: BlobRef::for_bytes(&bytes), b64: "***".to_owned() }];
    let problem = house.post(&path, &lease.token, &request).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some("blobs[0].b64")));

    request.blobs = vec![upload(BlobRef::for_bytes(&bytes))];
    assert_eq!(house.post(&path, &lease.token, &request).await.status, 200);
    let hash = BlobHash::hash_bytes(&bytes);
    let got = house.send("GET", &format!("/v1/blobs/{hash}"), &lease.token, Vec::new(), None).await;
    assert_eq!((got.status, got.body == bytes), (200, true));
    assert_eq!(
        house.send("HEAD", &format!("/v1/blobs/{hash}"), &lease.token, Vec::new(), None).await.status,
        200
    );

    let put = format!("/v1/blobs/{}", BlobHash::hash_bytes(b"x"));
    let problem = house.send("PUT", &put, &lease.token, b"y".to_vec(), None).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::BlobMismatch);
    let body = json!({ "hashes": [hash, BlobHash::hash_bytes(b"x")] });
    let missing: Value = house.post("/v1/blobs/missing", &lease.token, &body).await.parse_success();
    assert_eq!(missing["missing"], json!([BlobHash::hash_bytes(b"x")]));
}

#[tokio::test]
async fn batched_appends_keep_order_per_run_and_fail_independently() {
    let house = TestServer::start().await;
    let one = house.submit_and_lease().await;
    house.submit_spec(task_spec("another")).await;
    let two = house.lease_with(&lease_request(0)).await.remove(0);
    let of = |lease: &docket_schema::api::Lease, at, event| StreamAppend {
        run: lease.run,
        token: lease.token.clone(),
        append: append_request(lease.epoch, at, vec![event]),
    };
    let mut appends =
        vec![of(&one, 0, run_started(one.task, one.run)), of(&two, 0, run_started(two.task, two.run))];
    appends.extend((1..20).map(|at| of(&one, at, phase_changed(0))));
    appends.push(of(&two, 0, phase_changed(0)));
    appends.push(StreamAppend { token: one.token.clone(), ..of(&two, 1, phase_changed(0)) });
    appends.push(StreamAppend { token: "dkr_x".to_owned(), ..of(&two, 1, phase_changed(0)) });
    appends.push(of(&two, 1, run_ended(RunOutcome::Succeeded, 0)));
    let answer: AppendManyResponse = house
        .post("/v1/append", token_for(TokenRole::Worker), &AppendManyRequest { appends })
        .await
        .parse_success();
    let said: Vec<Result<u64, ProblemCode>> = answer
        .results
        .into_iter()
        .map(|result| match result {
            AppendResult::Appended(done) => Ok(done.head.seq.0),
            AppendResult::Refused(problem) => Err(problem.code),
        })
        .collect();
    let mut wanted: Vec<_> = vec![Ok(1), Ok(1)];
    wanted.extend((2..=20).map(Ok));
    wanted.extend([
        Err(ProblemCode::WrongSeq),
        Err(ProblemCode::Forbidden),
        Err(ProblemCode::Unauthorized),
        Ok(2),
    ]);
    assert_eq!(said, wanted);
    assert_eq!(house.task_state(two.task).await, "completed");
}
