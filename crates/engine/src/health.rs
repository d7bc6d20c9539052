//! How others see whether the loop lives: `/healthz`, `/readyz`, `/metrics`.

use std::future::Future;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::caches::Standing;
use crate::engine::Engine;
use crate::error::Error;

/// What Prometheus wants the exposition to be called.
const EXPOSITION: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The routes, to be nested or served.
pub fn routes(engine: Engine) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(engine)
}

/// Serves the routes until `shutdown` completes.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    Ok(axum::serve(listener, routes(engine)).with_graceful_shutdown(shutdown).await?)
}

async fn healthz(State(engine): State<Engine>) -> impl IntoResponse {
    if engine.is_running() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the loop is not running\n")
    }
}

/// Ready means: it sees what it must see. A standby is ready too, for it may take over at any moment.
async fn readyz(State(engine): State<Engine>) -> impl IntoResponse {
    if engine.is_ready() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let waits = |(kind, standing): (pawl_api::meta::Kind, Standing)| match standing {
        Standing::Pending | Standing::Refused => Some(format!("{kind}: {}\n", standing.as_str())),
        Standing::Live | Standing::Absent => None,
    };
    let missing: String = engine.standings().into_iter().filter_map(waits).collect();
    (StatusCode::SERVICE_UNAVAILABLE, format!("not everything has been seen yet\n{missing}"))
}

async fn metrics(State(engine): State<Engine>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, EXPOSITION)], engine.metrics().exposition())
}
