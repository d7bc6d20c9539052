//! Is everybody let in as who they are, to do what they may?

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use pawl_apiserver::Server;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{TOKEN, delete, guarded, post};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// One request from outside.
pub(crate) async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let response = server.guarded_service().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// A ServiceAccount with rights to everything a role says, and the header that shows it.
pub(crate) fn bot(server: &Server, rules: &Value) -> String {
    assert_eq!(post(server, ACCOUNTS, &json!({"metadata": {"name": "bot"}})).0, 201);
    let role = json!({"metadata": {"name": "bot"}, "rules": rules});
    assert_eq!(post(server, &format!("{RBAC}/namespaces/default/roles"), &role).0, 201);
    let binding = json!({"metadata": {"name": "bot"}, "roleRef": {"kind": "Role", "name": "bot"},
                         "subjects": [{"kind": "ServiceAccount", "name": "bot"}]});
    assert_eq!(post(server, &format!("{RBAC}/namespaces/default/rolebindings"), &binding).0, 201);
    let (code, made) = post(server, &format!("{ACCOUNTS}/bot/token"), &json!({}));
    assert_eq!(code, 201, "{made}");
    format!("Bearer {}", made["status"]["token"].as_str().unwrap())
}

pub(crate) fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

#[tokio::test]
async fn a_service_account_does_what_its_role_says_while_it_lives() {
    let server = guarded();
    let token = bot(&server, &json!([rule(&["get", "list", "watch"], "", &["configmaps"])]));
    let shown = [("authorization", token.as_str())];
    assert_eq!(ask(&server, "GET", MAPS, &shown, &Value::Null).await.0, 200);
    assert_eq!(ask(&server, "GET", "/api/v1/configmaps", &shown, &Value::Null).await.0, 403);
    assert_eq!(ask(&server, "GET", "/apis", &shown, &Value::Null).await.0, 200, "discovery is everybody's");
    let map = json!({"metadata": {"name": "a"}});
    assert_eq!(ask(&server, "POST", MAPS, &shown, &map).await.0, 403);
    assert_eq!(ask(&server, "DELETE", MAPS, &shown, &Value::Null).await.0, 403);
    let log = "/api/v1/namespaces/default/pods/p/log";
    assert_eq!(ask(&server, "GET", log, &shown, &Value::Null).await.0, 403);
    assert_eq!(ask(&server, "GET", "/api/v1/namespaces/default/nonsense", &shown, &Value::Null).await.0, 403);
    assert_eq!(delete(&server, &format!("{ACCOUNTS}/bot")).0, 200);
    assert_eq!(ask(&server, "GET", MAPS, &shown, &Value::Null).await.0, 401);
    assert_eq!(post(&server, ACCOUNTS, &json!({"metadata": {"name": "bot"}})).0, 201);
    assert_eq!(ask(&server, "GET", MAPS, &shown, &Value::Null).await.0, 401, "another of the same name");
}

