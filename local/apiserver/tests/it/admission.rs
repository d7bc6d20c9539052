//! Do the policies that people keep in the API hold for every way of writing?

use pawl_apiserver::Server;
use serde_json::{Value, json};

use crate::access::{ask, bot, rule};
use crate::{delete, get, guarded, merge, post, put, send, server};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn policy(server: &Server, name: &str, spec: Value) -> (u16, Value) {
    post(
        server,
        &format!("{GROUP}/validatingadmissionpolicies"),
        &json!({"metadata": {"name": name}, "spec": spec}),
    )
}

fn bind(server: &Server, policy: &str, spec: Value) -> (u16, Value) {
    let mut spec = spec;
    spec["policyName"] = policy.into();
    let binding = json!({"metadata": {"name": format!("{policy}-binding")}, "spec": spec});
    post(server, &format!("{GROUP}/validatingadmissionpolicybindings"), &binding)
}

/// A policy on ConfigMaps, bound with this action.
fn enforce(server: &Server, operations: &[&str], validation: Value, action: &str) {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": operations}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [validation]});
    let (code, made) = policy(server, "maps", spec);
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["failurePolicy"], "Fail");
    let (code, made) = bind(server, "maps", json!({"validationActions": [action]}));
    assert_eq!(code, 201, "{made}");
}

fn map(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"size": size}})
}

#[test]
fn a_policy_holds_for_creates_updates_patches_and_applies() {
    let server = server();
    assert_eq!(post(&server, MAPS, &map("before", "huge")).0, 201);
    let small = json!({"expression": "object.data.size == 'small'", "message": "only small ones"});
    enforce(&server, &["CREATE", "UPDATE"], small, "Deny");
    let (code, refused) = post(&server, MAPS, &map("a", "huge"));
    assert_eq!(code, 422, "{refused}");
    assert_eq!(refused["reason"], "Invalid");
    assert_eq!(
        refused["message"],
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'maps' with binding 'maps-binding' denied \
         request: only small ones"
    );
    assert_eq!(post(&server, MAPS, &map("a", "small")).0, 201);
    let one = format!("{MAPS}/a");
    assert_eq!(put(&server, &one, &map("a", "huge")).0, 422);
    assert_eq!(merge(&server, &one, &json!({"data": {"size": "huge"}})).0, 422);
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"size": "huge"}});
    let apply = format!("{MAPS}/b?fieldManager=m&force=true");
    assert_eq!(send(&server, "PATCH", &apply, "application/apply-patch+yaml", applied.to_string()).0, 422);
    assert_eq!(get(&server, &one).1["data"]["size"], "small");
    assert_eq!(delete(&server, &format!("{MAPS}/before")).0, 200, "deletes are not what it speaks of");
}

#[test]
fn a_policy_on_deletion_sees_what_would_go() {
    let server = server();
    let kept =
        json!({"expression": "oldObject.data.size != 'huge' && object == null", "reason": "Forbidden"});
    enforce(&server, &["DELETE"], kept, "Deny");
    for (name, size) in [("a", "huge"), ("b", "small")] {
        assert_eq!(post(&server, MAPS, &map(name, size)).0, 201);
    }
    let (code, refused) = delete(&server, &format!("{MAPS}/a"));
    assert_eq!((code, refused["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(delete(&server, &format!("{MAPS}/b")).0, 200);
    assert_eq!(delete(&server, MAPS).0, 403, "a collection is its objects");
    assert_eq!(get(&server, &format!("{MAPS}/a")).0, 200);
}

#[test]
fn the_binding_says_where_and_with_which_parameters() {
    let server = server();
    assert_eq!(
        post(
            &server,
            "/api/v1/namespaces",
            &json!({"metadata": {"name": "prod", "labels": {"env": "prod"}}})
        )
        .0,
        201
    );
    assert_eq!(post(&server, MAPS, &json!({"metadata": {"name": "limit"}, "data": {"max": "3"}})).0, 201);
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
            "resources": ["deployments", "deployments/scale"], "operations": ["*"]}]},
        "variables": [{"name": "most", "expression": "int(params.data.max)"}],
        "validations": [{"expression": "object.spec.replicas <= variables.most",
            "messageExpression": "'at most ' + string(variables.most)"}],
    });
    assert_eq!(policy(&server, "replicas", spec).0, 201);
    let made = bind(
        &server,
        "replicas",
        json!({
            "validationActions": ["Deny"],
            "paramRef": {"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"},
            "matchResources": {"namespaceSelector": {"matchLabels": {"env": "prod"}}},
        }),
    );
    assert_eq!(made.0, 201, "{made:?}");
    let web = |replicas: i64| {
        json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    assert_eq!(post(&server, "/apis/apps/v1/namespaces/default/deployments", &web(9)).0, 201);
    let prod = "/apis/apps/v1/namespaces/prod/deployments";
    let (code, refused) = post(&server, prod, &web(9));
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().ends_with("denied request: at most 3"), "{refused}");
    assert_eq!(post(&server, prod, &web(2)).0, 201);
    let scale = format!("{prod}/web/scale");
    assert_eq!(merge(&server, &scale, &json!({"spec": {"replicas": 4}})).0, 422);
    assert_eq!(merge(&server, &scale, &json!({"spec": {"replicas": 3}})).0, 200);
    assert_eq!(delete(&server, &format!("{MAPS}/limit")).0, 200);
    let (code, refused) = merge(&server, &scale, &json!({"spec": {"replicas": 1}}));
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("no params found"), "{refused}");
}

