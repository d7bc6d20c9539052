//! Is this a token of ours, and for whom?
//!
//! ServiceAccount tokens are JSON Web Tokens with the claims Kubernetes gives them, signed with ECDSA on P-256
//! (`ES256`): what every other reader of such tokens understands. The header is not asked which algorithm to use.
//!
//! ```text
//! text ─▶ signature ─▶ issuer, times, audience ─▶ the account, and what it is bound to, still there ─▶ identity
//! ```

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::identity::{AUTHENTICATED, Identity, account_groups, account_name};
use crate::store::{Object, key};
use crate::verbs::Core;

/// Who signs, and the audience of tokens for this server: Kubernetes' default for both.
pub(super) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The longest token read. Ours have about 1 KiB; HTTP servers take headers of 8 KiB to 64 KiB.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// How far the clock may have gone back since a token was made, and how long a token outlives the time by which its
/// account was to be gone: Kubernetes' leeway for both.
const LEEWAY_SECONDS: i64 = 60;

/// What ServiceAccount tokens are signed with: an ECDSA key on P-256. Whoever has it can be anyone.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

/// Why a key is no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// No PEM, or no private key in it.
    #[error("read the signing key: not a private key in PEM (PKCS #8)")]
    NotPem,
    /// A key of another algorithm, or a broken one.
    #[error("read the signing key: not an ECDSA key on the curve P-256")]
    NotP256,
}

/// What a token claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    pub(super) iss: String,
    pub(super) sub: String,
    pub(super) aud: Vec<String>,
    pub(super) exp: i64,
    pub(super) iat: i64,
    pub(super) nbf: i64,
    pub(super) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Private,
}

/// What Kubernetes adds to the registered claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Private {
    pub(super) namespace: String,
    pub(super) serviceaccount: Reference,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) secret: Option<Reference>,
}

/// One object, and no other of its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) uid: String,
}

/// Why a token is not taken. Callers are told no more than that; reviewers may know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("the token is none of this server's")]
    Unknown,
    #[error("the token's signature is not of this server's key")]
    Forged,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    Early,
    #[error("token audiences {has:?} is invalid for the target audiences {wanted:?}")]
    Audience { has: Vec<String>, wanted: Vec<String> },
    #[error("{what} {name:?} of the token is gone")]
    Gone { what: &'static str, name: String },
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

impl SigningKey {
    /// The key in a PEM text (PKCS #8), as it is kept in a file.
    ///
    /// # Errors
    /// When it is none that this server can sign with.
    pub fn from_pem(pem: &str) -> Result<SigningKey, SigningKeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| SigningKeyError::NotPem)?;
        let random = SystemRandom::new();
        let key = der.secret_pkcs8_der();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &random);
        Ok(SigningKey { pair: pair.map_err(|_| SigningKeyError::NotP256)?, random })
    }

    /// A token with these claims; `None` if the machine has no randomness to give.
    pub(super) fn sign(&self, claims: &Claims) -> Option<String> {
        let claims = serde_json::to_vec(claims).ok()?;
        let message =
            format!("{}.{}", BASE64.encode(r#"{"alg":"ES256","typ":"JWT"}"#), BASE64.encode(claims));
        let signature = self.pair.sign(&self.random, message.as_bytes()).ok()?;
        Some(format!("{message}.{}", BASE64.encode(signature)))
    }

    /// The claims of a token that this key signed.
    fn open(&self, token: &str) -> Result<Claims, TokenError> {
        let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Unknown)?;
        let (header, claims) = message.split_once('.').ok_or(TokenError::Unknown)?;
        let header: Header = decode(header).ok_or(TokenError::Unknown)?;
        if header.alg != "ES256" {
            return Err(TokenError::Unknown);
        }
        let signature = BASE64.decode(signature).map_err(|_| TokenError::Unknown)?;
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        public.verify(message.as_bytes(), &signature).map_err(|_| TokenError::Forged)?;
        decode(claims).ok_or(TokenError::Unknown)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key does not belong into a log.
        f.debug_struct("SigningKey").finish_non_exhaustive()
    }
}

