//! The deploy door: Installation → Execution → DeployItem.

pub mod blueprint;
