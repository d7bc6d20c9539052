//! What does each verb do?
//!
//! ```text
//! http ──▶ Call ──▶ create · read · update · delete ──▶ Answer ──▶ http
//!                          │ rules as data: resources
//!                          ▼
//!                        store
//! ```
//!
//! A verb decides against the head of the store and never blocks: whoever sends the answer first waits
//! until everything the decision was based on is durable.

mod content;
mod create;
mod delete;
pub(crate) mod metadata;
mod options;
mod owners;
mod pods;
mod read;
mod review;
mod scale;
mod told;
mod update;

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use serde_json::Value;

pub(crate) use read::ListOptions;

use crate::access::{Access, Identity, Policy};
use crate::admission::Policies;
use crate::env::Env;
use crate::http::{OpenWatches, Query};
use crate::resources::unpublished::Unpublished;
use crate::resources::{Registry, Resource};
use crate::status::Status;
use crate::store::{Basis, CommitError, Object, Store};
use crate::watch::WatchRequest;

/// What all verbs share.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) env: Arc<dyn Env>,
    registry: RwLock<Arc<Registry>>,
    policy: RwLock<Arc<Policy>>,
    admission: RwLock<Arc<Policies>>,
    access: OnceLock<Arc<Access>>,
    pub(crate) open_watches: OpenWatches,
    pub(crate) unpublished: Unpublished,
}

/// One request to one resource.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// Who asks, and has been let in.
    pub(crate) who: &'a Identity,
    pub(crate) verb: Verb,
    pub(crate) resource: &'a Arc<Resource>,
    /// Empty for cluster-scoped resources and for lists over all namespaces.
    pub(crate) namespace: &'a str,
    /// Empty for requests to a collection.
    pub(crate) name: &'a str,
    pub(crate) subresource: Subresource,
    pub(crate) query: &'a Query,
    pub(crate) body: &'a [u8],
    /// Without parameters, lower case.
    pub(crate) content_type: &'a str,
    /// With what they ask: the field manager of those who name none.
    pub(crate) user_agent: &'a str,
    /// What a create or delete was decided on: it counts only while that is as it was.
    pub(crate) basis: Option<&'a Basis>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

/// Which part of the object is addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// The object itself.
    Whole,
    Status,
    Scale,
    /// Namespaces: `spec.finalizers` alone.
    Finalize,
    /// ServiceAccounts: a token for one.
    Token,
    /// Pods: a deletion that budgets may refuse.
    Eviction,
    /// Pods: a node to run on.
    Binding,
    /// Pods: containers that join one that runs.
    EphemeralContainers,
    /// CertificateSigningRequests: what those who may say of them.
    Approval,
}

impl Subresource {
    /// As in paths and in managedFields.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Subresource::Whole => "",
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Finalize => "finalize",
            Subresource::Token => "token",
            Subresource::Eviction => "eviction",
            Subresource::Binding => "binding",
            Subresource::EphemeralContainers => "ephemeralcontainers",
            Subresource::Approval => "approval",
        }
    }
}

/// What a verb answers, before anyone asks for a format.
#[derive(Debug)]
pub(crate) enum Answer {
    Object(u16, Arc<Object>),
    /// Something that is not stored: a Status, a dry run, a Scale.
    Value(u16, Value),
    List(List),
    Watch(WatchRequest),
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) revision: u64,
    pub(crate) items: Vec<Arc<Object>>,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// The answer and what the client should be warned of.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) answer: Answer,
    pub(crate) warnings: Vec<String>,
}

impl Outcome {
    /// The same with more to warn of, said first.
    fn warning(mut self, mut of: Vec<String>) -> Outcome {
        of.append(&mut self.warnings);
        self.warnings = of;
        self
    }
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Outcome { answer, warnings: Vec::new() }
    }
}

impl Core {
    pub(crate) fn new(store: Store, env: Arc<dyn Env>) -> Core {
        Core {
            store,
            env,
            registry: RwLock::new(Arc::new(Registry::new(Default::default(), 0))),
            policy: RwLock::default(),
            admission: RwLock::default(),
            access: OnceLock::new(),
            open_watches: OpenWatches::default(),
            unpublished: Unpublished::default(),
        }
    }

    /// A copy in memory that goes its own way, with definitions compiled already.
    pub(crate) fn fork(&self, env: Arc<dyn Env>) -> Core {
        Core {
            store: self.store.fork(),
            env,
            registry: RwLock::new(self.registry()),
            policy: RwLock::new(self.policy()),
            admission: RwLock::new(self.admission()),
            access: self.access.clone(),
            open_watches: OpenWatches::default(),
            unpublished: Unpublished::default(),
        }
    }

