//! What a simulated world is for: who is in it, what people do to it, and in which order.

use http::{Method, Request};
use pawl_api::meta::Kind;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use crate::fault::{self, Injection};
use crate::ground::{Ground, request};
use crate::hub::Hub;
use crate::mutant::Guards;

/// A world to run.
pub struct Scenario {
    pub name: &'static str,
    /// One line for `pawl-dev sim --list`.
    pub about: &'static str,
    /// Whether Pawl's own kinds are installed; a world without them starts faster.
    pub own_kinds: bool,
    /// Whether what happens depends on how late it is. Then a run in which the clock jumps may rightly end otherwise than
    /// the plain one, and only what holds for every run is asked of it.
    pub timed: bool,
    /// Whether a replica may stall between looking at an object and sending what it decided, for as long as the others
    /// need for everything else. Where a unit's whole life fits into such a pause, only a run that is made before it is
    /// started is run once (docs/decisions/0006).
    pub stalls: bool,
    /// Whether nobody but the machines patches what the machines patch.
    pub alone: bool,
    /// The GitHub of this world as it is at the beginning, if there is one.
    pub github: Option<fn(&Hub)>,
    pub machines: fn(Guards) -> Vec<AnyMachine>,
    /// What people do, one after the other.
    pub script: fn() -> Vec<Deed>,
    /// What must be true at the end, beside the oracles that hold for all.
    pub ends_with: fn(&Ground) -> Result<(), String>,
}

/// Worlds in which several want the same, and any of them may rightly get it: what must hold whoever wins is asked by
/// their own `ends_with`.
const RACES: [&str; 9] = [
    "manifests-locked",
    "remedy-contenders",
    "remedy-request-blocked",
    "action-contenders",
    "action-target-moves",
    "action-policy-moves",
    "action-delete",
    "action-job-removed",
    "action-moves",
];

/// The digest of a Secret is of its version, which is another in every run.
const OF_VERSIONS: &str = "action-secret";

/// A builder: `Scenario::new("job", "three completions").machines(…).script(…).ends_with(…)`, and what is unusual about it.
impl Scenario {
    /// A scenario with Pawl's own kinds in which replicas stall, nothing happens and everything is right.
    pub fn new(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines: |_| Vec::new(),
            script: Vec::new,
            ends_with: |_| Ok(()),
        }
    }

    #[must_use]
    pub fn machines(mut self, machines: fn(Guards) -> Vec<AnyMachine>) -> Self {
        self.machines = machines;
        self
    }

    #[must_use]
    pub fn script(mut self, script: fn() -> Vec<Deed>) -> Self {
        self.script = script;
        self
    }

    #[must_use]
    pub fn ends_with(mut self, check: fn(&Ground) -> Result<(), String>) -> Self {
        self.ends_with = check;
        self
    }

    #[must_use]
    pub fn on_github(mut self, prepare: fn(&Hub)) -> Self {
        self.github = Some(prepare);
        self
    }

    #[must_use]
    pub fn without_own_kinds(mut self) -> Self {
        self.own_kinds = false;
        self
    }

    #[must_use]
    pub fn timed(mut self) -> Self {
        self.timed = true;
        self
    }

    #[must_use]
    pub fn without_stalls(mut self) -> Self {
        self.stalls = false;
        self
    }

    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Whether a run with these faults must end as the plain one does. On GitHub the time is part of a commit's hash, and
    /// a webhook that is late changes what a sync finds: what holds there is asked by oracles of its own.
    pub fn is_comparable(&self, faults: &[Injection]) -> bool {
        self.github.is_none()
            && !(self.timed && fault::jumps(faults))
            && !self.is_race()
            && self.name != OF_VERSIONS
    }

    /// Whether several want the same, and any of them may rightly get it.
    pub fn is_race(&self) -> bool {
        RACES.contains(&self.name)
    }
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Scenario").field(&self.name).finish()
    }
}

/// One thing that a person does once the world is ready for it. The condition makes runs comparable: the same deeds
/// meet the same situation, however the machinery got there.
pub struct Deed {
    pub when: Box<dyn Fn(&Ground) -> bool>,
    pub act: Act,
}

/// What a deed does.
pub enum Act {
    /// Sends a request to the API server.
    Ask(Box<Asks>),
    /// Does something on GitHub.
    OnGitHub(Box<dyn Fn(&Hub)>),
}

/// What a deed sends, given the world as it is.
pub type Asks = dyn Fn(&Ground) -> Request<Vec<u8>>;

impl std::fmt::Debug for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ask(_) => "Ask",
            Self::OnGitHub(_) => "OnGitHub",
        })
    }
}

impl std::fmt::Debug for Deed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Deed")
    }
}

