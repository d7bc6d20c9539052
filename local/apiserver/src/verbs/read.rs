//! What is there, and at which revision?
//!
//! | resourceVersion | match | answered from |
//! |---|---|---|
//! | unset, `0` | unset | now |
//! | N | unset, NotOlderThan | now, 504 if N is in the future |
//! | N | Exact | N, 410 if it is compacted |
//! | continue token | — | the revision of the first page, 410 if it is compacted |

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use super::{Answer, Call, Core, List};
use crate::http::Query;
use crate::resources::Resource;
use crate::selector::{self, Selector};
use crate::status::Status;
use crate::store::{Compacted, Snapshot, key, prefix};
use crate::validation::FieldError;
use crate::watch::{Start, WatchRequest};

/// The options of list, watch and deletecollection.
#[derive(Debug, Clone)]
pub(crate) struct ListOptions {
    pub(crate) selector: Selector,
    limit: usize,
    token: Option<String>,
    version: Option<u64>,
    exact: bool,
    send_initial_events: Option<bool>,
    bookmarks: bool,
    timeout_secs: Option<u64>,
}

/// GET of one object.
pub(super) fn get(core: &Core, call: &Call<'_>) -> Result<Answer, Status> {
    if let asked @ Some(_) = version(call.query)? {
        reached(core, asked)?;
    }
    let found = core.store.get(&call.resource.table, &key(call.namespace, call.name));
    let found = found.ok_or_else(|| Status::not_found(call.resource, call.name))?;
    Ok(Answer::Object(200, found))
}

/// GET of a collection.
pub(super) fn list(core: &Core, call: &Call<'_>) -> Result<Answer, Status> {
    let options = ListOptions::read(call, false)?;
    Ok(Answer::List(page(core, call, &options)?))
}

/// GET of a collection with `watch`.
pub(super) fn watch(_core: &Core, call: &Call<'_>) -> Result<Answer, Status> {
    let options = ListOptions::read(call, true)?;
    let start = match (options.send_initial_events, options.version) {
        (Some(true), _) => Start::InitialEvents { bookmark: true },
        (None, None | Some(0)) => Start::InitialEvents { bookmark: false },
        (Some(false), None | Some(0)) => Start::Now,
        (Some(false) | None, Some(revision)) => Start::After(revision),
    };
    let mut selector = options.selector;
    if !call.name.is_empty() {
        let only = selector::FieldRequirement {
            field: "metadata.name".into(),
            value: call.name.into(),
            equal: true,
        };
        selector.fields.push(only);
    }
    Ok(Answer::Watch(WatchRequest {
        resource: call.resource.clone(),
        namespace: call.namespace.to_owned(),
        selector,
        start,
        bookmarks: options.bookmarks,
        timeout_secs: options.timeout_secs,
    }))
}