    /// The resources as of the last visible definition.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        current(&self.registry, |known| Registry::current(&self.store, known))
    }

    /// The resources that the OpenAPI documents tell of.
    pub(crate) fn published(&self) -> Arc<Registry> {
        let registry = self.registry();
        let held_back = self.unpublished.at(self.env.now());
        if held_back.is_empty() { registry } else { Arc::new(registry.without(&held_back)) }
    }

    /// The roles and bindings as of the last visible one.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        current(&self.policy, |known| Policy::current(&self.store, known))
    }

    /// The admission policies and bindings as of the last visible one.
    pub(crate) fn admission(&self) -> Arc<Policies> {
        current(&self.admission, |known| Policies::current(&self.store, known))
    }

    /// Who may come in from outside, once somebody has said.
    pub(crate) fn access(&self) -> Option<&Access> {
        self.access.get().map(|access| &**access)
    }

    pub(crate) fn set_access(&self, access: Access) {
        // The first counts: a server does not change its locks while it runs.
        let _ = self.access.set(Arc::new(access));
    }

    /// Does what is asked.
    pub(crate) fn handle(&self, call: &Call<'_>) -> Result<Outcome, Status> {
        if let Some(review) = call.resource.review() {
            return review::review(self, call, review);
        }
        if let Some(told) = call.resource.told() {
            return told::answer(self, call, told).map(Outcome::from);
        }
        match (call.subresource, call.verb) {
            (Subresource::Scale, Verb::Get) => scale::get(self, call).map(Outcome::from),
            (Subresource::Scale, Verb::Update | Verb::Patch) => scale::write(self, call).map(Outcome::from),
            (
                Subresource::Whole
                | Subresource::Status
                | Subresource::EphemeralContainers
                | Subresource::Approval,
                Verb::Get,
            ) => read::get(self, call).map(Outcome::from),
            (Subresource::Whole, Verb::List) => read::list(self, call).map(Outcome::from),
            (Subresource::Whole, Verb::Watch) => read::watch(self, call).map(Outcome::from),
            (Subresource::Whole, Verb::Create) => create::create(self, call),
            (
                Subresource::Whole
                | Subresource::Status
                | Subresource::EphemeralContainers
                | Subresource::Approval,
                Verb::Update | Verb::Patch,
            )
            | (Subresource::Finalize, Verb::Update) => update::write(self, call),
            (Subresource::Whole, Verb::Delete) => delete::delete(self, call),
            (Subresource::Whole, Verb::DeleteCollection) => delete::delete_collection(self, call),
            (Subresource::Token, Verb::Create) => review::token(self, call),
            (Subresource::Eviction, Verb::Create) => pods::evict(self, call),
            (Subresource::Binding, Verb::Create) => pods::bind(self, call),
            (
                Subresource::Scale
                | Subresource::Status
                | Subresource::Finalize
                | Subresource::Token
                | Subresource::Eviction
                | Subresource::Binding
                | Subresource::EphemeralContainers
                | Subresource::Approval,
                _,
            ) => Err(Status::method_not_allowed()),
        }
    }
}

/// What was made of the store, made anew where the store has something newer.
fn current<T>(kept: &RwLock<Arc<T>>, newest: impl FnOnce(&Arc<T>) -> Arc<T>) -> Arc<T> {
    let known = kept.read().unwrap_or_else(PoisonError::into_inner).clone();
    let now = newest(&known);
    if !Arc::ptr_eq(&known, &now) {
        *kept.write().unwrap_or_else(PoisonError::into_inner) = now.clone();
    }
    now
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("store", &self.store).finish_non_exhaustive()
    }
}

/// How often a write is tried anew when others were faster. Each failed try means that another write to
/// the same object succeeded; a kube-apiserver gives up as well.
const MAX_TRIES: usize = 16;

/// Tries a write until it is not raced: `attempt` returns `Ok(None)` when it was.
fn until_settled<T>(
    call: &Call<'_>,
    mut attempt: impl FnMut() -> Result<Option<T>, Status>,
) -> Result<T, Status> {
    for _ in 0..MAX_TRIES {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
    }
    Err(Status::conflict(call.resource, call.name, MODIFIED))
}

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// A commit's result: `None` when it was raced.
fn settled(result: Result<Arc<Object>, CommitError>) -> Result<Option<Arc<Object>>, Status> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(CommitError::Raced(_)) => Ok(None),
        Err(CommitError::Outdated) => Err(Status::outdated()),
        Err(CommitError::Failed(failed)) => Err(Status::internal(failed.to_string())),
    }
}
