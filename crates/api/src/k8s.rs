//! One curated prelude of Kubernetes' own types, and how their kinds are named on the wire.
//!
//! `use pawl_api::k8s::*;` gives what decisions and observations talk about, so that nobody has to know where
//! `k8s-openapi` keeps it.

pub use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
pub use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
pub use k8s_openapi::api::batch::v1::{CronJob, Job, JobCondition, JobSpec, JobStatus};
pub use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
pub use k8s_openapi::api::core::v1::{
    ConfigMap, Container, ContainerState, ContainerStateTerminated, ContainerStatus, EnvVar, Event,
    Namespace, Node, ObjectReference, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod,
    PodSecurityContext, PodSpec, PodStatus, PodTemplateSpec, Secret, SecurityContext, Service,
    ServiceAccount, Taint, Volume, VolumeMount,
};
pub use k8s_openapi::api::policy::v1::PodDisruptionBudget;
pub use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, LabelSelector, MicroTime, ObjectMeta, OwnerReference, Time,
};
pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
pub use kube::ResourceExt;

use crate::meta::Kind;

pub const NAMESPACE: Kind = Kind::of("", "v1", "Namespace", "namespaces", false);
pub const NODE: Kind = Kind::of("", "v1", "Node", "nodes", false);
pub const POD: Kind = Kind::of("", "v1", "Pod", "pods", true);
pub const SERVICE: Kind = Kind::of("", "v1", "Service", "services", true);
pub const SECRET: Kind = Kind::of("", "v1", "Secret", "secrets", true);
pub const CONFIG_MAP: Kind = Kind::of("", "v1", "ConfigMap", "configmaps", true);
pub const SERVICE_ACCOUNT: Kind = Kind::of("", "v1", "ServiceAccount", "serviceaccounts", true);
pub const PERSISTENT_VOLUME_CLAIM: Kind =
    Kind::of("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true);
/// Core Events; `EVENTS_EVENT` is the newer API for the same objects.
pub const EVENT: Kind = Kind::of("", "v1", "Event", "events", true);
pub const EVENTS_EVENT: Kind = Kind::of("events.k8s.io", "v1", "Event", "events", true);
pub const JOB: Kind = Kind::of("batch", "v1", "Job", "jobs", true);
pub const CRON_JOB: Kind = Kind::of("batch", "v1", "CronJob", "cronjobs", true);
pub const DEPLOYMENT: Kind = Kind::of("apps", "v1", "Deployment", "deployments", true);
pub const STATEFUL_SET: Kind = Kind::of("apps", "v1", "StatefulSet", "statefulsets", true);
pub const DAEMON_SET: Kind = Kind::of("apps", "v1", "DaemonSet", "daemonsets", true);
pub const REPLICA_SET: Kind = Kind::of("apps", "v1", "ReplicaSet", "replicasets", true);
pub const HORIZONTAL_POD_AUTOSCALER: Kind =
    Kind::of("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true);
pub const LEASE: Kind = Kind::of("coordination.k8s.io", "v1", "Lease", "leases", true);
pub const POD_DISRUPTION_BUDGET: Kind =
    Kind::of("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true);
pub const INGRESS: Kind = Kind::of("networking.k8s.io", "v1", "Ingress", "ingresses", true);
pub const NETWORK_POLICY: Kind =
    Kind::of("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true);
pub const ROLE: Kind = Kind::of("rbac.authorization.k8s.io", "v1", "Role", "roles", true);
pub const ROLE_BINDING: Kind =
    Kind::of("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true);
pub const CLUSTER_ROLE: Kind =
    Kind::of("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false);
pub const CLUSTER_ROLE_BINDING: Kind =
    Kind::of("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false);
pub const CUSTOM_RESOURCE_DEFINITION: Kind =
    Kind::of("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false);

#[cfg(test)]
mod tests {
    use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
    use kube::Resource;

    use super::*;

    fn same<K: Resource<DynamicType = ()>>(kind: &Kind, namespaced: bool) {
        assert_eq!(*kind, Kind { namespaced, ..Kind::namespaced::<K>() });
    }

    fn in_namespace<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(kind: &Kind) {
        same::<K>(kind, true);
    }

    fn in_cluster<K: Resource<DynamicType = (), Scope = ClusterResourceScope>>(kind: &Kind) {
        same::<K>(kind, false);
    }

    #[test]
    fn the_names_are_those_of_the_types() {
        in_cluster::<Namespace>(&NAMESPACE);
        in_cluster::<Node>(&NODE);
        in_namespace::<Pod>(&POD);
        in_namespace::<Service>(&SERVICE);
        in_namespace::<Secret>(&SECRET);
        in_namespace::<ConfigMap>(&CONFIG_MAP);
        in_namespace::<ServiceAccount>(&SERVICE_ACCOUNT);
        in_namespace::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIM);
        in_namespace::<Event>(&EVENT);
        in_namespace::<k8s_openapi::api::events::v1::Event>(&EVENTS_EVENT);
        in_namespace::<Job>(&JOB);
        in_namespace::<CronJob>(&CRON_JOB);
        in_namespace::<Deployment>(&DEPLOYMENT);
        in_namespace::<StatefulSet>(&STATEFUL_SET);
        in_namespace::<DaemonSet>(&DAEMON_SET);
        in_namespace::<ReplicaSet>(&REPLICA_SET);
        in_namespace::<HorizontalPodAutoscaler>(&HORIZONTAL_POD_AUTOSCALER);
        in_namespace::<Lease>(&LEASE);
        in_namespace::<PodDisruptionBudget>(&POD_DISRUPTION_BUDGET);
        in_namespace::<k8s_openapi::api::networking::v1::Ingress>(&INGRESS);
        in_namespace::<k8s_openapi::api::networking::v1::NetworkPolicy>(&NETWORK_POLICY);
        in_namespace::<Role>(&ROLE);
        in_namespace::<RoleBinding>(&ROLE_BINDING);
        in_cluster::<ClusterRole>(&CLUSTER_ROLE);
        in_cluster::<ClusterRoleBinding>(&CLUSTER_ROLE_BINDING);
        in_cluster::<CustomResourceDefinition>(&CUSTOM_RESOURCE_DEFINITION);
    }
}
