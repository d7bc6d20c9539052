//! Fixtures of the git controllers' tests.

pub(crate) mod fake_github;
pub(crate) mod fixtures;
