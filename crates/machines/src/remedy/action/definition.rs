//! Defines an action: its facts, its rights, what it reads, what it does, and how it is taken back.
//!
//! ```text
//! reads ─▶ Seen ─▶ course ─▶ Step (do these, look again) · Finish (do these, and that was all) · Wait · Done · Refuse
//!             └──▶ before ─▶ what is kept, digested and told of each target      undo ─▶ the action that takes it back
//! ```
//! An action is one constant [`Definition`] and one `impl Act` of its parameters; [`super::definition`] lists them. Checks,
//! rights, watches, pages and the executor follow from these two. Everything is a function of what was read: the dry run,
//! the executor and the capture of the undo ask the same questions and get the same answers.

use std::fmt;

use jiff::Timestamp;
use pawl_api::meta::target::ParseError;
use pawl_api::meta::{Duration, Kind, Target};
use pawl_api::remedy::actions::PatchType;
use pawl_api::remedy::{Action, ActionParameters};
use serde_json::Value;

use super::Order;
use super::course::{Course, Write, meant};
use super::kept::{Kept, Restore, Undo};
use super::seen::{self, Place, Read, Seen};

/// One action, whatever its parameters are.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub action: Action,
    /// What it does, for people: one paragraph.
    pub about: &'static str,
    /// What was done to a target, as `scaled`.
    pub done: &'static str,
    /// How long one attempt may take where nobody says otherwise.
    pub timeout: Duration,
    /// Whether the API server can try it without effect.
    pub dry_runnable: bool,
    pub undo: UndoKind,
    /// The kinds of its targets; none where the parameters name an object of any kind.
    pub kinds: &'static [Kind],
    /// Verbs that its ServiceAccount gets on these kinds, in every namespace.
    pub verbs: &'static [&'static str],
    /// Further rules for its ServiceAccount: group, resource (with the subresource, as `pods/eviction`) and verbs.
    pub more_rules: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// The parameters of an example: the value of the union's member.
    pub example: fn() -> Value,
    pub(super) parameters: Parameters,
}

/// Finds the parameters of one action among those of all.
type Parameters = fn(&ActionParameters) -> Option<Box<dyn Act + '_>>;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Empty for the core group.
    pub group: &'static str,
    /// With the subresource, as `pods/eviction`.
    pub resources: Vec<&'static str>,
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

impl Problem {
    /// About a field of the action's parameters.
    pub(super) fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }
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

/// One action with its parameters. The defaults are those of an action that patches one object.
pub(super) trait Act {
    /// What the schema cannot see.
    ///
    /// # Errors
    /// The first field that is wrong.
    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// The one object it works on, where it is one.
    fn place(&self) -> Option<Place>;

    /// All objects it works on.
    fn places(&self, _order: &Order) -> Vec<Place> {
        self.place().into_iter().collect()
    }

    /// The one object it is about, as a lock names it.
    fn target(&self) -> Option<Result<Target, ParseError>> {
        self.place().map(|place| place.target())
    }

