//! How does a ServiceAccount get a token? `POST …/serviceaccounts/{name}/token`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::identity::account_name;
use super::token::{Claims, ISSUER, Private, Reference};
use crate::env::to_second;
use crate::resources::Resource;
use crate::status::Status;
use crate::store::{Object, key};
use crate::validation::FieldError;
use crate::verbs::{Call, Core};

/// How long a token lives when nobody says: Kubernetes' number.
const DEFAULT_SECONDS: i64 = 3600;
/// A shorter life would end before its holder has used it: Kubernetes' bound.
const MIN_SECONDS: i64 = 600;
/// A longer one has no end: Kubernetes' bound.
const MAX_SECONDS: i64 = 1 << 32;
/// As many audiences as a token of 16 KiB has room for.
const MAX_AUDIENCES: usize = 64;

/// A token for the ServiceAccount that is called, as the request (of kind `kind`) wants it.
pub(crate) fn answer(
    core: &Core,
    call: &Call<'_>,
    kind: &Resource,
    mut request: Value,
) -> Result<Value, Status> {
    let account = core.store.head(&call.resource.table, &key(call.namespace, call.name));
    let account = account.ok_or_else(|| Status::not_found(call.resource, call.name))?;
    let Some(access) = core.access() else {
        return Err(Status::internal("this server has no key to sign tokens with"));
    };
    let spec = request.get("spec").cloned().unwrap_or_default();
    let (audiences, seconds) = wanted(kind, call.name, &spec)?;
    let mut private = Private {
        namespace: call.namespace.to_owned(),
        serviceaccount: reference(&account),
        pod: None,
        secret: None,
    };
    bind(core, call, &spec, &mut private)?;
    let now = core.env.now().as_second();
    let end = now.saturating_add(seconds);
    let claims = Claims {
        iss: ISSUER.to_owned(),
        sub: account_name(call.namespace, call.name),
        aud: audiences.clone(),
        exp: end,
        iat: now,
        nbf: now,
        jti: core.env.uid(&format!("tokens/{}/{}", call.namespace, call.name)),
        kubernetes: private,
    };
    let token = access.signing_key.sign(&claims);
    let token = token.ok_or_else(|| Status::internal("the machine has no randomness to sign with"))?;
    if let Some(body) = request.as_object_mut() {
        let mut spec = spec.as_object().cloned().unwrap_or_default();
        spec.insert("audiences".into(), json!(audiences));
        spec.insert("expirationSeconds".into(), seconds.into());
        body.insert("spec".into(), Value::Object(spec));
        let end = Timestamp::from_second(end).unwrap_or(Timestamp::MAX);
        body.insert("status".into(), json!({"token": token, "expirationTimestamp": to_second(end)}));
        let metadata = body.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("name".into(), call.name.into());
            metadata.insert("namespace".into(), call.namespace.into());
            metadata.insert("creationTimestamp".into(), to_second(core.env.now()).into());
        }
    }
    Ok(request)
}

/// For whom, and for how long.
fn wanted(kind: &Resource, name: &str, spec: &Value) -> Result<(Vec<String>, i64), Status> {
    let list = spec.get("audiences").and_then(Value::as_array).into_iter().flatten();
    let mut audiences: Vec<String> = list.filter_map(Value::as_str).map(str::to_owned).collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let sent = spec.get("expirationSeconds").filter(|seconds| !seconds.is_null());
    let seconds = sent.and_then(Value::as_i64).unwrap_or(DEFAULT_SECONDS);
    let field = "spec.expirationSeconds";
    let mut errors = Vec::new();
    if seconds < MIN_SECONDS {
        let why = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(field, &json!(seconds), why));
    } else if seconds > MAX_SECONDS {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(field, &json!(seconds), why));
    }
    if audiences.len() > MAX_AUDIENCES {
        errors.push(FieldError::too_many("spec.audiences", audiences.len(), MAX_AUDIENCES as u64));
    }
    if errors.is_empty() {
        return Ok((audiences, seconds));
    }
    Err(Status::invalid(kind, name, errors))
}