#[tokio::test]
async fn nobody_gives_away_what_they_have_not() {
    let server = guarded();
    let rbac = "rbac.authorization.k8s.io";
    let rules = json!([
        rule(&["create", "update", "patch", "get"], rbac, &["roles", "rolebindings"]),
        rule(&["get"], "", &["configmaps"]),
    ]);
    let token = bot(&server, &rules);
    let shown = [("authorization", token.as_str()), ("content-type", "application/json")];
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let binding = |name: &str, kind: &str, role: &str| {
        json!({"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role},
               "subjects": [{"kind": "User", "name": "x"}]})
    };
    let held = role("held", json!([rule(&["get"], "", &["configmaps"])]));
    assert_eq!(ask(&server, "POST", &roles, &shown, &held).await.0, 201);
    let more = role("more", json!([rule(&["get", "delete"], "", &["configmaps"])]));
    let (code, refused) = ask(&server, "POST", &roles, &shown, &more).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"system:serviceaccount:default:bot\" \
         (groups=[\"system:serviceaccounts\" \"system:serviceaccounts:default\" \"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}"
    );
    let dry = format!("{roles}?dryRun=All");
    assert_eq!(ask(&server, "POST", &dry, &shown, &more).await.0, 403, "not even dry");
    let raised = role("held", json!([rule(&["*"], "*", &["*"])]));
    assert_eq!(ask(&server, "PUT", &format!("{roles}/held"), &shown, &raised).await.0, 403);
    let merge = [("authorization", token.as_str()), ("content-type", "application/merge-patch+json")];
    assert_eq!(ask(&server, "PATCH", &format!("{roles}/held"), &merge, &raised).await.0, 403);
    let apply = [("authorization", token.as_str()), ("content-type", "application/apply-patch+yaml")];
    let applied = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "new"},
                         "rules": raised["rules"]});
    let path = format!("{roles}/new?fieldManager=x");
    assert_eq!(ask(&server, "PATCH", &path, &apply, &applied).await.0, 403);
    assert_eq!(ask(&server, "POST", &bindings, &shown, &binding("a", "Role", "held")).await.0, 201);
    assert_eq!(
        ask(&server, "POST", &bindings, &shown, &binding("b", "ClusterRole", "cluster-admin")).await.0,
        403
    );
    assert_eq!(ask(&server, "POST", &bindings, &shown, &binding("c", "ClusterRole", "absent")).await.0, 404);

    // The verbs that say one may anyway.
    let anyway = json!([
        {"verbs": ["escalate"], "apiGroups": [rbac], "resources": ["roles"], "resourceNames": ["more"]},
        {"verbs": ["bind"], "apiGroups": [rbac], "resources": ["clusterroles"], "resourceNames": ["view"]},
    ]);
    let all: Vec<Value> = [rules.as_array().unwrap().clone(), anyway.as_array().unwrap().clone()].concat();
    let path = format!("{roles}/bot");
    assert_eq!(crate::put(&server, &path, &role("bot", json!(all))).0, 200);
    assert_eq!(ask(&server, "POST", &roles, &shown, &more).await.0, 201);
    assert_eq!(ask(&server, "POST", &bindings, &shown, &binding("d", "ClusterRole", "view")).await.0, 201);
    assert_eq!(ask(&server, "POST", &bindings, &shown, &binding("e", "ClusterRole", "edit")).await.0, 403);
}

#[tokio::test]
async fn an_aggregated_role_is_for_those_who_may_do_everything() {
    let server = guarded();
    let rules = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["clusterroles", "pods"]}]);
    let give = |name: &str, rules: &Value| {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        assert_eq!(post(&server, &format!("{RBAC}/clusterroles"), &role).0, 201);
        let binding = json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name},
                             "subjects": [{"kind": "User", "name": name}]});
        assert_eq!(post(&server, &format!("{RBAC}/clusterrolebindings"), &binding).0, 201);
    };
    // `*` is every verb, escalate included: whoever is to be stopped must not have it.
    give("some", &json!([{"verbs": ["create"], "apiGroups": ["*"], "resources": ["clusterroles", "pods"]}]));
    give("escalator", &rules);
    let path = format!("{RBAC}/clusterroles");
    let aggregated = |name: &str| {
        let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]});
        json!({"metadata": {"name": name}, "aggregationRule": selectors})
    };
    let owner = format!("Bearer {TOKEN}");
    let by = |user: &'static str| [("authorization", owner.clone()), ("impersonate-user", user.to_owned())];
    for (user, code) in [("some", 403), ("escalator", 201)] {
        let headers = by(user);
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let (got, said) = ask(&server, "POST", &path, &headers, &aggregated(&format!("of-{user}"))).await;
        assert_eq!(got, code, "{user}: {said}");
    }
}

