//! How does a request become a call, and an answer a response?
//!
//! ```text
//! path ─▶ target ─┐
//! query ──────────┼─▶ verbs ─▶ Answer ─▶ wait until durable ─▶ render ─▶ response
//! body ───────────┘
//! ```

mod basis;
pub(crate) mod body;
mod bounds;
mod crowd;
mod discovery;
mod logs;
mod openapi;
mod openapi_protobuf;
mod pace;
pub(crate) mod protobuf;
mod query;
pub(crate) mod render;
mod repeated;
mod serve;
mod service;
mod target;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::request::Parts;
use http::{Response, StatusCode};

pub use bounds::Bounds;
pub(crate) use bounds::OpenWatches;
pub use logs::{LogRequest, PodLogs};
pub(crate) use query::{Query, decode};
pub use serve::{ServeError, serve, serve_within};
pub use service::{ResponseBody, Service};
pub(crate) use target::segments;

use crate::access::Identity;
use crate::http::render::Shape;
use crate::http::target::Target;
use crate::status::Status;
use crate::verbs::{Answer, Call, Core, Outcome, Verb};
use crate::watch::WatchRequest;

/// A response, or a stream that begins one.
#[derive(Debug)]
pub(crate) enum Reply {
    Whole(Response<Bytes>),
    Watch(WatchRequest, Shape),
}

/// Answers one request of somebody who may ask it. The second value is the revision that must be durable before it is sent.
///
/// # Errors
/// When the request names nothing that can be asked for. What a verb refuses is an answer.
pub(crate) fn answer(
    core: &Core,
    who: &Identity,
    request: &Parts,
    body: &[u8],
) -> Result<(Reply, u64), Status> {
    let about_schemas = request.uri.path().starts_with("/openapi/");
    let registry = if about_schemas { core.published() } else { core.registry() };
    let accept = header(&request.headers, &ACCEPT);
    let query = Query::parse(request.uri.query().unwrap_or_default())?;
    let addressed = match target::find(&request.method, request.uri.path(), &query, &registry)? {
        Target::Resource(addressed) => addressed,
        Target::Document(document) => {
            let reply = match document.body(&registry, accept) {
                None => plain(StatusCode::OK, "ok"),
                Some((body, media)) => respond(200, media, body),
            };
            return Ok((Reply::Whole(reply), 0));
        }
        Target::Nothing => {
            return Ok((Reply::Whole(plain(StatusCode::NOT_FOUND, "404 page not found\n")), 0));
        }
    };
    let basis = basis::read(&request.headers, who, &registry)?;
    let content_type = header(&request.headers, &CONTENT_TYPE);
    let content_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let call = Call {
        who,
        verb: addressed.verb,
        resource: &addressed.resource,
        namespace: &addressed.namespace,
        name: &addressed.name,
        subresource: addressed.subresource,
        query: &query,
        body,
        content_type: &content_type,
        user_agent: header(&request.headers, &USER_AGENT),
        basis: basis.as_ref(),
    };
    let reply = Shape::accepted(accept, query.get("includeObject"))
        .and_then(|shape| core.handle(&call).map(|outcome| shaped(core, &call, outcome, shape)))
        .unwrap_or_else(|status| Reply::Whole(refusal(&status)));
    // What a write was decided on may be pending; what a read saw is durable.
    let durable = match call.verb {
        Verb::Get | Verb::List | Verb::Watch => 0,
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            core.store.head_revision()
        }
    };
    Ok((reply, durable))
}

fn shaped(core: &Core, call: &Call<'_>, outcome: Outcome, shape: Shape) -> Reply {
    let (code, body) = match outcome.answer {
        Answer::Object(code, object) => (code, render::object(call.resource, &object, shape, core.env.now())),
        Answer::Value(code, value) => (code, render::value(&value, shape)),
        Answer::List(list) => (200, render::list(call.resource, &list, shape, core.env.now())),
        Answer::Watch(request) => return Reply::Watch(request, shape),
    };
    let mut response = respond(code, "application/json", body);
    for warning in outcome.warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(HeaderName::from_static("warning"), value);
        }
    }
    Reply::Whole(response)
}

/// A Status as a response.
pub(crate) fn refusal(status: &Status) -> Response<Bytes> {
    let mut response = respond(status.code, "application/json", status.to_value().to_string().into());
    let retry = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(http::header::RETRY_AFTER, retry.into());
    }
    response
}

fn respond(code: u16, media: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

fn plain(code: StatusCode, text: &'static str) -> Response<Bytes> {
    respond(code.as_u16(), "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}
