//! What was asked: a request taken apart, and the page of a list that it wants.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::HOST;
use http::{Method, Request};

use super::world::Repository;
use crate::github::address::escaped;

/// The most that GitHub puts on one page of most lists.
const MAX_PAGE: usize = 100;

/// A request, taken apart.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) segments: Vec<String>,
    query: BTreeMap<String, String>,
    pub(super) body: &'a [u8],
    /// Where this GitHub is, as whoever asks sees it.
    pub(super) api: String,
}

impl<'a> Asked<'a> {
    pub(super) fn read(request: &'a Request<Bytes>) -> Self {
        let uri = request.uri();
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let authority =
            uri.authority().map(|authority| authority.as_str()).or(host).unwrap_or("api.github.example");
        let scheme = uri.scheme_str().unwrap_or("http");
        let (prefix, path) = match uri.path().strip_prefix("/api/v3") {
            Some(path) => ("/api/v3", path),
            None => ("", uri.path()),
        };
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescaped(key), unescaped(value))
        };
        Self {
            method: request.method(),
            segments: path.split('/').skip(1).map(unescaped).collect(),
            query: uri
                .query()
                .unwrap_or_default()
                .split('&')
                .filter(|text| !text.is_empty())
                .map(pair)
                .collect(),
            body: request.body(),
            api: format!("{scheme}://{authority}{prefix}"),
        }
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    pub(super) fn page(&self) -> usize {
        self.query("page").and_then(|page| page.parse().ok()).unwrap_or(1).max(1)
    }

    fn per_page(&self, default: usize) -> usize {
        self.query("per_page")
            .and_then(|size| size.parse().ok())
            .unwrap_or(default)
            .clamp(1, MAX_PAGE.max(default))
    }

    /// The items of the page that is asked for, and the links to others.
    pub(super) fn paged<T>(
        &self,
        repository: &Repository,
        items: Vec<T>,
        default: usize,
    ) -> (Vec<T>, Option<String>) {
        let (page, size) = (self.page(), self.per_page(default));
        let last = items.len().div_ceil(size).max(1);
        let shown = items.into_iter().skip((page - 1).saturating_mul(size)).take(size).collect();
        // Below `repos/owner/name` or `repositories/id`.
        let above = if self.segments.first().is_some_and(|first| first == "repositories") { 2 } else { 3 };
        let rest: Vec<String> = self.segments.iter().skip(above).map(|segment| escaped(segment)).collect();
        // GitHub's links name the repository by its id.
        let path = format!("{}/repositories/{}/{}", self.api, repository.id, rest.join("/"));
        let mut links = String::new();
        let others = [("prev", page - 1), ("next", page + 1), ("last", last), ("first", 1)];
        let there = others.into_iter().filter(|(rel, to)| match *rel {
            "prev" | "first" => page > 1,
            _ => page < last && *to <= last,
        });
        for (rel, to) in there {
            let others = self.query.iter().filter(|(key, _)| *key != "page");
            let query: String =
                others.map(|(key, value)| format!("{}={}&", escaped(key), escaped(value))).collect();
            let comma = if links.is_empty() { "" } else { ", " };
            links += &format!("{comma}<{path}?{query}page={to}>; rel=\"{rel}\"");
        }
        (shown, (!links.is_empty()).then_some(links))
    }
}

/// `%2F` is a slash inside a segment.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
