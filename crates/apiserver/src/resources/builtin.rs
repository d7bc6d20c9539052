//! Which kinds does Kubernetes bring along?
//!
//! A table. What objects of each may look like is `schema::builtin`'s to say.

use std::sync::Arc;

use super::kinds::{self, Hooks};
use super::{Content, Resource, Rules, Scale, Selectable};
use crate::schema::{self, Schema};
use crate::store::Ids;
use crate::validation::NameRule;

/// A resource of Kubernetes, as data.
#[derive(Debug)]
pub struct Builtin {
    /// The API group, empty for core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The resource.
    pub plural: &'static str,
    short: &'static [&'static str],
    all: bool,
    namespaced: bool,
    status: bool,
    /// Go writes `"status":{}` where the status is a struct without `omitempty`.
    pub(crate) empty_status: bool,
    scale: bool,
    rules: Rules,
    table: Option<&'static str>,
    /// Label, pointer, value when absent.
    selectable: &'static [(&'static str, &'static str, &'static str)],
    /// What no table can say.
    pub(crate) hooks: Hooks,
}

const RULES: Rules = Rules {
    generation: false,
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    orphans_by_default: false,
    graceful: false,
    name: NameRule::Subdomain,
};

const NAMESPACED: Builtin = Builtin {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short: &[],
    all: false,
    namespaced: true,
    status: false,
    empty_status: false,
    scale: false,
    rules: RULES,
    table: None,
    selectable: &[],
    hooks: kinds::NONE,
};

const CLUSTER: Builtin = Builtin { namespaced: false, ..NAMESPACED };

const WORKLOAD: Builtin = Builtin {
    group: "apps",
    all: true,
    status: true,
    empty_status: true,
    scale: true,
    rules: Rules { generation: true, ..RULES },
    ..NAMESPACED
};

const RBAC: Builtin = Builtin {
    group: "rbac.authorization.k8s.io",
    rules: Rules { create_on_update: true, name: NameRule::PathSegment, ..RULES },
    ..NAMESPACED
};

/// Every built-in resource.
pub(crate) static BUILTINS: &[Builtin] = &[
    Builtin {
        kind: "Namespace",
        plural: "namespaces",
        short: &["ns"],
        status: true,
        selectable: &[("status.phase", "/status/phase", "")],
        rules: Rules { name: NameRule::Label, ..RULES },
        hooks: kinds::NAMESPACE,
        ..CLUSTER
    },
    Builtin {
        kind: "ConfigMap",
        plural: "configmaps",
        short: &["cm"],
        hooks: kinds::CONFIG_MAP,
        ..NAMESPACED
    },
    Builtin {
        kind: "Secret",
        plural: "secrets",
        selectable: &[("type", "/type", "")],
        hooks: kinds::SECRET,
        ..NAMESPACED
    },
    Builtin {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short: &["sa"],
        rules: Rules { returns_deleted: true, ..RULES },
        ..NAMESPACED
    },
    Builtin {
        kind: "Event",
        plural: "events",
        short: &["ev"],
        rules: Rules { create_on_update: true, ..RULES },
        selectable: EVENT_FIELDS,
        ..NAMESPACED
    },
    Builtin {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short: &["ev"],
        rules: Rules { create_on_update: true, ..RULES },
        table: Some("events"),
        selectable: EVENT_FIELDS,
        ..NAMESPACED
    },
    Builtin {
        kind: "Pod",
        plural: "pods",
        short: &["po"],
        all: true,
        status: true,
        rules: Rules { generation: true, returns_deleted: true, graceful: true, ..RULES },
        selectable: &[
            ("spec.nodeName", "/spec/nodeName", ""),
            ("spec.restartPolicy", "/spec/restartPolicy", ""),
            ("spec.schedulerName", "/spec/schedulerName", ""),
            ("spec.serviceAccountName", "/spec/serviceAccountName", ""),
            ("spec.hostNetwork", "/spec/hostNetwork", "false"),
            ("status.phase", "/status/phase", ""),
            ("status.podIP", "/status/podIP", ""),
            ("status.nominatedNodeName", "/status/nominatedNodeName", ""),
        ],
        hooks: kinds::POD,
        ..NAMESPACED
    },
    Builtin {
        kind: "Node",
        plural: "nodes",
        short: &["no"],
        status: true,
        selectable: &[("spec.unschedulable", "/spec/unschedulable", "false")],
        ..CLUSTER
    },
    Builtin {
        kind: "Service",
        plural: "services",
        short: &["svc"],
        all: true,
        status: true,
        rules: Rules { returns_deleted: true, name: NameRule::Dns1035, ..RULES },
        selectable: &[("spec.clusterIP", "/spec/clusterIP", ""), ("spec.type", "/spec/type", "")],
        ..NAMESPACED
    },
    Builtin {
        kind: "Endpoints",
        plural: "endpoints",
        short: &["ep"],
        rules: Rules { create_on_update: true, ..RULES },
        ..NAMESPACED
    },
    Builtin {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        short: &["pvc"],
        status: true,
        rules: Rules { returns_deleted: true, ..RULES },
        hooks: kinds::CLAIM,
        ..NAMESPACED
    },
    Builtin {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        all: true,
        status: true,
        empty_status: true,
        rules: Rules { generation: true, orphans_by_default: true, ..RULES },
        selectable: &[("status.successful", "/status/succeeded", "0")],
        ..NAMESPACED
    },
    Builtin {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        short: &["cj"],
        all: true,
        status: true,
        empty_status: true,
        rules: Rules { generation: true, ..RULES },
        ..NAMESPACED
    },
    Builtin { kind: "Deployment", plural: "deployments", short: &["deploy"], ..WORKLOAD },
    Builtin { kind: "StatefulSet", plural: "statefulsets", short: &["sts"], ..WORKLOAD },
    Builtin { kind: "DaemonSet", plural: "daemonsets", short: &["ds"], scale: false, ..WORKLOAD },
    Builtin {
        kind: "ReplicaSet",
        plural: "replicasets",
        short: &["rs"],
        selectable: &[("status.replicas", "/status/replicas", "0")],
        ..WORKLOAD
    },
    Builtin { group: "apps", kind: "ControllerRevision", plural: "controllerrevisions", ..NAMESPACED },
    Builtin {
        group: "autoscaling",
        version: "v2",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        short: &["hpa"],
        all: true,
        status: true,
        ..NAMESPACED
    },
    Builtin {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        rules: Rules { create_on_update: true, unconditional_update: false, ..RULES },
        ..NAMESPACED
    },
    Builtin {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        short: &["pdb"],
        status: true,
        rules: Rules { generation: true, unconditional_update: false, ..RULES },
        ..NAMESPACED
    },
    Builtin {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short: &["pc"],
        rules: Rules { generation: true, ..RULES },
        ..CLUSTER
    },
    Builtin { kind: "Role", plural: "roles", ..RBAC },
    Builtin { kind: "RoleBinding", plural: "rolebindings", ..RBAC },
    Builtin { kind: "ClusterRole", plural: "clusterroles", namespaced: false, ..RBAC },
    Builtin { kind: "ClusterRoleBinding", plural: "clusterrolebindings", namespaced: false, ..RBAC },
    Builtin {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short: &["crd", "crds"],
        status: true,
        rules: Rules { generation: true, unconditional_update: false, ..RULES },
        hooks: kinds::DEFINITION,
        ..CLUSTER
    },
];

