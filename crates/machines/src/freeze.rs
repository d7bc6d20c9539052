//! Shall a unit wait, because a Freeze holds?
//!
//! ```text
//! Freezes that select the unit ─none holds─▶ free
//!   (door, namespace, targets) ─one holds──▶ overridden by the unit's annotation? ─yes─▶ free, and the ledger says why
//!                                                                                 ─no──▶ frozen, until the last one ends
//! ```
//! A unit asks before it starts and never after: what runs is not stopped. A Freeze whose schedule cannot be read holds
//! until it is mended: somebody meant to close a door, and a slip of the pen must not leave it open.
//!
//! | file | question |
//! |---|---|
//! | `keeping` | does a Freeze hold now, and when next? (its status) |
//! | `when` | when does a Freeze hold? |

use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::meta::{Gate, GateName, NewCondition, Reason};
use pawl_api::pawl::freeze::{Door, FreezeSpec, KIND};
use pawl_api::pawl::{Freeze, annotations, conditions};

use crate::machine::Watch;
use crate::object::{Key, Object, Reference};
use crate::plan::{Plan, Precondition, Step};
use crate::view::View;

mod keeping;
mod when;

pub use keeping::Freezes;
use when::When;

/// The Freezes that select a unit, whether or not they hold.
#[derive(Clone, Debug, Default)]
pub struct Selecting {
    freezes: Vec<Selected>,
    /// The reason why the unit runs nevertheless.
    overridden: Option<String>,
}

#[derive(Clone, Debug)]
struct Selected {
    seen: Arc<Object>,
    reason: String,
    when: Result<When, String>,
}

/// What the Freezes say of a unit at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No Freeze selects it.
    Unselected,
    /// Some do, and none of them holds.
    Free {
        selected: Vec<String>,
    },
    Frozen(Hold),
    /// One holds, and the unit runs nevertheless, for this reason.
    Overridden {
        hold: Hold,
        reason: String,
    },
}

/// The Freezes that hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// In the order of their names.
    pub freezes: Vec<String>,
    /// What they say, each with its name.
    pub why: String,
    /// When the last of them ends; `None`: when somebody changes one of them.
    pub until: Option<Timestamp>,
    /// As they were seen.
    seen: Vec<(Reference, String)>,
}

impl Selecting {
    /// Those for a unit of this door that acts on these targets, as they are written.
    pub fn observe<T: ToString>(view: &dyn View, me: &Object, door: Door, targets: &[T]) -> Self {
        let all = view.list(&KIND, None);
        if all.is_empty() {
            return Self::default();
        }
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let namespace = me.namespace().unwrap_or_default();
        let selected = all.into_iter().filter(|object| !object.is_deleting()).filter_map(|seen| {
            let (reason, when) = match seen.parse::<Freeze>() {
                Ok(freeze) if selects(&freeze.spec, door, namespace, &targets) => {
                    (freeze.spec.reason.clone(), When::of(&freeze.spec))
                }
                Ok(_) => return None,
                // Nobody knows whom it selects.
                Err(malformed) => (String::new(), Err(malformed.problem)),
            };
            Some(Selected { seen, reason, when })
        });
        let reason = me.annotation(annotations::FREEZE_OVERRIDE).map(str::trim);
        Self {
            freezes: selected.collect(),
            overridden: reason.filter(|reason| !reason.is_empty()).map(str::to_owned),
        }
    }

    pub fn standing(&self, now: Timestamp) -> Standing {
        if self.freezes.is_empty() {
            return Standing::Unselected;
        }
        let name = |one: &Selected| one.seen.name().to_owned();
        let holding: Vec<(&Selected, Option<Timestamp>)> = self
            .freezes
            .iter()
            .filter_map(|one| match &one.when {
                Ok(when) => when.at(now).active.map(|until| (one, until)),
                Err(_) => Some((one, None)),
            })
            .collect();
        if holding.is_empty() {
            return Standing::Free { selected: self.freezes.iter().map(name).collect() };
        }
        let why: Vec<String> = holding.iter().map(|(one, _)| one.says()).collect();
        let ends: Option<Vec<Timestamp>> = holding.iter().map(|(_, until)| *until).collect();
        let seen = |(one, _): &(&Selected, _)| (one.seen.reference(), one.seen.resource_version().to_owned());
        let hold = Hold {
            freezes: holding.iter().map(|(one, _)| name(one)).collect(),
            why: why.join("; "),
            until: ends.and_then(|ends| ends.into_iter().max()),
            seen: holding.iter().map(seen).collect(),
        };
        match &self.overridden {
            Some(reason) => Standing::Overridden { hold, reason: reason.clone() },
            None => Standing::Frozen(hold),
        }
    }
}

impl Selected {
    fn says(&self) -> String {
        let name = self.seen.name();
        match &self.when {
            Ok(_) => format!("{name}: {}", self.reason),
            Err(problem) => format!("{name}: it cannot be read, so it holds until it is mended: {problem}"),
        }
    }
}

