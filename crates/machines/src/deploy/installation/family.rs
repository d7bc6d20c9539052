//! What has an Installation made, and how does each of it stand in the job: its Execution and its sub-Installations?
//!
//! Sub-Installations run in the order of their imports and exports, as the objects themselves say it: a blueprint that
//! changes during a job waits for the next one. The Execution waits for none of them and none of them for it.

use std::sync::Arc;

use pawl_api::deploy::installation::{KIND, SubinstallationRef};
use pawl_api::deploy::{Installation, InstallationPhase, annotations, execution, operations};
use pawl_api::meta::{Phase, Reason};
use serde_json::json;

use super::Facts;
use crate::deploy::blueprint::exporters;
use crate::deploy::graph::{Graph, Standing};
use crate::deploy::job::{self, Jobs};
use crate::deploy::tree::Says;
use crate::object::{Key, Object, Reference};
use crate::plan::{Part, Step};
use crate::view::View;

/// How many of them a message names.
const MAX_NAMED: usize = 5;

/// The Execution, or a sub-Installation.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) object: Arc<Object>,
    /// `None` for the Execution, and for what does not have the shape of an Installation.
    child: Option<Arc<Installation>>,
    pub(super) says: Says,
}

#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) execution: Option<Member>,
    /// In the order of their names.
    pub(super) children: Vec<Member>,
}

/// Members that go one way together, by number.
#[derive(Debug)]
pub(super) struct Side<'a> {
    pub(super) graph: Graph,
    pub(super) standing: Vec<Standing>,
    members: Vec<(String, Option<&'a Member>)>,
}

/// All that this Installation controls.
pub(super) fn read(view: &dyn View, me: &Object) -> Family {
    let execution = view.get(&execution::KIND, &me.key()).filter(|object| object.is_controlled_by(me));
    let children = view.controlled(&KIND, me).into_iter();
    Family {
        execution: execution.map(|object| Member::of(object, None)),
        children: children
            .map(|object| {
                let child = object.parse::<Installation>().ok();
                Member::of(object, child)
            })
            .collect(),
    }
}

impl Family {
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.execution.iter().chain(&self.children)
    }
}

impl Member {
    fn of(object: Arc<Object>, child: Option<Arc<Installation>>) -> Self {
        let says = Says::of(&object);
        Self { object, child, says }
    }

    /// As people call it.
    fn name(&self) -> String {
        if *self.object.kind() == execution::KIND {
            return EXECUTION.to_owned();
        }
        let given = self.object.annotation(annotations::SUBINSTALLATION_NAME);
        shown(given.unwrap_or(self.object.name()))
    }

    pub(super) fn jobs(&self) -> Jobs<'_> {
        self.says.jobs()
    }

    fn in_job(&self, job: &str) -> Standing {
        if self.jobs().running().is_some() {
            return Standing::Running;
        }
        if self.says.job_id.as_deref() != Some(job) {
            return Standing::Waiting;
        }
        // Both kinds call it that.
        let succeeded = self.says.phase.as_deref() == Some(InstallationPhase::Succeeded.as_str());
        if succeeded { Standing::Done } else { Standing::Failed }
    }

    /// How it stands if it is to be there.
    fn building(&self, job: &str) -> Standing {
        match self.in_job(job) {
            // What is on its way out will not be installed any more in this job.
            Standing::Waiting if self.object.is_deleting() => Standing::Failed,
            standing @ (Standing::Waiting | Standing::Running | Standing::Done | Standing::Failed) => {
                standing
            }
        }
    }

    /// How it stands if it is to go.
    fn leaving(&self, job: &str) -> Standing {
        match self.in_job(job) {
            // It is only about to be told that it goes.
            _ if !self.object.is_deleting() => Standing::Running,
            // Finished is not gone.
            Standing::Done => Standing::Failed,
            standing @ (Standing::Waiting | Standing::Running | Standing::Failed) => standing,
        }
    }

    /// The wish to end this job here and now, unless it was handed on already.
    pub(super) fn interrupt(&self, job: &str) -> Option<Step> {
        let asked = self.object.annotation(annotations::OPERATION) == Some(operations::INTERRUPT)
            || job::is_interrupted(&self.object, self.jobs());
        (self.jobs().running() == Some(job) && !asked).then(|| {
            let wish = json!({"metadata": {"annotations": {annotations::OPERATION: operations::INTERRUPT}}});
            patch(&self.object, wish, Part::Main)
        })
    }

    /// What went wrong with it, after its name.
    fn told(&self) -> String {
        let name = self.name();
        match &self.says.last_error {
            // An Installation without children speaks as its Execution does.
            Some(error) if name == EXECUTION => format!("{}: {}", error.reason, error.message),
            Some(error) => format!("{name}: {}: {}", error.reason, error.message),
            None if self.object.is_deleting() => format!("{name} is being deleted"),
            None => format!("{name} failed and does not say why"),
        }
    }
}