#[tokio::test]
async fn a_garbage_collector_may_finish_a_role_it_does_not_hold() {
    let server = guarded();
    let token = bot(&server, &json!([rule(&["patch"], "rbac.authorization.k8s.io", &["roles"])]));
    let roles = format!("{RBAC}/namespaces/default/roles");
    let held = json!({"metadata": {"name": "big", "finalizers": ["example.com/f"]},
                      "rules": [rule(&["*"], "*", &["*"])]});
    assert_eq!(post(&server, &roles, &held).0, 201);
    let merge = [("authorization", token.as_str()), ("content-type", "application/merge-patch+json")];
    let path = format!("{roles}/big");
    let free = json!({"metadata": {"finalizers": []}});
    assert_eq!(ask(&server, "PATCH", &path, &merge, &free).await.0, 200);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(ask(&server, "PATCH", &path, &merge, &label).await.0, 403);
}

#[tokio::test]
async fn an_update_that_creates_needs_the_right_to_create() {
    let server = guarded();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    let token = bot(&server, &json!([rule(&["update", "patch"], "coordination.k8s.io", &["leases"])]));
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}});
    let shown = [("authorization", token.as_str())];
    assert_eq!(ask(&server, "PUT", leases, &shown, &lease).await.0, 403);
    let apply = [("authorization", token.as_str()), ("content-type", "application/apply-patch+yaml")];
    let path = format!("{leases}?fieldManager=x");
    assert_eq!(ask(&server, "PATCH", &path, &apply, &lease).await.0, 403);
    let owner = format!("Bearer {TOKEN}");
    assert_eq!(ask(&server, "PUT", leases, &[("authorization", &owner)], &lease).await.0, 201);
    assert_eq!(ask(&server, "PATCH", &path, &apply, &lease).await.0, 200, "it is there now");
}

#[tokio::test]
async fn whoever_is_impersonated_has_their_own_rights_alone() {
    let server = guarded();
    bot(&server, &json!([rule(&["list"], "", &["configmaps"])]));
    let owner = format!("Bearer {TOKEN}");
    let as_bot =
        [("authorization", owner.as_str()), ("impersonate-user", "system:serviceaccount:default:bot")];
    assert_eq!(ask(&server, "GET", MAPS, &as_bot, &Value::Null).await.0, 200);
    assert_eq!(ask(&server, "GET", "/api/v1/nodes", &as_bot, &Value::Null).await.0, 403);
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, me) = ask(&server, "POST", reviews, &as_bot, &json!({})).await;
    assert_eq!(
        (code, &me["status"]["userInfo"]["username"]),
        (201, &json!("system:serviceaccount:default:bot"))
    );
    let nobody = [("impersonate-user", "pawl:admin")];
    assert_eq!(ask(&server, "GET", MAPS, &nobody, &Value::Null).await.0, 403);
    let no_user = [("authorization", owner.as_str()), ("impersonate-group", "devs")];
    assert_eq!(ask(&server, "GET", MAPS, &no_user, &Value::Null).await.0, 400);
}

#[tokio::test]
async fn reviews_and_token_requests_are_in_discovery() {
    let server = guarded();
    let owner = format!("Bearer {TOKEN}");
    let shown = [("authorization", owner.as_str())];
    let (_, list) = ask(&server, "GET", "/apis/authorization.k8s.io/v1", &shown, &Value::Null).await;
    let names: Vec<&str> =
        list["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "localsubjectaccessreviews",
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews"
        ]
    );
    assert!(list["resources"].as_array().unwrap().iter().all(|r| r["verbs"] == json!(["create"])));
    let (_, core) = ask(&server, "GET", "/api/v1", &shown, &Value::Null).await;
    let token =
        core["resources"].as_array().unwrap().iter().find(|r| r["name"] == "serviceaccounts/token").unwrap();
    assert_eq!((&token["kind"], &token["group"]), (&json!("TokenRequest"), &json!("authentication.k8s.io")));
}