    /// The access that its ServiceAccount needs; `verbs` are those of the definition.
    fn needs(&self, order: &Order, verbs: &'static [&'static str]) -> Vec<Need> {
        needs_on(&self.places(order), verbs)
    }

    /// What must be read beside the targets, by what was seen of them.
    fn more_reads(&self, _context: &Context<'_>, _seen: &Seen) -> Vec<Read> {
        Vec::new()
    }

    /// Why nothing may be done to this object, nor taken back.
    fn refuses(&self, _object: &Value) -> Option<&'static str> {
        None
    }

    /// The patch that does it; `None` where nothing is left to do.
    ///
    /// # Errors
    /// Why it cannot be done to this object.
    fn patch(&self, _context: &Context<'_>, _object: &Value, _seen: &Seen) -> Result<Option<Value>, String> {
        Ok(None)
    }

    /// How the patch is to be read.
    fn patch_type(&self) -> PatchType {
        PatchType::Merge
    }

    /// Plans the writes from the objects that were read.
    fn course(&self, context: &Context<'_>, seen: &Seen) -> Course {
        let Some(place) = self.place() else {
            return Course::Refuse("it names no target".to_owned());
        };
        let object = match meant(context, seen, &place) {
            Ok(object) => object,
            Err(course) => return course,
        };
        if let Some(why) = self.refuses(object) {
            return Course::Refuse(format!("{place} {why}"));
        }
        let wanted = match context.restoring() {
            Some(kept) => Ok(self.restored(kept, &place, object)),
            None => self.patch(context, object, seen).map(|body| body.map(|body| (self.patch_type(), body))),
        };
        match wanted {
            Err(why) => Course::Refuse(why),
            Ok(None) => Course::Done(format!("{place} is already as it should be")),
            Ok(Some((type_, body))) => {
                Course::Finish(vec![Write::marked(context.order, &place, object, type_, body)])
            }
        }
    }

    /// What puts back what was kept of this target.
    fn restored(&self, kept: &Kept, place: &Place, object: &Value) -> Option<(PatchType, Value)> {
        kept.of(place).and_then(|target| target.restore.patch(object))
    }

    /// What would put the object back as it is.
    fn restore(&self, _object: &Value) -> Restore {
        Restore::Nothing
    }

    fn fields(&self, object: &Value) -> Value {
        self.restore(object).into_fields()
    }

    fn words(&self, _object: &Value, _seen: &Seen) -> String {
        String::new()
    }

    /// The action that takes it back; `None` where only `Restore` can. `after`: the targets as a dry run left them, where
    /// [`Act::foresees`] says so.
    fn undo(&self, _seen: &Seen, _after: &Seen) -> Option<(Action, Value)> {
        None
    }

    /// Whether its undo needs to know what the API server makes of the change.
    fn foresees(&self) -> bool {
        false
    }

    /// How long it may wait for others, where its parameters say so.
    fn patience(&self) -> Option<Duration> {
        None
    }
}

/// These verbs on each of these objects.
pub(super) fn needs_on(places: &[Place], verbs: &'static [&'static str]) -> Vec<Need> {
    places.iter().flat_map(|place| verbs.iter().map(|verb| Need::of(verb, place))).collect()
}

impl Definition {
    /// An action that patches objects, one at a time. Each action says `about`, `done`, `undo`, `kinds` and `example` itself.
    pub(super) const fn new(action: Action, parameters: Parameters) -> Self {
        Self {
            action,
            about: "",
            done: "",
            timeout: Duration::from_mins(5),
            dry_runnable: true,
            undo: UndoKind::Restore,
            kinds: &[],
            verbs: &["get", "patch"],
            more_rules: &[],
            example: Value::default,
            parameters,
        }
    }

    /// All that its ServiceAccount may do, whatever the parameters are.
    pub fn rules(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = Vec::new();
        for kind in self.kinds {
            match rules.last_mut() {
                Some(rule) if rule.group == kind.group => rule.resources.push(&kind.plural),
                _ => {
                    let resources = vec![kind.plural.as_ref()];
                    rules.push(Rule { group: &kind.group, resources, verbs: self.verbs });
                }
            }
        }
        let more = self.more_rules.iter();
        rules.extend(more.map(|&(group, resource, verbs)| Rule { group, resources: vec![resource], verbs }));
        rules
    }

    /// Whether it creates targets that do not exist: they are in a manifest, and no parameter names them.
    pub fn creates(&self) -> bool {
        self.verbs.contains(&"create")
    }

    /// Whether its targets are in no namespace.
    pub fn is_cluster_scoped(&self) -> bool {
        self.kinds.iter().any(|kind| !kind.namespaced)
    }

