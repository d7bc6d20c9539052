//! Who are we to GitHub? A token, or an App that mints tokens for one installation.
//!
//! ```text
//!  App key ──signs──▶ JWT (10 min) ──POST /app/installations/N/access_tokens──▶ token (1 h), kept till shortly before
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

/// Keys of the Secret, as Terrakojo's.
pub const TOKEN: &str = "token";
pub const APP_ID: &str = "github-app-id";
pub const INSTALLATION_ID: &str = "github-installation-id";
pub const PRIVATE_KEY: &str = "github-private-key";

/// Our clock may be ahead of GitHub's: a JWT from the future is refused, so it is dated back as GitHub advises.
const ISSUED_BEFORE: SignedDuration = SignedDuration::from_secs(60);
/// GitHub takes at most 10 minutes, by its own clock.
const JWT_LIFETIME: SignedDuration = SignedDuration::from_mins(9);
/// A token is replaced this long before it ends: longer than any request under way, and than clocks differ.
pub const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_mins(5);

/// How we show GitHub who we are.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A person's or a machine user's. It cannot make check runs.
    Token(Secret),
    /// An installation of a GitHub App.
    App(App),
}

/// A GitHub App, as installed once.
#[derive(Clone)]
pub struct App {
    /// The App's id, or its client id.
    id: String,
    installation: u64,
    key: Arc<RsaKeyPair>,
}

/// Text that is shown to GitHub alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// What is wrong with a Secret; it names keys and never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCredentials {
    #[error("the Secret has neither `{TOKEN}` nor `{APP_ID}`, `{INSTALLATION_ID}` and `{PRIVATE_KEY}`")]
    Nothing,
    #[error("the Secret lacks `{0}`")]
    Missing(&'static str),
    #[error("`{key}` in the Secret {problem}")]
    Malformed { key: &'static str, problem: &'static str },
}

impl Credentials {
    /// Reads a Secret's data. White space around a value is a slip of whoever made it, and is taken off. Where both are
    /// there, the App counts: it can do more.
    ///
    /// # Errors
    /// Names the key that is missing or malformed.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, BadCredentials> {
        let app = [APP_ID, INSTALLATION_ID, PRIVATE_KEY];
        if app.iter().any(|key| data.contains_key(*key)) {
            let id = text(data, APP_ID)?;
            let installation = text(data, INSTALLATION_ID)?.parse().map_err(|_| {
                BadCredentials::Malformed { key: INSTALLATION_ID, problem: "is not a number" }
            })?;
            return Ok(Self::App(App::new(id, installation, text(data, PRIVATE_KEY)?)?));
        }
        match text(data, TOKEN) {
            Ok(token) => Ok(Self::Token(Secret::new(token))),
            Err(BadCredentials::Missing(_)) => Err(BadCredentials::Nothing),
            Err(other) => Err(other),
        }
    }

    /// Check runs are for Apps alone; others report through commit statuses.
    pub fn can_make_check_runs(&self) -> bool {
        matches!(self, Self::App(_))
    }
}

fn text<'a>(data: &'a BTreeMap<String, Vec<u8>>, key: &'static str) -> Result<&'a str, BadCredentials> {
    let value = data.get(key).ok_or(BadCredentials::Missing(key))?;
    let value = std::str::from_utf8(value)
        .map_err(|_| BadCredentials::Malformed { key, problem: "is not text" })?
        .trim();
    if value.is_empty() {
        return Err(BadCredentials::Missing(key));
    }
    // What is sent in a header must be a header's value.
    if key != PRIVATE_KEY && !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BadCredentials::Malformed { key, problem: "holds white space or odd characters" });
    }
    Ok(value)
}

impl App {
    /// # Errors
    /// When the key is not the PEM of an RSA key, as PKCS#1 or PKCS#8.
    pub fn new(id: &str, installation: u64, pem: &str) -> Result<Self, BadCredentials> {
        let bad = |problem| BadCredentials::Malformed { key: PRIVATE_KEY, problem };
        let key = PrivateKeyDer::from_pem_slice(pem.trim().as_bytes())
            .map_err(|_| bad("is not the PEM of a private key"))?;
        let key = match &key {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err(bad("is not an RSA key")),
        };
        let key = key.map_err(|_| bad("is not an RSA key of 2048 bits or more"))?;
        Ok(Self { id: id.to_owned(), installation, key: Arc::new(key) })
    }

