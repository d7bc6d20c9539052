//! What do others hold in their hands?

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::access::{self, Access, Identity};
use crate::env::Env;
use crate::http::{PodLogs, Reply, Service, answer, body, refusal};
use crate::resources::crd;
use crate::status::Status;
use crate::store::{ChangeType, Compacted, Event, Ids, Limits, Object, OpenError, Options, Place, Store};
use crate::verbs::Core;

/// Namespaces every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// A Kubernetes API server. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct Server {
    core: Arc<Core>,
    logs: Option<Arc<dyn PodLogs>>,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    event: Arc<Event>,
}

impl Change {
    /// The revision it made: the object's resourceVersion.
    pub fn revision(&self) -> u64 {
        self.event.object.revision
    }

    /// What changed is one of these.
    pub fn ids(&self) -> &Arc<Ids> {
        &self.event.object.ids
    }

    /// What happened to it.
    pub fn change(&self) -> ChangeType {
        self.event.change
    }

    /// The object as it is now; for a deletion as it was last.
    pub fn object(&self) -> &Arc<Object> {
        &self.event.object
    }

    /// The same, parsed.
    pub fn value(&self) -> Value {
        self.event.object.value()
    }
}

impl Server {
    /// A server that forgets everything when it is dropped. No threads, no files, no clock but `env`.
    pub fn in_memory(env: Arc<dyn Env>) -> Server {
        Server::in_memory_with(env, Limits::default())
    }

    /// The same, with other limits on the kept history.
    pub fn in_memory_with(env: Arc<dyn Env>, limits: Limits) -> Server {
        Server::start(Store::in_memory(limits), env)
    }

    /// A copy in memory that goes its own way from here, with a time and chance of its own. A thousand worlds can start
    /// from one without making it a thousand times.
    #[must_use]
    pub fn fork(&self, env: Arc<dyn Env>) -> Server {
        Server { core: Arc::new(self.core.fork(env)), logs: None }
    }

    /// A server that keeps everything in a directory, as it was left there.
    pub fn open(dir: &Path, env: Arc<dyn Env>, options: Options) -> Result<Server, OpenError> {
        Ok(Server::start(Store::open(dir, options)?, env))
    }

    fn start(store: Store, env: Arc<dyn Env>) -> Server {
        let server = Server { core: Arc::new(Core::new(store, env)), logs: None };
        let namespaces = NAMESPACES.map(|name| {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            ("/api/v1/namespaces", namespace)
        });
        server.make_first(namespaces);
        server
    }

