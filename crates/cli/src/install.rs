//! What does a cluster need before Pawl can work on it, and how is it taken away again?
//!
//! The permissions are generated from what the machines say they read and write, so a right that nothing uses cannot
//! creep in, and a machine that asks for more than it says fails its own tests.

use std::collections::{BTreeMap, BTreeSet};

use pawl_api::meta::Kind;
use pawl_machines::machine::{AnyMachine, Primary};
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
    manifests.extend(admission(choices));
    manifests.push(deployment(choices));
    Ok(manifests)
}

const NAME: &str = "pawl";

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
        if let Primary::One(kind) = &description.primary {
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
    needed
}

fn permissions(choices: &Choices) -> Vec<Value> {
    let mut rules: BTreeMap<(String, Vec<&str>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in needed(&doors::machines()) {
        rules.entry((group, verbs.into_iter().collect())).or_default().push(resource);
    }
    let rules: Vec<Value> = rules
        .into_iter()
        .map(|((group, verbs), resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
        .collect();
    let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": choices.system_namespace});
    let leases = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "verbs": ["get", "create", "patch"]});
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
        // The leader's Lease lives in Pawl's own namespace, so the right to write it does too.
        json!({"apiVersion": rbac, "kind": "Role", "metadata": meta(true), "rules": [leases]}),
        json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": meta(true),
            "roleRef": role_ref("Role"), "subjects": [subject]}),
    ]
}

/// Who says that he approves, or asks, must be who he says: the API server knows, so it checks.
fn admission(choices: &Choices) -> Vec<Value> {
    let operator = format!("system:serviceaccount:{}:{NAME}", choices.system_namespace);
    let policy = |name: &str, group: &str, resources: &[&str], validations: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "labels": labels()},
            "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [{
                "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                "resources": resources}]}, "validations": validations}})
    };
    let binding = |name: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name, "labels": labels()},
            "spec": {"policyName": name, "validationActions": ["Deny"]}})
    };
    let approver = json!([
        {"expression": "object.spec.approver.username == request.userInfo.username",
         "message": "spec.approver.username must be the name of whoever creates the Approval"},
        {"expression": "!has(object.spec.approver.groups) || object.spec.approver.groups.all(group, \
            has(request.userInfo.groups) && group in request.userInfo.groups)",
         "message": "spec.approver.groups must be groups of whoever creates the Approval"},
    ]);
    // A parent hands `requestedBy` down to its children; only Pawl itself may do that for somebody else.
    let requester = json!([
        {"expression": format!("!has(object.spec.requestedBy) || object.spec.requestedBy == \
            request.userInfo.username || request.userInfo.username == '{operator}' || \
            (request.operation == 'UPDATE' && has(oldObject.spec.requestedBy) && \
            oldObject.spec.requestedBy == object.spec.requestedBy)"),
         "message": "spec.requestedBy must be the name of whoever asks"},
    ]);
    vec![
        policy("pawl-approver", "pawl.dev", &["approvals"], approver),
        binding("pawl-approver"),
        policy(
            "pawl-requester-ke",
            "kubernetesexecution.kubernaut.ai",
            &["kubernetesexecutions"],
            requester.clone(),
        ),
        binding("pawl-requester-ke"),
        policy("pawl-requester-rr", "remediation.kubernaut.ai", &["remediationrequests"], requester),
        binding("pawl-requester-rr"),
    ]
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
                            choices.system_namespace, "--log-format", "json"],
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
