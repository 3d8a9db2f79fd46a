//! What every process answers: whether it lives, whether it serves, what it measures.

use crate::clock;
use crate::metrics::{self, Metrics};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;

pub fn routes(metrics: Arc<dyn Metrics>) -> Router {
    let began = clock::now();
    let ready = metrics.clone();
    Router::new()
        .route("/health", get(async || "ok\n"))
        .route("/ready", get(async move || is_ready(&*ready)))
        .route(
            "/metrics",
            get(async move || match metrics::write(&metrics, began) {
                Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
            }),
        )
}

fn is_ready(metrics: &dyn Metrics) -> Response {
    match metrics.hindrance() {
        None => "ready\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
