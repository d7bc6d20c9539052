//! The port to Tekton bundles: images on this machine whose layers are pipelines and tasks.

use std::path::PathBuf;

use futures::future::BoxFuture;
use pawl_engine::outside::{Nobody, Outside};
use pawl_machines::failure::{Category, Failure};
use pawl_machines::outside::{BundleEntry, Call, Reply};
use pawl_runner::oci::bundle;
use serde_json::Value;

/// Reads bundles from the OCI layouts and archives in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Bundles {
    pub(crate) directory: PathBuf,
}

impl Outside for Bundles {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        match call {
            Call::Bundle(entry) => {
                let (directory, entry) = (self.directory.clone(), entry.clone());
                Box::pin(async move {
                    let read = tokio::task::spawn_blocking(move || read(&directory, &entry)).await;
                    let read = read.unwrap_or_else(|error| Err(error.to_string()));
                    read.map(Reply::Bundle).map_err(|message| Failure {
                        attempt: call.to_string(),
                        category: Category::Permanent,
                        reason: "NoBundle".to_owned(),
                        message,
                        retry_after: None,
                    })
                })
            }
            Call::GitHub(_) | Call::Logs(_) | Call::Cluster(_) | Call::Action(_) | Call::Safety(_) => {
                Nobody.call(call)
            }
        }
    }
}

fn read(directory: &std::path::Path, entry: &BundleEntry) -> Result<Value, String> {
    let bytes = bundle::read(directory, &entry.bundle, &entry.kind, &entry.name)
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "invalid runtime object: not UTF-8".to_owned())?;
    let object: Value =
        serde_saphyr::from_str(&text).map_err(|error| format!("invalid runtime object: {error}"))?;
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    if !kind.eq_ignore_ascii_case(&entry.kind) {
        return Err(format!("invalid runtime object: a {} was expected, {kind:?} is there", entry.kind));
    }
    Ok(object)
}
