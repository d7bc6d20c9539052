//! Who may report alerts, and how: `POST /api/v1/alerts`, as Alertmanager's webhook receiver sends them.
//!
//! ```text
//! method, token, type, size ─▶ parse ─▶ playbooks ─▶ create the requests ─▶ 202
//!        405 401 415 413        400                    503 if one could not be, and Alertmanager sends it all again
//! ```
//! A request's name follows from its alert, so whatever is sent twice is made once. Alerts that were not understood are
//! told with 400 after the others were taken: Alertmanager would not send those again.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::Full;
use kube::api::{Api, DynamicObject, PostParams};
use pawl_api::remedy::remediation_request;
use pawl_engine::Engine;
use pawl_engine::caches::Standing;
use pawl_machines::object::Key;
use pawl_machines::remedy::alerts::{self, Answer};
use ring::hmac;
use serde_json::{Value, json};

use crate::webhook::{Trust, header_text, resource, say};

/// Where alerts are sent.
pub const PATH: &str = "/api/v1/alerts";

/// How many requests are made at the same time: enough to keep an API server busy, few enough to leave it to others.
const AT_ONCE: usize = 32;

/// How many problems are told: the first ones show what is wrong.
const MAX_TOLD: usize = 10;

/// What takes alerts.
#[derive(Clone)]
pub struct Alerts {
    /// Its caches know the playbooks, on a standby too.
    engine: Engine,
    client: kube::Client,
    trust: Trust,
    system_namespace: Arc<str>,
}

impl std::fmt::Debug for Alerts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alerts").field("trust", &self.trust).finish_non_exhaustive()
    }
}

/// What became of a notification.
#[derive(Debug, Default)]
struct Tally {
    created: usize,
    duplicates: usize,
    resolved: usize,
    unmatched: usize,
    problems: Vec<String>,
    failed: Option<String>,
}

/// What became of one request.
enum Made {
    New,
    There,
    Refused(String),
    Failed(String),
}

impl Alerts {
    pub fn new(engine: Engine, client: kube::Client, trust: Trust, system_namespace: &str) -> Self {
        Self { engine, client, trust, system_namespace: system_namespace.into() }
    }

    /// Whether whoever sent this may: a bearer token, or the same as the password of basic authentication.
    pub(crate) fn lets_in(&self, headers: &HeaderMap) -> bool {
        match &self.trust {
            Trust::Anybody => true,
            Trust::Nobody => false,
            Trust::Secret(secret) => presented(headers).is_some_and(|token| is_same(secret, &token)),
        }
    }

    pub(crate) fn refusal() -> Response<Full<Bytes>> {
        let mut answer = say(StatusCode::UNAUTHORIZED, "the token is missing or not ours");
        let how = header::HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        answer
    }

    /// One notification and its answer.
    pub(crate) async fn act(&self, body: &[u8]) -> Response<Full<Bytes>> {
        let alerts = match alerts::read(body) {
            Ok(alerts) => alerts,
            Err(unreadable) => return say(StatusCode::BAD_REQUEST, &unreadable.to_string()),
        };
        let standings = self.engine.standings();
        let known =
            |kind| standings.iter().any(|(one, standing)| *one == kind && *standing == Standing::Live);
        if !alerts::needs().into_iter().all(known) {
            return say(StatusCode::SERVICE_UNAVAILABLE, "the playbooks are not known yet; send it again");
        }
        let (tally, wanted) = self.sort(alerts);
        let tally = self.make(tally, wanted).await;
        tracing::info!(
            created = tally.created,
            duplicates = tally.duplicates,
            resolved = tally.resolved,
            unmatched = tally.unmatched,
            problems = tally.problems.len(),
            "took alerts"
        );
        tally.answer()
    }

