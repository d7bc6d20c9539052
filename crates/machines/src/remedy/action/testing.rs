//! How are actions asked in tests? With an order, and what was seen.

use jiff::Timestamp;
use pawl_api::remedy::Action;
use pawl_api::remedy::actions::PatchType;
use serde_json::Value;

use super::course::{Course, How, Write};
use super::definition::{Context, Definition, Problem};
use super::kept::{Kept, Undo};
use super::seen::{Place, Read, Seen};
use super::{Order, definition};
use crate::object::Key;

pub(crate) fn action(word: &str) -> Action {
    serde_json::from_value(word.into()).unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
pub(crate) fn order(word: &str, parameters: Value) -> Order {
    Order {
        execution: Key::new(Some("home"), "x"),
        uid: "11111111-1111-1111-1111-111111111111".to_owned(),
        action: action(word),
        parameters: parameters.to_string().into(),
        undoes: None,
    }
}

/// An order with the value of the action's member.
#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
pub(super) fn given(word: &str, member: Value) -> Order {
    order(word, serde_json::json!({action(word).member(): member}))
}

pub(super) fn check(word: &str, member: Value) -> Result<(), Problem> {
    let order = given(word, member);
    definition(order.action).check(&order.parameters().unwrap())
}

/// Asks something of an action that sees these objects, and nothing else.
pub(super) fn asked<T>(
    order: &Order,
    objects: &[Value],
    ask: impl FnOnce(&Definition, &Context<'_>, &Seen) -> T,
) -> T {
    asked_again(order, objects, None, ask)
}

/// The same, with what another execution kept.
pub(super) fn asked_again<T>(
    order: &Order,
    objects: &[Value],
    undone: Option<&Kept>,
    ask: impl FnOnce(&Definition, &Context<'_>, &Seen) -> T,
) -> T {
    let order = &Order { undoes: undone.map(|kept| kept.uid.clone()), ..order.clone() };
    let parameters = order.parameters().unwrap();
    let context = Context { order, parameters: &parameters, kept: None, undone, now: Timestamp::UNIX_EPOCH };
    let definition = definition(order.action);
    let mut seen = Seen::default();
    loop {
        let reads = definition.reads(&context, &seen);
        if reads.is_empty() {
            return ask(definition, &context, &seen);
        }
        for read in reads {
            match read {
                Read::Object(place) => {
                    let found = objects.iter().find(|object| is_at(object, &place)).cloned();
                    seen.put(place, found);
                }
                // Whoever gives objects of a listed kind means them to be selected.
                Read::List(listing) => {
                    let of_kind = objects.iter().filter(|object| object["kind"] == *listing.kind.kind);
                    let found = of_kind.cloned().collect();
                    seen.put_list(listing, found);
                }
            }
        }
    }
}

fn is_at(object: &Value, place: &Place) -> bool {
    object["kind"] == *place.kind.kind
        && object["metadata"]["name"] == *place.key.name
        && object["metadata"].get("namespace").and_then(Value::as_str) == place.key.namespace.as_deref()
}

pub(super) fn course(order: &Order, objects: &[Value]) -> Course {
    asked(order, objects, |definition, context, seen| definition.course(context, seen))
}

pub(super) fn refusal(order: &Order, objects: &[Value]) -> String {
    let course = course(order, objects);
    let Course::Refuse(why) = course else { panic!("not refused: {course:?}") };
    why
}

/// The one patch that an action makes, without what every patch says.
pub(super) fn patch(order: &Order, objects: &[Value]) -> (PatchType, Value) {
    let Course::Finish(writes) = course(order, objects) else { panic!("{:?}", course(order, objects)) };
    only_patch(&writes)
}

pub(super) fn only_patch(writes: &[Write]) -> (PatchType, Value) {
    let [Write { how: How::Patch { type_, body }, .. }] = writes else { panic!("{writes:?}") };
    let mut body = body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(pawl_api::remedy::annotations::CHANGED_BY);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        if metadata.is_empty() {
            body.as_object_mut().unwrap().remove("metadata");
        }
    }
    (*type_, body)
}

pub(super) fn undo(order: &Order, objects: &[Value]) -> Undo {
    asked(order, objects, |definition, context, seen| definition.undo(context, seen, &Seen::default()))
}

pub(super) fn kept(order: &Order, objects: &[Value]) -> Kept {
    asked(order, objects, |definition, context, seen| {
        let undo = definition.undo(context, seen, &Seen::default());
        Kept::new(order, definition.before(context, seen), undo)
    })
}

pub(super) fn words(order: &Order, objects: &[Value]) -> Vec<String> {
    asked(order, objects, |definition, context, seen| {
        definition.before(context, seen).into_iter().map(|before| before.words).collect()
    })
}
