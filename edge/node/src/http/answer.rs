//! [`Refused`]: why a request is not answered, as a status and one sentence; and answers in JSON.

use crate::tool::ToolError;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A status and a sentence for people.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused(pub StatusCode, pub String);

impl Refused {
    pub fn bad(sentence: impl Into<String>) -> Refused {
        Refused(StatusCode::BAD_REQUEST, sentence.into())
    }

    pub fn forbidden(sentence: impl Into<String>) -> Refused {
        Refused(StatusCode::FORBIDDEN, sentence.into())
    }

    pub fn late() -> Refused {
        let sentence = "no answer in time; what was asked for may still be done";
        Refused(StatusCode::GATEWAY_TIMEOUT, sentence.to_owned())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = json_response(&json!({ "error": self.1 }));
        *response.status_mut() = self.0;
        if self.0 == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<ToolError> for Refused {
    fn from(error: ToolError) -> Refused {
        let status = match &error {
            ToolError::Refused(_) => StatusCode::CONFLICT,
            ToolError::Unreachable(_) | ToolError::NoMaster => StatusCode::SERVICE_UNAVAILABLE,
        };
        Refused(status, error.to_string())
    }
}

impl From<pfs::Error> for Refused {
    fn from(error: pfs::Error) -> Refused {
        let status = match &error {
            pfs::Error::Refused(pfs::Refusal::NotFound(_)) => StatusCode::NOT_FOUND,
            pfs::Error::Refused(_) | pfs::Error::CellRefused(_) => StatusCode::BAD_REQUEST,
            _cell => StatusCode::SERVICE_UNAVAILABLE,
        };
        Refused(status, error.to_string())
    }
}

/// What the interface's handlers return.
pub type Answer = Result<Response, Refused>;

pub fn ok(value: &Value) -> Answer {
    Ok(json_response(value))
}

fn json_response(value: &Value) -> Response {
    json_text(value.to_string())
}

/// JSON that is text already.
pub fn json_text(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
