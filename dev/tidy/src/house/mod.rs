//! The rules, by what they are about.

pub mod acceptance;
pub mod actions;
pub mod files;
pub mod generated;
pub mod invariants;
pub mod origin;
pub mod rooms;
pub mod source;
mod tokens;
pub mod unused;
pub mod writing;
