//! A Kubernetes API server that knows none of our kinds.

pub mod apply;
pub mod schema;
pub mod validation;
