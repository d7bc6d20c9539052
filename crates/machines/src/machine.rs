//! A machine, and how the loop sees it: typed inside, the same for every kind outside.
//!
//! [`Machine`] is what an author writes. [`AnyMachine`] is what the loop and the simulators run: it decodes, reconciles,
//! checks that the phase move is legal, merges gates, and binds the plan to the version it was decided on.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::meta::phase::Table;
use pawl_api::meta::{Gate, Kind, gate};
use pawl_api::phases;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::{Entry, Teller};
use crate::external::Call;
use crate::object::{Key, Malformed, Object, Reference};
use crate::plan::{Note, Plan, Step, Wake};
use crate::view::{Context, Input, View};

/// One kind's decisions.
pub trait Machine: Send + Sync + 'static {
    /// The object it is about.
    type Kind: DeserializeOwned + Send + Sync + 'static;
    type Status: Serialize;

    fn description(&self) -> Description;

    /// Plans the next steps for the object. Pure and total: it only reads, absent and malformed objects are facts too, and bad
    /// input is a decision.
    fn reconcile(&self, cx: &Context<'_, Self::Kind>) -> Plan<Self::Status>;

    /// What the object's state says has happened to it, for the ledger: all of it, each time, with ids that stay the
    /// same. What every unit's state says (gates, locks, its end) is not repeated here. `None`: the kind is not audited.
    fn audit(&self, _: &Teller<'_>, _: &Self::Kind) -> Option<Vec<Entry>> {
        None
    }

    /// Whether it only ever runs beside Pawl's own API server, which can make a write depend on the version of another
    /// object: then what it makes and removes is fenced ([`crate::apply`]). Elsewhere nothing would hold the fence.
    fn is_fenced(&self) -> bool {
        false
    }
}

/// What the loop must know to run a machine.
#[derive(Clone, Debug)]
pub struct Description {
    /// For logs, metrics and the `reportingController` of Events.
    pub name: &'static str,
    pub primary: Primary,
    /// How much of the primary the machine reads.
    pub depth: Depth,
    pub watches: Vec<Watch>,
    /// Taken off a malformed object that is being deleted, so that it never wedges (I5).
    pub finalizer: Option<&'static str>,
    /// The legal moves of the phase it reports, if it reports one.
    pub phases: Option<Table>,
    /// All that its plans may write. Permissions are generated from this; the simulator checks that it is neither too
    /// little nor too much.
    pub writes: Vec<Write>,
}

impl Description {
    /// Of a machine that looks at every object of this kind, in full, and keeps to the kind's phases: it has no finalizer,
    /// and watches and writes nothing else.
    pub fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            depth: Depth::Full,
            watches: Vec::new(),
            finalizer: None,
            phases: phases::table(&kind).cloned(),
            writes: Vec::new(),
            primary: Primary::One(kind),
        }
    }
}

/// A right that a machine's plans use beside reading what it watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub kind: Kind,
    /// A subresource, such as `status`.
    pub part: Option<&'static str>,
    /// As RBAC names them.
    pub verbs: &'static [&'static str],
}

impl Write {
    pub fn main(kind: Kind, verbs: &'static [&'static str]) -> Self {
        Self { kind, part: None, verbs }
    }

    pub fn status(kind: Kind) -> Self {
        Self { kind, part: Some("status"), verbs: &["patch"] }
    }

    /// Lets owner references block an owner's deletion where the API server asks for that right.
    pub fn finalizers(kind: Kind) -> Self {
        Self { kind, part: Some("finalizers"), verbs: &["update"] }
    }
}

/// Which objects a machine is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primary {
    One(Kind),
    /// Of one kind, those that the machine's watches name and no others: where all but a few are none of its business, and
    /// the watches know which.
    Woken(Kind),
    /// All objects of all kinds that the server can list and watch, as soon as they name an owner or are being deleted
    /// (garbage collection: the many others are nobody's family). A change of one, or its end, also wakes the objects
    /// it names as owners and the objects that name it as owner.
    Every,
}

