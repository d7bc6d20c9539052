//! Which kinds does Kubernetes bring along?
//!
//! A table. What objects of each may look like is `schema::builtin`'s to say.

use std::sync::Arc;

use super::columns::{self, Column};
use super::kinds::{self, Hooks};
use super::{Content, Resource, Rules, Scale, Selectable};
use crate::access::Review;
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
    /// Kept in the form of another API, of this group and version, that shows the same objects.
    kept_as: Option<(&'static str, &'static str)>,
    /// Label, pointer, value when absent.
    selectable: &'static [(&'static str, &'static str, &'static str)],
    /// What a Table shows after the name.
    columns: &'static [columns::Builtin],
    /// What no table can say.
    pub(crate) hooks: Hooks,
    /// Its objects are questions: answered, never kept.
    pub(crate) review: Option<Review>,
    /// Its objects are told when they are asked for, never kept.
    pub(crate) told: Option<Told>,
}

/// What the server tells of itself in the form of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The group versions it serves.
    ApiServices,
    /// The parts a control plane is made of.
    Components,
}

pub(super) const RULES: Rules = Rules {
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
    kept_as: None,
    selectable: &[],
    columns: columns::PLAIN,
    hooks: kinds::NONE,
    review: None,
    told: None,
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

const AUTOSCALER: Builtin = Builtin {
    group: "autoscaling",
    version: "v2",
    kind: "HorizontalPodAutoscaler",
    columns: columns::AUTOSCALER,
    plural: "horizontalpodautoscalers",
    short: &["hpa"],
    all: true,
    status: true,
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
        columns: columns::PHASE,
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
        columns: columns::CONFIG_MAP,
        short: &["cm"],
        hooks: kinds::CONFIG_MAP,
        ..NAMESPACED
    },
    Builtin {
        kind: "Secret",
        plural: "secrets",
        columns: columns::SECRET,
        selectable: &[("type", "/type", "")],
        hooks: kinds::SECRET,
        ..NAMESPACED
    },
    Builtin {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        columns: columns::SERVICE_ACCOUNT,
        short: &["sa"],
        rules: Rules { returns_deleted: true, ..RULES },
        ..NAMESPACED
    },
    Builtin {
        kind: "Event",
        plural: "events",
        columns: columns::EVENT,
        short: &["ev"],
        rules: Rules { create_on_update: true, ..RULES },
        selectable: EVENT_FIELDS,
        ..NAMESPACED
    },
    Builtin {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        columns: columns::EVENT,
        short: &["ev"],
        rules: Rules { create_on_update: true, ..RULES },
        kept_as: Some(("", "v1")),
        selectable: EVENT_FIELDS,
        ..NAMESPACED
    },
    Builtin {
        kind: "Pod",
        plural: "pods",
        columns: columns::POD,
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
        columns: columns::NODE,
        short: &["no"],
        status: true,
        selectable: &[("spec.unschedulable", "/spec/unschedulable", "false")],
        ..CLUSTER
    },
    Builtin {
        kind: "Service",
        plural: "services",
        columns: columns::SERVICE,
        hooks: kinds::SERVICE,
        short: &["svc"],
        all: true,
        status: true,
        rules: Rules { returns_deleted: true, name: NameRule::Dns1035, ..RULES },
        selectable: &[("spec.clusterIP", "/spec/clusterIP", ""), ("spec.type", "/spec/type", "")],
        ..NAMESPACED
    },
    Builtin {
        kind: "Endpoints",
        columns: columns::ENDPOINTS,
        plural: "endpoints",
        short: &["ep"],
        rules: Rules { create_on_update: true, ..RULES },
        ..NAMESPACED
    },
    Builtin {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        columns: columns::CLAIM,
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
        columns: columns::JOB,
        hooks: kinds::JOB,
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
        columns: columns::CRON_JOB,
        hooks: kinds::CRON_JOB,
        short: &["cj"],
        all: true,
        status: true,
        empty_status: true,
        rules: Rules { generation: true, ..RULES },
        ..NAMESPACED
    },
    Builtin {
        kind: "Deployment",
        plural: "deployments",
        columns: columns::DEPLOYMENT,
        hooks: kinds::DEPLOYMENT,
        short: &["deploy"],
        ..WORKLOAD
    },
    Builtin {
        kind: "StatefulSet",
        plural: "statefulsets",
        columns: columns::STATEFUL_SET,
        hooks: kinds::STATEFUL_SET,
        short: &["sts"],
        ..WORKLOAD
    },
    Builtin {
        kind: "DaemonSet",
        plural: "daemonsets",
        columns: columns::DAEMON_SET,
        hooks: kinds::DAEMON_SET,
        short: &["ds"],
        scale: false,
        ..WORKLOAD
    },
    Builtin {
        kind: "ReplicaSet",
        plural: "replicasets",
        columns: columns::REPLICA_SET,
        hooks: kinds::REPLICA_SET,
        short: &["rs"],
        selectable: &[("status.replicas", "/status/replicas", "0")],
        ..WORKLOAD
    },
    Builtin {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        columns: columns::CONTROLLER_REVISION,
        ..NAMESPACED
    },
    AUTOSCALER,
    Builtin { version: "v1", kept_as: Some(("autoscaling", "v2")), ..AUTOSCALER },
    Builtin {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        columns: columns::LEASE,
        rules: Rules { create_on_update: true, unconditional_update: false, ..RULES },
        ..NAMESPACED
    },
    Builtin {
        group: "policy",
        kind: "PodDisruptionBudget",
        columns: columns::DISRUPTION_BUDGET,
        plural: "poddisruptionbudgets",
        short: &["pdb"],
        status: true,
        rules: Rules { generation: true, unconditional_update: false, ..RULES },
        ..NAMESPACED
    },
    Builtin {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        columns: columns::PRIORITY_CLASS,
        plural: "priorityclasses",
        short: &["pc"],
        rules: Rules { generation: true, ..RULES },
        ..CLUSTER
    },
    Builtin {
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        columns: columns::ADMISSION_POLICY,
        status: true,
        hooks: kinds::POLICY,
        ..ADMISSION
    },
    Builtin {
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        columns: columns::ADMISSION_BINDING,
        hooks: kinds::POLICY_BINDING,
        ..ADMISSION
    },
    Builtin { kind: "Role", plural: "roles", columns: columns::CREATED_AT, hooks: kinds::ROLE, ..RBAC },
    Builtin {
        kind: "RoleBinding",
        plural: "rolebindings",
        columns: columns::BINDING,
        hooks: kinds::BINDING,
        ..RBAC
    },
    Builtin {
        kind: "ClusterRole",
        plural: "clusterroles",
        columns: columns::CREATED_AT,
        hooks: kinds::CLUSTER_ROLE,
        namespaced: false,
        ..RBAC
    },
    Builtin {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        columns: columns::BINDING,
        hooks: kinds::CLUSTER_BINDING,
        namespaced: false,
        ..RBAC
    },
    Builtin {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        columns: columns::CREATED_AT,
        short: &["crd", "crds"],
        status: true,
        rules: Rules { generation: true, unconditional_update: false, ..RULES },
        hooks: kinds::DEFINITION,
        ..CLUSTER
    },
    Builtin {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        columns: columns::SIGNING_REQUEST,
        short: &["csr"],
        status: true,
        empty_status: true,
        selectable: &[("spec.signerName", "/spec/signerName", "")],
        hooks: kinds::SIGNING_REQUEST,
        ..CLUSTER
    },
    Builtin {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        plural: "apiservices",
        columns: columns::API_SERVICE,
        told: Some(Told::ApiServices),
        ..CLUSTER
    },
    Builtin {
        kind: "ComponentStatus",
        plural: "componentstatuses",
        columns: columns::COMPONENT,
        short: &["cs"],
        told: Some(Told::Components),
        ..CLUSTER
    },
    Builtin {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        review: Some(Review::SubjectAccess),
        ..ACCESS_REVIEW
    },
    Builtin {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        review: Some(Review::LocalSubjectAccess),
        ..ACCESS_REVIEW
    },
    Builtin {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        review: Some(Review::SelfSubjectAccess),
        ..ACCESS_REVIEW
    },
    Builtin {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        review: Some(Review::SelfSubjectRules),
        ..ACCESS_REVIEW
    },
    Builtin { kind: "TokenReview", plural: "tokenreviews", review: Some(Review::Token), ..IDENTITY_REVIEW },
    Builtin {
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        review: Some(Review::SelfSubject),
        ..IDENTITY_REVIEW
    },
];

