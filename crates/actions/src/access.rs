//! May a ServiceAccount do all that an action needs?

use pawl_api::k8s::SERVICE_ACCOUNT;
use pawl_machines::failure::Failure;
use pawl_machines::object::Key;
use pawl_machines::remedy::action::seen::Place;
use pawl_machines::remedy::action::{Access, Need, definition};
use serde_json::{Value, json};

use crate::reading::Known;
use crate::way::Way;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Asks the API server about every verb, one by one.
pub(crate) async fn access(way: &Way, known: &Known, account: &Key) -> Result<Access, Failure> {
    let place = Place { kind: SERVICE_ACCOUNT, key: account.clone() };
    if way.get(&place).await?.is_none() {
        return Ok(Access { exists: false, missing: Vec::new() });
    }
    let needs = definition(known.order.action).needs(&known.order, &known.parameters);
    let mut missing = Vec::new();
    for need in needs {
        if !allowed(way, account, &need).await? {
            missing.push(need.to_string());
        }
    }
    missing.dedup();
    Ok(Access { exists: true, missing })
}

async fn allowed(way: &Way, account: &Key, need: &Need) -> Result<bool, Failure> {
    let namespace = account.namespace.as_deref().unwrap_or_default();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:{}", account.name),
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"),
                "system:authenticated"],
            "resourceAttributes": {"verb": need.verb, "group": need.group, "resource": need.resource,
                "subresource": need.subresource.unwrap_or_default(),
                "namespace": need.namespace.as_deref().unwrap_or_default(),
                "name": need.name.as_deref().unwrap_or_default()},
        },
    });
    let answer = way.post(REVIEWS, &review, &format!("ask whether {account} may {need}")).await?;
    Ok(answer.pointer("/status/allowed").and_then(Value::as_bool) == Some(true))
}