impl Primary {
    /// The kind, where it is one.
    pub fn kind(&self) -> Option<&Kind> {
        match self {
            Self::One(kind) | Self::Woken(kind) => Some(kind),
            Self::Every => None,
        }
    }
}

/// Stands for every kind in [`Watch::every`].
pub const EVERY: Kind = Kind::of("*", "*", "*", "*", true);

/// How much of an object a cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    Metadata,
    /// All of those with this name, and of the others their metadata.
    Named(&'static str),
    Full,
}

impl Depth {
    /// As deep as both need it.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Metadata, deeper) | (deeper, Self::Metadata) => deeper,
            (Self::Named(one), Self::Named(two)) if one == two => self,
            (Self::Named(_) | Self::Full, Self::Named(_) | Self::Full) => Self::Full,
        }
    }
}

/// Another kind that a machine looks at.
#[derive(Clone, Debug)]
pub struct Watch {
    pub kind: Kind,
    pub depth: Depth,
    pub wakes: Wakes,
    /// Labels by which the machine looks objects up.
    pub labels: &'static [&'static str],
    /// Lines in which they stand.
    pub lines: &'static [Line],
    /// Whether what its status says concerns anybody.
    pub heeds_status: bool,
}

/// Objects of a kind that wait for their turn, those of each owner in the order of [`crate::object::Spot`]. Caches keep
/// it, so that who is next costs no search among thousands.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub name: &'static str,
    /// By what the object itself says.
    pub stands: fn(&Arc<Object>) -> bool,
}

impl PartialEq for Line {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Line {}

impl Watch {
    fn new(kind: Kind, wakes: Wakes) -> Self {
        Self { kind, depth: Depth::Full, wakes, labels: &[], lines: &[], heeds_status: true }
    }

    /// Children: a change wakes the controller that owns the object.
    pub fn owned(kind: Kind) -> Self {
        Self::new(kind, Wakes::Controller)
    }

    /// Anything else: `wakes` says whom a change concerns.
    pub fn other(kind: Kind, wakes: fn(&Object, &dyn View) -> Vec<Key>) -> Self {
        Self::new(kind, Wakes::By(wakes))
    }

    /// Every object of every kind, as metadata (a namespace goes when all that was in it is gone).
    pub fn every(wakes: fn(&Object, &dyn View) -> Vec<Key>) -> Self {
        Self::other(EVERY, wakes).metadata_only()
    }

    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.depth = Depth::Metadata;
        self
    }

    /// Of the many objects of this kind, one name matters.
    #[must_use]
    pub fn named(mut self, name: &'static str) -> Self {
        self.depth = Depth::Named(name);
        self
    }

    /// A change of its status alone wakes nobody: for objects that are told of often and of which only the rest is read.
    #[must_use]
    pub fn but_for_status(mut self) -> Self {
        self.heeds_status = false;
        self
    }

    #[must_use]
    pub fn in_lines(mut self, lines: &'static [Line]) -> Self {
        self.lines = lines;
        self
    }

    #[must_use]
    pub fn by_labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }
}

/// Whom a change of a watched object wakes.
#[derive(Clone, Copy, Debug)]
pub enum Wakes {
    /// The primary that its controller reference names.
    Controller,
    /// The primary that these labels name; without a namespace label, the one in the same namespace.
    Labels { namespace: Option<&'static str>, name: &'static str },
    /// Whatever this function says.
    By(fn(&Object, &dyn View) -> Vec<Key>),
}

/// A plan together with what it was decided on: applied late, it conflicts instead of moving anything back.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundPlan {
    pub machine: &'static str,
    pub basis: Reference,
    pub resource_version: String,
    /// The API server is asked to compare the version of `basis` with every create and delete.
    pub fenced: bool,
    /// Neighbouring steps that are alike may be sent side by side.
    pub in_any_order: bool,
    pub steps: Vec<Step>,
    pub notes: Vec<Note>,
    pub status: Option<Value>,
    pub asks: Vec<Call>,
    pub wake: Wake,
}

