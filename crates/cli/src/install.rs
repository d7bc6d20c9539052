//! What does a cluster need before Pawl can work on it, and how is it taken away again?
//!
//! The permissions are generated from what the machines say they read and write, so a right that nothing uses cannot
//! creep in, and a machine that asks for more than it says fails its own tests.

use std::collections::{BTreeMap, BTreeSet};

use pawl_api::meta::Kind;
use pawl_machines::machine::AnyMachine;
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::rbac;
use serde_json::{Value, json};

use crate::doors;

/// What a person may choose.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Choices {
    /// Where Pawl runs and keeps its locks.
    #[arg(long, default_value = "pawl-system")]
    pub(crate) system_namespace: String,
    /// The image that the Deployment runs.
    #[arg(long, default_value = concat!("pawl:", env!("CARGO_PKG_VERSION")))]
    pub(crate) image: String,
}

/// Everything, in the order in which it must be applied.
pub(crate) fn manifests(choices: &Choices) -> anyhow::Result<Vec<Value>> {
    let mut manifests = vec![namespace(choices)];
    for crd in pawl_api::crds::all() {
        manifests.push(serde_json::to_value(crd)?);
    }
    manifests.push(service_account(choices));
    manifests.extend(permissions(choices));
    let executor = Executor::default();
    manifests.push(rbac::namespace(&executor));
    manifests.extend(rbac::controlling(&executor, &subject(choices)));
    manifests.extend(admission(choices));
    manifests.push(deployment(choices));
    Ok(manifests)
}

const NAME: &str = "pawl";

/// The role that lets Pawl act as the ServiceAccounts of a namespace, where it is bound.
const IMPERSONATOR: &str = "pawl-impersonator";

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": NAME})
}

fn namespace(choices: &Choices) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": choices.system_namespace, "labels": {
        "app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": NAME,
        "pod-security.kubernetes.io/enforce": "restricted",
    }}})
}

fn service_account(choices: &Choices) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": choices.system_namespace, "labels": labels()}})
}

/// Who Pawl is, for bindings.
fn subject(choices: &Choices) -> Value {
    json!({"kind": "ServiceAccount", "name": NAME, "namespace": choices.system_namespace})
}

const SUBJECT_ACCESS_REVIEW: Kind =
    Kind::of("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", false);

/// A resource as RBAC names it.
type Resource = (String, String);

/// The verbs per resource that the machines and the loop around them use.
pub(crate) fn needed(machines: &[AnyMachine]) -> BTreeMap<Resource, BTreeSet<&'static str>> {
    let mut needed: BTreeMap<Resource, BTreeSet<&'static str>> = BTreeMap::new();
    let mut need = |kind: &Kind, part: Option<&str>, verbs: &[&'static str]| {
        let resource = match part {
            Some(part) => format!("{}/{part}", kind.plural),
            None => kind.plural.to_string(),
        };
        needed.entry((kind.group.to_string(), resource)).or_default().extend(verbs);
    };
    const WATCH: &[&str] = &["get", "list", "watch"];
    for machine in machines {
        let description = machine.description();
        if let Some(kind) = description.primary.kind() {
            need(kind, None, WATCH);
        }
        for watch in &description.watches {
            need(&watch.kind, None, WATCH);
        }
        for write in &description.writes {
            need(&write.kind, write.part, write.verbs);
        }
    }
    // The loop's own: Events for people, and CRDs, to see a kind that appears later.
    need(&pawl_machines::apply::EVENT, None, &["create"]);
    need(&pawl_api::k8s::CUSTOM_RESOURCE_DEFINITION, None, WATCH);
    // The ports' own: credentials and what must be masked, and the logs of what failed.
    need(&pawl_api::k8s::SECRET, None, &["get"]);
    need(&pawl_api::k8s::POD, Some("log"), &["get"]);
    // Actions are looked at before they are done, and their accounts' rights asked for.
    need(&pawl_api::k8s::SERVICE_ACCOUNT, None, &["get"]);
    need(&SUBJECT_ACCESS_REVIEW, None, &["create"]);
    // What an alert leads to.
    need(&pawl_api::remedy::remediation_request::KIND, None, &["create"]);
    for (group, resource, verb) in rbac::looking() {
        needed.entry((group.to_owned(), resource.to_owned())).or_default().insert(verb);
    }
    needed
}

