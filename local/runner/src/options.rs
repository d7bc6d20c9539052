//! How is a runner set up?

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::docker::Engine;
use crate::isolate::Isolation;
use crate::life::Timing;

/// The one clock (I8).
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How a runner is set up.
#[derive(Clone)]
pub struct Options {
    /// Pods, logs and claims live below it.
    pub data_dir: PathBuf,
    pub node_name: String,
    /// What is started for every container, and what our own image stands for.
    pub own_executable: PathBuf,
    /// The arguments that lead `own_executable` to [`crate::init_main`].
    pub container_arguments: Vec<OsString>,
    /// Names of our own image, without tag.
    pub own_images: Vec<String>,
    /// Where images are looked for: OCI layouts and archives. It need not exist.
    pub images: PathBuf,
    pub allow_host_path: bool,
    /// Claims, as `namespace/name`, that stand for directories of this machine. They are used as they are, whether there
    /// is such an object or not, and nothing in them is ever removed.
    pub directories: BTreeMap<String, PathBuf>,
    /// Pods of Deployments and the like run too.
    pub run_workloads: bool,
    /// Containers share the machine's network.
    pub network: bool,
    /// What runs containers of images other than our own; `None`: they are processes of this machine.
    pub engine: Option<Engine>,
    /// What containers are isolated by; `None`: as much as the machine allows.
    pub isolation: Option<Isolation>,
    /// The API server's host and port, for `KUBERNETES_SERVICE_HOST` and `_PORT`.
    pub service: Option<(String, u16)>,
    /// How long containers are asked before they are killed when Pawl stops.
    pub shutdown_grace: SignedDuration,
    pub timing: Timing,
    pub clock: Clock,
}

impl Options {
    pub fn new(data_dir: impl Into<PathBuf>, own_executable: impl Into<PathBuf>) -> Self {
        let data_dir = data_dir.into();
        Self {
            images: data_dir.join("images"),
            data_dir,
            node_name: "pawl".to_owned(),
            own_executable: own_executable.into(),
            container_arguments: vec!["run-container".into()],
            own_images: vec!["pawl".to_owned()],
            allow_host_path: false,
            directories: BTreeMap::new(),
            run_workloads: false,
            network: true,
            engine: None,
            isolation: None,
            service: None,
            shutdown_grace: SignedDuration::from_secs(5),
            timing: Timing::default(),
            clock: Arc::new(Timestamp::now),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("data_dir", &self.data_dir)
            .field("node_name", &self.node_name)
            .finish_non_exhaustive()
    }
}