/// A plan that must not be applied: a defect of ours, reported and backed off from, never carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{about}: decided to move from phase {from:?} to {to:?}, which is not a legal move")]
    IllegalMove { about: String, from: Option<String>, to: String },
    #[error("{about}: the decided status cannot be written as JSON: {problem}")]
    Unwritable { about: String, problem: String },
}

/// Any machine, as the loop runs it.
#[derive(Clone)]
pub struct AnyMachine {
    inner: Arc<dyn Decider>,
    description: Arc<Description>,
}

trait Decider: Send + Sync {
    fn plan(&self, description: &Description, input: &Input<'_>, now: Timestamp) -> Result<BoundPlan, Fault>;
    fn audit(&self, tell: &Teller<'_>) -> Option<Vec<Entry>>;
}

impl AnyMachine {
    pub fn new<M: Machine>(machine: M) -> Self {
        let description = Arc::new(machine.description());
        Self { inner: Arc::new(machine), description }
    }

    pub fn name(&self) -> &'static str {
        self.description.name
    }

    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Reconciles the object.
    ///
    /// # Errors
    /// When the machine decided something that must not be carried out.
    pub fn plan(&self, input: &Input<'_>, now: Timestamp) -> Result<BoundPlan, Fault> {
        self.inner.plan(&self.description, input, now)
    }

    /// Everything that the object's state says has happened; `None` for kinds that are not audited.
    pub fn audit(&self, view: &dyn View, me: &Arc<Object>, now: Timestamp) -> Option<Vec<Entry>> {
        let tell = self.teller(view, me, now);
        let mut entries = self.inner.audit(&tell)?;
        entries.extend(tell.of_every_unit());
        Some(entries)
    }

    pub fn teller<'a>(&'a self, view: &'a dyn View, me: &'a Arc<Object>, now: Timestamp) -> Teller<'a> {
        Teller { view, me, description: &self.description, now }
    }
}

impl fmt::Debug for AnyMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyMachine").field(&self.description.name).finish()
    }
}

impl<M: Machine> Decider for M {
    fn plan(&self, description: &Description, input: &Input<'_>, now: Timestamp) -> Result<BoundPlan, Fault> {
        let me = match input.me.parse::<M::Kind>() {
            Ok(me) => me,
            Err(malformed) => return Ok(refuse_malformed(description, input.me, &malformed)),
        };
        let Input { view, me: object, refusals, answers } = *input;
        let cx = Context { object, typed: &me, view, now, refusals, answers };
        let Plan { steps, in_any_order, notes, status, gates, asks, wake } = self.reconcile(&cx);
        let status = match status {
            None => None,
            Some(status) => Some(finished_status(description, input.me, &status, &gates)?),
        };
        Ok(BoundPlan {
            machine: description.name,
            basis: input.me.reference(),
            resource_version: input.me.resource_version().to_owned(),
            fenced: self.is_fenced(),
            in_any_order,
            steps,
            notes,
            status,
            asks,
            wake,
        })
    }

    fn audit(&self, tell: &Teller<'_>) -> Option<Vec<Entry>> {
        // A malformed object says nothing that could be relied on.
        let me = tell.me.parse::<M::Kind>().ok()?;
        <M as Machine>::audit(self, tell, &me)
    }
}

/// The status as JSON, with this decision's gates merged in, once its phase move is known to be legal.
fn finished_status(
    description: &Description,
    me: &Object,
    status: &impl Serialize,
    gates: &[Gate],
) -> Result<Value, Fault> {
    let unwritable = |problem: serde_json::Error| Fault::Unwritable {
        about: me.reference().to_string(),
        problem: problem.to_string(),
    };
    let mut status = serde_json::to_value(status).map_err(unwritable)?;
    if !gates.is_empty() {
        let before = me.status().get("gates").and_then(|gates| Vec::<Gate>::deserialize(gates).ok());
        let merged = gate::merge(&before.unwrap_or_default(), gates);
        if let Some(status) = status.as_object_mut() {
            status.insert("gates".to_owned(), serde_json::to_value(merged).map_err(unwritable)?);
        }
    }
    if let Some(table) = &description.phases {
        let [_, field] = table.field;
        let phase = |status: &Value| status.get(field).and_then(Value::as_str).map(str::to_owned);
        let (from, to) = (phase(me.status()), phase(&status));
        if let Some(to) = to.filter(|to| !table.legal(from.as_deref(), to)) {
            return Err(Fault::IllegalMove { about: me.reference().to_string(), from, to });
        }
    }
    Ok(status)
}

