//! What is in the part after `?`, and in a path's segments?

use crate::status::Status;

/// The longest query read. The longest in use are page tokens and selectors of a few hundred terms.
const MAX_QUERY_BYTES: usize = 64 << 10;

/// Decoded pairs, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Result<Query, Status> {
        if text.len() > MAX_QUERY_BYTES {
            return Err(Status::bad_request(format!(
                "the query has {} bytes, more than the {MAX_QUERY_BYTES} that are read",
                text.len()
            )));
        }
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(key, true)?, decode(value, true)?));
        }
        Ok(Query { pairs })
    }

    /// The first value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }

    /// Every value of a key.
    pub(crate) fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A boolean as Kubernetes reads it: anything but `0` and `false` is true.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

/// Undoes percent encoding.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> Result<String, Status> {
    if !text.bytes().any(|b| b == b'%' || b == b'+') {
        return Ok(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    let bad = || Status::bad_request(format!("invalid URL escape in {text:?}"));
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16)).ok_or_else(bad);
                let (high, low) = (digit()?, digit()?);
                out.push(u8::try_from(high * 16 + low).map_err(|_| bad())?);
            }
            b'+' if plus_is_space => out.push(b' '),
            other => out.push(other),
        }
    }
    String::from_utf8(out).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let query = Query::parse("labelSelector=e%20in+(p%2Cq)&watch&dryRun=All&dryRun=x&a=%C3%A4").unwrap();
        assert_eq!(query.get("labelSelector"), Some("e in (p,q)"));
        assert_eq!(query.get("watch"), Some(""));
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.all("dryRun").collect::<Vec<_>>(), ["All", "x"]);
        assert_eq!(query.get("a"), Some("ä"));
    }

    #[test]
    fn broken_escapes_and_endless_queries_are_refused() {
        for text in ["a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert!(Query::parse(text).is_err(), "{text}");
        }
        assert_eq!(Query::parse(&"a".repeat(1 << 20)).unwrap_err().code, 400);
    }
}