/// Who a token speaks for, and which of the wanted audiences it is for.
pub(super) fn identify(
    core: &Core,
    signing_key: &SigningKey,
    token: &str,
    wanted: &[String],
) -> Result<(Identity, Vec<String>), TokenError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenError::Unknown);
    }
    let claims = signing_key.open(token)?;
    if claims.iss != ISSUER {
        return Err(TokenError::Unknown);
    }
    let now = core.env.now().as_second();
    if now >= claims.exp {
        return Err(TokenError::Expired);
    }
    if now.saturating_add(LEEWAY_SECONDS) < claims.nbf {
        return Err(TokenError::Early);
    }
    let audiences: Vec<String> = wanted.iter().filter(|one| claims.aud.contains(one)).cloned().collect();
    if audiences.is_empty() {
        return Err(TokenError::Audience { has: claims.aud, wanted: wanted.to_vec() });
    }
    let private = &claims.kubernetes;
    still_there(core, "serviceaccounts", &private.namespace, &private.serviceaccount)?;
    for (table, bound) in [("pods", &private.pod), ("secrets", &private.secret)] {
        if let Some(bound) = bound {
            still_there(core, table, &private.namespace, bound)?;
        }
    }
    Ok((identity(claims), audiences))
}

fn identity(claims: Claims) -> Identity {
    let Private { namespace, serviceaccount, pod, .. } = claims.kubernetes;
    let mut groups = account_groups(&namespace);
    groups.push(AUTHENTICATED.to_owned());
    let mut identity = Identity {
        name: account_name(&namespace, &serviceaccount.name),
        uid: serviceaccount.uid,
        groups,
        ..Identity::default()
    };
    let mut extra = |key: &str, value: String| {
        identity.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
    };
    extra("credential-id", format!("JTI={}", claims.jti));
    if let Some(pod) = pod {
        extra("pod-name", pod.name);
        extra("pod-uid", pod.uid);
    }
    identity
}

fn still_there(
    core: &Core,
    what: &'static str,
    namespace: &str,
    named: &Reference,
) -> Result<(), TokenError> {
    let found = core.store.get(what, &key(namespace, &named.name));
    match found {
        Some(object) if *object.meta.uid == *named.uid && !overdue(&object, core.env.now()) => Ok(()),
        Some(_) | None => Err(TokenError::Gone { what, name: named.name.clone() }),
    }
}

/// Whether an object should have been gone for a while, and is kept by a finalizer alone.
fn overdue(object: &Object, now: Timestamp) -> bool {
    if !object.meta.deleting {
        return false;
    }
    let value = object.value();
    let by = value.pointer("/metadata/deletionTimestamp").and_then(Value::as_str);
    let by = by.and_then(|text| text.parse::<Timestamp>().ok());
    by.is_none_or(|by| by.as_second().saturating_add(LEEWAY_SECONDS) < now.as_second())
}

