//! The route table and everything common to all routes.
//!
//! [`ROUTES`] is the only list: the router, the OpenAPI document and the authorization test are
//! generated from it. Checks run in this order: head, host, token, rate limit, role, epoch, size,
//! then the route's own.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts as _, RawPathParams, Request},
    http::{Response, request::Parts},
    routing::on,
};
use docket_schema::{
    api::{self, ProblemCode},
    system::TokenRole,
};
use futures_util::FutureExt as _;

use super::{
    middleware::{
        api_error::ApiError,
        api_state::{ApiConfig, ApiState},
        auth::RouteAccess,
        credentials,
        meters::HttpMeters,
        request::{ApiRequest, read_body},
        route::{ApiRoute, BodyShape, HttpMethod},
    },
    openapi,
    routes::{
        admin::{
            archive, health, import_and_gc, metrics, notifications, overview, provider_limits, queues,
            schedules, status, tokens, ui,
        },
        runs::{append, blobs, delivery, history, lineage, memory, reports, resolve, run_views},
        tasks::{answer, batches, budgets, bulk, delegate, fork, inbox, lease, submissions},
    },
    stream::{event_log, sse},
};
use crate::{app::AppState, dashboard};

macro_rules! by {
    ($handler:path) => {
        |api, call| Box::pin($handler(api, call))
    };
}

/// For operations that affect the whole installation.
const ADMINS: RouteAccess = RouteAccess::Roles(&[]);
const READERS: RouteAccess = RouteAccess::Roles(&[TokenRole::Read, TokenRole::Submit]);
const SUBMITTERS: RouteAccess = RouteAccess::Roles(&[TokenRole::Submit]);
const WORKERS: RouteAccess = RouteAccess::Roles(&[TokenRole::Worker]);
const READERS_AND_RUNS: RouteAccess = RouteAccess::RolesAndRuns(&[TokenRole::Read, TokenRole::Submit]);
const RUN_ONLY: RouteAccess = RouteAccess::Appends(&[]);
const BATCH_APPENDERS: RouteAccess = RouteAccess::Appends(&[TokenRole::Worker]);
const BLOB_WRITERS: RouteAccess = RouteAccess::RolesAndRuns(&[TokenRole::Submit, TokenRole::Worker]);
/// Blobs contain exact, unredacted snapshots.
const BLOB_READERS: RouteAccess = RouteAccess::RolesAndRuns(&[]);

