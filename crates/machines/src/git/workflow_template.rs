//! Can a WorkflowTemplate be used: is its job a Job, and do its dependencies lead anywhere?

use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::git::workflow_template::{KIND, VALID};
use pawl_api::git::{WorkflowTemplate, WorkflowTemplateStatus};
use pawl_api::meta::{NewCondition, Reason, condition};

use crate::dag::{self, Node};
use crate::machine::{Depth, Description, Machine, Primary, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Note, Plan};
use crate::view::{Input, View};

/// Says of each template whether it is valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Templates;

/// A template, and how the templates of its namespace depend on each other.
#[derive(Debug)]
pub struct Observed {
    me: Arc<Object>,
    template: Arc<WorkflowTemplate>,
    /// Those that are there and well-formed, by name, each with what it depends on.
    all: Vec<(String, Vec<String>)>,
}

impl Machine for Templates {
    type Kind = WorkflowTemplate;
    type Observed = Observed;
    type Status = WorkflowTemplateStatus;

    fn description(&self) -> Description {
        Description {
            name: "workflow-template",
            primary: Primary::One(KIND),
            depth: Depth::Full,
            watches: vec![Watch::other(KIND, those_with_dependencies)],
            finalizer: None,
            phases: None,
            writes: vec![Write::status(KIND)],
        }
    }

    fn observe(&self, input: &Input<'_>, template: &Arc<WorkflowTemplate>) -> Observed {
        let me = Arc::clone(input.me);
        // Without dependencies of its own, what others depend on does not matter.
        let beside =
            if template.spec.depends_on.is_empty() { vec![] } else { input.view.list(&KIND, me.namespace()) };
        let all = beside.iter().filter_map(|other| {
            let typed = other.parse::<WorkflowTemplate>().ok()?;
            Some((other.name().to_owned(), typed.spec.depends_on.clone()))
        });
        Observed { all: all.collect(), template: Arc::clone(template), me }
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Plan<WorkflowTemplateStatus> {
        let Observed { me, template, .. } = observed;
        let mut status = template.status.clone().unwrap_or_default();
        let generation = me.meta().generation;
        status.observed_generation = generation;
        let problem = problem(observed);
        let told = condition::get(&status.conditions, VALID).map(|one| one.message.clone());
        let new = match &problem {
            None => NewCondition::yes(VALID, Reason::Valid, "the template can be used"),
            Some((reason, message)) => NewCondition::no(VALID, *reason, message.clone()),
        };
        condition::set(&mut status.conditions, new, generation, now);
        let plan = Plan::rest().status(status);
        match problem {
            Some((reason, message)) if told.as_ref() != Some(&message) => {
                plan.note(Note::warning(reason, message))
            }
            _ => plan,
        }
    }
}

fn problem(observed: &Observed) -> Option<(Reason, String)> {
    let me = observed.me.name();
    let spec = &observed.template.spec;
    match spec.job.parse() {
        Err(error) => return Some((Reason::BadJob, format!("spec.job: {error}"))),
        Ok(job) if job.template.spec.as_ref().is_none_or(|pod| pod.containers.is_empty()) => {
            return Some((
                Reason::BadJob,
                "spec.job.template.spec.containers: at least one is needed".to_owned(),
            ));
        }
        Ok(_) => {}
    }
    let nodes: Vec<Node<'_>> = observed
        .all
        .iter()
        .map(|(name, depends_on)| Node::new(name, depends_on.iter().map(String::as_str)))
        .collect();
    let problems = dag::classes(&nodes).err()?;
    if let Some(cycle) = problems.cycles.iter().find(|cycle| cycle.iter().any(|name| name == me)) {
        let path = cycle.join(" -> ");
        let first = cycle.first().map(String::as_str).unwrap_or_default();
        return Some((Reason::DependencyCycle, format!("spec.dependsOn: {path} -> {first} is a cycle")));
    }
    let missing: Vec<&str> = spec
        .depends_on
        .iter()
        .map(String::as_str)
        .filter(|wanted| observed.all.iter().all(|(name, _)| name != wanted))
        .collect();
    (!missing.is_empty()).then(|| {
        (
            Reason::DependencyUnknown,
            format!("spec.dependsOn: no WorkflowTemplate {} here", missing.join(", ")),
        )
    })
}

/// A template that comes, goes or is edited can make or mend the dependencies of others in its namespace.
fn those_with_dependencies(changed: &Object, view: &dyn View) -> Vec<Key> {
    let beside = view.list(&KIND, changed.namespace());
    let depending = beside.iter().filter(|object| {
        object.parse::<WorkflowTemplate>().is_ok_and(|template| !template.spec.depends_on.is_empty())
    });
    depending.map(|object| object.key()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::testing::Cluster;
    use serde_json::json;

    /// What is said of template `a` among templates `name<dependency,…`.
    fn check(line: &str, job: &serde_json::Value, expect: (&str, &str, &str)) {
        let mut cluster = Cluster::of(&[KIND], "");
        for one in line.split_whitespace() {
            let (name, depends_on) = one.split_once('<').unwrap_or((one, ""));
            let depends_on: Vec<&str> = depends_on.split(',').filter(|name| !name.is_empty()).collect();
            cluster.put(
                json!({"kind": "WorkflowTemplate", "metadata": {"name": name}, "spec": {"displayName": name,
                "match": {"paths": ["**"]}, "job": job, "dependsOn": depends_on}}),
            );
        }
        cluster.settle(&[AnyMachine::new(Templates)]);
        let status =
            cluster.get(&KIND, &Key::new(Some("n"), "a")).unwrap()["status"]["conditions"][0].clone();
        let text = |field: &str| status[field].as_str().unwrap().to_owned();
        assert_eq!(
            (text("status").as_str(), text("reason").as_str(), text("message").as_str()),
            expect,
            "{line}"
        );
    }

    fn job() -> serde_json::Value {
        json!({"template": {"spec": {"containers": [{"name": "main"}]}}})
    }

    #[test]
    fn a_template_is_valid_when_its_job_is_one_and_its_dependencies_are_there() {
        check("a<b b", &job(), ("True", "Valid", "the template can be used"));
        check(
            "a",
            &json!({"template": {"spec": {"containers": []}}}),
            ("False", "BadJob", "spec.job.template.spec.containers: at least one is needed"),
        );
        check(
            "a<x,b,y b",
            &job(),
            ("False", "DependencyUnknown", "spec.dependsOn: no WorkflowTemplate x, y here"),
        );
    }

    #[test]
    fn a_cycle_makes_its_members_invalid_and_shows_the_way_round() {
        check(
            "b<c c<a a<b",
            &job(),
            ("False", "DependencyCycle", "spec.dependsOn: a -> b -> c -> a is a cycle"),
        );
        check("a<b b<c c<b", &job(), ("True", "Valid", "the template can be used"));
    }
}
