//! Is what a KubernetesExecution asks for something that can be done, may it be asked for from where it is, and is what it
//! asks for somebody else's business?

use pawl_api::meta::Target;
use pawl_api::pawl::annotations::TARGETS;
use pawl_api::remedy::KubernetesExecutionSpec;
use serde_json::Value;

use super::KubernetesExecutions;
use crate::lock;
use crate::object::{Object, Reference};
use crate::remedy::action::{self, Order};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// All that it acts on and all that its annotation adds: they are locked together. Its own come first.
    pub(super) targets: Vec<Target>,
    /// How many of them are its own.
    pub(super) own: usize,
}

impl Wish {
    /// What stands in `status.target`.
    pub(super) fn told(&self) -> Option<String> {
        let own: Vec<String> = self.targets.iter().take(self.own).map(ToString::to_string).collect();
        (!own.is_empty()).then(|| own.join(", "))
    }
}

/// Reads what is asked for.
///
/// # Errors
/// What is wrong, naming the field, the value and what is allowed.
pub(super) fn wish(me: &Object, spec: &KubernetesExecutionSpec, order: &Order) -> Result<Wish, String> {
    let definition = action::definition(spec.action);
    definition.check(&spec.parameters).map_err(|problem| problem.to_string())?;
    let mut targets = Vec::new();
    for place in definition.targets(order, &spec.parameters) {
        let target = place.target().map_err(|error| format!("spec.parameters: {error}"))?;
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    agrees(spec, &targets)?;
    let own = targets.len();
    let listed = lock::listed(me.annotation(TARGETS).unwrap_or_default())
        .map_err(|error| format!("annotation {TARGETS}: {error}"))?;
    for target in listed {
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    if spec.timeout.is_some_and(|timeout| timeout.get().as_secs() == 0) {
        return Err("spec.timeout: it must be at least one second".to_owned());
    }
    if !(0..=5).contains(&spec.max_retries) {
        return Err(format!("spec.maxRetries: {} is not within 0..5", spec.max_retries));
    }
    Ok(Wish { targets, own })
}

/// The seed's two fields say the same as the parameters, where they say anything.
fn agrees(spec: &KubernetesExecutionSpec, targets: &[Target]) -> Result<(), String> {
    let said = [("targetNamespace", &spec.target_namespace), ("resourceName", &spec.resource_name)];
    for (field, value) in said {
        let Some(value) = value else { continue };
        let fits = targets.iter().any(|target| match field {
            "targetNamespace" => target.namespace() == Some(value),
            _ => target.as_object().is_some_and(|object| object.name() == value),
        });
        if !fits {
            let meant: Vec<String> = targets.iter().map(ToString::to_string).collect();
            return Err(format!(
                "spec.{field}: {value:?} does not agree with the parameters, which name {}",
                meant.join(", ")
            ));
        }
    }
    Ok(())
}

/// Why no action touches this: its namespace is protected.
pub(super) fn protected_by_name(settings: &KubernetesExecutions, targets: &[Target]) -> Option<String> {
    targets.iter().find_map(|target| {
        let itself =
            target.as_object().filter(|object| object.kind() == "namespace").map(|object| object.name());
        let namespace = target.namespace().or(itself)?;
        let own = [&settings.system_namespace, &settings.executor.namespace];
        let protected = own.into_iter().chain(&settings.protected_namespaces);
        protected
            .into_iter()
            .any(|one| one == namespace)
            .then(|| format!("{target} is in the namespace {namespace}, whose objects no action touches"))
    })
}

/// Labels by which a node of the control plane is known.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The same: it is a node of the control plane.
pub(super) fn protected_by_role(place: &Reference, object: &Value) -> Option<String> {
    let labels = object.pointer("/metadata/labels")?.as_object()?;
    let role = CONTROL_PLANE.iter().find(|role| labels.contains_key(**role))?;
    (*place.kind.kind == *"Node").then(|| format!("{place} is of the control plane ({role})"))
}

/// Marks that Argo CD and Flux put on what they manage, and whose they are.
const GITOPS_LABELS: [(&str, &str); 3] = [
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
];
const GITOPS_ANNOTATIONS: [(&str, &str); 2] =
    [("argocd.argoproj.io/tracking-id", "Argo CD"), ("argocd.argoproj.io/installation-id", "Argo CD")];

/// Who manages an object, as its marks say.
pub(super) fn managed_by(object: &Value) -> Option<String> {
    let marked = |at: &str, marks: &[(&str, &str)]| {
        let set = object.pointer(at)?.as_object()?;
        let (mark, tool) = marks.iter().find(|(mark, _)| set.contains_key(*mark))?;
        let value = set.get(*mark).and_then(Value::as_str).unwrap_or_default();
        Some(format!("{tool} ({mark}: {value})"))
    };
    marked("/metadata/labels", &GITOPS_LABELS)
        .or_else(|| marked("/metadata/annotations", &GITOPS_ANNOTATIONS))
}