impl Standing {
    /// Why the unit may not start now.
    pub fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Frozen(hold) => Some(hold),
            Self::Unselected | Self::Free { .. } | Self::Overridden { .. } => None,
        }
    }

    /// What the gate says; nothing where there was nothing to look at.
    pub fn gate(&self) -> Option<Gate> {
        let list = |names: &[String]| format!("Freeze {}", names.join(", "));
        match self {
            Self::Unselected => None,
            Self::Free { selected } => {
                Some(Gate::passed(GateName::Freeze, Reason::NotFrozen, list(selected)))
            }
            Self::Frozen(hold) => {
                Some(Gate::waiting(GateName::Freeze, Reason::Frozen, hold.to_string(), hold.would_change()))
            }
            Self::Overridden { hold, reason } => {
                let looked_at = format!("{hold}; the unit runs nevertheless: {reason}");
                Some(Gate::passed(GateName::Freeze, Reason::FreezeOverridden, looked_at))
            }
        }
    }

    /// What the gate said of a unit that has started, whatever holds by now.
    pub fn passed(&self) -> Option<Gate> {
        match self {
            Self::Frozen(hold) => {
                let looked_at =
                    format!("Freeze {}, which did not hold when it started", hold.freezes.join(", "));
                Some(Gate::passed(GateName::Freeze, Reason::NotFrozen, looked_at))
            }
            Self::Unselected | Self::Free { .. } | Self::Overridden { .. } => self.gate(),
        }
    }

    /// `Frozen`: true while the unit waits. Whoever was never frozen needs none.
    pub fn condition(&self) -> NewCondition {
        match self {
            Self::Unselected | Self::Free { .. } => {
                NewCondition::no(conditions::FROZEN, Reason::NotFrozen, "no Freeze holds")
            }
            Self::Frozen(hold) => NewCondition::yes(conditions::FROZEN, Reason::Frozen, hold.to_string()),
            Self::Overridden { hold, reason } => {
                let message = format!("{hold}; the unit runs nevertheless: {reason}");
                NewCondition::no(conditions::FROZEN, Reason::FreezeOverridden, message)
            }
        }
    }
}

impl Hold {
    /// What would let the unit go on.
    pub fn would_change(&self) -> String {
        let end = match self.until {
            Some(until) => format!("{until:.0}"),
            None => "the end of the Freeze".to_owned(),
        };
        format!("{end}, or the annotation {} with a reason on the unit", annotations::FREEZE_OVERRIDE)
    }

    /// For plans that end a unit because of it: a cache that lags must not end anything.
    pub fn still_so(&self) -> Vec<Step> {
        let confirm = |(target, resource_version): &(Reference, String)| {
            let (target, resource_version) = (target.clone(), resource_version.clone());
            Step::Confirm(Precondition::Unchanged { target, resource_version })
        };
        self.seen.iter().map(confirm).collect()
    }

    /// For plans of units that wait: they are reconciled again at its end. A change of a Freeze wakes them too.
    #[must_use]
    pub fn waits<S>(&self, plan: Plan<S>) -> Plan<S> {
        match self.until {
            Some(at) => plan.wake_at(at),
            None => plan,
        }
    }
}

impl std::fmt::Display for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.until {
            Some(until) => write!(f, "frozen until {until:.0} ({})", self.why),
            None => write!(f, "frozen ({})", self.why),
        }
    }
}

/// For machines of units: Freezes are looked at, and `wakes` says whom a change concerns (the units that have not started).
pub fn watch(wakes: fn(&Object, &dyn View) -> Vec<Key>) -> Watch {
    Watch::other(KIND, wakes)
}

/// Whether a Freeze is about a unit. An empty list selects all.
fn selects(spec: &FreezeSpec, door: Door, namespace: &str, targets: &[String]) -> bool {
    let any = |patterns: &[String], text: &str| patterns.iter().any(|pattern| matches(pattern, text));
    (spec.doors.is_empty() || spec.doors.contains(&door))
        && (spec.namespaces.is_empty() || any(&spec.namespaces, namespace))
        && (spec.targets.is_empty() || targets.iter().any(|target| any(&spec.targets, target)))
}

