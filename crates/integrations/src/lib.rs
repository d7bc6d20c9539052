//! x
pub mod github {
    pub mod webhook;
}
pub mod webhook;
