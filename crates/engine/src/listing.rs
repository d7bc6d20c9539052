//! How a list is read: in pages, whole or not at all, object by object.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use pawl_api::meta::Kind;
use pawl_machines::failure::Failure;
use pawl_machines::machine::Depth;
use pawl_machines::object::Object;
use serde::Deserialize;
use tokio::task::JoinHandle;

use crate::caches::Listed;
use crate::informer::Informer;
use crate::manifest::{self, Unreadable};
use crate::outline;
use crate::wire::Lost;

/// Objects per page of a list: what the usual clients ask for, and far below what an answer may hold.
const PAGE: u32 = 500;

/// How many pages are read while the next is fetched: a list of a hundred thousand objects takes all processors, and no
/// more memory than these.
const AHEAD: usize = 4;

/// One page of a list.
struct Page {
    objects: Vec<Arc<Object>>,
    /// Objects that are there and cannot be read.
    unreadable: Vec<Unreadable>,
}

/// Why there is no page.
enum PageError {
    TooLong(Failure),
    /// The snapshot that the pages are of is gone.
    Expired,
    Failed(Failure),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue", default)]
    token: String,
}

impl Informer {
    /// Everything of the kind, as of one moment.
    pub(crate) async fn list(&mut self) -> Result<Listed, Failure> {
        let mut limit = Some(PAGE);
        loop {
            match self.pages(limit).await {
                Ok(listed) => return Ok(listed),
                // So all at once.
                Err(PageError::Expired) => limit = None,
                Err(PageError::TooLong(failure)) => limit = smaller(limit).ok_or(failure)?.into(),
                Err(PageError::Failed(failure)) => return Err(failure),
            }
        }
    }

    async fn pages(&self, limit: Option<u32>) -> Result<Listed, PageError> {
        let mut listed =
            Listed { objects: vec![], unreadable: BTreeSet::new(), resource_version: String::new() };
        let mut token = String::new();
        let mut ahead: VecDeque<JoinHandle<Option<Page>>> = VecDeque::new();
        loop {
            let body = match self.page(limit, &token).await {
                Err(PageError::Failed(failure))
                    if failure.is("Expired") && limit.is_some() && !token.is_empty() =>
                {
                    return Err(PageError::Expired);
                }
                answered => answered?,
            };
            let metadata = metadata(&body).ok_or_else(|| self.no_list())?;
            listed.resource_version = metadata.resource_version;
            token = metadata.token;
            if token.is_empty() {
                for page in ahead {
                    self.add(&mut listed, joined(page).await)?;
                }
                self.add(&mut listed, cut(&self.kind, self.depth, &body))?;
                return Ok(listed);
            }
            if ahead.len() >= AHEAD
                && let Some(first) = ahead.pop_front()
            {
                self.add(&mut listed, joined(first).await)?;
            }
            let (kind, depth) = (Arc::clone(&self.kind), self.depth);
            ahead.push_back(tokio::spawn(async move { cut(&kind, depth, &body) }));
        }
    }

    fn add(&self, listed: &mut Listed, page: Option<Page>) -> Result<(), PageError> {
        let Page { objects, unreadable } = page.ok_or_else(|| self.no_list())?;
        listed.objects.extend(objects);
        for Unreadable { key, malformed, .. } in unreadable {
            self.skip(&malformed);
            listed.unreadable.extend(key);
        }
        Ok(())
    }

    fn no_list(&self) -> PageError {
        PageError::Failed(Failure::unanswered(self.attempt(), "the answer is not a list"))
    }

    fn attempt(&self) -> String {
        format!("list {}", self.what())
    }

    async fn page(&self, limit: Option<u32>, token: &str) -> Result<Bytes, PageError> {
        let mut query = limit.map(|limit| format!("limit={limit}")).unwrap_or_default();
        if !token.is_empty() {
            query.push_str("&continue=");
            query.push_str(&percent_encoded(token));
        }
        let request = self.request(&query, "PartialObjectMetadataList");
        let reply = self.wire.send(request).await.map_err(|lost| match lost {
            Lost::TooLong(_) => PageError::TooLong(Failure::unanswered(self.attempt(), lost)),
            Lost::Timeout(_) | Lost::Broken(_) => {
                PageError::Failed(Failure::unanswered(self.attempt(), lost))
            }
        })?;
        if reply.code != 200 {
            let failure = Failure::answered(self.attempt(), reply.code, reply.retry_after, &reply.body);
            return Err(PageError::Failed(failure));
        }
        Ok(reply.body)
    }
}

fn metadata(body: &[u8]) -> Option<ListMeta> {
    serde_json::from_slice(outline::member(body, "metadata")?).ok()
}

/// A page in which some object cannot be read at all: the others can.
fn cut(kind: &Arc<Kind>, depth: Depth, body: &[u8]) -> Option<Page> {
    let mut page = Page { objects: vec![], unreadable: vec![] };
    // Of a kind of which there is nothing, kube-apiserver says so where only metadata is asked for.
    let items = match outline::member(body, "items")? {
        b"null" => vec![],
        items => outline::elements(items)?,
    };
    for item in items {
        match manifest::read(kind, depth, item) {
            Ok(object) => page.objects.push(object),
            Err(unreadable) => page.unreadable.push(*unreadable),
        }
    }
    Some(page)
}

/// What a task read; its panic is ours.
async fn joined(page: JoinHandle<Option<Page>>) -> Option<Page> {
    match page.await {
        Ok(page) => page,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Nobody cancels it but a runtime that ends.
            Err(_) => None,
        },
    }
}

/// The next size to try when a page does not fit: from all at once to the usual page, then a quarter each time.
fn smaller(limit: Option<u32>) -> Option<u32> {
    match limit {
        None => Some(PAGE),
        Some(limit) => Some(limit / 4).filter(|limit| *limit > 0),
    }
}

/// A continue token is any text, and stands in a query.
fn percent_encoded(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_nothing_is_a_list_and_what_is_none_is_not() {
        let kind = Arc::new(Kind::of("", "v1", "Node", "nodes", false));
        let count = |body: &str| Some(cut(&kind, Depth::Metadata, body.as_bytes())?.objects.len());
        let of = |items: &str| {
            format!(
                "{{\n  \"kind\": \"PartialObjectMetadataList\",\n  \"metadata\": {{\"resourceVersion\": \"296\"}},\n  \"items\": {items}\n}}"
            )
        };
        assert_eq!(count(&of("null")), Some(0), "as kube-apiserver says it");
        assert_eq!(count(&of("[]")), Some(0));
        assert_eq!(count(&of(r#"[{"metadata": {"name": "a"}}]"#)), Some(1));
        assert_eq!((count(&of("7")), count(r#"{"metadata": {}}"#)), (None, None));
    }

    #[test]
    fn a_token_is_safe_in_a_query() {
        assert_eq!(percent_encoded("a+b/c=&é"), "a%2Bb%2Fc%3D%26%C3%A9");
    }
}
