//! The dashboard's files, part of the binary: nothing is fetched from elsewhere.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

pub fn routes() -> Router {
    FILES.iter().fold(Router::new(), |router, &(path, kind, text)| {
        router.route(path, get(async move || file(kind, text)))
    })
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The page uses its own files and this process, and nobody shows it inside another page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const ICON: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/icon.svg", ICON, include_str!("page/icon.svg")),
    ("/main.js", SCRIPT, include_str!("page/main.js")),
    ("/api.js", SCRIPT, include_str!("page/api.js")),
    ("/lock.js", SCRIPT, include_str!("page/lock.js")),
    ("/stream.js", SCRIPT, include_str!("page/stream.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/table.js", SCRIPT, include_str!("page/table.js")),
    ("/format.js", SCRIPT, include_str!("page/format.js")),
    ("/colours.js", SCRIPT, include_str!("page/colours.js")),
    ("/health.js", SCRIPT, include_str!("page/health.js")),
    ("/ring.js", SCRIPT, include_str!("page/ring.js")),
    ("/servers.js", SCRIPT, include_str!("page/servers.js")),
    ("/job.js", SCRIPT, include_str!("page/job.js")),
    ("/charts.js", SCRIPT, include_str!("page/charts.js")),
    ("/ask.js", SCRIPT, include_str!("page/ask.js")),
    ("/cell.js", SCRIPT, include_str!("page/cell.js")),
    ("/lists.js", SCRIPT, include_str!("page/lists.js")),
    ("/files.js", SCRIPT, include_str!("page/files.js")),
    ("/preview.js", SCRIPT, include_str!("page/preview.js")),
];