#[tokio::test]
async fn what_an_object_says_of_its_writer_can_be_held_to_who_writes() {
    let server = guarded();
    let said = json!({"expression": "object.data.by == request.userInfo.username", "message": "not you"});
    enforce(&server, &["CREATE"], said, "Deny");
    let token = bot(&server, &json!([rule(&["create"], "", &["configmaps"])]));
    let shown = [("authorization", token.as_str()), ("content-type", "application/json")];
    let signed = |name: &str, by: &str| json!({"metadata": {"name": name}, "data": {"by": by}});
    let me = "system:serviceaccount:default:bot";
    assert_eq!(ask(&server, "POST", MAPS, &shown, &signed("a", "pawl:admin")).await.0, 422);
    assert_eq!(ask(&server, "POST", MAPS, &shown, &signed("a", me)).await.0, 201);
}

#[test]
fn a_warning_lets_the_write_pass_and_a_loosened_policy_is_loose_at_once() {
    let server = server();
    enforce(&server, &["CREATE"], json!({"expression": "false", "message": "mind"}), "Warn");
    let request = http::Request::post(MAPS).header("content-type", "application/json");
    let response = server.call(request.body(map("a", "s").to_string().into()).unwrap());
    assert_eq!(response.status(), 201);
    let warning = response.headers()["warning"].to_str().unwrap().to_owned();
    assert!(warning.contains("Validation failed for ValidatingAdmissionPolicy 'maps'"), "{warning}");
    assert!(warning.contains("mind"));
    let binding = format!("{GROUP}/validatingadmissionpolicybindings/maps-binding");
    let denying = json!({"spec": {"validationActions": ["Deny"]}});
    assert_eq!(merge(&server, &binding, &denying).0, 200);
    assert_eq!(post(&server, MAPS, &map("b", "s")).0, 422);
    assert_eq!(delete(&server, &format!("{GROUP}/validatingadmissionpolicies/maps")).0, 200);
    assert_eq!(post(&server, MAPS, &map("b", "s")).0, 201);
}

#[test]
fn a_policy_that_cannot_work_is_refused_by_field() {
    let server = server();
    let (code, refused) = policy(
        &server,
        "bad",
        json!({
            "failurePolicy": "Maybe",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["READ"]}]},
            "validations": [{"expression": "object.", "reason": "Because"}],
        }),
    );
    assert_eq!(code, 422);
    let fields: Vec<&str> = refused["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    let rule = "spec.matchConstraints.resourceRules[0]";
    assert_eq!(
        fields,
        [
            "spec.failurePolicy".to_owned(),
            format!("{rule}.apiVersions"),
            format!("{rule}.operations[0]"),
            "spec.validations[0].reason".to_owned(),
            "spec.validations[0].expression".to_owned(),
        ]
    );
    let (code, refused) = bind(&server, "bad", json!({"validationActions": ["Deny", "Warn"]}));
    assert_eq!(code, 422, "{refused}");
    assert_eq!(bind(&server, "bad", json!({})).0, 422);
}
