//! What all kinds share: how a kind is named, conditions, gates, phases, targets, names.

pub mod condition;
pub mod duration;
pub mod gate;
pub mod kind;
pub mod names;
pub mod phase;
pub mod quantity;
pub mod reason;
pub mod reference;
pub mod schema;
pub mod target;
pub mod text;

pub use condition::{Condition, NewCondition};
pub use duration::Duration;
pub use gate::{Gate, GateName, Verdict};
pub use kind::Kind;
pub use phase::Phase;
pub use reason::Reason;
pub use target::Target;
