//! Who asks, and may they?
//!
//! Requests from within the process are the server's own and are not asked. Those that come over a socket pass three
//! doors, each with the answer Kubernetes gives there:
//!
//! ```text
//! token ─▶ authenticate ─▶ impersonate ─▶ authorize ─▶ the verbs, which refuse escalation
//!              401             403           403                      403
//! ```

mod defaults;
mod escalation;
mod identity;
mod impersonate;
mod policy;
mod request;
mod reviews;
mod rules;
mod token;
mod token_request;

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;

pub(crate) use defaults::objects as default_objects;
pub(crate) use escalation::refuse_escalation;
pub(crate) use identity::Identity;
pub(crate) use policy::Policy;
#[cfg(test)]
pub(crate) use request::attributes;
pub(crate) use reviews::{Review, answer as review};
pub(crate) use rules::{Attributes, combined};
pub use token::{SigningKey, SigningKeyError};
pub(crate) use token_request::answer as request_token;

use crate::status::Status;
use crate::verbs::{Call, Core};
use token::{ISSUER, TokenError};

/// Who may come in over a socket.
pub struct Access {
    /// The token of the owner, who may do everything. An empty one lets nobody in.
    pub admin_token: String,
    /// What ServiceAccount tokens are signed with. Another key makes all earlier tokens void.
    pub signing_key: SigningKey,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither token nor key belongs into a log.
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

/// Lets a request in as somebody, or says why not.
///
/// # Errors
/// 401 for a token that is not known, 403 for what the caller may not do, 400 for a request that cannot be read.
pub(crate) fn admit(core: &Core, request: &Parts) -> Result<Arc<Identity>, Status> {
    let shown = authenticate(core, &request.headers)?;
    let who = impersonate::apply(core, shown, &request.headers)?;
    if !who.is_master() {
        authorize(core, &who, &request::attributes(request)?)?;
    }
    Ok(who)
}

/// Asks for one more permission than the request's own: an update that creates must be allowed to create.
pub(crate) fn authorize_also(core: &Core, call: &Call<'_>, verb: &str) -> Result<(), Status> {
    let ids = &call.resource.ids;
    let asked = Attributes::Resource {
        verb: verb.to_owned(),
        group: ids.group.to_string(),
        resource: ids.plural.to_string(),
        subresource: String::new(),
        namespace: call.namespace.to_owned(),
        name: call.name.to_owned(),
    };
    authorize(core, call.who, &asked)
}

/// Who says what becomes of a request to be signed must be trusted with that by name: to approve for this signer, or for
/// all of its domain.
pub(crate) fn authorize_approval(core: &Core, call: &Call<'_>, signer: &str) -> Result<(), Status> {
    let asked = |name: String| Attributes::Resource {
        verb: "approve".to_owned(),
        group: call.resource.ids.group.to_string(),
        resource: "signers".to_owned(),
        subresource: String::new(),
        namespace: String::new(),
        name,
    };
    let domain = signer.split('/').next().unwrap_or_default();
    authorize(core, call.who, &asked(signer.to_owned()))
        .or_else(|refused| authorize(core, call.who, &asked(format!("{domain}/*"))).map_err(|_| refused))
}

fn authorize(core: &Core, who: &Identity, asked: &Attributes) -> Result<(), Status> {
    if who.is_master() || core.policy().allows(who, asked).is_some() {
        return Ok(());
    }
    let why = asked.refused(&who.name);
    Err(match asked {
        Attributes::Url { .. } => Status::denied("", "", "", &why),
        Attributes::Resource { group, resource, name, .. } => Status::denied(group, resource, name, &why),
    })
}

/// Who the `Authorization` header shows. A scheme that is not `Bearer`, or nothing after it, shows nobody.
fn authenticate(core: &Core, headers: &HeaderMap) -> Result<Arc<Identity>, Status> {
    let Some(shown) = headers.get(AUTHORIZATION) else { return Ok(Identity::anonymous()) };
    let shown = shown.to_str().map_err(|_| Status::unauthorized())?;
    let mut words = shown.trim().split(' ');
    let bearer = words.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("Bearer"));
    match words.next() {
        Some(token) if bearer && !token.is_empty() => {
            let known = identify(core, token, &[ISSUER.to_owned()]);
            known.map(|(who, _)| who).map_err(|error| {
                tracing::debug!(%error, "a token was refused");
                Status::unauthorized()
            })
        }
        Some(_) | None => Ok(Identity::anonymous()),
    }
}

