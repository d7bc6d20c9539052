//! Where is the API, and does an address that it names belong to it?
//!
//! Everything sent to an [`Address`] carries a credential, so a link in an answer is followed only if it leads back to
//! the same scheme, host and port, below the same prefix.

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

use crate::transport::Origin;

/// GitHub's own.
const PUBLIC: &str = "https://api.github.com";

/// `https://api.github.com`, or an Enterprise server's `https://host/api/v3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    origin: Origin,
    /// Before every path, as `/api/v3`; never ends in `/`.
    prefix: String,
}

/// Not the address of an API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("apiUrl {url:?} {problem}")]
pub struct BadAddress {
    url: String,
    problem: &'static str,
}

impl Address {
    /// The public one when there is none.
    ///
    /// # Errors
    /// When it is not `http(s)://host[:port][/prefix]`.
    pub fn parse(api_url: Option<&str>) -> Result<Self, BadAddress> {
        let url = api_url.map(str::trim).filter(|url| !url.is_empty()).unwrap_or(PUBLIC);
        let bad = |problem| BadAddress { url: without_userinfo(url), problem };
        let uri: Uri = url.parse().map_err(|_| bad("is not an address"))?;
        let parts = uri.into_parts();
        let scheme = parts
            .scheme
            .filter(|scheme| [Scheme::HTTPS, Scheme::HTTP].contains(scheme))
            .ok_or_else(|| bad("must begin with https:// or http://"))?;
        let authority = parts.authority.ok_or_else(|| bad("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("must not hold a user or a password: those belong in the Secret"));
        }
        let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if path.query().is_some() {
            return Err(bad("must not hold a query"));
        }
        let origin = Origin { scheme, authority };
        Ok(Self { origin, prefix: path.path().trim_end_matches('/').to_owned() })
    }

    pub fn host(&self) -> &str {
        self.origin.authority.host()
    }

    /// The whole address of a path below the prefix.
    pub(crate) fn uri(&self, path_and_query: &str) -> Result<Uri, http::Error> {
        self.origin.uri(&format!("{}{path_and_query}", self.prefix))
    }

    /// What a link leads to, as a path below the prefix, if it leads here at all.
    pub(crate) fn own_path(&self, link: &str) -> Option<String> {
        let uri: Uri = link.parse().ok()?;
        let is_path = uri.scheme().is_none() && uri.authority().is_none();
        let same_place = is_path || self.origin.is_of(&uri);
        let path = uri.path_and_query()?.as_str();
        let below = path.strip_prefix(&self.prefix)?;
        (same_place && below.starts_with('/') && !below.starts_with("//")).then(|| below.to_owned())
    }
}

/// What is shown of an address that somebody put a password into.
fn without_userinfo(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        (None, Some((_, rest))) => format!("…@{rest}"),
        (_, None) => url.to_owned(),
    }
}

/// One segment of a path, or one value of a query: whatever it holds, it stays one.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    // A lone dot segment would be taken away by whoever normalizes the path.
    match out.as_str() {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address {
        Address::parse(Some(url)).expect(url)
    }

    #[test]
    fn without_an_address_it_is_the_public_one() {
        let public = Address::parse(None).expect("the public address");
        assert_eq!(public, address("https://api.github.com/"));
        assert_eq!(public.uri("/repos/a/b").expect("uri"), "https://api.github.com/repos/a/b");
    }

    #[test]
    fn an_enterprise_prefix_stands_before_every_path() {
        let server = address("https://ghe.example.com:8443/api/v3/");
        assert_eq!(server.uri("/app").expect("uri"), "https://ghe.example.com:8443/api/v3/app");
    }

    #[test]
    fn what_is_no_address_says_why_without_showing_a_password() {
        for (url, why) in [
            ("ftp://ghe.example.com", "https://"),
            ("ghe.example.com", "https://"),
            ("https://user:hunter2@ghe.example.com", "Secret"),
            ("https://ghe.example.com/?a=b", "query"),
            ("https://exa mple", "not an address"),
        ] {
            let said = Address::parse(Some(url)).expect_err(url).to_string();
            assert!(said.contains(why) && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn only_links_to_the_same_place_are_followed() {
        let server = address("https://ghe.example.com/api/v3");
        let next = "/repositories/7/pulls?page=2";
        for link in [
            "https://ghe.example.com/api/v3/repositories/7/pulls?page=2",
            "https://GHE.example.com:443/api/v3/repositories/7/pulls?page=2",
            "/api/v3/repositories/7/pulls?page=2",
        ] {
            assert_eq!(server.own_path(link).as_deref(), Some(next), "{link}");
        }
        for link in [
            "https://evil.example.com/api/v3/repositories/7/pulls?page=2",
            "http://ghe.example.com/api/v3/repositories/7/pulls",
            "https://ghe.example.com:444/api/v3/repositories",
            "https://ghe.example.com/api/v30/repositories",
            "https://ghe.example.com@evil.example.com/api/v3/repositories",
            "https://x@ghe.example.com/api/v3/repositories",
            "//evil.example.com/api/v3/x",
            "https://ghe.example.com/api/v3//evil.example.com/x",
        ] {
            assert_eq!(server.own_path(link), None, "{link}");
        }
    }

    #[test]
    fn a_segment_stays_one_segment() {
        assert_eq!(escaped("feature/ä?#%"), "feature%2F%C3%A4%3F%23%25");
        assert_eq!((escaped(".."), escaped(".github")), ("%2E%2E".to_owned(), ".github".to_owned()));
    }
}
