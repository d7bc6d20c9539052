//! A Kubernetes API server that knows none of our kinds.
