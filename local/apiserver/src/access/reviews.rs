//! What are those told who ask about access instead of using it?

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::identity::Identity;
use super::rules::{Attributes, Rule};
use super::token::ISSUER;
use crate::resources::Resource;
use crate::status::Status;
use crate::validation::FieldError;
use crate::verbs::{Call, Core};

/// A question in the form of an object: posted, answered, never kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Review {
    /// May somebody do something?
    SubjectAccess,
    /// The same, asked in a namespace about that namespace.
    LocalSubjectAccess,
    /// May I do something?
    SelfSubjectAccess,
    /// What may I do?
    SelfSubjectRules,
    /// Whose token is this?
    Token,
    /// Who am I?
    SelfSubject,
}

/// The object with its status.
pub(crate) fn answer(
    core: &Core,
    call: &Call<'_>,
    review: Review,
    mut object: Value,
) -> Result<Value, Status> {
    let spec = object.get("spec").cloned().unwrap_or_default();
    let status = match review {
        Review::SubjectAccess | Review::LocalSubjectAccess => {
            let asked = asked(call.resource, &spec, true)?;
            if review == Review::LocalSubjectAccess {
                same_namespace(call, &asked, &spec)?;
            }
            access(core, &subject(&spec), &asked)
        }
        Review::SelfSubjectAccess => access(core, call.who, &asked(call.resource, &spec, false)?),
        Review::SelfSubjectRules => rules(core, call.who, text(&spec, "namespace"))?,
        Review::Token => token(core, call.resource, &spec)?,
        Review::SelfSubject => json!({"userInfo": call.who}),
    };
    if let Some(body) = object.as_object_mut() {
        body.insert("status".into(), status);
    }
    Ok(object)
}

fn access(core: &Core, who: &Identity, asked: &Attributes) -> Value {
    let why = core.policy().allows(who, asked);
    let mut status = Map::new();
    status.insert("allowed".into(), why.is_some().into());
    if let Some(why) = why.filter(|why| !why.is_empty()) {
        status.insert("reason".into(), why.into());
    }
    Value::Object(status)
}

/// What a review asks about.
fn asked(resource: &Resource, spec: &Value, names_somebody: bool) -> Result<Attributes, Status> {
    let part = |key: &str| spec.get(key).filter(|part| !part.is_null());
    let mut errors = Vec::new();
    let attributes = match (part("resourceAttributes"), part("nonResourceAttributes")) {
        (Some(wanted), None) => Some(Attributes::Resource {
            verb: text(wanted, "verb").to_owned(),
            group: text(wanted, "group").to_owned(),
            resource: text(wanted, "resource").to_owned(),
            subresource: text(wanted, "subresource").to_owned(),
            namespace: text(wanted, "namespace").to_owned(),
            name: text(wanted, "name").to_owned(),
        }),
        (None, Some(wanted)) => Some(Attributes::Url {
            verb: text(wanted, "verb").to_owned(),
            path: text(wanted, "path").to_owned(),
        }),
        (Some(_), Some(wanted)) => {
            let why = "cannot be specified in combination with resourceAttributes";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", wanted, why));
            None
        }
        (None, None) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, why));
            None
        }
    };
    let nobody = text(spec, "user").is_empty() && texts(spec.get("groups")).is_empty();
    if names_somebody && nobody {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", &json!(""), why));
    }
    match attributes {
        Some(attributes) if errors.is_empty() => Ok(attributes),
        Some(_) | None => Err(Status::invalid(resource, "", errors)),
    }
}

