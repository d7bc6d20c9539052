//! Who is asking, and how much may they still ask?

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs1KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use super::{APP_ID, APP_KEY_PKCS1, INSTALLATION_ID, TOKEN, TOKEN_USER};

/// As GitHub's: an installation's token is good for an hour, and so long is a window of the rate limit.
const TOKEN_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
const WINDOW: SignedDuration = SignedDuration::from_hours(1);
const REQUESTS_PER_HOUR: u32 = 5000;
/// The longest a JWT may be good for, and by how much clocks may differ.
const MAX_JWT_SECONDS: i64 = 600;
const CLOCK_SKEW_SECONDS: i64 = 60;

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// The App itself: it may mint tokens and nothing else.
    App,
    Installation,
    User(String),
}

#[derive(Debug)]
pub(super) struct Access {
    public_key: Vec<u8>,
    tokens: BTreeMap<String, Timestamp>,
    minted: u64,
    meters: BTreeMap<String, Meter>,
    pub(super) limit: u32,
    pub(super) suspended: bool,
}

/// What one credential has used of its hour.
#[derive(Clone, Copy, Debug)]
struct Meter {
    used: u32,
    reset: Timestamp,
}

impl Access {
    pub(super) fn new() -> Self {
        // The key is ours, in a file of ours: were it not one, no JWT would verify and every test would say so.
        let key = PrivatePkcs1KeyDer::from_pem_slice(APP_KEY_PKCS1.as_bytes())
            .ok()
            .and_then(|der| RsaKeyPair::from_der(der.secret_pkcs1_der()).ok());
        Self {
            public_key: key.map(|key| key.public().as_ref().to_vec()).unwrap_or_default(),
            tokens: BTreeMap::new(),
            minted: 0,
            meters: BTreeMap::new(),
            limit: REQUESTS_PER_HOUR,
            suspended: false,
        }
    }

    /// Who sends these headers, or GitHub's words for "nobody".
    pub(super) fn caller(&self, headers: &HeaderMap, now: Timestamp) -> Result<Caller, &'static str> {
        let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (scheme, token) =
            value.and_then(|value| value.split_once(' ')).ok_or("Requires authentication")?;
        if !(scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token")) {
            return Err("Requires authentication");
        }
        if token == TOKEN {
            return Ok(Caller::User(TOKEN_USER.to_owned()));
        }
        if token.matches('.').count() == 2 {
            return self.app(token, now).map(|()| Caller::App);
        }
        let expires = self.tokens.get(token).ok_or("Bad credentials")?;
        if *expires > now { Ok(Caller::Installation) } else { Err("Bad credentials") }
    }

    fn app(&self, jwt: &str, now: Timestamp) -> Result<(), &'static str> {
        const UNDECODABLE: &str = "A JSON web token could not be decoded";
        let (signed, signature) = jwt.rsplit_once('.').ok_or(UNDECODABLE)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| UNDECODABLE)?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.public_key)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| UNDECODABLE)?;
        let (_, claims) = signed.split_once('.').ok_or(UNDECODABLE)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| UNDECODABLE)?;
        let claims: Value = serde_json::from_slice(&claims).map_err(|_| UNDECODABLE)?;
        let number = |name: &str| claims.get(name).and_then(Value::as_i64);
        let issuer =
            claims.get("iss").map(|issuer| issuer.as_str().map_or(issuer.to_string(), str::to_owned));
        if issuer != Some(APP_ID.to_string()) {
            return Err("'Issuer' claim ('iss') must be the App's id");
        }
        let now = now.as_second();
        if number("iat").is_none_or(|issued| issued > now + CLOCK_SKEW_SECONDS) {
            return Err(
                "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
            );
        }
        match number("exp") {
            Some(expires) if expires > now + MAX_JWT_SECONDS => {
                Err("'Expiration time' claim ('exp') is too far in the future")
            }
            Some(expires) if expires > now => Ok(()),
            Some(_) | None => {
                Err("'Expiration time' claim ('exp') must be a numeric value representing the future time")
            }
        }
    }

    /// A new token, and until when it is good.
    pub(super) fn mint(&mut self, now: Timestamp) -> (String, Timestamp) {
        self.minted += 1;
        let token = format!("fake-installation-token-{}-{}", INSTALLATION_ID, self.minted);
        let expires = now.saturating_add(TOKEN_LIFETIME).unwrap_or(now);
        self.tokens.retain(|_, expires| *expires > now);
        self.tokens.insert(token.clone(), expires);
        (token, expires)
    }

    pub(super) fn revoke(&mut self) {
        self.tokens.clear();
    }

    /// Counts a request; `false` when none is left.
    pub(super) fn spend(&mut self, caller: &Caller, now: Timestamp) -> bool {
        let limit = self.limit;
        let meter = self.meter(caller, now);
        if meter.used >= limit {
            return false;
        }
        meter.used += 1;
        true
    }

    /// An answer that says nothing new costs nothing.
    pub(super) fn give_back(&mut self, caller: &Caller, now: Timestamp) {
        let meter = self.meter(caller, now);
        meter.used = meter.used.saturating_sub(1);
    }

    /// What every answer says about the limit.
    pub(super) fn headers(&mut self, caller: &Caller, now: Timestamp) -> [(&'static str, HeaderValue); 5] {
        let limit = self.limit;
        let Meter { used, reset } = *self.meter(caller, now);
        [
            ("x-ratelimit-limit", limit.into()),
            ("x-ratelimit-remaining", limit.saturating_sub(used).into()),
            ("x-ratelimit-used", used.into()),
            ("x-ratelimit-reset", reset.as_second().into()),
            ("x-ratelimit-resource", HeaderValue::from_static("core")),
        ]
    }

    fn meter(&mut self, caller: &Caller, now: Timestamp) -> &mut Meter {
        let whose = match caller {
            Caller::App => "app".to_owned(),
            Caller::Installation => format!("installation {INSTALLATION_ID}"),
            Caller::User(login) => format!("user {login}"),
        };
        let fresh = Meter { used: 0, reset: now.saturating_add(WINDOW).unwrap_or(now) };
        let meter = self.meters.entry(whose).or_insert(fresh);
        if meter.reset <= now {
            *meter = fresh;
        }
        meter
    }
}