/// Whether a pattern, in which `*` stands for any text, is all of a text. Linear but for the number of stars.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        match text.find(part) {
            Some(at) => text = text.get(at.saturating_add(part.len())..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::World;
    use serde_json::{Value, json};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn world(freezes: &[(&str, Value)]) -> World {
        let of = |(name, spec): &(&str, Value)| (KIND, json!({"metadata": {"name": name}, "spec": spec}));
        World::of(freezes.iter().map(of)).unwrap()
    }

    fn unit(annotation: Option<&str>) -> std::sync::Arc<Object> {
        let annotations = annotation.map(|reason| json!({annotations::FREEZE_OVERRIDE: reason}));
        let metadata = json!({"namespace": "prod-eu", "name": "u", "annotations": annotations});
        Object::new(crate::cluster::job::JOB, json!({"metadata": metadata})).unwrap()
    }

    fn standing(freezes: &[(&str, Value)], annotation: Option<&str>, now: &str) -> Standing {
        let targets = ["prod-eu/deployment/web"];
        Selecting::observe(&world(freezes), &unit(annotation), Door::Remedy, &targets).standing(at(now))
    }

    #[test]
    fn a_freeze_selects_by_door_namespace_and_target() {
        let until = "2026-01-02T00:00:00Z";
        for (select, holds) in [
            (json!({}), true),
            (json!({"doors": ["remedy"]}), true),
            (json!({"doors": ["git", "deploy"]}), false),
            (json!({"namespaces": ["prod-*"]}), true),
            (json!({"namespaces": ["prod"]}), false),
            (json!({"targets": ["prod-eu/deployment/*"]}), true),
            (json!({"targets": ["*/web"]}), true),
            (json!({"targets": ["*/statefulset/*", "node/*"]}), false),
            (json!({"doors": ["remedy"], "namespaces": ["prod-eu"], "targets": ["other"]}), false),
        ] {
            let mut spec = json!({"reason": "holidays", "until": until});
            spec.as_object_mut().unwrap().extend(select.as_object().unwrap().clone());
            let standing = standing(&[("f", spec.clone())], None, "2026-01-01T12:00:00Z");
            assert_eq!(standing.hold().is_some(), holds, "{spec}");
        }
    }

    #[test]
    fn the_last_freeze_to_end_says_until_when() {
        let freezes = [
            ("a", json!({"reason": "one", "until": "2026-01-02T00:00:00Z"})),
            ("b", json!({"reason": "two", "until": "2026-01-03T00:00:00Z"})),
            ("c", json!({"reason": "three", "from": "2026-02-01T00:00:00Z"})),
        ];
        let standing = standing(&freezes, None, "2026-01-01T12:00:00Z");
        let hold = standing.hold().unwrap();
        assert_eq!(hold.to_string(), "frozen until 2026-01-03T00:00:00Z (a: one; b: two)");
        assert!(standing.gate().unwrap().would_change.starts_with("2026-01-03"));
        assert_eq!(standing.condition().reason, Reason::Frozen);
    }

    #[test]
    fn a_freeze_without_an_end_holds_until_somebody_changes_it() {
        let standing = standing(
            &[("f", json!({"reason": "r", "from": "2026-01-01T00:00:00Z"}))],
            None,
            "2026-01-01T00:00:00Z",
        );
        assert_eq!(standing.hold().unwrap().until, None);
        let plan = standing.hold().unwrap().waits(Plan::<()>::rest());
        assert_eq!(plan.wake, crate::plan::Wake::OnChange);
    }

    #[test]
    fn an_override_needs_a_reason_and_is_told() {
        let freezes = [("f", json!({"reason": "holidays", "until": "2026-01-02T00:00:00Z"}))];
        for empty in ["", "  "] {
            assert!(standing(&freezes, Some(empty), "2026-01-01T00:00:00Z").hold().is_some());
        }
        let standing = standing(&freezes, Some("the shop is down"), "2026-01-01T00:00:00Z");
        assert!(standing.hold().is_none());
        let gate = standing.gate().unwrap();
        assert_eq!(gate.reason, "FreezeOverridden");
        assert!(
            gate.looked_at.contains("the shop is down") && gate.looked_at.contains("holidays"),
            "{gate:?}"
        );
    }

    #[test]
    fn a_freeze_that_cannot_be_read_closes_the_door_and_says_so() {
        let bad = json!({"reason": "r", "schedule": {"cron": "61 * * * *", "duration": "1h"}});
        let standing_bad = standing(&[("f", bad)], None, "2026-01-01T00:00:00Z");
        assert!(standing_bad.hold().unwrap().why.contains("61 * * * *"), "{standing_bad:?}");
        let malformed = standing(&[("f", json!({"reason": 7}))], None, "2026-01-01T00:00:00Z");
        assert!(malformed.hold().is_some());
    }

    #[test]
    fn whoever_no_freeze_selects_hears_nothing_of_them() {
        assert_eq!(standing(&[], None, "2026-01-01T00:00:00Z"), Standing::Unselected);
        assert_eq!(Standing::Unselected.gate(), None);
        let over = standing(
            &[("f", json!({"reason": "r", "until": "2026-01-01T00:00:00Z"}))],
            None,
            "2026-01-01T00:00:00Z",
        );
        assert_eq!(over, Standing::Free { selected: vec!["f".to_owned()] });
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expect) in [
            ("*", "", true),
            ("*", "a/b", true),
            ("a*", "a", true),
            ("a*b", "ab", true),
            ("a*b", "a/x/b", true),
            ("a*b", "a", false),
            ("a*a", "a", false),
            ("*b*", "abc", true),
            ("a**c", "abc", true),
            ("a", "ab", false),
            ("", "", true),
            ("*ab*ab", "ab", false),
            ("é*", "é!", true),
        ] {
            assert_eq!(matches(pattern, text), expect, "{pattern} {text}");
        }
    }
}