fn same_namespace(call: &Call<'_>, asked: &Attributes, spec: &Value) -> Result<(), Status> {
    let mut errors = Vec::new();
    match asked {
        Attributes::Resource { namespace, .. } if namespace == call.namespace => {}
        Attributes::Resource { namespace, .. } => {
            let why = "must match metadata.namespace";
            errors.push(FieldError::invalid("spec.resourceAttributes.namespace", &json!(namespace), why));
        }
        Attributes::Url { .. } => {
            let sent = spec.get("nonResourceAttributes").unwrap_or(&Value::Null);
            let why = "disallowed on this kind of request";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", sent, why));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(call.resource, "", errors)) }
}

fn subject(spec: &Value) -> Identity {
    let extra = spec.get("extra").and_then(Value::as_object).into_iter().flatten();
    let extra: BTreeMap<String, Vec<String>> =
        extra.map(|(key, values)| (key.clone(), texts(Some(values)))).collect();
    Identity {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: texts(spec.get("groups")),
        extra,
    }
}

fn rules(core: &Core, who: &Identity, namespace: &str) -> Result<Value, Status> {
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let policy = core.policy();
    let all = || vec!["*".to_owned()];
    let unbounded = who.is_master().then(|| Rule {
        verbs: all(),
        api_groups: all(),
        resources: all(),
        non_resource_urls: all(),
        ..Rule::default()
    });
    let granted = policy.grants(who, namespace).flat_map(|grant| grant.rules.iter());
    let (mut resources, mut urls) = (Vec::new(), Vec::new());
    for rule in unbounded.iter().chain(granted) {
        if !rule.resources.is_empty() {
            resources.push(json!(Rule { non_resource_urls: Vec::new(), ..rule.clone() }));
        }
        if !rule.non_resource_urls.is_empty() {
            urls.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    Ok(json!({"resourceRules": resources, "nonResourceRules": urls, "incomplete": false}))
}

fn token(core: &Core, resource: &Resource, spec: &Value) -> Result<Value, Status> {
    let shown = text(spec, "token");
    if shown.is_empty() {
        return Err(Status::bad_request(format!(
            "token is required for {} in authentication",
            resource.ids.kind
        )));
    }
    let wanted = match texts(spec.get("audiences")) {
        none if none.is_empty() => vec![ISSUER.to_owned()],
        some => some,
    };
    Ok(match super::identify(core, shown, &wanted) {
        Ok((who, audiences)) => {
            json!({"authenticated": true, "user": *who, "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why.to_string()}),
    })
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use crate::access::tests::{guarded, post};
    use serde_json::{Value, json};

    const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
    const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";

    #[test]
    fn an_access_review_says_whether_and_why() {
        let server = guarded();
        let ask = |spec: Value| {
            post(&server, &format!("{AUTHORIZATION}/subjectaccessreviews"), &json!({"spec": spec}))
        };
        let pods = json!({"verb": "list", "resource": "pods"});
        let (code, answer) = ask(json!({"user": "a", "resourceAttributes": pods}));
        assert_eq!((code, &answer["status"]), (201, &json!({"allowed": false})));
        let (_, answer) = ask(json!({"groups": ["system:masters"], "resourceAttributes": pods}));
        assert_eq!(answer["status"], json!({"allowed": true}));
        let live = json!({"verb": "get", "path": "/livez"});
        let (_, answer) = ask(json!({"groups": ["system:unauthenticated"], "nonResourceAttributes": live}));
        let why = "RBAC: allowed by ClusterRoleBinding \"system:public-info-viewer\" of ClusterRole \
                   \"system:public-info-viewer\" to Group \"system:unauthenticated\"";
        assert_eq!(answer["status"], json!({"allowed": true, "reason": why}));
        for bad in [
            json!({"user": "a"}),
            json!({"resourceAttributes": pods}),
            json!({"user": "a", "resourceAttributes": pods, "nonResourceAttributes": live}),
        ] {
            assert_eq!(ask(bad.clone()).0, 422, "{bad}");
        }
        assert_eq!(ask(json!("text")).0, 400);
        assert_eq!(ask(json!({"user": 5})).0, 400);
    }

    #[test]
    fn a_local_review_is_about_its_own_namespace() {
        let server = guarded();
        let path = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
        let ask = |namespace: &str| {
            let wanted = json!({"verb": "get", "resource": "pods", "namespace": namespace});
            post(&server, &path, &json!({"spec": {"user": "a", "resourceAttributes": wanted}})).0
        };
        assert_eq!((ask("default"), ask("kube-system")), (201, 422));
        let everywhere = format!("{AUTHORIZATION}/localsubjectaccessreviews");
        assert_eq!(post(&server, &everywhere, &json!({"spec": {"user": "a"}})).0, 405);
    }

    #[test]
    fn in_process_i_am_the_server_and_may_do_everything() {
        let server = guarded();
        let (code, me) = post(&server, &format!("{AUTHENTICATION}/selfsubjectreviews"), &json!({}));
        assert_eq!((code, &me["status"]["userInfo"]["username"]), (201, &json!("system:apiserver")));
        let wanted = json!({"verb": "x", "resource": "y"});
        let spec = json!({"spec": {"resourceAttributes": wanted}});
        let (_, may) = post(&server, &format!("{AUTHORIZATION}/selfsubjectaccessreviews"), &spec);
        assert_eq!(may["status"]["allowed"], true);
        let spec = json!({"spec": {"namespace": "default"}});
        let (_, rules) = post(&server, &format!("{AUTHORIZATION}/selfsubjectrulesreviews"), &spec);
        let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        assert_eq!(rules["status"]["resourceRules"][0], all);
        assert_eq!(rules["status"]["nonResourceRules"][0], json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        assert_eq!(
            post(&server, &format!("{AUTHORIZATION}/selfsubjectrulesreviews"), &json!({"spec": {}})).0,
            400
        );
    }

    #[test]
    fn a_token_review_tells_whose_a_token_is_and_for_whom() {
        let server = guarded();
        let ask = |spec: Value| {
            let (code, answer) =
                post(&server, &format!("{AUTHENTICATION}/tokenreviews"), &json!({"spec": spec}));
            assert_eq!(code, 201, "{answer}");
            answer["status"].clone()
        };
        assert_eq!(ask(json!({"token": "not-a-real-token"}))["user"]["username"], "pawl:admin");
        assert_eq!(
            ask(json!({"token": "not-a-real-token", "audiences": ["vault"]}))["authenticated"],
            Value::Null
        );
        assert!(ask(json!({"token": "garbage"}))["error"].is_string());
        let bot = json!({"metadata": {"name": "bot"}});
        post(&server, "/api/v1/namespaces/default/serviceaccounts", &bot);
        let path = "/api/v1/namespaces/default/serviceaccounts/bot/token";
        let (_, made) = post(&server, path, &json!({"spec": {"audiences": ["vault", "other"]}}));
        let token = &made["status"]["token"];
        let good = ask(json!({"token": token, "audiences": ["x", "vault"]}));
        assert_eq!((&good["authenticated"], &good["audiences"]), (&json!(true), &json!(["vault"])));
        assert!(ask(json!({"token": token}))["error"].is_string(), "not made for this server");
    }

    #[test]
    fn a_review_is_posted_and_nothing_else() {
        let server = guarded();
        let path = format!("{AUTHORIZATION}/subjectaccessreviews");
        let request = http::Request::get(path).body(bytes::Bytes::new()).unwrap();
        assert_eq!(server.call(request).status(), 405);
    }
}
