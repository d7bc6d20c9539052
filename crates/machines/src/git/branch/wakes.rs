//! Whose change concerns which Branch? Few others' changes do, so that what happens to one costs what it has.

use pawl_api::git::branch::{KIND, ResultState};
use pawl_api::git::{Branch, Workflow, WorkflowTemplate, annotations, labels, workflow};
use pawl_api::meta::Phase as _;

use super::others_at;
use crate::object::{Key, Object};
use crate::view::View;

/// What a Workflow does on its way does not concern its Branch: that it is there, that somebody wants it again, and its end
/// do.
pub(super) fn of_a_workflow_that_counts(object: &Object, view: &dyn View) -> Vec<Key> {
    let Some(owner) = object.controller().filter(|owner| owner.kind == KIND.kind) else { return vec![] };
    let on_its_way = |workflow: &Workflow| {
        let phase = workflow.status.as_ref().and_then(|status| status.phase);
        phase.is_some_and(|phase| !phase.is_terminal())
    };
    let is_there = view.get(&workflow::KIND, &object.key()).is_some_and(|now| now.uid() == object.uid());
    let quiet = is_there && !object.is_deleting() && object.annotation(annotations::RERUN).is_none();
    if quiet && object.parse::<Workflow>().is_ok_and(|workflow| on_its_way(&workflow)) {
        return vec![];
    }
    vec![Key::new(object.namespace(), &owner.name)]
}

pub(super) fn at_the_same_commit(changed: &Object, view: &dyn View) -> Vec<Key> {
    let Some(sha) = changed.label(labels::SHA) else { return vec![] };
    others_at(view, changed, sha).iter().map(|other| other.key()).collect()
}

/// A Repository changes with every look at GitHub that finds something; few of its Branches wait for that.
pub(super) fn waiting_for_it(repository: &Object, view: &dyn View) -> Vec<Key> {
    let mut all = view.owned(&KIND, repository.uid());
    all.retain(|object| {
        object.parse::<Branch>().map_or(true, |branch| {
            let sha = branch.spec.sha.as_str();
            let result = branch.status.as_ref().and_then(|status| status.result.as_ref());
            let state = result.filter(|result| result.sha == sha).map(|result| result.state);
            object.annotation(annotations::LAST_SHA) != Some(sha)
                || match state {
                    // Its rules may have changed.
                    Some(ResultState::ActionRequired | ResultState::Denied | ResultState::Skipped) => true,
                    // A commit waits for the cursor to pass it.
                    Some(ResultState::Succeeded | ResultState::Failed | ResultState::Cancelled) => {
                        branch.spec.sequence.is_some()
                    }
                    Some(ResultState::Running) | None => false,
                }
        })
    });
    all.iter().map(|object| object.key()).collect()
}

/// A template that is to be run for open pull requests too.
pub(super) fn with_a_pull_request(template: &Object, view: &dyn View) -> Vec<Key> {
    if !template.parse::<WorkflowTemplate>().is_ok_and(|template| template.spec.backfill) {
        return vec![];
    }
    let mut all = view.list(&KIND, template.namespace());
    all.retain(|object| object.parse::<Branch>().is_ok_and(|branch| branch.spec.pull_request().is_some()));
    all.iter().map(|object| object.key()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;
    use serde_json::{Value, json};

    #[test]
    fn a_branch_hears_of_its_workflows_beginning_and_end_and_of_whoever_wants_one_again() {
        let heard = |more: Value, there: bool| {
            let mut manifest = json!({"kind": "Workflow", "metadata": {"name": "w", "namespace": "n", "uid": "w",
                "ownerReferences": [{"apiVersion": "terrakojo.io/v1alpha1", "kind": "Branch", "name": "b", "uid": "b",
                    "controller": true}]},
                "spec": {"branch": "b", "owner": "o", "repository": "r", "sha": "0".repeat(40), "template": "t",
                    "path": "p"}});
            crate::testing::merge(&mut manifest, &more);
            let mut cluster = Cluster::of(&[workflow::KIND], "");
            cluster.put(manifest);
            let key = Key::new(Some("n"), "w");
            let object = cluster.world.get(&workflow::KIND, &key).unwrap();
            if !there {
                cluster.world.remove(&workflow::KIND, &key);
            }
            of_a_workflow_that_counts(&object, &cluster.world) == [Key::new(Some("n"), "b")]
        };
        let phase = |phase: &str| json!({"status": {"phase": phase}});
        assert!(heard(json!({}), true), "it was made");
        assert!(!heard(phase("Pending"), true) && !heard(phase("Running"), true), "it is on its way");
        assert!(
            heard(phase("Succeeded"), true)
                && heard(phase("Failed"), true)
                && heard(phase("Cancelled"), true)
        );
        assert!(heard(phase("Running"), false), "it is gone");
        let mut again = phase("Running");
        again["metadata"] = json!({"annotations": {annotations::RERUN: "delivery"}});
        assert!(heard(again, true), "somebody wants it again");
    }
}
