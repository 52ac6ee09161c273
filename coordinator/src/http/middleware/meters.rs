//! Request meters of the routes: counts, statuses and durations since the process started.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use axum::http::StatusCode;

use crate::metrics::Histogram;

/// Status classes.
pub(in crate::http) const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The name of a route in its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::http) struct RouteName {
    pub(in crate::http) method: &'static str,
    pub(in crate::http) path: &'static str,
}

/// The meter of one route.
#[derive(Debug)]
pub(in crate::http) struct RouteMeter {
    pub(in crate::http) by_class: [AtomicU64; 5],
    pub(in crate::http) durations: Histogram,
}

/// The meters of all routes. Their number is bounded by the route table.
#[derive(Debug)]
pub(in crate::http) struct HttpMeters {
    /// In the order of the table.
    routes: Vec<RouteName>,
    by_route: HashMap<RouteName, RouteMeter>,
}

impl HttpMeters {
    pub(in crate::http) fn new(routes: impl Iterator<Item = RouteName>) -> Self {
        let routes: Vec<RouteName> = routes.collect();
        let meter = || RouteMeter { by_class: Default::default(), durations: Histogram::for_durations() };
        let by_route = routes.iter().map(|route| (*route, meter())).collect();
        Self { routes, by_route }
    }

    /// Records a response. The duration of long polls includes the wait.
    pub(in crate::http) fn record_response(&self, route: RouteName, status: StatusCode, took: Duration) {
        let Some(meter) = self.by_route.get(&route) else { return };
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(count) = meter.by_class.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        meter.durations.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns each route's meter, in the order of the table.
    pub(in crate::http) fn all(&self) -> impl Iterator<Item = (RouteName, &RouteMeter)> {
        self.routes.iter().filter_map(|route| Some((*route, self.by_route.get(route)?)))
    }
}
