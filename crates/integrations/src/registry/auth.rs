//! How does a registry want to be asked, and what have we to show?

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Uri};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::github::address::escaped;

/// What Docker's own registry is called in names of images.
pub(super) const DOCKER: &str = "docker.io";

/// Under which further names Docker's own tool keeps the login for it.
const DOCKER_TOO: &[&str] = &["index.docker.io", "registry-1.docker.io"];

/// Who we are, by registry: the `auths` of a `config.json` as `docker login` writes it without a helper.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    logins: BTreeMap<String, Login>,
}

/// Not a `config.json`. What stands in it is not repeated: it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the config.json of Docker: {0}")]
pub struct NoCredentials(&'static str);

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    basic: HeaderValue,
}

/// What a registry that does not know us asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token, to be had at `realm`.
    Bearer {
        realm: String,
        service: Option<String>,
    },
}

impl Credentials {
    /// Those of a `config.json`. Logins that a helper keeps (`credsStore`, `credHelpers`) are not asked for.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoCredentials> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Auth {
            auth: String,
            username: String,
            password: String,
        }
        let shape = |_| NoCredentials("it has another shape");
        // An object, and not a list of fields, which a derived reader would take as well.
        let mut config: Map<String, Value> = serde_json::from_slice(bytes).map_err(shape)?;
        let auths = config.remove("auths").unwrap_or_else(|| Value::Object(Map::new()));
        let auths: BTreeMap<String, Auth> = serde_json::from_value(auths).map_err(shape)?;
        let mut logins = BTreeMap::new();
        for (registry, Auth { auth, username, password }) in auths {
            let encoded = match (auth.trim(), username.is_empty()) {
                ("", true) => continue,
                ("", false) => BASE64_STANDARD.encode(format!("{username}:{password}")),
                (auth, _) => auth.to_owned(),
            };
            let pair = BASE64_STANDARD.decode(&encoded).ok().filter(|pair| pair.contains(&b':'));
            pair.ok_or(NoCredentials("an auth in it is not the base64 of a name, a colon and a password"))?;
            logins.insert(host_of(&registry).to_owned(), Login::new(&encoded)?);
        }
        Ok(Self { logins })
    }

    pub(super) fn login(&self, host: &str) -> Option<&Login> {
        self.logins.get(host)
    }
}

impl Login {
    fn new(encoded: &str) -> Result<Self, NoCredentials> {
        let basic = HeaderValue::try_from(format!("Basic {encoded}"));
        let mut basic = basic.map_err(|_| NoCredentials("an auth in it is no base64"))?;
        basic.set_sensitive(true);
        Ok(Self { basic })
    }

    pub(super) fn basic(&self) -> HeaderValue {
        self.basic.clone()
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(…)")
    }
}

impl Challenge {
    /// The first that we know how to answer; a token before a password.
    pub(super) fn of<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Self> {
        let all: Vec<Self> = headers.filter_map(Self::parse).collect();
        let token = all.iter().position(|it| matches!(it, Self::Bearer { .. })).unwrap_or(0);
        all.into_iter().nth(token)
    }

    fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        let mut parameters = parameters(rest);
        let realm = parameters.remove("realm").filter(|_| scheme.eq_ignore_ascii_case("bearer"))?;
        Some(Self::Bearer { realm, service: parameters.remove("service") })
    }
}

/// Where the token for reading one repository is to be had.
pub(super) fn token_address(realm: &str, service: Option<&str>, name: &str) -> Option<Uri> {
    let scope = escaped(&format!("repository:{name}:pull"));
    let service = service.map(|service| format!("service={}&", escaped(service))).unwrap_or_default();
    let joined = if realm.contains('?') { '&' } else { '?' };
    format!("{realm}{joined}{service}scope={scope}").parse().ok()
}

/// The authorization in a token server's answer.
pub(super) fn bearer(body: &Bytes) -> Option<HeaderValue> {
    #[derive(Deserialize)]
    struct Given {
        token: Option<String>,
        access_token: Option<String>,
    }
    let given: Given = serde_json::from_slice(body).ok()?;
    let token = given.token.or(given.access_token).filter(|token| !token.is_empty())?;
    let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    bearer.set_sensitive(true);
    Some(bearer)
}

/// `https://index.docker.io/v1/` and `registry.example.com:5000` name hosts.
fn host_of(registry: &str) -> &str {
    let rest = registry.split_once("://").map_or(registry, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest);
    if DOCKER_TOO.contains(&host) { DOCKER } else { host }
}

/// `key="value", key=value`: quotes may hold commas, and a backslash takes what follows it as it is.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text.trim_start_matches([' ', ',']);
    while let Some((key, after)) = rest.split_once('=') {
        let mut value = String::new();
        let after = after.trim_start();
        let mut chars = after.chars();
        if after.starts_with('"') {
            chars.next();
            while let Some(c) = chars.next().filter(|c| *c != '"') {
                value.extend(if c == '\\' { chars.next() } else { Some(c) });
            }
        } else {
            let (plain, more) = after.split_once(',').unwrap_or((after, ""));
            value.push_str(plain.trim_end());
            chars = more.chars();
        }
        found.insert(key.trim().to_ascii_lowercase(), value);
        rest = chars.as_str().trim_start_matches([' ', ',']);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let docker =
            "Bearer realm=\"https://auth.example.com/token\",service=\"a, b\",scope=\"repository:x:pull\"";
        let bearer = Challenge::Bearer {
            realm: "https://auth.example.com/token".to_owned(),
            service: Some("a, b".to_owned()),
        };
        assert_eq!(Challenge::of(["Basic realm=\"x\"", docker].into_iter()), Some(bearer));
        assert_eq!(Challenge::of(["basic realm=plain"].into_iter()), Some(Challenge::Basic));
        assert_eq!(Challenge::of(["Negotiate", "Bearer error=\"x\"", ""].into_iter()), None);
        let odd = parameters(r#" a="q\"x" , b = plain,c="#);
        assert_eq!((odd["a"].as_str(), odd["b"].as_str(), odd["c"].as_str()), ("q\"x", "plain", ""));
    }

    #[test]
    fn the_scope_of_a_token_is_one_repository() {
        let uri = token_address("https://auth.example.com/token?x=1", Some("a b"), "flows/mend").unwrap();
        let wanted =
            "https://auth.example.com/token?x=1&service=a%20b&scope=repository%3Aflows%2Fmend%3Apull";
        assert_eq!(uri, wanted);
        assert_eq!(token_address("not an address", None, "x"), None);
    }

    #[test]
    fn logins_are_found_by_registry_and_never_shown() {
        let pair = BASE64_STANDARD.encode("fake:not-a-password");
        let config = format!(
            r#"{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{pair}"}},
                "r.example.com:5000": {{"username": "fake", "password": "not-a-password"}}, "h.example.com": {{}}}},
                "credsStore": "desktop"}}"#
        );
        let credentials = Credentials::parse(config.as_bytes()).unwrap();
        assert_eq!(credentials.login(DOCKER), credentials.login("r.example.com:5000"));
        assert!(credentials.login("h.example.com").is_none() && credentials.login("r.example.com").is_none());
        let shown = format!("{credentials:?} {:?}", credentials.login(DOCKER).unwrap().basic());
        assert!(!shown.contains(&pair) && !shown.contains("not-a-password"), "{shown}");
        for bad in
            ["", "[]", r#"{"auths": {"x": {"auth": "bm8gY29sb24="}}}"#, r#"{"auths": {"x": {"auth": "!"}}}"#]
        {
            assert!(Credentials::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
