//! What is one action: its facts, what it needs, what it looks at, what it does, and how it is taken back?
//!
//! ```text
//! reads ─▶ Seen ─▶ course ─▶ Step (do these, look again) · Finish (do these, and that was all) · Wait · Done · Refuse
//!             └──▶ before ─▶ what is kept, digested and told of each target      undo ─▶ the action that takes it back
//! ```
//! An action is a file with one `impl Act`; [`super::definition`] lists them. Everything is a function of what was read:
//! the dry run, the executor and the capture of the undo ask the same questions and get the same answers.

use std::fmt;

use jiff::Timestamp;
use pawl_api::meta::Duration;
use pawl_api::remedy::{Action, ActionParameters};
use serde_json::Value;

use super::Order;
use super::course::{Course, Write};
use super::kept::{Kept, Restore, Undo};
use super::seen::{Place, Read, Seen};

/// What is true of an action whatever its parameters are.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// What it does, for people: one paragraph.
    pub about: &'static str,
    /// What was done to a target, as `scaled`.
    pub done: &'static str,
    /// How long one attempt may take where nobody says otherwise.
    pub timeout: Duration,
    /// Whether a failed attempt may be repeated.
    pub idempotent: bool,
    /// Whether the API server can try it without effect.
    pub dry_runnable: bool,
    pub scope: Scope,
    pub undo: UndoKind,
    /// All that its ServiceAccount may do, whatever the parameters are.
    pub rules: &'static [Rule],
}

/// Where an action's targets live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
    /// As the parameters say.
    Either,
}

/// How an action is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoKind {
    /// By an action whose parameters say all; by `Restore` where they cannot.
    Action,
    /// By the same action, which puts back what the undo Secret keeps.
    Restore,
    /// Not at all, and why.
    Never(&'static str),
}

/// Something a ServiceAccount may do, anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Empty for the core group.
    pub group: &'static str,
    /// With the subresource, as `pods/eviction`.
    pub resources: &'static [&'static str],
    pub verbs: &'static [&'static str],
}

/// Something that must be allowed for an action with given parameters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    pub verb: &'static str,
    pub group: String,
    pub resource: String,
    pub subresource: Option<&'static str>,
    pub namespace: Option<String>,
    pub name: Option<String>,
}

impl Need {
    /// One verb on one object.
    pub fn of(verb: &'static str, place: &Place) -> Self {
        Self {
            verb,
            group: place.kind.group.to_string(),
            resource: place.kind.plural.to_string(),
            subresource: None,
            namespace: place.key.namespace.clone(),
            name: Some(place.key.name.clone()),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(subresource) = self.subresource {
            write!(f, "/{subresource}")?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

/// Why parameters are not those of the action: the field, and what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.parameters.{field}: {problem}")]
pub struct Problem {
    /// Below `spec.parameters`.
    pub field: String,
    pub problem: String,
}

/// An order, and what is known around it.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub order: &'a Order,
    pub parameters: &'a ActionParameters,
    /// What was kept before this execution began: the targets that are meant, not their namesakes.
    pub kept: Option<&'a Kept>,
    /// What was kept by the execution that this one takes back.
    pub undone: Option<&'a Kept>,
    pub now: Timestamp,
}

impl Context<'_> {
    /// What is to be put back, where this execution takes another back by `Restore`.
    pub fn restoring(&self) -> Option<&Kept> {
        self.undone.filter(|kept| kept.undo == Undo::Restore)
    }

    /// Why this execution cannot be the rollback that it says it is: it would do the first one's work once more.
    fn mistaken(&self) -> Option<&'static str> {
        let undoes = self.order.undoes.as_deref()?;
        let Some(kept) = self.undone.filter(|kept| kept.uid == undoes) else {
            return Some("what the execution kept that this one takes back is not there");
        };
        let theirs =
            || serde_json::from_value::<ActionParameters>(Value::Object(kept.parameters.clone())).ok();
        match kept.undo {
            Undo::Restore
                if kept.action != self.order.action || theirs().as_ref() != Some(self.parameters) =>
            {
                Some("only the same action with the same parameters puts back what was kept")
            }
            Undo::Restore | Undo::Action { .. } | Undo::Never(_) => None,
        }
    }
}

/// What a target is before it is changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Before {
    pub place: Place,
    /// `None`: it is not there.
    pub uid: Option<String>,
    pub restore: Restore,
    /// The fields that the action reads or writes, for the digest. Nothing secret, not even a hash of it (I6).
    pub fields: Value,
    /// As `replicas: 3`.
    pub words: String,
}

