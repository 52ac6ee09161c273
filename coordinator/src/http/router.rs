//! The table of routes, and what is the same for all of them.
//!
//! [`ROUTES`] is the only list: the router, the OpenAPI document and the test of tokens are all
//! made from it. Order of checks: head, host, token, pace, role, epoch, size, then the route's own.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts as _, RawPathParams, Request},
    http::{Response, request::Parts},
    routing::on,
};
use docket_schema::{
    system::Role,
    wire::{self, ProblemCode},
};
use futures_util::FutureExt as _;

use super::{
    answer,
    api::{Api, ApiConfig},
    append, archive,
    auth::Access,
    batches, blobs, budgets, bulk,
    call::{Call, read_body},
    carry, delegate, delivery,
    errors::Refusal,
    feed, fork, guard, health, inbox, lease, limits, lineage, memory,
    meters::HttpMeters,
    metrics, notifications, openapi, overview, past, queues, reports, resolve,
    route::{Route, Shape, Verb},
    runs, schedules, sse, status, tasks, tokens, ui,
};
use crate::{app::AppState, dashboard};

macro_rules! by {
    ($handler:path) => {
        |api, call| Box::pin($handler(api, call))
    };
}

/// What concerns the installation as a whole.
const ADMINS: Access = Access::Roles(&[]);
const READS: Access = Access::Roles(&[Role::Read, Role::Submit]);
const SUBMITS: Access = Access::Roles(&[Role::Submit]);
const WORKS: Access = Access::Roles(&[Role::Worker]);
const READS_OR_OWN_RUN: Access = Access::RolesAndRuns(&[Role::Read, Role::Submit]);
const APPENDS: Access = Access::Appends(&[]);
const APPENDS_MANY: Access = Access::Appends(&[Role::Worker]);
const STORES_BLOBS: Access = Access::RolesAndRuns(&[Role::Submit, Role::Worker]);
/// Blobs hold snapshots, and those are exact: no redaction was done on them.
const READS_BLOBS: Access = Access::RolesAndRuns(&[]);

