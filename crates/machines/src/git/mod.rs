//! The git door: from a commit to a Job and its result.

pub mod job_template;
pub mod workflow;
pub mod workflow_template;
