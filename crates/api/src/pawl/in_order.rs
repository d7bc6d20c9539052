//! How does a Pod ask for its containers to run one after another?
//!
//! Kubernetes starts the containers of a Pod together. With this annotation Pawl's own runner starts each one when the
//! one before it is over, and a failure ends the Pod. Any other kubelet ignores it, so only who knows which runner there
//! is may write it.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Holds an [`InOrder`] as JSON.
pub const ANNOTATION: &str = "pawl.dev/run-in-order";

/// What is done between two containers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InOrder {
    /// The containers whose failure does not matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub go_on_after: Vec<String>,
    /// What a container leaves behind for others to read.
    pub report: Option<Report>,
    /// A volume, mounted read-only, into which `<container>/exitCode` is written when a container is over.
    pub exit_codes: Option<String>,
}

/// Files of a volume that become a container's termination message, as a list of [`Reported`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    pub volume: String,
    /// Names of files at the volume's top; those that are not there are left out.
    pub files: Vec<String>,
}

/// One file of a report. The shape is that of Tekton's own entrypoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    pub key: String,
    pub value: String,
    /// A task's result.
    #[serde(rename = "type")]
    pub type_: u8,
}

impl Reported {
    /// Tekton's number for a result of a task.
    pub const RESULT: u8 = 1;
}

impl InOrder {
    /// What an annotation says; `None` if it is no such thing.
    pub fn read(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }
}