fn permissions(choices: &Choices) -> Vec<Value> {
    let mut rules: BTreeMap<(String, Vec<&str>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in
        needed(&doors::machines(&choices.system_namespace, &choices.image, &doors::Choices::default()))
    {
        rules.entry((group, verbs.into_iter().collect())).or_default().push(resource);
    }
    let rules: Vec<Value> = rules
        .into_iter()
        .map(|((group, verbs), resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
        .collect();
    let subject = subject(choices);
    let leases = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "verbs": ["get", "create", "update"]});
    let role_ref = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME});
    let meta = |namespaced: bool| {
        let mut meta = json!({"name": NAME, "labels": labels()});
        if let (true, Some(meta)) = (namespaced, meta.as_object_mut()) {
            meta.insert("namespace".to_owned(), choices.system_namespace.as_str().into());
        }
        meta
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    vec![
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": meta(false), "rules": rules}),
        json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": meta(false),
            "roleRef": role_ref("ClusterRole"), "subjects": [subject]}),
        // Bound to nothing: whoever owns a namespace binds it there, and Targets in it may name a ServiceAccount of it.
        json!({"apiVersion": rbac, "kind": "ClusterRole",
            "metadata": {"name": IMPERSONATOR, "labels": labels()},
            "rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}]}),
        // The leader's Lease lives in Pawl's own namespace, so the right to write it does too.
        json!({"apiVersion": rbac, "kind": "Role", "metadata": meta(true), "rules": [leases]}),
        json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": meta(true),
            "roleRef": role_ref("Role"), "subjects": [subject]}),
    ]
}

/// Who says that they approve, or ask, must be who they say: the API server knows, so it checks.
fn admission(choices: &Choices) -> Vec<Value> {
    let operator = format!("system:serviceaccount:{}:{NAME}", choices.system_namespace);
    pawl_machines::remedy::identity::manifests(&[operator], &labels())
}