    /// Checks that the parameters are those of the action, and what the schema cannot see.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self, parameters: &ActionParameters) -> Result<(), Problem> {
        let (action, member) = (self.action, self.action.member());
        let [only] = *parameters.present() else {
            return Err(Problem::new(member, "exactly the member of the action must be there"));
        };
        let act = (self.parameters)(parameters).ok_or_else(|| {
            Problem::new(member, format!("the action is {action}, and the parameters are those of {only}"))
        })?;
        if let Some(Err(error)) = act.target() {
            return Err(Problem::new(member, error.to_string()));
        }
        act.check().map_err(|found| Problem {
            field: match found.field.as_str() {
                "" => member.to_owned(),
                field => format!("{member}.{field}"),
            },
            ..found
        })
    }

    /// The target of the action. `None` where the parameters of that action are missing, or name no one object: a manifest
    /// has as many targets as objects.
    pub fn target(&self, parameters: &ActionParameters) -> Option<Result<Target, ParseError>> {
        (self.parameters)(parameters)?.target()
    }

    /// The access that the action's ServiceAccount needs.
    pub fn needs(&self, order: &Order, parameters: &ActionParameters) -> Vec<Need> {
        (self.parameters)(parameters).map(|act| act.needs(order, self.verbs)).unwrap_or_default()
    }

    /// The objects it works on.
    pub fn targets(&self, order: &Order, parameters: &ActionParameters) -> Vec<Place> {
        (self.parameters)(parameters).map(|act| act.places(order)).unwrap_or_default()
    }

    /// The objects to read next; empty when everything needed was read.
    pub fn reads(&self, context: &Context<'_>, seen: &Seen) -> Vec<Read> {
        let Some(act) = (self.parameters)(context.parameters) else { return Vec::new() };
        let targets = act.places(context.order).into_iter().map(Read::Object);
        targets.chain(act.more_reads(context, seen)).filter(|read| !seen.has(read)).collect()
    }

    /// Plans the writes from the objects that were read.
    pub fn course(&self, context: &Context<'_>, seen: &Seen) -> Course {
        match ((self.parameters)(context.parameters), context.mistaken()) {
            (_, Some(why)) => Course::Refuse(why.to_owned()),
            (None, None) => Course::Refuse("the parameters are not those of the action".to_owned()),
            (Some(act), None) => act.course(context, seen),
        }
    }

    /// The state of each target before the action, in the order of `targets`.
    pub fn before(&self, context: &Context<'_>, seen: &Seen) -> Vec<Before> {
        let Some(act) = (self.parameters)(context.parameters) else { return Vec::new() };
        let before = |place: Place| match seen.object(&place) {
            None => Before {
                place,
                uid: None,
                restore: Restore::Absent,
                fields: Value::Null,
                words: "absent".to_owned(),
            },
            Some(object) => Before {
                uid: Some(seen::uid(object).to_owned()),
                restore: act.restore(object),
                fields: act.fields(object),
                words: act.words(object, seen),
                place,
            },
        };
        act.places(context.order).into_iter().map(before).collect()
    }

    /// How it would be taken back. `after`: the targets as a dry run left them, where [`Definition::foresees`] says so.
    pub fn undo(&self, context: &Context<'_>, seen: &Seen, after: &Seen) -> Undo {
        let by_action = || (self.parameters)(context.parameters)?.undo(seen, after);
        match self.undo {
            UndoKind::Never(why) => Undo::Never(why.to_owned()),
            // What puts back whatever was kept is itself taken back in the same way.
            _ if context.restoring().is_some() => Undo::Restore,
            UndoKind::Restore => Undo::Restore,
            UndoKind::Action => {
                by_action().map_or(Undo::Restore, |(action, parameters)| Undo::action(action, parameters))
            }
        }
    }

    /// Whether its undo needs to know what the API server makes of the change.
    pub fn foresees(&self, parameters: &ActionParameters) -> bool {
        (self.parameters)(parameters).is_some_and(|act| act.foresees())
    }

    /// How long it may wait for others.
    pub fn patience(&self, parameters: &ActionParameters) -> Duration {
        (self.parameters)(parameters).and_then(|act| act.patience()).unwrap_or(self.timeout)
    }
}
