//! Whose power has an execution: may it act on these targets from where it is?

use pawl_api::meta::Target;
use pawl_api::pawl::labels::ALLOW_FROM;

use crate::cluster::namespace::{NAMESPACE, lets_in};
use crate::object::{Key, Object, Reference};
use crate::plan::Step;
use crate::view::View;

/// Somebody else's namespace that does not let this execution in.
#[derive(Debug)]
pub(super) struct NotAllowed {
    pub(super) message: String,
    /// The namespace as it was seen: a cache that lags must not end anything.
    pub(super) seen: Option<Box<Step>>,
}

/// A unit acts in its own namespace, and in those that say so; on what belongs to no namespace only from the system's.
/// `runs_in` is the namespace of its run, where it chooses one.
pub(super) fn power(
    view: &dyn View,
    system_namespace: &str,
    me: &Object,
    targets: &[Target],
    runs_in: Option<&str>,
) -> Result<(), NotAllowed> {
    let home = me.namespace().unwrap_or_default();
    if home == system_namespace {
        return Ok(());
    }
    let cluster_scoped =
        |target: &&Target| target.as_object().is_some_and(|object| object.namespace().is_none());
    if let Some(target) = targets.iter().find(cluster_scoped) {
        let message =
            format!("{target} belongs to no namespace; only executions in {system_namespace} may act on it");
        return Err(NotAllowed { message, seen: None });
    }
    let elsewhere = targets.iter().filter_map(Target::namespace).chain(runs_in).find(|namespace| {
        let there = view.get(&NAMESPACE, &Key::new(None, namespace));
        *namespace != home && !lets_in(there.as_deref(), home)
    });
    match elsewhere {
        None => Ok(()),
        Some(namespace) => Err(NotAllowed {
            message: format!("the namespace {namespace} is not labelled {ALLOW_FROM}: {home}"),
            seen: Some(Box::new(as_seen(view, namespace))),
        }),
    }
}

fn as_seen(view: &dyn View, namespace: &str) -> Step {
    let key = Key::new(None, namespace);
    match view.get(&NAMESPACE, &key) {
        Some(seen) => Step::confirm_unchanged(&seen),
        None => Step::confirm_gone(Reference { kind: NAMESPACE, key, uid: String::new() }),
    }
}