fn deployment(choices: &Choices) -> Value {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": 10});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": choices.system_namespace, "labels": labels()},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": NAME}},
            "template": {
                "metadata": {"labels": labels()},
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"}},
                    "terminationGracePeriodSeconds": 30,
                    "containers": [{
                        "name": NAME, "image": choices.image,
                        "args": ["operator", "--listen", "0.0.0.0:8080", "--system-namespace",
                            choices.system_namespace, "--image", choices.image, "--log-format", "json"],
                        "ports": [{"name": "http", "containerPort": 8080}],
                        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
                        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
                        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]}},
                    }],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::Request;
    use pawl_apiserver::{Access, RealEnv, Server, SigningKey};
    use pawl_engine::{Engine, leader};
    use std::sync::Arc;
    use std::time::Duration;
    use tower::ServiceExt as _;

    fn choices() -> Choices {
        Choices { system_namespace: "pawl-system".into(), image: "pawl:test".into() }
    }

    fn send(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let response = server.call(request.body(Bytes::from(body.to_string())).unwrap());
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
    }

    /// Where an object of a printed manifest is created.
    fn collection(manifest: &Value) -> Option<String> {
        let (plural, namespaced) = match manifest["kind"].as_str()? {
            "Namespace" => ("namespaces", false),
            "CustomResourceDefinition" => ("customresourcedefinitions", false),
            "ServiceAccount" => ("serviceaccounts", true),
            "ClusterRole" => ("clusterroles", false),
            "ClusterRoleBinding" => ("clusterrolebindings", false),
            "Role" => ("roles", true),
            "RoleBinding" => ("rolebindings", true),
            _ => return None,
        };
        let version = manifest["apiVersion"].as_str()?;
        let root = if version.contains('/') { "apis" } else { "api" };
        let home = match manifest["metadata"]["namespace"].as_str() {
            Some(namespace) if namespaced => format!("/namespaces/{namespace}"),
            _ => String::new(),
        };
        Some(format!("/{root}/{version}{home}/{plural}"))
    }

    #[tokio::test]
    async fn the_printed_permissions_are_all_that_the_operator_needs() {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let access = Access {
            admin_token: "not-a-real-token".into(),
            signing_key: SigningKey::from_pem(&key).unwrap(),
        };
        let server = Server::in_memory(Arc::new(RealEnv)).with_access(access);
        for manifest in manifests(&choices()).unwrap() {
            if let Some(path) = collection(&manifest) {
                let (code, answer) = send(&server, "POST", &path, &manifest);
                assert_eq!(code, 201, "{path}: {answer}");
            }
        }
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let path = "/api/v1/namespaces/pawl-system/serviceaccounts/pawl/token";
        let (code, answer) = send(&server, "POST", path, &asked);
        assert_eq!(code, 201, "{answer}");
        let bearer = format!("Bearer {}", answer["status"]["token"].as_str().unwrap());
        let refused = Arc::new(std::sync::Mutex::new(Vec::new()));
        let service = server.guarded_service().map_request({
            let bearer: http::HeaderValue = bearer.parse().unwrap();
            move |mut request: Request<kube::client::Body>| {
                request.headers_mut().insert(http::header::AUTHORIZATION, bearer.clone());
                request
            }
        });
        let service = service.map_response({
            let refused = Arc::clone(&refused);
            move |response| {
                if response.status() == 403 || response.status() == 401 {
                    refused.lock().unwrap().push(response.status());
                }
                response
            }
        });
        let config = leader::Config {
            namespace: "pawl-system".into(),
            name: "pawl-operator".into(),
            identity: "a".into(),
        };
        let engine = Engine::builder(kube::Client::new(service, "default"))
            .machines(doors::machines("pawl-system", "pawl:test", &doors::Choices::default()))
            .leader(config)
            .build()
            .unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn({
            let engine = engine.clone();
            async move {
                engine
                    .run(async {
                        stopped.await.ok();
                    })
                    .await
            }
        });
        let sha = "a".repeat(40);
        let home = "/apis/terrakojo.io/v1alpha1/namespaces/default";
        let make = |plural: &str, kind: &str, name: &str, spec: Value| {
            let manifest = json!({"apiVersion": "terrakojo.io/v1alpha1", "kind": kind, "metadata": {"name": name},
                "spec": spec});
            let (code, answer) = send(&server, "POST", &format!("{home}/{plural}"), &manifest);
            assert_eq!(code, 201, "{answer}");
        };
        let common = json!({"owner": "acme", "repository": "infra", "sha": sha});
        let with = |more: Value| {
            let mut spec = common.clone();
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        make("branches", "Branch", "b", with(json!({"name": "feature"})));
        let container = json!({"name": "main", "image": "x", "command": ["true"]});
        let job = json!({"template": {"spec": {"containers": [container]}}});
        make(
            "workflowtemplates",
            "WorkflowTemplate",
            "plan",
            json!({"displayName": "Plan", "match": {"paths": ["**"]}, "job": job}),
        );
        make("workflows", "Workflow", "w", with(json!({"branch": "b", "template": "plan", "path": "p"})));
        make("workflows", "Workflow", "v", with(json!({"branch": "gone", "template": "plan", "path": "p"})));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let (_, workflows) = send(&server, "GET", &format!("{home}/workflows"), &json!({}));
            let phases: Vec<_> =
                workflows["items"].as_array().unwrap().iter().map(|w| w["status"]["phase"].clone()).collect();
            // The one without a Branch has been deleted, the other waits for its Job.
            if phases == [json!("Pending")] {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{workflows}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (code, _) = send(&server, "DELETE", &format!("{home}/workflows/w"), &json!({}));
        assert_eq!(code, 200);
        // Renewing the lease is the last right to be used; it comes two seconds after taking it.
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        stop.send(()).unwrap();
        running.await.unwrap();
        assert_eq!(*refused.lock().unwrap(), Vec::<http::StatusCode>::new());
    }

    #[test]
    fn permissions_name_no_wildcard_and_on_secrets_only_what_the_doors_use() {
        let all = manifests(&choices()).unwrap();
        let rules: Vec<&Value> =
            all.iter().filter_map(|manifest| manifest.get("rules")?.as_array()).flatten().collect();
        assert!(!rules.is_empty());
        for rule in rules {
            assert!(!rule.to_string().contains('*'), "{rule}");
            // Credentials of GitHub are read; exports of deploy items are kept and watched.
            if rule.to_string().contains("secrets") {
                let verbs = serde_json::json!(["create", "delete", "get", "list", "patch", "watch"]);
                assert_eq!(rule["verbs"], verbs, "{rule}");
            }
        }
    }
}