const EVENT_FIELDS: &[(&str, &str, &str)] = &[
    ("involvedObject.kind", "/involvedObject/kind", ""),
    ("involvedObject.namespace", "/involvedObject/namespace", ""),
    ("involvedObject.name", "/involvedObject/name", ""),
    ("involvedObject.uid", "/involvedObject/uid", ""),
    ("involvedObject.apiVersion", "/involvedObject/apiVersion", ""),
    ("involvedObject.resourceVersion", "/involvedObject/resourceVersion", ""),
    ("involvedObject.fieldPath", "/involvedObject/fieldPath", ""),
    ("reason", "/reason", ""),
    ("reportingComponent", "/reportingComponent", ""),
    ("source", "/source/component", ""),
    ("type", "/type", ""),
];

impl Builtin {
    pub(super) fn resource(&'static self) -> Resource {
        let table = self.table.map_or_else(
            || {
                if self.group.is_empty() {
                    self.plural.to_owned()
                } else {
                    format!("{}.{}", self.plural, self.group)
                }
            },
            str::to_owned,
        );
        Resource {
            ids: Arc::new(Ids {
                group: self.group.into(),
                version: self.version.into(),
                kind: self.kind.into(),
                plural: self.plural.into(),
                namespaced: self.namespaced,
            }),
            stored: Arc::new(Ids {
                // The one table two groups share keeps the core group's form.
                group: if self.table.is_some() { "".into() } else { self.group.into() },
                version: self.version.into(),
                kind: self.kind.into(),
                plural: self.plural.into(),
                namespaced: self.namespaced,
            }),
            table: table.into(),
            list_kind: format!("{}List", self.kind).into(),
            singular: self.kind.to_lowercase().into(),
            short_names: self.short.iter().map(|&s| s.into()).collect(),
            categories: if self.all { vec!["all".into()] } else { Vec::new() },
            status: self.status,
            scale: self.scale.then(|| Scale {
                spec: "/spec/replicas".into(),
                status: "/status/replicas".into(),
                selector: Some("/spec/selector".into()),
            }),
            selectable: self
                .selectable
                .iter()
                .map(|&(label, pointer, absent)| Selectable {
                    label: label.into(),
                    pointer: pointer.into(),
                    absent,
                })
                .collect(),
            rules: self.rules,
            // A test asks for every built-in kind: none is without.
            schema: schema::builtin(self.group, self.version, self.kind).unwrap_or_else(Schema::anything),
            content: Content::Builtin(self),
        }
    }
}