const EXECUTION: &str = "the Execution";

fn shown(name: &str) -> String {
    format!("sub-Installation {name}")
}

impl<'a> Side<'a> {
    /// All that this job is to bring about: what is missing has failed.
    pub(super) fn building(facts: &'a Facts<'a>, refs: &[SubinstallationRef], job: &str) -> Self {
        let family = &facts.family;
        let mut members = vec![(EXECUTION.to_owned(), family.execution.as_ref())];
        members.extend(refs.iter().map(|wanted| {
            let found = family.children.iter().find(|child| child.object.name() == wanted.reference.name);
            (shown(&wanted.name), found)
        }));
        let standing = |member: Option<&Member>| member.map_or(Standing::Failed, |one| one.building(job));
        let standing = members.iter().map(|(_, member)| standing(*member)).collect();
        Self { graph: graph_of(&members), standing, members }
    }

    /// What is to go.
    pub(super) fn leaving(members: impl IntoIterator<Item = &'a Member>, job: &str) -> Self {
        let members: Vec<_> = members.into_iter().map(|member| (member.name(), Some(member))).collect();
        let standing = members.iter().flat_map(|(_, member)| member).map(|one| one.leaving(job)).collect();
        Self { graph: graph_of(&members), standing, members }
    }

    pub(super) fn get(&self, at: usize) -> Option<&'a Member> {
        self.members.get(at).and_then(|(_, member)| *member)
    }

    pub(super) fn names(&self, those: &[usize]) -> String {
        let names = those.iter().filter_map(|at| self.members.get(*at)).map(|(name, _)| name.as_str());
        listed(&names.collect::<Vec<_>>())
    }

    /// What became of these, and why as one word.
    pub(super) fn told(&self, those: &[usize]) -> (Reason, String) {
        let members: Vec<&(String, Option<&Member>)> =
            those.iter().filter_map(|at| self.members.get(*at)).collect();
        let one = |(name, member): &(String, Option<&Member>)| match member {
            Some(member) => member.told(),
            None => format!("{name} is gone"),
        };
        let mut list =
            members.iter().take(MAX_NAMED).map(|member| one(member)).collect::<Vec<_>>().join("; ");
        if members.len() > MAX_NAMED {
            list.push_str(&format!("; and {} more", members.len() - MAX_NAMED));
        }
        let interrupted = members.iter().filter_map(|(_, member)| member.as_ref()).any(|member| {
            member.says.last_error.as_ref().is_some_and(|error| error.reason == Reason::Interrupted.as_str())
        });
        let reason = if interrupted {
            Reason::Interrupted
        } else if members.iter().any(|(name, _)| name == EXECUTION) {
            Reason::ExecutionFailed
        } else {
            Reason::SubinstallationFailed
        };
        (reason, list)
    }

    /// A cache that has not seen something is no proof that it is missing: these are asked for.
    pub(super) fn missing(&self, facts: &Facts<'_>, refs: &[SubinstallationRef]) -> Vec<Step> {
        let gone = |kind, name: &str| {
            let key = Key::new(facts.cx.object.namespace(), name);
            Step::confirm_gone(Reference { kind, key, uid: String::new() })
        };
        let absent = |at: usize| self.members.get(at).is_some_and(|(_, member)| member.is_none());
        let execution = absent(0).then(|| gone(execution::KIND, facts.cx.object.name()));
        let children = refs.iter().enumerate().filter(|(at, _)| absent(at + 1));
        execution
            .into_iter()
            .chain(children.map(|(_, wanted)| gone(KIND, &wanted.reference.name)))
            .take(MAX_NAMED)
            .collect()
    }
}

/// Who imports from whom.
fn graph_of(members: &[(String, Option<&Member>)]) -> Graph {
    let children = members.iter().map(|(_, member)| member.and_then(|member| member.child.as_ref()));
    Graph::of(exporters(&children.map(|child| child.map(|child| &child.spec)).collect::<Vec<_>>()))
}

/// `a, b and 3 more`.
pub(super) fn listed(names: &[&str]) -> String {
    let mut text = names.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMED {
        text.push_str(&format!(" and {} more", names.len() - MAX_NAMED));
    }
    text
}

pub(super) fn give_job(found: &Arc<Object>, job: &str) -> Step {
    patch(found, json!({"status": {"jobID": job}}), Part::Status)
}

/// Only to the version that was seen: so nothing gets a job twice, and nobody's writing is overwritten.
pub(super) fn patch(found: &Arc<Object>, patch: serde_json::Value, part: Part) -> Step {
    Step::patch_unchanged(found, patch).in_part(part)
}
