//! How does a request get to the API server as somebody, and what does its answer mean?

use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, Request, header};
use kube::config::AuthInfo;
use pawl_api::k8s::{SECRET, SERVICE_ACCOUNT};
use pawl_engine::wire::{Reply, Wire};
use pawl_machines::failure::{Category, Failure};
use pawl_machines::object::Key;
use pawl_machines::remedy::action::course::Write;
use pawl_machines::remedy::action::seen::{Listing, Place, Read};
use serde_json::{Value, json};

/// The shortest life that an API server gives a token.
const TOKEN_SECONDS: u32 = 600;

/// Pages of a list: with 250 objects each, more than a node or a namespace has.
const MAX_PAGES: usize = 200;

/// A way to the API server, as somebody.
#[derive(Clone, Debug)]
pub struct Way {
    wire: Wire,
    /// What to show, where the way does not do that itself; marked as sensitive.
    credentials: Option<HeaderValue>,
}

/// An answer that was understood.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Way {
    /// As whoever the client is.
    pub fn new(wire: Wire) -> Self {
        Self { wire, credentials: None }
    }

    pub(crate) async fn get(&self, place: &Place) -> Result<Option<Value>, Failure> {
        let read = Read::Object(place.clone());
        let attempt = read.to_string();
        // What no URL can name is not there.
        let Ok(request) = read.request(None) else { return Ok(None) };
        match self.send(request, &attempt).await {
            Ok(heard) => Ok(Some(heard.body)),
            Err(failure) if failure.category == Category::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) async fn list(&self, listing: &Listing) -> Result<Vec<Value>, Failure> {
        let read = Read::List(listing.clone());
        let attempt = read.to_string();
        let (mut found, mut next): (Vec<Value>, Option<String>) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let request = read.request(next.as_deref()).map_err(|error| invalid(&attempt, &error))?;
            let Heard { body, .. } = match self.send(request, &attempt).await {
                Ok(heard) => heard,
                // A namespace or kind that is not there has no objects.
                Err(failure) if failure.category == Category::NotFound && next.is_none() => return Ok(found),
                Err(failure) => return Err(failure),
            };
            // In a list, objects do not say what they are.
            let items = body.get("items").and_then(Value::as_array).into_iter().flatten().cloned();
            found.extend(items.map(|mut item| {
                if let Some(item) = item.as_object_mut() {
                    item.insert("apiVersion".to_owned(), listing.kind.api_version().into());
                    item.insert("kind".to_owned(), listing.kind.kind.as_ref().into());
                }
                item
            }));
            next = body.pointer("/metadata/continue").and_then(Value::as_str).map(str::to_owned);
            if next.as_deref().unwrap_or_default().is_empty() {
                return Ok(found);
            }
        }
        Err(invalid(&attempt, &"there are more than can be looked at"))
    }

    pub(crate) async fn write(&self, write: &Write, dry_run: bool) -> Result<Heard, Failure> {
        let attempt = write.to_string();
        let request = write.request(dry_run).map_err(|error| invalid(&attempt, &error))?;
        self.send(request, &attempt).await.map_err(|failure| match write.place.kind == SECRET {
            // An API server quotes what it does not like (I6).
            true => Failure {
                message: "the API server's words are not repeated: they may hold values".to_owned(),
                ..failure
            },
            false => failure,
        })
    }

    pub(crate) async fn post(&self, path: &str, body: &Value, attempt: &str) -> Result<Value, Failure> {
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let request =
            request.body(body.to_string().into_bytes()).map_err(|error| invalid(attempt, &error))?;
        self.send(request, attempt).await.map(|heard| heard.body)
    }

    async fn send(&self, mut request: Request<Vec<u8>>, attempt: &str) -> Result<Heard, Failure> {
        if let Some(credentials) = &self.credentials {
            request.headers_mut().insert(header::AUTHORIZATION, credentials.clone());
        }
        let Reply { warnings, body, .. } = self.wire.ask(request, attempt).await?;
        let body = serde_json::from_slice(&body)
            .map_err(|_| Failure::unanswered(attempt, "the answer is not JSON"))?;
        Ok(Heard { body, warnings })
    }
}

/// Where somebody else is let in: with a token of theirs.
#[derive(Clone)]
pub enum Door {
    /// A way on which every request shows its own token.
    Guarded(Wire),
    /// An API server for which a client is made with the token.
    Address(Arc<kube::Config>),
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guarded(_) => "Guarded",
            Self::Address(_) => "Address",
        })
    }
}

impl Door {
    /// A way as this ServiceAccount, with a token that `own` asks for and that ends within minutes.
    ///
    /// # Errors
    /// When there is no such ServiceAccount, or no token is given.
    pub async fn enter(&self, own: &Way, account: &Key) -> Result<Way, Failure> {
        let attempt = format!("get a token of ServiceAccount {account}");
        let path = SERVICE_ACCOUNT.path(account.namespace.as_deref(), Some(&account.name));
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS}});
        let answer = own.post(&format!("{path}/token"), &request, &attempt).await;
        let answer = match answer {
            Err(failure) if failure.category == Category::NotFound => {
                return Err(Failure { category: Category::MissingCredentials, ..failure });
            }
            answer => answer?,
        };
        let token = answer.pointer("/status/token").and_then(Value::as_str);
        let token = token.ok_or_else(|| Failure::unanswered(&attempt, "the answer has no token"))?;
        match self {
            Self::Guarded(wire) => {
                let mut credentials = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| Failure::unanswered(&attempt, "the token is none"))?;
                credentials.set_sensitive(true);
                Ok(Way { wire: wire.clone(), credentials: Some(credentials) })
            }
            Self::Address(config) => {
                let mut config = kube::Config::clone(config);
                // Whoever asked hears what was said, and decides.
                config.default_retry = false;
                config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
                let client = kube::Client::try_from(config).map_err(|error| invalid(&attempt, &error))?;
                Ok(Way::new(Wire::new(client)))
            }
        }
    }
}

/// What is wrong with the attempt itself.
pub(crate) fn invalid(attempt: &str, problem: &dyn fmt::Display) -> Failure {
    Failure {
        attempt: attempt.to_owned(),
        category: Category::Permanent,
        reason: "Invalid".to_owned(),
        message: problem.to_string(),
        retry_after: None,
    }
}