    fn sort(&self, alerts: Vec<Result<alerts::Alert, String>>) -> (Tally, Vec<(Key, Value)>) {
        let view = self.engine.view();
        let playbooks = alerts::playbooks(view);
        let (mut tally, mut wanted) = (Tally::default(), Vec::new());
        for alert in alerts {
            match alert.map(|alert| alerts::answer(&alert, &playbooks, view, &self.system_namespace)) {
                Err(problem) => tally.problems.push(problem),
                Ok(Answer::Resolved) => tally.resolved += 1,
                Ok(Answer::Unmatched(_)) => tally.unmatched += 1,
                Ok(Answer::Create { key, manifest }) => wanted.push((key, manifest)),
            }
        }
        (tally, wanted)
    }

    async fn make(&self, mut tally: Tally, wanted: Vec<(Key, Value)>) -> Tally {
        let mut made =
            stream::iter(wanted).map(|(key, manifest)| self.create(key, manifest)).buffer_unordered(AT_ONCE);
        while let Some(one) = made.next().await {
            match one {
                Made::New => tally.created += 1,
                Made::There => tally.duplicates += 1,
                Made::Refused(problem) => tally.problems.push(problem),
                Made::Failed(problem) => tally.failed = Some(problem),
            }
        }
        tally
    }

    async fn create(&self, key: Key, manifest: Value) -> Made {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        // What is known to be there need not be asked for.
        if self.engine.view().get(&remediation_request::KIND, &key).is_some() {
            return Made::There;
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource(&remediation_request::KIND));
        let request: DynamicObject = match serde_json::from_value(manifest) {
            Ok(request) => request,
            Err(error) => return Made::Refused(format!("RemediationRequest {key}: {error}")),
        };
        let parameters =
            PostParams { field_manager: Some("pawl-alerts".to_owned()), ..PostParams::default() };
        match api.create(&parameters, &request).await {
            Ok(_) => Made::New,
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Made::There,
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
                Made::Refused(format!("RemediationRequest {key}: {}", status.message))
            }
            Err(error) => Made::Failed(error.to_string()),
        }
    }
}

impl Tally {
    fn answer(self) -> Response<Full<Bytes>> {
        if let Some(failed) = self.failed {
            tracing::warn!(error = failed, "alerts could not be passed on");
            return say(StatusCode::SERVICE_UNAVAILABLE, "the cluster did not take all of it; send it again");
        }
        let status = if self.problems.is_empty() { StatusCode::ACCEPTED } else { StatusCode::BAD_REQUEST };
        let told: Vec<&String> = self.problems.iter().take(MAX_TOLD).collect();
        let body = json!({"created": self.created, "duplicates": self.duplicates, "resolved": self.resolved,
            "unmatched": self.unmatched, "notUnderstood": self.problems.len(), "problems": told});
        let mut answer = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
        *answer.status_mut() = status;
        let json = header::HeaderValue::from_static("application/json");
        answer.headers_mut().insert(header::CONTENT_TYPE, json);
        answer
    }
}

/// The token that came along.
fn presented(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = header_text(headers, header::AUTHORIZATION.as_str());
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().as_bytes().to_vec());
    }
    if scheme.eq_ignore_ascii_case("basic") {
        let pair = STANDARD.decode(rest.trim()).ok()?;
        let colon = pair.iter().position(|byte| *byte == b':')?;
        return pair.get(colon + 1..).map(<[u8]>::to_vec);
    }
    None
}

/// Takes as long for a wrong token as for the right one: what is compared are their tags under the same key.
fn is_same(secret: &[u8], token: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let expected = hmac::sign(&key, secret);
    !secret.is_empty() && hmac::verify(&key, token, expected.as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn a_token_comes_as_bearer_or_as_a_password() {
        let basic = format!("Basic {}", STANDARD.encode("alertmanager:obviously:fake"));
        assert_eq!(presented(&headers("bearer obviously-fake")), Some(b"obviously-fake".to_vec()));
        assert_eq!(presented(&headers(&basic)), Some(b"obviously:fake".to_vec()));
        for none in ["", "Bearer", "Basic %%%", "Digest x", "Basic bm9jb2xvbg=="] {
            assert_eq!(presented(&headers(none)), None, "{none}");
        }
        assert!(is_same(b"a", b"a") && !is_same(b"a", b"b") && !is_same(b"", b"") && !is_same(b"a", b""));
    }
}