/// One page of a collection.
pub(super) fn page(core: &Core, call: &Call<'_>, options: &ListOptions) -> Result<List, Status> {
    let token = options.token.as_deref().map(Token::read).transpose()?;
    if token.is_some() && options.version.is_some_and(|version| version > 0) {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    if let Some(page) = plain_page(core, call, options, token.as_ref())? {
        return Ok(page);
    }
    let snapshot = snapshot(core, call, options, token.as_ref())?;
    let start = token.as_ref().map_or("", |t| t.after.as_str());
    let mut items = Vec::new();
    let mut rest = snapshot
        .objects
        .into_iter()
        .filter(|o| options.selector.matches(o) && (start.is_empty() || o.key() > start));
    let limit = if options.limit == 0 { usize::MAX } else { options.limit };
    items.extend(rest.by_ref().take(limit));
    let remaining = rest.count();
    let next = items.last().filter(|_| remaining > 0).map(|last| {
        let after = last.key().to_owned();
        Token { revision: Some(snapshot.revision), after, following: None }.write()
    });
    // With a selector a real server does not know how many will follow, and does not say.
    let remaining = (remaining > 0 && options.selector.is_empty()).then_some(remaining);
    Ok(List { revision: snapshot.revision, items, next, remaining })
}

/// A page of everything there is, read as such: without a selector nothing else need be looked at. `None` if
/// it is not as simple as that.
fn plain_page(
    core: &Core,
    call: &Call<'_>,
    options: &ListOptions,
    token: Option<&Token>,
) -> Result<Option<List>, Status> {
    if options.limit == 0 || !options.selector.is_empty() || options.exact {
        return Ok(None);
    }
    let at = token.and_then(|token| token.revision);
    reached(core, at.or(options.version))?;
    let prefix = prefix(call.namespace);
    let after = token.map_or("", |token| token.after.as_str());
    // The number counts for the revision that it was told with.
    let known = token.and_then(|token| token.following).filter(|_| at.is_some());
    let page = core.store.page(&call.resource.table, &prefix, after, options.limit, at, known);
    Ok(page.map(|(snapshot, remaining)| {
        let next = snapshot.objects.last().filter(|_| remaining > 0).map(|last| {
            let after = last.key().to_owned();
            Token { revision: Some(snapshot.revision), after, following: Some(remaining) }.write()
        });
        let remaining = (remaining > 0).then_some(remaining);
        List { revision: snapshot.revision, items: snapshot.objects, next, remaining }
    }))
}

fn snapshot(
    core: &Core,
    call: &Call<'_>,
    options: &ListOptions,
    token: Option<&Token>,
) -> Result<Snapshot, Status> {
    let table = &call.resource.table;
    let prefix = prefix(call.namespace);
    let at = match token {
        Some(token) => token.revision,
        None if options.exact => options.version,
        None => None,
    };
    let current = reached(core, at.or(options.version))?;
    if let Some(at) = at.filter(|at| *at < current) {
        return core.store.list_at(table, &prefix, at).map_err(|gone| expired(gone, token));
    }
    if let Some(name) = options.selector.exact_name()
        && (!call.namespace.is_empty() || !call.resource.ids.namespaced)
    {
        let found = core.store.get(table, &key(call.namespace, name));
        return Ok(Snapshot { revision: current, objects: found.into_iter().collect() });
    }
    Ok(core.store.list(table, &prefix))
}

/// A page token that outlived its revision says how to go on, if consistency does not matter.
/// The revision that can be seen now, if it is not behind the one that is asked for.
fn reached(core: &Core, asked: Option<u64>) -> Result<u64, Status> {
    let current = core.store.revision();
    match asked.filter(|asked| *asked > current) {
        Some(asked) => Err(Status::too_large_version(asked, current)),
        None => Ok(current),
    }
}

fn expired(gone: Compacted, token: Option<&Token>) -> Status {
    match token {
        None => Status::expired(format!("The resourceVersion for the provided list is too old: {gone}")),
        Some(token) => {
            let mut status = Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start \
                 a new list without the continue parameter, or use the continue token in this response to \
                 retrieve the remainder of the results. Continuing with the provided token results in an \
                 inconsistent list - objects that were created, modified, or deleted between the time the first \
                 chunk was returned and now may show up in the list.",
            );
            status.resume =
                Some(Token { revision: None, after: token.after.clone(), following: None }.write());
            status
        }
    }
}

/// Where the next page begins.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    /// The revision of the first page; none to go on with whatever is there.
    revision: Option<u64>,
    /// The last key of the page before.
    after: String,
    /// How many are after it, where that was counted.
    following: Option<usize>,
}

impl Token {
    fn write(&self) -> String {
        let revision = self.revision.map_or(json!(-1), |r| json!(r));
        let mut token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": self.after});
        if let (Some(following), Some(token)) = (self.following, token.as_object_mut()) {
            token.insert("following".into(), following.into());
        }
        BASE64.encode(token.to_string())
    }