/// Binds the token to the pod or secret it is for: it dies with it.
fn bind(core: &Core, call: &Call<'_>, spec: &Value, private: &mut Private) -> Result<(), Status> {
    let Some(wanted) = spec.get("boundObjectRef").filter(|wanted| !wanted.is_null()) else { return Ok(()) };
    let text = |key: &str| wanted.get(key).and_then(Value::as_str).unwrap_or_default();
    let plural = match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => "pods",
        ("v1", "Secret") => "secrets",
        (version, kind) => {
            let message = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(Status::bad_request(message));
        }
    };
    let registry = core.registry();
    let resource = registry.find("", "v1", plural).ok_or_else(Status::no_such_resource)?;
    let name = text("name");
    let bound = core.store.head(&resource.table, &key(call.namespace, name));
    let bound = bound.ok_or_else(|| Status::not_found(resource, name))?;
    let uid = text("uid");
    if !uid.is_empty() && *uid != *bound.meta.uid {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object \
                           might have been deleted and then recreated"
        );
        return Err(Status::conflict(resource, name, &why));
    }
    if plural == "secrets" {
        private.secret = Some(reference(&bound));
        return Ok(());
    }
    let pod = bound.value();
    let account = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
    let account = if account.is_empty() { "default" } else { account };
    if account != call.name {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            call.name
        )));
    }
    private.pod = Some(reference(&bound));
    Ok(())
}

fn reference(object: &Arc<Object>) -> Reference {
    Reference { name: object.name().to_owned(), uid: object.meta.uid.to_string() }
}

#[cfg(test)]
mod tests {
    use crate::Server;
    use crate::access::tests::{guarded, post};
    use serde_json::{Value, json};

    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

    fn with_bot() -> Server {
        let server = guarded();
        assert_eq!(post(&server, ACCOUNTS, &json!({"metadata": {"name": "bot"}})).0, 201);
        server
    }

    fn request(server: &Server, spec: &Value) -> (u16, Value) {
        post(server, &format!("{ACCOUNTS}/bot/token"), &json!({"spec": spec}))
    }

    #[test]
    fn a_token_lives_as_long_as_asked_within_bounds() {
        let server = with_bot();
        for (asked, want) in [
            (json!(null), Ok(3600)),
            (json!(600), Ok(600)),
            (json!(1_i64 << 32), Ok(1_i64 << 32)),
            (json!(599), Err(422)),
            (json!(-1), Err(422)),
            (json!((1_i64 << 32) + 1), Err(422)),
            (json!(i64::MAX), Err(422)),
            (json!("long"), Err(400)),
        ] {
            let (code, made) = request(&server, &json!({"expirationSeconds": asked}));
            match want {
                Ok(seconds) => {
                    assert_eq!((code, &made["spec"]["expirationSeconds"]), (201, &json!(seconds)), "{made}");
                    assert!(made["status"]["token"].is_string());
                }
                Err(want) => assert_eq!(code, want, "{asked}: {made}"),
            }
        }
        let (_, made) = request(&server, &json!({}));
        assert_eq!(made["status"]["expirationTimestamp"], "2026-01-01T01:00:00Z");
        let absent = post(&server, &format!("{ACCOUNTS}/absent/token"), &json!({"spec": {}}));
        assert_eq!(absent.0, 404);
    }

    #[test]
    fn a_bound_token_dies_with_what_it_is_bound_to() {
        let server = with_bot();
        let secret = json!({"metadata": {"name": "s"}});
        assert_eq!(post(&server, "/api/v1/namespaces/default/secrets", &secret).0, 201);
        let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}});
        let (code, made) = request(&server, &bound);
        assert_eq!(code, 201, "{made}");
        let review = || {
            let spec = json!({"spec": {"token": made["status"]["token"]}});
            post(&server, "/apis/authentication.k8s.io/v1/tokenreviews", &spec).1["status"]["authenticated"]
                .clone()
        };
        assert_eq!(review(), true);
        let request = http::Request::delete("/api/v1/namespaces/default/secrets/s");
        assert_eq!(server.call(request.body(bytes::Bytes::new()).unwrap()).status(), 200);
        assert_eq!(review(), Value::Null);
    }

    #[test]
    fn a_token_is_bound_to_what_belongs_to_the_account_alone() {
        let server = with_bot();
        let pod = |name: &str, account: &str| {
            let spec = json!({"serviceAccountName": account, "containers": [{"name": "c", "image": "x"}]});
            let pod = json!({"metadata": {"name": name}, "spec": spec});
            assert_eq!(post(&server, "/api/v1/namespaces/default/pods", &pod).0, 201);
        };
        pod("own", "bot");
        pod("foreign", "other");
        let to = |kind: &str, name: &str, uid: &str| {
            let bound = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
            request(&server, &json!({"boundObjectRef": bound})).0
        };
        assert_eq!(to("Pod", "own", ""), 201);
        assert_eq!(to("Pod", "own", "another"), 409);
        assert_eq!(to("Pod", "foreign", ""), 400);
        assert_eq!(to("Pod", "absent", ""), 404);
        assert_eq!(to("ConfigMap", "own", ""), 400);
    }
}
