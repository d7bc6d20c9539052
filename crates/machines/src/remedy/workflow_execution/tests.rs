use serde_json::{Value, json};

use super::ending::CLEANUP_LIMIT;
use super::*;
use crate::lock::reaper::Reaper;
use crate::machine::AnyMachine;
use crate::object::Key;
use crate::remedy::testing::{Lab, engine_job, key, run_key};

mod ends;
mod gates;
mod runs;