/// All routes.
#[rustfmt::skip]
pub(crate) static ROUTES: &[ApiRoute] = &[
    ApiRoute::new((HttpMethod::Get, "/v1/tasks"), READERS, "Lists tasks, newest first", by!(submissions::list_tasks))
        .with_query::<api::TaskQuery>().with_json_response::<api::TaskPage>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tasks"), SUBMITTERS, "Submits tasks, all or none", by!(submissions::submit_tasks))
        .with_json_request::<api::SubmitRequest>().with_large_body().with_json_response::<api::SubmitResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tasks/bulk"), SUBMITTERS, "Applies one operation to many tasks, a page at a time", by!(bulk::run_bulk_act))
        .with_json_request::<api::BulkRequest>().with_json_response::<api::BulkResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/batches"), READERS, "Lists the batches of the newest tasks", by!(batches::list_batches))
        .with_json_response::<api::BatchList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/batches/{id}/budget"), SUBMITTERS, "Sets the budget of a batch", by!(budgets::set_budget))
        .with_json_request::<api::SetBudgetRequest>().with_json_response::<api::BudgetView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/batches/{id}"), READERS, "Returns a batch and its progress", by!(batches::show_batch))
        .with_json_response::<api::BatchView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/tasks/{id}"), READERS, "Returns a task and its runs", by!(submissions::show_task))
        .with_json_response::<api::TaskView>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tasks/{id}/cancel"), SUBMITTERS, "Cancels a task, even while it is running", by!(submissions::cancel_task))
        .with_json_request::<api::CancelTaskRequest>().with_json_response::<docket_schema::task::TaskRecord>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tasks/{id}/retry"), SUBMITTERS, "Retries a task from the start", by!(submissions::retry_task))
        .with_json_request::<api::RetryRequest>().with_json_response::<docket_schema::task::TaskRecord>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tasks/{id}/answer"), SUBMITTERS, "Answers the question of a blocked run, which then continues", by!(answer::answer_task))
        .with_json_request::<api::AnswerRequest>().with_json_response::<docket_schema::task::TaskRecord>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tasks/{id}/pause"), SUBMITTERS, "Pauses a task; a running run pauses at its next turn", by!(submissions::pause_task))
        .with_json_request::<api::PauseRequest>().with_json_response::<docket_schema::task::TaskRecord>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tasks/{id}/unpause"), SUBMITTERS, "Unpauses a task", by!(submissions::unpause_task))
        .with_json_request::<api::PauseRequest>().with_json_response::<docket_schema::task::TaskRecord>(),
    ApiRoute::new((HttpMethod::Get, "/v1/tasks/{id}/why"), READERS, "Explains why a task is not running", by!(queues::explain_task))
        .with_json_response::<api::WhyView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/queues"), READERS, "Lists queues with their state and settings", by!(queues::list_queues))
        .with_json_response::<api::QueueList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/queues/{name}"), ADMINS, "Pauses, unpauses or limits a queue", by!(queues::set_queue))
        .with_json_request::<api::SetQueueRequest>().with_json_response::<api::QueueView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/inbox"), READERS, "Lists inbox entries that have not become tasks", by!(inbox::list_inbox))
        .with_json_response::<api::InboxList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/inbox/{row}/drop"), ADMINS, "Drops an inbox entry", by!(inbox::drop_inbox_row))
        .with_json_request::<api::InboxActRequest>().with_json_response::<api::InboxActRequest>(),
    ApiRoute::new((HttpMethod::Post, "/v1/inbox/{row}/retry"), ADMINS, "Retries a refused inbox entry", by!(inbox::retry_inbox_row))
        .with_json_request::<api::InboxActRequest>().with_json_response::<api::InboxActRequest>(),
    ApiRoute::new((HttpMethod::Get, "/v1/limits"), READERS, "Lists the rate limits of model providers", by!(provider_limits::list_limits))
        .with_json_response::<api::LimitList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/limits/{provider}"), ADMINS, "Sets a provider's rate limit, shared by all workers", by!(provider_limits::set_limit))
        .with_json_request::<api::SetLimitRequest>().with_json_response::<api::LimitList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/limits/{provider}/remove"), ADMINS, "Removes a provider's rate limit", by!(provider_limits::remove_limit))
        .with_json_request::<api::RemoveLimitRequest>().with_json_response::<api::LimitList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/permit"), RUN_ONLY, "Requests a permit for a run's model call", by!(provider_limits::request_permit))
        .with_json_request::<api::PermitRequest>().with_json_response::<api::PermitResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/memory"), RUN_ONLY, "Saves, recalls or deletes notes of a run's repository or queue", by!(memory::handle_run_memory))
        .with_json_request::<api::RunMemoryRequest>().with_json_response::<api::RunMemoryResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/memory"), READERS, "Lists saved notes", by!(memory::list_memories))
        .with_query::<api::MemoryQuery>().with_json_response::<api::MemoryList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/memory/delete"), ADMINS, "Deletes a note", by!(memory::delete_memory))
        .with_json_request::<api::DeleteMemoryRequest>().with_json_response::<api::MemoryList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/delegate"), RUN_ONLY, "Delegates work of a run to a child task", by!(delegate::delegate_task))
        .with_json_request::<api::DelegateRequest>().with_large_body().with_json_response::<api::DelegateResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/children"), READERS_AND_RUNS, "Lists the tasks that a run delegated", by!(delegate::list_children))
        .with_json_response::<api::ChildList>(),
    ApiRoute::new((HttpMethod::Get, "/v1/notifications"), READERS, "Lists notification targets and deliveries", by!(notifications::list_notifications))
        .with_query::<api::NotificationQuery>().with_json_response::<api::NotificationList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/notifications/test"), ADMINS, "Sends a test notification", by!(notifications::send_test_notification))
        .with_json_request::<api::TestNotificationRequest>().with_json_response::<api::NotificationView>(),
    ApiRoute::new((HttpMethod::Post, "/v1/notifications/{id}/retry"), ADMINS, "Retries the failed deliveries of a notification", by!(notifications::retry_notification))
        .with_json_request::<api::RetryNotificationRequest>().with_json_response::<api::NotificationView>(),
    ApiRoute::new((HttpMethod::Post, "/v1/notifications/{id}/drop"), ADMINS, "Gives up the failed deliveries of a notification", by!(notifications::drop_notification))
        .with_json_request::<api::DropNotificationRequest>().with_json_response::<api::NotificationView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/schedules"), READERS, "Lists schedules", by!(schedules::list_schedules))
        .with_json_response::<api::ScheduleList>(),
    ApiRoute::new((HttpMethod::Get, "/v1/schedules/{name}"), READERS, "Returns a schedule", by!(schedules::show_schedule))
        .with_json_response::<api::ScheduleView>(),
    ApiRoute::new((HttpMethod::Post, "/v1/schedules/{name}"), SUBMITTERS, "Creates or replaces a schedule", by!(schedules::set_schedule))
        .with_json_request::<api::SetScheduleRequest>().with_json_response::<api::ScheduleView>(),
    ApiRoute::new((HttpMethod::Post, "/v1/schedules/{name}/pause"), SUBMITTERS, "Pauses a schedule", by!(schedules::pause_schedule))
        .with_json_request::<api::ScheduleActRequest>().with_json_response::<api::ScheduleView>(),
    ApiRoute::new((HttpMethod::Post, "/v1/schedules/{name}/unpause"), SUBMITTERS, "Unpauses a schedule", by!(schedules::unpause_schedule))
        .with_json_request::<api::ScheduleActRequest>().with_json_response::<api::ScheduleView>(),
    ApiRoute::new((HttpMethod::Post, "/v1/schedules/{name}/remove"), SUBMITTERS, "Removes a schedule; its tasks stay", by!(schedules::remove_schedule))
        .with_json_request::<api::ScheduleActRequest>().with_json_response::<api::ScheduleActRequest>(),
    ApiRoute::new((HttpMethod::Post, "/v1/schedules/{name}/run"), SUBMITTERS, "Submits a schedule's task now", by!(schedules::run_schedule_now))
        .with_json_request::<api::RunScheduleRequest>().with_json_response::<api::ScheduleView>(),
    ApiRoute::new((HttpMethod::Post, "/v1/workers/{id}/drain"), ADMINS, "Drains a worker: it finishes its turns, takes no new tasks, and exits", by!(queues::drain_worker))
        .with_json_request::<api::DrainWorkerRequest>().with_json_response::<api::DrainWorkerRequest>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tasks/{id}/delivery"), SUBMITTERS, "Records a step in the delivery of a run's result", by!(delivery::record_delivery_step))
        .with_json_request::<api::DeliveryRequest>().with_json_response::<docket_schema::task::TaskRecord>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tasks/{id}/release"), WORKERS, "Releases a lease", by!(lease::release_lease))
        .with_json_request::<api::ReleaseRequest>().with_json_response::<api::ReleaseResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/lease"), WORKERS, "Leases tasks; waits until some are available", by!(lease::lease_tasks))
        .with_json_request::<api::LeaseRequest>().with_json_response::<api::LeaseResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/heartbeat"), WORKERS, "Renews leases; waits for changes to them", by!(lease::renew_leases))
        .with_json_request::<api::HeartbeatRequest>().with_json_response::<api::HeartbeatResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}"), READERS_AND_RUNS, "Returns a run", by!(run_views::show_run))
        .with_json_response::<api::RunView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/events"), READERS_AND_RUNS, "Returns the events of a run", by!(run_views::list_run_events))
        .with_query::<api::EventsQuery>().with_json_response::<api::EventPage>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/follow"), READERS, "Streams the events of a run as they are appended", by!(sse::follow_run))
        .with_query::<api::FollowQuery>().with_response(BodyShape::Events),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/tell"), SUBMITTERS, "Sends a message to a run", by!(run_views::tell_run))
        .with_json_request::<api::TellRequest>().with_json_response::<api::TellResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/policy"), ADMINS, "Replaces the policy of a run from its next turn on", by!(run_views::change_run_policy))
        .with_json_request::<api::PolicyRequest>().with_json_response::<api::TellResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/resume"), SUBMITTERS, "Resumes from the end of a turn, as a new run of the task", by!(fork::resume_run))
        .with_json_request::<api::ResumeRequest>().with_large_body().with_json_response::<api::ResumeResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/accept"), SUBMITTERS, "Accepts a run's result", by!(delivery::accept_result))
        .with_json_request::<api::AcceptRequest>().with_json_response::<docket_schema::task::TaskRecord>(),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/reject"), SUBMITTERS, "Rejects a run's result; a new run continues with the comment", by!(fork::reject_result))
        .with_json_request::<api::RejectRequest>().with_json_response::<api::ResumeResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/fork"), SUBMITTERS, "Forks from the end of a turn, as new tasks", by!(fork::fork_run))
        .with_json_request::<api::ForkRequest>().with_large_body().with_json_response::<api::ForkResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/lineage"), READERS, "Returns the tree of runs that share history with this one", by!(lineage::show_lineage))
        .with_json_response::<api::LineageView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/timeline"), READERS, "Returns a summary of each turn of a run", by!(history::show_timeline))
        .with_query::<api::TimelineQuery>().with_json_response::<api::RunTimeline>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/turn"), READERS, "Returns a turn: messages, tool calls and results, and the state of the run after it", by!(history::show_turn))
        .with_query::<api::TurnQuery>().with_json_response::<api::TurnResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/output"), READERS, "Returns the full output of a tool call or final check", by!(history::show_output))
        .with_query::<api::OutputQuery>().with_response(BodyShape::Text),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/files"), ADMINS, "Returns a file or folder as it was after a turn", by!(history::show_files))
        .with_query::<api::FilesQuery>().with_json_response::<api::FileView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/diff"), ADMINS, "Returns the difference between two points of a run, or of two runs", by!(history::show_diff))
        .with_query::<api::DiffQuery>().with_json_response::<api::DiffView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/runs/{id}/export"), READERS, "Exports a run", by!(history::export_run))
        .with_query::<api::ExportQuery>().with_response(BodyShape::Files(&["application/json", "application/x-ndjson", "application/zstd"])),
    ApiRoute::new((HttpMethod::Post, "/v1/runs/{id}/append"), RUN_ONLY, "Appends events to a run", by!(append::append_to_run))
        .with_json_request::<api::AppendRequest>().with_large_body().with_json_response::<api::AppendResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/append"), BATCH_APPENDERS, "Appends events to several runs; each append succeeds or fails independently", by!(append::append_to_runs))
        .with_json_request::<api::AppendManyRequest>().with_large_body().with_json_response::<api::AppendManyResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/blobs/{hash}"), BLOB_READERS, "Returns a blob's content", by!(blobs::get_blob))
        .with_response(BodyShape::Bytes),
    ApiRoute::new((HttpMethod::Head, "/v1/blobs/{hash}"), BLOB_WRITERS, "Checks whether a blob is stored", by!(blobs::head_blob)),
    ApiRoute::new((HttpMethod::Put, "/v1/blobs/{hash}"), BLOB_WRITERS, "Stores a blob", by!(blobs::put_blob))
        .with_bytes_request(),
    ApiRoute::new((HttpMethod::Get, "/v1/blobs/check"), READERS, "Lists stored blobs whose content does not match their hash", by!(blobs::check_blobs))
        .with_query::<api::BlobCheckQuery>().with_json_response::<api::BlobCheckResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/blobs/missing"), BLOB_WRITERS, "Lists which of the given blobs are not stored", by!(blobs::list_missing_blobs))
        .with_json_request::<api::MissingBlobsRequest>().with_json_response::<api::MissingBlobsResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/events"), READERS, "Returns the events of a stream", by!(event_log::read_stream_events))
        .with_query::<api::EventsQuery>().with_json_response::<api::EventPage>(),
    ApiRoute::new((HttpMethod::Get, "/v1/feed"), READERS, "Returns the whole log in order of position", by!(event_log::read_feed))
        .with_query::<api::FeedQuery>().with_json_response::<api::EventPage>(),
    ApiRoute::new((HttpMethod::Get, "/v1/streams"), READERS, "Lists all streams and their heads", by!(event_log::list_streams))
        .with_query::<api::StreamsQuery>().with_json_response::<api::StreamPage>(),
    ApiRoute::new((HttpMethod::Get, "/v1/resolve/{prefix}"), READERS, "Returns ids that begin or end with these digits", by!(resolve::resolve_id))
        .with_json_response::<api::ResolveResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/cost"), READERS, "Returns the cost of model calls, a page at a time", by!(reports::show_cost))
        .with_query::<api::CostQuery>().with_json_response::<api::CostPage>(),
    ApiRoute::new((HttpMethod::Get, "/v1/cost/days"), READERS, "Returns the cost of model calls by day and model, a page at a time", by!(overview::list_cost_days))
        .with_query::<api::CostDaysQuery>().with_json_response::<api::CostDaysPage>(),
    ApiRoute::new((HttpMethod::Get, "/v1/overview"), READERS, "Returns an overview: tasks that need a person, running and recently ended tasks, totals", by!(overview::show_overview))
        .with_query::<api::OverviewQuery>().with_json_response::<api::OverviewResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/metrics"), READERS, "Returns task metrics and their targets, a page at a time", by!(reports::show_metrics))
        .with_query::<api::MetricsQuery>().with_json_response::<api::MetricsPage>(),
    ApiRoute::new((HttpMethod::Get, "/v1/status"), RouteAccess::Roles(&[TokenRole::Read, TokenRole::Submit, TokenRole::Worker]), "Returns the state of the queue", by!(status::show_status))
        .with_json_response::<api::CoordinatorStatus>(),
    ApiRoute::new((HttpMethod::Post, "/v1/import"), ADMINS, "Imports a run from another installation", by!(import_and_gc::import_run))
        .with_json_request::<api::ImportRequest>().with_json_response::<api::ImportResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/gc"), ADMINS, "Counts or deletes unreferenced blobs", by!(import_and_gc::collect_garbage))
        .with_json_request::<api::GcRequest>().with_json_response::<api::GcResponse>(),
    ApiRoute::new((HttpMethod::Post, "/v1/archive"), ADMINS, "Archives tasks that ended long ago", by!(archive::archive_tasks))
        .with_json_request::<api::ArchiveRequest>().with_json_response::<api::ArchiveResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/archive/tasks"), READERS, "Lists archived tasks, newest first", by!(archive::list_archived_tasks))
        .with_query::<api::ArchivedTaskQuery>().with_json_response::<api::ArchivedTaskPage>(),
    ApiRoute::new((HttpMethod::Get, "/v1/archived"), READERS, "Lists the stubs of archived streams", by!(archive::list_archived))
        .with_query::<api::ArchivedStreamQuery>().with_json_response::<api::ArchivedStreamPage>(),
    ApiRoute::new((HttpMethod::Get, "/v1/archived/{id}"), READERS, "Returns the stub of an archived task or run", by!(archive::show_archived))
        .with_json_response::<api::ArchivedStreamView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/archived/{id}/file"), ADMINS, "Returns a part of the archive file of a task or run", by!(archive::read_archive_file))
        .with_query::<api::ArchiveFileQuery>().with_response(BodyShape::Bytes),
    ApiRoute::new((HttpMethod::Post, "/v1/archived/{id}/restore"), ADMINS, "Restores a task or run, with everything that shares its history", by!(archive::restore_archived))
        .with_json_response::<api::RestoreResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/whoami"), RouteAccess::Roles(&[TokenRole::Read, TokenRole::Submit, TokenRole::Worker]), "Returns the name and role of the caller's token", by!(ui::whoami))
        .with_json_response::<api::WhoamiResponse>(),
    ApiRoute::new((HttpMethod::Get, "/v1/tokens"), ADMINS, "Lists tokens, without their secrets", by!(tokens::list_tokens))
        .with_json_response::<api::TokenList>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tokens"), ADMINS, "Creates a token; the secret is returned only once", by!(tokens::create_token))
        .with_json_request::<api::CreateTokenRequest>().with_json_response::<api::CreatedToken>(),
    ApiRoute::new((HttpMethod::Post, "/v1/tokens/{name}/revoke"), ADMINS, "Revokes a token", by!(tokens::revoke_token))
        .with_json_request::<api::RevokeTokenRequest>().with_json_response::<api::TokenView>(),
    ApiRoute::new((HttpMethod::Get, "/v1/queues/{name}/load"), READERS, "Returns how many tasks of a queue run or could run, for autoscalers", by!(queues::show_queue_load))
        .with_query::<api::QueueLoadQuery>().with_json_response::<api::QueueLoad>(),
    ApiRoute::new((HttpMethod::Get, "/metrics"), RouteAccess::Roles(&[TokenRole::Read, TokenRole::Submit, TokenRole::Worker]), "Returns metrics of queues, workers and this process, in Prometheus format", by!(metrics::serve_metrics))
        .with_response(BodyShape::Text),
    ApiRoute::new((HttpMethod::Get, "/healthz"), RouteAccess::Public, "Checks that the process responds", by!(health::healthz))
        .with_json_response::<api::HealthResponse>(),
    ApiRoute::new((HttpMethod::Get, "/readyz"), RouteAccess::Public, "Checks that the store responds as well", by!(health::readyz))
        .with_json_response::<api::HealthResponse>(),
    ApiRoute::new((HttpMethod::Get, "/openapi.json"), RouteAccess::Public, "Returns this document", by!(openapi::serve_openapi))
        .with_json_response::<serde_json::Map<String, serde_json::Value>>(),
];