    /// The App's id, where the Secret has that and not a client id.
    pub fn id(&self) -> Option<u64> {
        self.id.parse().ok()
    }

    pub fn installation(&self) -> u64 {
        self.installation
    }

    /// A JWT that says "we are this App" for some minutes.
    pub(crate) fn jwt(&self, now: Timestamp) -> Result<Secret, &'static str> {
        let moment = |at: Result<Timestamp, jiff::Error>| at.map(Timestamp::as_second);
        let claims = || {
            let issued = moment(now.checked_sub(ISSUED_BEFORE))?;
            let expires = moment(now.checked_add(JWT_LIFETIME))?;
            let issuer = self.id().map_or_else(|| json!(self.id), |id| json!(id));
            Ok::<_, jiff::Error>(json!({"iat": issued, "exp": expires, "iss": issuer}))
        };
        let claims = claims().map_err(|_| "the time is not one")?;
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| "the App's key cannot sign")?;
        Ok(Secret(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("id", &self.id)
            .field("installation", &self.installation)
            .finish_non_exhaustive()
    }
}

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// For the header it goes into.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::github::fake::{APP_KEY_PKCS1, APP_KEY_PKCS8};

    fn secret(entries: &[(&str, &str)]) -> Result<Credentials, BadCredentials> {
        let entry = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
        Credentials::from_secret(&entries.iter().map(entry).collect())
    }

    #[test]
    fn white_space_around_a_secret_is_taken_off() {
        let Ok(Credentials::Token(token)) = secret(&[(TOKEN, " fake-token\n")]) else { panic!("a token") };
        assert_eq!(token.expose(), "fake-token");
        let pem = format!("\n{APP_KEY_PKCS1}\n\n");
        let app = secret(&[(APP_ID, "7\n"), (INSTALLATION_ID, "\t70 "), (PRIVATE_KEY, &pem)]);
        assert!(matches!(app, Ok(Credentials::App(app)) if app.id() == Some(7) && app.installation() == 70));
    }

    #[test]
    fn both_forms_of_a_key_sign_the_same() {
        let now = Timestamp::from_second(1_700_000_000).expect("a time");
        let signed = |pem| App::new("7", 70, pem).expect("a key").jwt(now).expect("signed");
        assert_eq!(signed(APP_KEY_PKCS1), signed(APP_KEY_PKCS8));
        let claims = signed(APP_KEY_PKCS1).expose().split('.').nth(1).map(str::to_owned).expect("claims");
        let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(claims).expect("base64")).expect("text");
        assert_eq!(claims, r#"{"exp":1700000540,"iat":1699999940,"iss":7}"#);
    }

    #[test]
    fn a_client_id_is_as_good_as_an_app_s_number() {
        let app = App::new("Iv1.fake", 70, APP_KEY_PKCS1).expect("a key");
        assert_eq!(app.id(), None);
        assert!(app.jwt(Timestamp::UNIX_EPOCH).is_ok());
    }

    #[test]
    fn what_is_wrong_names_the_key_and_never_the_value() {
        let table: &[(&[(&str, &str)], &str)] = &[
            (&[], "neither `token` nor `github-app-id`"),
            (&[(TOKEN, " \n")], "neither"),
            (&[(TOKEN, "hunter2 hunter2")], "`token` in the Secret holds white space"),
            (&[(APP_ID, "7"), (TOKEN, "hunter2")], "lacks `github-installation-id`"),
            (
                &[(APP_ID, "7"), (INSTALLATION_ID, "hunter2")],
                "`github-installation-id` in the Secret is not a number",
            ),
            (
                &[(APP_ID, "7"), (INSTALLATION_ID, "1"), (PRIVATE_KEY, "hunter2")],
                "is not the PEM of a private key",
            ),
        ];
        for (entries, said) in table {
            let error = secret(entries).expect_err(said).to_string();
            assert!(error.contains(said) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn credentials_cannot_be_printed() {
        let app = secret(&[(APP_ID, "7"), (INSTALLATION_ID, "1"), (PRIVATE_KEY, APP_KEY_PKCS1)]);
        let token = secret(&[(TOKEN, "hunter2")]);
        let shown = format!("{app:?} {token:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("MII") && !shown.contains("KeyPair"),
            "{shown}"
        );
    }
}
