//! The git door: from a commit to a Job and its result.

pub mod delivery;
pub mod explain;
pub mod github;
pub mod glob;
pub mod job_template;
pub mod matching;
pub mod workflow;
pub mod workflow_template;

use crate::machine::AnyMachine;

/// The machines of this door: they run against any Kubernetes.
pub fn machines() -> Vec<AnyMachine> {
    vec![AnyMachine::new(workflow_template::Templates), AnyMachine::new(workflow::Workflows::default())]
}