impl Deed {
    /// Creates an object, in the namespace `default` unless the manifest names another.
    pub fn create(kind: Kind, manifest: Value) -> Self {
        Self::create_from(kind, move |_| manifest.clone())
    }

    /// Creates an object of which only the name and the spec matter.
    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    pub fn create_with_spec(kind: Kind, name: &str, spec: Value) -> Self {
        Self::create(kind, json!({"metadata": {"name": name}, "spec": spec}))
    }

    /// Creates an object that depends on what is there.
    pub fn create_from(kind: Kind, manifest: impl Fn(&Ground) -> Value + 'static) -> Self {
        Self::send(move |ground| {
            let mut manifest = manifest(ground);
            if let Some(fields) = manifest.as_object_mut() {
                fields.insert("apiVersion".to_owned(), kind.api_version().into());
                fields.insert("kind".to_owned(), kind.kind.as_ref().into());
            }
            if let Some(Value::Object(metadata)) = manifest.get_mut("metadata").filter(|_| kind.namespaced) {
                metadata.entry("namespace").or_insert_with(|| "default".into());
            }
            let namespace = manifest.pointer("/metadata/namespace").and_then(Value::as_str);
            request(Method::POST, &kind.path(namespace, None), "application/json", &manifest)
        })
    }

    /// Deletes an object, in the background.
    pub fn delete(kind: Kind, name: &'static str) -> Self {
        Self::delete_with_policy(kind, name, "Background")
    }

    /// Deletes an object with a propagation policy.
    pub fn delete_with_policy(kind: Kind, name: &'static str, policy: &'static str) -> Self {
        Self::send(move |_| deletion(&kind.path(Some("default"), Some(name)), policy))
    }

    /// Merge-patches an object.
    pub fn patch(kind: Kind, name: &'static str, patch: Value) -> Self {
        Self::send(move |_| merge_patch(&kind.path(Some("default"), Some(name)), &patch))
    }

    /// The same in another namespace than the default one.
    #[must_use]
    pub fn in_namespace(self, namespace: &'static str) -> Self {
        let Act::Ask(asks) = self.act else { return self };
        let moved = move |ground: &Ground| {
            let mut request = asks(ground);
            let (from, to) = ("/namespaces/default/", format!("/namespaces/{namespace}/"));
            *request.uri_mut() = request.uri().to_string().replace(from, &to).parse().unwrap_or_default();
            if let Ok(mut body) = serde_json::from_slice::<Value>(request.body())
                && let Some(named) = body.pointer_mut("/metadata/namespace")
            {
                *named = namespace.into();
                *request.body_mut() = body.to_string().into_bytes();
            }
            request
        };
        Self { act: Act::Ask(Box::new(moved)), ..self }
    }

    /// Sends a request that depends on what is there.
    pub fn send(request: impl Fn(&Ground) -> Request<Vec<u8>> + 'static) -> Self {
        Self { when: Box::new(|_| true), act: Act::Ask(Box::new(request)) }
    }

    /// Does something on GitHub.
    pub fn on_github(act: impl Fn(&Hub) + 'static) -> Self {
        Self { when: Box::new(|_| true), act: Act::OnGitHub(Box::new(act)) }
    }

    /// Does it.
    ///
    /// # Errors
    /// When the API server did not take it.
    pub fn perform(&self, ground: &mut Ground) -> Result<(), String> {
        match &self.act {
            Act::Ask(asks) => {
                let request = asks(ground);
                match ground.send("person", request) {
                    (..300, _) => Ok(()),
                    (code, body) => {
                        Err(format!("a deed was answered {code}: {}", String::from_utf8_lossy(&body)))
                    }
                }
            }
            Act::OnGitHub(act) => match &ground.hub {
                Some(hub) => {
                    act(hub);
                    Ok(())
                }
                None => Err("a deed on GitHub in a world without one".to_owned()),
            },
        }
    }

    #[must_use]
    pub fn when(mut self, when: impl Fn(&Ground) -> bool + 'static) -> Self {
        self.when = Box::new(when);
        self
    }
}

/// A deletion of the object at this path, with a propagation policy.
pub fn deletion(path: &str, policy: &str) -> Request<Vec<u8>> {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    request(Method::DELETE, path, "application/json", &body)
}

/// A merge patch of the object at this path.
pub fn merge_patch(path: &str, patch: &Value) -> Request<Vec<u8>> {
    request(Method::PATCH, path, "application/merge-patch+json", patch)
}

/// Whether the phase of an object is this.
pub fn phase_is(kind: Kind, name: &'static str, phase: &'static str) -> impl Fn(&Ground) -> bool {
    move |ground| crate::scenarios::expect::phase(ground, &kind, name, phase).is_ok()
}