    /// Makes what every cluster begins with, unless it is there, and waits for all of it at once.
    fn make_first(&self, objects: impl IntoIterator<Item = (&'static str, Value)>) {
        let mut durable = 0;
        for (path, object) in objects {
            let (response, revision) = self.begin(&post_to(path), object.to_string().as_bytes());
            durable = revision.max(durable);
            // One that is there already is its owner's.
            if !matches!(response.status().as_u16(), 201 | 409) {
                let name = object.pointer("/metadata/name").and_then(Value::as_str);
                tracing::error!(name, status = %response.status(), "a first object could not be made");
            }
        }
        // A store that cannot be written says so on every write.
        if let Err(error) = self.core.store.wait(durable) {
            tracing::error!(%error, "the first objects could not be kept");
        }
    }

    /// What a request comes to, and when that is safe.
    fn begin(&self, request: &Parts, body: &[u8]) -> (Response<Bytes>, u64) {
        match answer(&self.core, &Identity::server(), request, body) {
            Ok((Reply::Whole(response), durable)) => (response, durable),
            Ok((Reply::Watch(..), durable)) => {
                let why = "a watch is a stream: ask the service, or ask for changes";
                (refusal(&Status::bad_request(why)), durable)
            }
            Err(status) => (refusal(&status), 0),
        }
    }

    /// One unary request, answered synchronously; no runtime needed. A durable store is waited for.
    pub fn call(&self, request: Request<Bytes>) -> Response<Bytes> {
        let (parts, sent) = request.into_parts();
        if sent.len() > body::MAX_BODY_BYTES {
            return refusal(&body::too_large());
        }
        let (response, durable) = self.begin(&parts, &sent);
        match self.core.store.wait(durable) {
            Ok(()) => response,
            Err(failed) => refusal(&Status::internal(failed.to_string())),
        }
    }

    /// Everything that changed after `since`, in all resources.
    pub fn changes(&self, since: u64) -> Result<Vec<Change>, Compacted> {
        Ok(self.core.store.changes(since)?.into_iter().map(|event| Change { event }).collect())
    }

    /// The last revision that can be seen.
    pub fn revision(&self) -> u64 {
        self.core.store.revision()
    }

    /// Answers `pods/log` from there.
    #[must_use]
    pub fn with_logs(mut self, logs: Arc<dyn PodLogs>) -> Server {
        self.logs = Some(logs);
        self
    }

    /// Tells of definitions that clients create in the OpenAPI documents only after this, instead of a second.
    #[must_use]
    pub fn telling_schemas_after(self, after: SignedDuration) -> Server {
        self.core.unpublished.hold_for(after);
        self
    }

    /// Lets those in over sockets who `access` knows, each to do what roles allow, and makes the roles, bindings
    /// and the Service every cluster begins with unless they are there. Said twice, the first counts.
    #[must_use]
    pub fn with_access(self, access: Access) -> Server {
        self.core.set_access(access);
        self.make_first(access::default_objects());
        self
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// The tower service: async, watches stream. For `kube::Client::new` and for hyper.
    pub fn service(&self) -> Service {
        Service::new(self.core.clone(), self.logs.clone())
    }

    /// The same for strangers: every request shows who sends it and is held against the roles.
    pub fn guarded_service(&self) -> Service {
        self.service().guarded()
    }

    /// Creates a CustomResourceDefinition, or brings it up to date.
    pub fn install_crd(&self, crd: Value) -> Result<(), Status> {
        self.install_crds([crd])
    }

    /// The same for several, which are waited for at once.
    pub fn install_crds(&self, crds: impl IntoIterator<Item = Value>) -> Result<(), Status> {
        let mut durable = 0;
        for crd in crds {
            durable = self.begin_crd(&crd)?.max(durable);
        }
        self.core.store.wait(durable).map_err(|failed| Status::internal(failed.to_string()))
    }

    fn begin_crd(&self, crd: &Value) -> Result<u64, Status> {
        const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let name = crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let kept = self.core.store.head(&crd::TABLE.into(), Place::new("", name).key());
        let Some(kept) = kept else {
            let (created, durable) = self.begin(&post_to(PATH), crd.to_string().as_bytes());
            return accepted(name, &created).map(|()| durable);
        };
        let patch = json!({"metadata": crd.get("metadata"), "spec": crd.get("spec")});
        // Every start but the first of a version: to find that out by a request costs ten times as much.
        if crd::says(&kept.value(), &patch) {
            return Ok(0);
        }
        let request = Request::patch(format!("{PATH}/{name}"))
            .header("content-type", "application/merge-patch+json")
            .body(());
        match request {
            Ok(request) => {
                let (patched, durable) = self.begin(&request.into_parts().0, patch.to_string().as_bytes());
                accepted(name, &patched).map(|()| durable)
            }
            Err(error) => Err(Status::bad_request(format!("install {name:?}: {error}"))),
        }
    }
}

fn post_to(path: &'static str) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = http::Method::POST;
    parts.uri = http::Uri::from_static(path);
    parts
}

fn accepted(name: &str, response: &Response<Bytes>) -> Result<(), Status> {
    if response.status().is_success() {
        return Ok(());
    }
    let said: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    let message = said.get("message").and_then(Value::as_str).unwrap_or("no reason given");
    let mut status = Status::bad_request(format!("install {name:?}: {message}"));
    status.code = response.status().as_u16();
    status.reason = said.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned().into();
    Err(status)
}
