//! What does a blueprint make of its imports?

pub mod template;
mod yaml;