/// One action, whatever its parameters' type is.
pub trait Definition: Sync + fmt::Debug {
    fn action(&self) -> Action;
    fn facts(&self) -> &'static Facts;
    /// The parameters of an example: the value of the union's member.
    fn example(&self) -> Value;
    /// What the schema cannot see.
    ///
    /// # Errors
    /// The first field that is wrong.
    fn check(&self, parameters: &ActionParameters) -> Result<(), Problem>;
    /// What the action's ServiceAccount must be allowed.
    fn needs(&self, order: &Order, parameters: &ActionParameters) -> Vec<Need>;
    /// The objects it works on.
    fn targets(&self, order: &Order, parameters: &ActionParameters) -> Vec<Place>;
    /// What must be read next; nothing, when all that matters was seen.
    fn reads(&self, context: &Context<'_>, seen: &Seen) -> Vec<Read>;
    /// What to do about what was seen.
    fn course(&self, context: &Context<'_>, seen: &Seen) -> Course;
    /// What its targets are, in the order of `targets`.
    fn before(&self, context: &Context<'_>, seen: &Seen) -> Vec<Before>;
    /// How it would be taken back. `after`: the targets as a dry run left them, where [`Definition::foresees`] says so.
    fn undo(&self, context: &Context<'_>, seen: &Seen, after: &Seen) -> Undo;
    /// Whether its undo needs to know what the API server makes of the change.
    fn foresees(&self) -> bool;
    /// How long it may wait for others, where its parameters say so.
    fn patience(&self, parameters: &ActionParameters) -> Option<Duration>;
}

/// One action with its own parameters. The defaults are those of an action that patches one object.
pub(super) trait Act: Sync + fmt::Debug {
    type Parameters;
    const ACTION: Action;
    const FACTS: Facts;

    fn parameters(all: &ActionParameters) -> Option<&Self::Parameters>;

    fn example() -> Value;

    fn check(_parameters: &Self::Parameters) -> Result<(), Problem> {
        Ok(())
    }

    /// The one object it works on, where it is one.
    fn target(_parameters: &Self::Parameters) -> Option<Place>;

    fn targets(_order: &Order, parameters: &Self::Parameters) -> Vec<Place> {
        Self::target(parameters).into_iter().collect()
    }

    fn needs(_order: &Order, parameters: &Self::Parameters) -> Vec<Need> {
        let places = Self::target(parameters).into_iter();
        places.flat_map(|place| ["get", "patch"].map(|verb| Need::of(verb, &place))).collect()
    }

    /// What must be read beside the targets, by what was seen of them.
    fn more_reads(_context: &Context<'_>, _parameters: &Self::Parameters, _seen: &Seen) -> Vec<Read> {
        Vec::new()
    }

    /// The merge patch that does it; `None` where nothing is left to do.
    ///
    /// # Errors
    /// Why it cannot be done to this object.
    fn patch(_parameters: &Self::Parameters, _object: &Value, _seen: &Seen) -> Result<Option<Value>, String> {
        Ok(None)
    }

    /// How the patch is to be read.
    const PATCH: super::course::Style = super::course::Style::Merge;

    fn course(context: &Context<'_>, parameters: &Self::Parameters, seen: &Seen) -> Course {
        let Some(place) = Self::target(parameters) else {
            return Course::Refuse("it names no target".to_owned());
        };
        let object = match super::course::meant(context, seen, &place) {
            Ok(object) => object,
            Err(course) => return course,
        };
        let wanted = match context.restoring() {
            Some(kept) => Ok(Self::restored(kept, &place, object)),
            None => Self::patch(parameters, object, seen).map(|body| body.map(|body| (Self::PATCH, body))),
        };
        match wanted {
            Err(why) => Course::Refuse(why),
            Ok(None) => Course::Done(format!("{place} is already as it should be")),
            Ok(Some((style, body))) => {
                Course::Finish(vec![Write::marked(context.order, &place, object, style, body)])
            }
        }
    }

    /// What puts back what was kept of this target.
    fn restored(kept: &Kept, place: &Place, object: &Value) -> Option<(super::course::Style, Value)> {
        kept.of(place).and_then(|target| target.restore.patch(object))
    }

    /// What would put the object back as it is.
    fn restore(_parameters: &Self::Parameters, _object: &Value) -> Restore {
        Restore::Nothing
    }

    fn fields(parameters: &Self::Parameters, object: &Value, _seen: &Seen) -> Value {
        Self::restore(parameters, object).into_fields()
    }

    fn words(_parameters: &Self::Parameters, _object: &Value, _seen: &Seen) -> String {
        String::new()
    }

    fn before(context: &Context<'_>, parameters: &Self::Parameters, seen: &Seen) -> Vec<Before> {
        let of = |place: Place| match seen.object(&place) {
            None => Before {
                place,
                uid: None,
                restore: Restore::Absent,
                fields: Value::Null,
                words: "absent".to_owned(),
            },
            Some(object) => Before {
                uid: Some(super::seen::uid(object).to_owned()),
                restore: Self::restore(parameters, object),
                fields: Self::fields(parameters, object, seen),
                words: Self::words(parameters, object, seen),
                place,
            },
        };
        Self::targets(context.order, parameters).into_iter().map(of).collect()
    }

    /// The action that takes it back; `None` where only `Restore` can.
    fn undo(
        _context: &Context<'_>,
        _parameters: &Self::Parameters,
        _seen: &Seen,
        _after: &Seen,
    ) -> Option<(Action, Value)> {
        None
    }

    const FORESEES: bool = false;

    fn patience(_parameters: &Self::Parameters) -> Option<Duration> {
        None
    }
}

/// The parameters of another action are no parameters.
const OTHER: &str = "the parameters are not those of the action";

impl<A: Act> Definition for A {
    fn action(&self) -> Action {
        A::ACTION
    }

    fn facts(&self) -> &'static Facts {
        &A::FACTS
    }

    fn example(&self) -> Value {
        A::example()
    }

    fn check(&self, parameters: &ActionParameters) -> Result<(), Problem> {
        let problem = |problem: String| Problem { field: A::ACTION.member().to_owned(), problem };
        let [only] = *parameters.present() else {
            return Err(problem("exactly the member of the action must be there".to_owned()));
        };
        let given = A::parameters(parameters).ok_or_else(|| {
            problem(format!("the action is {}, and the parameters are those of {only}", A::ACTION))
        })?;
        if let Some(Err(error)) = parameters.target(A::ACTION) {
            return Err(problem(error.to_string()));
        }
        A::check(given).map_err(|found| Problem {
            field: match found.field.as_str() {
                "" => A::ACTION.member().to_owned(),
                field => format!("{}.{field}", A::ACTION.member()),
            },
            ..found
        })
    }

    fn needs(&self, order: &Order, parameters: &ActionParameters) -> Vec<Need> {
        A::parameters(parameters).map(|given| A::needs(order, given)).unwrap_or_default()
    }

    fn targets(&self, order: &Order, parameters: &ActionParameters) -> Vec<Place> {
        A::parameters(parameters).map(|given| A::targets(order, given)).unwrap_or_default()
    }

    fn reads(&self, context: &Context<'_>, seen: &Seen) -> Vec<Read> {
        let Some(given) = A::parameters(context.parameters) else { return Vec::new() };
        let targets = A::targets(context.order, given).into_iter().map(Read::Object);
        let all = targets.chain(A::more_reads(context, given, seen));
        all.filter(|read| !seen.has(read)).collect()
    }

    fn course(&self, context: &Context<'_>, seen: &Seen) -> Course {
        match (A::parameters(context.parameters), context.mistaken()) {
            (_, Some(why)) => Course::Refuse(why.to_owned()),
            (None, None) => Course::Refuse(OTHER.to_owned()),
            (Some(given), None) => A::course(context, given, seen),
        }
    }

    fn before(&self, context: &Context<'_>, seen: &Seen) -> Vec<Before> {
        A::parameters(context.parameters).map(|given| A::before(context, given, seen)).unwrap_or_default()
    }

    fn undo(&self, context: &Context<'_>, seen: &Seen, after: &Seen) -> Undo {
        let explicit = || {
            let given = A::parameters(context.parameters)?;
            let (action, parameters) = A::undo(context, given, seen, after)?;
            Some(Undo::action(action, parameters))
        };
        match A::FACTS.undo {
            UndoKind::Never(why) => Undo::Never(why.to_owned()),
            // What puts back whatever was kept is itself taken back in the same way.
            _ if context.restoring().is_some() => Undo::Restore,
            UndoKind::Restore => Undo::Restore,
            UndoKind::Action => explicit().unwrap_or(Undo::Restore),
        }
    }

    fn foresees(&self) -> bool {
        A::FORESEES
    }

    fn patience(&self, parameters: &ActionParameters) -> Option<Duration> {
        A::parameters(parameters).and_then(A::patience)
    }
}

impl Problem {
    /// About a field of the action's parameters.
    pub(super) fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }
}
