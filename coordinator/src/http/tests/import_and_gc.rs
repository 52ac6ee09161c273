//! Invalid imports over HTTP, and the limits of garbage collection.

use docket_schema::{
    api::{GcRequest, GcResponse, IMPORT_BYTES_MAX, ImportRequest, ImportResponse, ProblemCode},
    content::BlobRef,
    event::Envelope,
    export::format_event_line,
    ids::{RunId, Seq, StreamId, TaskId},
};

use super::{
    event_fixtures::run_started,
    support::{TestServer, token_for},
};
use crate::http::TokenRole;

async fn upload_blob(house: &TestServer, bytes: &[u8]) -> BlobRef {
    let blob = BlobRef::for_bytes(bytes);
    let path = format!("/v1/blobs/{}", blob.hash);
    let put = house.send("PUT", &path, token_for(TokenRole::Admin), bytes.to_vec(), None).await;
    assert_eq!(put.status, 204, "{put:?}");
    blob
}

/// A run with its task, as lines.
async fn exported_events(house: &TestServer) -> (RunId, TaskId, Vec<Envelope>) {
    let lease = house.submit_and_lease().await;
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    let mut events = house.store.read_events(StreamId::Task(lease.task), Seq(0), 100).await.expect("reads");
    events.extend(house.store.read_events(StreamId::Run(lease.run), Seq(0), 100).await.expect("reads"));
    (lease.run, lease.task, events)
}

fn to_jsonl(events: &[Envelope]) -> String {
    events.iter().map(format_event_line).collect()
}

#[tokio::test]
async fn inconsistent_import_pages_are_rejected_and_write_nothing() {
    let house = TestServer::start().await;
    let (run, task, events) = exported_events(&house).await;
    let good = to_jsonl(&events);
    let mut altered = events.clone();
    altered[1].epoch = docket_schema::ids::Epoch(9);
    let cases: Vec<(String, &str)> = vec![
        ("noise\n".to_owned(), "event 1"),
        (String::new(), "is missing"),
        (
            "{\"end\":{\"events\":0,\"blobs\":0,\"digest\":\"".to_owned() + &"0".repeat(64) + "\"}}\n",
            "only contain events",
        ),
        (to_jsonl(&altered), "was altered"),
        (to_jsonl(&events[1..]), "event 1"),
        (to_jsonl(&events[..events.len() - 1]), "is missing"),
        (format!("{good}{good}"), "is not contiguous"),
    ];
    let before = house.store.read_log(docket_schema::ids::Position(0), 1000).await.expect("reads").len();
    for (page, says) in cases {
        let pages = if page.is_empty() { vec![] } else { vec![upload_blob(&house, page.as_bytes()).await] };
        let request = ImportRequest { run, task, made_by: "test".to_owned(), pages };
        let problem = house.post_as_admin("/v1/import", &request).await.parse_problem();
        assert_eq!(problem.code, ProblemCode::InvalidRequest, "{problem:?}");
        assert!(problem.detail.contains(says), "{says}: {}", problem.detail);
    }
    let page = upload_blob(&house, good.as_bytes()).await;
    let request = ImportRequest { run, task, made_by: "test".to_owned(), pages: vec![page] };
    let wrong: Vec<(ImportRequest, ProblemCode)> = vec![
        (
            ImportRequest { pages: vec![BlobRef::for_bytes(b"not uploaded")], ..request.clone() },
            ProblemCode::BlobMissing,
        ),
        (
            ImportRequest { pages: vec![BlobRef { bytes: 1, ..page }], ..request.clone() },
            ProblemCode::BlobMismatch,
        ),
        (
            ImportRequest { pages: vec![BlobRef { bytes: IMPORT_BYTES_MAX + 1, ..page }], ..request.clone() },
            ProblemCode::TooLarge,
        ),
        (ImportRequest { task: TaskId(run.0), ..request.clone() }, ProblemCode::InvalidRequest),
        (ImportRequest { made_by: "x".repeat(101), ..request.clone() }, ProblemCode::InvalidRequest),
    ];
    for (request, code) in wrong {
        assert_eq!(
            house.post_as_admin("/v1/import", &request).await.parse_problem().code,
            code,
            "{request:?}"
        );
    }
    let after = house.store.read_log(docket_schema::ids::Position(0), 1000).await.expect("reads").len();
    assert_eq!(after, before, "nothing was written");
    // Control: the same run unchanged, which exists already.
    let answer: ImportResponse = house.post_as_admin("/v1/import", &request).await.parse_success();
    assert_eq!((answer.run, answer.streams.len()), (run, 0));
}

#[tokio::test]
async fn gc_only_counts_by_default_and_spares_recent_blobs() {
    let house = TestServer::start().await;
    let orphan = upload_blob(&house, b"nobody's").await;
    let young = GcRequest { delete: true, untouched_for_ms: Some(1000) };
    let problem = house.post_as_admin("/v1/gc", &young).await.parse_problem();
    assert_eq!(problem.field.as_deref(), Some("untouched_for_ms"), "{problem:?}");
    let report: GcResponse = house
        .post_as_admin("/v1/gc", &GcRequest { delete: true, untouched_for_ms: None })
        .await
        .parse_success();
    assert_eq!((report.blobs, report.recent, report.dropped), (2, 2, 0), "{report:?}");
    assert_eq!(house.store.find_present_blobs(vec![orphan.hash]).await.expect("reads"), [orphan.hash]);
}