/// Every route there is.
#[rustfmt::skip]
pub(crate) static ROUTES: &[Route] = &[
    Route::new((Verb::Get, "/v1/tasks"), READS, "Lists tasks, newest first", by!(tasks::list))
        .query::<wire::TaskQuery>().gives::<wire::TaskPage>(),
    Route::new((Verb::Post, "/v1/tasks"), SUBMITS, "Puts tasks into the backlog, all or none", by!(tasks::submit))
        .takes::<wire::SubmitRequest>().large().gives::<wire::SubmitResponse>(),
    Route::new((Verb::Post, "/v1/tasks/bulk"), SUBMITS, "Does one thing to many tasks, a page at a time", by!(bulk::bulk))
        .takes::<wire::BulkRequest>().gives::<wire::BulkResponse>(),
    Route::new((Verb::Get, "/v1/batches"), READS, "The batches of the newest tasks", by!(batches::list))
        .gives::<wire::BatchList>(),
    Route::new((Verb::Post, "/v1/batches/{id}/budget"), SUBMITS, "Sets what the runs of a batch may use together", by!(budgets::set))
        .takes::<wire::SetBudgetRequest>().gives::<wire::BudgetView>(),
    Route::new((Verb::Get, "/v1/batches/{id}"), READS, "How a batch stands", by!(batches::show))
        .gives::<wire::BatchView>(),
    Route::new((Verb::Get, "/v1/tasks/{id}"), READS, "A task and its runs", by!(tasks::show))
        .gives::<wire::TaskView>(),
    Route::new((Verb::Post, "/v1/tasks/{id}/cancel"), SUBMITS, "Cancels a task, also while it runs", by!(tasks::cancel))
        .takes::<wire::ActRequest>().gives::<docket_schema::task::TaskRecord>(),
    Route::new((Verb::Post, "/v1/tasks/{id}/retry"), SUBMITS, "Runs a task again from the start", by!(tasks::retry))
        .takes::<wire::RetryRequest>().gives::<docket_schema::task::TaskRecord>(),
    Route::new((Verb::Post, "/v1/tasks/{id}/answer"), SUBMITS, "Answers what a blocked run asked; it goes on where it stood", by!(answer::answer))
        .takes::<wire::AnswerRequest>().gives::<docket_schema::task::TaskRecord>(),
    Route::new((Verb::Post, "/v1/tasks/{id}/pause"), SUBMITS, "Lets a task rest; a run under way at its next turn", by!(tasks::pause))
        .takes::<wire::PauseRequest>().gives::<docket_schema::task::TaskRecord>(),
    Route::new((Verb::Post, "/v1/tasks/{id}/unpause"), SUBMITS, "Lets a paused task go on where it rested", by!(tasks::unpause))
        .takes::<wire::PauseRequest>().gives::<docket_schema::task::TaskRecord>(),
    Route::new((Verb::Get, "/v1/tasks/{id}/why"), READS, "What keeps a task from running", by!(queues::why))
        .gives::<wire::WhyView>(),
    Route::new((Verb::Get, "/v1/queues"), READS, "How the queues stand, and what is set for them", by!(queues::list))
        .gives::<wire::QueueList>(),
    Route::new((Verb::Post, "/v1/queues/{name}"), ADMINS, "Pauses, opens or limits a queue", by!(queues::set))
        .takes::<wire::SetQueueRequest>().gives::<wire::QueueView>(),
    Route::new((Verb::Get, "/v1/inbox"), READS, "What applications enqueued and no coordinator has made tasks of", by!(inbox::list))
        .gives::<wire::InboxList>(),
    Route::new((Verb::Post, "/v1/inbox/{row}/drop"), ADMINS, "Drops what stands in the inbox", by!(inbox::drop_row))
        .takes::<wire::InboxActRequest>().gives::<wire::InboxActRequest>(),
    Route::new((Verb::Post, "/v1/inbox/{row}/retry"), ADMINS, "Looks once more at what was refused from the inbox", by!(inbox::retry))
        .takes::<wire::InboxActRequest>().gives::<wire::InboxActRequest>(),
    Route::new((Verb::Get, "/v1/limits"), READS, "How fast model providers may be asked", by!(limits::list))
        .gives::<wire::LimitList>(),
    Route::new((Verb::Post, "/v1/limits/{provider}"), ADMINS, "Sets how fast a model provider may be asked, by all workers together", by!(limits::set))
        .takes::<wire::SetLimitRequest>().gives::<wire::LimitList>(),
    Route::new((Verb::Post, "/v1/limits/{provider}/remove"), ADMINS, "Lets a model provider be asked as fast as one likes", by!(limits::remove))
        .takes::<wire::RemoveLimitRequest>().gives::<wire::LimitList>(),
    Route::new((Verb::Post, "/v1/runs/{id}/permit"), APPENDS, "When a run may ask a model", by!(limits::permit))
        .takes::<wire::PermitRequest>().gives::<wire::PermitResponse>(),
    Route::new((Verb::Post, "/v1/runs/{id}/memory"), APPENDS, "A run saves, recalls or forgets, for its repository or its queue", by!(memory::of_run))
        .takes::<wire::RunMemoryRequest>().gives::<wire::RunMemoryResponse>(),
    Route::new((Verb::Get, "/v1/memory"), READS, "What is remembered beyond runs", by!(memory::list))
        .query::<wire::MemoryQuery>().gives::<wire::MemoryList>(),
    Route::new((Verb::Post, "/v1/memory/delete"), ADMINS, "Forgets a key", by!(memory::delete))
        .takes::<wire::DeleteMemoryRequest>().gives::<wire::MemoryList>(),
    Route::new((Verb::Post, "/v1/runs/{id}/delegate"), APPENDS, "Gives work of a run away to a child task", by!(delegate::delegate))
        .takes::<wire::DelegateRequest>().large().gives::<wire::DelegateResponse>(),
    Route::new((Verb::Get, "/v1/runs/{id}/children"), READS_OR_OWN_RUN, "The tasks that a run gave away", by!(delegate::children))
        .gives::<wire::ChildList>(),
    Route::new((Verb::Get, "/v1/notifications"), READS, "Who is told of what needs them, and what became of telling", by!(notifications::list))
        .query::<wire::NotificationQuery>().gives::<wire::NotificationList>(),
    Route::new((Verb::Post, "/v1/notifications/test"), ADMINS, "Tells targets something, for a try", by!(notifications::test))
        .takes::<wire::TestNotificationRequest>().gives::<wire::NotificationView>(),
    Route::new((Verb::Post, "/v1/notifications/{id}/retry"), ADMINS, "Tells once more who did not take it", by!(notifications::retry))
        .takes::<wire::RetryNotificationRequest>().gives::<wire::NotificationView>(),
    Route::new((Verb::Post, "/v1/notifications/{id}/drop"), ADMINS, "Gives up what somebody did not take", by!(notifications::drop_one))
        .takes::<wire::DropNotificationRequest>().gives::<wire::NotificationView>(),
    Route::new((Verb::Get, "/v1/schedules"), READS, "Tasks that come again and again", by!(schedules::list))
        .gives::<wire::ScheduleList>(),
    Route::new((Verb::Get, "/v1/schedules/{name}"), READS, "A schedule", by!(schedules::show))
        .gives::<wire::ScheduleView>(),
    Route::new((Verb::Post, "/v1/schedules/{name}"), SUBMITS, "Makes a schedule, or replaces it", by!(schedules::set))
        .takes::<wire::SetScheduleRequest>().gives::<wire::ScheduleView>(),
    Route::new((Verb::Post, "/v1/schedules/{name}/pause"), SUBMITS, "Lets a schedule rest", by!(schedules::pause))
        .takes::<wire::ScheduleActRequest>().gives::<wire::ScheduleView>(),
    Route::new((Verb::Post, "/v1/schedules/{name}/unpause"), SUBMITS, "Lets a schedule go on", by!(schedules::unpause))
        .takes::<wire::ScheduleActRequest>().gives::<wire::ScheduleView>(),
    Route::new((Verb::Post, "/v1/schedules/{name}/remove"), SUBMITS, "Ends a schedule; its tasks stay", by!(schedules::remove))
        .takes::<wire::ScheduleActRequest>().gives::<wire::ScheduleActRequest>(),
    Route::new((Verb::Post, "/v1/schedules/{name}/run"), SUBMITS, "Gives a schedule's task now", by!(schedules::run))
        .takes::<wire::RunScheduleRequest>().gives::<wire::ScheduleView>(),
    Route::new((Verb::Post, "/v1/workers/{id}/drain"), ADMINS, "Lets a worker end what it has, take no more, and end", by!(queues::drain_worker))
        .takes::<wire::DrainWorkerRequest>().gives::<wire::DrainWorkerRequest>(),
    Route::new((Verb::Post, "/v1/tasks/{id}/delivery"), SUBMITS, "Records a step of delivering a run's result", by!(delivery::record))
        .takes::<wire::DeliveryRequest>().gives::<docket_schema::task::TaskRecord>(),
    Route::new((Verb::Post, "/v1/tasks/{id}/release"), WORKS, "Gives a lease back", by!(lease::release))
        .takes::<wire::ReleaseRequest>().gives::<wire::ReleaseResponse>(),
    Route::new((Verb::Post, "/v1/lease"), WORKS, "Asks for work; waits for some", by!(lease::lease))
        .takes::<wire::LeaseRequest>().gives::<wire::LeaseResponse>(),
    Route::new((Verb::Post, "/v1/heartbeat"), WORKS, "Renews leases; waits for news of them", by!(lease::heartbeat))
        .takes::<wire::HeartbeatRequest>().gives::<wire::HeartbeatResponse>(),
    Route::new((Verb::Get, "/v1/runs/{id}"), READS_OR_OWN_RUN, "A run", by!(runs::show))
        .gives::<wire::RunView>(),
    Route::new((Verb::Get, "/v1/runs/{id}/events"), READS_OR_OWN_RUN, "Events of a run", by!(runs::events))
        .query::<wire::EventsQuery>().gives::<wire::EventPage>(),
    Route::new((Verb::Get, "/v1/runs/{id}/follow"), READS, "Events of a run as they are appended", by!(sse::follow))
        .query::<wire::FollowQuery>().gives_shape(Shape::Events),
    Route::new((Verb::Post, "/v1/runs/{id}/tell"), SUBMITS, "Tells a run something", by!(runs::tell))
        .takes::<wire::TellRequest>().gives::<wire::TellResponse>(),
    Route::new((Verb::Post, "/v1/runs/{id}/policy"), ADMINS, "Changes what a run's model may do, from its next turn on", by!(runs::policy))
        .takes::<wire::PolicyRequest>().gives::<wire::TellResponse>(),
    Route::new((Verb::Post, "/v1/runs/{id}/resume"), SUBMITS, "Goes on from a turn's end as a new run of the task", by!(fork::resume))
        .takes::<wire::ResumeRequest>().large().gives::<wire::ResumeResponse>(),
    Route::new((Verb::Post, "/v1/runs/{id}/accept"), SUBMITS, "Takes a run's result", by!(delivery::accept))
        .takes::<wire::AcceptRequest>().gives::<docket_schema::task::TaskRecord>(),
    Route::new((Verb::Post, "/v1/runs/{id}/reject"), SUBMITS, "Goes on from a run's end as a new run that is told what is wrong", by!(fork::reject))
        .takes::<wire::RejectRequest>().gives::<wire::ResumeResponse>(),
    Route::new((Verb::Post, "/v1/runs/{id}/fork"), SUBMITS, "Goes on from a turn's end as new tasks", by!(fork::fork))
        .takes::<wire::ForkRequest>().large().gives::<wire::ForkResponse>(),
    Route::new((Verb::Get, "/v1/runs/{id}/lineage"), READS, "The tree of runs that share history with this one", by!(lineage::lineage))
        .gives::<wire::LineageView>(),
    Route::new((Verb::Get, "/v1/runs/{id}/timeline"), READS, "A run turn by turn, in a line each", by!(past::timeline))
        .query::<wire::TimelineQuery>().gives::<wire::Timeline>(),
    Route::new((Verb::Get, "/v1/runs/{id}/turn"), READS, "One turn: what was said, called and answered, and what the run knew after it", by!(past::turn))
        .query::<wire::TurnQuery>().gives::<wire::TurnAnswer>(),
    Route::new((Verb::Get, "/v1/runs/{id}/output"), READS, "The whole output of a tool call or a final check", by!(past::output))
        .query::<wire::OutputQuery>().gives_shape(Shape::Text),
    Route::new((Verb::Get, "/v1/runs/{id}/files"), ADMINS, "A file or folder as it was after a turn", by!(past::files))
        .query::<wire::FilesQuery>().gives::<wire::FileView>(),
    Route::new((Verb::Get, "/v1/runs/{id}/diff"), ADMINS, "What differs between two moments of a run, or of two runs", by!(past::diff))
        .query::<wire::DiffQuery>().gives::<wire::DiffView>(),
    Route::new((Verb::Get, "/v1/runs/{id}/export"), READS, "A run as a file", by!(past::export))
        .query::<wire::ExportQuery>().gives_shape(Shape::Files(&["application/json", "application/x-ndjson", "application/zstd"])),
    Route::new((Verb::Post, "/v1/runs/{id}/append"), APPENDS, "Adds events to a run", by!(append::append))
        .takes::<wire::AppendRequest>().large().gives::<wire::AppendResponse>(),
    Route::new((Verb::Post, "/v1/append"), APPENDS_MANY, "Adds events to several runs; each append stands alone", by!(append::append_many))
        .takes::<wire::AppendManyRequest>().large().gives::<wire::AppendManyResponse>(),
    Route::new((Verb::Get, "/v1/blobs/{hash}"), READS_BLOBS, "A blob's bytes", by!(blobs::get))
        .gives_shape(Shape::Bytes),
    Route::new((Verb::Head, "/v1/blobs/{hash}"), STORES_BLOBS, "Whether a blob is stored", by!(blobs::head)),
    Route::new((Verb::Put, "/v1/blobs/{hash}"), STORES_BLOBS, "Stores a blob", by!(blobs::put))
        .takes_bytes(),
    Route::new((Verb::Get, "/v1/blobs/check"), READS, "Which stored blobs are not what their names say", by!(blobs::check))
        .query::<wire::BlobCheckQuery>().gives::<wire::BlobCheck>(),
    Route::new((Verb::Post, "/v1/blobs/missing"), STORES_BLOBS, "Which blobs are not stored", by!(blobs::missing))
        .takes::<wire::MissingBlobsRequest>().gives::<wire::MissingBlobsResponse>(),
    Route::new((Verb::Get, "/v1/events"), READS, "Events of any stream", by!(feed::events))
        .query::<wire::EventsQuery>().gives::<wire::EventPage>(),
    Route::new((Verb::Get, "/v1/feed"), READS, "The whole log in order of position", by!(feed::feed))
        .query::<wire::FeedQuery>().gives::<wire::EventPage>(),
    Route::new((Verb::Get, "/v1/streams"), READS, "Every stream and its head", by!(feed::streams))
        .query::<wire::StreamsQuery>().gives::<wire::StreamPage>(),
    Route::new((Verb::Get, "/v1/resolve/{prefix}"), READS, "Ids that begin, or end, with these digits", by!(resolve::resolve))
        .gives::<wire::Resolved>(),
    Route::new((Verb::Get, "/v1/cost"), READS, "What the model calls of runs cost, a page at a time", by!(reports::cost))
        .query::<wire::CostQuery>().gives::<wire::CostPage>(),
    Route::new((Verb::Get, "/v1/cost/days"), READS, "What model calls cost by day and model, a page at a time", by!(overview::cost_days))
        .query::<wire::CostDaysQuery>().gives::<wire::CostDaysPage>(),
    Route::new((Verb::Get, "/v1/overview"), READS, "What needs a person, what runs, what just ended, and how all of it stands", by!(overview::overview))
        .query::<wire::OverviewQuery>().gives::<wire::Overview>(),
    Route::new((Verb::Get, "/v1/metrics"), READS, "How well tasks went, against the targets, a page at a time", by!(reports::metrics))
        .query::<wire::MetricsQuery>().gives::<wire::MetricsPage>(),
    Route::new((Verb::Get, "/v1/status"), Access::Roles(&[Role::Read, Role::Submit, Role::Worker]), "How the queue stands", by!(status::status))
        .gives::<wire::Status>(),
    Route::new((Verb::Post, "/v1/import"), ADMINS, "Writes a run that came from another installation", by!(carry::import))
        .takes::<wire::ImportRequest>().gives::<wire::ImportResponse>(),
    Route::new((Verb::Post, "/v1/gc"), ADMINS, "Counts, or drops, blobs that nothing names", by!(carry::gc))
        .takes::<wire::GcRequest>().gives::<wire::GcResponse>(),
    Route::new((Verb::Post, "/v1/archive"), ADMINS, "Moves tasks that ended long ago to the archive", by!(archive::archive))
        .takes::<wire::ArchiveRequest>().gives::<wire::ArchiveResponse>(),
    Route::new((Verb::Get, "/v1/archive/tasks"), READS, "Tasks that are archived, the newest first", by!(archive::tasks))
        .query::<wire::ArchivedTaskQuery>().gives::<wire::ArchivedTaskPage>(),
    Route::new((Verb::Get, "/v1/archived"), READS, "What stands in the place of archived streams", by!(archive::list))
        .query::<wire::ArchivedQuery>().gives::<wire::ArchivedPage>(),
    Route::new((Verb::Get, "/v1/archived/{id}"), READS, "What stands in the place of a task or run", by!(archive::show))
        .gives::<wire::ArchivedView>(),
    Route::new((Verb::Get, "/v1/archived/{id}/file"), ADMINS, "A part of the file that holds a task or run", by!(archive::file))
        .query::<wire::ArchiveFileQuery>().gives_shape(Shape::Bytes),
    Route::new((Verb::Post, "/v1/archived/{id}/restore"), ADMINS, "Brings a task or run back, with all that shares its history", by!(archive::bring_back))
        .gives::<wire::RestoreResponse>(),
    Route::new((Verb::Get, "/v1/whoami"), Access::Roles(&[Role::Read, Role::Submit, Role::Worker]), "Whose token this is, and what it is good for", by!(ui::whoami))
        .gives::<wire::Whoami>(),
    Route::new((Verb::Get, "/v1/tokens"), ADMINS, "Tokens that were made, without themselves", by!(tokens::list))
        .gives::<wire::TokenList>(),
    Route::new((Verb::Post, "/v1/tokens"), ADMINS, "Makes a token; it is told this once", by!(tokens::create))
        .takes::<wire::CreateTokenRequest>().gives::<wire::CreatedToken>(),
    Route::new((Verb::Post, "/v1/tokens/{name}/revoke"), ADMINS, "Ends a token", by!(tokens::revoke))
        .takes::<wire::RevokeTokenRequest>().gives::<wire::TokenView>(),
    Route::new((Verb::Get, "/v1/queues/{name}/load"), READS, "How many tasks of a queue run or could: for autoscalers", by!(queues::load))
        .query::<wire::LoadQuery>().gives::<wire::QueueLoad>(),
    Route::new((Verb::Get, "/metrics"), Access::Roles(&[Role::Read, Role::Submit, Role::Worker]), "Queues, workers, and what this process did, as Prometheus reads it", by!(metrics::metrics))
        .gives_shape(Shape::Text),
    Route::new((Verb::Get, "/healthz"), Access::Open, "The process answers", by!(health::healthz))
        .gives::<wire::Health>(),
    Route::new((Verb::Get, "/readyz"), Access::Open, "The store answers as well", by!(health::readyz))
        .gives::<wire::Health>(),
    Route::new((Verb::Get, "/openapi.json"), Access::Open, "This document", by!(openapi::serve))
        .gives::<serde_json::Map<String, serde_json::Value>>(),
];