    fn read(text: &str) -> Result<Token, Status> {
        let parsed = || {
            let bytes = BASE64.decode(text.trim_end_matches('=')).ok()?;
            let token: Value = serde_json::from_slice(&bytes).ok()?;
            let revision = token.get("rv")?.as_i64()?;
            Some(Token {
                revision: u64::try_from(revision).ok(),
                after: token.get("start")?.as_str()?.to_owned(),
                following: token
                    .get("following")
                    .and_then(Value::as_u64)
                    .and_then(|n| usize::try_from(n).ok()),
            })
        };
        parsed().ok_or_else(|| Status::bad_request("continue key is not valid: not a token of this server"))
    }
}

impl ListOptions {
    pub(crate) fn read(call: &Call<'_>, watching: bool) -> Result<ListOptions, Status> {
        let query = call.query;
        let number = |key: &str| -> Result<Option<u64>, Status> {
            match query.get(key) {
                None | Some("") => Ok(None),
                Some(text) => {
                    text.parse::<i64>().map(|n| Some(u64::try_from(n).unwrap_or(0))).map_err(|_| {
                        Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
                    })
                }
            }
        };
        let options = ListOptions {
            selector: selector(query, call.resource)?,
            limit: usize::try_from(number("limit")?.unwrap_or(0)).unwrap_or(usize::MAX),
            token: query.get("continue").filter(|t| !t.is_empty()).map(str::to_owned),
            version: version(query)?,
            exact: query.get("resourceVersionMatch") == Some("Exact"),
            send_initial_events: query.flag("sendInitialEvents"),
            bookmarks: query.flag("allowWatchBookmarks") == Some(true),
            timeout_secs: number("timeoutSeconds")?.filter(|s| *s > 0),
        };
        let errors = match_rules(query, &options, watching);
        if errors.is_empty() { Ok(options) } else { Err(Status::invalid_options("ListOptions", errors)) }
    }
}

/// How resourceVersion, resourceVersionMatch, continue and sendInitialEvents go together.
fn match_rules(query: &Query, options: &ListOptions, watching: bool) -> Vec<FieldError> {
    const FIELD: &str = "resourceVersionMatch";
    let forbidden = |field: &str, why: &str| FieldError::forbidden(field, why);
    let matching = query.get(FIELD).unwrap_or_default();
    let version = query.get("resourceVersion").unwrap_or_default();
    if options.send_initial_events.is_some() {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return match (watching, matching) {
            (false, _) => {
                vec![forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")]
            }
            (true, "NotOlderThan") => Vec::new(),
            (true, _) => vec![forbidden(FIELD, why)],
        };
    }
    if matching.is_empty() {
        return Vec::new();
    }
    if watching {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        return vec![forbidden(FIELD, why)];
    }
    let mut errors = Vec::new();
    if options.token.is_some() {
        errors.push(forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
    }
    if version.is_empty() {
        errors.push(forbidden(FIELD, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
    match matching {
        "Exact" if version == "0" => {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(forbidden(FIELD, why));
        }
        "Exact" | "NotOlderThan" => {}
        other => errors.push(FieldError::not_supported(FIELD, &json!(other), &["Exact", "NotOlderThan", ""])),
    }
    errors
}

fn selector(query: &Query, resource: &Resource) -> Result<Selector, Status> {
    let known: Vec<_> = resource.selectable.iter().map(|s| s.label.clone()).collect();
    let labels = query.get("labelSelector").unwrap_or_default();
    let fields = query.get("fieldSelector").unwrap_or_default();
    Ok(Selector {
        labels: selector::parse_labels(labels).map_err(Status::bad_request)?,
        fields: selector::parse_fields(fields, &known).map_err(Status::bad_request)?,
    })
}

fn version(query: &Query) -> Result<Option<u64>, Status> {
    match query.get("resourceVersion") {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
            let error = FieldError::invalid("resourceVersion", &json!(text), why);
            Status::invalid_options("ListOptions", vec![error])
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_survives_the_trip() {
        for token in [
            Token { revision: Some(12), after: "ns/name".into(), following: Some(7) },
            Token { revision: None, after: "ns/\"".into(), following: None },
        ] {
            assert_eq!(Token::read(&token.write()).unwrap(), token);
        }
        assert!(Token::read("garbage").is_err());
    }
}
