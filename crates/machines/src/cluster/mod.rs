//! What the embedded server needs and a real cluster brings along: the controllers of Kubernetes' own kinds.

pub mod garbage;
pub mod job;
pub mod namespace;
