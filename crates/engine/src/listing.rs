//! How a list is read: in pages, whole or not at all, object by object.

use std::collections::BTreeSet;
use std::sync::Arc;

use pawl_machines::failure::Failure;
use pawl_machines::object::{Key, Object};
use serde::Deserialize;

use crate::caches::Listed;
use crate::informer::Informer;
use crate::manifest::{self, Unreadable};
use crate::outline;
use crate::wire::Lost;

/// Objects per page of a list: what the usual clients ask for, and far below what an answer may hold.
const PAGE: u32 = 500;

/// One page of a list.
struct Page {
    metadata: ListMeta,
    objects: Vec<Arc<Object>>,
    /// Objects that are there and cannot be read, as far as they have names.
    unreadable: Vec<Key>,
}

/// Why there is no page.
enum PageError {
    TooLong(Failure),
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
        'start: loop {
            let mut listed =
                Listed { objects: vec![], unreadable: BTreeSet::new(), resource_version: String::new() };
            let mut token = String::new();
            loop {
                let page = match self.page(limit, &token).await {
                    Ok(page) => page,
                    // The pages' snapshot is gone: so all at once.
                    Err(PageError::Failed(failure))
                        if failure.is("Expired") && limit.is_some() && !token.is_empty() =>
                    {
                        limit = None;
                        continue 'start;
                    }
                    Err(PageError::TooLong(failure)) => {
                        limit = smaller(limit).ok_or(failure)?.into();
                        continue 'start;
                    }
                    Err(PageError::Failed(failure)) => return Err(failure),
                };
                listed.objects.extend(page.objects);
                listed.unreadable.extend(page.unreadable);
                listed.resource_version = page.metadata.resource_version;
                token = page.metadata.token;
                if token.is_empty() {
                    return Ok(listed);
                }
            }
        }
    }

    async fn page(&self, limit: Option<u32>, token: &str) -> Result<Page, PageError> {
        let attempt = || format!("list {}", self.what());
        let mut query = limit.map(|limit| format!("limit={limit}")).unwrap_or_default();
        if !token.is_empty() {
            query.push_str("&continue=");
            query.push_str(&percent_encoded(token));
        }
        let request = self.request(&query, "PartialObjectMetadataList");
        let reply = self.wire.send(request).await.map_err(|lost| match lost {
            Lost::TooLong(_) => PageError::TooLong(Failure::unanswered(attempt(), lost)),
            Lost::Timeout(_) | Lost::Broken(_) => PageError::Failed(Failure::unanswered(attempt(), lost)),
        })?;
        if reply.code != 200 {
            let failure = Failure::answered(attempt(), reply.code, reply.retry_after, &reply.body);
            return Err(PageError::Failed(failure));
        }
        self.cut(&reply.body)
            .ok_or_else(|| PageError::Failed(Failure::unanswered(attempt(), "the answer is not a list")))
    }

    /// A page in which some object cannot be read at all: the others can.
    fn cut(&self, body: &[u8]) -> Option<Page> {
        let metadata = serde_json::from_slice(outline::member(body, "metadata")?).ok()?;
        let mut page = Page { metadata, objects: vec![], unreadable: vec![] };
        for item in outline::elements(outline::member(body, "items")?)? {
            match manifest::read(&self.kind, self.depth, item) {
                Ok(object) => page.objects.push(object),
                Err(unreadable) => {
                    let Unreadable { key, malformed, .. } = *unreadable;
                    self.skip(&malformed);
                    page.unreadable.extend(key);
                }
            }
        }
        Some(page)
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
    fn a_token_is_safe_in_a_query() {
        assert_eq!(percent_encoded("a+b/c=&é"), "a%2Bb%2Fc%3D%26%C3%A9");
    }
}