/// Builds the API state, with a meter for each route of the table.
pub(crate) fn build_api_state(app: Arc<AppState>, config: ApiConfig<'_>) -> Arc<ApiState> {
    let meters = HttpMeters::new(ROUTES.iter().map(ApiRoute::name));
    Arc::new(ApiState::new(app, config, meters))
}

/// Builds the router from the table.
pub(crate) fn build_router(api: Arc<ApiState>) -> Router {
    build_router_from(api, ROUTES.iter().chain(ui::UI_ROUTES))
}

/// Builds a router from the given routes.
pub(super) fn build_router_from(
    api: Arc<ApiState>,
    routes: impl IntoIterator<Item = &'static ApiRoute>,
) -> Router {
    let mut router = Router::new();
    for route in routes {
        let api = Arc::clone(&api);
        let handler = move |request: Request| dispatch(Arc::clone(&api), route, request);
        router = router.route(route.path, on(route.method.method_filter(), handler));
    }
    let (unknown, wrong_method) = (Arc::clone(&api), api);
    router
        .fallback(move |request: Request| {
            let refusal = ApiError::new(ProblemCode::NotFound, "there is no such route; see /openapi.json");
            reject_unrouted(Arc::clone(&unknown), request, refusal)
        })
        .method_not_allowed_fallback(move |request: Request| {
            let refusal = ApiError::new(
                ProblemCode::MethodNotAllowed,
                format!("this route does not take {}; see /openapi.json", request.method()),
            );
            reject_unrouted(Arc::clone(&wrong_method), request, refusal.with_field("method"))
        })
}

