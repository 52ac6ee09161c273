//! Imports whose pages lie, over HTTP, where nobody has checked them before; and the bounds of gc.

use docket_schema::{
    content::BlobRef,
    event::Envelope,
    export::event_line,
    ids::{RunId, Seq, StreamId, TaskId},
    wire::{GcRequest, GcResponse, IMPORT_BYTES_MAX, ImportRequest, ImportResponse, ProblemCode},
};

use super::{
    events::started,
    support::{House, token},
};
use crate::http::Role;

async fn upload(house: &House, bytes: &[u8]) -> BlobRef {
    let blob = BlobRef::of(bytes);
    let path = format!("/v1/blobs/{}", blob.hash);
    let put = house.send("PUT", &path, token(Role::Admin), bytes.to_vec(), None).await;
    assert_eq!(put.status, 204, "{put:?}");
    blob
}

/// A run with its task, as lines.
async fn lines(house: &House) -> (RunId, TaskId, Vec<Envelope>) {
    let lease = house.leased().await;
    house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    let mut events = house.store.read(StreamId::Task(lease.task), Seq(0), 100).await.expect("reads");
    events.extend(house.store.read(StreamId::Run(lease.run), Seq(0), 100).await.expect("reads"));
    (lease.run, lease.task, events)
}

fn text(events: &[Envelope]) -> String {
    events.iter().map(event_line).collect()
}

#[tokio::test]
async fn pages_that_lie_are_refused_by_the_event_and_write_nothing() {
    let house = House::open().await;
    let (run, task, events) = lines(&house).await;
    let good = text(&events);
    let mut altered = events.clone();
    altered[1].epoch = docket_schema::ids::Epoch(9);
    let cases: Vec<(String, &str)> = vec![
        ("noise\n".to_owned(), "event 1"),
        (String::new(), "is not there"),
        (
            "{\"end\":{\"events\":0,\"blobs\":0,\"digest\":\"".to_owned() + &"0".repeat(64) + "\"}}\n",
            "nothing but events",
        ),
        (text(&altered), "was altered"),
        (text(&events[1..]), "event 1"),
        (text(&events[..events.len() - 1]), "is not there"),
        (format!("{good}{good}"), "was left and comes again"),
    ];
    let before = house.store.feed(docket_schema::ids::Position(0), 1000).await.expect("reads").len();
    for (page, says) in cases {
        let pages = if page.is_empty() { vec![] } else { vec![upload(&house, page.as_bytes()).await] };
        let request = ImportRequest { run, task, made_by: "test".to_owned(), pages };
        let problem = house.admin("/v1/import", &request).await.problem();
        assert_eq!(problem.code, ProblemCode::InvalidRequest, "{problem:?}");
        assert!(problem.detail.contains(says), "{says}: {}", problem.detail);
    }
    let page = upload(&house, good.as_bytes()).await;
    let request = ImportRequest { run, task, made_by: "test".to_owned(), pages: vec![page] };
    let wrong: Vec<(ImportRequest, ProblemCode)> = vec![
        (
            ImportRequest { pages: vec![BlobRef::of(b"not uploaded")], ..request.clone() },
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
        assert_eq!(house.admin("/v1/import", &request).await.problem().code, code, "{request:?}");
    }
    let after = house.store.feed(docket_schema::ids::Position(0), 1000).await.expect("reads").len();
    assert_eq!(after, before, "nothing was written");
    // The control: the same run as it is, which is here already.
    let answer: ImportResponse = house.admin("/v1/import", &request).await.good();
    assert_eq!((answer.run, answer.streams.len()), (run, 0));
}

#[tokio::test]
async fn gc_counts_unless_told_and_never_takes_what_is_young() {
    let house = House::open().await;
    let orphan = upload(&house, b"nobody's").await;
    let young = GcRequest { delete: true, untouched_for_ms: Some(1000) };
    let problem = house.admin("/v1/gc", &young).await.problem();
    assert_eq!(problem.field.as_deref(), Some("untouched_for_ms"), "{problem:?}");
    let report: GcResponse =
        house.admin("/v1/gc", &GcRequest { delete: true, untouched_for_ms: None }).await.good();
    assert_eq!((report.blobs, report.recent, report.dropped), (2, 2, 0), "{report:?}");
    assert_eq!(house.store.blobs_present(vec![orphan.hash]).await.expect("reads"), [orphan.hash]);
}