fn refuse_malformed(description: &Description, me: &Arc<Object>, malformed: &Malformed) -> BoundPlan {
    let release = description.finalizer.filter(|finalizer| me.is_deleting() && me.has_finalizer(finalizer));
    BoundPlan {
        machine: description.name,
        basis: me.reference(),
        resource_version: me.resource_version().to_owned(),
        fenced: false,
        in_any_order: false,
        steps: release.map(Step::remove_finalizer).into_iter().collect(),
        notes: vec![Note::warning("Malformed", malformed.problem.clone())],
        status: None,
        asks: Vec::new(),
        wake: Wake::OnChange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::World;
    use k8s_openapi::api::core::v1::ConfigMap;
    use pawl_api::meta::GateName;
    use pawl_api::meta::phase::Phase;
    use serde_json::json;

    const CONFIG_MAP: Kind = Kind::of("", "v1", "ConfigMap", "configmaps", true);

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Light {
        Red,
        Green,
    }

    impl Phase for Light {
        const ALL: &'static [Self] = &[Self::Red, Self::Green];
        const FIRST: &'static [Self] = &[Self::Red];
        const MOVES: &'static [(Self, Self)] = &[(Self::Red, Self::Green)];
        const TERMINAL: &'static [Self] = &[Self::Green];

        fn as_str(self) -> &'static str {
            match self {
                Self::Red => "Red",
                Self::Green => "Green",
            }
        }
    }

    /// Decides whatever it is told to.
    struct Told(Value);

    impl Machine for Told {
        type Kind = ConfigMap;
        type Status = Value;

        fn description(&self) -> Description {
            Description {
                name: "told",
                primary: Primary::One(CONFIG_MAP),
                depth: Depth::Full,
                watches: vec![],
                finalizer: Some("told/finalizer"),
                phases: Some(Table::of::<Light>(CONFIG_MAP, ["status", "phase"])),
                writes: vec![],
            }
        }

        fn reconcile(&self, _: &Context<'_, ConfigMap>) -> Plan<Value> {
            Plan::rest().status(self.0.clone()).gate(Gate::passed(GateName::Validate, "Valid", "all of it"))
        }
    }

    fn plan(status: Value, me: Value) -> Result<BoundPlan, Fault> {
        let me = Object::new(CONFIG_MAP, me).unwrap();
        let input = Input { view: &World::default(), me: &me, refusals: &[], answers: &Arc::default() };
        AnyMachine::new(Told(status)).plan(&input, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_plan_is_bound_to_what_it_was_decided_on_and_carries_its_gates() {
        let me = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        let plan = plan(json!({"phase": "Red"}), me).unwrap();
        assert_eq!((plan.basis.uid.as_str(), plan.resource_version.as_str()), ("u", "7"));
        assert_eq!(plan.status.unwrap()["gates"][0]["gate"], "Validate");
    }

    #[test]
    fn an_illegal_move_is_a_fault_and_never_a_write() {
        let me = json!({"metadata": {"name": "a"}, "status": {"phase": "Green"}});
        let fault = plan(json!({"phase": "Red"}), me).unwrap_err();
        assert!(fault.to_string().contains("Green"), "{fault}");
    }

    #[test]
    fn i5_a_malformed_object_that_is_deleted_loses_its_finalizer() {
        let me = json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["told/finalizer"]}, "data": 7});
        let plan = plan(json!({}), me).unwrap();
        assert_eq!(plan.steps, [Step::remove_finalizer("told/finalizer")]);
        assert_eq!(plan.notes[0].reason, "Malformed");
    }
}