/// The API of an application, with a meter for each route of the table.
pub(crate) fn build_api(app: Arc<AppState>, config: ApiConfig<'_>) -> Arc<Api> {
    let meters = HttpMeters::new(ROUTES.iter().map(Route::name));
    Arc::new(Api::new(app, config, meters))
}

/// The router over the table.
pub(crate) fn router(api: Arc<Api>) -> Router {
    router_of(api, ROUTES.iter().chain(ui::UI_ROUTES))
}

/// A router over these routes.
pub(super) fn router_of(api: Arc<Api>, routes: impl IntoIterator<Item = &'static Route>) -> Router {
    let mut router = Router::new();
    for route in routes {
        let api = Arc::clone(&api);
        let handler = move |request: Request| dispatch(Arc::clone(&api), route, request);
        router = router.route(route.path, on(route.verb.filter(), handler));
    }
    let (unknown, wrong_method) = (Arc::clone(&api), api);
    router
        .fallback(move |request: Request| {
            let refusal = Refusal::new(ProblemCode::NotFound, "there is no such route; see /openapi.json");
            unrouted(Arc::clone(&unknown), request, refusal)
        })
        .method_not_allowed_fallback(move |request: Request| {
            let refusal = Refusal::new(
                ProblemCode::MethodNotAllowed,
                format!("this route does not take {}; see /openapi.json", request.method()),
            );
            unrouted(Arc::clone(&wrong_method), request, refusal.field("method"))
        })
}