async fn reject_unrouted(api: Arc<ApiState>, request: Request, refusal: ApiError) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let is_page = dashboard::is_dashboard_path(parts.uri.path());
    let passed = match credentials::check_request_head(&api, &parts, None) {
        Ok(()) => credentials::check_unrouted_rate(&api, &parts).await,
        Err(refused) => Err(refused),
    };
    let refusal = passed.err().unwrap_or(refusal);
    credentials::add_response_headers(refusal.into_response(), is_page)
}

async fn dispatch(api: Arc<ApiState>, route: &'static ApiRoute, request: Request) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let (began, meters) = (Instant::now(), Arc::clone(&api));
    let is_page = dashboard::is_dashboard_path(parts.uri.path());
    let answer = async {
        credentials::check_request_head(&api, &parts, Some(route.access))?;
        let peer = credentials::peer_address(&parts);
        let caller = credentials::authorize(&api, route.access, &parts).await?;
        if route.access.requires_current_epoch() {
            api.check_epoch_in_force(&caller).await?;
        }
        let param = read_path_param(&mut parts).await?;
        let body = read_body(&parts.headers, body, route.body_bytes_max, api.settings.body_timeout).await?;
        let call =
            ApiRequest { caller, peer, path_param: param, uri: parts.uri, headers: parts.headers, body };
        (route.handler)(api, call).await
    };
    // A panic is a bug: it fails this request, but not the others on the connection.
    let response = match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(refusal)) => refusal.into_response(),
        Err(_) => {
            tracing::error!(route = route.path, "a route panicked");
            ApiError::new(ProblemCode::Internal, "a fault of docket; its log says more").into_response()
        }
    };
    meters.http_meters.record_response(route.name(), response.status(), began.elapsed());
    credentials::add_response_headers(response, is_page)
}

/// Returns the path's single placeholder.
async fn read_path_param(parts: &mut Parts) -> Result<String, ApiError> {
    let params = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| {
        ApiError::new(ProblemCode::InvalidRequest, "the decoded path is not UTF-8").with_field("path")
    })?;
    Ok(params.iter().next().map(|(_, value)| value.to_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_at_most_one_placeholder_and_no_duplicates() {
        let mut seen = std::collections::BTreeSet::new();
        for route in ROUTES {
            assert!(route.path.matches('{').count() <= 1, "{}", route.path);
            assert!(seen.insert((route.path, route.method)), "{} twice", route.path);
        }
    }
}