fn decode<T: for<'a> Deserialize<'a>>(part: &str) -> Option<T> {
    serde_json::from_slice(&BASE64.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededEnv;
    use crate::access::tests::{guarded, key as test_key, post};
    use serde_json::json;
    use std::sync::Arc;

    fn claims(uid: &str) -> Claims {
        Claims {
            iss: ISSUER.into(),
            sub: account_name("default", "bot"),
            aud: vec![ISSUER.into()],
            exp: 1_767_225_600 + 3600,
            iat: 1_767_225_600,
            nbf: 1_767_225_600,
            jti: "1".into(),
            kubernetes: Private {
                namespace: "default".into(),
                serviceaccount: Reference { name: "bot".into(), uid: uid.into() },
                pod: None,
                secret: None,
            },
        }
    }

    fn verdict(core: &Core, signing_key: &SigningKey, token: &str) -> Result<String, TokenError> {
        identify(core, signing_key, token, &[ISSUER.to_owned()]).map(|(identity, _)| identity.name)
    }

    /// A server with the account `bot`, and its uid.
    fn with_bot() -> (crate::Server, String) {
        let server = guarded();
        let bot = json!({"metadata": {"name": "bot"}});
        let (code, made) = post(&server, "/api/v1/namespaces/default/serviceaccounts", &bot);
        assert_eq!(code, 201, "{made}");
        (server, made["metadata"]["uid"].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_token_of_this_key_for_a_living_account_is_good() {
        let (server, uid) = with_bot();
        let signing_key = test_key();
        let token = signing_key.sign(&claims(&uid)).unwrap();
        assert_eq!(
            verdict(server.core(), &signing_key, &token).unwrap(),
            "system:serviceaccount:default:bot"
        );
    }

    #[test]
    fn claims_out_of_their_time_place_or_account_are_refused() {
        let (server, uid) = with_bot();
        let signing_key = test_key();
        let check = |change: &dyn Fn(&mut Claims)| {
            let mut changed = claims(&uid);
            change(&mut changed);
            verdict(server.core(), &signing_key, &signing_key.sign(&changed).unwrap()).unwrap_err()
        };
        assert_eq!(check(&|c| c.exp = c.iat), TokenError::Expired, "good until then, not then");
        assert_eq!(check(&|c| c.exp = i64::MIN), TokenError::Expired);
        assert_eq!(check(&|c| c.nbf += 3600), TokenError::Early);
        assert_eq!(check(&|c| c.iss = "https://example.com".into()), TokenError::Unknown);
        assert!(matches!(check(&|c| c.aud = vec!["vault".into()]), TokenError::Audience { .. }));
        assert!(matches!(check(&|c| c.aud.clear()), TokenError::Audience { .. }));
        let gone = |error| matches!(error, TokenError::Gone { .. });
        assert!(gone(check(&|c| c.kubernetes.serviceaccount.uid = "another".into())));
        assert!(gone(check(&|c| c.kubernetes.serviceaccount.name = "absent".into())));
        let pod = Reference { name: "p".into(), uid: "u".into() };
        assert!(gone(check(&|c| c.kubernetes.pod = Some(pod.clone()))));
        assert!(gone(check(&|c| c.kubernetes.secret = Some(pod.clone()))));
    }

    #[test]
    fn a_token_does_not_outlive_an_account_that_only_a_finalizer_keeps() {
        let env = Arc::new(SeededEnv::new(1, "2026-01-01T00:00:00Z".parse().unwrap()));
        let server = crate::Server::in_memory(env.clone());
        let path = "/api/v1/namespaces/default/serviceaccounts";
        let kept = json!({"metadata": {"name": "bot", "finalizers": ["example.com/f"]}});
        let uid = post(&server, path, &kept).1["metadata"]["uid"].as_str().unwrap().to_owned();
        let signing_key = test_key();
        let token = signing_key.sign(&claims(&uid)).unwrap();
        let delete = http::Request::delete(format!("{path}/bot")).body(bytes::Bytes::new()).unwrap();
        assert_eq!(server.call(delete).status(), 200);
        assert!(verdict(server.core(), &signing_key, &token).is_ok(), "whoever cleans up may go on");
        env.set_now("2026-01-01T00:01:01Z".parse().unwrap());
        assert!(matches!(verdict(server.core(), &signing_key, &token), Err(TokenError::Gone { .. })));
    }

    #[test]
    fn forged_and_broken_tokens_are_refused_without_a_panic() {
        let (server, uid) = with_bot();
        let signing_key = test_key();
        let token = signing_key.sign(&claims(&uid)).unwrap();
        let refused =
            |token: &str| assert!(verdict(server.core(), &signing_key, token).is_err(), "{token:?}");
        refused(&test_key().sign(&claims(&uid)).unwrap());
        for length in 0..token.len() {
            refused(&token[..length]);
        }
        let parts: Vec<&str> = token.split('.').collect();
        let [header, body, signature] = parts[..] else { panic!("three parts") };
        let none = BASE64.encode(r#"{"alg":"none"}"#);
        for forged in [
            format!("{none}.{body}."),
            format!("{none}.{body}.{signature}"),
            format!("{}.{body}.{signature}", BASE64.encode(r#"{"alg":"HS256"}"#)),
            format!("{header}.{body}."),
            format!("{header}.{body}.{signature}.{signature}"),
            format!("{header}.{}.{signature}", BASE64.encode("{}")),
            format!("{header}.{body}.{}", BASE64.encode([0; 64])),
            "..".to_owned(),
            "x".repeat(1 << 20),
            format!("{}.{}.{}", "é", "\u{0}", "\u{202e}"),
        ] {
            refused(&forged);
        }
        let mut stolen: Value = serde_json::from_slice(&BASE64.decode(body).unwrap()).unwrap();
        stolen["kubernetes.io"]["serviceaccount"]["name"] = "admin".into();
        refused(&format!("{header}.{}.{signature}", BASE64.encode(stolen.to_string())));
    }

    #[test]
    fn a_key_is_read_from_pem_and_never_shown() {
        assert_eq!(SigningKey::from_pem("not a key").unwrap_err(), SigningKeyError::NotPem);
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
        assert_eq!(SigningKey::from_pem(&other).unwrap_err(), SigningKeyError::NotP256);
        assert_eq!(format!("{:?}", test_key()), "SigningKey { .. }");
    }
}
