use std::time::Duration;

use pawl_api::k8s::{DEPLOYMENT, NODE, SECRET};
use pawl_api::remedy::kubernetes_execution::KIND;
use serde_json::{Value, json};

use super::*;
use crate::object::Key;
use crate::remedy::testing::actions::{Acts, EXECUTOR, condition, key};
use crate::testing::merge;

mod approving;
mod ending;
mod rolling_back;
mod running;
mod validating;