const ADMISSION: Builtin =
    Builtin { group: "admissionregistration.k8s.io", rules: Rules { generation: true, ..RULES }, ..CLUSTER };
const ACCESS_REVIEW: Builtin = Builtin { group: "authorization.k8s.io", ..CLUSTER };
const IDENTITY_REVIEW: Builtin = Builtin { group: "authentication.k8s.io", ..CLUSTER };

/// What is posted to `serviceaccounts/token`: a kind without a resource of its own.
pub(crate) static TOKEN_REQUEST: Builtin =
    Builtin { kind: "TokenRequest", plural: "tokenrequests", namespaced: true, ..IDENTITY_REVIEW };

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
    pub(crate) fn resource(&'static self) -> Resource {
        let ids = Ids {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            plural: self.plural.into(),
            namespaced: self.namespaced,
        };
        let (group, version) = self.kept_as.unwrap_or((self.group, self.version));
        let stored = Ids { group: group.into(), version: version.into(), ..ids.clone() };
        Resource {
            table: stored.group_resource().into(),
            ids: Arc::new(ids),
            stored: Arc::new(stored),
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
            // Events are told by when they happened, not by name.
            columns: (self.kind != "Event")
                .then(Column::name)
                .into_iter()
                .chain(self.columns.iter().map(Column::computed))
                .collect(),
            rules: self.rules,
            // A test asks for every built-in kind: none is without.
            schema: schema::builtin(self.group, self.version, self.kind).unwrap_or_else(Schema::anything),
            content: Content::Builtin(self),
        }
    }
}
