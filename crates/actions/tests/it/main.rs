//! Actions against a real API server, as their own ServiceAccounts, with rights enforced.

mod doing;
mod keeping;
mod rights;
mod world;