async fn unrouted(api: Arc<Api>, request: Request, refusal: Refusal) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let is_page = dashboard::is_page(parts.uri.path());
    let passed = match guard::check(&api, &parts, None) {
        Ok(()) => guard::pace(&api, &parts).await,
        Err(refused) => Err(refused),
    };
    let refusal = passed.err().unwrap_or(refusal);
    guard::dressed(refusal.into_response(), is_page)
}

async fn dispatch(api: Arc<Api>, route: &'static Route, request: Request) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let (began, meters) = (Instant::now(), Arc::clone(&api));
    let is_page = dashboard::is_page(parts.uri.path());
    let answer = async {
        guard::check(&api, &parts, Some(route.access))?;
        let peer = guard::peer(&parts);
        let caller = guard::authorize(&api, route.access, &parts).await?;
        if route.access.asks_who_holds() {
            api.must_be_in_force(&caller).await?;
        }
        let param = path_param(&mut parts).await?;
        let body = read_body(&parts.headers, body, route.body_bytes_max, api.limits.body_read).await?;
        let call = Call { caller, peer, param, uri: parts.uri, headers: parts.headers, body };
        (route.handler)(api, call).await
    };
    // A panic is a fault of ours: one request is lost, not the connection's others.
    let response = match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(refusal)) => refusal.into_response(),
        Err(_) => {
            tracing::error!(route = route.path, "a route panicked");
            Refusal::new(ProblemCode::Internal, "a fault of docket; its log says more").into_response()
        }
    };
    meters.meters.answered(route.name(), response.status(), began.elapsed());
    guard::dressed(response, is_page)
}

/// The path's one placeholder.
async fn path_param(parts: &mut Parts) -> Result<String, Refusal> {
    let params = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| {
        Refusal::new(ProblemCode::InvalidRequest, "the path is not UTF-8 once decoded").field("path")
    })?;
    Ok(params.iter().next().map(|(_, value)| value.to_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_at_most_one_placeholder_and_stands_once_per_method() {
        let mut seen = std::collections::BTreeSet::new();
        for route in ROUTES {
            assert!(route.path.matches('{').count() <= 1, "{}", route.path);
            assert!(seen.insert((route.path, route.verb)), "{} twice", route.path);
        }
    }
}
