//! What does a strategic merge patch make of an object?