/// Who a token speaks for, if it is meant for one of the wanted audiences, and for which of them.
fn identify(core: &Core, token: &str, wanted: &[String]) -> Result<(Arc<Identity>, Vec<String>), TokenError> {
    let Some(access) = core.access() else { return Err(TokenError::Unknown) };
    if same(token.as_bytes(), access.admin_token.as_bytes()) {
        // Made for this server and for nobody else.
        return match wanted.iter().find(|one| *one == ISSUER) {
            Some(own) => Ok((Identity::admin(), vec![own.clone()])),
            None => Err(TokenError::Audience { has: vec![ISSUER.to_owned()], wanted: wanted.to_vec() }),
        };
    }
    let (identity, audiences) = token::identify(core, &access.signing_key, token, wanted)?;
    Ok((Arc::new(identity), audiences))
}

/// Compares in a time that depends on the lengths alone.
fn same(shown: &[u8], known: &[u8]) -> bool {
    let difference = shown.iter().zip(known).fold(0, |seen, (a, b)| seen | (a ^ b));
    shown.len() == known.len() && difference == 0 && !known.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SeededEnv, Server};
    use bytes::Bytes;
    use http::Request;
    use serde_json::Value;

    /// A key that signed nothing before.
    pub(super) fn key() -> SigningKey {
        SigningKey::from_pem(&rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap()
    }

    /// A server with default roles, at the start of 2026.
    pub(super) fn guarded() -> Server {
        let env = SeededEnv::new(1, "2026-01-01T00:00:00Z".parse().unwrap());
        let access = Access { admin_token: "not-a-real-token".into(), signing_key: key() };
        Server::in_memory(Arc::new(env)).with_access(access)
    }

    /// One POST as the server itself.
    pub(super) fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::post(path).body(Bytes::from(body.to_string())).unwrap();
        let response = server.call(request);
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
    }

    fn admitted(server: &Server, path: &str, authorization: Option<&[u8]>) -> Result<String, u16> {
        let mut request = Request::get(path);
        if let Some(value) = authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        admit(server.core(), &parts).map(|who| who.name.clone()).map_err(|status| status.code)
    }

    #[test]
    fn the_owners_token_opens_everything_and_a_wrong_one_nothing() {
        let server = guarded();
        for good in ["Bearer not-a-real-token", "bearer not-a-real-token"] {
            let who = admitted(&server, "/api/v1/secrets", Some(good.as_bytes()));
            assert_eq!(who.as_deref(), Ok("pawl:admin"));
        }
        let huge = format!("Bearer {}", "x".repeat(1 << 20));
        let wrong: [&[u8]; 5] = [
            b"Bearer not-a-real-tokem",
            b"Bearer not-a-real-toke",
            b"Bearer x y",
            b"Bearer \xff",
            huge.as_bytes(),
        ];
        for wrong in wrong {
            assert_eq!(admitted(&server, "/healthz", Some(wrong)), Err(401));
        }
        assert!(!same(b"", b""), "a server without a token lets nobody in");
    }

    #[test]
    fn whoever_shows_nothing_sees_that_the_server_is_alive_and_nothing_else() {
        let server = guarded();
        for nothing in [None, Some(&b""[..]), Some(b"Bearer"), Some(b"Bearer "), Some(b"Basic bm90OnJlYWw=")]
        {
            assert_eq!(admitted(&server, "/healthz", nothing).as_deref(), Ok("system:anonymous"));
            assert_eq!(admitted(&server, "/version", nothing).as_deref(), Ok("system:anonymous"));
            assert_eq!(admitted(&server, "/api/v1/namespaces", nothing), Err(403));
            assert_eq!(admitted(&server, "/apis", nothing), Err(403));
        }
    }

    #[test]
    fn a_refusal_is_worded_as_kubernetes_words_it() {
        let server = guarded();
        let refused = |path: &str| {
            let (parts, ()) = Request::get(path).body(()).unwrap().into_parts();
            admit(server.core(), &parts).unwrap_err()
        };
        assert_eq!(
            refused("/api/v1/namespaces/ns/configmaps").message,
            "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \
             \"\" in the namespace \"ns\""
        );
        assert_eq!(
            refused("/apis/apps/v1/namespaces/ns/deployments/d/scale").message,
            "deployments.apps \"d\" is forbidden: User \"system:anonymous\" cannot get resource \
             \"deployments/scale\" in API group \"apps\" in the namespace \"ns\""
        );
        assert_eq!(
            refused("/metrics").message,
            "forbidden: User \"system:anonymous\" cannot get path \"/metrics\""
        );
    }

    #[test]
    fn a_server_without_access_lets_no_token_in() {
        let env = SeededEnv::new(1, "2026-01-01T00:00:00Z".parse().unwrap());
        let server = Server::in_memory(Arc::new(env));
        assert_eq!(admitted(&server, "/healthz", Some(b"Bearer not-a-real-token")), Err(401));
        assert_eq!(admitted(&server, "/healthz", None), Err(403));
    }

    #[test]
    fn secrets_are_not_shown_in_debug_output() {
        let server = guarded();
        let shown = format!("{:?} {:?}", server.core().access(), server);
        assert!(!shown.contains("not-a-real-token"), "{shown}");
    }
}
